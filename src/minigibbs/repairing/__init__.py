"""Repair of tables: candidates for cells, features with tied weights, and their probabilities."""
