"""Counts of values: labels, joint events, agreement with a reference, the order of Potts models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, kernel, literal
from minigibbs.observables.base import Measure, Observable, Sums, Terms, all_with, plain
from minigibbs.results.answer import Answer
from minigibbs.system.boundary import checked

_MOST_TERMS = 1 << 25  # most terms of sums per value; with more, states are counted directly


@checked(SampleError)
@dataclass(frozen=True)
class PottsOrder(Observable):
    """Order parameter of a Potts model: (q f - 1) / (q - 1).

    Here f is the share of variables in the most frequent value and q the largest domain. It is 1 if
    all variables agree, and 0 if all values are equally frequent.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([3, 3, 3], [mg.Potts([0, 1], [1, 2], 9.0)])
    >>> order = mg.observables.PottsOrder()
    >>> run = mg.sample(graph, sweeps=100, seed=1, observe={"order": order}, progress=False)
    >>> run.observables["order"].mean > 0.9
    True
    """

    name = "potts-order"

    def bind(self, graph: FactorGraph) -> Measure:
        """Prepare the observable for a graph with at least two values."""
        values = int(graph.sizes.max())
        if values < 2:
            raise SampleError("potts-order needs variables of 2 values or more; all have one")
        sums = None
        if values * len(graph) <= _MOST_TERMS:
            of = plain(orders_of_counts, order_of_counts, (values, len(graph)), ("",))
            sums = Sums(of, lambda: all_with(range(values), len(graph)))
        return plain(potts_orders, potts_order, (values,), ("",), sums)


@kernel
def potts_order(x, parameters, out):
    """Count by one pass over the state per value, which vectorizes and allocates nothing."""
    values, most = parameters[0], 0
    for value in range(values):
        count = 0
        for i in range(len(x)):
            count += np.int64(x[i] == value)
        if count > most:
            most = count
    out[0] = _order(values, most, len(x))


@literal
def _order(values, most, variables):
    """Return the order parameter, from the count of the most frequent value, by one division."""
    return (values * most - variables) / ((values - 1) * variables)


@literal
def order_of_counts(sums, parameters, out):
    """Compute the order parameter from the count of each value."""
    values, variables = parameters
    most = 0
    for value in range(values):
        most = max(most, np.int64(sums[value]))
    out[0] = _order(values, most, variables)


@entry
def orders_of_counts(sums, parameters, out):
    """Compute the order parameter of each row of counts."""
    for k in range(len(sums)):
        order_of_counts(sums[k], parameters, out[k])


@entry
def potts_orders(states, parameters, out):
    """Compute the order parameter of each row of states."""
    for k in range(len(states)):
        potts_order(states[k], parameters, out[k])


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class Matches(Observable):
    """Share of chosen variables that have given values, or whether all have."""

    @abstractmethod
    def of(self, graph: FactorGraph) -> tuple[NDArray[np.int32], NDArray[np.int64], bool, bool]:
        """Return the variables, the value of each (-1 for none), and how matches are counted.

        The latter is whether all must match, and whether to divide by the number of variables.
        """

    def bind(self, graph: FactorGraph) -> Measure:
        """Prepare the observable for a graph that has the variables and values."""
        variables, wanted, everything, share = self.of(graph)
        parameters = (len(variables), everything, share)
        terms = Terms(variables, wanted, np.array([len(variables)]))
        of = plain(numbers_of_matches, number_of_matches, parameters, ("",))
        sums = Sums(of, lambda: terms)
        whole = (variables, wanted, everything, share)
        return plain(matches_of, matches, whole, ("",), sums)

    def expected(self, answer: Answer) -> float | None:
        """Compute the mean from marginals, or from the joint probability if all must match."""
        if answer.graph is None:
            return None
        variables, wanted, everything, share = self.of(answer.graph)
        if everything:
            given = dict(zip(variables.tolist(), wanted.tolist(), strict=True))
            agree = [given[v] for v in variables.tolist()] == wanted.tolist()
            return answer.probability(given) if agree else 0.0
        known = wanted >= 0
        first = np.cumsum(answer.domains.sizes, dtype=np.int64) - answer.domains.sizes
        total = answer.shares.given[first[variables[known]] + wanted[known]].sum()
        return float(total / len(variables) if share else total)


@kernel
def matches(x, parameters, out):
    """Count the variables that have their wanted value."""
    variables, wanted, everything, share = parameters
    count = 0
    for k in range(len(variables)):
        count += np.int64(np.int64(x[variables[k]]) == wanted[k])
    out[0] = _matching(count, len(variables), everything, share)


@literal
def _matching(count, variables, everything, share):
    """Convert the number of matches to a truth value, a share or a number."""
    if everything:
        return 1.0 if count == variables else 0.0
    return count / variables if share else np.float64(count)


@literal
def number_of_matches(sums, parameters, out):
    """Convert the number of matches to the observable."""
    variables, everything, share = parameters
    out[0] = _matching(np.int64(sums[0]), variables, everything, share)


@entry
def numbers_of_matches(sums, parameters, out):
    """Convert each row of counts to the observable."""
    for k in range(len(sums)):
        number_of_matches(sums[k], parameters, out[k])


@entry
def matches_of(states, parameters, out):
    """Compute the observable of each row of states."""
    for k in range(len(states)):
        matches(states[k], parameters, out[k])


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class Count(Matches):
    """Number of variables that have a value.

    Parameters
    ----------
    value : int or str, default 1
        The value, by index or label.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.0)], labels=["no", "yes"])
    >>> sick = mg.observables.Count("yes")
    >>> run = mg.sample(graph, sweeps=500, seed=1, observe={"sick": sick}, progress=False)
    >>> abs(run.observables["sick"].mean - 1.0) < 0.2
    True
    """

    name = "count"
    value: int | str = 1

    def of(self, graph: FactorGraph) -> tuple[NDArray[np.int32], NDArray[np.int64], bool, bool]:
        """Return all variables; -1 for those that do not have the value."""
        domains, wanted = graph.domains, np.full(len(graph), -1, np.int64)
        if isinstance(self.value, str):
            for variable in range(len(graph)):
                called = domains.values(variable)
                if self.value in called:
                    wanted[variable] = called.index(self.value)
        elif isinstance(self.value, int | np.integer) and not isinstance(self.value, bool):
            wanted[graph.sizes > self.value] = self.value if self.value >= 0 else -1
        if (wanted < 0).all():
            raise SampleError(f"count: no variable has a value {self.value!r}")
        return np.arange(len(graph), dtype=np.int32), wanted, False, False


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class JointEvent(Matches):
    """Indicator: 1 if every given variable has its given value, else 0. Its mean is a probability.

    Parameters
    ----------
    where : mapping, default ()
        Variables, by index or name, to values or labels.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"])
    >>> both = mg.observables.JointEvent({"a": 1, "b": 1})
    >>> run = mg.sample(graph, sweeps=4000, seed=1, observe={"both": both}, progress=False)
    >>> abs(run.observables["both"].mean - 0.3655) < 0.03
    True
    """

    name = "all-hold"
    where: Any = ()  # variable to value, or pairs of them

    def __post_init__(self) -> None:
        pairs = self.where.items() if isinstance(self.where, Mapping) else self.where
        try:
            kept = tuple((variable, value) for variable, value in pairs)
        except (TypeError, ValueError):
            kept = ()
        if not kept:
            raise SampleError(
                'all-hold takes variables and their values, such as {"a": 1, "b": 0}; '
                f"got {self.where!r}"
            )
        object.__setattr__(self, "where", kept)

    def of(self, graph: FactorGraph) -> tuple[NDArray[np.int32], NDArray[np.int64], bool, bool]:
        """Return the indices of the variables and values."""
        variables = [graph.domains.index(variable) for variable, _ in self.where]
        values = [
            graph.domains.value(number, value)
            for number, (_, value) in zip(variables, self.where, strict=True)
        ]
        return np.array(variables, np.int32), np.array(values, np.int64), True, False


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class Agreement(Matches):
    """Share of variables that have the same value as in a reference state, from 0 to 1.

    For spins, the overlap with a pattern is 2 a - 1.

    Parameters
    ----------
    reference : array-like, default ()
        One value index per variable.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=3, beta=0.3, periodic=False)
    >>> same = mg.observables.Agreement([1] * 9)
    >>> run = mg.sample(graph, sweeps=50, seed=1, observe={"same": same}, progress=False)
    >>> 0 < run.observables["same"].mean < 1
    True
    """

    name = "agreement"
    reference: ArrayLike = ()

    def of(self, graph: FactorGraph) -> tuple[NDArray[np.int32], NDArray[np.int64], bool, bool]:
        """Return all variables with the values of the reference."""
        reference = graph.check_states(self.reference)
        if reference.ndim != 1:
            raise SampleError(f"agreement takes one state, got shape {reference.shape}")
        every = np.arange(len(graph), dtype=np.int32)
        return every, reference.astype(np.int64), False, True
