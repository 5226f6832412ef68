"""Weighted constraint networks (.wcsp): integer costs, which are minimized.

A state of total cost c has the log-potential -beta * c. Costs of at least the file's upper bound
are forbidden.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError
from minigibbs.exact.costs import cost_functions, top_cost
from minigibbs.formats.tables import constant_group
from minigibbs.formats.text import Numbers, read_text, write_text
from minigibbs.graph.domains import MAX_DOMAIN
from minigibbs.graph.factors import Factors, Table
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory

_MOST = 2**53
_MOST_ARITY = 32
_NAME = "minigibbs-unit-"  # followed by the log-potential of one unit of cost
_LARGEST = 2.0**40  # total cost in units, when a graph is written
_FINEST = 1e-9  # log-potential of one unit


def read(path: str | os.PathLike[str], beta: float | None = None) -> FactorGraph:
    """Read a weighted constraint network; .gz and .xz are decompressed.

    Parameters
    ----------
    path : str or PathLike
        The file.
    beta : float or None, default None
        The log-potential of one unit of cost. By default 1, or the unit that `write` stored in the
        file.

    Raises
    ------
    FormatError
        If the file is damaged, or uses global cost functions.
    """
    text = read_text(path)
    name, _, rest = text.lstrip().partition(b" ")
    unit = _unit(path, name) if beta is None else beta
    if not 0 < unit < float("inf"):
        raise FormatError(f"{path}: beta must be a positive number, got {beta!r}")
    numbers = Numbers(path, text=rest)
    count = numbers.integer("the number of variables", 1, _MOST)
    numbers.integer("the largest domain size", 1, MAX_DOMAIN)
    functions = numbers.integer("the number of cost functions", 0, _MOST)
    top = numbers.integer("the upper bound", 0, _MOST)
    sizes = numbers.integers(count, "domain sizes", 1, MAX_DOMAIN)
    found = [_function(numbers, sizes, top, unit) for _ in range(functions)]
    numbers.end()
    groups: list[Factors] = [Table([scope], logs) for scope, logs in found if scope]
    constant = sum(float(logs) for scope, logs in found if not scope)
    return FactorGraph(sizes, groups + constant_group(path, constant, sizes[0]))


def _unit(path: str | os.PathLike[str], name: bytes) -> float:
    """Return the log-potential of one unit of cost, from the name of the network."""
    begin = _NAME.encode()
    if not name.startswith(begin):
        return 1.0
    try:
        return float(name[len(begin) :])
    except ValueError:
        raise FormatError(f"{path}: the name of the network states no unit: {name!r}") from None


def _function(
    numbers: Numbers, sizes: list[int], top: int, unit: float
) -> tuple[list[int], NDArray[np.float64]]:
    """Read the variables of one cost function, and its log-potentials."""
    arity = numbers.integer("the arity of a cost function", 0, _MOST_ARITY)
    scope = numbers.integers(arity, "variables of a cost function", 0, len(sizes) - 1)
    if len(set(scope)) != arity:
        raise numbers.error(f"expected different variables, got {scope}")
    default = numbers.integer("a default cost (global cost functions are not read)", 0, _MOST)
    tuples = numbers.integer("the number of tuples", 0, _MOST)
    shape = [sizes[v] for v in scope]
    entries = float(np.prod(shape, dtype=float))
    memory.require(16 * entries, f"a cost function of {entries:,.0f} entries", "use another format")
    costs = np.full(shape, float(default))
    for _ in range(tuples):
        place = [numbers.integer("a value", 0, size - 1) for size in shape]
        costs[tuple(place)] = numbers.integer("a cost", 0, _MOST)
    return scope, np.where(costs >= top, -np.inf, -unit * costs)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph as costs; log-potentials are rounded, to 1e-9 if they are not too large.

    The name of the network states the unit, so that reading the file gives the same model up to a
    constant.
    """
    _, costs = cost_functions(graph)
    top = top_cost(costs)
    unit = max(_FINEST, top / _LARGEST)
    write_text(path, _lines(graph, costs, unit, round(top / unit) + len(costs) + 1))


def _lines(graph: FactorGraph, costs: list, unit: float, top: int) -> Iterator[str]:  # type: ignore[type-arg]
    largest = int(graph.sizes.max(initial=1))
    yield f"{_NAME}{unit!r} {len(graph)} {largest} {len(costs)} {top}\n"
    yield " ".join(map(str, graph.sizes.tolist())) + "\n"
    for scope, table in costs:
        whole = np.where(np.isfinite(table), np.rint(table / unit), top).astype(np.int64)
        places = np.argwhere(whole > 0).tolist()
        yield f"{len(scope)} {' '.join(map(str, scope))} 0 {len(places)}\n"
        for place in places:
            yield f"{' '.join(map(str, place))} {whole[tuple(place)]}\n"
