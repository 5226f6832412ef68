"""Chromatic scans on a GPU: groups of all chains; spins as bits, small domains, points."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.decay import GAUSSIAN
from minigibbs.kernels.layout import CHANGES, DRAWS, EVALUATIONS
from minigibbs.kernels.philox import key_of
from minigibbs.running.backends.cuda import (
    LANES,
    CudaGroup,
    blocks_along,
    load,
    row_ends,
)
from minigibbs.running.backends.cuda_launch import Again
from minigibbs.running.backends.cuda_observed import share, to_device
from minigibbs.running.backends.packed_points import pack_points
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.running.sums import signed_places
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.points import PointColours
from minigibbs.samplers.chromatic.small import SmallColours
from minigibbs.samplers.chromatic.small_tails import SmallTailColours
from minigibbs.samplers.chromatic.spin_energy import spin_energy
from minigibbs.samplers.chromatic.spins import SpinColours
from minigibbs.samplers.chromatic.tails import SpinTailColours

WORD = 32  # chains in a word
_SHARING = 4  # threads of a chain that share a site's tables
_MANY = 40_000  # chains from which on half as many do
_NOTING = 8448  # blocks of threads that note what has changed, at the most
_NOTED = 8  # sweeps of which one is compared with the one before
_SLOTS = 4096  # where they add up how much
_ADDING = 1 << 17  # threads that add up energies
_CROWDED = 8  # chains of a word that are kept, from which on all its energies are added up
_MOST_RECORDS = 4096  # that wait on the device
_BUFFER_BYTES = 1 << 28
_READ_BYTES = 1 << 28  # of states on their way to the host
_SPREAD = 1 << 14  # of which so many are spread at a time
_MANY_COLOURS = 64  # launches of a sweep
_WALKERS = 1 << 14  # threads that keep a device busy, each with chains of its own
_FEW_CHAINS = 528  # blocks of threads that leave half of a device idle
_FEW_WORDS = 1 << 14  # and threads that update a word of a colour each
_LARGE = 1 << 24  # bytes of values, with which launches do not matter
_HUGE = 1 << 26  # bytes of values of which few sweeps wait to be counted


Launch = Callable[
    [int, int], None
]  # sweep number so and so, of so many chains; of none, to compile


class CudaColours(CudaGroup):
    """All chains of a plan, colour by colour; the draws are those of the CPU."""

    kernels_name: ClassVar[str]
    spins_are_bits: ClassVar[bool] = False
    launches: list[Launch]
    changed: Any  # [slot] updates that changed a value
    drawn: Any  # [slot] factors drawn

    def __init__(self, plan: Plan, data: Any) -> None:
        self.own = load(self.kernels_name)
        self.key = [int(word) for word in key_of(plan.seed)]
        super().__init__(plan, data)
        self._sweep = 0

    @abstractmethod
    def _parts_of_a_sweep(self) -> list[Launch]:
        """What is launched, one after the other, to make a sweep."""

    @abstractmethod
    def _read(self) -> NDArray[Any]:
        """All states on the host: [chain, variable]."""

    @abstractmethod
    def _write(self, states: NDArray[Any]) -> None:
        """Put states [chain, variable] on the device."""

    def load(self, states: NDArray[Any]) -> None:
        """Go on from these states [chain, variable]."""
        self._write(states)

    def states(self) -> NDArray[Any]:
        """All states on the host: [chain, variable]."""
        return self._read()

    def sweep(self, first: int, sweeps: int) -> None:
        """Make so many sweeps of all chains, from number `first` on; nothing is recorded."""
        for number in range(first, first + sweeps):
            for launch in self.launches:
                launch(number, self.chains)

    def _again(
        self, launch: Any, before: tuple[Any, ...], chains: int, *after: Callable[[], Any] | Any
    ) -> Launch:
        """A launch that is made in every sweep: before its number stand these, and the seed.

        Behind it stand how many chains there are, or 0 to compile, and the rest, of which the last
        may be a function that gives one of a few arrays.
        """
        ready: dict[int, Again] = {}

        def run(sweep: int, some: int) -> None:
            last = after[-1]() if callable(after[-1]) else after[-1]
            rest = (*after[:-1], last)
            if some == 0:
                launch(*before, *self.key, sweep, 0, *rest)
                return
            if id(last) not in ready:
                ready[id(last)] = Again(launch, (*before, *self.key), (chains, *rest))
            ready[id(last)](sweep)

        return run

    def _blocks(self, items: int) -> int:
        """Blocks of threads for so many items: one at the least, as no launch has none."""
        return max(-(-items // int(self.own.THREADS)), 1)

    def _across(self, chains: int, threads: int) -> int:
        """Blocks of threads for as many variables as a block of places has."""
        return -(-BLOCK_SIZE * chains // threads)

    def compile(self) -> None:
        """Compile the kernel that advances."""
        for launch in self.launches[:1]:
            launch(0, 0)
        self.cuda.synchronize()

    def _launch(self, updates: int) -> None:
        """Make so many updates of every chain; returns before they are made."""
        for _ in range(updates // self.unit):
            for launch in self.launches:
                launch(self._sweep, self.chains)
            self._sweep += 1

    def state(self) -> State:
        """Copies of the device's arrays."""
        self._flush()
        tally = np.zeros((1, CHANGES + 1), np.int64)
        noted = self.changed.copy_to_host().sum()
        tally[0, CHANGES] = self._changes(int(noted))
        tally[0, DRAWS] = self.drawn.copy_to_host().sum()
        tally[0, EVALUATIONS] = self._evaluations(int(tally[0, DRAWS]))
        return {
            "x": self._read(),
            "stream": np.ones((1, 4), np.uint64),  # none is needed
            "carried": np.empty((self.chains, 0)),
            "replicas": np.empty((self.chains, 0), self.kind),
            "tally": tally,
            "noted": np.array([noted]),
            "order": self.plan.order[:0],
            "position": np.zeros(1, np.int64),
            "path": self.scan.stream,
            "walked": np.zeros(1, np.int64),
            "counted": self._counted.copy(),
            "counts": self._host_counts(),
            "clock": np.array([self._clock]),
            "warmed": np.array([self.warmed]),
            **self.observer.state(),
        }

    def _evaluations(self, draws: int) -> int:
        """How many factors were looked at, besides so many that were drawn."""
        return self._sweep * self.chains * len(self.data.target)

    def _changes(self, noted: int) -> int:
        """How many updates changed a value, of which so many were noted."""
        return noted

    def restore(self, state: State) -> None:
        """Take up a state."""
        self._write(state["x"])
        self.observer.restore(state)
        changed = np.zeros(_SLOTS, np.int64)
        changed[0] = state["noted"][0]
        self.changed.copy_to_device(changed)
        changed[0] = state["tally"][0, DRAWS]
        self.drawn.copy_to_device(changed)
        self._counted[:] = state["counted"]
        self.counts = self.cuda.to_device(np.ascontiguousarray(state["counts"]))
        self._clock, self.warmed = int(state["clock"][0]), int(state["warmed"][0])
        self._sweep = (self._clock + self.warmed) // self.unit
        self.filled, self.flushed = 0, self.records


