"""Maximum-cut instances in rudy's format (.gset, .rud, .mc), such as those of Gset.

The first line has the numbers of vertices and edges. Each following line has the two ends of an
edge, numbered from 1, and its weight. Vertex v has index v - 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.clauses import read_beta, read_count, two_valued
from minigibbs.formats.qubo import Quadratic, quadratic
from minigibbs.formats.text import Numbers, write_text
from minigibbs.graph.factors import Factors, Potts, Unary
from minigibbs.graph.graph import FactorGraph


def read(path: str | os.PathLike[str], beta: float = 1.0) -> FactorGraph:
    """Read a graph as exp(beta * cut), where cut is the weight of edges between unequal vertices.

    At beta 1 the graph's log-potential is the cut, and `mg.maximize` searches for its maximum. .gz
    and .xz are decompressed.

    Parameters
    ----------
    path
        The file.
    beta
        The inverse temperature.
    """
    beta = read_beta(beta)
    numbers = Numbers(path)
    vertices = read_count(numbers)
    edges = numbers.integer("the number of edges", 0, 2**53)
    rows = numbers.take(3 * edges, "edges: two vertices and a weight each").reshape(-1, 3)
    numbers.end()
    ends = rows[:, :2]
    wrong = ~((ends >= 1) & (ends <= vertices) & (ends == np.floor(ends))).all(axis=1)
    wrong |= ends[:, 0] == ends[:, 1]
    if wrong.any():
        edge = int(np.flatnonzero(wrong)[0])
        raise numbers.error(
            f"edge {edge + 1}: expected two vertices from 1 to {vertices} that differ, got "
            f"{ends[edge, 0]:g} and {ends[edge, 1]:g}",
            back=3 * (edges - edge),
        )
    i, j = ends.astype(np.int64).T - 1
    weight = beta * rows[:, 2]
    total = float(weight.sum())
    groups: list[Factors] = [Potts(i, j, -weight)]
    if total:
        groups.append(Unary([0], [[total, total]]))
    return two_valued(vertices, groups)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a model of pairs of two-valued variables, without fields, as a maximum-cut instance.

    The cut is then the graph's log-potential, up to a constant.
    """
    found = quadratic(graph, path)
    field = np.flatnonzero(found.spin_fields())
    if len(field):
        raise FormatError(
            f"{path}: a maximum-cut instance has no fields, but "
            f"{graph.domains.describe(int(field[0]))} has one; write a .qubo file"
        )
    write_text(path, _lines(found, found.bias / 2))


def _lines(found: Quadratic, weight: NDArray[np.float64]) -> Iterator[str]:
    yield f"{len(found.linear)} {len(weight)}\n"
    for i, j, w in zip(found.row.tolist(), found.column.tolist(), weight.tolist(), strict=True):
        yield f"{i + 1} {j + 1} {w!r}\n"
