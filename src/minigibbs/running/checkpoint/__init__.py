"""A run on disk, from which it continues as if it had never stopped."""
