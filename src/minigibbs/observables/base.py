"""Base class of observables: functions of one state, prepared for blocks of states and for GPUs.

An observable is a frozen description. Bound to a graph it becomes a `Measure` with labels and a
function that evaluates it for each row of `states`, a block [record, variable] of one chain's
states. Backends with other layouts copy states out of them and call this function. For a GPU there
is a compiled function of one state, `function(x, parameters, out)`, and the arrays that it reads.
If an observable is a function of sums over variables it declares them, so that many threads can
compute those: see `Sums`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.checks import some_of
from minigibbs.graph.domains import require_numbers
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.answer import Answer
from minigibbs.system.boundary import checked

Evaluate = Callable[[NDArray[Any], NDArray[np.float64]], None]  # states, out[record, number]


class Terms(NamedTuple):
    """Sums over variables: each counts its variables that have their wanted value."""

    variables: NDArray[np.int32]  # [term] variables of the first sum, then those of the second, ...
    wanted: NDArray[np.int64]  # [term] wanted value; -1 if it matches none
    ends: NDArray[np.int64]  # [sum] end of the terms of each sum


@dataclass(frozen=True)
class Measure:
    """An observable of one graph.

    Parameters
    ----------
    labels : tuple of str
        Labels of its numbers; `("",)` for a single number.
    evaluate : callable
        A function (states, out) that writes the numbers of each state [record, variable] to out
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
        A function (states, out) that writes the numbers of each state [record, variable] to out
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
    sums: Sums | None = None  # the observable as a function of sums, if it is one

    @property
    def width(self) -> int:
        """Number of numbers."""
        return len(self.labels)


@dataclass(frozen=True)
class Sums:
    """An observable as a function of sums over variables, or of the energy alone.

    Sums of `terms` are integers, so they do not depend on the order of additions.
    """

    of: Measure  # reads sums instead of a state
    terms: Callable[[], Terms] | None = None  # None: the only sum is the energy, without offset
    ones: bool = False  # whether the only sum is the number of all variables with value 1


@checked(SampleError)
class Observable(ABC):
    """Base class of observables, numbers that depend on the state. Subclasses are frozen.

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
            Labels and functions of the observable.

        Raises
        ------
        SampleError
            If the observable is not defined for the graph.
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
    """Build a measure from compiled functions: `entry` for blocks of states, `kernel` for one."""

    def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
        entry(states, parameters, out)

    return Measure(labels, evaluate, kernel, parameters, sums)


def all_with(values: Sequence[int], count: int) -> Terms:
    """Return the sums that count the variables with each of these values."""
    require_numbers(count)
    every = np.arange(count, dtype=np.int32)
    ends = count * np.arange(1, len(values) + 1)
    return Terms(np.tile(every, len(values)), np.repeat(np.array(values, np.int64), count), ends)


def need_spins(graph: FactorGraph, what: str, instead: str) -> None:
    """Raise an error unless every variable has two values."""
    wrong = np.flatnonzero(some_of(graph.sizes) != 2)
    if len(wrong):
        variable = int(wrong[0])
        raise SampleError(
            f"{what} is for variables of 2 values, but {graph.domains.describe(variable)} has "
            f"{graph.sizes[variable]}; {instead}"
        )


def need_number(inner: Measure, what: str) -> None:
    """Raise an error unless an observable is one number."""
    if inner.width != 1:
        raise SampleError(f"{what} takes an observable that is one number, got {inner.width}")


def check_shape(shape: tuple[int, ...], variables: int, what: str) -> tuple[int, ...]:
    """Return the sides of a lattice with this number of variables, or raise an error."""
    sides = tuple(shape)
    whole = all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and side > 0
        for side in sides
    )
    if not sides or not whole or int(np.prod([int(side) for side in sides])) != variables:
        raise SampleError(f"{what}: shape must be that of {variables} variables, got {shape!r}")
    return tuple(int(side) for side in sides)
