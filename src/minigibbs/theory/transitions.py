"""Transition matrices of all samplers on small graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import MOST_MATRIX, Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers import Sampler
from minigibbs.samplers.base import check_zeros
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Delayed


@checked(SampleError)
def transition(graph: FactorGraph, sampler: Sampler) -> Transition:
    """Compute the transition matrix of one update at a uniformly random variable.

    For samplers that update all variables at once it is the matrix of one sweep.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    sampler : Sampler
        The sampler.

    Returns
    -------
    Transition
        The matrix and its rows.

    Raises
    ------
    TooLargeError
        If there are too many states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> round(transition(pair, mg.Gibbs()).spectral_gap(), 4)
    0.2689
    """
    if graph.implicits:
        raise SampleError("transition: enumeration needs stored factors; use graph.stored()")
    check_zeros(sampler, graph)
    with Delayed("computing the transition matrix"):
        return sampler.transition(Enumeration(graph))


@checked(SampleError)
def site_updates(chain: Transition) -> list[NDArray[np.float64]]:
    """Split the matrix of a random scan into the matrices of updates at single variables.

    Parameters
    ----------
    chain : Transition
        The transition matrix of one update at a uniformly random variable, over states.

    Returns
    -------
    list of ndarray
        One matrix per free variable, in order. Their mean is `chain.matrix`.

    Raises
    ------
    SampleError
        If the rows of the matrix are not the states of the graph.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> first, second = site_updates(transition(pair, mg.Gibbs()))
    >>> first[0].round(3)  # from (0, 0): variable 0 alone is updated
    array([0.731, 0.   , 0.269, 0.   ])
    """
    everything = chain.enumeration
    if len(chain.matrix) != len(everything.states):
        raise SampleError(
            f"site_updates: expected a matrix over the {len(everything.states):,} states of the "
            f"graph, got {len(chain.matrix):,} rows; use a sampler that stores no energy estimate"
        )
    found = []
    for i in everything.free:
        update = np.zeros_like(chain.matrix)
        for line in everything.lines(i):
            moves = chain.matrix[np.ix_(line, line)] * len(everything.free)
            np.fill_diagonal(moves, 0.0)
            np.fill_diagonal(moves, 1.0 - moves.sum(axis=1))
            update[np.ix_(line, line)] = moves
        found.append(update)
    return found


@checked(SampleError)
def sweep_gap(graph: FactorGraph, sampler: Sampler) -> float:
    """Compute 1 - ||P_n ... P_1||^2, with P_i the update of variable i and the norm of L2_0(pi).

    It is the spectral gap of the reversible chain that sweeps forward and then backward. L2_0(pi)
    are the functions of mean 0 under the model's distribution pi. See docs/theory.md.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    sampler : Sampler
        A sampler that updates one variable at a time and is reversible under the model's
        distribution.

    Returns
    -------
    float
        From 0 (no convergence) to 1 (independent draws).

    Raises
    ------
    SampleError
        If the sampler updates all variables at once, or stores an energy estimate.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> round(sweep_gap(pair, mg.Gibbs()), 4)
    0.7864
    """
    if sampler.sweeps:
        raise SampleError(
            f"sweep_gap: expected a sampler of single variables, such as mg.Gibbs(), got {sampler}"
        )
    chain = transition(graph, sampler)
    root = np.sqrt(chain.enumeration.distribution)
    seen = root > 0
    root, sweep = root[seen], np.eye(int(seen.sum()))
    for update in site_updates(chain):
        scaled = root[:, None] * update[np.ix_(seen, seen)] / root
        sweep = (scaled - np.outer(root, root)) @ sweep
    return float(1.0 - np.linalg.norm(sweep, 2) ** 2)


__all__ = ["MOST_MATRIX", "Transition", "site_updates", "sweep_gap", "transition"]
