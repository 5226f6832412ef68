"""Conversion of dimod's constrained quadratic models to factor graphs.

Every variable of the model is a function of one variable of the graph: either its own, or the one
that represents a whole one-hot constraint. The objective and the constraints are sums over these
functions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.factors import Factors, Table, Unary
from minigibbs.graph.factors.base import LARGEST
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import read_beta, unique_names
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_MOST_ENTRIES = 2**14  # maximum number of entries in the table of a hard constraint
_MOST_SCOPE = 14  # maximum number of variables of such a table
_MOST_VALUES = 2**16  # maximum number of values of an integer variable or a slack
_MOST_COUNT = 2**20  # maximum number of entries in a table of counting variables
_ENTRY_BYTES = 40  # bytes of memory per table entry while the graph is built
_RELATIVE, _ABSOLUTE = 1e-6, 1e-8  # tolerances of a constraint, as in dimod

ONE_HOT, ALWAYS, TABLE = "one-hot", "always", "table"
COUNTING, PENALTY, SOFT = "counting", "penalty", "soft"


@checked(GraphError, init=False)
@dataclass(frozen=True, eq=False)
class Constrained:
    """A graph made from a constrained quadratic model, and the conversion of its states.

    Attributes
    ----------
    graph : FactorGraph
        The model.
    variables : tuple
        The variables of the constrained model, in its order.
    constraints : dict
        The representation of each constraint, by label: "one-hot" (one variable with a value per
        member), "always" (every state satisfies it), "table" (a hard factor), "counting" (hard
        factors over counting variables), "penalty" (violations are improbable) or "soft".
    penalty : float
        The weight of a squared violation in constraints that became penalties.

    Examples
    --------
    >>> import dimod, minigibbs as mg
    >>> cqm = dimod.ConstrainedQuadraticModel()
    >>> _ = cqm.add_discrete(["red", "green", "blue"], label="color")
    >>> model = mg.from_cqm(cqm)
    >>> model.graph.domains.values(0), model.constraints
    (('red', 'green', 'blue'), {'color': 'one-hot'})
    >>> model.samples([[2]])
    array([[0., 0., 1.]])
    """

    graph: FactorGraph
    variables: tuple[Hashable, ...]
    constraints: dict[Hashable, str]
    penalty: float
    places: dict[Hashable, Place] = field(repr=False)

    def samples(self, states: ArrayLike) -> NDArray[np.float64]:
        """Convert states of the graph to values of the variables of the constrained model.

        Parameters
        ----------
        states : array-like
            States of the graph, one per row.

        Returns
        -------
        ndarray
            One row per state, one column per variable, in the order of `variables`.
        """
        rows = np.atleast_2d(self.graph.check_states(states))
        columns = [
            self.places[v].values[rows[:, self.places[v].owner].astype(np.intp)]
            for v in self.variables
        ]
        return np.stack(columns, axis=1) if columns else np.empty((len(rows), 0))


class Place(NamedTuple):
    """A variable of a constrained model: a function of one variable of the graph."""

    owner: int
    values: NDArray[np.float64]  # [value of the owner]


class Linear(NamedTuple):
    """A sum of functions of single variables of the graph, and a constant."""

    terms: dict[int, NDArray[np.float64]]  # by variable
    constant: float

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest value of the sum."""
        low = sum(float(term.min()) for term in self.terms.values())
        high = sum(float(term.max()) for term in self.terms.values())
        return self.constant + low, self.constant + high


