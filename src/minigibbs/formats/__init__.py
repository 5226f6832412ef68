"""Model files: one module per format, selected by the ending of the name."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from minigibbs.errors import FormatError
from minigibbs.formats import (
    bif,
    cfn,
    cnf,
    dimmwitted,
    gset,
    native,
    qubo,
    uai,
    wcnf,
    wcsp,
    xmlbif,
)
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.boundary import checked
from minigibbs.system.files import check_source
from minigibbs.system.progress import Delayed


def _packed(ending: str, module: ModuleType) -> dict[str, ModuleType]:
    """Return the entries of a format that is read and written plain or compressed."""
    return {f"{ending}{packing}": module for packing in ("", ".gz", ".xz")}


# Each format is a module with read(path, ...) -> FactorGraph and write(graph, path).
FORMATS: dict[str, ModuleType] = {
    ".mg": native,
    **_packed(".uai", uai),
    **_packed(".bif", bif),
    **_packed(".xmlbif", xmlbif),
    **_packed(".bifxml", xmlbif),
    **_packed(".cnf", cnf),
    **_packed(".wcnf", wcnf),
    **_packed(".wcsp", wcsp),
    **_packed(".cfn", cfn),
    **_packed(".qubo", qubo),
    **_packed(".gset", gset),
    **_packed(".rud", gset),
    **_packed(".mc", gset),
    "graph.meta": dimmwitted,  # or its folder
}


@checked(FormatError)
def read(path: str | os.PathLike[str], **options: Any) -> FactorGraph:
    """Read a model from a file, or from a folder with a `graph.meta`.

    Parameters
    ----------
    path : str or path
        The file or folder. The ending of the name decides the format.
    **options : object
        Options of the format: `floor` for .uai, .bif and .xmlbif, `hard` for .cnf and .wcnf, `beta`
        for .wcnf, .wcsp, .cfn, .qubo and .gset, `evidence` and `weights` for DimmWitted's graphs.

    Returns
    -------
    FactorGraph
        The model.

    Raises
    ------
    FormatError
        If the format is unknown, or the file violates its format.
    MissingFileError
        If there is no such file.

    Examples
    --------
    >>> import minigibbs as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pair.uai"
    >>> _ = path.write_text("MARKOV 2 2 2 1 2 0 1 4 1.0 2.0 2.0 1.0")
    >>> mg.read(path)
    <FactorGraph: 2 variables; factors: 1 table>
    """
    module = _format(path)
    for option in options:
        taken = list(inspect.signature(module.read).parameters)[1:]
        if option not in taken:
            takes = f"takes {', '.join(taken)}" if taken else "takes no options"
            raise FormatError(f"{path}: reading this format {takes}; got {option}")
    check_source(path, "a model file")
    with Delayed(f"reading {Path(path).name}"):
        return module.read(path, **options)  # type: ignore[no-any-return]


@checked(FormatError)
def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a model to a file. An interrupted write leaves no partial file.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    path : str or path
        The file. The ending of the name decides the format.

    Raises
    ------
    FormatError
        If the format is unknown or cannot represent the model.

    Examples
    --------
    >>> import minigibbs as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ring.mg"
    >>> mg.write(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]), path)
    >>> mg.read(path)
    <FactorGraph: 2 variables; factors: 1 ising>
    """
    module = _format(path)
    with Delayed(f"writing {Path(path).name}"):
        module.write(graph.with_pairs() if module is not native else graph, path)


def _format(path: str | os.PathLike[str]) -> ModuleType:
    if Path(path).is_dir():
        return dimmwitted
    for ending, module in FORMATS.items():
        if Path(path).name.endswith(ending):
            return module
    raise FormatError(
        f"{path}: unknown model format {Path(path).suffix!r}; known endings: {', '.join(FORMATS)}"
    )
