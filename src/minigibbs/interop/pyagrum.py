"""Conversion of pyAgrum's discrete models: Bayesian networks and Markov random fields."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from minigibbs.errors import FormatError, GraphError
from minigibbs.formats.networks import conditionals, row_error
from minigibbs.formats.pruning import TableFactor
from minigibbs.formats.tables import assemble
from minigibbs.graph.domains import all_values
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import unique_names
from minigibbs.interop.tables import tables
from minigibbs.system.boundary import checked
from minigibbs.system.optional import optional


@checked(GraphError)
def from_pyagrum(model: Any, floor: float | None = None) -> FactorGraph:
    """Convert a pyAgrum model to a factor graph, with the names of variables and labels.

    Each conditional table or factor becomes a factor. States that a factor forbids in any state of
    the other variables are removed from their domains, as in UAI files. Other zeros are hard
    constraints.

    Parameters
    ----------
    model : pyagrum.BayesNet or pyagrum.MarkovRandomField
        The model.
    floor : float or None, default None
        Probabilities below it, including zeros, are raised to it, with a warning. This changes the
        model. By default zeros stay zeros.

    Returns
    -------
    FactorGraph
        Variables in the order of their ids. A value is a label or its index, as in pyAgrum.

    Raises
    ------
    GraphError
        If the model is of another kind, a conditional table does not sum to 1 within 0.01, or every
        state has probability 0.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], ["rain", "wet"], ["no", "yes"])
    >>> mg.from_pyagrum(mg.to_pyagrum(graph)).condition({"wet": "yes"})
    <FactorGraph: 2 variables, 1 clamped; factors: 1 table>
    """
    ids = _ids(model)
    number = {model.variable(node).name(): k for k, node in enumerate(ids)}
    labels = {k: list(model.variable(node).labels()) for k, node in enumerate(ids)}
    found = [model.cpt(node) for node in ids] if hasattr(model, "cpt") else _factors(model)
    factors = []
    for tensor in found:
        scope = tuple(number[name] for name in reversed(tensor.names))  # the axes of its array
        # Not toarray(): that of a rule, such as noisy-OR, returns memory that was never filled.
        table = np.array(tensor[{}], dtype=np.float64)
        if not ((table >= 0) & np.isfinite(table)).all():
            raise GraphError(
                f"factor of {', '.join(map(repr, tensor.names))}: values must be finite and not "
                f"negative, got {table[~((table >= 0) & np.isfinite(table))][0]}"
            )
        if hasattr(model, "cpt"):
            child, *parents = tensor.names
            states = {name: labels[number[name]] for name in tensor.names}
            wrong = row_error(np.moveaxis(table, -1, 0), child, parents[::-1], states)
            if wrong is not None:
                raise GraphError(f"cpt of {child!r}: {wrong}")
        factors.append(TableFactor(scope, table))
    sizes = np.array([len(labels[k]) for k in range(len(ids))], dtype=np.int32)
    try:
        return assemble("the pyAgrum model", sizes, factors, floor, list(number), labels)
    except FormatError as error:
        raise GraphError(str(error)) from None


@checked(GraphError)
def to_pyagrum(graph: FactorGraph, bayes: bool = False) -> Any:
    """Convert a graph to pyAgrum's `MarkovRandomField`, or its `BayesNet`.

    Parameters
    ----------
    graph : FactorGraph
        The model. Implicit factors must be stored first (`graph.stored()`). All factors with the
        same variables become one table of exp(log-potential). A variable without factors gets a
        table of ones, and a clamped one gets a table that forbids its other values. States that
        were removed because they are impossible have probability 0.
    bayes : bool, default False
        Whether to build a `BayesNet`. The graph must then be a product of conditional
        probabilities, as one that was read from a network is.

    Returns
    -------
    pyagrum.MarkovRandomField or pyagrum.BayesNet
        Labels are strings, as in pyAgrum.

    Raises
    ------
    GraphError
        If the graph has implicit factors or tables that are too large, or is not a Bayesian
        network although one was requested.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], ["rain", "wet"], ["no", "yes"])
    >>> field = mg.to_pyagrum(graph)
    >>> field.variable("rain").labels()
    ('no', 'yes')
    """
    with warnings.catch_warnings():  # lazy imports would fail on warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        gum = optional("pyagrum", "pyagrum")
        return _network(gum, graph) if bayes else _field(gum, graph)


def _field(gum: Any, graph: FactorGraph) -> Any:
    """Return a graph as a `MarkovRandomField`."""
    model = gum.MarkovRandomField()
    names = _add_variables(gum, model, graph)
    for scope, table in tables(graph, "pyAgrum"):
        members = [names[v] for v in scope]
        tensor = model.addFactor(members)
        tensor[:] = _arranged(table, members, tensor.names)
    return model


def _network(gum: Any, graph: FactorGraph) -> Any:
    """Return a graph as a `BayesNet`."""
    try:
        found = conditionals(graph, "pyAgrum")
    except FormatError as error:
        raise GraphError(str(error)) from None
    model = gum.BayesNet()
    names = _add_variables(gum, model, graph)
    for child, parents, _ in found:
        for parent in parents:
            model.addArc(names[parent], names[child])
    for child, parents, table in found:
        members = [names[v] for v in (*parents, child)]
        tensor = model.cpt(names[child])
        tensor[:] = _arranged(table, members, tensor.names)
    return model


def _add_variables(gum: Any, model: Any, graph: FactorGraph) -> list[str]:
    """Add the variables of a graph to a model; returns their names."""
    names = [graph.domains.name(v) for v in range(len(graph))]
    for variable, name in enumerate(names):
        labels = unique_names(all_values(graph.domains, variable))
        model.add(gum.LabelizedVariable(name, name, labels))
    return names


def _arranged(table: Any, members: list[str], names: tuple[str, ...]) -> Any:
    """Return a table with its axes in pyAgrum's order, the last name first."""
    axes = [members.index(name) for name in reversed(names)]
    return np.ascontiguousarray(table.transpose(axes), dtype=np.float64)


def _ids(model: Any) -> list[Any]:
    needed = ("nodes", "variable", "names")
    kind = hasattr(model, "cpt") or (hasattr(model, "factors") and hasattr(model, "factor"))
    kind &= not isinstance(model, type) and not hasattr(model, "utility")
    if not (kind and all(hasattr(model, name) for name in needed)):
        raise GraphError(
            f"expected a pyagrum.BayesNet or MarkovRandomField, got {type(model).__name__}"
        )
    ids = sorted(model.nodes())
    if not ids:
        raise GraphError("the model has no variables; a graph needs at least one")
    return ids


def _factors(model: Any) -> list[Any]:
    return [model.factor(ids) for ids in sorted(model.factors(), key=sorted)]
