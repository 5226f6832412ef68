"""pgmpy's discrete models: Markov networks, factor graphs and Bayesian networks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.formats.pruning import TableFactor, cut, prune
from minigibbs.formats.tables import exponentials, group_tables
from minigibbs.formats.uai import factor_energies
from minigibbs.graph.checks import as_array
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import FREE, warn_of_floor
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import unique_names
from minigibbs.system.boundary import checked
from minigibbs.system.optional import optional

_MOST_ENTRIES = 2**20  # of a table that is written for a factor


@checked(GraphError)
def from_pgmpy(model: Any, floor: float | None = None) -> FactorGraph:
    """A pgmpy model as a factor graph, with its variables' names and its states' names.

    Takes a Markov network, a factor graph, or a Bayesian network, whose tables of conditional
    probabilities become factors. States that a factor forbids whatever the others do are taken out
    of their domains, as in UAI files; zeros that remain are hard zeros.

    Parameters
    ----------
    model
        A `DiscreteMarkovNetwork`, `FactorGraph` or `DiscreteBayesianNetwork` (in older versions
        `MarkovNetwork` and `BayesianNetwork`), or another model with discrete factors.
    floor
        Probabilities below it, zeros included, are raised to it after the pruning, with a
        warning: that is another model. By default zeros stay zeros.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], ["rain", "wet"], ["no", "yes"])
    >>> mg.from_pgmpy(mg.to_pgmpy(graph)).domains.values(1)
    ('no', 'yes')
    """
    if floor is not None and not 0 < floor < math.inf:
        raise GraphError(f"floor must be a positive probability, got {floor!r}")
    given = _factors(model)
    variables = _variables(model, given)
    number = {variable: k for k, variable in enumerate(variables)}
    states = _states(given, number)
    factors = [_table(factor, number, states) for factor in given]
    kept = prune(factors)
    for k, left in kept.items():
        if not len(left):
            raise GraphError(
                f"every state has probability 0, since its factors leave no value to "
                f"{variables[k]!r}"
            )
    factors = [cut(factor, kept) for factor in factors]
    domains = NamedStates(unique_names(variables), states, kept)
    if floor is not None:
        zeros = sum(int(np.count_nonzero(table == 0)) for _, table in factors)
        warn_of_floor("from_pgmpy", zeros, f"probability {floor:g}", stacklevel=3)
        factors = [TableFactor(scope, np.maximum(table, floor)) for scope, table in factors]
    return FactorGraph(domains, group_tables(factors))


@checked(GraphError)
def to_pgmpy(graph: FactorGraph, factor_graph: bool = False) -> Any:
    """A graph as pgmpy's `DiscreteMarkovNetwork`, or its `FactorGraph`.

    Factors become tables of exp(energy), one for all that share their variables. A variable
    without factors gets one of ones; a clamped one gets one that forbids its other values.

    Parameters
    ----------
    graph
        The model; implicit factors must be stored first (`graph.stored()`).
    factor_graph
        Whether to build a `pgmpy.models.FactorGraph`.
    """
    models = optional("pgmpy.models", "pgmpy")
    discrete = optional("pgmpy.factors.discrete", "pgmpy")
    names = [graph.domains.name(variable) for variable in range(len(graph))]
    factors = []
    for scope, table in _tables(graph):
        state_names = {names[v]: list(_all_states(graph.domains, v)) for v in scope}
        members = [names[v] for v in scope]
        factors.append(discrete.DiscreteFactor(members, table.shape, table.ravel(), state_names))
    if factor_graph:
        result = models.FactorGraph()
        result.add_nodes_from(names)
        result.add_nodes_from(factors)
        result.add_edges_from((name, f) for f in factors for name in f.variables)
    else:
        kind = getattr(models, "DiscreteMarkovNetwork", None) or models.MarkovNetwork
        result = kind()
        result.add_nodes_from(names)
        result.add_edges_from(pair for f in factors for pair in combinations(f.variables, 2))
    result.add_factors(*factors)
    return result


@checked(GraphError)
class NamedStates(Domains):
    """Domains whose labels are all that a value may be called, pruned or not.

    Parameters
    ----------
    names
        The variables' names.
    states
        The names of each variable's states, before any were pruned.
    kept
        The numbers of those that are left, for each variable that lost some.
    """

    def __init__(
        self,
        names: list[str],
        states: list[tuple[Hashable, ...]],
        kept: dict[int, NDArray[np.int64]],
    ) -> None:
        self.all_states = states
        self.kept = {v: kept.get(v, np.arange(len(row))) for v, row in enumerate(states)}
        labels = [[row[k] for k in self.kept[v]] for v, row in enumerate(states)]
        super().__init__([len(row) for row in labels], names, dict(enumerate(labels)))

    def value(self, variable: int, value: Any) -> int:
        """The number of a value given by its state's name; a pruned state is refused."""
        if not isinstance(value, Hashable) or value not in self.labels[variable]:
            raise GraphError(self._unknown_state(variable, value))
        return super().value(variable, value)

    def _unknown_state(self, variable: int, value: Any) -> str:
        """What an error says of a value that is the name of no state, or of a pruned one."""
        labels, every = self.labels[variable], self.all_states[variable]
        shown = ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")
        text = f"{self.describe(variable)}: expected the name of a state ({shown}), got {value!r}"
        if value in every:
            return f"{text}, which the factors give probability 0"
        number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if number and 0 <= value < len(every):
            return f"{text}; state number {value} is called {every[value]!r}"
        return text


