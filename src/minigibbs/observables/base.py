"""What an observable is: a function of one state, ready for blocks of states and for a GPU.

An observable is a frozen description. Bound to a graph it becomes a `Measure`: how many numbers it
gives, and a function that evaluates it for each row of `states`, a block [record, variable] of one
chain's states. Whatever layout a backend keeps its chains in, it copies states out and calls that.
For a GPU it gives a compiled function of one state, `function(x, parameters, out)`, and the arrays
that go with it. Where it is a function of sums over the variables it says so, since many threads
can share in those: see `Sums`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.answer import Answer
from minigibbs.system.boundary import checked

Evaluate = Callable[[NDArray[Any], NDArray[np.float64]], None]  # states, out[record, number]


class Terms(NamedTuple):
    """Sums over variables: each says how many of its variables have the value that is wanted."""

    variables: NDArray[np.int32]  # those of the first sum, then those of the second, ...
    wanted: NDArray[np.int64]  # the value of each; -1 for one that none has
    ends: NDArray[np.int64]  # where the variables of each sum end


@dataclass(frozen=True)
class Measure:
    """An observable of one graph.

    Parameters
    ----------
    labels : tuple of str
        Labels of its numbers; `("",)` for a single number.
    evaluate : callable
        A function (states, out): it writes the numbers of each state [record, variable] into out
        [record, number].
    function : compiled function, optional
        The function (x, parameters, out) of one state for compiled code. By default the observable
        cannot be measured on a GPU.
    parameters : tuple of object, default ()
        Arrays that the compiled function reads.
    sums : Sums, optional
        The same observable as a function of sums over variables.

    Attributes
    ----------
    labels : tuple of str
        Labels of its numbers; `("",)` for a single number.
    evaluate : callable
        A function (states, out): it writes the numbers of each state [record, variable] into out
        [record, number].
    function : compiled function or None
        The same for one state in compiled code.
    parameters : tuple
        Arrays that the compiled function reads.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.observables.Energy().bind(graph).width
    1
    """

    labels: tuple[str, ...]
    evaluate: Evaluate
    function: Any = None
    parameters: tuple[Any, ...] = ()
    sums: Sums | None = None  # the same as a function of sums, where it is one

    @property
    def width(self) -> int:
        """Number of numbers."""
        return len(self.labels)


@dataclass(frozen=True)
class Sums:
    """An observable as a function of sums over variables, or of the energy alone.

    Sums of `terms` are whole numbers: they are the same in whatever order they are added up.
    """

    of: Measure  # which takes sums instead of a state
    terms: Callable[[], Terms] | None = None  # None: the one sum is the energy, without the offset


@checked(SampleError)
class Observable(ABC):
    """The base class of observables: numbers that depend on the state. Subclasses are frozen.

    Attributes
    ----------
    name : str
        The name that selects it in `observe=` and on the command line.

    Examples
    --------
    >>> import minigibbs as mg
    >>> isinstance(mg.observables.Energy(), mg.observables.Observable)
    True
    """

    name: ClassVar[str]  # in files and on the command line

    @abstractmethod
    def bind(self, graph: FactorGraph) -> Measure:
        """Prepare the observable for a graph.

        Parameters
        ----------
        graph : FactorGraph
            The model.

        Returns
        -------
        Measure
            Its labels and compiled function.

        Raises
        ------
        SampleError
            If it is not defined for the graph.
        """

    def expected(self, answer: Answer) -> float | None:
        """Compute the exact mean from an exact answer.

        Parameters
        ----------
        answer : Answer
            An exact answer.

        Returns
        -------
        float or None
            The mean; None if it must be measured on draws.
        """
        return None


def plain(
    entry: Any,
    kernel: Any,
    parameters: tuple[Any, ...],
    labels: tuple[str, ...],
    sums: Sums | None = None,
) -> Measure:
    """The measure of compiled functions: `entry` for blocks of states, `kernel` for one."""

    def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
        entry(states, parameters, out)

    return Measure(labels, evaluate, kernel, parameters, sums)


def all_with(values: Sequence[int], count: int) -> Terms:
    """How many of all variables have each of these values."""
    every = np.arange(count, dtype=np.int32)
    ends = count * np.arange(1, len(values) + 1)
    return Terms(np.tile(every, len(values)), np.repeat(np.array(values, np.int64), count), ends)


def need_spins(graph: FactorGraph, what: str, instead: str) -> None:
    """Raise unless every variable has two values."""
    wrong = np.flatnonzero(graph.sizes != 2)
    if len(wrong):
        variable = int(wrong[0])
        raise SampleError(
            f"{what} is for variables of 2 values, but {graph.domains.describe(variable)} has "
            f"{graph.sizes[variable]}; {instead}"
        )


def need_number(inner: Measure, what: str) -> None:
    """Raise unless an observable gives one number."""
    if inner.width != 1:
        raise SampleError(f"{what} takes an observable that is one number, got {inner.width}")


def check_shape(shape: tuple[int, ...], variables: int, what: str) -> tuple[int, ...]:
    """The sides of a lattice of this number of variables."""
    sides = tuple(shape)
    whole = all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and side > 0
        for side in sides
    )
    if not sides or not whole or int(np.prod([int(side) for side in sides])) != variables:
        raise SampleError(f"{what}: shape must be that of {variables} variables, got {shape!r}")
    return tuple(int(side) for side in sides)
