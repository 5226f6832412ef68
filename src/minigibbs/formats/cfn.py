"""Cost function networks (.cfn): JSON with names, labels and decimal costs.

A state of total cost c has the log-potential -beta * c. The file states an upper bound, such as
"<12.5": a cost of at least the bound is forbidden. With ">" the network is maximized, and its
numbers are log-potentials.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigibbs.errors import FormatError
from minigibbs.exact.costs import cost_functions, top_cost
from minigibbs.formats.tables import constant_group
from minigibbs.formats.text import read_text, write_text
from minigibbs.graph.factors import Factors, Table
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory

_DIGITS = 9  # decimals of costs


def read(path: str | os.PathLike[str], beta: float = 1.0) -> FactorGraph:
    """Read a cost function network; .gz and .xz are decompressed.

    Parameters
    ----------
    path : str or PathLike
        The file.
    beta : float, default 1
        The log-potential of one unit of cost.

    Raises
    ------
    FormatError
        If the file is damaged, or uses global cost functions.
    """
    if not 0 < beta < math.inf:
        raise FormatError(f"{path}: beta must be a positive number, got {beta!r}")
    try:
        whole = json.loads(read_text(path))
        sign, top = _bound(whole["problem"]["mustbe"])
        names, labels = _variables(whole["variables"])
        functions = whole["functions"]
        listed = functions.values() if isinstance(functions, Mapping) else functions
        groups, constant = list[Factors](), 0.0
        for function in listed:
            scope, costs = _costs(function, names, labels)
            with np.errstate(invalid="ignore"):
                forbidden = sign * costs >= top
            logs = np.where(forbidden, -np.inf, -beta * sign * costs)
            if scope:
                groups.append(Table([scope], logs))
            else:
                constant += float(logs)
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FormatError(f"{path}: this is not a cost function network: {error!r}") from error
    named = {k: row for k, row in enumerate(labels) if not isinstance(row, range)}
    sizes = [len(row) for row in labels]
    groups += constant_group(path, constant, sizes[0] if sizes else 0)
    return FactorGraph(sizes, groups, names, named or None)


def _bound(text: str) -> tuple[float, float]:
    """Return 1 for costs or -1 for gains, and the bound of costs."""
    sign = {"<": 1.0, ">": -1.0}[text[0]]
    return sign, sign * float(text[1:])


def _variables(given: Any) -> tuple[list[str], list[Sequence[Any]]]:
    """Return the names and the labels of each variable; numbers if there are no labels."""
    pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
    names, labels = list[str](), list[Sequence[Any]]()
    for name, values in pairs:
        names.append(str(name))
        if isinstance(values, bool) or not isinstance(values, int | list):
            raise ValueError(f"variable {name!r}: expected a number of values or their labels")
        labels.append(range(abs(values)) if isinstance(values, int) else values)
    return names, labels


def _costs(
    function: Mapping[str, Any], names: list[str], labels: list[Sequence[Any]]
) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Return the variables and the costs of one function."""
    if "type" in function:
        raise ValueError(f"global cost functions are not read, such as {function['type']!r}")
    scope = [v if isinstance(v, int) else names.index(v) for v in function["scope"]]
    rows = [labels[v] for v in scope]
    shape, costs = [len(row) for row in rows], function["costs"]
    if "defaultcost" not in function:
        return scope, np.array(costs, dtype=np.float64).reshape(shape)
    entries = math.prod(shape)
    memory.require(16 * entries, f"a cost function of {entries:,} entries", "use smaller tables")
    table = np.full(shape, float(function["defaultcost"]))
    width = len(scope) + 1
    if len(costs) % width:
        raise ValueError(f"expected tuples of {width} numbers, got {len(costs)} numbers")
    for first in range(0, len(costs), width):
        *place, cost = costs[first : first + width]
        at = [v if isinstance(v, int) else row.index(v) for v, row in zip(place, rows, strict=True)]
        table[tuple(at)] = cost
    return scope, table


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph as costs with names and labels; costs are rounded to 1e-9.

    Reading the file gives the same model up to a constant.
    """
    _, costs = cost_functions(graph)
    top = round(top_cost(costs), _DIGITS)
    domains = graph.domains
    variables = {
        domains.name(v): [str(value) for value in domains.values(v)]
        if v in domains.labels
        else int(graph.sizes[v])
        for v in range(len(graph))
    }
    functions = {
        f"f{number}": {
            "scope": [domains.name(v) for v in scope],
            "costs": np.where(np.isfinite(table), table.round(_DIGITS), top).ravel().tolist(),
        }
        for number, (scope, table) in enumerate(costs)
    }
    problem = {"name": "minigibbs", "mustbe": f"<{top:.{_DIGITS}f}"}
    text = json.dumps({"problem": problem, "variables": variables, "functions": functions})
    write_text(path, [text, "\n"])
