"""The transition matrix of any sampler on a small graph."""

from __future__ import annotations

from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import MOST_MATRIX, Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers import Sampler
from minigibbs.samplers.base import check_zeros
from minigibbs.system.boundary import checked


@checked(SampleError)
def transition(graph: FactorGraph, sampler: Sampler) -> Transition:
    """The transition matrix of one update at a uniformly random variable, or of one sweep.

    A sweep is that of a sampler that moves all variables at once.

    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> round(transition(pair, mg.Gibbs()).spectral_gap(), 4)
    0.2689
    """
    if graph.implicits:
        raise SampleError("transition: enumeration needs stored factors; use graph.stored()")
    check_zeros(sampler, graph)
    return sampler.transition(Enumeration(graph))


__all__ = ["MOST_MATRIX", "Transition", "transition"]
