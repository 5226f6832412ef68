"""Conversion of a graph to a JSON header and arrays, with evidence, names and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.checks import constant, is_constant
from minigibbs.graph.domains import MOST_SITES, domains_from_header, domains_header
from minigibbs.graph.factors import KINDS
from minigibbs.graph.graph import FactorGraph

_PER_VARIABLE = ("sizes", "evidence")
_COUNT = "variables"  # the number of variables, if an array has one number for all of them
_RENAMED = {"energy": "log_potential"}  # arguments of files before 0.3


def encode(graph: FactorGraph) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the graph's header and arrays."""
    arrays: dict[str, Any] = {"sizes": graph.sizes, "evidence": graph.evidence}
    groups = []
    for number, group in enumerate(graph.factors):
        arguments = group.arrays()
        plain = {k: v for k, v in arguments.items() if isinstance(v, str | bool | int | float)}
        groups.append({"kind": group.kind, "arguments": plain})
        others = {k: v for k, v in arguments.items() if k not in plain}
        arrays |= {f"{number}.{name}": array for name, array in others.items()}
    header = {"groups": groups, **domains_header(graph.domains)}
    for name in _PER_VARIABLE:
        if is_constant(arrays[name]):
            header[_COUNT], arrays[name] = len(graph), arrays[name][:1]
    return header, arrays


def decode(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> FactorGraph:
    """Create the graph, with all validation of user input; raise `ValueError` for other defects."""
    arrays = dict(arrays) | _repeated(header, arrays)
    domains = domains_from_header(header, arrays.pop("sizes"))
    evidence = arrays.pop("evidence")
    groups = []
    for number, described in enumerate(header["groups"]):
        described = dict(described)
        kind = KINDS[described.pop("kind")]
        plain = described.pop("arguments")
        if described:
            raise ValueError(f"group {number} has unknown fields: {', '.join(described)}")
        own = [name for name in arrays if name.startswith(f"{number}.")]
        named = {name.split(".", 1)[1]: arrays.pop(name) for name in own}
        named = {_RENAMED.get(name, name): array for name, array in named.items()}
        groups.append(kind(**plain, **named))
    if arrays:
        raise ValueError(f"it has arrays of no group: {', '.join(arrays)}")
    return FactorGraph(domains, groups, evidence=evidence)


def _repeated(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of one number that stands for all variables, with all their entries."""
    count = header.get(_COUNT)
    if count is None:
        return {}
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MOST_SITES:
        raise ValueError(f"{_COUNT} must be an integer from 1 to {MOST_SITES}, got {count!r}")
    own = {name: np.asarray(arrays[name]) for name in _PER_VARIABLE}
    return {
        name: constant(int(array[0]), count)
        for name, array in own.items()
        if array.shape == (1,) and array.dtype == np.int32
    }
