"""Parameters of a graph: names, ties, and sufficient statistics.

The log-potential is linear in them: the sum over parameters of value times statistic, plus factors
without names. A `Frame` has the common structure of all graphs that differ only in parameters, so
that other values need no new packing.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.graph.factors.base import LARGEST, Factors
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.packing import lower_all, packed_rows, pairs_vary, sealed
from minigibbs.kernels.counts import add_counts, mark_values
from minigibbs.kernels.layout import TABLE, Model, Ties
from minigibbs.kernels.statistics import (
    add_independent,
    add_statistics,
    each_statistic,
    set_weights,
)
from minigibbs.system import memory

_PIECES = 8  # of large sums
_SMALL = 1 << 20  # factors times states that are summed in one piece
_WORD = 64  # states per word of bits; at least half as many states are counted by bits


@dataclass(frozen=True)
class Parameter:
    """A parameter array: its name, start in the flat array, shape, and fixed entries."""

    name: str
    start: int
    shape: tuple[int, ...]
    fixed: NDArray[np.bool_]  # of that shape

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def place(self) -> slice:
        """The indices of its entries in the flat array."""
        return slice(self.start, self.start + self.size)


class Counted(NamedTuple):
    """Pairs of values that are counted; each count is a term of a parameter's statistic."""

    one: NDArray[np.int32]  # index among the values of all variables
    other: NDArray[np.int32]  # the same; equal to `one` for a single value
    number: NDArray[np.int64]  # index of the parameter
    scale: NDArray[np.float64]


