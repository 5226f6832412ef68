"""PyMC: a step method for the discrete variables of a model."""

from minigibbs.interop.pymc import GraphStep

__all__ = ["GraphStep"]
