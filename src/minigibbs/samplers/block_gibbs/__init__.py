"""Blocks of small treewidth, redrawn jointly: `covers` finds them, `program` lays them out."""
