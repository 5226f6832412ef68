"""Conversion of pgmpy's discrete models: Markov networks, factor graphs, Bayesian networks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import combinations
from typing import Any

import numpy as np

from minigibbs.errors import FormatError, GraphError
from minigibbs.formats.networks import conditionals, row_error
from minigibbs.formats.pruning import TableFactor
from minigibbs.formats.tables import assemble
from minigibbs.graph.checks import as_array
from minigibbs.graph.domains import all_values
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import unique_names
from minigibbs.interop.tables import NamedStates, tables
from minigibbs.system.boundary import checked
from minigibbs.system.optional import optional


@checked(GraphError)
def from_pgmpy(model: Any, floor: float | None = None) -> FactorGraph:
    """Convert a pgmpy model to a factor graph, with the names of variables and states.

    Conditional tables and factors become factors. Values that a factor forbids in any state of the
    other variables are removed from their domains, as in UAI files. Other zeros are hard
    constraints.

    Parameters
    ----------
    model : pgmpy model
        A `DiscreteMarkovNetwork`, `FactorGraph` or `DiscreteBayesianNetwork` (in older versions
        `MarkovNetwork` and `BayesianNetwork`), or another model with discrete factors.
    floor : float, optional
        Probabilities below it, including zeros, are raised to it, with a warning. This changes the
        model. By default zeros stay zeros.

    Returns
    -------
    FactorGraph
        One variable per variable of the model.

    Raises
    ------
    GraphError
        If the model is of another kind, a CPD does not sum to 1 within 0.01, or every state has
        probability 0.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], ["rain", "wet"], ["no", "yes"])
    >>> mg.from_pgmpy(mg.to_pgmpy(graph)).domains.values(1)
    ('no', 'yes')
    """
    given = _factors(model)
    variables = _variables(model, given)
    number = {variable: k for k, variable in enumerate(variables)}
    states = _states(given, number)
    factors = [_table(factor, number, states) for factor in given]
    sizes = np.array([len(row) for row in states], dtype=np.int32)
    names, labels = unique_names(variables), dict(enumerate(states))
    try:
        return assemble("the pgmpy model", sizes, factors, floor, names, labels, NamedStates)
    except FormatError as error:
        raise GraphError(str(error)) from None


@checked(GraphError)
def to_pgmpy(graph: FactorGraph, factor_graph: bool = False, network: bool = False) -> Any:
    """Convert a graph to a model of pgmpy: a Markov network, factor graph or Bayesian network.

    Factors become tables of exp(log-potential), one per set of variables. A variable without
    factors gets a table of ones, and a clamped variable a table that forbids its other values.
    States that were removed because they are impossible have probability 0.

    Parameters
    ----------
    graph : FactorGraph
        The model. Implicit factors must be stored first (`graph.stored()`).
    factor_graph : bool, default False
        Whether to build a `pgmpy.models.FactorGraph`.
    network : bool, default False
        Whether to build a `DiscreteBayesianNetwork`. The graph must have one conditional table per
        variable, such as a graph read from a `.bif` file or learned by `mg.learn_tables`.

    Returns
    -------
    pgmpy model
        The model, with labels as state names.

    Raises
    ------
    GraphError
        If the graph has implicit factors, or is not a Bayesian network although `network` is set.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], ["rain", "wet"], ["no", "yes"])
    >>> sorted(mg.to_pgmpy(pair).nodes())
    ['rain', 'wet']
    """
    if network:
        return _to_network(graph)
    models = optional("pgmpy.models", "pgmpy")
    discrete = optional("pgmpy.factors.discrete", "pgmpy")
    names = [graph.domains.name(variable) for variable in range(len(graph))]
    factors = []
    for scope, table in tables(graph, "pgmpy"):
        state_names = {names[v]: list(all_values(graph.domains, v)) for v in scope}
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


def _to_network(graph: FactorGraph) -> Any:
    """Return a product of conditional tables as pgmpy's Bayesian network."""
    models = optional("pgmpy.models", "pgmpy")
    discrete = optional("pgmpy.factors.discrete", "pgmpy")
    names = [graph.domains.name(variable) for variable in range(len(graph))]
    states = {names[v]: list(all_values(graph.domains, v)) for v in range(len(graph))}
    kind = getattr(models, "DiscreteBayesianNetwork", None) or models.BayesianNetwork
    try:
        found = conditionals(graph, "to_pgmpy")
    except FormatError as error:
        raise GraphError(str(error)) from None
    result = kind()
    result.add_nodes_from(names)
    for one in found:
        result.add_edges_from((names[parent], names[one.child]) for parent in one.parents)
        members = [names[v] for v in (one.child, *one.parents)]
        table = np.moveaxis(one.table, -1, 0)
        table = table / table.sum(axis=0)
        cpd = discrete.TabularCPD(
            names[one.child],
            len(table),
            table.reshape(len(table), -1),
            members[1:] or None,
            list(table.shape[1:]) or None,
            {name: states[name] for name in members},
        )
        result.add_cpds(cpd)
    return result


def _factors(model: Any) -> list[Any]:
    """Return the tables of a model, conditional or not."""
    cpds = hasattr(model, "get_cpds") and not isinstance(model, type)
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
    """Return the variables, in the order of the model's nodes as far as possible."""
    found = dict.fromkeys(variable for factor in factors for variable in factor.variables)
    nodes = list(model.nodes())
    if hasattr(model, "get_cpds") or hasattr(model, "to_factor_graph"):
        missing = [node for node in nodes if node not in found]
        if missing:
            raise GraphError(
                f"variable {missing[0]!r} has no factor or CPD that says what its states are"
            )
    return list(dict.fromkeys([node for node in nodes if node in found] + list(found)))


def _states(factors: list[Any], number: dict[Hashable, int]) -> list[tuple[Hashable, ...]]:
    """Return the names of every variable's states; factors without names number them from 0."""
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
    if hasattr(factor, "get_evidence"):  # a TabularCPD
        child, *parents = factor.variables
        labels = {v: list(map(str, states[number[v]])) for v in factor.variables}
        wrong = row_error(table, child, parents, labels)
        if wrong is not None:
            raise GraphError(f"CPD of {child!r}: {wrong}")
    return TableFactor(scope, table)
