"""Chains on the CPU: a group is one chain with its own arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Carried, new_chain, start_chain, start_sweeps
from minigibbs.engine.dispatch import carries, sweep, update
from minigibbs.kernels.energy import energies
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import (
    CHANGES,
    RANDOM,
    SHARED,
    SHUFFLED,
    SYSTEMATIC,
    Recorder,
    Scan,
)
from minigibbs.kernels.random import shared_stream, streams
from minigibbs.kernels.record import go_on_counting, keep, note_time, settle_counts
from minigibbs.kernels.scan import next_variable
from minigibbs.results.marginals import mean_distance
from minigibbs.running.backends.base import (
    Backend,
    Start,
    check_common,
    check_replicas,
    count_size,
    require_records,
)
from minigibbs.running.backends.lockstep import (
    LockstepGroup,
    check_lockstep,
    collect_lockstep,
    lockstep_groups,
)
from minigibbs.running.budget import energy_pairs
from minigibbs.running.group import Collected, Counted, Group, State
from minigibbs.running.observed import STATE, Observer, block_records
from minigibbs.running.plan import CHROMATIC, SCANS, Plan
from minigibbs.running.tempered import LevelRecords
from minigibbs.samplers.base import SweepSampler
from minigibbs.samplers.tempering.sampler import ladder_slots
from minigibbs.system import memory

_CHAIN_BYTES = 2048  # Python objects of one chain


class CpuBackend(Backend):
    """Backend that runs chains on threads of this machine, or on any executor."""

    name = "cpu"
    chains = 4
    rows = None
    lanes = 1
    refused: ClassVar[tuple[str, ...]] = ()
    in_threads = True

    def check(self) -> None:
        """Do nothing: the CPU is always available."""

    def groups(self, plan: Plan, data: Any, start: Start, counted: bool = False) -> list[Group]:
        """Create one group per chain with its own stream; chromatic scans use other groups."""
        if plan.scan == CHROMATIC:
            return lockstep_groups(plan, data, start())
        space = plan.sampler.workspace(plan.graph, data).size(plan.graph)
        what = f"{plan.chains:,} chains of {plan.sampler}"
        memory.require(plan.chains * space, what, "use fewer chains")
        several = zip(start(), streams(plan.seed, plan.chains), strict=True)
        groups: list[Group] = []
        for number, (state, stream) in enumerate(several):
            group = cpu_group(plan, data, state, stream, number)
            group.begin()
            groups.append(group)
        return groups

    def check_memory(self, plan: Plan, snapshots: bool = False) -> None:
        """Refuse chains, counts, records and snapshots that do not fit into memory."""
        need = len(plan.graph) * plan.graph.state_type.itemsize
        need += 16 * int(plan.graph.sizes.max())  # the chain's weights
        need += count_size(plan) + _CHAIN_BYTES
        held = block_records(plan, "energy" in plan.kept and bool(plan.graph.implicits))
        need += 2 * held * len(plan.graph) * plan.graph.state_type.itemsize
        require_records(plan, 2 * need if snapshots else need, "fewer chains")

    def collect(self, plan: Plan, state: State, rows: dict[str, NDArray[Any]]) -> Collected:
        """Collect one row; one row per vectorized chain."""
        if plan.scan == CHROMATIC:
            return collect_lockstep(plan, state, rows)
        width = len(plan.drawn) or len(plan.graph)
        none = {
            "draws": np.empty((0, width), plan.graph.state_type),
            "energy": np.empty(0),
            "error": np.empty(0),
            "observed": np.empty((0, plan.width)),
            "levels": np.empty((0, plan.level_numbers)),
        }
        return Collected(
            clock=state["clock"].copy(),
            counts=state["counts"][None],
            visits=state["clock"].copy(),
            tally=state["tally"],
            carried=state["carried"][None],
            state=state["x"][None],
            warmed=int(state["warmed"][0]),
            **{name: state[name] for name in STATE},
            **{name: array[None] for name, array in (none | rows).items()},
        )

    def check_state(self, plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
        """Check the arrays of every backend's states, and the replicas."""
        check_common(plan, state)
        check_replicas(plan, state)
        if plan.scan == CHROMATIC:
            check_lockstep(plan, state)


