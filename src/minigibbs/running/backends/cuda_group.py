"""Group of all chains on a GPU, advanced by launches short enough to interrupt.

The compiled side is `cuda_kernels`. Memory is planned before it is allocated. Marginals are counted
once per sweep, over rows of chains; records of the first chain of each row are stored.
"""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Carried
from minigibbs.engine.dispatch import carries
from minigibbs.errors import SampleError, TooLargeError
from minigibbs.kernels.layout import CHANGES, RANDOM, SHUFFLED
from minigibbs.kernels.scan import walk
from minigibbs.results.marginals import mean_distance
from minigibbs.running.backends.cpu import first_scan
from minigibbs.running.backends.cuda_observed import Observing, share
from minigibbs.running.backends.device.access import Device, load, to_device
from minigibbs.running.backends.device.shapes import LIMITS, configure
from minigibbs.running.group import Collected, Counted, Group, State
from minigibbs.running.observed import STATE, Observer
from minigibbs.running.plan import Plan
from minigibbs.running.tempered import LevelRecords
from minigibbs.samplers.base import SweepSampler
from minigibbs.system import memory

WARP = 32  # threads of a warp, which run synchronized
_TURNED = 1 << 28  # bytes that are transposed at a time
_TILE = (32, 8)  # threads of a block that transposes
PATH = 1 << 16  # steps of a scan that are generated at a time
COUNT_EVERY = 1024  # updates of a sweep from which on a separate kernel counts marginals
_BUFFER_BYTES = 1 << 28  # approximate size of the device's buffer of kept states
_SPARE_BYTES = 1 << 28  # device memory left for the driver
_PART = 64  # least number of factors whose energies a thread sums
_ADDING = 1 << 17  # most threads that sum energies of one record
_OBSERVED = 4  # observables use 1 / _OBSERVED of the buffer
_TERMS, _MOST_TERMS = 8, 64  # least terms that a thread counts, and most multiples of that


def load_kernels() -> Any:
    """Load the kernels with one thread per chain; see `load`."""
    return load("cuda_kernels")


