"""Table factors: an explicit table of any function of a few variables."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array, as_list, call_own
from minigibbs.graph.domains import Domains, Grid
from minigibbs.graph.factors.base import (
    FREE,
    Factors,
    General,
    finite_range,
    log_probabilities,
    read_log_potential,
    read_weight,
    usable_weights,
)
from minigibbs.graph.factors.scope import read_scope
from minigibbs.graph.factors.ties import Tie, check_fixed, given_ties, read_tie, spread
from minigibbs.kernels.layout import TABLE
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_GRIDS = "table: grids must hold a Grid or a domain size of at least 1 per column of the scope"
_TABULATED_BYTES = 24.0  # bytes per entry: result, copy, and scratch of checks
_CHUNK = 2**22  # table values per batch when evidence reduces tables


@checked(GraphError)
class Table(Factors):
    """Factors phi = weight * log_potential[x_a, x_b, ...] over any number of variables.

    Parameters
    ----------
    scope : array-like
        One row per factor, one column per variable, by number or name; a single row for a single
        factor.
    log_potential : array-like
        One array per factor, of shape (factors, D_a, D_b, ...), or one array of shape (D_a, D_b,
        ...) for all factors. A log-potential of -inf is a hard constraint.
    weight : array-like, optional
        A multiplier per factor, by default 1. It must be positive if the table has -inf.
    floor : float, optional
        Smaller log-potentials, -inf included, are raised to this value. This changes the model.
    name : str, optional
        Name of the log-potentials, to learn them with `mg.learn`.
    tied : array-like, optional
        The number of the table of each factor, or one number for all. `log_potential` then has one
        table per number.
    fixed : array-like, default False
        Log-potentials that are not learned. Those of -inf are never learned.
    scale : array-like, optional
        A multiplier of the weight, per factor, for learn="weight".
    learn : str, default "log_potential"
        "log_potential", or "weight" if tables are known features and their weights are learned.
        `tied`, `fixed` and `scale` then refer to the weights, as in `mg.Potts`.

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> rule = mg.Table([[0, 1], [1, 2]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]], weight=[0.5, 2.0])
    >>> mg.FactorGraph([3, 3, 3], [rule]).log_potential([0, 1, 2])
    2.5
    >>> differ = mg.Table([[0, 1]], [[-np.inf, 0.0], [0.0, -np.inf]])
    >>> mg.FactorGraph([2, 2], [differ]).log_potential([[0, 0], [0, 1]])
    array([-inf,   0.])
    >>> named = mg.Table([["sky", "rain"]], [[0.0, 1.0], [2.0, 0.0], [0.5, 0.5]])
    >>> mg.FactorGraph([2, 3], [named], names=["rain", "sky"]).log_potential([0, 1])
    2.0
    """

    kind = "table"
    log_potential: NDArray[np.float64]
    weight: NDArray[np.float64]
    shared: bool  # whether one table serves all factors
    learn: str
    _tables: NDArray[np.float64]
    _weights: NDArray[np.float64]

    def __init__(
        self,
        scope: ArrayLike,
        log_potential: ArrayLike,
        weight: ArrayLike | None = None,
        floor: float | None = None,
        *,
        name: str | None = None,
        tied: ArrayLike | None = None,
        fixed: ArrayLike = False,
        scale: ArrayLike | None = None,
        learn: str = "log_potential",
    ) -> None:
        if learn not in ("log_potential", "weight"):
            raise GraphError(f'table: learn must be "log_potential" or "weight", got {learn!r}')
        rows = read_scope(self.kind, scope)
        count, arity = rows.shape
        tie = read_tie(self.kind, count, name, tied, fixed, scale)
        table = read_log_potential(self.kind, log_potential, floor, arity)
        by_weight = tie if learn == "weight" else None
        tables = count if tie is None or by_weight else tie.numbers(count)
        shared = table.ndim == arity
        if not shared and (table.ndim != arity + 1 or len(table) != tables):
            raise GraphError(
                f"table: for {count} factors over {arity} variables each, expected log-potentials "
                f"of {arity} dimensions (shared) or of {arity + 1} dimensions, the first of length "
                f"{tables}; got shape {table.shape}"
            )
        if scale is not None and by_weight is None:
            raise GraphError('table: scale is for learn="weight"; give weight in its place')
        vars(self).update(_scope=rows, learn=learn)
        total = count if by_weight is None else by_weight.numbers(count)
        numbers = read_weight(self.kind, 1.0 if weight is None else weight, total)
        vars(self).update(_weights=numbers, weight=spread(by_weight, numbers, count))
        self._set_entries(table, tie)
        check_fixed(self.kind, tie, self.numbers.shape)
        usable_weights(self.kind, self.log_potential, self.weight, self.shared)

    def _set_entries(self, table: NDArray[np.float64], tie: Tie | None) -> None:
        """Assign each factor its table: its own, the one to which it is tied, or the only one."""
        shared, log_potential = table.ndim == self._scope.shape[1], table
        if (
            not shared
            and tie is not None
            and self.learn == "log_potential"
            and tie.tied is not None
        ):
            log_potential = table[tie.tied]
            log_potential.flags.writeable = False
        vars(self).update(tie=tie, _tables=table, log_potential=log_potential, shared=shared)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The log-potentials or weights, one entry for all factors that share it."""
        return self._weights if self.learn == "weight" else self._tables

    def with_numbers(self, numbers: NDArray[np.float64]) -> Self:
        """Return the same group with other log-potentials, or weights."""
        changed, count = copy.copy(self), len(self)
        if self.learn == "weight":
            numbers = read_weight(self.kind, numbers, len(self._weights))
            vars(changed).update(_weights=numbers, weight=spread(self.tie, numbers, count))
        else:
            changed._set_entries(
                read_log_potential(self.kind, numbers, None, self._scope.shape[1]), self.tie
            )
        return changed

    @property
    def learns_entries(self) -> bool:
        """Whether the table's entries are learned, instead of weights."""
        return self.learn == "log_potential"

    @classmethod
    def from_probabilities(
        cls,
        scope: ArrayLike,
        probability: ArrayLike,
        weight: ArrayLike | None = None,
        floor: float | None = None,
    ) -> Table:
        """Create factors from probabilities or other positive weights exp(phi).

        Parameters
        ----------
        scope : array-like
            One row per factor, one column per variable, by number or name.
        probability : array-like
            Tables of weights, as `log_potential`; they need not sum to 1.
        weight : array-like, optional
            A multiplier of the log-potential per factor, by default 1.
        floor : float, optional
            Smaller weights, 0 included, are raised to this value. This changes the model.

        Returns
        -------
        Table
            The factors.

        Raises
        ------
        GraphError
            If a weight is negative or not finite.
        """
        arity = read_scope(cls.kind, scope).shape[1]
        return cls(scope, log_probabilities(cls.kind, probability, floor, arity), weight)

    @classmethod
    def from_function(
        cls,
        scope: ArrayLike,
        f: Callable[..., ArrayLike],
        grids: Sequence[Grid | int],
        weight: ArrayLike | None = None,
        floor: float | None = None,
    ) -> Table:
        """Tabulate f(a, b, ...) over the values of the variables of a scope.

        Parameters
        ----------
        scope : array-like
            One row per factor, one column per variable, by number or name.
        f : callable
            A function of one array per variable. It is called once, with arrays that broadcast
            against each other.
        grids : sequence of Grid or int
            One entry per variable: a `Grid`, whose points are the values, or a domain size n, for
            the values 0 to n - 1.
        weight : array-like, optional
            A multiplier of the log-potential per factor, by default 1.
        floor : float, optional
            Smaller log-potentials, -inf included, are raised to this value. This changes the model.

        Returns
        -------
        Table
            The factors.

        Raises
        ------
        GraphError
            If the function fails or returns an array of another shape.

        Examples
        --------
        >>> import minigibbs as mg
        >>> line = mg.Grid(-1.0, 1.0, 3)
        >>> mg.Table.from_function([0, 1], lambda a, b: -(a - b)**2, [line, line]).log_potential
        array([[-0., -1., -4.],
               [-1., -0., -1.],
               [-4., -1., -0.]])
        """
        axes = [_points(grid) for grid in as_list(grids, _GRIDS)]
        shape = tuple(len(axis) for axis in axes)
        memory.require(
            _TABULATED_BYTES * math.prod(shape),
            f"table: a table of shape {shape}",
            "use grids of fewer points, or fewer columns of the scope",
        )
        points = np.meshgrid(*axes, indexing="ij", sparse=True)
        rule = "table: the function must give one log-potential per grid point"
        log_potential = as_array(call_own(f, points, "table: the function"), "iufb", rule)
        try:
            log_potential = np.broadcast_to(log_potential, shape)
        except ValueError:
            raise GraphError(f"{rule}, shape {shape}; got shape {log_potential.shape}") from None
        return cls(scope, log_potential, weight, floor)

    @property
    def shape(self) -> tuple[int, ...]:
        """The domain sizes of the tables."""
        return self.log_potential.shape if self.shared else self.log_potential.shape[1:]

    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise an error if the axes of the table differ from the variables' domains."""
        wrong = domains.sizes[self._scope] != np.array(self.shape)
        if wrong.any():
            factor = int(np.argwhere(wrong)[0][0])
            expected = tuple(int(s) for s in domains.sizes[self._scope[factor]])
            raise GraphError(
                f"{self.where(factor, group)}: its variables have domains {expected}, "
                f"but the table has shape {self.shape}"
            )

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> General:
        """Convert to row-major tables with one stride per variable."""
        count = len(self)
        values = int(np.prod(self.shape))
        strides = np.array([int(np.prod(self.shape[k + 1 :])) for k in range(len(self.shape))])
        low, high, hard = self._range(evidence)
        ends = np.stack([self.weight * low, self.weight * high])
        starts = np.zeros(count) if self.shared else self._rows() * values
        return General(
            form=TABLE,
            scope=self._scope,
            key=np.broadcast_to(strides.astype(np.int32), self._scope.shape),
            weight=self.weight,
            low=ends.min(axis=0),
            span=np.where(hard, np.inf, np.abs(ends[1] - ends[0])),
            table=self._tables.ravel(),
            table_start=starts.astype(np.int64),
        )

    def _rows(self) -> NDArray[np.int64]:
        """Return the index of each factor's table."""
        tie = self.tie if self.learn == "log_potential" else None
        rows = np.arange(len(self)) if tie is None or tie.tied is None else tie.tied
        return rows.astype(np.int64)

    def _range(self, evidence: NDArray[np.int32]) -> list[NDArray[Any]]:
        """Apply `finite_range` to each factor's table restricted to the evidence."""
        whole = finite_range(self.log_potential.reshape(1 if self.shared else len(self), -1))
        found = [np.broadcast_to(array, len(self)).copy() for array in whole]
        clamped = evidence[self._scope] != FREE
        for pattern in np.unique(clamped[clamped.any(axis=1)], axis=0):
            members = np.flatnonzero((clamped == pattern).all(axis=1))
            chunk = max(1, _CHUNK // int(np.prod(self.shape)))
            for some in np.split(members, range(chunk, len(members), chunk)):
                cut = self._cut(some, pattern, evidence).reshape(len(some), -1)
                for array, of_cut in zip(found, finite_range(cut), strict=True):
                    array[some] = of_cut
        return found

    def _cut(
        self, factors: NDArray[Any], pattern: NDArray[np.bool_], evidence: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Return the tables of some factors with the clamped axes fixed at the evidence."""
        tables = self.log_potential[None] if self.shared else self.log_potential[factors]
        tables = np.broadcast_to(tables, (len(factors), *self.shape))
        for axis in np.flatnonzero(pattern):
            fixed = evidence[self._scope[factors, axis]]
            index = fixed.reshape(-1, *(1,) * len(self.shape))
            tables = np.take_along_axis(tables, index, axis=int(axis) + 1)
        return tables

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        given = {"scope": self._scope, "log_potential": self._tables, "weight": self._weights}
        learn = {"learn": self.learn} if self.learn != "log_potential" else {}
        return {**given, **learn, **given_ties(self.tie)}


def _points(grid: Grid | int) -> NDArray[Any]:
    """Return the values of one variable over which a function is tabulated."""
    if isinstance(grid, Grid):
        return grid.values
    if isinstance(grid, bool) or not isinstance(grid, int | np.integer) or grid < 1:
        raise GraphError(f"{_GRIDS}; got {grid!r}")
    return np.arange(grid)
