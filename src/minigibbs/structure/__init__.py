"""Structure learning: from a table to a graph with fitted parameters; one file per algorithm."""
