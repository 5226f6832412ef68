"""Conversion of dimod's quadratic models to factor graphs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.formats.qubo import Quadratic, spin_groups
from minigibbs.graph.factors import Factors, Potts, Table, Unary
from minigibbs.graph.factors.base import LARGEST
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import read_beta, unique_names
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_TABLE_BYTES = 32  # per table entry, while it is computed and stored


@checked(GraphError)
def from_bqm(bqm: Any, beta: float = 1.0) -> FactorGraph:
    """Convert a `dimod.BinaryQuadraticModel` to the distribution exp(-beta * energy).

    Value 0 is spin -1 or binary 0, and value 1 is 1, as the labels state. The energy of the graph
    is beta times the energy of the model, including the offset. A variable that is not a string is
    named by its printed form.

    Parameters
    ----------
    bqm : dimod.BinaryQuadraticModel
        A model of either vartype.
    beta : float, default 1.0
        The inverse temperature.

    Returns
    -------
    FactorGraph
        One two-valued variable per variable of the model.

    Raises
    ------
    GraphError
        If a bias is not finite.

    Examples
    --------
    >>> import dimod, minigibbs as mg
    >>> bqm = dimod.BinaryQuadraticModel({"a": 1.0}, {"ab": -0.5}, 0.25, "SPIN")
    >>> graph = mg.from_bqm(bqm, beta=2.0)
    >>> graph.energy([1, 0]), float(2.0 * bqm.energy({"a": 1, "b": -1}))
    (3.5, 3.5)
    """
    beta = read_beta(beta)
    variables = _variables(bqm, "BinaryQuadraticModel", ("to_numpy_vectors", "vartype"))
    kind = getattr(bqm.vartype, "name", None)
    if kind not in ("BINARY", "SPIN"):
        raise GraphError(f"expected a dimod.BinaryQuadraticModel, got {type(bqm).__name__}")
    linear, (row, column, bias), _ = bqm.to_numpy_vectors(variables)
    h, coupling = linear.astype(np.float64), bias.astype(np.float64)
    offset = _check_offset(bqm.offset)  # the vectors' offset may be rounded to an integer
    _check_biases(variables, h, row, column, coupling)
    binary = kind == "BINARY"
    if binary:
        groups = Quadratic(h, row, column, coupling, offset).groups(beta)
    else:
        groups = spin_groups(h, row, column, coupling, offset, beta)
    labels = [0, 1] if binary else [-1, 1]
    return FactorGraph(np.full(len(h), 2), groups, unique_names(variables), labels)


@checked(GraphError)
def from_dqm(dqm: Any, beta: float = 1.0) -> FactorGraph:
    """Convert a `dimod.DiscreteQuadraticModel` to the distribution exp(-beta * energy).

    The cases of a variable are its values, in order; a `CaseLabelDQM` gives labels. The interaction
    of two variables becomes a table, or a Potts factor if it has that form. The energy of the graph
    is beta times the energy of the model, including the offset.

    Parameters
    ----------
    dqm : dimod.DiscreteQuadraticModel
        The model.
    beta : float, default 1.0
        The inverse temperature.

    Returns
    -------
    FactorGraph
        One variable per variable of the model.

    Raises
    ------
    GraphError
        If a bias is not finite.

    Examples
    --------
    >>> import dimod, minigibbs as mg
    >>> dqm = dimod.DiscreteQuadraticModel()
    >>> _ = dqm.add_variable(3, "a"), dqm.add_variable(3, "b")
    >>> dqm.set_quadratic("a", "b", {(k, k): -1.5 for k in range(3)})
    >>> mg.from_dqm(dqm)
    <FactorGraph: 2 variables; factors: 1 potts>
    """
    beta = read_beta(beta)
    variables = _variables(dqm, "DiscreteQuadraticModel", ("to_numpy_vectors", "num_cases"))
    vectors = dqm.to_numpy_vectors(return_offset=True)
    starts, linear = vectors.case_starts.astype(np.int64), vectors.linear_biases
    row, column, bias = vectors.quadratic
    ends = np.append(starts, len(linear))
    sizes = np.diff(ends).astype(np.int64)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    _check_biases([variables[k] for k in owner], linear, row, column, bias)
    groups = _unary(-beta * linear, ends, -beta * _check_offset(vectors.offset))
    u, v = owner[row], owner[column]
    cases = _Cases(u, v, row - starts[u], column - starts[v], -beta * bias).ordered()
    labels = {
        k: given
        for k, variable in enumerate(variables)
        if (given := list(dqm.get_cases(variable))) != list(range(sizes[k]))
    }
    return FactorGraph(
        sizes, [*groups, *_pair_groups(cases, sizes)], unique_names(variables), labels or None
    )


class _Cases(NamedTuple):
    """Interactions of cases; each array is [interaction]."""

    u: NDArray[Any]
    v: NDArray[Any]
    case_u: NDArray[Any]
    case_v: NDArray[Any]
    energy: NDArray[np.float64]

    def ordered(self) -> _Cases:
        """Return the interactions with u < v, sorted by pair, without zeros."""
        swap = self.u > self.v
        u, v = np.where(swap, self.v, self.u), np.where(swap, self.u, self.v)
        a, b = np.where(swap, self.case_v, self.case_u), np.where(swap, self.case_u, self.case_v)
        order = np.lexsort((v, u))
        order = order[self.energy[order] != 0]
        return _Cases(u[order], v[order], a[order], b[order], self.energy[order])


def _pair_groups(cases: _Cases, sizes: NDArray[np.int64]) -> list[Factors]:
    """Return Potts factors for pairs with a constant diagonal only, and tables for the others."""
    if not len(cases.u):
        return []
    new = np.append(True, (np.diff(cases.u) != 0) | (np.diff(cases.v) != 0))
    start = np.flatnonzero(new)
    pair = np.cumsum(new) - 1  # [interaction]
    u, v = cases.u[start], cases.v[start]
    alike = (cases.case_u == cases.case_v) & (cases.energy == cases.energy[start][pair])
    potts = np.bincount(pair, alike) == np.minimum(sizes[u], sizes[v])
    potts &= np.bincount(pair) == np.minimum(sizes[u], sizes[v])
    groups: list[Factors] = []
    if potts.any():
        groups.append(Potts(u[potts], v[potts], cases.energy[start][potts]))
    shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k in np.flatnonzero(~potts):
        shapes[int(sizes[u[k]]), int(sizes[v[k]])].append(int(k))
    for shape, members in shapes.items():
        entries = len(members) * shape[0] * shape[1]
        memory.require(
            entries * _TABLE_BYTES,
            f"{len(members):,} tables of {shape[0]} x {shape[1]} cases",
            "use a model with fewer cases",
        )
        place = np.full(len(start), -1)
        place[members] = np.arange(len(members))
        tables = np.zeros((len(members), *shape))
        some = np.flatnonzero(place[pair] >= 0)
        tables[place[pair[some]], cases.case_u[some], cases.case_v[some]] = cases.energy[some]
        groups.append(Table(np.stack([u[members], v[members]], axis=1), tables))
    return groups


def _unary(energy: NDArray[np.float64], ends: NDArray[Any], constant: float) -> list[Factors]:
    """Return unary groups, one per domain size; the constant is added to the first variable."""
    energy = energy.copy()
    energy[: ends[1]] += constant
    sizes = np.diff(ends)
    groups: list[Factors] = []
    for size in np.unique(sizes):
        members = np.flatnonzero(sizes == size)
        rows = energy[ends[members][:, None] + np.arange(size)]
        some = rows.any(axis=1)
        if some.any():
            groups.append(Unary(members[some], rows[some]))
    return groups


def _variables(model: Any, kind: str, needs: tuple[str, ...]) -> list[Any]:
    if not all(hasattr(model, name) for name in (*needs, "variables")):
        raise GraphError(f"expected a dimod.{kind}, got {type(model).__name__}")
    if not len(model.variables):
        raise GraphError("the model has no variables; a graph needs at least one")
    return list(model.variables)


def _check_offset(offset: Any) -> float:
    number = float(offset)
    if not abs(number) <= LARGEST:
        raise GraphError(f"the offset must be finite, got {offset}")
    return number


def _check_biases(
    owners: list[Any],
    linear: NDArray[Any],
    row: NDArray[Any],
    column: NDArray[Any],
    bias: NDArray[Any],
) -> None:
    """Raise for a bias that is not finite, with the names of its variables."""
    bad = np.flatnonzero(~(np.abs(linear) <= LARGEST))
    if len(bad):
        raise GraphError(
            f"variable {owners[bad[0]]!r}: a bias must be finite, got {linear[bad[0]]}"
        )
    bad = np.flatnonzero(~(np.abs(bias) <= LARGEST))
    if len(bad):
        u, v = owners[row[bad[0]]], owners[column[bad[0]]]
        raise GraphError(
            f"interaction of {u!r} and {v!r}: a bias must be finite, got {bias[bad[0]]}"
        )
