"""Conversion of clauses of literals in DIMACS formats to factors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.tables import constant_group
from minigibbs.formats.text import Numbers
from minigibbs.graph.factors import Factors, Logical, Table, Unary
from minigibbs.graph.factors.base import LARGEST
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory

MOST_HARD = 16  # literals of a hard clause, which becomes a table
MOST_VARIABLES = 2**31 - 1
_VARIABLE_BYTES = 64  # bytes per variable of a graph


class Clauses(NamedTuple):
    """Concatenated clauses."""

    literals: NDArray[np.int64]  # of all clauses; variable v is v, or -v if it is negated
    start: NDArray[np.int64]  # [clauses + 1] index of each clause's first literal
    weight: NDArray[np.float64]  # [clauses] cost if violated; infinite for a hard clause


def read_count(numbers: Numbers) -> int:
    """Read the number of variables, checked before memory is allocated."""
    return require_room(numbers.integer("the number of variables", 1, MOST_VARIABLES))


def require_room(variables: int) -> int:
    """Return the number of variables; raise an error if a graph of them exceeds memory."""
    what = f"a graph of {variables:,} variables"
    memory.require(variables * _VARIABLE_BYTES, what, "use a smaller model")
    return variables


def two_valued(variables: int, factors: list[Factors]) -> FactorGraph:
    """Build a graph of variables with two values each."""
    return FactorGraph(np.full(variables, 2, dtype=np.int32), factors)


def read_beta(beta: float) -> float:
    """Check an inverse temperature: finite and nonnegative."""
    if not 0 <= beta <= LARGEST:
        raise FormatError(f"beta must be a finite number of at least 0, got {beta}")
    return float(beta)


def read_hard(hard: float | None) -> float:
    """Return the cost of a violated hard clause: infinite, or the given number."""
    if hard is None:
        return math.inf
    if not 0 < hard <= LARGEST:
        raise FormatError(f"hard must be a weight above 0, or None for constraints; got {hard}")
    return float(hard)


def read_clauses(numbers: Numbers, variables: int, weighted: bool) -> Clauses:
    """Read the remaining clauses of a file, each ended by 0.

    A weighted clause begins with its weight; the caller marks hard clauses.
    """
    begun = numbers.left
    values = numbers.take(begun, "clauses")
    ends = np.flatnonzero(values == 0)
    if len(values) and (not len(ends) or ends[-1] != len(values) - 1):
        raise numbers.error("expected 0 at the end of a clause, got the end of the file")
    start = np.concatenate([[0], ends + 1])
    is_literal = values != 0
    weight = np.ones(len(ends))
    if weighted:
        empty = np.flatnonzero(start[:-1] == ends)
        if len(empty):
            raise numbers.error(
                "expected a weight above 0 and literals, got 0", back=begun - int(start[empty[0]])
            )
        weight = values[start[:-1]]
        is_literal[start[:-1]] = False
    wrong = is_literal & ~((np.abs(values) <= variables) & (values == np.floor(values)))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise numbers.error(
            f"expected a literal, an integer from 1 to {variables} or its negative, got "
            f"{values[place]:g}",
            back=begun - place,
        )
    literals = values[is_literal].astype(np.int64)
    lengths = np.diff(start) - (2 if weighted else 1)
    return Clauses(literals, np.concatenate([[0], np.cumsum(lengths)]), weight)


def clause_groups(path: str | os.PathLike[str], clauses: Clauses, beta: float) -> list[Factors]:
    """Build factors whose sum is -beta times the weight of all violated clauses.

    Hard clauses become tables with one forbidden entry; clauses with the same number of negations
    share a table. Soft clauses become formulas.
    """
    groups: list[Factors] = []
    constant = 0.0
    lengths = np.diff(clauses.start)
    for length in np.unique(lengths).tolist():
        some = np.flatnonzero(lengths == length)
        rows = clauses.literals[clauses.start[some, None] + np.arange(length)]
        for literals, weight in _distinct(rows, clauses.weight[some]):
            hard = np.isinf(weight)
            if not literals.shape[1]:
                if hard.any():
                    raise FormatError(
                        f"{path}: every state has probability 0, since a hard clause is empty"
                    )
                constant -= beta * float(weight.sum())
                continue
            groups += _hard(path, literals[hard])
            groups += _soft(literals[~hard], beta * weight[~hard])
    return groups + constant_group(path, constant, 2)


def _distinct(
    rows: NDArray[np.int64], weight: NDArray[np.float64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield rows without repeated literals, by length; drop those with both v and -v."""
    order = np.argsort(np.abs(rows), axis=1, kind="stable")
    rows = np.take_along_axis(rows, order, axis=1)
    repeated = np.zeros(len(rows), dtype=np.bool_)
    if rows.shape[1] > 1:
        repeated = (np.diff(np.abs(rows), axis=1) == 0).any(axis=1)
    if (~repeated).any():
        yield rows[~repeated], weight[~repeated]
    for row, cost in zip(rows[repeated].tolist(), weight[repeated], strict=True):
        literals = sorted(set(row))
        if not any(-literal in literals for literal in literals):
            yield np.array([literals]), np.array([cost])


def _hard(path: str | os.PathLike[str], literals: NDArray[np.int64]) -> Iterator[Factors]:
    count, length = literals.shape
    if not count:
        return
    if length > MOST_HARD:
        raise FormatError(
            f"{path}: a hard clause of {length} literals: it becomes a table, of at most "
            f"{MOST_HARD} variables; read the file with hard=20.0, which makes a violated hard "
            "clause e^20 times less probable instead of impossible"
        )
    literals = np.sort(literals, axis=1)  # negated literals first
    negated = np.count_nonzero(literals < 0, axis=1)
    for many in np.unique(negated).tolist():
        scope = np.abs(literals[negated == many]) - 1
        table = np.zeros((2,) * length)
        table[(1,) * many + (0,) * (length - many)] = -np.inf
        yield Unary(scope[:, 0], table) if length == 1 else Table(scope, table)


def _soft(literals: NDArray[np.int64], weight: NDArray[np.float64]) -> Iterator[Factors]:
    """Yield formulas of violated clauses: all of their literals are false."""
    if len(literals):
        yield Logical("and", np.abs(literals) - 1, -weight, negated=literals > 0)
