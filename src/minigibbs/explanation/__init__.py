"""Predicted costs of samplers on a graph, and a recommendation."""
