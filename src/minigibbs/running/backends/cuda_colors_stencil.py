"""Chromatic scans of spins on a lattice on a GPU: 32 sites per word. See `cuda_stencil`."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.graph.factors.stencil import Stencil
from minigibbs.running.backends.cuda_colors import Launch
from minigibbs.running.backends.cuda_group import row_ends
from minigibbs.running.backends.cuda_words import NOTED, CudaWords
from minigibbs.running.backends.device.access import load, to_device
from minigibbs.running.backends.device.launch import Again, blocks_at_once
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.samplers.chromatic.lattice import BITS, packed
from minigibbs.samplers.chromatic.stencil_bits import StencilBits

_ADDING = 1 << 15  # threads that count the pairs of a chain
_READ_BYTES = 1 << 28  # bytes of states per transfer to or from the host
_MOST_WORDS = 2**31 - 1  # most words of a chain
_NARROW = 1 << 32  # most sites whose numbers have 32 bits
_TOGETHER = 1 << 18  # words of a color, of all chains, up to which a launch makes many sweeps
_MOST_SWEEPS = 128  # of a launch


class CudaStencil(CudaWords):
    """Spins of a lattice, 32 sites of a color per word: x[chain and unit] on the device."""

    kernels_name = "cuda_stencil"
    counts_ones = True
    data: StencilBits

    def __init__(self, plan: Plan, data: StencilBits) -> None:
        lattice = data.lattice
        self.units = lattice.colors * lattice.units
        if self.units > _MOST_WORDS:
            raise TooLargeError(
                f"a lattice of {self.units:,} words of sites does not fit a GPU, which numbers at "
                f"most {_MOST_WORDS:,}; make the last side a longer one"
            )
        super().__init__(plan, data)

    def _packed_model(self) -> Any:
        """Return None: pairs are never expanded."""
        return None

    def _chain_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chains, and of arrays that exist once."""
        planes = load("cuda_bits").PLANES if self.marginals else 0
        size = 4 * self.chains * self.units * (2 + planes)
        spread = self.chains * len(self.plan.graph) if self._spreads else 0
        return size + spread, self._step() * len(self.plan.graph)

    def _energy_bytes(self) -> int:
        return 8 * (self.kept + self.chains) * (len(self.data.strength) + 1)

    @property
    def _spreads(self) -> bool:
        """Whether records need states as one byte per site."""
        several = (measure.sums for measure in self.plan.measures)
        bits = (sums is not None and (sums.terms is None or sums.ones) for sums in several)
        return self.draws or not all(bits)

    def _step(self) -> int:
        """Return how many chains' states are copied to or from the host at a time."""
        return min(max(_READ_BYTES // len(self.plan.graph), 1), self.chains)

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Place initial states [chain, variable] on the device, or draw them there."""
        self._place_lattice()
        total, bits = self.chains * self.units, load("cuda_bits")
        self.x = self.cuda.device_array(total, np.uint32)
        self.changed = self.cuda.to_device(np.zeros(self.slots, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(self.slots, np.int64))
        self._place_changes(self.x, 1, 0xFFFFFFFF)
        planes = bits.PLANES if self.marginals else 0
        self.planes = self.cuda.to_device(np.zeros((planes, total), np.uint32))
        count = configure(bits.count_bits, total, self.own.THREADS)
        self.count = Again(count, (self.x.reshape(1, total), 1, self.planes), None)
        self.noted, self.most_noted = 0, bits.MOST_COUNTED  # since the planes were cleared
        shape = (len(self.plan.graph) if self._spreads else 0, self.chains)
        self.device_chains = SimpleNamespace(x=self.cuda.device_array(shape, self.kind))
        self._spread_at = -1
        self.launches = self._parts_of_a_sweep()
        self.together = self._many_sweeps()
        self.within = self.marginals and self.together is not None
        if states is None:
            self._place_first_states()
        else:
            self._write(states)
        self._place_records()
        self._place_energies()

    def _place_lattice(self) -> None:
        data, lattice = self.data, self.data.lattice
        self.pattern = pattern_of(self.own, data)
        sides = lattice.shape.astype(np.int32)
        strides = np.cumprod(np.concatenate([[1], lattice.shape[:-1][::-1]]))[::-1][1:]
        marks = data.fine if self.pattern.fine else data.coarse
        halves = (marks >> np.uint64(32), marks & np.uint64(0xFFFFFFFF))
        self.sides, self.threshold, self.sign, self.none, self.free = (
            to_device(self.cuda, array)
            for array in (
                (sides, strides.astype(np.int32)),
                np.concatenate(halves).astype(np.uint32),
                data.sign.reshape(-1),
                data.absent.reshape(-1),
                data.free,
            )
        )
        shape, factor = to_device(self.cuda, (lattice.shape, lattice.factor))
        self.lattice = (shape, factor, lattice.colors, lattice.rows, lattice.words)

    def _place_first_states(self) -> None:
        graph, fixed = self.plan.graph, np.empty(0, np.uint32)
        if len(self.data.free):
            fixed = packed(self.data.lattice, graph.evidence > 0)
        run = self._by_unit(self.own.first_words, self.chains)
        run(*self.lattice, *self.key, self.free, to_device(self.cuda, fixed), self.chains, self.x)

    def _by_unit(self, kernel: Any, rows: int, units: int | None = None) -> Any:
        """Configure a kernel with one thread per unit and row, which strides along the rows."""
        units = self.units if units is None else units
        return configure(kernel, (units, rows), self._block(units))

    def _block(self, units: int) -> tuple[int, int]:
        """Return the threads of a block: along units, and along rows."""
        across = min(1 << max(units - 1, 0).bit_length(), self.own.THREADS)
        return across, self.own.THREADS // across

    def _place_first(self) -> None:
        """Do nothing: every variable has two values."""

    def _parts_of_a_sweep(self) -> list[Launch]:
        """Return one launch per color."""
        lattice = self.data.lattice
        run = self._by_unit(self.own.sweep_color(self.pattern), self.chains, lattice.units)
        arrays = (*self.sides, self.threshold, self.sign, self.none, self.free)
        size = (lattice.rows, lattice.words)
        return [
            self._again(run, (*arrays, *size, color), self.chains, self.x)
            for color in range(lattice.colors)
        ]

    def _many_sweeps(self) -> Callable[[int, bool], None] | None:
        """Return a function that makes some sweeps in one launch; None if colors are large.

        The sweep of a small color takes less time than its launch.
        """
        lattice = self.data.lattice
        if lattice.units * self.chains > _TOGETHER:
            return None
        kernel = self.own.sweep_together(self.pattern)
        arrays = (*self.sides, self.threshold, self.sign, self.none, self.free)
        before = (*arrays, lattice.rows, lattice.words, NOTED, *self.key)
        after = (self.chains, self.planes, self.changed, self.x)
        shape = self._block(lattice.units)
        most = blocks_at_once(kernel, shape, (*before, 0, 0, 0, *after))
        if not most:
            return None
        run = configure(kernel, (lattice.units, self.chains), shape, most=most)
        ready: dict[tuple[int, bool], Again] = {}

        def sweep(sweeps: int, counting: bool) -> None:
            key = (sweeps, counting)
            if key not in ready:
                ready[key] = Again(run, before, (sweeps, int(counting), *after))
            ready[key](self._sweep)
            self._sweep += sweeps

        return sweep

    def _launch(self, updates: int) -> None:
        """Make this number of updates of every chain; return before they are done."""
        left, counting = updates // self.unit, self.within and self.recording
        while left and self.together is not None:
            some = min(left, _MOST_SWEEPS, self.most_noted - self.noted if counting else left)
            self.together(some, counting)
            left -= some
            if counting:
                self._note_counts(some)
        for _ in range(left):
            self._sweep_once()

    def _count(self, counts: Any) -> None:
        """Count the present values in bit-sliced counters."""
        self.count()
        self._note_counts(1)

    def _note_counts(self, sweeps: int) -> None:
        """Empty the counters before they overflow."""
        self.noted += sweeps
        if self.noted == self.most_noted:
            self._flush_counts()

    def _flush_counts(self) -> None:
        """Add the bit-sliced counters to the counts."""
        if self.noted:
            ends = to_device(self.cuda, row_ends(self.plan))
            flush = self._by_unit(self.own.flush_planes, self.kept)
            flush(*self.lattice, self.planes, ends, self.noted, self.counts)
        self.noted = 0

    def _host_counts(self) -> NDArray[np.int64]:
        self._flush_counts()
        return super()._host_counts()

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._flush_counts()  # restored counts replace these
        super().restore(state)

    def _evaluations(self, draws: int) -> int:
        """Return the number of neighbors of all free sites that were evaluated."""
        degree = len(self.data.lattice.offset)
        return self._sweep * self.chains * degree * self.plan.graph.free

    def _place_energies(self) -> None:
        """Place the arrays of energies on the device."""
        if not self.energy and not self.observing.of_energy:
            return
        data, stencil = self.data, self.plan.graph.lattice
        assert stencil is not None
        self.constant = data.constant + data.rest
        arrays = (pair_counts(stencil), data.strength)
        self.energy_arrays = [to_device(self.cuda, array) for array in arrays]
        if self.energy:
            self.device_energy = self.cuda.to_device(np.zeros((self.room, self.kept)))
            self.keep_energies = self._energies_to(row_ends(self.plan)[:-1], self.device_energy)
        if self.observing.of_energy:
            every = self.observing.energies.reshape(self.observing.room, self.chains)
            self.observe_energies = self._energies_to(np.arange(self.chains), every)

    def _energies_to(self, chains: NDArray[np.int64], energy: Any) -> Callable[[int], None]:
        """Return a function that writes the energies of some chains to energy[record, chain]."""
        lattice, which = self.data.lattice, to_device(self.cuda, chains)
        shape = (len(chains), len(self.data.strength) + 1)
        sums = self.cuda.to_device(np.zeros(shape, np.int64))
        count = self._by_unit(
            self.own.count_pairs(self.pattern), len(chains), min(self.units, _ADDING)
        )
        add = configure(self.own.add_energies, len(chains), self.own.THREADS)
        arrays = (*self.sides, self.sign, self.none, self.free, lattice.rows, lattice.words)
        counting = Again(count, (*arrays, self.x, which, sums), None)
        adding = Again(add, (sums, *self.energy_arrays, self.constant, self.data.field), (energy,))

        def keep(record: int) -> None:
            counting()
            adding(record)

        return keep

    def _keep_sums(self) -> None:
        """Store the sums of which observables are functions."""
        record = self.observing.filled
        if self.count_sums:
            self.count_sums(record)
        if self.observing.of_energy:
            self.observe_energies(record)
        if self.observing.of_ones:
            count = self._by_unit(self.own.count_ones, self.chains, min(self.units, _ADDING))
            count(self.x, self.units, record, self.observing.ones)

    def _observe(self) -> None:
        self._spread()
        super()._observe()

    def _keep_states(self, held: Any, buffer: Any) -> None:
        self._spread()
        super()._keep_states(held, buffer)

    def _spread(self) -> None:
        """Copy all states to bytes [variable, chain], unless that is already done."""
        if self._spread_at != self._sweep and self._spreads:
            states = self.device_chains.x
            self._unpack(0, self.chains, (1, self.chains), states.reshape(states.size))
            self._spread_at = self._sweep

    def _unpack(self, first: int, chains: int, steps: tuple[int, int], states: Any) -> None:
        run = self._by_unit(self.own.unpack_words, chains)
        run(*self.lattice, self.x, first, chains, *steps, states)

    def _pieces_of_states(self) -> list[tuple[int, int]]:
        """Return the first chain and the number of chains of each piece."""
        step = self._step()
        return [(k, min(step, self.chains - k)) for k in range(0, self.chains, step)]

    def _read(self) -> NDArray[Any]:
        """Return all states on the host: [chain, variable]."""
        n = len(self.plan.graph)
        states = np.empty((self.chains, n), self.kind)
        for first, rows in self._pieces_of_states():
            device = self.cuda.device_array(rows * n, self.kind)
            self._unpack(first, rows, (n, 1), device)
            device.copy_to_host(states[first : first + rows].reshape(-1))
        return states

    def _write(self, states: NDArray[Any]) -> None:
        """Copy states [chain, variable] to the device."""
        for first, rows in self._pieces_of_states():
            piece = np.ascontiguousarray(states[first : first + rows])
            pack = self._by_unit(self.own.pack_words, rows)
            pack(*self.lattice, self.cuda.to_device(piece), first, self.x)
        self._spread_at = -1


def pattern_of(own: Any, data: StencilBits) -> Any:
    """Return the properties of a lattice for which kernels are compiled."""
    lattice = data.lattice
    wraps, sides = (lattice.wraps != 0).tolist(), lattice.shape.tolist()
    offsets = [
        tuple(
            int(math.fmod(d, side)) if w else d
            for d, side, w in zip(one, sides, wraps, strict=True)
        )
        for one in lattice.offset.tolist()
    ]
    opened = any(d and not w for one in offsets for d, w in zip(one, wraps, strict=True))
    fine = opened or len(data.absent) > 0
    return own.Pattern(
        offset=tuple(offsets),
        change=tuple(lattice.change.tolist()),
        factor=tuple(lattice.factor.tolist()),
        wraps=tuple(wraps),
        colors=lattice.colors,
        step=tuple((data.digit if fine else data.step).tolist()),
        levels=len(data.fine if fine else data.coarse),
        whole=wraps[-1] and sides[-1] % (lattice.colors * BITS) == 0,
        fine=fine,
        signed=len(data.sign) > 0,
        absent=len(data.absent) > 0,
        clamped=len(data.free) > 0,
        wide=math.prod(sides) > _NARROW,
    )


def pair_counts(stencil: Stencil) -> NDArray[np.int64]:
    """Count the pairs with a coupling, of each offset that has any."""
    if stencil.uniform:
        counts = [stencil.count(k) for k in np.flatnonzero(stencil.weights).tolist()]
    else:
        several = (
            [int(np.count_nonzero(weight[here])) for here, _ in stencil.pieces(k)]
            for k, weight in enumerate(stencil.weights)
        )
        counts = [sum(own) for own in several if any(own)]
    return np.array(counts, np.int64)
