"""Observables of all chains on a GPU: measured and averaged there, copied to the host in blocks.

Functions of sums over variables are measured by many threads per chain. The device buffers the
sums of many records, then evaluates the functions for all of them. Other observables are
measured by one thread per chain. The compiled side is `cuda_kernels` and `cuda_sums`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.running.backends.device.access import Device, to_device
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.plan import Plan
from minigibbs.running.sums import summed

_ACROSS = 5  # log2 of the most neighboring words or chains of a block of threads
_BLOCKS = 1024  # blocks of threads that count sums, if there is enough work


class Shared(NamedTuple):
    """Partition of sums over blocks of threads."""

    pieces: NDArray[np.int32]  # [piece, 3] first term, end of terms, sum
    tiles: int  # number of tiles of 2 ** shift columns
    shift: int  # 2 ** shift neighboring threads have neighboring columns


def share(
    ends: NDArray[np.int64], columns: int, threads: int, least: int, most: int, records: int = 1
) -> Shared:
    """Partition sums into pieces for blocks of threads that count `records` records at a time.

    Per record, a thread counts a multiple of `least` terms, at most `most` times `least`.
    """
    shift = min((max(columns, 1) - 1).bit_length(), _ACROSS, threads.bit_length() - 1)
    tiles, rows = -(-columns >> shift), threads >> shift
    terms = int(ends[-1]) if len(ends) else 0
    each = min(max(records * terms * tiles // (_BLOCKS * rows * least), 1), most)
    size, begins = each * least * rows, ends - np.diff(ends, prepend=0)
    counts = -(-(ends - begins) // size)
    which = np.repeat(np.arange(len(ends)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = begins[which] + number * size
    pieces = np.stack([first, np.minimum(first + size, ends[which]), which], axis=1)
    return Shared(pieces.astype(np.int32), tiles, shift)


class Observing:
    """Observables of a group's chains, buffered on the device until copied to the host."""

    def __init__(
        self, cuda: Device, plan: Plan, buffer: int, by_parts: bool, ones: bool = False
    ) -> None:
        """Plan the contents of a buffer of `buffer` bytes.

        `by_parts`: whether many threads compute each energy. `ones`: whether the group counts the
        ones of a chain.
        """
        self.cuda, self.plan = cuda, plan
        measures = plan.measures
        self.of_ones = {
            number
            for number, measure in enumerate(measures)
            if ones and measure.sums is not None and measure.sums.ones
        }
        self.summed = summed(plan.graph, measures, self.of_ones) if self.of_ones else plan.summed
        self.of_energy = {
            number
            for number, measure in enumerate(measures)
            if by_parts and measure.sums is not None and measure.sums.terms is None
        }
        self.of_sums = {*self.of_energy, *self.of_ones, *self.summed.own}
        self.of_states = set(range(len(measures))) - self.of_sums
        later = [measures[number].width for number in self.of_sums]
        self.widest = max(later, default=0)
        record = plan.chains * (4 * len(self.summed.constants) + 8 * self.widest)
        record += 8 * plan.chains * (bool(self.of_energy) + bool(self.of_ones))
        record += 8 * plan.rows * plan.width
        self.room = min(max(buffer // max(record, 1), 1), max(plan.records, 1))
        widths = sum(measures[number].width for number in self.of_states)
        self.bytes = self.room * record + 8 * plan.chains * widths
        self.bytes += 20 * len(self.summed.terms.variables)  # at most
        self.filled = 0  # records on the device that were not yet copied to the host

    def place(self, kernels: Any, counting: Any) -> None:
        """Compile observables as kernels, and allocate space for their values."""
        plan, chains, array = self.plan, self.plan.chains, self.cuda.device_array
        self.kernels, self.counting = kernels, counting
        self._measures = []
        first = 0
        for number, measure in enumerate(plan.measures):
            by_state = number in self.of_states or measure.sums is None
            source = measure if by_state or measure.sums is None else measure.sums.of
            make = kernels.observe_kernel if source is measure else counting.sums_kernel
            parameters = to_device(self.cuda, source.parameters or (0,))
            self._measures.append((make(source.function), parameters, first))
            first += measure.width
        self._values = {
            number: array((1, plan.measures[number].width, chains), np.float64)
            for number in self.of_states
        }
        self._later = array(self.room * self.widest * chains, np.float64)
        self.sums = array((self.room, len(self.summed.constants), chains), np.int32)
        self.energies = array((self.room if self.of_energy else 0, 1, chains), np.float64)
        self.ones = array((self.room if self.of_ones else 0, 1, chains), np.int64)
        self._constants = self.cuda.to_device(self.summed.constants)
        self.averages = array((self.room, plan.rows, plan.width), np.float64)
        self._begin()

    def _begin(self) -> None:
        """Reset all sums."""
        if self.sums.size:
            items = (self.plan.chains, self.sums.shape[0] * self.sums.shape[1])
            begin = configure(self.counting.begin_sums, items, self.counting.THREADS)
            begin(self._constants, self.sums)
        if self.ones.size:
            self.ones.copy_to_device(np.zeros(self.ones.shape, np.int64))

    def measure_states(self, x: Any) -> None:
        """Measure observables that are not functions of sums, from states x[variable, chain].

        User functions get signed integers, because differences of unsigned ones would wrap. If
        values do not fit signed integers, there are no such functions (`observables/own.py`).
        """
        threads, signed = self.kernels.THREADS, np.dtype(f"i{x.dtype.itemsize}")
        if self.plan.graph.sizes.max() - 1 <= np.iinfo(signed).max:
            x = x.view(signed)
        for number, values in self._values.items():
            kernel, parameters, first = self._measures[number]
            configure(kernel, self.plan.chains, threads)(parameters, x, values)
            self._average(values, self.filled, first)

    def _average(self, values: Any, place: int, first: int) -> None:
        """Store means over rows of values[record, number, chain]."""
        threads = self.kernels.THREADS
        items = (self.plan.rows * threads, values.shape[1], values.shape[0])
        average = configure(self.kernels.average_rows, items, threads)
        average(values, place, first, self.averages)

    def fetch(self) -> NDArray[np.float64]:
        """Copy the buffered observables to the host: [record, row, number]."""
        records, threads, chains = self.filled, self.counting.THREADS, self.plan.chains
        for number in sorted(self.of_sums):
            kernel, parameters, first = self._measures[number]
            width = self.plan.measures[number].width
            values = self._later[: records * width * chains].reshape(records, width, chains)
            sums = self.energies if number in self.of_energy else self.sums
            sums = self.ones if number in self.of_ones else sums
            run = configure(kernel, (chains, records), threads)
            run(parameters, sums, *self.summed.own.get(number, (0, 1)), records, values)
            self._average(values, 0, first)
        averages: NDArray[np.float64] = self.averages[:records].copy_to_host()
        self._begin()
        self.filled = 0
        return averages
