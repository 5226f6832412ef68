"""The search for a ladder's levels, by short runs, each twice as long as the previous one.

Levels are placed so that all exchanges have the same rejection rate. The sum of the rejection rates
hardly depends on the levels: it is the barrier of Syed et al. (2019). Twice as many levels as the
barrier give the most round trips per work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace, make_sweeps, new_chain, pilot_stream, start_sweeps
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import Chain, Model
from minigibbs.samplers.tempering.ladder import ROUNDS, SWAPS
from minigibbs.system.watch import current

_FIRST_LEVELS = 16
_FIRST_ROUNDS = 8
_ROUNDS = 8  # maximum number of rounds of search
_UPDATES = 2e7  # of all levels together, in the entire search
MOST_LEVELS = 200
_LEAST = 4
_SHARE = 0.15  # of the remaining time, for the entire search


Prepare = Callable[[NDArray[np.float64]], tuple[Any, Workspace]]


def find_levels(
    graph: FactorGraph,
    state: NDArray[Any],
    prepare: Prepare,
    count: int | None = None,
    beta: NDArray[np.float64] | None = None,
    most: int = MOST_LEVELS,
) -> NDArray[np.float64]:
    """Find the levels of a temperature ladder for a graph.

    The search is deterministic for a graph, so a seed determines the chains, unless the time limit
    of the call ends it early.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    state : array
        Start of the short runs; it is overwritten.
    prepare : callable
        Builds the ladder of given levels, and its workspace.
    count : int or None
        Number of levels; None to choose it.
    beta : array or None
        The initial levels, whose ends are fixed; by default from 0 to 1.
    most : int
        Maximum number of levels.

    Returns
    -------
    array
        The levels, in ascending order.
    """
    if beta is None:
        beta = np.linspace(0.0, 1.0, count or _FIRST_LEVELS) ** 2
    rounds, made, stream = _FIRST_ROUNDS, 0.0, pilot_stream()
    allowed, first = current().spent + _SHARE * current().left, len(beta)
    layout, pace = _seconds(graph, prepare, beta, state, stream)
    for number in range(_ROUNDS):
        ahead = (pace * rounds + (layout if number else 0.0)) * len(beta) / first
        if current().spent + ahead > allowed:
            break
        data, space = prepare(beta)
        rejected = rejection_rates(graph, data, space, state, stream, rounds)
        barrier = float(rejected.sum())
        levels = count or min(max(math.ceil(2 * barrier) + 1, _LEAST), most)
        beta = equally_spaced(beta, rejected, levels)
        each = len(beta) * len(graph) * data.sweeps
        made += rounds * each
        rounds *= 2
        if made + rounds * each > _UPDATES:
            break
    if len(beta) > most:  # the search ended before its first round
        beta = equally_spaced(beta, np.ones(len(beta) - 1), most)
    return beta


def _seconds(
    graph: FactorGraph,
    prepare: Prepare,
    beta: NDArray[np.float64],
    state: NDArray[Any],
    stream: NDArray[np.uint64],
) -> tuple[float, float]:
    """Time the layout of a ladder and one round; return 0 if the call has no time limit."""
    if not current().limited:
        return 0.0, 0.0
    begun = current().spent
    data, space = prepare(beta)
    before = current().spent
    rejection_rates(graph, data, space, state.copy(), stream.copy(), 1)
    return before - begun, current().spent - before


def equally_spaced(
    beta: NDArray[np.float64], rejected: NDArray[np.float64], levels: int
) -> NDArray[np.float64]:
    """Return levels with the same share of the barrier between neighbors."""
    way = np.concatenate([[0.0], np.cumsum(np.maximum(rejected, 1e-3))])
    found = np.interp(np.linspace(0.0, way[-1], levels), way, beta)
    found[0], found[-1] = beta[0], beta[-1]
    return found


def rejection_rates(
    graph: FactorGraph,
    data: Any,
    space: Workspace,
    state: NDArray[Any],
    stream: NDArray[np.uint64],
    rounds: int,
) -> NDArray[np.float64]:
    """Measure the rejection rates of neighboring levels in a run of some rounds."""
    chain, replicas = new_chain(graph, space, state, stream), space.new_replicas(graph)
    run_rounds(data, graph.packed, chain, replicas, rounds)
    state[:] = chain.x
    first, pairs = data.own + SWAPS, len(data.beta) - 1
    made = chain.carried[data.own + ROUNDS] * data.twins
    chances: NDArray[np.float64] = chain.carried[first : first + pairs] / made
    return 1.0 - chances


def run_rounds(data: Any, model: Model, chain: Chain, replicas: NDArray[Any], rounds: int) -> None:
    """Initialize a ladder, and run it for `rounds` rounds; the first half is not counted."""
    start_sweeps(data, model, chain, replicas)
    make_sweeps(data, model, chain, replicas, rounds // 2)
    chain.carried[data.own + SWAPS : data.own + SWAPS + len(data.beta) - 1] = 0.0
    chain.carried[data.own + ROUNDS] = 0.0
    make_sweeps(data, model, chain, replicas, rounds - rounds // 2)