class CudaGroup(Group):
    """All chains of a plan, stored together on the device."""

    first_segment = 64
    segment_seconds = 0.1
    counts_ones: ClassVar[bool] = False  # whether it counts ones for observables; see `Sums`

    def __init__(self, plan: Plan, data: Any) -> None:
        super().__init__(plan, 0, plan.chains)
        self.kernels = load_kernels()
        self.cuda = Device()
        self.data, self.model = data, self._packed_model()
        self.kind = np.dtype(plan.graph.state_type)
        self.scan = first_scan(plan)
        self.kept, self._clock = plan.rows, 0
        self._counted = np.zeros(2, np.int64)  # number of counts, and the clock of the last one
        self.energy = "energy" in plan.kept
        self.draws = "draws" in plan.kept
        self.marginals = "marginals" in plan.kept
        self.every = plan.graph.free or COUNT_EVERY  # updates between two counts: a sweep
        # Whether the kernels that advance also count: separate launches take longer than a sweep.
        self.within = self.marginals and 0 < plan.graph.free < COUNT_EVERY
        self.recording = False
        self._path: Any = None  # the next stretch of the scan, of which `_walked` steps are done
        self._walked = 0
        self._path_begin: Any = None  # the scan at the beginning of the stretch
        self.sweeping = plan.sampler.sweeps
        check_data(data)
        check_measures(plan)
        self.observer = Observer(plan, plan.rows)
        self._plan_memory()

    @property
    def clock(self) -> int:
        """Number of recorded updates of each chain so far."""
        return self._clock

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Number of updates that are made together."""
        return self.plan.unit

    def _packed_model(self) -> Any:
        """Return the flat arrays that kernels read."""
        return self.plan.graph.packed

    def _chain_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chains, and of arrays that exist once."""
        space = self.plan.sampler.workspace(self.plan.graph, self.data)
        self.space = space
        self.domain = int(self.model.rows["domain"].max())
        apart = self.scan.kind == RANDOM
        self.weight_rows = space.weights * self.domain
        apart = apart or self.sweeping or carries(self.data)
        self.wide = self.weight_rows > self.kernels.NARROW or apart
        numbers = 4 + space.carried + space.scratch + CHANGES + 1
        numbers += self.weight_rows if self.wide else 0
        each = (1 + space.replicas) * len(self.model.rows) * self.kind.itemsize + 8 * numbers
        return each * self.chains, 4 * PATH

    def _plan_memory(self) -> None:
        """Refuse more chains than fit, before memory is allocated."""
        chains, once = self._chain_bytes()
        fixed = _bytes(self.model) + _bytes(self.data) + once + _SPARE_BYTES
        records = self._plan_records()
        free = self.cuda.free_bytes()
        need, each = fixed + records + chains, max(chains // self.chains, 1)
        self.free_bytes = free - need  # approximate bytes left
        if need <= free:
            return
        way_out = f"{max((free - fixed - records) // each, 0):,} chains would fit"
        if need - records <= free:
            way_out = (
                f"{memory.readable(records)} of it are for records: use mg.Record(chains=...) with "
                "fewer, record less, or draws of fewer variables (mg.Record(variables=...))"
            )
        raise TooLargeError(
            f"{self.chains:,} chains need {memory.readable(need)} on the GPU, but only "
            f"{memory.readable(free)} is free; {way_out}"
        )

    def _plan_records(self) -> int:
        """Choose the buffers of the kept chains; return the bytes of all records.

        Energies need whole states, draws only the selected variables.
        """
        every = np.arange(len(self.model.rows), dtype=np.int32)
        self.held: list[NDArray[np.int32]] = []  # [buffer]: first for energies, last for draws
        if self.energy or (self.draws and self.plan.variables is None):
            self.held.append(every)
        if self.draws and self.plan.variables is not None:
            self.held.append(self.plan.variables)
        record = self.kept * self.kind.itemsize * sum(len(held) for held in self.held)
        adding = 8 * self.kept * (1 + self._parts(self.kept)) if self.energy else 0
        room = max(_BUFFER_BYTES // max(record + adding, 1), 1)
        self.room = min(room, max(self.plan.records, 1)) if self.held else 0
        size = self.room * (record + adding)
        values = self.plan.values if self.marginals else 0
        return size + self._plan_measures() + 8 * self.kept * (values + 1)

    def _plan_measures(self) -> int:
        """Choose how many records of observables the device buffers; return their bytes."""
        buffer, by_parts = _BUFFER_BYTES // _OBSERVED, self._observed_parts() > 1
        self.observing = Observing(self.cuda, self.plan, buffer, by_parts, self.counts_ones)
        return self.observing.bytes + self._parts_bytes()

    def _observed_parts(self) -> int:
        """Return the number of threads per chain that compute an observed energy."""
        return self._parts(self.chains)

    def _parts_bytes(self) -> int:
        """Return the bytes of their partial sums."""
        return 8 * self._observed_parts() * self.chains if self.observing.of_energy else 0

    def place(self, states: NDArray[Any], words: NDArray[np.uint64]) -> None:
        """Place initial states [chain, variable] and streams [chain, 4] on the device."""
        self._place_model()
        self._place_chains(states, words)
        self._place_records()
        self._new_path()
        self._begin()

    def _begin(self) -> None:
        """Let the sampler initialize its auxiliary state."""
        arguments = (self.device_data, self.device_model, self.device_chains)
        if self.sweeping:
            self._by_chain(self.kernels.start_sweeps)(*arguments, self.device_replicas)
        elif carries(self.data):
            self._by_chain(self.kernels.start_chains)(*arguments)

    def states(self) -> NDArray[Any]:
        """Return all states, copied to the host: [chain, variable]."""
        with without_size_warnings():
            return self._turned(self.device_chains.x)

    def load(self, states: NDArray[Any]) -> None:
        """Restart the chains at states [chain, variable]; random streams continue."""
        with without_size_warnings():
            self._turn(states, self.device_chains.x)
            self._begin()

    def follow(self, before: Any) -> None:
        """Continue the chains of a group whose graph has other weights."""
        self.device_chains.streams.copy_to_device(before.device_chains.streams)
        self.scan, self.warmed = before.scan, before.warmed
        self._path, self._walked = before._path, before._walked
        self._path_begin = before._path_begin
        self.load(before.states())
        sampler = self.plan.sampler
        if isinstance(sampler, SweepSampler) and self.scan.variables:
            self._carry_over(sampler, before)

    def _carry_over(self, sampler: SweepSampler, before: CudaGroup) -> None:
        """Let the sampler convert the auxiliary state, one chain after another on the host."""
        with without_size_warnings():
            arrays = [
                [group._turned(array) for array in (group.device_chains.carried, replicas)]
                for group, replicas in (
                    (before, before.device_replicas),
                    (self, self.device_replicas),
                )
            ]
            for chain in range(self.chains):
                old, new = (
                    Carried(group.data, *(array[chain] for array in own))
                    for group, own in zip((before, self), arrays, strict=True)
                )
                sampler.carry_over(old, new)
            self._turn(arrays[1][0], self.device_chains.carried)
            self._turn(arrays[1][1], self.device_replicas)

    def _by_chain(self, kernel: Any) -> Any:
        """Configure a kernel with one thread per chain."""
        return configure(kernel, self.chains, self.kernels.THREADS)

    def _place_model(self) -> None:
        self.device_model = to_device(self.cuda, self.model)
        self.device_data = to_device(self.cuda, self.data)
        self.device_scan = to_device(self.cuda, self.scan)

    def _place_chains(self, states: NDArray[Any], words: NDArray[np.uint64]) -> None:
        to_device, across = self.cuda.to_device, (self.chains,)
        x = self.cuda.device_array((len(self.model.rows), self.chains), self.kind)
        self._turn(states, x)

        def zeros(rows: int, kind: Any) -> Any:
            return to_device(np.zeros((rows, *across), kind))

        self.device_chains = self.kernels.ChainArrays(
            x=x,
            streams=to_device(np.ascontiguousarray(words.T)),
            carried=zeros(self.space.carried, np.float64),
            weights=zeros(self.weight_rows if self.wide else 0, np.float64),
            scratch=zeros(self.space.scratch, np.int64),
            tally=zeros(CHANGES + 1, np.int64),
        )
        self.device_replicas = zeros(self.space.replicas * len(self.model.rows), self.kind)

    def _place_records(self) -> None:
        self._place_first()
        to_device = self.cuda.to_device
        self.counts = self._no_counts()
        self.device_heads = to_device(row_ends(self.plan)[:-1])
        self.device_held = [to_device(held) for held in self.held]
        self.buffers = [
            self.cuda.device_array((self.room, len(held), self.kept), self.kind)
            for held in self.held
        ]
        self.filled = self.flushed = 0
        self._place_measures()
        self._make_rows(self.length // self.plan.thin)

    def _place_first(self) -> None:
        """Copy the index of each variable's first value to the device."""
        sizes = self.model.rows["domain"]
        first = np.concatenate([self.model.first, self.model.first[-1:] + sizes[-1:]])
        self.device_first = self.cuda.to_device(first)

    def _place_measures(self) -> None:
        """Allocate space for observables."""
        self.summing = load("cuda_sums")
        if not self.plan.observe:
            return
        self.observing.place(self.kernels, self.summing)
        self._place_sums()

    def _place_sums(self) -> None:
        """Place the arrays of sums that observables need."""
        terms, threads = self.observing.summed.terms, self.summing.THREADS
        pieces, *tiles = share(terms.ends, self.chains, threads, _TERMS, _MOST_TERMS)
        arrays = [to_device(self.cuda, array) for array in (*terms[:2], pieces)]
        self.count_sums: Any = None
        if len(pieces):
            count = configure(self.summing.count_values, len(pieces) * tiles[0] * threads, threads)
            self.count_sums = lambda record: count(
                self.device_chains.x, *arrays, *tiles, record, self.observing.sums
            )
        if self.observing.of_energy:
            shape = (1, self._observed_parts(), self.chains)
            self.observed_parts = self.cuda.device_array(shape, np.float64)

    def _observe(self) -> None:
        """Measure every chain, and store the means over rows."""
        self.observing.measure_states(self.device_chains.x)
        self._keep_sums()
        self.observing.filled += 1
        if self.observing.filled == self.observing.room:
            self._take_observed()

    def _keep_sums(self) -> None:
        """Store the sums of which observables are functions."""
        record = self.observing.filled
        if self.count_sums:
            self.count_sums(record)
        if self.observing.of_energy:
            x, threads = self.device_chains.x, self.kernels.THREADS
            parts = self.observed_parts.shape[1]
            across = min(_power_of_2(self.chains), WARP)
            block = (across, threads // across)
            add = configure(self.kernels.part_energies, (self.chains, parts, 1), block)
            add(self.device_model, x.reshape(1, *x.shape), self.observed_parts)
            total = configure(self.kernels.sum_parts, (self.chains * threads, 1), threads)
            total(self.observed_parts, self.observing.energies[record])

    def _take_observed(self) -> None:
        """Move the buffered observables to the host."""
        if not self.plan.observe or not self.observing.filled:
            return
        first, averages = int(self.observer.count[0]), self.observing.fetch()
        for row in range(self.kept):
            self.observer.add(row, np.ascontiguousarray(averages[:, row]), first)

    def _no_counts(self) -> Any:
        values = self.plan.values if self.marginals else 0
        return self.cuda.to_device(np.zeros((self.kept, values), np.int64))

    def _make_rows(self, records: int) -> None:
        """Allocate host arrays for this number of records; the present ones are kept."""
        drawn = len(self.held[-1]) if self.draws else 0
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "draws": ((records if drawn else 0, self.kept, drawn), self.kind),
            "energy": ((records if self.energy else 0, self.kept), np.float64),
            "error": ((records if self.plan.reference is not None else 0, self.kept), np.float64),
        }
        self.observer.make_room(records)
        old = getattr(self, "_rows", {})
        self._rows = {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}
        for name, array in old.items():
            self._rows[name][: len(array)] = array

    def compile(self) -> None:
        """Compile the kernel that advances."""
        if self.scan.variables:
            with without_size_warnings():
                self._launch(0)
            self.cuda.synchronize()

    def advance(self, updates: int, recording: bool = False) -> None:
        """Make this number of updates of every chain."""
        self.recording = recording
        with without_size_warnings():
            if not recording:
                self._launch(updates)
            else:
                self._record_until(self._clock + updates)
            self.cuda.synchronize()

    def _launch(self, updates: int) -> None:
        """Make this number of updates of every chain; return before they are done."""
        arguments = (self.device_data, self.device_model, self.device_chains)
        if not self.scan.variables:  # everything is clamped: only the clock advances
            return
        if self.sweeping:
            run, sweeps = self._by_chain(self.kernels.advance_sweeps), updates // self.unit
            run(*arguments, self.device_replicas, sweeps, self._counting(self._clock))
            return
        if self.scan.kind == RANDOM:
            run = self._by_chain(self.kernels.advance_apart)
            run(*arguments, self.device_scan, updates, self._counting(self._clock))
            return
        kernel = self.kernels.advance_wide if self.wide else self.kernels.advance(self.weight_rows)
        run, clock = self._by_chain(kernel), self._clock
        for path in self._paths(updates):
            run(*arguments, path, self._counting(clock))
            clock += len(path)

    def _counting(self, clock: int) -> Any:
        """Return the counting schedule of a kernel that advances from `clock` on."""
        every = self.every if self.within and self.recording else 0
        left = every - clock % every if every else 0
        return self.kernels.Counting(self.device_first, self.counts, every, left)

    def _paths(self, updates: int) -> Iterator[Any]:
        """Generate the next variables of the shared scan, in pieces."""
        if updates == 0:  # an empty path only compiles
            yield self._path[:0]
        while updates:
            if self._walked == len(self._path):
                self._new_path()
            step = min(updates, len(self._path) - self._walked)
            yield self._path[self._walked : self._walked + step]
            self._walked += step
            updates -= step

    def _new_path(self) -> None:
        """Generate the next stretch of the scan; `state` needs the scan at its beginning."""
        scan = self.scan
        self._path_begin = (scan.order.copy(), scan.position.copy(), scan.stream.copy())
        steps = np.empty(PATH, np.int32)
        if scan.kind != RANDOM and scan.variables:
            walk(scan, steps)
        self._path, self._walked = self.cuda.to_device(steps), 0

    def _record_until(self, clock: int) -> None:
        """Run until a clock; count and record when due."""
        while self._clock < clock:
            before, due = self._clock, min(clock, _next(self._clock, self.plan.thin))
            if self.marginals and not self.within:
                due = min(due, _next(self._clock, self.every))
            self._launch(due - self._clock)
            self._clock = due
            times = due // self.every - before // self.every
            if times and self.marginals:
                if not self.within:
                    self._count(self.counts)
                self._counted[:] = self._counted[0] + times, due - due % self.every
            if self._clock % self.plan.thin == 0:
                if self.plan.observe:
                    self._observe()
                self._keep()

    def _count(self, counts: Any) -> None:
        x, threads = self.device_chains.x, self.kernels.THREADS
        if 4 * self.domain <= LIMITS.shared and self.chains >= WARP * self.kept:
            items = (x.shape[0] * threads, self.kept)
            count = configure(self.kernels.count_values, items, threads, shared=4 * self.domain)
        else:
            count = configure(self.kernels.count_wide, (self.chains, x.shape[0]), threads)
        count(x, self.device_first, counts)

    def _keep(self) -> None:
        record = self._clock // self.plan.thin - 1
        if self.plan.reference is not None and record < len(self._rows["error"]):
            self._rows["error"][record] = mean_distance(
                self._host_counts(),
                visits(self.plan, int(self._counted[0])),
                self.plan.reference,
                self.model.first,
            )
        if self.filled == self.room or self.room == 0:
            return
        self._keep_energies()
        for held, buffer in zip(self.device_held, self.buffers, strict=True):
            self._keep_states(held, buffer)
        self.filled += 1
        if self.filled == self.room:
            self._flush()

    def _keep_energies(self) -> None:
        """Do nothing: energies are computed in `_flush`, for all buffered records at once."""

    def _keep_states(self, held: Any, buffer: Any) -> None:
        """Copy some variables of the kept chains to the buffer's next record."""
        keep = configure(self.kernels.keep_states, (self.kept, len(held)), (WARP, 4))
        keep(self.device_chains.x, self.device_heads, held, self.filled, buffer)

    def _host_counts(self) -> NDArray[np.int64]:
        """Return the counts so far: [row, value]."""
        counts: NDArray[np.int64] = self.counts.copy_to_host()
        return counts

    def _flush(self) -> None:
        """Move the buffered records to the host."""
        with without_size_warnings():
            self._flush_rows()

    def _flush_rows(self) -> None:
        self._take_observed()
        rows = slice(self.flushed, self.flushed + self.filled)
        if self.filled and self.energy:
            self._rows["energy"][rows] = self._kept_energies()
        if self.filled and self.draws:
            states = self.buffers[-1][: self.filled].copy_to_host()
            self._rows["draws"][rows] = states.transpose(0, 2, 1)
        self.flushed, self.filled = rows.stop, 0

    def _kept_energies(self) -> NDArray[np.float64]:
        """Compute the energies of the kept states on the device: [record, row]."""
        across, parts = min(_power_of_2(self.kept), WARP), self._parts(self.kept)
        threads = self.kernels.THREADS
        each = self.cuda.device_array((self.filled, parts, self.kept), np.float64)
        items, block = (self.kept, parts, self.filled), (across, threads // across)
        add = configure(self.kernels.part_energies, items, block)
        add(self.device_model, self.buffers[0], each)
        found: NDArray[np.float64]
        if parts == 1:
            found = each.copy_to_host()[:, 0]
        else:
            energy = self.cuda.device_array((self.filled, self.kept), np.float64)
            total = configure(self.kernels.sum_parts, (self.kept * threads, self.filled), threads)
            total(each, energy)
            found = energy.copy_to_host()
        for k in range(self.filled if self.plan.graph.implicits else 0):
            if (self.flushed + k + 1) % self.plan.energy_every == 0:
                states = np.ascontiguousarray(self.buffers[0][k].copy_to_host().T)
                found[k] += self.plan.graph.implicit_energies(states)
        return found

    def _parts(self, chains: int) -> int:
        """Return the number of parts, one per thread, into which the factors are split."""
        factors = len(self.model.pair) + len(self.model.factors)
        return max(min(-(-factors // _PART), _ADDING // chains), 1)

    def state(self) -> State:
        """Return copies of the device's arrays, by chain, and the scan where its path begins."""
        self._flush()
        chains, (order, position, stream) = self.device_chains, self._path_begin
        return {
            "x": self._turned(chains.x),
            "stream": self._turned(chains.streams),
            "carried": self._turned(chains.carried),
            "tally": self._turned(chains.tally),
            "replicas": self._turned(self.device_replicas),
            "order": order if self.scan.kind == SHUFFLED else order[:0],
            "position": position,
            "path": stream,
            "walked": np.array([self._walked]),
            "counted": self._counted.copy(),
            "counts": self._host_counts(),
            "clock": np.array([self._clock]),
            "warmed": np.array([self.warmed]),
            **self.observer.state(),
        }

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.observer.restore(state)
        chains = self.device_chains
        for name, array in (
            ("x", chains.x),
            ("stream", chains.streams),
            ("carried", chains.carried),
            ("tally", chains.tally),
            ("replicas", self.device_replicas),
        ):
            self._turn(state[name], array)
        if len(state["order"]):
            self.scan.order[:] = state["order"]
        self.scan.position[:], self.scan.stream[:] = state["position"], state["path"]
        self._new_path()
        self._walked = int(state["walked"][0])
        self._counted[:] = state["counted"]
        self.counts = self.cuda.to_device(np.ascontiguousarray(state["counts"]))
        self._clock, self.warmed = int(state["clock"][0]), int(state["warmed"][0])
        self.filled, self.flushed = 0, self.records

    def _turned(self, array: Any) -> NDArray[Any]:
        """Copy a device's array [item, chain] to the host: [chain, item]."""
        rows = np.empty((array.shape[1], array.shape[0]), array.dtype)
        for first, step in self._pieces(rows):
            piece = rows[first : first + step]
            device = self.cuda.device_array(piece.shape, piece.dtype)
            configure(self.kernels.turn, piece.shape, _TILE)(array, first, device, True)
            device.copy_to_host(piece)
        return rows

    def _turn(self, rows: NDArray[Any], array: Any) -> None:
        """Copy an array [chain, item] to a device's array [item, chain]."""
        for first, step in self._pieces(rows):
            piece = np.ascontiguousarray(rows[first : first + step])
            turn = configure(self.kernels.turn, piece.shape, _TILE)
            turn(array, first, self.cuda.to_device(piece), False)

    @staticmethod
    def _pieces(rows: NDArray[Any]) -> list[tuple[int, int]]:
        """Split rows into pieces, because the device needs space to transpose each."""
        step = max(_TURNED // max(rows[:1].nbytes, 1), 1)
        return [(first, step) for first in range(0, len(rows) if rows.size else 0, step)]

    def rows(self, first: int) -> dict[str, NDArray[Any]]:
        """Return the records from index `first` on: [record, row, ...]."""
        self._flush()
        return super().rows(first)

    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with one row per record."""
        return self._rows | {"observed": self.observer.series}

    def grow(self, length: int) -> None:
        """Allocate space for more records."""
        self.length = length
        self._make_rows(length // self.plan.thin)

    def energies(self) -> NDArray[np.float64]:
        """Return the energies already on the host, of every `energy_every`-th record."""
        every = self.plan.energy_every
        return self._rows["energy"][every - 1 : self.flushed : every].T

    def counted(self) -> Counted:
        """Return the counts that the device has accumulated."""
        counts = self._host_counts()
        times = int(self._counted[0]) if counts.shape[1] else 0
        return Counted(counts, visits(self.plan, times))

    def collect(self) -> Collected:
        """Return the results, one row per recorded chain."""
        state = self.state()
        counts = state["counts"]
        if self.marginals and uncounted(state):
            last = self._no_counts()
            with without_size_warnings():
                self._count(last)
            counts = counts + last.copy_to_host()
        return collect_rows(self.plan, state, self.rows(0), counts)


class LevelGroup(CudaGroup):
    """A group of temperature ladders, which can record all temperatures."""

    def __init__(self, plan: Plan, data: Any) -> None:
        super().__init__(plan, data)
        self.levels = LevelRecords(plan, plan.rows, self.observer)

    @abstractmethod
    def keep_best(self) -> None:
        """Keep the best state of all levels of every chain from now on."""

    @abstractmethod
    def best_states(self) -> NDArray[Any]:
        """Return the best states since `keep_best`: [chain, variable]."""

    @abstractmethod
    def _keep_levels(self, record: int) -> None:
        """Record all levels of the recorded chains."""

    def _make_rows(self, records: int) -> None:
        super()._make_rows(records)
        self.levels.make_room(records)

    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with one row per record."""
        return super().recorded() | {"levels": self.levels.series}

    def _keep(self) -> None:
        super()._keep()
        if self.plan.temperatures:
            self._keep_levels(self._clock // self.plan.thin - 1)


def row_ends(plan: Plan) -> NDArray[np.int64]:
    """Return the bounds of rows of chains: [row + 1]."""
    ends: NDArray[np.int64] = (np.arange(plan.rows + 1) * plan.chains) // plan.rows
    return ends


def visits(plan: Plan, times: int) -> NDArray[np.int64]:
    """Return the divisor of the counts of each row after this number of counts."""
    return np.diff(row_ends(plan)) * times  # type: ignore[no-any-return]


def uncounted(state: State) -> bool:
    """Return whether the present states have not been counted yet."""
    return bool(state["clock"][0] != state["counted"][1])


def collect_rows(
    plan: Plan, state: State, rows: dict[str, NDArray[Any]], counts: NDArray[np.int64]
) -> Collected:
    """Collect a group's records by row; the counts include the last state.

    Thus even the shortest run has marginals.
    """
    clock = int(state["clock"][0])
    times = int(state["counted"][0]) + uncounted(state) if counts.shape[1] else 0
    none = {
        "draws": np.empty((0, plan.rows, len(plan.drawn)), plan.graph.state_type),
        "energy": np.empty((0, plan.rows)),
        "error": np.empty((0, plan.rows)),
        "observed": np.empty((0, plan.rows, plan.width)),
        "levels": np.empty((0, plan.rows, plan.level_numbers)),
    }
    return Collected(
        clock=np.full(plan.rows, clock),
        counts=counts,
        visits=visits(plan, times),
        tally=state["tally"].sum(axis=0),
        carried=state["carried"],
        state=state["x"],
        warmed=int(state["warmed"][0]),
        **{name: state[name] for name in STATE},
        **{name: array.swapaxes(0, 1) for name, array in (none | rows).items()},
    )


def count_states(plan: Plan, states: NDArray[Any]) -> NDArray[np.int64]:
    """Count the occurrences of each value in states [chain, variable], by row of chains."""
    ends, first = row_ends(plan), plan.graph.first
    return np.stack(
        [
            np.bincount((states[begin:end] + first).ravel(), minlength=plan.values)
            for begin, end in itertools.pairwise(ends.tolist())
        ]
    )


def check_data(value: Any) -> None:
    """Refuse data that a GPU cannot use: a user's own function."""
    if isinstance(value, tuple):
        for part in value:
            check_data(part)
    elif not isinstance(value, np.ndarray | int | float | np.generic):
        raise SampleError(
            "estimators of your own (mg.CustomEstimator) run on the CPU only; leave "
            f'backend="cuda" out (it cannot take {type(value).__name__})'
        )


def check_measures(plan: Plan) -> None:
    """Refuse observables that a GPU cannot measure."""
    for name, measure in zip(plan.observe, plan.measures, strict=True):
        if measure.function is None:
            raise SampleError(
                f'observe: {name!r} cannot be measured with backend="cuda"; a function must give a '
                "number or a tuple (an array has to be allocated), of variables whose values fit a "
                "signed integer of the state's width (up to 128, or 257 to 32,768 values), and "
                "energies of implicit factors are recorded of some chains only: run.energy"
            )


@contextmanager
def without_size_warnings() -> Iterator[None]:
    """Suppress Numba's warning that few chains leave most of the GPU idle."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Grid size")
        yield


def _power_of_2(count: int) -> int:
    """Return the smallest power of 2 that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _next(clock: int, spacing: int) -> int:
    return (clock // spacing + 1) * spacing


def _bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(_bytes(part) for part in value)
    return int(value.size * value.itemsize) if isinstance(value, np.ndarray) else 0
