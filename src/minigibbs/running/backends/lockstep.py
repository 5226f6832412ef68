"""Chromatic runs on the CPU: a group is one chain, or up to 64 that are vectorized.

Sixteen chains and more share a tile; fewer are groups of their own, on threads. Draws are
the same either way, since every number is a function of the chain, the sweep and the variable.
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

_TOGETHER = 256  # records of sums that are made together


def group_chains(plan: Plan) -> int:
    """How many chains a group has: as many in each, the last ones of no use included."""
    if plan.chains < TOGETHER:
        return 1
    groups = -(-plan.chains // LANES)
    return 8 * -(-plan.chains // (8 * groups))  # which share words of random bits


def lockstep_groups(
    plan: Plan, data: Any, states: NDArray[Any], kind: type[LockstepGroup] | None = None
) -> list[Group]:
    """All chains, at their first states, in groups of one kind."""
    kind = LockstepGroup if kind is None else kind
    each = group_chains(plan)
    groups: list[Group] = []
    for number in range(-(-plan.chains // each)):
        own = states[number * each : (number + 1) * each]
        groups.append(kind(plan, data, _filled(own, each), number))
    return groups


def _filled(states: NDArray[Any], chains: int) -> NDArray[Any]:
    """States of this number of chains; unused ones repeat the first."""
    return np.concatenate([states, np.repeat(states[:1], chains - len(states), axis=0)])


class LockstepGroup(Group):
    """Chains that go through the colors together."""

    first_segment = 64

    def __init__(
        self,
        plan: Plan,
        data: Any,
        states: NDArray[Any],
        number: int = 0,
        length: int | None = None,
    ) -> None:
        """Chains with space for the records of `length` updates."""
        first = number * len(states)
        super().__init__(plan, number, min(len(states), plan.chains - first))
        self.data, self.first = data, first
        self.length = plan.length if length is None else length
        self.tile = make_tile(plan.sampler, plan.graph, data, first, states, plan.seed)
        self.marginals = "marginals" in plan.kept
        self._tally = np.zeros(CHANGES + 1, np.int64)  # before the tile's
        self._clock = self._swept = 0  # recorded updates; sweeps of all kinds
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
        """Recorded updates of each chain so far."""
        return self._clock

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Updates of a sweep."""
        return self.plan.unit

    def share(self, threads: int) -> None:
        """Let this number of threads work on a color."""
        self.tile.threads = threads

    def _make_rows(self) -> None:
        """Space for the records of `length` updates, those so far kept."""
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
        """There is nothing to set: tiles carry their states alone."""

    def states(self) -> NDArray[Any]:
        """The states of the requested chains: [chain, variable]."""
        return self.tile.states()[: self.chains]

    def load(self, states: NDArray[Any]) -> None:
        """Restart the chains at states [chain, variable]; sweeps are numbered as before."""
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
        """Make this number of updates of every chain: whole sweeps."""
        if not self.plan.graph.free:  # everything is clamped: time passes, nothing changes
            first = self.records
            self._clock += updates if recording else 0
            if self.plan.observe and self.records > first:
                self._observe(self.tile.states(), slice(first, self.records))
            return
        if not recording:
            self._sweep(updates // self.unit, False)
            return
        if not self.plan.observe and not any(map(len, self._rows.values())):  # nothing is kept
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
        """How many records lie ahead of which sums are all that is kept, whole ones up to a clock.

        They are made together: between two sweeps there is little else to do.
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
        """Make this number of records of sums."""
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
        """The sums [row, sum] of each observable that is a function of them, by its number."""
        own = self._summed.own.items()
        return {number: np.ascontiguousarray(sums[:, a:b]) for number, (a, b) in own}

    def _sweep(self, sweeps: int, counting: bool) -> None:
        self.tile.advance(self._swept, sweeps, counting)
        self._swept += sweeps

    def _keep(self, records: slice, visits: int) -> None:
        """Keep what is recorded."""
        rows, plan = self._rows, self.plan
        moving = plan.graph.free > 0
        states = np.empty((self.tile.chains, 0), plan.graph.state_type)  # where none are needed
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
        """Measure every chain's state, which is that of all these records."""
        values = self.observer.measure(states, self._sums())
        for chain, own in enumerate(values):
            several = np.repeat(own[None], records.stop - records.start, axis=0)
            self.observer.add(chain, several, records.start)

    def _sums(self) -> dict[int, NDArray[np.int64]]:
        """The sums [chain, sum] of observables, by number, that are functions of them."""
        if not self._summed.own:
            return {}
        sums = self.tile.spin_sums(self._terms, self._summed.terms.ends)
        return self._split(sums + self._summed.constants)

    def _counts(self, clock: int) -> NDArray[np.int64]:
        """Updates spent in each value: a sweep counts as one update of every variable."""
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
        """Copies of the tile's contents."""
        return {
            "x": self.tile.states(),
            "stream": np.ones(4, np.uint64),  # none is needed
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
        """Take up a state."""
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
        """What has a row per record: [record, chain, ...]."""
        return self._rows | {"observed": self.observer.series}

    def grow(self, length: int) -> None:
        """Make space for more records."""
        self.length = length
        self._make_rows()

    def energies(self) -> NDArray[np.float64]:
        """The energies recorded so far."""
        every = self.plan.energy_every
        return self._rows["energy"][every - 1 : self.records : every, : self.chains].T

    def counted(self) -> Counted:
        """A row for each chain."""
        counts = self._counts(self._clock)[: self.chains]
        return Counted(counts.copy(), np.full(self.chains, self._clock))

    def collect(self) -> Collected:
        """A row for each chain."""
        return collect_lockstep(self.plan, self.state(), self.rows(0))


def _shapes(plan: Plan, chains: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Of one record: a row for each chain."""
    width = len(plan.drawn) or len(plan.graph)
    return {
        "draws": ((chains, width), plan.graph.state_type),
        "energy": ((chains,), np.float64),
        "error": ((chains,), np.float64),
        "observed": ((chains, plan.width if plan.series else 0), np.float64),
    }


def collect_lockstep(plan: Plan, state: State, rows: dict[str, NDArray[Any]]) -> Collected:
    """One row per requested chain. The last group may have more chains."""
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
    """Raise `ValueError` unless groups stand where they must, after the sweeps that they say."""
    swept, first, each = state["swept"], state["first"], group_chains(plan)
    made = (state["clock"] + state["warmed"]) // plan.unit if plan.graph.free else 0
    numbers = each * np.arange(len(first))[:, None]
    for name, array, right in (("swept", swept, made), ("first", first, numbers)):
        if array.dtype != np.int64 or not (array == right).all():
            raise ValueError(f"{name} holds what it cannot")