class Adding(NamedTuple):
    """How threads share in the energies of some chains."""

    firsts: NDArray[np.int64]  # the first chain of each group
    width: int  # chains of a group: one, or all of a word
    lanes: NDArray[np.int64]  # of each chain, among those of all groups

    @property
    def parts(self) -> int:
        """Threads that share in a group."""
        return -(-_ADDING // max(len(self.firsts), 1))

    @property
    def bytes(self) -> int:
        """Bytes of what they add up."""
        return 8 * self.parts * self.width * len(self.firsts)


def adding(chains: NDArray[np.int64]) -> Adding:
    """Groups with these chains, which are in order: one by one, or all of a word if many are."""
    words = WORD * np.unique(chains // WORD)
    if len(chains) < _CROWDED * len(words):
        return Adding(chains, 1, np.arange(len(chains)))
    which = np.searchsorted(words, chains, side="right") - 1
    return Adding(words, WORD, which * WORD + chains - words[which])


class CudaBits(CudaColours):
    """Spins, 32 chains in a word: x[place, word] on the device. See `cuda_bits`."""

    kernels_name = "cuda_bits"
    spins_are_bits = True

    def __init__(self, plan: Plan, data: SpinColours | SpinTailColours) -> None:
        self.words = -(-plan.chains // WORD)
        self.places = np.full(len(plan.graph), -1, dtype=np.int32)
        self.places[data.variable] = np.arange(len(data.variable), dtype=np.int32)
        super().__init__(plan, data)
        self.every = self.unit  # a sweep: what changes in it is noted

    def _chain_bytes(self) -> tuple[int, int]:
        """Bytes of all chains, and of what there is once."""
        planes = (self.own.PLANES if self.marginals else 0) + self._snapshots()
        size = self.word.itemsize * len(self.data.variable) * self.words * (2 + planes)
        if any(measure.sums is None for measure in self.plan.measures):
            size += self.chains * len(self.plan.graph)
        table = 4 * self.own.PATTERNS * len(self.data.variable) if self._by_patterns() else 0
        return size, table

    def _snapshots(self) -> int:
        """How many sweeps' values are kept to be counted together, for marginals or observables.

        Without marginals, what takes long to sweep is counted where it is.
        """
        size = self.word.itemsize * len(self.data.variable) * self.words
        if self.marginals:
            return int(self.own.FEW_WAITING if size > _HUGE else self.own.WAITING)
        sums = (measure.sums for measure in self.plan.measures)
        counted = any(one is not None and one.terms is not None for one in sums)
        return 0 if size > _LARGE or not counted else int(self.own.WAITING)

    @property
    def walking(self) -> bool:
        """Whether each thread goes through all colours.

        So it is where chains fill the device by themselves, and a colour does not.
        """
        if isinstance(self.data, SpinTailColours):
            return True
        colours = len(self.data.block_ends) - 1
        scarce = len(self.data.variable) * self.words < _FEW_WORDS * colours
        return scarce and (2 * self.words >= _WALKERS or colours > _MANY_COLOURS)

    @property
    def word(self) -> np.dtype[Any]:
        """A byte is enough for few chains."""
        few = self.chains <= 2 * self.own.QUAD and not self.walking
        return np.dtype(np.uint8 if few else np.uint32)

    def _by_patterns(self) -> bool:
        """Whether spins have so few neighbours that the values of these are looked up."""
        many = self.chains > 2 * self.own.QUAD and not isinstance(self.data, SpinTailColours)
        return bool(many and self.data.blocks["degree"].max(initial=0) <= self.own.MOST_JOINED)

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Begin: with first states [chain, variable], or with random ones made on the device."""
        self._place_model()
        m = len(self.data.variable)
        self.x = self.cuda.device_array((m, self.words), self.word)
        self.before = self.cuda.device_array(m * self.words, self.word)
        self.flat = self.x.reshape(self.x.size)
        blocks = self._blocks(self.x.size)
        self.count = self.own.count_bits[blocks, self.own.THREADS]
        self.last_word = 0xFFFFFFFF >> (WORD * self.words - self.chains)
        planes = self.own.PLANES if self.marginals else 0
        self.planes = self.cuda.to_device(np.zeros((planes, m * self.words), self.word))
        self.waiting = self.flat.reshape(1, self.flat.size)
        self.snapshots = []
        if self._snapshots():
            self.waiting = self.cuda.device_array((self._snapshots(), m * self.words), self.word)
            self.snapshots = [self.waiting[k] for k in range(len(self.waiting))]
        self.changed = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        note = self.own.count_changes[min(_NOTING, blocks), self.own.THREADS]
        both = (self.flat, self.before, self.words, self.last_word)
        self.note = Again(note, both, (self.changed,))
        self.counting: dict[tuple[int, int, int], Again] = {}
        self.nothing = self.copy = self.cuda.device_array(0, self.word)
        self.launches = self._parts_of_a_sweep()
        self.noted, self.held_back, self.recording = 0, 0, False  # since the planes were empty
        self.marked: list[int] = []  # snapshots that are records
        if states is None:
            first = self.own.first_bits[self._blocks(m * self.words), self.own.THREADS]
            first(self.spins[1], *self.key, self.x)
        else:
            self._write(states)
        shape = (len(self.plan.graph) if self.observing.of_states else 0, self.chains)
        self.device_chains = SimpleNamespace(x=self.cuda.device_array(shape, self.kind))
        self._place_records()
        self._place_energies()

    def take(self, data: Any) -> None:
        """Send the weights; launches are made anew, with thresholds that follow from them."""
        self.data = data
        self._place_spins()
        self.launches = self._parts_of_a_sweep()

    def _place_spins(self) -> None:
        tails = isinstance(self.data, SpinTailColours)
        names = (self.own.TailSpins if tails else self.own.Spins)._fields
        spins = tuple(getattr(self.data, name) for name in names)
        self.spins = [to_device(self.cuda, part) for part in spins]

    def _place_model(self) -> None:
        self._place_spins()
        fixed = np.maximum(self.plan.graph.evidence, 0).astype(self.kind)
        self.device_model = to_device(self.cuda, self.model)
        self.device_places = to_device(self.cuda, self.places)
        self.device_fixed = to_device(self.cuda, fixed)
        self.device_ends = to_device(self.cuda, row_ends(self.plan))

    def _parts_of_a_sweep(self) -> list[Launch]:
        """A launch a colour, or one for all."""
        kind, ends, own = self.data.base.dtype.type, self.data.block_ends, self.own
        if self.walking:
            blocks, halves = -(-2 * self.words // own.WALKING), self.x.view(np.uint16)
            if isinstance(self.data, SpinTailColours):
                tails = own.walk_with_tails(kind)[blocks, own.WALKING]
                return [self._again(tails, tuple(self.spins), 1, halves, self.drawn)]
            return [self._again(own.walk(kind)[blocks, own.WALKING], tuple(self.spins), 1, halves)]
        lanes = 1 if self.chains == 1 else own.QUAD if self.chains <= 2 * own.QUAD else own.HALF
        kernel, several = own.sweep_colour(kind, lanes), self.words > 1
        across, arrays = self._across(self.words, own.THREADS) if several else 1, self.spins
        if self._by_patterns():
            kernel, arrays = own.sweep_patterns, [*self.spins, self._thresholds(kind)]

        def launch(first: int, end: int) -> Launch:
            blocks = end - first if several else self._blocks(BLOCK_SIZE * (end - first))
            update = kernel[(blocks, across), own.THREADS]
            where = (*arrays, first, end)
            return self._again(update, where, self.chains, self.x, lambda: self.copy)

        return [launch(first, end) for first, end in pairwise(ends.tolist()) if end > first]

    def _thresholds(self, kind: Any) -> Any:
        """The table of `sweep_patterns`, made on the device."""
        table = self.cuda.device_array(self.own.PATTERNS * len(self.data.variable), np.uint32)
        find = self.own.find_thresholds(kind)[len(self.data.blocks), self.own.THREADS]
        blocks, _, base, _, weight = self.spins
        find(blocks, base, weight, table)
        return table

    def advance(self, updates: int, recording: bool) -> None:
        """Make so many updates of every chain."""
        self.recording = recording
        super().advance(updates, recording)

    def _count(self, counts: Any) -> None:
        """Nothing is left to do: every sweep is counted when it is made."""

    def _launch(self, updates: int) -> None:
        """Make so many updates of every chain; every eighth sweep is compared with that before."""
        for _ in range(updates // self.unit):
            early = self._sweep < _NOTED
            compare = early or self._sweep % _NOTED == _NOTED - 1
            if compare:
                self.before.copy_to_device(self.flat)
            keeping = self.recording and self._keeps_sweep()
            self.copy = self._next_snapshot() if keeping else self.nothing
            super()._launch(self.unit)
            if compare:
                self.note(1 if early else _NOTED)
            if keeping:
                if self.walking:
                    self.copy.copy_to_device(self.flat)
                self.held_back += 1

    def _keeps_sweep(self) -> bool:
        """Whether the values after the next sweep are kept, to be counted with those of others."""
        if self.marginals:
            return True
        return bool(self.snapshots) and (self._clock + self.unit) % self.plan.thin == 0

    def _next_snapshot(self) -> Any:
        """Where they go; what waits is counted before, if there is no room."""
        if self.held_back == len(self.snapshots):
            self._count_waiting()
        if self.noted + self.held_back == self.own.MOST_COUNTED:
            self._flush_counts()
        return self.snapshots[self.held_back]

    def _changes(self, noted: int) -> int:
        """How many updates changed a value, by those of the first eight and every eighth sweep."""
        covered = min(self._sweep, _NOTED) + max(self._sweep // _NOTED - 1, 0) * _NOTED
        return round(noted * self._sweep / max(covered, 1))

    def _count_waiting(self) -> None:
        """Count the values that wait."""
        self._count_marked()
        if self.marginals:
            self.count(self.waiting, self.held_back, self.planes)
            self.noted += self.held_back
        self.held_back = 0

    def _flush_counts(self) -> None:
        """Add what waits and what the planes hold to the counts."""
        if self.held_back:
            self._count_waiting()
        if self.noted:
            m = len(self.data.variable)
            grid = (self._blocks(m), blocks_along(self.kept, 1))
            planes = self.planes.reshape(self.own.PLANES, m, self.words)
            flush = self.own.flush_counts[grid, (self.own.THREADS, 1)]
            flush(
                planes,
                self.spins[1],
                self.device_first,
                self.device_ends,
                self.noted,
                self.counts,
            )
            self.own.clear[self._blocks(self.planes.size), self.own.THREADS](
                self.planes.reshape(self.planes.size)
            )
        self.noted = 0

    def _plan_records(self) -> int:
        """Choose what is held of the kept chains; returns the bytes that all records take."""
        self.held = [self.plan.drawn] if self.draws else []
        record = 8 * self.kept + self.kind.itemsize * self.kept * len(self.plan.drawn)
        room = max(min(_BUFFER_BYTES // record, self.plan.records, _MOST_RECORDS), 1)
        self.room = room if self.draws or self.energy else 0
        self.adding = adding(row_ends(self.plan)[:-1] if self.energy else np.empty(0, np.int64))
        values = self.plan.values if self.marginals else 0
        more = self.adding.bytes + self._plan_measures()
        return int(self.room * record + more + 8 * self.kept * (values + 1))

    def _observed_parts(self) -> int:
        """Energies are always added up by many threads."""
        return 2

    def _parts_bytes(self) -> int:
        every = np.arange(self.chains if self.observing.of_energy else 0)
        self.adding_all = adding(every)
        return self.adding_all.bytes

    def _place_energies(self) -> None:
        """Put what energies are made of on the device."""
        if not self.energy and not self.observing.of_energy:
            return
        found = spin_energy(self.plan.graph, self.data.variable)
        arrays = (found.pair, found.weight, found.field if found.field.any() else np.empty(0))
        self.energy_arrays = [to_device(self.cuda, array) for array in arrays]
        self.constant = found.constant
        if self.energy:
            self.device_energy = self.cuda.device_array((self.room, self.kept), np.float64)
            self.keep_energies = self._energies_to(self.adding, self.device_energy)
        if self.observing.of_energy:
            every = self.observing.energies.reshape(self.observing.room, self.chains)
            self.observe_energies = self._energies_to(self.adding_all, every)

    def _energies_to(self, how: Adding, energy: Any) -> Callable[[int], None]:
        """A function that adds up the energies of some chains, to energy[record, chain]."""
        firsts, lanes = (to_device(self.cuda, array) for array in (how.firsts, how.lanes))
        parts = self.cuda.device_array((how.parts, len(how.firsts), how.width), np.float64)
        grid, threads = self._blocks(how.parts * len(how.firsts)), self.own.THREADS
        add = self.own.part_energies(how.width)[grid, threads]
        total = self.own.sum_energies[len(how.lanes), threads]

        def keep(record: int) -> None:
            add(*self.energy_arrays, self.x, firsts, parts)
            total(parts, lanes, self.constant, record, energy)

        return keep

    def _keep_energies(self) -> None:
        if self.energy and self.records % self.plan.energy_every == 0:
            self.keep_energies(self.filled)

    def _kept_energies(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.device_energy[: self.filled].copy_to_host()
        return found

    def _place_sums(self) -> None:
        """Place what is counted for observables: bits of words."""
        terms, own = self.observing.summed.terms, self.summing
        together = max(self._snapshots(), 1)
        sizes = (own.THREADS, own.EIGHT, own.MOST_EIGHTS, together)
        pieces, *self.tiles = share(terms.ends, self.words, *sizes)
        self.blocks_of_sums = len(pieces) * self.tiles[0]
        places = signed_places(terms, self.data.variable)
        self.terms, self.pieces = (to_device(self.cuda, array) for array in (places, pieces))

    def _observe(self) -> None:
        """Measure every chain; what is no sum from a byte for each of its values."""
        if self.observing.of_states:
            grid = (self._blocks(self.chains), blocks_along(len(self.places), 1))
            spread = self.own.spread_bits[grid, (self.own.THREADS, 1)]
            spread(self.x, self.device_places, self.device_fixed, self.device_chains.x)
        super()._observe()

    def _keep_sums(self) -> None:
        """Mark the last snapshot, which is counted with others, or count the values as they are."""
        record = self.observing.filled
        if self.blocks_of_sums:
            if not self.marked:
                self.first_marked = record
            self.marked.append(max(self.held_back - 1, 0))
            if not self.snapshots:
                self._count_marked()
        if self.observing.of_energy:
            self.observe_energies(record)

    def _count_marked(self) -> None:
        """Count the snapshots that are marked, for observables."""
        rows, self.marked = self.marked, []
        if rows:
            step = rows[-1] - rows[0]
            step = step // (len(rows) - 1) if step else 1  # every so many sweeps is a record
            which = (rows[0], step, len(rows))
            if which not in self.counting:
                grid = (self.blocks_of_sums, len(rows))
                count = self.summing.count_words[grid, self.summing.THREADS]
                arrays = (self.terms, self.pieces, self.words, *self.tiles, self.chains)
                before = (self.waiting, rows[0], step, *arrays)
                self.counting[which] = Again(count, before, (self.observing.sums,))
            self.counting[which](self.first_marked)

    def _take_observed(self) -> None:
        self._count_marked()
        super()._take_observed()

    def _keep_states(self, held: Any, buffer: Any) -> None:
        grid = (-(-self.kept // LANES), blocks_along(len(held), 4))
        self.own.keep_bits[grid, (LANES, 4)](
            self.x,
            self.device_places,
            self.device_fixed,
            self.device_heads,
            held,
            self.filled,
            buffer,
        )

    def _host_counts(self) -> NDArray[np.int64]:
        self._flush_counts()
        counts: NDArray[np.int64] = self.counts.copy_to_host()
        clamped = np.flatnonzero(self.places < 0)
        if len(clamped) and counts.size:
            place = self.model.first[clamped] + self.plan.graph.evidence[clamped]
            counts[:, place] = (np.diff(row_ends(self.plan)) * self._counted[0])[:, None]
        return counts

    def _read(self) -> NDArray[Any]:
        """All states on the host: [chain, variable]. They come as bits, and are spread here."""
        n = len(self.places)
        states, width = np.empty((self.chains, n), self.kind), -(-n // 8)
        step = max(_READ_BYTES // n, 1)

        def spread(first: int, packed: NDArray[np.uint8]) -> None:
            bits = np.unpackbits(packed, axis=1, count=n, bitorder="little")
            states[first : first + len(packed)] = bits

        with ThreadPoolExecutor() as pool:
            spreading = []
            for first in range(0, self.chains, step):
                rows = min(step, self.chains - first)
                device = self.cuda.device_array((rows, width), np.uint8)
                grid = (self._blocks(width), blocks_along(rows, 1))
                self.own.read_bits[grid, (self.own.THREADS, 1)](
                    self.x, self.device_places, self.device_fixed, first, device
                )
                packed = device.copy_to_host()
                for k in range(0, rows, _SPREAD):
                    spreading.append(pool.submit(spread, first + k, packed[k : k + _SPREAD]))
            for piece in spreading:
                piece.result()  # which raises what went wrong
        return states

    def _write(self, states: NDArray[Any]) -> None:
        """Put states [chain, variable] on the device."""
        packed = np.packbits(states[:, self.data.variable].T, axis=1, bitorder="little")
        words = np.zeros((len(packed), 4 * self.words), np.uint8)
        words[:, : packed.shape[1]] = packed
        if self.word.itemsize == 1:
            words = words[:, :1]
        self.x.copy_to_device(np.ascontiguousarray(words).view(self.word))


class CudaSmall(CudaColours):
    """Small domains, a byte a chain: x[variable, chain] on the device. See `cuda_small`."""

    kernels_name = "cuda_small"
    sites: SimpleNamespace | None = None  # where all are joined by tables: what they are made of

    def _chain_bytes(self) -> tuple[int, int]:
        """Bytes of all chains, and of what there is once."""
        size = self.chains * len(self.plan.graph)
        return size, 8 * _SLOTS + self._site_bytes()

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Begin: with first states [chain, variable], or with random ones made on the device."""
        graph = self.plan.graph
        self.domain = int(graph.sizes.max())
        self._place_small()
        self.device_model = to_device(self.cuda, self.model)
        self.grid = self._blocks(self.chains)
        x = self.cuda.device_array((len(graph), self.chains), self.kind)
        self.device_chains = SimpleNamespace(x=x)
        self.changed = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        if states is None:
            sizes, evidence = (to_device(self.cuda, a) for a in (graph.sizes, graph.evidence))
            first = self.own.first_values[self._blocks(x.size), self.own.THREADS]
            first(sizes, evidence, *self.key, x)
        else:
            self._write(states)
        self._place_records()
        self.launches = self._parts_of_a_sweep()

    def _place_small(self) -> None:
        self.small = [to_device(self.cuda, part) for part in self._arrays()]

    def take(self, data: Any) -> None:
        """Go on with other weights."""
        self.data = data
        if self.sites is not None:
            self._fill_sites()
            return
        self._place_small()
        self.launches = self._parts_of_a_sweep()

    def _place_sites(self) -> None:
        """Make room for the fields and tables of all sites, on both sides, and fill it."""
        sites, most = len(self.data.variable), self.domain
        cells = site_cells(self.data, most)
        shapes = {"fields": (sites, most), "tables": cells.shape}
        self.sites = SimpleNamespace(
            cells=cells,
            variable=to_device(self.cuda, self.data.variable),
            tables=np.empty(cells.shape, self.data.table.dtype),
            **{
                f"device_{name}": self.cuda.device_array(shape, self.data.table.dtype)
                for name, shape in shapes.items()
            },
        )
        self._fill_sites()

    def _fill_sites(self) -> None:
        """Send the weights."""
        own, data = self.sites, self.data
        assert own is not None
        own.device_fields.copy_to_device(data.base.reshape(own.device_fields.shape))
        np.take(data.table, own.cells, out=own.tables, mode="clip")  # unchecked: none is outside
        own.device_tables.copy_to_device(own.tables)

    def _arrays(self) -> list[NDArray[Any]]:
        """What kernels read, with variables in place of places, by which states are stored."""
        data, tails = self.data, isinstance(self.data, SmallTailColours)
        names = (self.own.SmallTails if tails else self.own.Small)._fields
        arrays = {name: getattr(data, name) for name in names}
        arrays["target"] = data.variable[data.target]
        if tails:
            arrays["tail"] = data.tail.copy()
            for name in ("place", "other"):
                signed = data.tail[name]
                arrays["tail"][name] = np.sign(signed) * (data.variable[np.abs(signed) - 1] + 1)
        return list(arrays.values())

    def _parts_of_a_sweep(self) -> list[Launch]:
        """A launch a colour, or one for all, with tails or sites that are joined by tables."""
        own, x, changed = self.own, self.device_chains.x, self.changed
        if isinstance(self.data, SmallTailColours):
            walkers = -(-self.chains // own.QUAD)
            alike = bool((self.plan.graph.sizes == self.domain).all())
            whole = self.chains % own.QUAD == 0
            kernel = own.walk_with_tails(self.domain, alike, whole)
            walk, flat = kernel[-(-walkers // own.WALKING), own.WALKING], x.reshape(x.size)
            words = flat.view(np.uint32) if whole else self.changed.view(np.uint32)  # not read
            states = (x, flat, words)
            own_arrays = tuple(self.small)
            return [self._again(walk, own_arrays, self.chains, *states, changed, self.drawn)]
        if self._site_bytes():
            threads = _SHARING if self.chains < _MANY else _SHARING // 2
            sites, most = len(self.data.variable), self.domain
            kernel = own.sweep_sites(sites, most, threads)
            run = kernel[-(-self.chains // own.CHAINS), threads * own.CHAINS]
            self._place_sites()
            assert self.sites is not None
            places = (self.sites.variable, self.sites.device_fields, self.sites.device_tables)
            return [self._again(run, places, self.chains, x, changed)]
        kernel, ends = own.sweep_colour(self.domain), self.data.block_ends
        across, stride = self._across(self.chains, own.THREADS), self.data.stride

        def launch(first: int, blocks: int) -> Launch:
            update = kernel[(blocks, across), own.THREADS]
            where = (*self.small, stride, first)
            return self._again(update, where, self.chains, x, changed)

        return [launch(begin, end - begin) for begin, end in pairwise(ends.tolist()) if end > begin]

    def _site_bytes(self) -> int:
        """Bytes of the tables of all sites, where all are joined by tables; else 0."""
        data, sites = self.data, len(self.data.variable)
        if isinstance(data, SmallTailColours):
            return 0
        most = int(self.plan.graph.sizes.max())
        alone = len(data.ends) - 1 == sites > 1 and len(data.target) == sites * (sites - 1)
        alike = alone and (np.diff(data.first) == most).all() and (data.start >= 0).all()
        shared = self.own.shared_bytes(sites, most, _SHARING)
        return 4 * (sites * most) ** 2 if alike and shared <= self.own.SHARED_BYTES else 0

    def _read(self) -> NDArray[Any]:
        return self._turned(self.device_chains.x)

    def _write(self, states: NDArray[Any]) -> None:
        self._turn(states, self.device_chains.x)


class CudaPoints(CudaColours):
    """Points, a block of threads a chain: x[chain, place] on the device. See `cuda_points`.

    After each launch the states are turned to x[variable, chain], for all else.
    """

    kernels_name = "cuda_points"
    data: PointColours

    @property
    def features(self) -> int:
        """Of a point, at the most."""
        groups = self.plan.graph.implicits
        return max(int(group.features.shape[1]) for group in groups if isinstance(group, Points))

    def _chain_bytes(self) -> tuple[int, int]:
        """Bytes of all chains, and of what there is once."""
        return 2 * self.chains * len(self.plan.graph), 16 * _SLOTS

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Begin: with first states [chain, variable], or with random ones made on the device."""
        graph, data = self.plan.graph, self.data
        self.domain = int(graph.sizes.max())
        self.device_data = to_device(self.cuda, data._replace(homes=data.homes.reshape(-1)))
        self.packed = to_device(self.cuda, pack_points(data, self.features))
        self.device_model = to_device(self.cuda, self.model)
        self.grid = self._blocks(self.chains)
        turned = self.cuda.device_array((len(graph), self.chains), self.kind)
        self.device_chains = SimpleNamespace(x=turned)
        self.x = self.cuda.device_array((self.chains, len(graph)), self.kind)
        self.changed = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        if states is None:
            sizes, evidence = (to_device(self.cuda, a) for a in (graph.sizes, graph.evidence))
            first = self.own.first_places[self._blocks(self.x.size), self.own.THREADS]
            first(sizes, evidence, self.device_data.variable, *self.key, self.x)
            self._to_variables()
        else:
            self._write(states)
        self._place_records()
        self.launches = self._parts_of_a_sweep()

    def _parts_of_a_sweep(self) -> list[Launch]:
        """One launch."""
        threads = self.own.THREADS if self.chains > _FEW_CHAINS else 2 * self.own.THREADS
        plain = bool((self.data.codes == GAUSSIAN).all())
        groups = len(self.data.codes)
        sizes, chunk = (groups, self.domain, self.features), self.own.CHUNK
        while self.own.shared_bytes(*sizes, chunk) > self.own.SHARED_BYTES:
            chunk //= 2
        near = self.own.near_bytes(self.x.shape[1], self.domain)
        if self.own.shared_bytes(*sizes, chunk) + near > self.own.NEAR_BYTES:
            near = 0
        kernel = self.own.sweep_points(*sizes, plain, threads, chunk, near > 0)
        run = kernel[self.chains, threads, 0, near]
        data, x, counted = self.device_data, self.x, (self.changed, self.drawn)
        pace = self.cuda.to_device(np.zeros(2 * self.own.PACES, np.uint32))
        return [self._again(run, (data, self.packed), self.chains, x, *counted, pace)]

    def _launch(self, updates: int) -> None:
        """Make so many updates of every chain, and turn the states."""
        super()._launch(updates)
        self._to_variables()

    def _to_variables(self) -> None:
        """Turn the states of the device."""
        side = self.own.TILE
        grid = (-(-self.x.shape[1] // side), -(-self.chains // side))
        turned = self.own.to_variables[grid, (side, side)]
        turned(self.x, self.device_data.variable, self.device_chains.x)

    def _evaluations(self, draws: int) -> int:
        return draws

    def _read(self) -> NDArray[Any]:
        return self._turned(self.device_chains.x)

    def _write(self, states: NDArray[Any]) -> None:
        self._turn(states, self.device_chains.x)
        write = self.own.to_places[self._blocks(self.x.size), self.own.THREADS]
        write(self.device_chains.x, self.device_data.variable, self.x)


def site_cells(data: SmallColours, most: int) -> NDArray[np.int64]:
    """Where the tables of every place stand: [place, (other place, its value, own value)]."""
    sites, values = len(data.variable), np.arange(most)
    cells = np.full((sites, sites, most, most), len(data.table) - 1)  # which is 0
    owner = np.repeat(np.arange(sites), sites - 1)  # of single places the entries stand in order
    cells[owner, data.target] = data.start[:, None, None] + values[:, None] + values * data.stride
    return cells.reshape(sites, sites * most * most)