@checked(GraphError)
def from_cqm(
    cqm: Any,
    beta: float = 1.0,
    *,
    penalty: float | None = None,
    wide: Literal["penalty", "counting"] = "penalty",
) -> Constrained:
    """Convert a `dimod.ConstrainedQuadraticModel` to exp(-beta * objective) on feasible states.

    A one-hot constraint becomes one variable with one value per member. Another constraint becomes
    a hard factor if its table has at most 2^14 entries over at most 14 variables. A wider linear
    constraint becomes a penalty, or an exact count with `wide="counting"`. The attribute
    `constraints` of the result lists these choices. Soft constraints keep their weight.

    Parameters
    ----------
    cqm : dimod.ConstrainedQuadraticModel
        The model, of binary, spin and bounded integer variables.
    beta : float, default 1.0
        The inverse temperature. It multiplies the objective, soft constraints and penalties.
    penalty : float or None, default None
        The weight of a squared violation in constraints that become penalties. By default an upper
        bound on the change of the objective by one variable.
    wide : {"penalty", "counting"}, default "penalty"
        Representation of constraints that are too wide for a table. A penalty adds a slack variable
        for an inequality; states may then violate the constraint. Counting adds variables for
        partial sums. It is exact, and meant for `mg.infer`: chains that update one variable at a
        time cannot move.

    Returns
    -------
    Constrained
        The graph, and the conversion of its states.

    Raises
    ------
    GraphError
        If the model has real variables, integers without usable bounds, biases that are not
        finite, a constraint that no state satisfies, or one that cannot be represented.

    Examples
    --------
    >>> import dimod, minigibbs as mg
    >>> x, y, z = dimod.Binaries(["x", "y", "z"])
    >>> cqm = dimod.ConstrainedQuadraticModel()
    >>> cqm.set_objective(x - 2 * y - 3 * z)
    >>> _ = cqm.add_constraint(x + 2 * y + 2 * z <= 3, label="capacity")
    >>> model = mg.from_cqm(cqm)
    >>> best = mg.maximize(model.graph, rounds=50, seed=1, progress=False)
    >>> dict(zip(model.variables, model.samples(best.state)[0].tolist()))
    {'x': 0.0, 'y': 0.0, 'z': 1.0}
    """
    beta = read_beta(beta)
    needed = ("constraints", "objective", "discrete", "upper_bound")
    if not all(hasattr(cqm, name) for name in needed):
        raise GraphError(f"expected a dimod.ConstrainedQuadraticModel, got {type(cqm).__name__}")
    if not len(cqm.variables):
        raise GraphError("the model has no variables; a graph needs at least one")
    if penalty is not None and not 0 < penalty <= LARGEST:
        raise GraphError(f"penalty must be a finite number above 0, got {penalty}")
    builder = _Builder(cqm)
    builder.add(cqm.objective, 1.0, "the objective")
    weight = builder.largest_range() if penalty is None else float(penalty)
    for label, comparison in cqm.constraints.items():
        if label not in builder.kinds:
            builder.kinds[label] = builder.constrain(label, comparison, weight, wide)
    kinds = {label: builder.kinds[label] for label in cqm.constraints}
    variables = tuple(cqm.variables)
    return Constrained(builder.graph(beta), variables, kinds, weight, builder.places)


