"""The default sampler: one algorithm, and a layout of its arrays for each kind of graph."""

from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs

__all__ = ["PoissonGibbs"]
