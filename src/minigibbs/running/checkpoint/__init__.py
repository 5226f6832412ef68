"""Runs on disk, which continue exactly as if uninterrupted."""