class _Builder:
    """The variables and tables of a graph under construction; all terms are costs."""

    def __init__(self, cqm: Any) -> None:
        self.sizes: list[int] = []
        self.names: list[Any] = []
        self.labels: list[list[Any]] = []
        self.places: dict[Hashable, Place] = {}
        self.kinds: dict[Hashable, str] = {}
        self.unary: dict[int, NDArray[np.float64]] = {}
        self.pairs: dict[tuple[int, int], NDArray[np.float64]] = {}
        self.hard: list[tuple[tuple[int, ...], NDArray[np.float64]]] = []  # 0 or infinite
        self.tables: list[tuple[tuple[int, ...], NDArray[np.float64]]] = []  # of soft constraints
        self.constant = 0.0
        self._entries, self._checked = 0, 0
        for label, comparison in cqm.constraints.items():
            self._merge(cqm, label, comparison)
        for variable in cqm.variables:
            if variable not in self.places:
                values = _values(cqm, variable)
                self.places[variable] = Place(self._new(variable, values), np.array(values, float))

    def _new(self, name: Any, values: Iterable[Any]) -> int:
        self.labels.append(list(values))
        self.sizes.append(len(self.labels[-1]))
        self.names.append(name)
        return len(self.sizes) - 1

    def _merge(self, cqm: Any, label: Hashable, comparison: Any) -> None:
        """Represent a one-hot constraint over unused binary variables by one variable."""
        left = comparison.lhs
        linear, quadratic = _terms(left, f"constraint {label!r}")
        members = list(linear)
        fits = comparison.sense.name == "Eq" and not quadratic and not left.is_soft()
        total = comparison.rhs - left.offset
        fits = fits and len(members) > 1 and all(bias == total for bias in linear.values())
        free = all(v not in self.places and cqm.vartype(v).name == "BINARY" for v in members)
        if fits and free:
            owner = self._new(label, unique_names(members))
            for k, member in enumerate(members):
                self.places[member] = Place(owner, (np.arange(len(members)) == k).astype(float))
            self.kinds[label] = ONE_HOT

    def add(self, expression: Any, times: float, where: str) -> None:
        """Add a multiple of a quadratic expression to the cost."""
        self.constant += times * _finite(expression.offset, f"{where}: the offset")
        linear, quadratic = _terms(expression, where)
        for variable, bias in linear.items():
            owner, values = self.places[variable]
            self._add_unary(owner, times * bias * values)
        for (u, v), bias in quadratic.items():
            self._add_product(self.places[u], self.places[v], times * bias)

    def _add_unary(self, owner: int, values: NDArray[np.float64]) -> None:
        if owner not in self.unary:
            self._reserve(len(values))
            self.unary[owner] = np.zeros(len(values))
        self.unary[owner] += values

    def _add_product(self, one: Place, other: Place, times: float) -> None:
        if one.owner == other.owner:
            self._add_unary(one.owner, times * one.values * other.values)
            return
        if one.owner > other.owner:
            one, other = other, one
        key = (one.owner, other.owner)
        if key not in self.pairs:
            self._reserve(len(one.values) * len(other.values))
            self.pairs[key] = np.zeros((len(one.values), len(other.values)))
        self.pairs[key] += times * np.outer(one.values, other.values)

    def _reserve(self, entries: int) -> None:
        """Count table entries; check the available memory whenever their number has doubled."""
        self._entries += entries
        if self._entries > self._checked:
            self._checked = 2 * self._entries
            what = f"tables of {self._entries:,} entries"
            memory.require(self._entries * _ENTRY_BYTES, what, "use smaller integer variables")

    def largest_range(self) -> float:
        """Return an upper bound on the change of the cost by one variable; 1 if it is constant."""
        ranges = np.zeros(len(self.sizes))
        for owner, values in self.unary.items():
            ranges[owner] += np.ptp(values)
        for (one, other), values in self.pairs.items():
            ranges[one] += np.ptp(values, axis=0).max()
            ranges[other] += np.ptp(values, axis=1).max()
        return float(ranges.max()) or 1.0

    def constrain(self, label: Hashable, comparison: Any, weight: float, wide: str) -> str:
        """Represent one constraint; return the kind of its representation."""
        left, sense = comparison.lhs, comparison.sense.name
        right = _finite(comparison.rhs, f"constraint {label!r}: the right-hand side")
        linear, quadratic = _terms(left, f"constraint {label!r}")
        variables = {*linear, *(v for pair in quadratic for v in pair)}
        owners = sorted({self.places[v].owner for v in variables})
        shape = [self.sizes[owner] for owner in owners]
        small = math.prod(shape) <= _MOST_ENTRIES and len(owners) <= _MOST_SCOPE
        if left.is_soft():
            return self._soften(label, comparison, owners if small else None)
        if small:
            excess = _excess(self._tabulate(label, left, owners), right, sense)
            broken = excess > _ABSOLUTE + _RELATIVE * abs(right)
            if not broken.any():
                return ALWAYS
            if broken.all():
                raise _infeasible(label)
            self.hard.append((tuple(owners), np.where(broken, np.inf, 0.0)))
            return TABLE
        offset = _finite(left.offset, f"constraint {label!r}: the offset")
        found = self._linear(label, left)._replace(constant=offset - right)
        if sense == "Ge":
            found = Linear({k: -term for k, term in found.terms.items()}, -found.constant)
        low, high = found.range()
        slack = _ABSOLUTE + _RELATIVE * abs(right)
        if low > slack or (sense == "Eq" and high < -slack):
            raise _infeasible(label)
        if sense != "Eq" and high <= slack:
            return ALWAYS
        if wide == COUNTING:
            self._count(label, found, sense == "Eq", slack)
            return COUNTING
        if sense != "Eq":
            found = self._with_slack(label, found, low)
        self._square(found, weight)
        return PENALTY

    def _tabulate(self, label: Hashable, left: Any, owners: list[int]) -> NDArray[np.float64]:
        """Return the left-hand side for all states of some variables."""
        axis = {owner: k for k, owner in enumerate(owners)}
        linear, quadratic = _terms(left, f"constraint {label!r}")

        def spread(variable: Hashable) -> NDArray[np.float64]:
            owner, values = self.places[variable]
            return values.reshape([-1 if k == axis[owner] else 1 for k in range(len(owners))])

        offset = _finite(left.offset, f"constraint {label!r}: the offset")
        table = np.full([self.sizes[owner] for owner in owners], offset)
        for variable, bias in linear.items():
            table += bias * spread(variable)
        for (u, v), bias in quadratic.items():
            table += bias * spread(u) * spread(v)
        return table

    def _linear(self, label: Hashable, left: Any) -> Linear:
        """Return the left-hand side of a wide constraint, without its offset."""
        linear, quadratic = _terms(left, f"constraint {label!r}")
        if quadratic:
            variables = {*linear, *(v for pair in quadratic for v in pair)}
            raise GraphError(
                f"constraint {label!r}: a quadratic constraint becomes a table, of at most "
                f"{_MOST_ENTRIES:,} entries over {_MOST_SCOPE} variables; it has "
                f"{len(variables)} variables"
            )
        terms: dict[int, NDArray[np.float64]] = {}
        for variable, bias in linear.items():
            owner, values = self.places[variable]
            terms[owner] = terms.get(owner, 0.0) + bias * values
        return Linear(terms, 0.0)

    def _with_slack(self, label: Hashable, found: Linear, low: float) -> Linear:
        """Return an inequality `found <= 0` as an equation with a slack variable."""
        numbers = np.concatenate([*found.terms.values(), [found.constant]])
        if not np.array_equal(numbers, np.round(numbers)):
            raise GraphError(
                f"constraint {label!r}: an inequality of {len(found.terms)} variables needs "
                "integer biases, to be a penalty; scale and round them"
            )
        if -low >= _MOST_VALUES:
            raise GraphError(
                f"constraint {label!r}: its slack would have {-low + 1:.3g} values, at most "
                f"{_MOST_VALUES:,} are possible; divide its biases"
            )
        values = np.arange(int(-low) + 1)
        owner = self._new(f"slack of {label}", values.tolist())
        return Linear({**found.terms, owner: values.astype(float)}, found.constant)

    def _square(self, found: Linear, weight: float) -> None:
        """Add weight * found^2 to the cost."""
        self.constant += weight * found.constant**2
        places = [Place(owner, term) for owner, term in found.terms.items()]
        for k, one in enumerate(places):
            self._add_unary(one.owner, weight * (one.values**2 + 2 * found.constant * one.values))
            for other in places[k + 1 :]:
                self._add_product(one, other, 2 * weight)

    def _soften(self, label: Hashable, comparison: Any, owners: list[int] | None) -> str:
        """Represent a soft constraint: its weight times the violation, or the squared violation."""
        left, sense, right = comparison.lhs, comparison.sense.name, float(comparison.rhs)
        weight = _finite(left.weight(), f"constraint {label!r}: the weight")
        quadratic = left.penalty() == "quadratic"
        if owners is not None:
            excess = _excess(self._tabulate(label, left, owners), right, sense).clip(0.0)
            cost = weight * (excess**2 if quadratic else excess)
            if owners:
                self.tables.append((tuple(owners), cost))
            else:
                self.constant += float(cost)
        elif quadratic and sense == "Eq":
            found = self._linear(label, left)
            self._square(found._replace(constant=float(left.offset) - right), weight)
        else:
            raise GraphError(
                f"constraint {label!r}: a soft constraint of this many variables must be a linear "
                'equation with penalty="quadratic"'
            )
        return SOFT

    def _count(self, label: Hashable, found: Linear, equal: bool, slack: float) -> None:
        """Add variables for the partial sums of `found`, whose total must be 0, or at most 0."""
        rest = sum(float(term.min()) for term in found.terms.values())
        most = sum(float(term.max()) for term in found.terms.values())
        sums, before = np.array([found.constant]), -1
        owners = list(found.terms)
        for number, owner in enumerate(owners):
            term = found.terms[owner]
            rest, most = rest - float(term.min()), most - float(term.max())
            reached = np.round(sums[:, None] + term, 9)  # [partial sum, value]
            alive = reached + rest <= slack
            if equal:
                alive &= reached + most >= -slack
            if not alive.any():
                raise _infeasible(label)
            after = np.unique(reached[alive])
            last = number == len(owners) - 1
            scope = (before, owner) if before >= 0 else (owner,)
            table = np.where(alive, 0.0, np.inf)
            if not last:
                self._check_count(label, table.size * len(after))
                same = alive[..., None] & (reached[..., None] == after)
                table = np.where(same, 0.0, np.inf)
                fresh = self._new(f"sum {number + 1} of {label}", after.tolist())
                scope, before = (*scope, fresh), fresh
            self.hard.append((scope, table if len(scope) == table.ndim else table[0]))
            sums = after

    def _check_count(self, label: Hashable, entries: int) -> None:
        if entries > _MOST_COUNT:
            raise GraphError(
                f"constraint {label!r}: counting takes a table of {entries:,} entries, at most "
                f'{_MOST_COUNT:,} are possible; use wide="penalty"'
            )
        self._reserve(entries)

    def graph(self, beta: float) -> FactorGraph:
        """Return the graph of the collected variables and tables."""
        tables: list[tuple[tuple[int, ...], NDArray[np.float64]]]
        tables = [((owner,), -beta * values) for owner, values in self.unary.items()]
        tables += [(scope, -beta * values) for scope, values in self.pairs.items()]
        tables += [(scope, -beta * values) for scope, values in self.tables]
        tables += [(scope, -values) for scope, values in self.hard]
        if self.constant:
            tables.append(((0,), np.full(self.sizes[0], -beta * self.constant)))
        labels = [list(row) for row in self.labels]
        return FactorGraph(np.array(self.sizes), _groups(tables), self._names(), labels)

    def _names(self) -> list[str]:
        """Names of all variables; names of constraints differ from the model's own."""

        def made(number: int) -> bool:
            place = self.places.get(self.names[number])
            return place is None or place.owner != number

        order = sorted(range(len(self.names)), key=made)
        names = unique_names([self.names[number] for number in order])
        return [name for _, name in sorted(zip(order, names, strict=True))]


