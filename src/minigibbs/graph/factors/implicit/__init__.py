"""Factors over all pairs that are implicit: given by a rule, never written out."""
