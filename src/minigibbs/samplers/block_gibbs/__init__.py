"""Blocks of small treewidth, redrawn jointly: `covers` finds them, `program` compiles them."""
