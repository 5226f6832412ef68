"""A run on disk, from which it goes on as if it had never stopped."""
