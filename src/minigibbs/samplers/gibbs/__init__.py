"""Plain Gibbs sampling, in three forms."""

from minigibbs.samplers.gibbs.sampler import Gibbs

__all__ = ["Gibbs"]
