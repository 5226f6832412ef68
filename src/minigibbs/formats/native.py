"""The library's own model file, `.mg`: a JSON header and the factor groups' arrays.

It is an uncompressed .npz archive. Member `header.json` holds names, labels, grids, and for each
group its kind and its plain arguments; member `<group>.<argument>.npy` holds an array.
"""

from __future__ import annotations

import os
from typing import Any

from minigibbs.graph.domains import domains_from_header, domains_header
from minigibbs.graph.factors import KINDS
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import files

_FORMAT = "minigibbs-model-1"


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph, evidence included."""
    arrays: dict[str, Any] = {"sizes": graph.sizes, "evidence": graph.evidence}
    groups = []
    for number, group in enumerate(graph.factors):
        arguments = group.arrays()
        plain = {k: v for k, v in arguments.items() if isinstance(v, str | bool | int | float)}
        groups.append({"kind": group.kind, "arguments": plain})
        others = {k: v for k, v in arguments.items() if k not in plain}
        arrays |= {f"{number}.{name}": array for name, array in others.items()}
    header = {"format": _FORMAT, "groups": groups, **domains_header(graph.domains)}
    files.write_arrays(path, header, arrays)


def read(path: str | os.PathLike[str]) -> FactorGraph:
    """Read a graph; everything in it is validated as if a user had typed it."""
    return _read(path, False)


def read_mapped(path: str | os.PathLike[str]) -> FactorGraph:
    """The same, with the file's arrays mapped into memory rather than read."""
    return _read(path, True)


def _read(path: str | os.PathLike[str], mapped: bool) -> FactorGraph:
    header, arrays = files.read_arrays(path, _FORMAT, mapped=mapped)
    with files.refusing_damage(path):
        domains = domains_from_header(header, arrays.pop("sizes"))
        evidence = arrays.pop("evidence")
        groups = []
        for number, described in enumerate(header["groups"]):
            kind = KINDS[described.pop("kind")]
            plain = described.pop("arguments")
            if described:
                raise ValueError(f"group {number} has unknown fields: {', '.join(described)}")
            own = [name for name in arrays if name.startswith(f"{number}.")]
            named = {name.split(".", 1)[1]: arrays.pop(name) for name in own}
            groups.append(kind(**plain, **named))
        if arrays:
            raise ValueError(f"it has arrays of no group: {', '.join(arrays)}")
        graph = FactorGraph(domains, groups, evidence=evidence)
    return graph
