"""The library's own model file, `.mg`: a JSON header and the factor groups' arrays.

It is an uncompressed .npz archive. Member `header.json` holds names, labels, grids, and for each
group its kind and its plain arguments; member `<group>.<argument>.npy` holds an array.
"""

from __future__ import annotations

import os

from minigibbs.graph.encoding import decode, encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import files

FORMAT = "minigibbs-model-1"


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph, evidence and parameters included."""
    header, arrays = encode(graph)
    files.write_arrays(path, {"format": FORMAT, **header}, arrays)


def read(path: str | os.PathLike[str]) -> FactorGraph:
    """Read a graph; everything in it is validated as if a user had typed it."""
    return _read(path)


def read_own(path: str | os.PathLike[str]) -> FactorGraph:
    """The same, where the file must not be a symbolic link: for a model in a checkpoint."""
    return _read(path, links=False)


def read_mapped(path: str | os.PathLike[str]) -> FactorGraph:
    """The same, with the file's arrays mapped into memory rather than read."""
    return _read(path, mapped=True)


def _read(path: str | os.PathLike[str], mapped: bool = False, links: bool = True) -> FactorGraph:
    header, arrays = files.read_arrays(path, FORMAT, mapped=mapped, links=links)
    with files.refusing_damage(path):
        return decode(header, arrays)
