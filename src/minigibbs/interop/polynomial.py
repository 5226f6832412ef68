"""Conversion of dimod's polynomials of binary variables or spins to factor graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from minigibbs.errors import GraphError
from minigibbs.graph.factors import Factors, Ising, Logical, Table
from minigibbs.graph.factors.base import LARGEST
from minigibbs.graph.factors.unary import unary_groups
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import read_beta, unique_names
from minigibbs.system.boundary import checked

_MOST_SPINS = 16  # maximum number of spins of a product, which becomes a table


@checked(GraphError)
def from_polynomial(polynomial: Any, beta: float = 1.0) -> FactorGraph:
    """Convert a `dimod.BinaryPolynomial` to the distribution exp(-beta * energy).

    A product of binary variables becomes a `Logical` factor of any degree. A product of at most 16
    spins becomes a table, which all products of the same degree share. The graph's energy is beta
    times the polynomial, including its constant.

    Parameters
    ----------
    polynomial : dimod.BinaryPolynomial
        A polynomial of either vartype.
    beta : float, default 1.0
        The inverse temperature.

    Returns
    -------
    FactorGraph
        Value 0 is spin -1 or binary 0; value 1 is 1.

    Raises
    ------
    GraphError
        If a bias is not finite, or a product has too many spins.

    Examples
    --------
    >>> import dimod, minigibbs as mg
    >>> cubic = dimod.BinaryPolynomial({"abc": -2.0, "a": 0.5}, "BINARY")
    >>> graph = mg.from_polynomial(cubic)
    >>> graph, graph.energy([1, 1, 1])
    (<FactorGraph: 3 variables; factors: 1 logical, 1 unary>, -1.5)
    """
    beta = read_beta(beta)
    kind = getattr(getattr(polynomial, "vartype", None), "name", None)
    if kind not in ("BINARY", "SPIN") or not isinstance(polynomial, Mapping):
        raise GraphError(f"expected a dimod.BinaryPolynomial, got {type(polynomial).__name__}")
    variables = sorted(polynomial.variables, key=str)  # type: ignore[attr-defined]
    if not variables:
        raise GraphError("the polynomial has no variables; a graph needs at least one")
    number = {variable: k for k, variable in enumerate(variables)}
    scopes: dict[int, list[list[int]]] = defaultdict(list)
    biases: dict[int, list[float]] = defaultdict(list)
    for term, bias in polynomial.items():
        if not abs(bias) <= LARGEST:
            shown = ", ".join(map(repr, term)) or "no variables"
            raise GraphError(f"term of {shown}: a bias must be finite, got {bias}")
        scopes[len(term)].append(sorted(number[variable] for variable in term))
        biases[len(term)].append(-beta * float(bias))
    groups: list[Factors] = []
    for degree in sorted(set(scopes) - {0, 1}):
        groups.append(_product(kind, np.array(scopes[degree]), np.array(biases[degree])))
    rows = np.zeros((len(variables), 2))
    for (variable,), weight in zip(scopes[1], biases[1], strict=True):
        rows[variable] += [-weight if kind == "SPIN" else 0.0, weight]
    groups += unary_groups(rows, sum(biases[0]))
    labels = [0, 1] if kind == "BINARY" else [-1, 1]
    return FactorGraph(np.full(len(variables), 2), groups, unique_names(variables), labels)


def _product(kind: str, scope: Any, weight: Any) -> Factors:
    """Return the products of one degree, times their weights."""
    degree = scope.shape[1]
    if kind == "BINARY":
        return Logical("and", scope, weight)
    if degree == 2:
        return Ising(scope[:, 0], scope[:, 1], weight)
    if degree > _MOST_SPINS:
        raise GraphError(
            f"a product of {degree} spins becomes a table, of at most {_MOST_SPINS} variables; "
            "convert the polynomial to binary variables, or split the product"
        )
    odd = np.indices((2,) * degree).sum(axis=0) % 2  # parity of the number of spins +1
    return Table(scope, np.where(odd == degree % 2, 1.0, -1.0), weight)