def _each(sizes: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return concatenated ranges below each of some sizes, preceded by the index of each size."""
    which = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes, dtype=np.int64)
    return which, np.arange(len(which)) - (ends - sizes)[which]


class Frame:
    """The common structure of graphs with the same factors and different parameters."""

    def __init__(
        self,
        sizes: NDArray[np.int32],
        factors: Sequence[Factors],
        evidence: NDArray[np.int32],
    ) -> None:
        self.sizes, self.evidence = sizes, evidence
        self.parameters = _read_parameters(factors)
        self.size = sum(parameter.size for parameter in self.parameters.values())
        self._lay_out(factors)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether each parameter is fixed in learning: [parameter]."""
        return np.concatenate([np.zeros(0, bool), *(one.fixed.ravel() for one in self)])

    def flat(self, factors: Sequence[Factors]) -> NDArray[np.float64]:
        """Return all parameters of a graph's groups as one flat array."""
        values = np.full(self.size, np.nan)
        for group in factors:
            if group.tie is not None:
                own = group.numbers.ravel()
                place = self.parameters[group.tie.name].start
                values[place : place + len(own)] = own
        return values

    def named(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Split a flat array by name, in the shapes of the parameters; leading axes are kept."""
        lead = values.shape[:-1]
        return {one.name: values[..., one.place].reshape(*lead, *one.shape) for one in self}

    def where(self, number: int) -> str:
        """Return a parameter's description in error messages."""
        for one in self:
            if one.start <= number < one.start + one.size:
                index = np.unravel_index(number - one.start, one.shape)
                return f"{one.name!r}{[int(k) for k in index]}"
        raise IndexError(number)

    def read(self, given: Mapping[str, ArrayLike], values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the flat array with some parameters replaced, with checks."""
        values = values.copy()
        for name, numbers in given.items():
            one = self.find(name)
            rule = f"parameter {name!r} must hold real numbers in shape {one.shape}"
            array = as_array(numbers, "iufb", rule).astype(np.float64)
            if array.shape not in ((), one.shape):
                raise GraphError(f"{rule}, or one for all; got shape {array.shape}")
            values[one.place] = np.broadcast_to(array, one.shape).ravel()
            own = values[one.place]
            if np.isnan(own).any():
                raise GraphError(f"{rule}; got NaN")
            with np.errstate(over="ignore", invalid="ignore"):
                wrong = np.isfinite(own) & np.isinf(own * self.scales[one.place])
            if wrong.any():
                raise GraphError(
                    f"{rule} that are finite when they are scaled; got {own[wrong][0]:g}"
                )
        return values

    def require_finite(self, values: NDArray[np.float64]) -> None:
        """Raise an error for a number that is not finite, or too large; entries may be -inf."""
        usable = np.abs(values) <= LARGEST
        if usable.all():
            return
        entry = np.zeros(self.size, dtype=np.bool_)
        for _, place, count in self.segments:
            entry[place : place + count] = True
        wrong = np.flatnonzero(~usable & ~(entry & np.isneginf(values)))
        if len(wrong):
            number = int(wrong[0])
            size = f", at most {LARGEST:g} in size" if np.isfinite(values[number]) else ""
            or_not = ", or -inf" if entry[number] else ""
            raise GraphError(
                f"parameter {self.where(number)} must be finite{size}{or_not}; got {values[number]}"
            )

    def find(self, name: str) -> Parameter:
        """Return the parameter of a name; an unknown name is an error that lists the known ones."""
        if name in self.parameters:
            return self.parameters[name]
        known = ", ".join(map(repr, list(self.parameters)[:8])) or "none"
        near = difflib.get_close_matches(str(name), self.parameters, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise GraphError(f"unknown parameter {name!r}{hint}; the graph's parameters: {known}")

    def replaced(
        self, factors: Sequence[Factors], values: NDArray[np.float64]
    ) -> tuple[Factors, ...]:
        """Return the groups with other parameters."""
        groups = []
        for group in factors:
            if group.tie is not None:
                shape = group.numbers.shape
                start = self.parameters[group.tie.name].start
                count = int(np.prod(shape, dtype=np.int64))
                group = group.with_numbers(values[start : start + count].reshape(shape))
            groups.append(group)
        return tuple(groups)

    def _lay_out(self, factors: Sequence[Factors]) -> None:
        """Build the ties, and rows with every parametrized factor, also with those of weight 0."""
        flat, offset = lower_all(self.sizes, factors, self.evidence)
        self.ties, self.constant, self.segments = _ties(self, factors, flat)
        learned_pair = (
            self.ties.pair >= 0 if len(self.ties.pair) else np.zeros(len(flat.pair), bool)
        )
        varies = learned_pair | pairs_vary(flat.pair, flat.pair_weight, self.sizes, self.evidence)
        general = flat.factors.copy()
        if len(self.ties.factor):
            general["span"] = np.where(self.ties.factor >= 0, 1.0, general["span"])
        numbers = np.arange(len(flat.pair), dtype=np.float64)
        rows, target, origin = packed_rows(
            self.sizes, self.evidence, flat.pair, numbers, general, flat.slots, varies
        )
        self.origin = origin.astype(np.int64)
        self.is_pair = _pair_places(rows, len(target))
        self.origin[~self.is_pair] = 0
        self.structure = sealed(
            flat._replace(rows=rows, target=target, weight=np.zeros(len(target)))
        )
        self.offset = offset - float(self.constant @ _finite(self.flat(factors)))

    def pack(self, factors: Sequence[Factors]) -> tuple[Model, float]:
        """Return what `packing.pack` returns, with precomputed rows."""
        flat, offset = lower_all(self.sizes, factors, self.evidence)
        structure, pairs = self.structure, self.is_pair
        weight, kept = np.empty(len(structure.target)), np.empty(len(structure.target), bool)
        varies = pairs_vary(flat.pair, flat.pair_weight, self.sizes, self.evidence)
        weight[pairs] = flat.pair_weight[self.origin[pairs]]
        kept[pairs] = varies[self.origin[pairs]]
        general = structure.target[~pairs]
        weight[~pairs] = flat.factors["weight"][general]
        kept[~pairs] = flat.factors["span"][general] > 0
        rows, target = structure.rows, structure.target
        if not kept.all():
            rows, target, weight = _compressed(rows, target, weight, kept)
        return sealed(flat._replace(rows=rows, target=target, weight=weight)), offset

    def summed(
        self,
        states: NDArray[Any],
        weights: NDArray[np.float64] | None = None,
        spread: Callable[[Callable[[int], None], int], None] | None = None,
    ) -> NDArray[np.float64]:
        """Sum the statistics of states [state, variable] by their weights.

        `spread(work, pieces)` may call work(piece) on threads. The pieces do not depend on the
        threads, and the sum is bit-identical.
        """
        spread = spread or _in_turn
        factors = len(self.structure.pair) + len(self.structure.factors)
        pieces = _PIECES if factors * len(states) > _SMALL else 1
        ends = np.linspace(0, factors, pieces + 1).astype(np.int64).tolist()
        totals = self._totals(pieces)
        by_bits = weights is None and self.countable and 2 * len(states) >= _WORD
        bits = self._marked(states, spread) if by_bits else None
        weights = np.ones(len(states)) if weights is None else weights
        columns = states[:0] if by_bits else np.ascontiguousarray(states.T)

        def work(piece: int) -> None:
            first, last, out = ends[piece], ends[piece + 1], totals[piece % len(totals)]
            if bits is not None:
                add_counts(self.structure, self.ties, bits, first, last, out)
            else:
                add_statistics(self.structure, self.ties, columns, weights, first, last, out)

        spread(work, pieces)
        total: NDArray[np.float64] = totals.sum(axis=0) + self.constant * weights.sum()
        return total

    def _totals(self, pieces: int) -> NDArray[np.float64]:
        """Allocate the sums of each piece, or one array if no two pieces add to the same entry."""
        return np.zeros((1 if self.apart else pieces, self.size))

    @cached_property
    def apart(self) -> bool:
        """Whether no two factors share a parameter, so that pieces need no separate sums."""
        ties = self.ties
        pair, factor = ties.pair[ties.pair >= 0], ties.factor[ties.factor >= 0]
        starts = np.concatenate([pair, factor])
        return len(np.unique(starts)) == len(starts)

    @cached_property
    def countable(self) -> bool:
        """Whether learned factors are pairs, or tables of up to two variables with learned entries.

        Their statistics are counts of values or of pairs of values.
        """
        factors, ties = self.structure.factors, self.ties
        arity = factors["scope_end"] - factors["scope_start"]
        fits = (arity <= 2) & ties.entries & (factors["form"] == TABLE)
        return bool(fits[ties.factor >= 0].all())

    @cached_property
    def counted_size(self) -> int:
        """The number of these counts."""
        pairs, tables = np.flatnonzero(self.ties.pair >= 0), np.flatnonzero(self.ties.factor >= 0)
        sizes = self.sizes[self.structure.pair[pairs]].min(axis=1, initial=2**31 - 1)
        return int(sizes.sum(dtype=np.int64)) + int(self.table_sizes(tables).sum())

    @cached_property
    def counted(self) -> Counted:
        """The counts that are the terms of the statistics of a countable frame."""
        pairs, tables = np.flatnonzero(self.ties.pair >= 0), np.flatnonzero(self.ties.factor >= 0)
        ties, model = self.ties, self.structure
        ends = model.pair[pairs].astype(np.int64)
        both = np.minimum(*self.sizes[ends].T) if len(pairs) else np.empty(0, np.int64)
        which, value = _each(both)
        first = model.first[ends[which]] + value[:, None]
        parts = [(first[:, 0], first[:, 1], ties.pair[pairs][which], ties.pair_scale[pairs][which])]
        begin = model.factors["scope_start"][tables]
        for arity in (1, 2):
            some = tables[model.factors["scope_end"][tables] - begin == arity]
            which, place = _each(self.table_sizes(some))
            slots = model.slots[model.factors["scope_start"][some][which, None] + np.arange(arity)]
            value, rest = np.empty((len(place), arity), np.int64), place
            for k in range(arity):
                value[:, k], rest = np.divmod(rest, slots["key"][:, k])
            rows = model.first[slots["variable"]] + value
            number, scale = ties.factor[some][which] + place, ties.factor_scale[some][which]
            parts.append((rows[:, 0], rows[:, -1], number, scale))
        one, other, number, scale = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Counted(one.astype(np.int32), other.astype(np.int32), number, scale)

    def from_counts(self, counts: NDArray[np.integer], states: int) -> NDArray[np.float64]:
        """Compute the statistics, summed over states, from the counts of `counted`."""
        own = self.counted
        total = np.bincount(own.number, own.scale * counts, minlength=self.size)
        return total + self.constant * float(states)

    def _marked(
        self, states: NDArray[Any], spread: Callable[[Callable[[int], None], int], None]
    ) -> NDArray[np.uint64]:
        """Build bit sets [value of a variable, word]: one bit for each state with the value."""
        total = int(self.sizes.sum(dtype=np.int64))
        first = np.append(self.structure.first, total)
        bits = np.empty((total, -(-len(states) // _WORD)), dtype=np.uint64)
        pieces = _PIECES if states.size > _SMALL else 1
        cuts = np.linspace(0, len(self.sizes), pieces + 1).astype(int).tolist()
        states = np.ascontiguousarray(states)
        spread(lambda p: mark_values(first, states, cuts[p], cuts[p + 1], bits), pieces)
        return bits

    def statistics(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the statistics of each state, [state, parameter]."""
        memory.require(8 * len(states) * self.size, "statistics of states", "use fewer states")
        rows = np.tile(self.constant, (len(states), 1))
        each_statistic(self.structure, self.ties, np.ascontiguousarray(states), rows)
        return rows

    def independent(self, marginals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute expected statistics of independent variables; marginals by variable and value."""
        total = np.zeros(self.size)
        add_independent(self.structure, self.ties, marginals, total)
        return total + self.constant

    @cached_property
    def ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sums of each parameter's factors' smallest and largest statistics."""
        low, high = self.constant.copy(), self.constant.copy()
        ties, model = self.ties, self.structure
        learned = np.flatnonzero(ties.pair >= 0)
        _add_range(low, high, ties.pair[learned], ties.pair_scale[learned])
        whole = np.flatnonzero((ties.factor >= 0) & ~ties.entries)
        formulas = whole[model.factors["form"][whole] != 0]
        _add_range(low, high, ties.factor[formulas], ties.factor_scale[formulas])
        tables = whole[model.factors["form"][whole] == 0]
        least, most = self._table_range(tables)
        ends = np.sort(np.stack([least, most]) * ties.factor_scale[tables], axis=0)
        np.add.at(low, ties.factor[tables], ends[0])
        np.add.at(high, ties.factor[tables], ends[1])
        by_entry = np.flatnonzero((ties.factor >= 0) & ties.entries)
        sizes = self.table_sizes(by_entry)
        for size in np.unique(sizes).tolist():
            some = by_entry[sizes == size]
            places = (ties.factor[some][:, None] + np.arange(size)).ravel()
            _add_range(low, high, places, np.repeat(ties.factor_scale[some], size))
        return low, high

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        """The largest absolute energy of a factor for each parameter at 1."""
        largest, ties = np.zeros(self.size), self.ties
        pairs, general = np.flatnonzero(ties.pair >= 0), np.flatnonzero(ties.factor >= 0)
        np.maximum.at(largest, ties.pair[pairs], np.abs(ties.pair_scale[pairs]))
        np.maximum.at(largest, ties.factor[general], np.abs(ties.factor_scale[general]))
        for one in self:  # equal for the entries of a table
            if len(one.shape) > 1 or (one.size and (ties.entries[ties.factor == one.start]).any()):
                largest[one.place] = largest[one.place].max(initial=0.0)
        return largest

    def table_sizes(self, factors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of entries of tables over the variables of some factors."""
        model = self.structure
        if not len(factors):
            return np.empty(0, dtype=np.int64)
        values = self.sizes[model.slots["variable"]].astype(np.int64)
        whole = np.multiply.reduceat(values, model.factors["scope_start"])
        return whole[factors]

    def _table_range(self, factors: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the smallest and largest finite entry of the tables of some factors."""
        start, size = self.structure.factors["table_start"][factors], self.table_sizes(factors)
        places, which = np.unique(np.stack([start, size], axis=1), axis=0, return_inverse=True)
        ends = np.zeros((2, len(places)))
        for k, (first, count) in enumerate(places.tolist()):
            table = self.structure.table[first : first + count]
            finite = table[np.isfinite(table)]
            ends[:, k] = (finite.min(), finite.max()) if len(finite) else 0.0
        return ends[0][which.ravel()], ends[1][which.ravel()]

    @cached_property
    def entry_ties(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The parameter of each entry's weight, -1 for none, and its scale."""
        ties, target = self.ties, self.structure.target
        number, scale = np.full(len(target), -1, np.int32), np.zeros(len(target))
        pair, other = np.flatnonzero(self.is_pair), np.flatnonzero(~self.is_pair)
        number[pair] = ties.pair[self.origin[pair]]
        scale[pair] = ties.pair_scale[self.origin[pair]]
        number[other] = np.where(ties.entries[target[other]], -1, ties.factor[target[other]])
        scale[other] = ties.factor_scale[target[other]]
        return number, scale

    @cached_property
    def constant_weights(self) -> NDArray[np.float64]:
        """The weight of each entry when the frame was created."""
        flat, weight = self.structure, np.empty(len(self.structure.target))
        weight[self.is_pair] = flat.pair_weight[self.origin[self.is_pair]]
        weight[~self.is_pair] = flat.factors["weight"][flat.target[~self.is_pair]]
        return weight

    def moving(self) -> Moving:
        """Create a model whose weights may be changed in place."""
        return Moving(self)


class Moving:
    """A model with mutable weights: shapes and compiled code do not change."""

    def __init__(self, frame: Frame) -> None:
        self.frame, flat = frame, frame.structure
        self._pair, self._table = flat.pair_weight.copy(), flat.table.copy()
        self._factors, self._weight = flat.factors.copy(), np.zeros(len(flat.target))
        self._factor = flat.factors["weight"].copy()
        self._weight[:] = frame.constant_weights
        self.model = sealed(
            flat._replace(
                pair_weight=self._pair.view(),
                table=self._table.view(),
                factors=self._factors.view(),
                weight=self._weight.view(),
            )
        )

    def set(self, values: NDArray[np.float64]) -> Model:
        """Set the model's weights from these parameters."""
        frame = self.frame
        for start, place, count in frame.segments:
            self._table[start : start + count] = values[place : place + count]
        number, scale = frame.entry_ties
        set_weights(frame.ties, number, scale, values, self._pair, self._factor, self._weight)
        if len(self._factor):
            self._factors["weight"] = self._factor
        return self.model


def _read_parameters(factors: Sequence[Factors]) -> dict[str, Parameter]:
    """Read the parameters in order, with shapes and fixed entries; equal names are merged."""
    shapes: dict[str, tuple[int, ...]] = {}
    groups: dict[str, list[Factors]] = {}
    for group in factors:
        if group.tie is None:
            continue
        name, shape = group.tie.name, group.numbers.shape
        known = shapes.setdefault(name, shape)
        if len(known) != len(shape) or known[1:] != shape[1:]:
            raise GraphError(
                f"parameter {name!r}: groups of one name share parameters, so their shapes must "
                f"agree; got {known} and {shape}"
            )
        shapes[name] = (max(known[0], shape[0]), *shape[1:])
        groups.setdefault(name, []).append(group)
    found, start = {}, 0
    for name, shape in shapes.items():
        fixed = _shared(name, shape, groups[name])
        found[name] = Parameter(name, start, shape, fixed)
        start += found[name].size
    return found


def _shared(name: str, shape: tuple[int, ...], groups: Sequence[Factors]) -> NDArray[np.bool_]:
    """Return the fixed entries of a parameter; raise an error if groups disagree on values."""
    fixed, values = np.zeros(shape, dtype=np.bool_), np.full(shape, np.nan)
    for group in groups:
        assert group.tie is not None
        own = group.numbers
        before = values[: len(own)]
        wrong = ~np.isnan(before) & (before != own)
        if wrong.any():
            index = [int(k) for k in np.argwhere(wrong)[0]]
            raise GraphError(
                f"parameter {name!r}{index}: groups of one name share parameters, which must "
                f"agree; got {before[tuple(index)]} and {own[tuple(index)]}"
            )
        values[: len(own)] = own
        fixed[: len(own)] |= np.broadcast_to(group.tie.fixed, own.shape) | np.isinf(own)
    return fixed


def _ties(
    frame: Frame, factors: Sequence[Factors], flat: Model
) -> tuple[Ties, NDArray[np.float64], list[tuple[int, int, int]]]:
    """Build the ties of all factors, the constant statistics, and the list of learned tables."""
    pair, pair_scale = np.full(len(flat.pair), -1, np.int64), np.zeros(len(flat.pair))
    general = np.full(len(flat.factors), -1, np.int64)
    scales, entries = np.zeros(len(flat.factors)), np.zeros(len(flat.factors), bool)
    constant, segments = np.zeros(frame.size), []
    pairs = others = table = 0
    for group in factors:
        if isinstance(group, Implicit):
            continue
        count, tie = len(group), group.tie
        place = slice(pairs, pairs + count) if group.pairs else slice(others, others + count)
        if tie is not None:
            start = frame.parameters[tie.name].start
            if group.learns_entries:
                offsets = flat.factors["table_start"][place] - table
                general[place], entries[place] = start + offsets, True
                scales[place] = flat.factors["weight"][place]
                segments.append((table, start, group.numbers.size))
            else:
                number = np.arange(count) if tie.tied is None else tie.tied
                scale = np.ones(count) if tie.scale is None else tie.scale
                times, rest = group.lowered
                (pair if group.pairs else general)[place] = start + number
                (pair_scale if group.pairs else scales)[place] = times * scale
                np.add.at(constant, start + number, rest * scale)
        if group.pairs:
            pairs += count
        else:
            others, table = others + count, table + _table_values(group)
    return Ties(pair, pair_scale, general, scales, entries), constant, segments


def _table_values(group: Factors) -> int:
    """Return the number of table values of a group in flat form."""
    tables = getattr(group, "_tables", None)
    if tables is not None:
        return int(tables.size)
    if group.kind == "unary":
        own = group.numbers if group.tie is not None else group.log_potential  # type: ignore[attr-defined]
        return int(own.size)
    return 0


def _add_range(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    places: NDArray[np.int64],
    scale: NDArray[np.float64],
) -> None:
    """Add the ranges of statistics that are either 0 or their scale."""
    np.add.at(low, places, np.minimum(scale, 0.0))
    np.add.at(high, places, np.maximum(scale, 0.0))


def _pair_places(rows: NDArray[np.void], entries: int) -> NDArray[np.bool_]:
    """Mark the entries of the rows that are pairs."""
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    return np.arange(entries) < rows["pair_end"][owner]


def _compressed(
    rows: NDArray[np.void],
    target: NDArray[np.int32],
    weight: NDArray[np.float64],
    kept: NDArray[np.bool_],
) -> tuple[NDArray[np.void], NDArray[np.int32], NDArray[np.float64]]:
    """Return the rows without the entries that are not kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    packed = rows.copy()
    for name in ("start", "pair_end", "unary_begin", "end"):
        packed[name] = before[rows[name]]
    return packed, target[kept], weight[kept]


def _in_turn(work: Callable[[int], None], pieces: int) -> None:
    for piece in range(pieces):
        work(piece)


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, 0.0)