class CpuGroup(Group):
    """A group of one chain."""

    def __init__(
        self,
        plan: Plan,
        data: Any,
        state: NDArray[Any],
        stream: NDArray[np.uint64],
        number: int = 0,
        length: int | None = None,
    ) -> None:
        """Create a chain with space for the records of `length` updates."""
        super().__init__(plan, number, 1)
        graph = plan.graph
        space = plan.sampler.workspace(graph, data)
        self.data, self.model = data, graph.packed
        self.length = plan.length if length is None else length
        self.chain = new_chain(graph, space, state, stream.copy())
        self.replicas = space.new_replicas(graph)
        scan = first_scan(plan)
        self.scan = scan if scan.kind == SHARED else scan._replace(stream=self.chain.stream)
        self.recorder = _recorder(plan, self.length)
        self.observer = Observer(plan, 1)
        self.levels = LevelRecords(plan, 1, self.observer)
        self._make_room()

    def _make_room(self) -> None:
        """Allocate space for the observables of `length` updates."""
        for records in (self.observer, self.levels):
            records.make_room(self.length // self.plan.thin)

    @property
    def clock(self) -> int:
        """Number of recorded updates so far."""
        return int(self.recorder.clock[0])

    def begin(self) -> None:
        """Let the sampler initialize its auxiliary state."""
        if carries(self.data):
            start_chain(self.data, self.model, self.chain)
        if not self.scan.variables:
            self._record_all()

    def states(self) -> NDArray[Any]:
        """Return the chain's state: [1, variable]."""
        return self.chain.x[None]

    def load(self, states: NDArray[Any]) -> None:
        """Restart the chain at a state [1, variable]; its random stream continues."""
        self.chain.x[:] = states[0]
        self.begin()

    def follow(self, before: CpuGroup) -> None:
        """Continue the chain of a group whose graph has other weights."""
        self.chain.stream[:] = before.chain.stream
        self.scan.order[:] = before.scan.order
        self.scan.position[:] = before.scan.position
        if self.scan.kind == SHARED:
            self.scan.stream[:] = before.scan.stream
        self.warmed = before.warmed
        self.load(before.states())

    def _record_all(self) -> None:
        """Fill all records at once: everything is clamped, so all are the same."""
        state, recorder = self.chain.x, self.recorder
        recorder.draws[:] = state[recorder.drawn] if len(recorder.drawn) else state
        recorder.energy[:] = self._energy()
        if len(recorder.error):
            visits = np.zeros_like(recorder.counts)
            visits[self.model.first + state] = 1
            recorder.error[:] = self._error(visits, 1)

    def _energy(self) -> float:
        """Return the state's energy, up to the graph's offset."""
        energy = np.empty(1)
        energies(self.model, self.chain.x[None], energy)
        return float(energy[0]) + self._implicit_energy()

    def _implicit_energy(self) -> float:
        return float(self.plan.graph.implicit_energies(self.chain.x[None])[0])

    def _error(self, counts: NDArray[np.int64], visits: int) -> float:
        first, reference = self.model.first, self.recorder.reference
        return float(mean_distance(counts[None], np.array([visits]), reference, first)[0])

    def compile(self) -> None:
        """Compile, or load compiled code."""
        if self.scan.variables:
            self._advance(0, True)
        if self.plan.observe:
            self.observer.measure(self.chain.x[None])

    def advance(self, updates: int, recording: bool = False) -> None:
        """Make this number of updates of the chain."""
        if not self.scan.variables:  # everything is clamped: only the clock advances
            self._stand_still(updates if recording else 0)
        elif recording and self._measures_here:
            self._advance_by_blocks(updates)
        else:
            self._advance(updates, recording)

    def _advance(self, updates: int, recording: bool) -> None:
        advance(self.data, self.model, self.chain, self.scan, self.recorder, updates, recording)

    def _stand_still(self, updates: int) -> None:
        """Advance the clock if everything is clamped; observables are constant."""
        first = self.records
        self.recorder.clock[0] += updates
        if self.plan.observe and self.records > first:
            values = self.observer.measure(self.chain.x[None])
            self.observer.add(0, np.repeat(values, self.records - first, axis=0), first)

    @property
    def _measures_here(self) -> bool:
        """Whether records need more than compiled code stores."""
        held, error = len(self.recorder.held) > 0, len(self.recorder.error) > 0
        return held or error or self.plan.temperatures

    def _advance_by_blocks(self, updates: int) -> None:
        """Advance block by block: the states of a block of records are measured together."""
        span = self.recorder.thin * max(len(self.recorder.held), 1)
        if len(self.recorder.error) or self.plan.temperatures:
            span = self.recorder.thin
        while updates:
            step = min(updates, span - self.clock % span)
            first = self.records
            self._advance(step, True)
            updates -= step
            if self.records > first:
                self._measure(first, self.records)

    def _measure(self, first: int, last: int) -> None:
        """Measure the buffered states of some records: observables, implicit energies, errors."""
        recorder = self.recorder
        if len(recorder.held):
            begin = first % len(recorder.held)
            states = recorder.held[begin : begin + last - first]
            if self.plan.observe:
                self.observer.add(0, self.observer.measure(states), first)
            if self.plan.graph.implicits and last <= len(recorder.energy):
                every = recorder.energy_every
                for record in range(first + every - 1 - first % every, last, every):
                    state = states[record - first : record - first + 1]
                    recorder.energy[record] += float(self.plan.graph.implicit_energies(state)[0])
        if len(recorder.error):
            settle_counts(recorder, self.model, recorder.clock[0], self.chain.x)
            recorder.error[last - 1] = self._error(recorder.counts, self.clock)
        if self.plan.temperatures:
            slots, log_potentials = ladder_slots(self.data, self.chain, self.replicas)
            self.levels.keep(last - 1, 0, slots, log_potentials)

    def state(self) -> State:
        """Return the chain's own arrays."""
        chain, scan, recorder = self.chain, self.scan, self.recorder
        settle_counts(recorder, self.model, recorder.clock[0], chain.x)
        return {
            "x": chain.x,
            "stream": chain.stream,
            "carried": chain.carried,
            "replicas": self.replicas,
            "tally": chain.tally,
            "order": scan.order if scan.kind == SHUFFLED else scan.order[:0],
            "position": scan.position,
            "path": scan.stream,  # generator of a shared scan
            "counts": recorder.counts,
            "clock": recorder.clock,
            "warmed": np.array([self.warmed]),
            **self.observer.state(),
        }

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        chain, recorder = self.chain, self.recorder
        self.observer.restore(state)
        for name in ("x", "stream", "carried", "tally"):
            getattr(chain, name)[:] = state[name]
        self.replicas[:] = state["replicas"]
        if len(state["order"]):
            self.scan.order[:] = state["order"]
        self.scan.position[:] = state["position"]
        if self.scan.kind == SHARED:
            self.scan.stream[:] = state["path"]
        recorder.counts[:], recorder.clock[:] = state["counts"], state["clock"]
        go_on_counting(recorder, self.clock, chain.x)
        self.warmed = int(state["warmed"][0])

    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with one row per record."""
        own = {name: getattr(self.recorder, name) for name in ("draws", "energy", "error")}
        more = {"observed": self.observer.series[:, 0], "levels": self.levels.series[:, 0]}
        return own | more

    def grow(self, length: int) -> None:
        """Move the records to larger arrays."""
        self.length, larger = length, _recorder(self.plan, length)
        for name in ("draws", "energy", "error"):
            old = getattr(self.recorder, name)
            getattr(larger, name)[: len(old)] = old
        self._make_room()
        for name in ("clock", "counts", "since"):
            getattr(larger, name)[:] = getattr(self.recorder, name)
        self.recorder = larger
        if not self.scan.variables:
            self._record_all()

    def energies(self) -> NDArray[np.float64]:
        """Return the energies recorded so far."""
        every = self.plan.energy_every
        return self.recorder.energy[None, every - 1 : self.records : every]

    def counted(self) -> Counted:
        """Return the counts, one row."""
        settle_counts(self.recorder, self.model, self.recorder.clock[0], self.chain.x)
        return Counted(self.recorder.counts[None].copy(), self.recorder.clock.copy())

    def collect(self) -> Collected:
        """Return the results, one row."""
        return BACKEND.collect(self.plan, self.state(), self.rows(0))


class SweepGroup(CpuGroup):
    """A group of one chain of a sampler that updates all variables at once."""

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Number of updates of a sweep."""
        return self.plan.unit

    def begin(self) -> None:
        """Let the sampler initialize its auxiliary state."""
        if self.scan.variables:
            start_sweeps(self.data, self.model, self.chain, self.replicas)
        else:
            self._record_all()

    def follow(self, before: CpuGroup) -> None:
        """Continue the chain of a group whose graph has other weights, with its auxiliary state."""
        super().follow(before)
        sampler = self.plan.sampler
        if isinstance(sampler, SweepSampler) and self.scan.variables:
            sampler.carry_over(
                Carried(before.data, before.chain.carried, before.replicas),
                Carried(self.data, self.chain.carried, self.replicas),
            )

    def _advance(self, updates: int, recording: bool) -> None:
        advance_sweeps(
            self.data,
            self.model,
            self.chain,
            self.replicas,
            self.recorder,
            self.chain.x.copy(),
            self.unit,
            updates // self.unit,
            recording,
        )


def cpu_group(
    plan: Plan,
    data: Any,
    state: NDArray[Any],
    stream: NDArray[np.uint64],
    number: int = 0,
    length: int | None = None,
) -> CpuGroup | LockstepGroup:
    """Create a group of the kind that the plan's sampler and scan need."""
    if plan.scan == CHROMATIC:
        return LockstepGroup(plan, data, np.atleast_2d(state), number, length)
    kind = SweepGroup if plan.sampler.sweeps else CpuGroup
    return kind(plan, data, state, stream, number, length)


BACKEND = CpuBackend()


def first_scan(plan: Plan) -> Scan:
    """Return the scan at its beginning, with the stream of shared scans."""
    kind, free = SCANS.get(plan.scan, SYSTEMATIC), plan.graph.free
    implied = plan.scan == CHROMATIC or (kind in (RANDOM, SHARED) and free == len(plan.graph))
    order = np.empty(0, np.int32) if implied else plan.order.copy()
    position = np.zeros(1, dtype=np.int64)
    return Scan(kind, free, order, position, shared_stream(plan.seed))


def _recorder(plan: Plan, length: int) -> Recorder:
    """Allocate the records of this number of updates."""
    records = length // plan.thin
    values = plan.values if "marginals" in plan.kept else 0
    variables, none = len(plan.graph), np.empty(0)
    implicit = bool(plan.graph.implicits) and "energy" in plan.kept
    pairs = energy_pairs(plan.graph)
    return Recorder(
        clock=np.zeros(1, dtype=np.int64),
        thin=plan.thin,
        counts=np.zeros(values, dtype=np.int64),
        since=np.zeros(variables if values else 0, dtype=np.int64),
        spins=bool(values) and bool((plan.graph.sizes == 2).all()),
        draws=np.zeros(
            (records if "draws" in plan.kept else 0, len(plan.drawn) or variables),
            plan.graph.state_type,
        ),
        drawn=np.array([] if plan.variables is None else plan.variables, dtype=np.int32),
        energy=np.zeros(records if "energy" in plan.kept else 0),
        energy_every=plan.energy_every,
        pair=pairs.pair,
        pair_weight=pairs.weight,
        rows=pairs.rows,
        second=pairs.second,
        held=np.zeros((block_records(plan, implicit), variables), plan.graph.state_type),
        reference=none if plan.reference is None else plan.reference.copy(),
        error=none if plan.reference is None else np.zeros(records),
    )


@entry
def advance(data, model, chain, scan, recorder, updates, recording):
    """Advance one chain by `updates`; its arrays contain everything needed to continue.

    A run may therefore be cut anywhere, into any number of calls, and gives the same draws.
    """
    x, counting = chain.x, recording and len(recorder.counts) > 0
    clock, left = recorder.clock[0], updates
    while left > 0:
        stretch = left
        if recording and recorder.thin - clock % recorder.thin < left:
            stretch = recorder.thin - clock % recorder.thin
        for step in range(clock, clock + stretch):
            i = next_variable(scan, scan.stream)
            value, old = update(data, model, chain, i), x[i]
            x[i] = value  # also the old value: this branch is unpredictable
            chain.tally[CHANGES] += value != old
            if counting:  # also if the value is the same
                note_time(recorder, model, step, i, old, value)
        left -= stretch
        if recording:
            clock += stretch
            if clock % recorder.thin == 0:
                keep(recorder, model, clock, x)
    recorder.clock[0] = clock


@entry
def advance_sweeps(data, model, chain, replicas, recorder, before, unit, sweeps, recording):
    """Advance one chain by `sweeps`; its arrays contain everything needed to continue.

    `before` is a copy of its state.
    """
    x, counting = chain.x, recording and len(recorder.counts) > 0
    clock = recorder.clock[0]
    for _ in range(sweeps):
        sweep(data, model, chain, replicas)
        for i in range(len(x)):
            chain.tally[CHANGES] += x[i] != before[i]
            if counting:  # also if the value is the same
                note_time(recorder, model, clock, i, before[i], x[i])
            before[i] = x[i]
        if recording:
            clock += unit
            if clock % recorder.thin == 0:
                keep(recorder, model, clock, x)
    recorder.clock[0] = clock
