"""Spins by colours on a GPU: a group of all chains, 32 of them in a word. See `cuda_bits`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import CHANGES
from minigibbs.kernels.philox import key_of
from minigibbs.running.backends.cuda import (
    LANES,
    CudaGroup,
    blocks_along,
    load,
    row_ends,
    to_device,
)
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spins import SpinColours
from minigibbs.samplers.gibbs.sampler import sum_unary

_NOTING = 8448  # blocks of threads that note what has changed, at the most
_SLOTS = 4096  # where they add up how much
_ADDING = 1 << 17  # threads that add up energies
_MOST_RECORDS = 4096  # that wait on the device
_BUFFER_BYTES = 1 << 28
_READ_BYTES = 1 << 28  # of states on their way to the host
_WALKERS = 1 << 14  # threads that keep a device busy, each with chains of its own
_FEW_PLACES = 1 << 14  # and as many words to a colour, of which one thread each updates one


class CudaBits(CudaGroup):
    """All chains of a plan; x[place, word] on the device."""

    def __init__(self, plan: Plan, data: SpinColours) -> None:
        self.bits = load("cuda_bits")
        self.words = -(-plan.chains // self.bits.WORD)
        self.key = [int(word) for word in key_of(plan.seed)]
        self.places = np.full(len(plan.graph), -1, dtype=np.int32)
        self.places[data.variable] = np.arange(len(data.variable), dtype=np.int32)
        super().__init__(plan, data)
        self.every = self.unit
        self._sweep = 0

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Updates of a sweep."""
        return max(len(self.plan.order), 1)

    def _chain_bytes(self) -> tuple[int, int]:
        """Bytes of all chains, and of what there is once."""
        planes = self.bits.PLANES if "marginals" in self.plan.kept else 0
        size = 4 * len(self.data.variable) * self.words * (2 + planes)
        return size, 0

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Begin: with first states [chain, variable], or with random ones made on the device."""
        self._place_model()
        m = len(self.data.variable)
        self.x = self.cuda.device_array((m, self.words), np.uint32)
        self.before = self.cuda.device_array(m * self.words, np.uint32)
        planes = self.bits.PLANES if self.marginals else 0
        self.planes = self.cuda.to_device(np.zeros((planes, m * self.words), np.uint32))
        self.changed = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        self.noted = 0  # counts since the planes were empty
        if states is None:
            first = self.bits.first_bits[self._blocks(m * self.words), self.bits.THREADS]
            first(self.spins[1], *self.key, self.x)
        else:
            self._write(states)
        self._place_records()
        self._place_energies()
        self._settle()

    def _place_model(self) -> None:
        spins = tuple(getattr(self.data, name) for name in self.bits.Spins._fields)
        fixed = np.maximum(self.plan.graph.evidence, 0).astype(self.kind)
        self.spins = [to_device(self.cuda, part) for part in spins]
        self.device_model = to_device(self.cuda, self.model)
        self.device_places = to_device(self.cuda, self.places)
        self.device_fixed = to_device(self.cuda, fixed)
        self.device_ends = to_device(self.cuda, row_ends(self.plan))
        self.launches = self._launches()

    def _launches(self) -> list[tuple[Any, int]]:
        """Of a sweep: a kernel for each colour, ready to be called, and its first block."""
        kind, chains = self.data.base.dtype.type, self.chains
        lanes = 1 if chains == 1 else self.bits.QUAD if chains <= 8 else self.bits.HALF
        kernel, ends = self.bits.sweep_colour(kind, lanes), self.data.block_ends
        threads = BLOCK_SIZE if self.words == 1 else self.bits.THREADS
        across = -(-BLOCK_SIZE * self.words // threads)
        self.walks = 2 * self.words >= _WALKERS and len(
            self.data.variable
        ) * self.words < _FEW_PLACES * (len(ends) - 1)
        return [
            (kernel[(end - begin, across), threads], begin)
            for begin, end in pairwise(ends.tolist())
            if end > begin
        ]

    def _blocks(self, items: int) -> int:
        return -(-items // int(self.bits.THREADS))

    def compile(self) -> None:
        """Compile the kernel that advances."""
        if self.walks:
            self._launch(0)
        for kernel, first in self.launches[:1]:
            kernel(*self.spins, first, *self.key, 0, 0, self.x)
        self.cuda.synchronize()

    def _launch(self, updates: int) -> None:
        """Make so many updates of every chain; returns before they are made."""
        sweeps = updates // self.unit
        if self.walks:
            kernel = self.bits.walk(self.data.base.dtype.type)
            halves = self.x.view(np.uint16)
            threads = self.bits.WALKING
            kernel[-(-halves.shape[1] // threads), threads](
                *self.spins, *self.key, self._sweep, sweeps, halves
            )
        else:
            for sweep in range(self._sweep, self._sweep + sweeps):
                for kernel, first in self.launches:
                    kernel(*self.spins, first, *self.key, sweep, self.chains, self.x)
        self._sweep += sweeps

    def advance(self, updates: int, recording: bool) -> None:
        """Make so many updates of every chain."""
        super().advance(updates, recording)
        if not recording:
            self._settle()

    def _settle(self) -> None:
        """Compare with the present states from now on."""
        self.before.copy_to_device(self.x.reshape(self.x.size))

    def _count(self, counts: Any) -> None:
        flat = self.x.reshape(self.x.size)
        blocks = min(_NOTING, self._blocks(self.x.size))
        note = self.bits.note_bits[blocks, self.bits.THREADS]
        note(flat, self.words, self._last_word(), self.before, self.planes, self.changed)
        self.noted += 1
        if self.noted == self.bits.MOST_COUNTED:
            self._flush_counts()

    def _last_word(self) -> int:
        """The bits of each place's last word that are chains."""
        unused: int = self.bits.WORD * self.words - self.chains
        return 0xFFFFFFFF >> unused

    def _flush_counts(self) -> None:
        """Add what the planes hold to the counts."""
        if self.noted and self.marginals:
            m = len(self.data.variable)
            grid = (self._blocks(m), blocks_along(self.kept, 1))
            planes = self.planes.reshape(self.bits.PLANES, m, self.words)
            flush = self.bits.flush_counts[grid, (self.bits.THREADS, 1)]
            flush(
                planes,
                self.spins[1],
                self.device_first,
                self.device_ends,
                self.noted,
                self.counts,
            )
            self.bits.clear[self._blocks(self.planes.size), self.bits.THREADS](
                self.planes.reshape(self.planes.size)
            )
        self.noted = 0

    def _plan_records(self) -> int:
        """Choose what is held of the kept chains; returns the bytes that all records take."""
        self.held = [self.plan.drawn] if self.draws else []
        record = 8 * self.kept + self.kind.itemsize * self.kept * len(self.plan.drawn)
        room = max(min(_BUFFER_BYTES // record, self.plan.records, _MOST_RECORDS), 1)
        self.room = room if self.draws or self.energy else 0
        heads = np.unique(row_ends(self.plan)[:-1] // self.bits.WORD)
        self.head_words = heads if self.energy else heads[:0]
        self.parts = -(-_ADDING // max(len(heads), 1))
        adding = 8 * self.parts * self.bits.WORD * len(self.head_words)
        values = self.plan.values if self.marginals else 0
        return int(self.room * record + adding + 8 * self.kept * (values + 1))

    def _place_energies(self) -> None:
        """Put what energies are made of on the device."""
        if not self.energy:
            return
        first, second, weight, field, constant = pair_energies(self.plan.graph, self.places)
        self.energy_arrays = [to_device(self.cuda, a) for a in (first, second, weight, field)]
        self.constant = constant
        self.device_words = to_device(self.cuda, self.head_words)
        shape = (self.parts, len(self.head_words), self.bits.WORD)
        self.part_sums = self.cuda.device_array(shape, np.float64)
        self.device_energy = self.cuda.device_array((self.room, self.kept), np.float64)

    def _keep_energies(self) -> None:
        if self.energy:
            grid = (self._blocks(self.parts), len(self.head_words))
            self.bits.part_energies[grid, self.bits.THREADS](
                *self.energy_arrays, self.x, self.device_words, self.part_sums
            )
            self.bits.sum_energies[self.kept, self.bits.THREADS](
                self.part_sums,
                self.device_heads,
                self.device_words,
                self.filled,
                self.device_energy,
            )

    def _kept_energies(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.device_energy[: self.filled].copy_to_host()
        return found + self.constant

    def _keep_states(self, held: Any, buffer: Any) -> None:
        grid = (-(-self.kept // LANES), blocks_along(len(held), 4))
        self.bits.keep_bits[grid, (LANES, 4)](
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
        """All states on the host: [chain, variable]."""
        states = np.empty((self.chains, len(self.places)), self.kind)
        step = max(_READ_BYTES // max(states[:1].nbytes, 1), 1)
        for first in range(0, self.chains, step):
            piece = states[first : first + step]
            device = self.cuda.device_array(piece.shape, self.kind)
            grid = (self._blocks(piece.shape[1]), blocks_along(len(piece), 1))
            self.bits.read_bits[grid, (self.bits.THREADS, 1)](
                self.x, self.device_places, self.device_fixed, first, device
            )
            device.copy_to_host(piece)
        return states

    def _write(self, states: NDArray[Any]) -> None:
        """Put states [chain, variable] on the device."""
        packed = np.packbits(states[:, self.data.variable].T, axis=1, bitorder="little")
        words = np.zeros((len(packed), 4 * self.words), np.uint8)
        words[:, : packed.shape[1]] = packed
        self.x.copy_to_device(np.ascontiguousarray(words).view(np.uint32))

    def state(self) -> State:
        """Copies of the device's arrays."""
        self._flush()
        tally = np.zeros((1, CHANGES + 1), np.int64)
        tally[0, CHANGES] = self.changed.copy_to_host().sum()
        return {
            "x": self._read(),
            "tally": tally,
            "carried": np.empty((self.chains, 0)),
            "counted": self._counted.copy(),
            "counts": self._host_counts(),
            "clock": np.array([self._clock]),
            "warmed": np.array([self.warmed]),
        }

    def restore(self, state: State) -> None:
        """Take up a state."""
        self._write(state["x"])
        self._settle()
        changed = np.zeros(_SLOTS, np.int64)
        changed[0] = state["tally"][0, CHANGES]
        self.changed.copy_to_device(changed)
        self._counted[:] = state["counted"]
        self.counts = self.cuda.to_device(np.ascontiguousarray(state["counts"]))
        self._clock, self.warmed = int(state["clock"][0]), int(state["warmed"][0])
        self._sweep = (self._clock + self.warmed) // self.unit
        self.filled, self.flushed = 0, self.records


def pair_energies(
    graph: FactorGraph, places: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], float]:
    """What energies are made of, by place: pairs (two places, a weight), fields, a constant.

    A pair adds its weight where both have the same value, a place its field where it is 1.
    """
    model, evidence, (i, j) = graph.packed, graph.evidence, graph.packed.pair.T
    free, weight = evidence < 0, model.pair_weight
    both = free[i] & free[j]
    unary = sum_unary(model)
    field = (unary[1::2] - unary[::2]) if len(unary) else np.zeros(len(evidence))
    for own, other in ((i, j), (j, i)):
        half = free[own] & ~free[other]
        signed = np.where(evidence[other[half]] == 1, weight[half], -weight[half])
        field = field + np.bincount(own[half], signed, minlength=len(field))
    zero = np.maximum(evidence, 0).astype(graph.state_type)
    first, second = places[i[both]], places[j[both]]
    constant = float(graph.energy(zero)) - graph.offset - float(weight[both].sum())
    order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
    return first, second, weight[both].copy(), field[order], constant
