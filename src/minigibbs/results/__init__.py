"""Results of runs, inference and learning, and the statistics computed from them."""
