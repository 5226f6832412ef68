"""Combination of the groups' records to a `Run`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.exact.support import reach
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import ACCEPTED, CHANGES, DRAWS, EVALUATIONS, PROPOSED
from minigibbs.results.modes import Mode, has_uniform_marginals, missed_mode
from minigibbs.results.phases import hidden_phase
from minigibbs.results.run import Info, Run
from minigibbs.running.backends import BACKENDS
from minigibbs.running.goal import Round
from minigibbs.running.group import Collected, Counted
from minigibbs.running.observed import gathered
from minigibbs.running.plan import CONVERGED, Plan
from minigibbs.running.tempered import gathered_temperatures
from minigibbs.samplers.base import SweepSampler
from minigibbs.samplers.encoding import sampler_call
from minigibbs.system.watch import INTERRUPTED, TERMINATED


def result(
    plan: Plan,
    parts: list[Collected],
    seconds: float,
    ended: str,
    search: bool = True,
    early: Counted | None = None,
    begin: Round | None = None,
) -> Run:
    """Build the run so far; groups may be at different clocks.

    `search` looks for modes that all chains missed. `early` has the counts of the first part of
    every row. Records up to `begin` are dropped like a warm-up.
    """
    if "marginals" not in plan.kept:
        early = None
    clock = np.concatenate([part.clock for part in parts])
    visits = np.concatenate([part.visits for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    dropped = 0 if begin is None else int(begin.clock[0])
    first = dropped // plan.thin  # first record that is kept
    records = int(clock.min()) // plan.thin  # records that every chain has
    if begin is not None:
        clock, visits, counts = clock - begin.clock, visits - begin.visits, counts - begin.counts
        if early is not None:
            early = Counted(early.counts - begin.counts, early.visits - begin.visits)
    tally = np.sum([part.tally for part in parts], axis=0)
    warmup = sum(len(part.state) * part.warmed for part in parts)
    updates = sum(len(part.state) * (int(part.clock[0]) - dropped) for part in parts)
    warmup += plan.chains * dropped
    every = plan.energy_every
    energy = np.concatenate([part.energy[:, first + every - 1 : records : every] for part in parts])
    observed = [
        (part.observed_count, part.observed_moments, part.observed_sums, part.observed)
        for part in parts
    ]
    kept, model = plan.kept, _model(plan)
    run = Run(
        domains=plan.graph.domains,
        info=_info(plan, tally, updates, warmup, seconds, ended),
        clock=clock,
        counts=counts if "marginals" in kept else None,
        visits=visits,
        early_counts=None if early is None else early.counts,
        early_visits=None if early is None else early.visits,
        kept_draws=(
            np.concatenate([part.draws[:, first:records] for part in parts])
            if "draws" in kept
            else None
        ),
        energy=0.0 - (energy + plan.graph.offset) if "energy" in kept else None,
        error=(
            np.concatenate([part.error[:, first:records] for part in parts])
            if plan.reference is not None
            else None
        ),
        reference=plan.reference,
        model=model,
        drawn=plan.drawn,
        state=_whole([part.state for part in parts]),
        clamped=_clamped(plan.graph),
        ladder=_ladder(plan, parts, dropped),
        observed=gathered(
            plan, observed, first, records, -(-plan.chains // plan.rows), ended == CONVERGED
        ),
        kept_temperatures=gathered_temperatures(
            plan, [part.levels for part in parts if part.levels is not None], first, records, ended
        ),
    )
    if search and has_uniform_marginals(plan.graph):
        model["uniform"] = True
    mode = missed_mode(plan.graph, run) if search else None
    phase = hidden_phase(plan.graph, run) if search and mode is None else None
    for key, found in (("missed", mode), ("phase", phase)):
        if found is not None:
            model[key] = _described(run, found)
    return run


def _described(run: Run, mode: Mode) -> dict[str, Any]:
    name = run.domains.name(mode.variable)
    return {"variable": name, "size": mode.size, "share": mode.share}


def _clamped(graph: FactorGraph) -> NDArray[np.bool_]:
    """Return whether each variable is clamped; one number if all are free."""
    if graph.free == len(graph):
        return np.broadcast_to(np.False_, len(graph))
    clamped: NDArray[np.bool_] = graph.evidence >= 0
    return clamped


def _whole(states: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate all states; do not copy a single array that owns its memory."""
    base = states[0].base
    alone = len(states) == 1 and (base is None or base.nbytes == states[0].nbytes)
    return states[0] if alone else np.concatenate(states)


def _ladder(plan: Plan, parts: list[Collected], dropped: int) -> Any:
    """Return the statistics of a temperature ladder, for samplers that have one."""
    if not isinstance(plan.sampler, SweepSampler):
        return None
    carried = np.concatenate([part.carried for part in parts])
    warmed = min(part.warmed for part in parts) + dropped
    return plan.sampler.account(plan.graph, carried, warmed // plan.unit)


def _model(plan: Plan) -> dict[str, Any]:
    """Describe the graph, and whether the sampler can reach its states and has its distribution."""
    model = plan.graph.describe()
    if model["zeros"] and not plan.sampler.sweeps:
        model["reach"] = reach(plan.graph)
    if not plan.sampler.exact:
        model["biased"] = True
    return model


def _info(
    plan: Plan,
    tally: NDArray[np.int64],
    updates: int,
    warmup: int,
    seconds: float,
    ended: str,
) -> Info:
    """Describe how a run went; counts are sums over all chains."""
    made, promise = updates + warmup, BACKENDS[plan.backend].promise(plan)
    return Info(
        sampler=str(plan.sampler),
        chains=plan.chains,
        updates=updates,
        warmup=warmup,
        scan=plan.scan,
        thin=plan.thin,
        seed=plan.seed,
        seconds=seconds,
        updates_per_second=made / max(seconds, 1e-9),
        factor_evaluations=int(tally[EVALUATIONS]),
        minibatch_draws=int(tally[DRAWS]),
        acceptance=float(tally[ACCEPTED] / tally[PROPOSED]) if tally[PROPOSED] else 1.0,
        changed=float(tally[CHANGES] / max(made, 1)),
        interrupted=ended in (INTERRUPTED, TERMINATED),
        version=__version__,
        backend=plan.backend,
        ended=ended,
        energy_thin=plan.thin * plan.energy_every,
        sampler_call=sampler_call(plan.sampler),
        lanes=promise.lanes,
        guarantee=promise.guarantee,
        start=plan.start,
    )
