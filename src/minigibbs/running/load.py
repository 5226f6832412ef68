"""Function `load`, which reads models, runs and checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minigibbs import formats
from minigibbs.errors import FormatError
from minigibbs.results import answer as answers
from minigibbs.results import fit as fits
from minigibbs.results import run as runs
from minigibbs.running.api import peek
from minigibbs.running.checkpoint.folder import is_checkpoint
from minigibbs.system import files
from minigibbs.system.boundary import checked


@checked(FormatError)
def load(path: str | os.PathLike[str], **options: Any) -> Any:
    """Load a model, a run, an answer, a fit or a checkpoint from a file.

    Parameters
    ----------
    path : str or path
        The file, or the folder of a checkpoint.
    **options : object
        Options of `mg.read` for files of models.

    Returns
    -------
    FactorGraph, Run, Answer or Fit
        The object in the file.

    Raises
    ------
    FormatError
        If the file has an unknown format or is damaged.
    MissingFileError
        If there is no such file or folder.

    Examples
    --------
    >>> import minigibbs as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ring.mg"
    >>> mg.write(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]), path)
    >>> mg.load(path)
    <FactorGraph: 2 variables; factors: 1 ising>
    """
    files.check_source(path, "a saved model, run, answer or fit, or the folder of a checkpoint")
    if not holds_run(path):
        return formats.read(path, **options)
    if options:
        raise FormatError(f"{path}: a run takes no options; got {', '.join(options)}")
    others = {answers.FORMAT: answers.load, fits.FORMAT: fits.load}
    found = None if Path(path).is_dir() else files.stated_format(path)
    if isinstance(found, str) and found in others:
        return others[found](path)
    return load_run(path)


def load_run(path: str | os.PathLike[str]) -> runs.Run:
    """Load a run from a file that `Run.save` wrote, or from a checkpoint folder."""
    return peek(path) if is_checkpoint(path) else runs.load(path)


def holds_run(path: str | os.PathLike[str]) -> bool:
    """Return whether this is a run: a name that is not a model's, or the content of a run."""
    if Path(path).is_dir():
        return is_checkpoint(path)
    if Path(path).name.endswith(".mg"):
        return files.stated_format(path) in (*runs.FORMATS, answers.FORMAT, fits.FORMAT)
    return not Path(path).name.endswith(tuple(formats.FORMATS))
