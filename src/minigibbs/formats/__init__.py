"""Model files: one format a file, chosen by the name's ending."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from minigibbs.errors import FormatError
from minigibbs.formats import native, uai
from minigibbs.graph import FactorGraph

# Each format is a module with read(path) -> FactorGraph and write(graph, path).
FORMATS: dict[str, ModuleType] = {".mg": native, ".uai": uai, ".uai.gz": uai, ".uai.xz": uai}


def read(path: str | os.PathLike[str]) -> FactorGraph:
    """Read a model from a file; the name's ending tells the format.

    >>> import minigibbs as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pair.uai"
    >>> _ = path.write_text("MARKOV 2 2 2 1 2 0 1 4 1.0 2.0 2.0 1.0")
    >>> mg.read(path)
    <FactorGraph: 2 variables; factors: 1 table>
    """
    return _format(path).read(path)  # type: ignore[no-any-return]


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, whole or not at all.

    >>> import minigibbs as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ring.mg"
    >>> mg.write(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]), path)
    >>> mg.read(path)
    <FactorGraph: 2 variables; factors: 1 ising>
    """
    _format(path).write(graph, path)


def _format(path: str | os.PathLike[str]) -> ModuleType:
    for ending, module in FORMATS.items():
        if Path(path).name.endswith(ending):
            return module
    raise FormatError(
        f"{path}: unknown model format {Path(path).suffix!r}; known endings: {', '.join(FORMATS)}"
    )
