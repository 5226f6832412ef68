"""The user's model: variables, factors, evidence; and its packing into flat arrays."""

from minigibbs.graph.graph import FactorGraph

__all__ = ["FactorGraph"]
