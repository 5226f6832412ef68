"""The library's own model file, `.mg`: a JSON header and the factor groups' arrays.

It is an uncompressed .npz archive. Member `header.json` has names, labels, grids, and the kind and
plain arguments of each group. Member `<group>.<argument>.npy` has an array.
"""

from __future__ import annotations

import os

from minigibbs.graph.encoding import decode, encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import files

FORMAT = "minigibbs-model-1"


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph, with evidence and parameters."""
    header, arrays = encode(graph)
    files.write_arrays(path, {"format": FORMAT, **header}, arrays)


def read(path: str | os.PathLike[str]) -> FactorGraph:
    """Read a graph, with all validation of user input."""
    return _read(path)


def read_own(path: str | os.PathLike[str]) -> FactorGraph:
    """Read a graph from a file that must not be a symbolic link: for a model in a checkpoint."""
    return _read(path, links=False)


def read_mapped(path: str | os.PathLike[str]) -> FactorGraph:
    """Read a graph, with the file's arrays mapped into memory."""
    return _read(path, mapped=True)


def _read(path: str | os.PathLike[str], mapped: bool = False, links: bool = True) -> FactorGraph:
    header, arrays = files.read_arrays(path, FORMAT, mapped=mapped, links=links)
    with files.refusing_damage(path):
        return decode(header, arrays)