def _factors(model: Any) -> list[Any]:
    """The tables of a model, conditional or not."""
    cpds = hasattr(model, "get_cpds")
    found = model.get_cpds() if cpds else getattr(model, "factors", None)
    if not isinstance(found, Iterable):
        raise GraphError(
            "expected a pgmpy Markov network, factor graph or Bayesian network, got "
            f"{type(model).__name__}"
        )
    factors = list(found)
    for number, factor in enumerate(factors):
        if not all(hasattr(factor, name) for name in ("variables", "values", "state_names")):
            raise GraphError(
                f"factor {number}: expected a discrete one (DiscreteFactor or TabularCPD), got "
                f"{type(factor).__name__}"
            )
    if not factors:
        raise GraphError("the model has no factors; a graph needs at least one variable with one")
    return factors


def _variables(model: Any, factors: list[Any]) -> list[Hashable]:
    """The variables in the order of the model's nodes, where those are variables."""
    found = dict.fromkeys(variable for factor in factors for variable in factor.variables)
    nodes = list(model.nodes())
    if hasattr(model, "get_cpds") or hasattr(model, "to_factor_graph"):
        missing = [node for node in nodes if node not in found]
        if missing:
            raise GraphError(f"variable {missing[0]!r} has no factor that says what its states are")
    return list(dict.fromkeys([node for node in nodes if node in found] + list(found)))


def _states(factors: list[Any], number: dict[Hashable, int]) -> list[tuple[Hashable, ...]]:
    """The names of every variable's states; factors that do not name them say 0, 1, 2, ..."""
    states: list[tuple[Hashable, ...]] = [()] * len(number)
    for factor in factors:
        for variable, size in zip(factor.variables, np.shape(factor.values), strict=True):
            k, plain = number[variable], tuple(range(size))
            named = tuple(factor.state_names.get(variable, plain))
            if len(named) != size:
                raise GraphError(
                    f"variable {variable!r}: a factor has {size} states and {len(named)} names"
                )
            if not states[k] or (len(states[k]) == size and states[k] == plain):
                states[k] = named
            elif named not in (states[k], plain) or len(states[k]) != size:
                raise GraphError(
                    f"variable {variable!r}: its factors must agree on its states and their "
                    f"order, got {list(states[k])} and {list(named)}"
                )
    return states


def _table(
    factor: Any, number: dict[Hashable, int], states: list[tuple[Hashable, ...]]
) -> TableFactor:
    where = f"factor of {', '.join(map(repr, factor.variables))}"
    table = as_array(factor.values, "iufb", f"{where}: values must be real numbers")
    table = table.astype(np.float64)
    scope = tuple(number[variable] for variable in factor.variables)
    bad = np.argwhere(~((table >= 0) & np.isfinite(table)))
    if len(bad):
        at = [states[v][x] for v, x in zip(scope, bad[0], strict=True)]
        raise GraphError(
            f"{where}: values must be finite and not negative, got {table[tuple(bad[0])]} at {at}"
        )
    return TableFactor(scope, table)


def _tables(graph: FactorGraph) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """Tables of exp(energy) over all states, one for each set of variables that share factors."""
    tables = {scope: _probabilities(e, scope) for scope, e in _energies(graph).items()}
    for variable in np.flatnonzero(graph.evidence != FREE).tolist():
        chosen = np.arange(graph.sizes[variable]) == graph.evidence[variable]
        tables[(variable,)] = chosen * tables.get((variable,), 1.0)
    for scope, table in tables.items():
        yield scope, _full(table, scope, graph.domains)


def _energies(graph: FactorGraph) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """The sum of all factors with the same variables; zeros for a variable that has none."""
    if graph.implicits:
        raise GraphError(
            f"{graph.implicits[0].kind}: a pgmpy model lists every factor, but this group is "
            "implicit; convert graph.stored() if it is small"
        )
    total: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for number, group in enumerate(graph.factors):
        entries = graph.sizes.astype(np.float64)[group.scope].prod(axis=1)
        if len(group) and entries.max() > _MOST_ENTRIES:
            raise GraphError(
                f"{group.where(int(entries.argmax()), number)}: a pgmpy factor is a table; this "
                f"one would have {entries.max():.3g} entries, more than {_MOST_ENTRIES:,}"
            )
        for row, energy in zip(group.scope, factor_energies(group, graph.sizes), strict=True):
            order = np.argsort(row)
            scope = tuple(row[order].tolist())
            total[scope] = total.get(scope, 0.0) + energy.transpose(order)
    covered = {variable for scope in total for variable in scope}
    for variable in sorted(set(range(len(graph))) - covered):
        total[(variable,)] = np.zeros(graph.sizes[variable])
    return total


def _probabilities(energy: NDArray[np.float64], scope: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        return exponentials(energy)
    except OverflowError as error:
        raise GraphError(
            f"factors of variables {list(scope)}: a pgmpy factor cannot hold {error}"
        ) from None


def _full(
    table: NDArray[np.float64], scope: tuple[int, ...], domains: Domains
) -> NDArray[np.float64]:
    """A table over all states, with zeros for those that were pruned."""
    if not isinstance(domains, NamedStates):
        return table
    full = np.zeros([len(domains.all_states[v]) for v in scope])
    full[np.ix_(*(domains.kept[v] for v in scope))] = table
    return full


def _all_states(domains: Domains, variable: int) -> tuple[Any, ...]:
    if isinstance(domains, NamedStates):
        return domains.all_states[variable]
    return domains.values(variable)
