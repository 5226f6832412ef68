"""Stickiness of the auxiliary draws on a graph, from two short runs at a small and a large theta.

The split minimizes the predicted time per effective sample, in which a tail of energy L_T slows
chains by a factor of exp(stickiness * L_T * ((1 + theta) * log(1 + 1/theta) - 1)). This constant
depends on the model. The runs count operations instead of measuring time, and their streams are
fixed, so a graph gives the same number on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import CHANGES, Chain
from minigibbs.samplers.base import carries, update
from minigibbs.samplers.poisson_gibbs.groups import implicit_space
from minigibbs.samplers.poisson_gibbs.split import Split, choose_split
from minigibbs.samplers.registry import choose_variant, variant_of

THETAS = (0.3, 4.0)
_DRAWS = 2e7  # approximate number per run
_SWEEPS = (24, 400)  # least and most per run; the first half is discarded
_MOST_DRAWS = 2000.0  # per update; with more, short runs measure nothing
_LEAST_CHANGE = 0.02  # least share of values changed in one sweep, relative to many sweeps


def measured_stickiness(graph: FactorGraph) -> float | None:
    """Measure the stickiness between 0 and 1; return None if short runs cannot determine it."""
    splits = [choose_split(graph, None, theta, 0) for theta in THETAS]
    energy = _tail_energy(graph, splits[0])
    draws = (1.0 + THETAS[1]) * energy
    if not 0.0 < draws <= _MOST_DRAWS or any(g.projected for g in splits[0].implicits):
        return None
    free = len(free_variables(graph.evidence))
    sweeps = int(np.clip(_DRAWS / (free * (1.0 + draws)), *_SWEEPS))
    times = [_time_of(graph, split, sweeps) for split in splits]
    if None in times:
        return None
    small, large = (1.0 + np.array(THETAS)) * np.log1p(1.0 / np.array(THETAS)) - 1.0
    slowdown = math.log(times[0] / times[1])  # type: ignore[operator]
    found = float(slowdown / (energy * (small - large)))
    return round(min(max(found, 0.0), 1.0), 4)


def _tail_energy(graph: FactorGraph, split: Split) -> float:
    """Return the mean energy of the minibatched factors at a variable, over all groups."""
    stored = float(split.tail[graph.evidence < 0].mean()) if len(split.heavy) else 0.0
    return stored + sum(g.draws * g.kept / (1.0 + g.theta) for g in split.implicits)


def _time_of(graph: FactorGraph, split: Split, sweeps: int) -> float | None:
    """Estimate sweeps per effective sample from the shares of values changed after one and many."""
    variant = choose_variant(graph, split)
    data = variant.prepare(graph, split)
    if carries(data):
        return None
    states = _states(graph, data, sweeps)
    after_one = float(np.mean(states[1:] != states[:-1]))
    after_many = float(np.mean(states[len(states) // 2 :] != states[: -(len(states) // 2)]))
    if not after_one > 0.0:
        return None
    share = min(max(after_one / max(after_many, after_one), _LEAST_CHANGE), 1.0)
    return (2.0 - share) / share


def _states(graph: FactorGraph, data: Any, sweeps: int) -> NDArray[Any]:
    """Return the states after each sweep of the second half of a run from a fixed first state."""
    order, space = free_variables(graph.evidence), variant_of(data).workspace(graph)
    carried, scratch = implicit_space(getattr(data, "implicit", None))
    state = (np.random.default_rng(0).random(len(graph)) * graph.sizes).astype(graph.state_type)
    clamped = graph.evidence >= 0
    state[clamped] = graph.evidence[clamped]
    chain = Chain(
        x=state,
        stream=np.arange(1, 5, dtype=np.uint64),
        carried=np.zeros(space.carried + carried),
        weights=np.zeros(2 * int(graph.sizes.max())),
        scratch=np.zeros(space.scratch + scratch, dtype=np.int64),
        tally=np.zeros(CHANGES + 1, dtype=np.int64),
    )
    states = np.empty((sweeps - sweeps // 2, len(order)), graph.state_type)
    _run(data, graph.packed, chain, order, sweeps // 2, states)
    return states


@entry
def _run(data, model, chain, order, warmup, states):
    """Run systematic sweeps; after the warm-up, store the state after each."""
    for sweep in range(-warmup, len(states)):
        for k in range(len(order)):
            i = order[k]
            chain.x[i] = update(data, model, chain, i)
        if sweep >= 0:
            for k in range(len(order)):
                states[sweep, k] = chain.x[order[k]]
