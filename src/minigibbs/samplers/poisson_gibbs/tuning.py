"""Stickiness of the auxiliary draws on a graph, from two short runs at a small and a large theta.

The split minimizes the predicted time per effective sample, in which a tail of energy L_T slows
chains by a factor of exp(stickiness * L_T * ((1 + theta) * log(1 + 1/theta) - 1)). This constant
depends on the model. The runs count operations instead of measuring time, and their streams are
fixed, so a graph gives the same number on every machine.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Pilot
from minigibbs.engine.dispatch import carries
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
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
    space = variant_of(data).workspace(graph)
    carried, scratch = implicit_space(getattr(data, "implicit", None))
    space = replace(space, carried=space.carried + carried, scratch=space.scratch + scratch)
    pilot = Pilot(graph, data, space)
    pilot.advance(sweeps // 2 * len(pilot.order))
    states = np.empty((sweeps - sweeps // 2, len(pilot.order)), graph.state_type)
    for state in states:
        pilot.advance(len(pilot.order))
        state[:] = pilot.state[pilot.order]
    return states
