"""Observables of a group of chains: every record, or running moments.

An `Observer` belongs to some rows of a plan. It measures blocks of one row's states, in order, or
adds values that were measured elsewhere. Its arrays are part of the group's state, its records
part of the group's records.
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
BLOCK_BYTES = 1 << 16  # approximate size of the states that are measured together


def block_records(plan: Plan, energies: bool = False) -> int:
    """Return the number of states that are buffered and measured together; 0 without a buffer.

    `energies`: whether energies are also computed from these states.
    """
    if not plan.observe and not energies:
        return 0
    size = max(len(plan.graph) * plan.graph.state_type.itemsize, 1)
    return min(max(BLOCK_BYTES // size, 1), max(plan.records, 1), 1024)


class Observer:
    """Observables of some rows."""

    def __init__(self, plan: Plan, rows: int) -> None:
        self.plan, self.rows = plan, rows
        self.width = width = plan.width
        self.count = np.zeros(rows, np.int64)
        running = 0 if plan.series else width
        self.moments = np.zeros((rows, 2, running))
        self.sums = np.zeros((rows, BATCHES if running else 0, running))
        self.series = np.zeros((0, rows, width if plan.series else 0))

    def make_room(self, records: int) -> None:
        """Allocate space for this number of records of each row."""
        if self.plan.series:
            self.series = with_room(self.series, records)

    def measure(
        self, states: NDArray[Any], sums: Mapping[int, NDArray[Any]] | None = None
    ) -> NDArray[np.float64]:
        """Evaluate the observables of some states: [state, number].

        `sums` has the sums [state, sum] of observables that are functions of them, by index.
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
        """Add the values of records from index `record` on."""
        if self.plan.series:
            self.series[record : record + len(values), row] = values
            self.count[row] += len(values)
        elif self.width:
            accumulate(values, self.count[row : row + 1], self.moments[row], self.sums[row])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the observer's part of a group's state."""
        return dict(zip(STATE, (self.count, self.moments, self.sums), strict=True))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a state returned by `state`."""
        for name, own in self.state().items():
            own[:] = state[name]


def with_room(series: NDArray[np.float64], records: int) -> NDArray[np.float64]:
    """Return a series [record, ...] with space for `records`; the present ones are kept."""
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
        raise ValueError(f"{STATE[1]} has entries outside its range")


def gathered(
    plan: Plan,
    parts: list[tuple[NDArray[np.int64], Any, Any, Any]],
    first: int,
    records: int,
    chains: int,
    by_rows: bool = False,
) -> Observed | None:
    """Combine the count, moments, sums and series of all groups to the observables of a run.

    A series has the records from `first` up to `records`. Moments are those of all records. If
    parts of rows determined the end of the run, errors use rows alone (`by_rows`).
    """
    if not plan.observe:
        return None
    names, labels = tuple(plan.observe), tuple(measure.labels for measure in plan.measures)
    counts, moments, sums, series = zip(*parts, strict=True)
    count = np.concatenate(counts)
    if plan.series:  # number of records that every chain has
        common = np.concatenate([own[:, first:records] for own in series])
        made = np.full(len(count), records - first)
        return Observed(names, labels, common, made, chains=chains, by_rows=by_rows)
    running = (np.concatenate(moments), np.concatenate(sums))
    return Observed(names, labels, None, count, *running, chains, by_rows)
