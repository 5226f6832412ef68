"""Conversion of a graph to a JSON header and arrays, with evidence, names and parameters."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from minigibbs.graph.domains import domains_from_header, domains_header
from minigibbs.graph.factors import KINDS
from minigibbs.graph.graph import FactorGraph

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
    return {"groups": groups, **domains_header(graph.domains)}, arrays


def decode(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> FactorGraph:
    """Create the graph, with all validation of user input; raise `ValueError` for other defects."""
    arrays = dict(arrays)
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
