"""Chromatic scans of spins on a GPU: a group of all chains, one bit per spin. See `cuda_bits`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.running.backends.cuda_colors import WORD, Launch
from minigibbs.running.backends.cuda_group import WARP, row_ends
from minigibbs.running.backends.cuda_observed import share
from minigibbs.running.backends.cuda_words import CudaWords
from minigibbs.running.backends.device.access import to_device
from minigibbs.running.backends.device.launch import Again
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.plan import Plan
from minigibbs.running.sums import signed_places
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_energy import SpinEnergy, spin_energy
from minigibbs.samplers.chromatic.spin_tails import SpinTailColors
from minigibbs.samplers.chromatic.spins import SpinColors

_ADDING = 1 << 17  # threads that sum energies
_CROWDED = 8  # kept chains per word from which on the energies of all its chains are computed
_READ_BYTES = 1 << 28  # bytes of states per transfer to the host
_SPREAD = 1 << 14  # states that a host thread unpacks at a time
_MANY_COLORS = 64  # launches per sweep that are too many
_WALKERS = 1 << 14  # threads with chains of their own that keep a device busy
_FEW_WORDS = 1 << 14  # words per color below which threads are too few
_LARGE = 1 << 24  # bytes of values above which launch overhead is negligible
_HUGE = 1 << 26  # bytes of values above which few sweeps are buffered before counting


class Adding(NamedTuple):
    """Partition of the energies of some chains over threads."""

    firsts: NDArray[np.int64]  # the first chain of each group
    width: int  # chains per group: one, or all of a word
    columns: NDArray[np.int64]  # column of each chain, among those of all groups

    @property
    def parts(self) -> int:
        """Number of threads per group."""
        return -(-_ADDING // max(len(self.firsts), 1))

    @property
    def bytes(self) -> int:
        """Number of bytes of the partial sums."""
        return 8 * self.parts * self.width * len(self.firsts)


def adding(chains: NDArray[np.int64]) -> Adding:
    """Group chains, given in order: one per group, or all of a word if many are needed."""
    words = WORD * np.unique(chains // WORD)
    if len(chains) < _CROWDED * len(words):
        return Adding(chains, 1, np.arange(len(chains)))
    which = np.searchsorted(words, chains, side="right") - 1
    return Adding(words, WORD, which * WORD + chains - words[which])


class CudaBits(CudaWords):
    """Spins, 32 chains per word: x[place, word] on the device. See `cuda_bits`."""

    kernels_name = "cuda_bits"

    def __init__(self, plan: Plan, data: SpinColors | SpinTailColors) -> None:
        self.words = -(-plan.chains // WORD)
        self.places = np.full(len(plan.graph), -1, dtype=np.int32)
        self.places[data.variable] = np.arange(len(data.variable), dtype=np.int32)
        super().__init__(plan, data)

    def _chain_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chains, and of arrays that exist once."""
        planes = (self.own.PLANES if self.marginals else 0) + self._snapshots()
        size = self.word.itemsize * len(self.data.variable) * self.words * (2 + planes)
        if any(measure.sums is None for measure in self.plan.measures):
            size += self.chains * len(self.plan.graph)
        table = 4 * self.own.PATTERNS * len(self.data.variable) if self._by_patterns() else 0
        return size, table

    def _snapshots(self) -> int:
        """Return how many sweeps' values are buffered to count marginals or observables together.

        Without marginals, large states are counted in place.
        """
        size = self.word.itemsize * len(self.data.variable) * self.words
        if self.marginals:
            return int(self.own.FEW_WAITING if size > _HUGE else self.own.WAITING)
        sums = (measure.sums for measure in self.plan.measures)
        counted = any(one is not None and one.terms is not None for one in sums)
        return 0 if size > _LARGE or not counted else int(self.own.WAITING)

    @property
    def walking(self) -> bool:
        """Whether each thread iterates over all colors.

        It does if the chains alone fill the device and a single color does not.
        """
        if isinstance(self.data, SpinTailColors):
            return True
        colors = len(self.data.block_ends) - 1
        scarce = len(self.data.variable) * self.words < _FEW_WORDS * colors
        return scarce and (2 * self.words >= _WALKERS or colors > _MANY_COLORS)

    @property
    def word(self) -> np.dtype[Any]:
        """Word type of the states: bytes suffice for few chains."""
        few = self.chains <= 2 * self.own.QUAD and not self.walking
        return np.dtype(np.uint8 if few else np.uint32)

    def _by_patterns(self) -> bool:
        """Return whether spins have few enough neighbors for tables of thresholds."""
        many = self.chains > 2 * self.own.QUAD and not isinstance(self.data, SpinTailColors)
        return bool(many and self.data.blocks["degree"].max(initial=0) <= self.own.MOST_JOINED)

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Place initial states [chain, variable] on the device, or draw them there."""
        self._place_model()
        m = len(self.data.variable)
        self.x = self.cuda.device_array((m, self.words), self.word)
        flat = self.x.reshape(self.x.size)
        threads = self.own.THREADS
        self.count = configure(self.own.count_bits, self.x.size, threads)
        self.last_word = 0xFFFFFFFF >> (WORD * self.words - self.chains)
        planes = self.own.PLANES if self.marginals else 0
        self.planes = self.cuda.to_device(np.zeros((planes, m * self.words), self.word))
        self.waiting = flat.reshape(1, flat.size)
        self.snapshots = []
        if self._snapshots():
            self.waiting = self.cuda.device_array((self._snapshots(), m * self.words), self.word)
            self.snapshots = [self.waiting[k] for k in range(len(self.waiting))]
        self.changed = self.cuda.to_device(np.zeros(self.slots, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(self.slots, np.int64))
        self._place_changes(flat, self.words, self.last_word)
        self.counting: dict[tuple[int, int, int], Again] = {}
        self.nothing = self.copy = self.cuda.device_array(0, self.word)
        self.launches = self._parts_of_a_sweep()
        self.noted, self.held_back = 0, 0  # since the planes were cleared
        self.marked: list[int] = []  # snapshots that are records
        if states is None:
            first = configure(self.own.first_bits, self.x.size, threads)
            first(self.spins[1], *self.key, self.x)
        else:
            self._write(states)
        shape = (len(self.plan.graph) if self.observing.of_states else 0, self.chains)
        self.device_chains = SimpleNamespace(x=self.cuda.device_array(shape, self.kind))
        self._place_records()
        self._place_energies()

    def set_weights(self, data: Any) -> None:
        """Send new weights, and rebuild launches whose thresholds depend on them."""
        self.data = data
        self._place_spins()
        self.launches = self._parts_of_a_sweep()

    def _place_spins(self) -> None:
        tails = isinstance(self.data, SpinTailColors)
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
        """Return one launch per color, or one for all colors."""
        kind, ends, own = self.data.base.dtype.type, self.data.block_ends, self.own
        if self.walking:
            tails, halves = isinstance(self.data, SpinTailColors), self.x.view(np.uint16)
            kernel = own.walk_with_tails(kind) if tails else own.walk(kind)
            walk, more = configure(kernel, 2 * self.words, own.WALKING), [self.drawn] * tails
            return [self._again(walk, tuple(self.spins), 1, halves, *more)]
        columns = 1 if self.chains == 1 else own.QUAD if self.chains <= 2 * own.QUAD else own.HALF
        kernel, several = own.sweep_color(kind, columns), self.words > 1
        arrays = self.spins
        if self._by_patterns():
            kernel, arrays = own.sweep_patterns, [*self.spins, self._thresholds(kind)]

        def launch(first: int, end: int) -> Launch:
            if several:
                update = self._by_blocks(kernel, end - first, self.words)
            else:
                update = configure(kernel, BLOCK_SIZE * (end - first), own.THREADS)
            where = (*arrays, first, end)
            return self._again(update, where, self.chains, self.x, lambda: self.copy)

        return [launch(first, end) for first, end in pairwise(ends.tolist()) if end > first]

    def mark(self, counting: Any, first: Any, sizes: Any, marks: Any) -> None:
        """Mark spins, which are already stored as bits."""
        run = configure(counting.mark_bits, self.x.size, counting.THREADS)
        run(self.x, self.spins[1], first, self.last_word, marks)

    def _thresholds(self, kind: Any) -> Any:
        """Compute the table of `sweep_patterns` on the device."""
        table = self.cuda.device_array(self.own.PATTERNS * len(self.data.variable), np.uint32)
        threads = self.own.THREADS
        find = configure(self.own.find_thresholds(kind), len(self.data.blocks) * threads, threads)
        blocks, _, base, _, weight = self.spins
        find(blocks, base, weight, table)
        return table

    def _count(self, counts: Any) -> None:
        """Do nothing: every sweep is counted when it is made."""

    def _launch(self, updates: int) -> None:
        """Make updates of every chain, and buffer the values that are counted later."""
        for _ in range(updates // self.unit):
            keeping = self.recording and self._keeps_sweep()
            self.copy = self._next_snapshot() if keeping else self.nothing
            self._sweep_once()
            if keeping:
                self._keep_copy()
                self.held_back += 1

    def _keep_copy(self) -> None:
        """Copy the values of a sweep if its kernel has not done so."""
        if self.walking:
            self.copy.copy_to_device(self.flat)

    def _keeps_sweep(self) -> bool:
        """Return whether the next sweep's values are buffered, to be counted with others."""
        if self.marginals:
            return True
        return bool(self.snapshots) and (self._clock + self.unit) % self.plan.thin == 0

    def _next_snapshot(self) -> Any:
        """Return the buffer of the next snapshot; if all are full, count them first."""
        if self.held_back == len(self.snapshots):
            self._count_waiting()
        if self.noted + self.held_back == self.own.MOST_COUNTED:
            self._flush_counts()
        return self.snapshots[self.held_back]

    def _count_waiting(self) -> None:
        """Count the buffered values."""
        self._count_marked()
        if self.marginals:
            self.count(self.waiting, self.held_back, self.planes)
            self.noted += self.held_back
        self.held_back = 0

    def _flush_counts(self) -> None:
        """Add the buffered values and the planes to the counts."""
        if self.held_back:
            self._count_waiting()
        if self.noted:
            m = len(self.data.variable)
            planes, threads = self.planes.reshape(self.own.PLANES, m, self.words), self.own.THREADS
            flush = configure(self.own.flush_counts, (m, self.kept), threads)
            flush(
                planes,
                self.spins[1],
                self.device_first,
                self.device_ends,
                self.noted,
                self.counts,
            )
            clear = configure(self.own.clear, self.planes.size, threads)
            clear(self.planes.reshape(self.planes.size))
        self.noted = 0

    def _energy_bytes(self) -> int:
        self.adding = adding(row_ends(self.plan)[:-1] if self.energy else np.empty(0, np.int64))
        return self.adding.bytes

    def _parts_bytes(self) -> int:
        every = np.arange(self.chains if self.observing.of_energy else 0)
        self.adding_all = adding(every)
        return self.adding_all.bytes

    def _place_energies(self) -> None:
        """Place the arrays of energies on the device."""
        if not self.energy and not self.observing.of_energy:
            return
        found = self._energy_parts()
        arrays = (found.pair, found.weight, found.field if found.field.any() else np.empty(0))
        self.energy_arrays = [to_device(self.cuda, array) for array in arrays]
        self.constant = found.constant
        if self.energy:
            self.device_energy = self.cuda.to_device(np.zeros((self.room, self.kept)))
            self.keep_energies = self._energies_to(self.adding, self.device_energy)
        if self.observing.of_energy:
            every = self.observing.energies.reshape(self.observing.room, self.chains)
            self.observe_energies = self._energies_to(self.adding_all, every)

    def _energy_parts(self) -> SpinEnergy:
        """Return pairs and fields of the energy, by place."""
        return spin_energy(self.plan.graph, self.data.variable)

    def _energies_to(self, how: Adding, energy: Any) -> Callable[[int], None]:
        """Return a function that writes the energies of some chains to energy[record, chain]."""
        firsts, columns = (to_device(self.cuda, array) for array in (how.firsts, how.columns))
        parts = self.cuda.device_array((how.parts, len(how.firsts), how.width), np.float64)
        threads, items = self.own.THREADS, how.parts * len(how.firsts)
        add = configure(self.own.part_energies(how.width), items, threads)
        total = configure(self.own.sum_energies, len(how.columns) * threads, threads)

        adding = Again(add, (*self.energy_arrays, self.x, firsts, parts), None)
        summing = Again(total, (parts, columns, self.constant), (energy,))

        def keep(record: int) -> None:
            adding()
            summing(record)

        return keep

    def _place_sums(self) -> None:
        """Place the arrays of sums that observables need, for spins as bits."""
        terms, own = self.observing.summed.terms, self.summing
        together = max(self._snapshots(), 1)
        sizes = (own.THREADS, own.EIGHT, own.MOST_EIGHTS, together)
        pieces, *self.tiles = share(terms.ends, self.words, *sizes)
        self.blocks_of_sums = len(pieces) * self.tiles[0]
        places = signed_places(terms, self.data.variable)
        self.terms, self.pieces = (to_device(self.cuda, array) for array in (places, pieces))

    def _observe(self) -> None:
        """Measure every chain; observables that are not sums read one byte per value."""
        if self.observing.of_states:
            items = (self.chains, len(self.places))
            spread = configure(self.own.spread_bits, items, self.own.THREADS)
            spread(self.x, self.device_places, self.device_fixed, self.device_chains.x)
        super()._observe()

    def _keep_sums(self) -> None:
        """Mark the last snapshot to count it with others, or count the present values."""
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
        """Count the marked snapshots for observables."""
        rows, self.marked = self.marked, []
        if rows:
            step = rows[-1] - rows[0]
            step = step // (len(rows) - 1) if step else 1  # sweeps per record
            which = (rows[0], step, len(rows))
            if which not in self.counting:
                threads = self.summing.THREADS
                items = self.blocks_of_sums * len(rows) * threads
                count = configure(self.summing.count_words, items, threads)
                arrays = (self.terms, self.pieces, self.words, *self.tiles, self.chains)
                before = (self.waiting, rows[0], step, *arrays)
                self.counting[which] = Again(count, before, (self.observing.sums,))
            again = self.counting[which]
            again(self.first_marked)

    def _take_observed(self) -> None:
        self._count_marked()
        super()._take_observed()

    def _keep_states(self, held: Any, buffer: Any) -> None:
        keep = configure(self.own.keep_bits, (self.kept, len(held)), (WARP, 4))
        keep(
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
            place = self.model.first[clamped] + np.maximum(self.plan.graph.evidence[clamped], 0)
            counts[:, place] = (np.diff(row_ends(self.plan)) * self._counted[0])[:, None]
        return counts

    def _read(self) -> NDArray[Any]:
        """Return all states on the host: [chain, variable]."""
        return self._unpacked(self.x)

    def _unpacked(self, words: Any) -> NDArray[Any]:
        """Copy words[place, word] to the host, and unpack them there: [chain, variable]."""
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
                read = configure(self.own.read_bits, (width, rows), self.own.THREADS)
                read(words, self.device_places, self.device_fixed, first, device)
                packed = device.copy_to_host()
                for k in range(0, rows, _SPREAD):
                    spreading.append(pool.submit(spread, first + k, packed[k : k + _SPREAD]))
            for piece in spreading:
                piece.result()  # raises the exception of the thread
        return states

    def _write(self, states: NDArray[Any]) -> None:
        """Copy states [chain, variable] to the device."""
        packed = np.packbits(states[:, self.data.variable].T, axis=1, bitorder="little")
        words = np.zeros((len(packed), 4 * self.words), np.uint8)
        words[:, : packed.shape[1]] = packed
        if self.word.itemsize == 1:
            words = words[:, :1]
        self.x.copy_to_device(np.ascontiguousarray(words).view(self.word))
