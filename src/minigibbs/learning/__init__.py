"""Weights learned from data: `mg.learn`."""
