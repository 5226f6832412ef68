"""Annealed importance sampling (Neal, 2001, doi:10.1023/A:1008923215028): log Z with an error.

Chains begin with independent variables, by the unary factors alone, and sweep while the other
factors grow from 0 to their strength. The weights that the chains collect average to Z.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.energy import add_stored, total_energy
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.random import streams, uniform
from minigibbs.samplers.gibbs.sampler import sum_unary
from minigibbs.system.watch import Watch

_CHAINS = 128
_FIRST, _MOST = 128, 2**17  # sweeps of a round


class LogZ(NamedTuple):
    """An estimate of log Z."""

    value: float
    error: float  # standard error
    sweeps: int  # of each chain, in the last round


def annealed_log_z(graph: FactorGraph, error: float, seed: int, threads: int, watch: Watch) -> LogZ:
    """Estimate log Z: rounds of twice as many sweeps until the error is small or time is up.

    Parameters
    ----------
    graph : FactorGraph
        A model with explicit factors and without hard constraints.
    error : float
        The standard error to reach.
    seed, threads : int
        Of the chains.
    watch : Watch
        The deadline and the signals of the call.
    """
    if graph.implicits:
        raise LearnError("log Z by annealing needs explicit factors; use graph.stored()")
    if len(graph.hard):
        raise LearnError("log Z by annealing needs a model without hard constraints")
    model, order = graph.packed, free_variables(graph.evidence).astype(np.int32)
    unary = sum_unary(model)
    if not len(unary):
        unary = np.zeros(int(model.rows["domain"].sum()))
    fields = [
        unary[model.first[i] : model.first[i] + model.rows["domain"][i]] for i in order.tolist()
    ]
    base = float(sum(np.logaddexp.reduce(own) for own in fields)) + graph.offset
    start = np.where(graph.evidence >= 0, graph.evidence, 0).astype(graph.state_type)
    clamped = np.flatnonzero(graph.evidence >= 0)
    base += float(unary[model.first[clamped] + start[clamped]].sum())
    own = streams(seed, _CHAINS)
    sweeps, found = _FIRST, LogZ(base, math.inf, 0)
    with ThreadPoolExecutor(threads) as pool:
        while True:
            weights = np.zeros(_CHAINS)
            betas = _schedule(sweeps)
            cuts = np.linspace(0, _CHAINS, threads + 1).astype(int).tolist()

            def work(
                begin: int, end: int, betas: NDArray[np.float64] = betas, out: Any = weights
            ) -> None:
                states = np.tile(start, (end - begin, 1))
                space = np.zeros(2 * int(graph.sizes.max()))
                _anneal(model, unary, order, states, own[begin:end], betas, space, out[begin:end])

            list(pool.map(work, cuts[:-1], cuts[1:]))
            found = _estimate(base, weights, sweeps)
            if found.error <= error or sweeps >= _MOST or watch.ended:
                return found
            sweeps *= 2


def _schedule(sweeps: int) -> NDArray[np.float64]:
    """Strengths of the factors, denser at both ends."""
    at = np.linspace(-3.0, 3.0, sweeps + 1)
    rising = 1 / (1 + np.exp(-at))
    return np.asarray((rising - rising[0]) / (rising[-1] - rising[0]))


def _estimate(base: float, weights: NDArray[np.float64], sweeps: int) -> LogZ:
    """Log Z from logarithms of weights, with the error of their mean."""
    top = weights.max()
    shares = np.exp(weights - top)
    mean = shares.mean()
    error = shares.std(ddof=1) / mean / math.sqrt(len(weights))
    return LogZ(base + float(top + np.log(mean)), float(error), sweeps)


@kernel
def _draw(weights, size, stream):
    """A value by its log-weight."""
    top = weights[0]
    for value in range(1, size):
        top = max(top, weights[value])
    total = 0.0
    for value in range(size):
        weights[value] = math.exp(weights[value] - top)
        total += weights[value]
    left = uniform(stream) * total
    for value in range(size):
        left -= weights[value]
        if left < 0.0:
            return value
    return size - 1  # by rounding


@entry
def _anneal(model, unary, order, states, own, betas, space, out):
    """Anneal each chain from independent variables; out gets the logarithms of the weights."""
    half = len(space) // 2
    weights, joint = space[:half], space[half:]
    for chain in range(len(states)):
        x, stream = states[chain], own[chain]
        for k in range(len(order)):
            i = order[k]
            size = model.rows[i].domain
            for value in range(size):
                weights[value] = unary[model.first[i] + value]
            x[i] = _draw(weights, size, stream)
        rest = total_energy(model, x)  # without the unary factors
        for i in range(len(x)):
            rest -= unary[model.first[i] + x[i]]
        total = 0.0
        for step in range(1, len(betas)):
            total += (betas[step] - betas[step - 1]) * rest
            for k in range(len(order)):
                i = order[k]
                size, old = model.rows[i].domain, x[i]
                for value in range(size):
                    joint[value] = 0.0
                add_stored(model, x, i, joint)
                for value in range(size):
                    weights[value] = unary[model.first[i] + value] + betas[step] * joint[value]
                new = _draw(weights, size, stream)
                if new != old:
                    rest += joint[new] - joint[np.int64(old)]
                    x[i] = new
        out[chain] = total
