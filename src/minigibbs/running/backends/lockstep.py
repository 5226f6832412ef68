"""Chromatic runs on the CPU: a group is one chain, or up to 64 that are vectorized.

From 16 chains on, up to 64 share a tile; fewer chains are groups of their own, on threads. Draws
are the same either way, since each random number depends only on chain, sweep and variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.layout import CHANGES
from minigibbs.kernels.random import shared_stream
from minigibbs.results.marginals import mean_distance
from minigibbs.running.group import Collected, Counted, Group, State
from minigibbs.running.observed import STATE, Observer
from minigibbs.running.plan import Plan
from minigibbs.running.sums import NO_SUMS, signed_places
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.registry import TOGETHER, make_tile

_TOGETHER = 256  # records whose sums are measured together


def group_chains(plan: Plan) -> int:
    """Return the number of chains of every group, including unused chains of the last group."""
    if plan.chains < TOGETHER:
        return 1
    groups = -(-plan.chains // LANES)
    return 8 * -(-plan.chains // (8 * groups))  # 8 chains share words of random bits


def lockstep_groups(
    plan: Plan, data: Any, states: NDArray[Any], kind: type[LockstepGroup] | None = None
) -> list[Group]:
    """Create the groups of all chains at their initial states."""
    kind = LockstepGroup if kind is None else kind
    each = group_chains(plan)
    groups: list[Group] = []
    for number in range(-(-plan.chains // each)):
        own = states[number * each : (number + 1) * each]
        groups.append(kind(plan, data, _filled(own, each), number))
    return groups


def _filled(states: NDArray[Any], chains: int) -> NDArray[Any]:
    """Return states of this number of chains; unused chains repeat the first."""
    if len(states) == chains:
        return states
    return np.concatenate([states, np.repeat(states[:1], chains - len(states), axis=0)])


class LockstepGroup(Group):
    """Chains that update color after color, synchronized."""

    first_segment = 64

    def __init__(
        self,
        plan: Plan,
        data: Any,
        states: NDArray[Any],
        number: int = 0,
        length: int | None = None,
    ) -> None:
        """Create the chains, with space for the records of `length` updates."""
        first = number * len(states)
        super().__init__(plan, number, min(len(states), plan.chains - first))
        self.data, self.first = data, first
        self.length = plan.length if length is None else length
        self.tile = make_tile(plan.sampler, plan.graph, data, first, states, plan.seed)
        self.marginals = "marginals" in plan.kept
        self._tally = np.zeros(CHANGES + 1, np.int64)  # counters before those of the tile
        self._clock = self._swept = 0  # recorded updates; sweeps including warm-up
        self._before = np.zeros((self.tile.chains, plan.values if self.marginals else 0), np.int64)
        self._from = 0  # the clock at which the tile's counts begin
        self.observer = Observer(plan, self.tile.chains)
        self._summed = plan.summed if self.tile.spins else NO_SUMS
        if self._summed.own:
            self._terms = signed_places(self._summed.terms, data.variable)
        self._rows: dict[str, NDArray[Any]] = {}
        self._make_rows()

    @property
    def clock(self) -> int:
        """Number of recorded updates of each chain so far."""
        return self._clock

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Number of updates of a sweep."""
        return self.plan.unit

    def share(self, threads: int) -> None:
        """Set the number of threads that update a color."""
        self.tile.threads = threads

    def _make_rows(self) -> None:
        """Allocate space for the records of `length` updates and keep the present ones."""
        plan, records = self.plan, self.length // self.plan.thin
        kept = {
            "draws": "draws" in plan.kept,
            "energy": "energy" in plan.kept,
            "error": plan.reference is not None,
        }
        old, shapes = self._rows, _shapes(plan, self.tile.chains)
        self._rows = {
            name: np.zeros((records if wanted else 0, *shapes[name][0]), shapes[name][1])
            for name, wanted in kept.items()
        }
        self.observer.make_room(records)
        for name, array in old.items():
            self._rows[name][: len(array)] = array
        if not plan.graph.free and records:
            self._keep(slice(0, records), 1)

    def begin(self) -> None:
        """Do nothing: the chains of a tile consist of their states alone."""

    def states(self) -> NDArray[Any]:
        """Return the states of the requested chains: [chain, variable]."""
        return self.tile.states()[: self.chains]

    def load(self, states: NDArray[Any]) -> None:
        """Restart the chains at states [chain, variable]; sweep numbers continue."""
        self.tile.load(_filled(states, self.tile.chains))

    def follow(self, before: LockstepGroup) -> None:
        """Continue the chains of a group whose graph has other weights."""
        self._swept, self.warmed = before._swept, before.warmed
        self.load(before.states())

    def compile(self) -> None:
        """Compile, or load compiled code."""
        if self.plan.graph.free:
            self.tile.compile()
            if "energy" in self.plan.kept:
                self.tile.energies()

    def advance(self, updates: int, recording: bool = False) -> None:
        """Make this number of updates of every chain, a whole number of sweeps."""
        if not self.plan.graph.free:  # everything is clamped: only the clock advances
            first = self.records
            self._clock += updates if recording else 0
            if self.plan.observe and self.records > first:
                self._observe(self.tile.states(), slice(first, self.records))
            return
        if not recording:
            self._sweep(updates // self.unit, False)
            return
        if not self.plan.observe and not any(map(len, self._rows.values())):  # nothing is recorded
            self._sweep(updates // self.unit, self.marginals)
            self._clock += updates
            return
        end, thin = self._clock + updates, self.plan.thin
        while self._clock < end:
            if (records := self._summed_records(end)) > 1:
                self._sweep_summed(records)
                continue
            step = min(end - self._clock, thin - self._clock % thin)
            self._sweep(step // self.unit, self.marginals)
            self._clock += step
            record = self._clock // thin - 1
            if self._clock % thin == 0 and record < self.length // thin:
                self._keep(slice(record, record + 1), self._clock)

    def _summed_records(self, end: int) -> int:
        """Return the number of next records, up to a clock, that need only sums of spins.

        Such records are measured together, because little else happens between two sweeps.
        """
        rows, thin, observed = self._rows, self.plan.thin, len(self.plan.observe)
        if not observed or len(self._summed.own) < observed or self._clock % thin:
            return 0
        if len(rows["draws"]) or len(rows["error"]):
            return 0
        record, every = self._clock // thin, self.plan.energy_every
        ahead = min(end // thin, self.length // thin, record + _TOGETHER) - record
        return min(ahead, every - 1 - record % every) if len(rows["energy"]) else ahead

    def _sweep_summed(self, records: int) -> None:
        """Make this number of records of sums of spins."""
        first, each = self._clock // self.plan.thin, self.plan.thin // self.unit
        sums = np.empty((records, self.tile.chains, len(self._summed.constants)), np.int64)
        for own in sums:
            self._sweep(each, self.marginals)
            own[:] = self.tile.spin_sums(self._terms, self._summed.terms.ends)
        sums += self._summed.constants
        self._clock += records * self.plan.thin
        none = np.empty((records, 0), self.plan.graph.state_type)
        for chain in range(self.tile.chains):
            values = self.observer.measure(none, self._split(sums[:, chain]))
            self.observer.add(chain, values, first)

    def _split(self, sums: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Return the sums [row, sum] of each observable that is a function of them, by index."""
        own = self._summed.own.items()
        return {number: np.ascontiguousarray(sums[:, a:b]) for number, (a, b) in own}

    def _sweep(self, sweeps: int, counting: bool) -> None:
        self.tile.advance(self._swept, sweeps, counting)
        self._swept += sweeps

    def _keep(self, records: slice, visits: int) -> None:
        """Store the records that were requested."""
        rows, plan = self._rows, self.plan
        moving = plan.graph.free > 0
        states = np.empty((self.tile.chains, 0), plan.graph.state_type)  # if no states are needed
        if len(rows["draws"]) or (len(self._summed.own) < len(plan.observe) and moving):
            states = self.tile.states()
        if len(rows["draws"]):
            rows["draws"][records] = states if plan.variables is None else states[:, plan.drawn]
        if plan.observe and moving:
            self._observe(states, records)
        if len(rows["energy"]) and (records.stop % plan.energy_every == 0 or not moving):
            rows["energy"][records] = self.tile.energies()
        if plan.reference is not None and len(rows["error"]):
            times = np.full(self.tile.chains, visits)
            first = plan.graph.first
            counts = self._counts(visits) if plan.graph.free else self.tile.counts(1)
            rows["error"][records] = mean_distance(counts, times, plan.reference, first)

    def _observe(self, states: NDArray[Any], records: slice) -> None:
        """Measure the state of every chain and store it for all these records."""
        values = self.observer.measure(states, self._sums())
        for chain, own in enumerate(values):
            several = np.repeat(own[None], records.stop - records.start, axis=0)
            self.observer.add(chain, several, records.start)

    def _sums(self) -> dict[int, NDArray[np.int64]]:
        """Return the sums [chain, sum] of observables that are functions of them, by index."""
        if not self._summed.own:
            return {}
        sums = self.tile.spin_sums(self._terms, self._summed.terms.ends)
        return self._split(sums + self._summed.constants)

    def _counts(self, clock: int) -> NDArray[np.int64]:
        """Count updates spent at each value; a sweep is one update of every variable."""
        if not self.marginals:
            return self._before
        sweeps = (clock - self._from) // self.unit
        if not self.plan.graph.free:
            sweeps = clock - self._from
        counts = self.tile.counts(sweeps)
        counts *= self.unit
        counts += self._before
        return counts

    def state(self) -> State:
        """Return copies of the tile's arrays and the group's counters."""
        return {
            "x": self.tile.states(),
            "stream": np.ones(4, np.uint64),  # unused: random bits are counter-based
            "carried": np.zeros(0),
            "replicas": np.zeros(0, self.plan.graph.state_type),
            "tally": self._tally + self.tile.tally(self.chains),
            "order": np.empty(0, np.int32),
            "position": np.zeros(1, np.int64),
            "path": shared_stream(self.plan.seed),
            "counts": self._counts(self._clock),
            "clock": np.array([self._clock]),
            "warmed": np.array([self.warmed]),
            "swept": np.array([self._swept]),
            "first": np.array([self.first]),
            **self.observer.state(),
        }

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.first = self.tile.first = int(state["first"][0])
        self.tile.load(state["x"])
        self.tile.clear()
        self._before[:] = state["counts"]
        self._tally[:] = state["tally"]
        self.chains = min(len(state["x"]), self.plan.chains - self.first)
        self._clock = self._from = int(state["clock"][0])
        self._swept, self.warmed = int(state["swept"][0]), int(state["warmed"][0])
        self.observer.restore(state)

    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with one row per record: [record, chain, ...]."""
        return self._rows | {"observed": self.observer.series}

    def grow(self, length: int) -> None:
        """Allocate space for more records."""
        self.length = length
        self._make_rows()

    def energies(self) -> NDArray[np.float64]:
        """Return the energies recorded so far."""
        every = self.plan.energy_every
        return self._rows["energy"][every - 1 : self.records : every, : self.chains].T

    def counted(self) -> Counted:
        """Return the counts, one row per chain."""
        counts = self._counts(self._clock)[: self.chains]
        return Counted(counts.copy(), np.full(self.chains, self._clock))

    def collect(self) -> Collected:
        """Return the results, one row per chain."""
        return collect_lockstep(self.plan, self.state(), self.rows(0))


def _shapes(plan: Plan, chains: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape and dtype of one record of each array, with one row per chain."""
    width = len(plan.drawn) or len(plan.graph)
    return {
        "draws": ((chains, width), plan.graph.state_type),
        "energy": ((chains,), np.float64),
        "error": ((chains,), np.float64),
        "observed": ((chains, plan.width if plan.series else 0), np.float64),
    }


def collect_lockstep(plan: Plan, state: State, rows: dict[str, NDArray[Any]]) -> Collected:
    """Collect one row per requested chain; the last group may have more."""
    shapes = _shapes(plan, len(state["x"]))
    none = {name: np.empty((0, *shape), kind) for name, (shape, kind) in shapes.items()}
    chains = min(len(state["x"]), plan.chains - int(state["first"][0]))
    clock = np.full(chains, int(state["clock"][0]))
    return Collected(
        clock=clock,
        counts=state["counts"][:chains],
        visits=clock.copy(),
        tally=state["tally"],
        carried=np.zeros((chains, 0)),
        state=state["x"][:chains],
        warmed=int(state["warmed"][0]),
        **{name: state[name][:chains] for name in STATE},
        **{name: array.swapaxes(0, 1)[:chains] for name, array in (none | rows).items()},
    )


def check_lockstep(plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
    """Raise `ValueError` unless the groups' sweep numbers and first chains are as expected."""
    swept, first, each = state["swept"], state["first"], group_chains(plan)
    made = (state["clock"] + state["warmed"]) // plan.unit if plan.graph.free else 0
    numbers = each * np.arange(len(first))[:, None]
    for name, array, right in (("swept", swept, made), ("first", first, numbers)):
        if array.dtype != np.int64 or not (array == right).all():
            raise ValueError(f"{name} has entries outside its range")
