"""Run of a checkpoint's generation, computed without creating groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minigibbs.results.run import Run, check_run
from minigibbs.running.backends import BACKENDS
from minigibbs.running.checkpoint.folder import Generation, join_rows
from minigibbs.running.goal import Goal
from minigibbs.running.halves import first_part, load_halves
from minigibbs.running.plan import RUNNING, Plan
from minigibbs.running.result import result


def saved_run(base: Plan, found: Generation, goal: Goal | None = None) -> Run:
    """Return the run up to a generation; raise `ValueError` if its parts do not match."""
    plan, states = replace(base, length=found.header["length"]), found.states
    groups = len(states["clock"])
    rows = join_rows(found.chunks, groups)
    backend = BACKENDS[plan.backend]
    backend.check_state(plan, states)
    parts = []
    for number in range(groups):
        state = {name: array[number] for name, array in states.items() if len(array) == groups}
        parts.append(backend.collect(plan, state, rows[number]))
    ended = found.header["ended"] or RUNNING
    early = first_part(load_halves(states, plan.values, groups), goal, parts)
    clock = np.concatenate([part.clock for part in parts])
    begin = None if goal is None else goal.begin(clock)
    run = result(plan, parts, float(found.header["seconds"]), ended, early=early, begin=begin)
    check_run(run)
    return run
