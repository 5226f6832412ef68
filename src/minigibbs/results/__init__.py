"""What a run leaves behind, and every number that is computed from it."""
