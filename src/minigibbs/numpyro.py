"""NumPyro: the Gibbs function of a discrete site for `HMCGibbs`."""

from minigibbs.interop.jax import graph_gibbs

__all__ = ["graph_gibbs"]
