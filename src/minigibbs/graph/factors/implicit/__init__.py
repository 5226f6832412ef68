"""Implicit factors: all pairs of variables, given by a rule."""