def _groups(tables: list[tuple[tuple[int, ...], NDArray[np.float64]]]) -> list[Factors]:
    """Group the tables by shape."""
    members: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, (_, table) in enumerate(tables):
        members[table.shape].append(number)
    groups: list[Factors] = []
    for shape, some in members.items():
        scope = np.array([tables[k][0] for k in some])
        energy = np.stack([tables[k][1] for k in some])
        groups.append(Unary(scope[:, 0], energy) if len(shape) == 1 else Table(scope, energy))
    return groups


def _terms(
    expression: Any, where: str
) -> tuple[dict[Hashable, float], dict[tuple[Hashable, Hashable], float]]:
    """Return the nonzero linear and quadratic biases of an expression."""
    linear = {
        variable: _finite(bias, f"{where}: the bias of {variable!r}")
        for variable, bias in expression.iter_linear()
        if bias
    }
    quadratic = {
        (u, v): _finite(bias, f"{where}: the bias of {u!r} and {v!r}")
        for u, v, bias in expression.iter_quadratic()
        if bias
    }
    return linear, quadratic


def _values(cqm: Any, variable: Hashable) -> list[int]:
    kind = cqm.vartype(variable).name
    if kind in ("BINARY", "SPIN"):
        return [0, 1] if kind == "BINARY" else [-1, 1]
    if kind != "INTEGER":
        raise GraphError(
            f"variable {variable!r}: expected BINARY, SPIN or INTEGER, got {kind}; a graph has "
            "discrete variables, so use integers"
        )
    low, high = math.ceil(cqm.lower_bound(variable)), math.floor(cqm.upper_bound(variable))
    if not 0 <= high - low < _MOST_VALUES:
        raise GraphError(
            f"variable {variable!r}: its bounds {low} to {high} must hold 1 to {_MOST_VALUES:,} "
            "values; use cqm.set_lower_bound and cqm.set_upper_bound"
        )
    return list(range(low, high + 1))


def _excess(left: NDArray[np.float64], right: float, sense: str) -> NDArray[np.float64]:
    """Return the violation of a constraint; at most 0 if it is satisfied."""
    excess = left - right
    if sense == "Eq":
        return np.abs(excess)
    return excess if sense == "Le" else -excess


def _infeasible(label: Hashable) -> GraphError:
    return GraphError(f"constraint {label!r}: no state satisfies it")


def _finite(given: Any, what: str) -> float:
    number = float(given)
    if not abs(number) <= LARGEST:
        raise GraphError(f"{what} must be finite, got {given}")
    return number
