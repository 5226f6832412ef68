"""Observables of all chains on a GPU: measured and averaged there, and taken to the host in blocks.

What is a function of sums over variables is measured by many threads a chain: the sums of many
records wait on the device, and the functions are evaluated for all of them at once. All else is
measured by one thread a chain. The compiled side is `cuda_kernels` and `cuda_sums`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.observables.base import Measure, Terms
from minigibbs.running.plan import Plan

_MOST_BLOCKS = 65535  # along the second and third axis of a grid
_ACROSS = 5  # bits of how many neighbouring words or chains a block of threads has, at the most
_BLOCKS = 1024  # of threads that share in counting, if there is enough to count


class Summed(NamedTuple):
    """The sums that observables are functions of, each of them once."""

    terms: Terms  # of variables that are not clamped
    constants: NDArray[np.int32]  # [sum] how many clamped ones match
    own: dict[int, tuple[int, int]]  # by number of an observable: its first sum, and the last's end


def summed(graph: FactorGraph, measures: tuple[Measure, ...]) -> Summed:
    """All sums of some observables; those of the same terms are counted together."""
    known: list[tuple[Terms, int]] = []  # and where their sums begin
    own, count = {}, 0
    for number, measure in enumerate(measures):
        if measure.sums is None or measure.sums.terms is None:
            continue
        terms = measure.sums.terms()
        first = next((first for other, first in known if _alike(terms, other)), count)
        if first == count:
            known.append((terms, first))
            count += len(terms.ends)
        own[number] = (first, first + len(terms.ends))
    return Summed(*_free(graph, [terms for terms, _ in known]), own)


def _alike(a: Terms, b: Terms) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Terms._fields)


def _free(graph: FactorGraph, several: list[Terms]) -> tuple[Terms, NDArray[np.int32]]:
    """Terms one after the other, without those that never change, and the sums of these."""
    none = np.empty(0, np.int32)
    variables = np.concatenate([none, *(terms.variables for terms in several)])
    wanted = np.concatenate([none, *(terms.wanted for terms in several)])
    sizes = np.concatenate([none, *(np.diff(terms.ends, prepend=0) for terms in several)])
    which = np.repeat(np.arange(len(sizes)), sizes)
    fixed = graph.evidence[variables]
    constants = np.bincount(which[(fixed >= 0) & (fixed == wanted)], minlength=len(sizes))
    free = (fixed < 0) & (wanted >= 0) & (wanted < graph.sizes[variables])
    ends = np.cumsum(np.bincount(which[free], minlength=len(sizes)))
    terms = Terms(variables[free], wanted[free].astype(np.int64), ends)
    return terms, constants.astype(np.int32)


def signed_places(terms: Terms, places: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """The terms of spins by place, in order, complements where a 0 is wanted.

    None at all for one sum over all `count` places.
    """
    here = places[terms.variables]
    if len(terms.ends) == 1 and len(here) == count and terms.wanted.all():
        seen = np.zeros(count, np.bool_)
        seen[here] = True
        if seen.all():
            return np.empty(0, np.int32)
    which = np.repeat(np.arange(len(terms.ends)), np.diff(terms.ends, prepend=0))
    keys = np.sort((which * count + here) * 2 + (terms.wanted == 0))
    place = keys // 2 % max(count, 1)
    return np.where(keys % 2 == 1, ~place, place).astype(np.int32)


class Shared(NamedTuple):
    """How blocks of threads share in sums."""

    pieces: NDArray[np.int32]  # [piece, 3] where its terms begin and end, and its sum
    tiles: int  # of 2 ** shift columns
    shift: int  # 2 ** shift neighbouring threads have neighbouring columns


def share(
    ends: NDArray[np.int64], columns: int, threads: int, least: int, most: int, records: int = 1
) -> Shared:
    """Pieces of sums for blocks of threads that count so many records at a time.

    A thread counts `least` terms of each record, or a multiple of that, up to `most` times it.
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
    """What is observed of a group's chains, on the device until the host takes it."""

    def __init__(self, cuda: Any, plan: Plan, buffer: int, by_parts: bool) -> None:
        """Plan what a buffer of so many bytes holds.

        `by_parts` says whether energies are sums that many threads share in.
        """
        self.cuda, self.plan = cuda, plan
        measures = plan.measures
        self.summed = summed(plan.graph, measures)
        self.of_energy = {
            number
            for number, measure in enumerate(measures)
            if by_parts and measure.sums is not None and measure.sums.terms is None
        }
        self.of_states = set(range(len(measures))) - self.of_energy - set(self.summed.own)
        later = [measures[number].width for number in {*self.of_energy, *self.summed.own}]
        self.widest = max(later, default=0)
        record = plan.chains * (4 * len(self.summed.constants) + 8 * self.widest)
        record += 8 * plan.chains * bool(self.of_energy) + 8 * plan.rows * plan.width
        self.room = min(max(buffer // max(record, 1), 1), max(plan.records, 1), _MOST_BLOCKS)
        widths = sum(measures[number].width for number in self.of_states)
        self.bytes = self.room * record + 8 * plan.chains * widths
        self.bytes += 20 * len(self.summed.terms.variables)  # at the most
        self.filled = 0  # records on the device that the host has not taken yet

    def place(self, kernels: Any, counting: Any) -> None:
        """Compile observables as kernels, and make room for what they give."""
        plan, chains, array = self.plan, self.plan.chains, self.cuda.device_array
        self.kernels, self.counting = kernels, counting
        self._measures = []
        first = 0
        for number, measure in enumerate(plan.measures):
            source = measure if number in self.of_states or measure.sums is None else measure.sums
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
        self._constants = self.cuda.to_device(self.summed.constants)
        self.averages = array((self.room, plan.rows, plan.width), np.float64)
        self._begin()

    def _begin(self) -> None:
        """Let all sums begin anew."""
        if self.sums.size:
            threads = self.counting.THREADS
            rows = min(self.sums.shape[0] * self.sums.shape[1], _MOST_BLOCKS)
            begin = self.counting.begin_sums[(-(-self.plan.chains // threads), rows), (threads, 1)]
            begin(self._constants, self.sums)

    def measure_states(self, x: Any) -> None:
        """Measure what is no function of sums: of states x[variable, chain]."""
        threads = self.kernels.THREADS
        for number, values in self._values.items():
            kernel, parameters, first = self._measures[number]
            kernel[-(-self.plan.chains // threads), threads](parameters, x, values)
            self._average(values, self.filled, 1, first)

    def _average(self, values: Any, place: int, records: int, first: int) -> None:
        """Keep means over rows of values[record, number, chain]."""
        grid = (self.plan.rows, values.shape[1], records)
        self.kernels.average_rows[grid, self.kernels.THREADS](values, place, first, self.averages)

    def take(self) -> NDArray[np.float64]:
        """Move what was observed to the host: [record, row, number]."""
        records, threads, chains = self.filled, self.counting.THREADS, self.plan.chains
        for number in sorted({*self.of_energy, *self.summed.own}):
            kernel, parameters, first = self._measures[number]
            width = self.plan.measures[number].width
            values = self._later[: records * width * chains].reshape(records, width, chains)
            sums = self.energies if number in self.of_energy else self.sums
            run = kernel[(-(-chains // threads), records), (threads, 1)]
            run(parameters, sums, *self.summed.own.get(number, (0, 1)), records, values)
            self._average(values, 0, records, first)
        averages: NDArray[np.float64] = self.averages[:records].copy_to_host()
        self._begin()
        self.filled = 0
        return averages


def to_device(cuda: Any, value: Any) -> Any:
    """An array, or a tuple of them, on the device; numbers stay as they are."""
    if isinstance(value, tuple):
        parts = [to_device(cuda, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return cuda.to_device(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
