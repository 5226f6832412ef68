"""The errors that minigibbs raises on purpose."""

from __future__ import annotations

from typing import Any


class MinigibbsError(Exception):
    """The base class of all errors of this library.

    Examples
    --------
    >>> import minigibbs as mg
    >>> try:
    ...     mg.FactorGraph([2, 0], [])
    ... except mg.MinigibbsError as error:
    ...     print(error)
    variable 1: a domain needs 1 to 2147483647 values, got 0
    """


class GraphError(MinigibbsError, ValueError):
    """A model is malformed. The message names the factor or variable and what was expected.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.FactorGraph([2, 2], [mg.Potts([0], [7], 1.0)])
    Traceback (most recent call last):
    minigibbs.errors.GraphError: potts factor 0 of group 0 (variables 0, 7): variables must be 0 ...
    """


class SampleError(MinigibbsError, ValueError):
    """A request to sample cannot be carried out as stated.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.sample(mg.models.ising_lattice(side=3, beta=0.2), chains=0)
    Traceback (most recent call last):
    minigibbs.errors.SampleError: chains must be an integer of at least 1, got 0
    """


class StoppedError(SampleError):
    """A run had to stop before its end.

    Attributes
    ----------
    run : Run or None
        The results so far.

    Examples
    --------
    >>> import minigibbs as mg
    >>> try:
    ...     raise mg.StoppedError("the disk is full")
    ... except mg.SampleError as error:
    ...     print(error, error.run)
    the disk is full None
    """

    run: Any = None


class FormatError(MinigibbsError, ValueError):
    """A file does not follow its format, or the format is unknown.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.read("model.txt")
    Traceback (most recent call last):
    minigibbs.errors.FormatError: model.txt: unknown model format '.txt'; known endings: ...
    """


class MissingFileError(FormatError, FileNotFoundError):
    """There is no file or folder at a path that should be read. The message names similar ones.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.load("/nowhere/model.mg")
    Traceback (most recent call last):
    minigibbs.errors.MissingFileError: /nowhere/model.mg: expected a saved model, run, answer or ...
    """


class TooLargeError(MinigibbsError, MemoryError):
    """The work would not fit into memory or a time limit. The message states the requirement.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.exact_distribution(mg.models.ising_lattice(side=10, beta=0.4))
    Traceback (most recent call last):
    minigibbs.errors.TooLargeError: this graph has 1.27e+30 states; enumeration stops at ...
    """


class MissingDependencyError(MinigibbsError, ImportError):
    """An optional package is not installed. The message states the command that installs it.

    Examples
    --------
    >>> import minigibbs as mg
    >>> issubclass(mg.MissingDependencyError, ImportError)
    True
    """


class LearnError(MinigibbsError, ValueError):
    """Parameters cannot be learned as requested. The message names the parameter or the value.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.learn(mg.models.ising_lattice(side=3, beta=0.2), [[0] * 9])
    Traceback (most recent call last):
    minigibbs.errors.LearnError: the graph has no parameters: give factors a name, as in ...
    """
