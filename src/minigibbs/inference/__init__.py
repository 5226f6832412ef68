"""Inference and MAP search with an automatic choice of the method."""
