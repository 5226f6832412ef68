"""Reproduction of the paper: its figures, table and theorems; see docs/paper.md."""
