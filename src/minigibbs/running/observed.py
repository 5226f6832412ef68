"""What a group of chains keeps of its observables: every record, or running moments.

An `Observer` belongs to some rows of a plan. It takes blocks of one row's states, in their order,
or values that were measured elsewhere. Its arrays are part of the group's state, its records part
of the group's records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.observe import BATCHES, accumulate
from minigibbs.results.observed import Observed
from minigibbs.running.plan import Plan

STATE = ("observed_count", "observed_moments", "observed_sums")  # in a group's state
BLOCK_BYTES = 1 << 16  # bytes of states that are measured at a time, about


def block_records(plan: Plan, energies: bool = False) -> int:
    """How many states are held before they are measured: 0 where none have to be.

    `energies` says whether they are also taken from them.
    """
    if not plan.observe and not energies:
        return 0
    size = max(len(plan.graph) * plan.graph.state_type.itemsize, 1)
    return min(max(BLOCK_BYTES // size, 1), max(plan.records, 1), 1024)


class Observer:
    """The observables of some rows."""

    def __init__(self, plan: Plan, rows: int) -> None:
        self.plan, self.rows = plan, rows
        self.width = width = plan.width
        self.count = np.zeros(rows, np.int64)
        running = 0 if plan.series else width
        self.moments = np.zeros((rows, 2, running))
        self.sums = np.zeros((rows, BATCHES if running else 0, running))
        self.series = np.zeros((0, rows, width if plan.series else 0))

    def make_room(self, records: int) -> None:
        """Have space for this number of records of each row."""
        if self.plan.series:
            self.series = with_room(self.series, records)

    def measure(
        self, states: NDArray[Any], sums: Mapping[int, NDArray[Any]] | None = None
    ) -> NDArray[np.float64]:
        """The observables of some states: [state, number].

        `sums` are those [state, sum] of observables, by number, that are functions of them.
        """
        out, first = np.empty((len(states), self.width)), 0
        for number, measure in enumerate(self.plan.measures):
            part, own = np.empty((len(states), measure.width)), (sums or {}).get(number)
            if own is not None and measure.sums is not None:
                measure.sums.of.evaluate(own, part)
            else:
                measure.evaluate(states, part)
            out[:, first : first + measure.width] = part
            first += measure.width
        return out

    def add(self, row: int, values: NDArray[np.float64], record: int) -> None:
        """Add what was measured at records from number `record` on."""
        if self.plan.series:
            self.series[record : record + len(values), row] = values
            self.count[row] += len(values)
        elif self.width:
            accumulate(values, self.count[row : row + 1], self.moments[row], self.sums[row])

    def state(self) -> dict[str, NDArray[Any]]:
        """Its part of a group's state."""
        return dict(zip(STATE, (self.count, self.moments, self.sums), strict=True))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up a state."""
        for name, own in self.state().items():
            own[:] = state[name]


def with_room(series: NDArray[np.float64], records: int) -> NDArray[np.float64]:
    """A series [record, ...] with space for this number of records; the present ones are kept."""
    if records <= len(series):
        return series
    larger = np.zeros((records, *series.shape[1:]))
    larger[: len(series)] = series
    return larger


def check_observed_state(plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
    """Raise `ValueError` for running moments that no run of this plan can have."""
    count, clock = state[STATE[0]], state["clock"].reshape(len(state["clock"]), -1)[:, :1]
    wanted = clock // plan.thin if plan.observe else np.zeros_like(clock)
    if count.dtype != np.int64 or (count.reshape(len(count), -1) != wanted).any():
        raise ValueError(f"{STATE[0]} is not that of the clock")
    if (state[STATE[1]][..., 1, :] < 0).any():
        raise ValueError(f"{STATE[1]} holds what it cannot")


def gathered(
    plan: Plan,
    parts: list[tuple[NDArray[np.int64], Any, Any, Any]],
    first: int,
    records: int,
    chains: int,
    by_rows: bool = False,
) -> Observed | None:
    """The observables of a run, from the count, moments, sums and series of its groups.

    A series has the records from `first` up to `records`. Moments are those of all records. Where
    parts of rows stopped the run, errors come from rows alone (`by_rows`).
    """
    if not plan.observe:
        return None
    names, labels = tuple(plan.observe), tuple(measure.labels for measure in plan.measures)
    counts, moments, sums, series = zip(*parts, strict=True)
    count = np.concatenate(counts)
    if plan.series:  # of as many records as every chain has
        common = np.concatenate([own[:, first:records] for own in series])
        made = np.full(len(count), records - first)
        return Observed(names, labels, common, made, chains=chains, by_rows=by_rows)
    running = (np.concatenate(moments), np.concatenate(sums))
    return Observed(names, labels, None, count, *running, chains, by_rows)
