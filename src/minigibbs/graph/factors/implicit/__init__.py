"""Implicit factors: all pairs of variables, defined by a rule."""
