"""Rules for rows, as text: dependencies and denial constraints.

A dependency `zip, street -> city` says that rows which agree on the left side agree on the right
side. A denial constraint lists predicates that must not all hold, in the notation of HoloClean:
`t1&t2&EQ(t1.zip,t2.zip)&IQ(t1.city,t2.city)`. The predicates are EQ, IQ (not equal), LT, GT, LTE
and GTE. Their arguments are columns of one or two rows, or constants in quotation marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.repairing.counts import joined
from minigibbs.repairing.table import MISSING, Table

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "IQ": np.not_equal,
    "LT": np.less,
    "GT": np.greater,
    "LTE": np.less_equal,
    "GTE": np.greater_equal,
}
_PREDICATE = re.compile(r"(EQ|IQ|LTE|GTE|LT|GT)\((.*)\)")
_MOST_PARTNERS = 200  # maximum number of rows that a row is compared with


class Operand(NamedTuple):
    """A column of a row, or a constant."""

    row: int | None  # 1 or 2; None for a constant
    what: Any  # the number of the column, or the constant


class Predicate(NamedTuple):
    """A comparison of two operands."""

    op: str
    left: Operand
    right: Operand


@dataclass(frozen=True)
class Dependency:
    """A rule: rows that agree on some columns agree on another one.

    Attributes
    ----------
    given
        The numbers of the columns on the left.
    column
        The number of the column on the right.
    """

    given: tuple[int, ...]
    column: int

    def text(self, names: Sequence[str]) -> str:
        """Return the dependency as text."""
        return f"{', '.join(names[k] for k in self.given)} -> {names[self.column]}"


@dataclass(frozen=True)
class Denial:
    """Predicates that must not all hold for one row, or for a pair of rows."""

    predicates: tuple[Predicate, ...]
    source: str

    @property
    def pairs(self) -> bool:
        """Whether the predicates compare two rows."""
        rows = {one.row for p in self.predicates for one in (p.left, p.right)}
        return 2 in rows

    def columns(self) -> tuple[int, ...]:
        """Return the columns in the predicates."""
        operands = [one for p in self.predicates for one in (p.left, p.right)]
        return tuple(sorted({one.what for one in operands if one.row is not None}))

    def violations(
        self, table: Table, rows: NDArray[np.int64], column: int, values: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the share of a row's partners with which it would violate the constraint.

        `rows` are compared as if their cell in `column` had the code in `values`. The partners of a
        row are at most 200 rows that agree with it in the columns required to be equal.
        """
        texts = [_entries(table.values[k]) for k in range(len(table.names))]

        def cells(operand: Operand, which: NDArray[np.int64], changed: bool) -> Any:
            if operand.row is None:
                return operand.what
            codes = (
                values if changed and operand.what == column else table.codes[which, operand.what]
            )
            return np.where(codes == MISSING, None, texts[operand.what][codes])

        if not self.pairs:
            held = np.ones(len(rows), dtype=np.bool_)
            for op, left, right in self.predicates:
                held &= _compare(op, cells(left, rows, True), cells(right, rows, True))
            return held.astype(np.float64)
        partner, owner = self._partners(table, rows, column, values)
        found = np.zeros(len(rows))
        for swapped in (False, True):
            held = partner != rows[owner]
            for op, left, right in self.predicates:
                sides = []
                for operand in (left, right):
                    mine = operand.row is None or (operand.row == 1) != swapped
                    if mine:
                        all_cells = cells(operand, rows, True)
                        sides.append(all_cells[owner] if operand.row is not None else all_cells)
                    else:
                        sides.append(cells(operand, partner, False))
                held &= _compare(op, *sides)
            found = np.maximum(found, np.bincount(owner, held, minlength=len(rows)))
        return found / np.maximum(np.bincount(owner, minlength=len(rows)), 1)

    def _partners(
        self, table: Table, rows: NDArray[np.int64], column: int, values: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows to compare with, and for each of them the index of its own row."""
        same = [
            p.left.what
            for p in self.predicates
            if p.op == "EQ" and p.left.row and p.right.row and p.left.what == p.right.what
        ]
        count = len(table)
        if not same:
            step = max(count // _MOST_PARTNERS, 1)
            some = np.arange(0, count, step)
            return np.tile(some, len(rows)), np.repeat(np.arange(len(rows)), len(some))
        mine = table.codes[np.ix_(rows, same)]
        mine[:, [k for k, one in enumerate(same) if one == column]] = values[:, None]
        both = np.concatenate([table.codes[:, same], mine])
        key = joined(both, [])
        order = np.argsort(key[:count], kind="stable")
        begin = np.searchsorted(key[:count][order], key[count:], side="left")
        end = np.searchsorted(key[:count][order], key[count:], side="right")
        sizes = np.where(key[count:] == MISSING, 0, np.minimum(end - begin, _MOST_PARTNERS))
        owner = np.repeat(np.arange(len(rows)), sizes)
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return order[np.repeat(begin, sizes) + inside], owner


def read_rules(given: str | Sequence[str] | None, table: Table) -> list[Dependency | Denial]:
    """Parse rules from lines of text; a denial constraint equivalent to a dependency becomes one.

    >>> table = Table(("zip", "city"), (("1",), ("a",)), np.zeros((1, 2), dtype=np.int64))
    >>> read_rules("zip -> city", table)
    [Dependency(given=(0,), column=1)]
    >>> read_rules(["t1&t2&EQ(t1.zip,t2.zip)&IQ(t1.city,t2.city)"], table)
    [Dependency(given=(0,), column=1)]
    """
    lines = (given or "").splitlines() if given is None or isinstance(given, str) else given
    found: list[Dependency | Denial] = []
    for line in map(str.strip, lines):
        if line and not line.startswith("#"):
            found.append(_dependency(line, table) if "->" in line else _denial(line, table))
    return found


def _dependency(line: str, table: Table) -> Dependency:
    left, _, right = line.partition("->")
    given = tuple(table.index(name.strip(), f"constraint {line!r}") for name in left.split(","))
    column = table.index(right.strip(), f"constraint {line!r}")
    if column in given:
        raise LearnError(f"constraint {line!r}: a column is on both sides")
    return Dependency(given, column)


def _denial(line: str, table: Table) -> Dependency | Denial:
    predicates = []
    for part in filter(None, line.split("&")):
        if part.strip() in ("t1", "t2"):
            continue
        match = _PREDICATE.fullmatch(part.strip())
        sides = _split(match.group(2)) if match else []
        if match is None or len(sides) != 2:
            raise LearnError(
                f"constraint {line!r}: expected a predicate such as EQ(t1.zip,t2.zip), got "
                f"{part!r}. A dependency is written 'zip -> city'"
            )
        left, right = (_operand(side, line, table) for side in sides)
        predicates.append(Predicate(match.group(1), left, right))
    if not predicates:
        raise LearnError(f"constraint {line!r}: expected predicates, or columns -> column")
    return _as_dependency(predicates) or Denial(tuple(predicates), line)


def _split(text: str) -> list[str]:
    """Return the two arguments, split at a comma outside quotation marks."""
    return [one.strip() for one in re.split(r""",(?=(?:[^"']*["'][^"']*["'])*[^"']*$)""", text)]


def _operand(text: str, line: str, table: Table) -> Operand:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return Operand(None, text[1:-1])
    row, _, name = text.partition(".")
    if row not in ("t1", "t2") or not name:
        raise LearnError(f"constraint {line!r}: expected t1.column, t2.column or 'constant'")
    return Operand(int(row[1]), table.index(name, f"constraint {line!r}"))


def _as_dependency(predicates: list[Predicate]) -> Dependency | None:
    """Return the dependency that a denial constraint is equivalent to, or None."""
    for _, left, right in predicates:
        if {left.row, right.row} != {1, 2} or left.what != right.what:
            return None
    same = [p.left.what for p in predicates if p.op == "EQ"]
    differ = [p.left.what for p in predicates if p.op == "IQ"]
    whole = len(same) + len(differ) == len(predicates)
    if whole and same and len(differ) == 1 and differ[0] not in same:
        return Dependency(tuple(same), differ[0])
    return None


def _entries(values: tuple[Any, ...]) -> NDArray[Any]:
    found = np.empty(len(values) + 1, dtype=object)
    found[:-1] = values
    found[-1] = None
    return found


def _compare(op: str, left: Any, right: Any) -> NDArray[np.bool_]:
    """Compare cells, as numbers if both are numbers, else as text; false if one is missing."""
    first, second = np.broadcast_arrays(
        np.asarray(left, dtype=object), np.asarray(right, dtype=object)
    )
    held = np.zeros(len(first), dtype=np.bool_)
    for k, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        if a is not None and b is not None:
            held[k] = bool(_COMPARE[op](*_alike(a, b)))
    return held


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    try:
        return float(a), float(b)
    except (TypeError, ValueError):
        return str(a), str(b)
