"""Every error that minigibbs raises on purpose."""

from __future__ import annotations

from typing import Any


class MinigibbsError(Exception):
    """Base of all errors of this library.

    >>> import minigibbs as mg
    >>> try:
    ...     mg.FactorGraph([2, 0], [])
    ... except mg.MinigibbsError as error:
    ...     print(error)
    variable 1: a domain needs 1 to 2147483647 values, got 0
    """


class GraphError(MinigibbsError, ValueError):
    """A model is malformed: the message names the factor or variable and what was expected.

    >>> import minigibbs as mg
    >>> mg.FactorGraph([2, 2], [mg.Potts([0], [7], 1.0)])
    Traceback (most recent call last):
    minigibbs.errors.GraphError: potts factor 0 of group 0 (variables 0, 7): variables must be 0 ...
    """


class SampleError(MinigibbsError, ValueError):
    """A request to sample cannot be carried out as stated.

    >>> import minigibbs as mg
    >>> mg.sample(mg.models.ising_lattice(side=3, beta=0.2), chains=0)
    Traceback (most recent call last):
    minigibbs.errors.SampleError: chains must be an integer of at least 1, got 0
    """


class StoppedError(SampleError):
    """A run had to stop before its end; `run` holds what was sampled until then, if anything.

    >>> import minigibbs as mg
    >>> try:
    ...     raise mg.StoppedError("the disk is full")
    ... except mg.SampleError as error:
    ...     print(error, error.run)
    the disk is full None
    """

    run: Any = None


class FormatError(MinigibbsError, ValueError):
    """A file is not what its format promises.

    >>> import minigibbs as mg
    >>> mg.read("model.txt")
    Traceback (most recent call last):
    minigibbs.errors.FormatError: model.txt: unknown model format '.txt'; known endings: ...
    """


class TooLargeError(MinigibbsError, MemoryError):
    """The work would not fit into memory, or into a time limit: the message says what it needs.

    >>> import minigibbs as mg
    >>> mg.theory.exact_distribution(mg.models.ising_lattice(side=10, beta=0.4))
    Traceback (most recent call last):
    minigibbs.errors.TooLargeError: this graph has 1.27e+30 states; enumeration stops at ...
    """


class MissingDependencyError(MinigibbsError, ImportError):
    """An optional part is not installed: the message gives the line that installs it.

    >>> import minigibbs as mg
    >>> issubclass(mg.MissingDependencyError, ImportError)
    True
    """


class LearnError(MinigibbsError, ValueError):
    """Weights cannot be learned as asked: the message names the parameter or the datum.

    >>> import minigibbs as mg
    >>> mg.learn(mg.models.ising_lattice(side=3, beta=0.2), [[0] * 9])
    Traceback (most recent call last):
    minigibbs.errors.LearnError: the graph has no parameters: give factors a name, as in ...
    """
