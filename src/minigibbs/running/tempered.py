"""Records of all temperatures of a group's ladders: energies, observables and overlaps.

A record of one chain has the energy of every slot, then the observables of every slot. With two
ladders per chain, the overlap of their states at every temperature follows. Slot
twin * levels + level is one replica of a chain (`samplers.tempering.ladder`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.results.tempered import Temperatures
from minigibbs.running.observed import Observer, with_room
from minigibbs.running.plan import CONVERGED, Plan


class LevelRecords:
    """Records of all temperatures of some chains.

    Attributes
    ----------
    series : array [record, row, number]
        Includes space for later records.
    """

    def __init__(self, plan: Plan, rows: int, observer: Observer) -> None:
        self.plan, self.observer = plan, observer
        self.moving = moving_variables(plan)
        self.series = np.zeros((0, rows, plan.level_numbers))

    def make_room(self, records: int) -> None:
        """Allocate space for this number of records of each row."""
        if self.plan.temperatures:
            self.series = with_room(self.series, records)

    def keep(
        self, record: int, row: int, states: NDArray[Any], log_potentials: NDArray[np.float64]
    ) -> None:
        """Store one record of one chain.

        Parameters
        ----------
        record, row : int
            Index of the record; records without space are dropped.
        states : array [slot, variable]
            The states of all slots.
        log_potentials : array [slot]
            Their log-potentials, without the graph's offset.
        """
        if record >= len(self.series):
            return
        own, slots = self.series[record, row], len(states)
        own[:slots] = 0.0 - (log_potentials + self.plan.graph.offset)
        observed = self.observer.measure(states)
        own[slots : slots + observed.size] = observed.ravel()
        overlaps = own[slots + observed.size :]
        if len(overlaps):
            overlaps[:] = _overlaps(self.plan, states[:, self.moving])


def _overlaps(plan: Plan, states: NDArray[Any]) -> NDArray[np.float64]:
    """Return the overlap of two ladders at each level, from the variables that are not fixed.

    It is the mean of s_i s_i' for spins, else the share of variables with equal values.
    """
    levels = len(states) // 2
    same = (states[:levels] == states[levels:]).mean(axis=1) if states.size else np.ones(levels)
    spins = bool((plan.graph.sizes[moving_variables(plan)] == 2).all())
    return np.asarray(2.0 * same - 1.0 if spins else same)


def moving_variables(plan: Plan) -> NDArray[np.int64]:
    """Return the variables with several values and no evidence."""
    return np.flatnonzero((plan.graph.evidence < 0) & (plan.graph.sizes > 1))


def gathered_temperatures(
    plan: Plan, parts: list[NDArray[np.float64]], first: int, records: int, ended: str
) -> Temperatures | None:
    """Combine records `first` up to `records` of all groups, given as [row, record, number]."""
    if not plan.temperatures:
        return None
    sampler: Any = plan.sampler
    sizes = plan.graph.sizes[plan.graph.evidence < 0]
    return Temperatures(
        betas=np.array(sampler.levels, np.float64),
        twins=2 if sampler.houdayer else 1,
        names=tuple(plan.observe),
        labels=tuple(measure.labels for measure in plan.measures),
        series=np.concatenate([part[:, first:records] for part in parts]),
        variables=max(len(moving_variables(plan)), 1),
        log_states=float(np.log(sizes).sum()),
        by_rows=ended == CONVERGED,
    )
