"""Quadratic functions of binary variables (.qubo), in qbsolv's format.

A line `p qubo TOPOLOGY VARIABLES DIAGONALS COUPLERS` is followed by a line `i i bias` for each
diagonal and a line `i j bias` for each coupler. Variables are numbered from 0, and lines that begin
with c are comments. The topology is 0, or a word such as unconstrained; it is ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.clauses import MOST_VARIABLES, read_beta, require_room, two_valued
from minigibbs.formats.text import Numbers, read_text, without_comments, write_text
from minigibbs.formats.uai import factor_energies
from minigibbs.graph.factors import Factors, Ising, Logical, Table
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.factors.unary import unary_groups
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import simplified

_TOPOLOGY = re.compile(rb"(\s*p[ \t]+qubo[ \t]+)\S+")


class Quadratic(NamedTuple):
    """A function of binary variables: offset + sum of linear * x + sum of bias * x * x."""

    linear: NDArray[np.float64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    bias: NDArray[np.float64]
    offset: float

    def groups(self, beta: float) -> list[Factors]:
        """Build factors whose sum is -beta times the function."""
        fields = self.spin_fields()
        offset = self.offset + self.linear.sum() / 2 + self.bias.sum() / 4
        return spin_groups(fields, self.row, self.column, self.bias / 4, offset, beta)

    def spin_fields(self) -> NDArray[np.float64]:
        """Compute the coefficient of each spin, where x = (1 + spin) / 2."""
        count = len(self.linear)
        sums = np.bincount(self.row, self.bias, count) + np.bincount(self.column, self.bias, count)
        fields: NDArray[np.float64] = self.linear / 2 + sums / 4
        return fields


def spin_groups(
    field: NDArray[np.float64],
    row: NDArray[np.integer],
    column: NDArray[np.integer],
    coupling: NDArray[np.float64],
    offset: float,
    beta: float,
) -> list[Factors]:
    """Build factors whose sum is -beta times a quadratic function of spins."""
    pairs: list[Factors] = [Ising(row, column, -beta * coupling)]
    return pairs + unary_groups(beta * np.stack([field, -field], axis=1), -beta * offset)


def read(path: str | os.PathLike[str], beta: float = 1.0) -> FactorGraph:
    """Read a quadratic function E of binary variables as exp(-beta * E).

    .gz and .xz are decompressed.

    Parameters
    ----------
    path
        The file.
    beta
        The inverse temperature.
    """
    beta = read_beta(beta)
    text, _ = without_comments(read_text(path))
    header = _TOPOLOGY.match(text)
    if header is not None:
        text = header[1] + b"0" + text[header.end() :]
    numbers = Numbers(path, ("p qubo",), text)
    numbers.take(1, "the topology")
    variables = require_room(numbers.integer("the number of variables", 1, MOST_VARIABLES))
    diagonals = numbers.integer("the number of diagonals", 0, 2**53)
    couplers = numbers.integer("the number of couplers", 0, 2**53)
    lines = diagonals + couplers
    rows = numbers.take(3 * lines, "lines: two variables and a bias each").reshape(-1, 3)
    numbers.end()
    ends = rows[:, :2]
    wrong = ~((ends >= 0) & (ends < variables) & (ends == np.floor(ends))).all(axis=1)
    diagonal = ends[:, 0] == ends[:, 1]
    if wrong.any():
        line = int(np.flatnonzero(wrong)[0])
        raise numbers.error(
            f"expected two variables from 0 to {variables - 1}, got {ends[line, 0]:g} and "
            f"{ends[line, 1]:g}",
            back=3 * (lines - line),
        )
    if np.count_nonzero(diagonal) != diagonals:
        raise numbers.error(
            f"expected {diagonals:,} lines with one variable twice, got "
            f"{np.count_nonzero(diagonal):,}",
            back=3 * lines,
        )
    i, j = ends.astype(np.int64).T
    linear: NDArray[np.float64] = np.zeros(variables)
    np.add.at(linear, i[diagonal], rows[diagonal, 2])
    pairs = Quadratic(linear, i[~diagonal], j[~diagonal], rows[~diagonal, 2], 0.0)
    return two_valued(variables, pairs.groups(beta))


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a model of pairs of two-valued variables: E is its energy, up to a constant."""
    write_text(path, _lines(quadratic(graph, path)))


def quadratic(graph: FactorGraph, path: str | os.PathLike[str]) -> Quadratic:
    """Convert a graph's energy to a function of binary variables, without its constant."""
    sizes = np.flatnonzero(graph.sizes != 2)
    if len(sizes):
        raise FormatError(
            f"{path}: the format has variables with 2 values, but "
            f"{graph.domains.describe(int(sizes[0]))} has {graph.sizes[sizes[0]]}"
        )
    if graph.implicits:
        raise FormatError(
            f"{path}: the format lists every factor, but {graph.implicits[0].kind} factors are "
            "implicit; write graph.stored() if it is small"
        )
    if (graph.evidence != FREE).any():
        raise FormatError(f"{path}: the format has no clamped variables, but the graph has some")
    graph = FactorGraph(graph.domains, [_tabulated(group, graph) for group in graph.factors])
    simple = simplified(graph)
    if len(simple.rest):
        raise FormatError(
            f"{path}: the format has pairs of variables, but {graph.where(int(simple.rest[0]))} "
            "has more"
        )
    if not np.isfinite(simple.unary).all():
        raise FormatError(f"{path}: the format has no hard constraints, but the graph has some")
    i, j = simple.pair.T.astype(np.int64)
    weight = simple.pair_weight  # of [x_i == x_j] = 1 - x_i - x_j + 2 x_i x_j
    count = len(graph)
    linear = simple.unary[0::2] - simple.unary[1::2]
    linear = linear + np.bincount(i, weight, count) + np.bincount(j, weight, count)
    return Quadratic(linear, i, j, -2 * weight, 0.0)


def _tabulated(group: Factors, graph: FactorGraph) -> Factors:
    """Convert clauses of two variables to tables, which are pairs and fields; keep other groups."""
    if not isinstance(group, Logical) or group.scope.shape[1] != 2 or not len(group):
        return group
    return Table(group.scope, np.stack(list(factor_energies(group, graph.sizes))))


def _lines(found: Quadratic) -> Iterator[str]:
    some = np.flatnonzero(found.linear).tolist()
    yield f"p qubo 0 {len(found.linear)} {len(some)} {len(found.row)}\n"
    for variable in some:
        yield f"{variable} {variable} {float(found.linear[variable])!r}\n"
    for i, j, bias in zip(
        found.row.tolist(), found.column.tolist(), found.bias.tolist(), strict=True
    ):
        yield f"{i} {j} {bias!r}\n"
