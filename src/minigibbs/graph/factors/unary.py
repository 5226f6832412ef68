"""Unary factors: a log-potential for each value of a variable."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import (
    FREE,
    Factors,
    General,
    finite_range,
    log_probabilities,
    read_log_potential,
)
from minigibbs.graph.factors.scope import read_scope
from minigibbs.graph.factors.ties import Tie, check_fixed, given_ties, read_tie
from minigibbs.kernels.layout import TABLE
from minigibbs.system.boundary import checked


@checked(GraphError)
class Unary(Factors):
    """Factors phi = log_potential[x_v] over single variables.

    Parameters
    ----------
    var : array-like
        The variable of each factor, by number or name.
    log_potential : array-like
        One row of log-potentials per factor, with one column per value; or one row for all. A
        log-potential of -inf forbids a value.
    floor : float, optional
        Smaller log-potentials, -inf included, are raised to this value. This changes the model.
    name : str, optional
        Name of the log-potentials, to learn them with `mg.learn`.
    tied : array-like, optional
        The number of the row of each factor, or one number for all. `log_potential` then has one
        row per number.
    fixed : array-like, default False
        Log-potentials that are not learned. Those of -inf are never learned.

    Examples
    --------
    >>> import minigibbs as mg
    >>> fields = mg.Unary([0, 1], [[0.0, 1.0], [0.5, 0.0]])
    >>> mg.FactorGraph([2, 2], [fields]).log_potential([1, 0])
    1.5
    >>> named = mg.Unary(["wet"], [0.0, 1.0])
    >>> mg.FactorGraph([2, 2], [named], names=["rain", "wet"]).log_potential([0, 1])
    1.0
    """

    kind = "unary"
    log_potential: NDArray[np.float64]
    _numbers: NDArray[np.float64]

    def __init__(
        self,
        var: ArrayLike,
        log_potential: ArrayLike,
        floor: float | None = None,
        *,
        name: str | None = None,
        tied: ArrayLike | None = None,
        fixed: ArrayLike = False,
    ) -> None:
        scope = read_scope(self.kind, [var], arity=1)
        tie = read_tie(self.kind, len(scope), name, tied, fixed)
        array = read_log_potential(self.kind, log_potential, floor, arity=1)
        rows = len(scope) if tie is None else tie.numbers(len(scope))
        one = array.ndim == 1 and not (tie and tie.tied is not None)
        if array.ndim == 1 and not one:
            array = np.tile(array, (rows, 1))
        if not one and (array.ndim != 2 or len(array) != rows):
            raise GraphError(
                f"unary: expected log-potentials of shape ({rows}, values), got {array.shape}"
            )
        vars(self).update(_scope=scope)
        self._set_entries(array, tie)

    def _set_entries(self, numbers: NDArray[np.float64], tie: Tie | None) -> None:
        """Give each factor its row: of its own, the one that it is tied to, or the only one."""
        check_fixed(self.kind, tie, numbers.shape)
        log_potential = numbers
        if numbers.ndim == 1:
            log_potential = np.broadcast_to(numbers, (len(self), len(numbers)))
        elif tie is not None and tie.tied is not None:
            log_potential = numbers[tie.tied]
            log_potential.flags.writeable = False
        vars(self).update(tie=tie, _numbers=numbers, log_potential=log_potential)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The log-potentials, once for all factors that share them."""
        return self._numbers

    def with_numbers(self, numbers: NDArray[np.float64]) -> Self:
        """The same group with other log-potentials."""
        changed = copy.copy(self)
        changed._set_entries(read_log_potential(self.kind, numbers, None, arity=1), self.tie)
        return changed

    @property
    def learns_entries(self) -> bool:
        """Log-potentials are entries."""
        return True

    @classmethod
    def from_probabilities(
        cls, var: ArrayLike, probability: ArrayLike, floor: float | None = None
    ) -> Unary:
        """Create factors from probabilities or other positive weights exp(phi).

        Parameters
        ----------
        var : array-like
            The variable of each factor, by number or name.
        probability : array-like
            Rows of weights, as `log_potential`; they need not sum to 1.
        floor : float, optional
            Smaller weights, 0 included, are raised to this value. This changes the model.

        Returns
        -------
        Unary
            The factors.

        Raises
        ------
        GraphError
            If a weight is negative or not finite.

        Examples
        --------
        >>> import minigibbs as mg
        >>> biased = mg.Unary.from_probabilities([0], [0.2, 0.8])
        >>> mg.infer(mg.FactorGraph([2], [biased])).marginals
        array([[0.2, 0.8]])
        """
        return cls(var, log_probabilities(cls.kind, probability, floor, arity=1))

    def check_domains(self, domains: Domains, group: int) -> None:
        """Each variable has as many values as the rows have columns."""
        wrong = domains.sizes[self._scope[:, 0]] != self.log_potential.shape[1]
        if wrong.any():
            factor = int(np.flatnonzero(wrong)[0])
            variable = int(self._scope[factor, 0])
            raise GraphError(
                f"{self.where(factor, group)}: expected {domains.sizes[variable]} log-potentials, "
                f"one per value of {domains.describe(variable)}, got {self.log_potential.shape[1]}"
            )

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> General:
        """Lower to tables of arity 1."""
        count, values = self.log_potential.shape
        low, high, hard = finite_range(self.log_potential)
        clamped = np.flatnonzero(evidence[self._scope[:, 0]] != FREE)
        high[clamped] = low[clamped]
        hard[clamped] = self.log_potential[clamped, evidence[self._scope[clamped, 0]]] == -np.inf
        span = np.where(hard, np.inf, high - low)
        return General(
            form=TABLE,
            scope=self._scope,
            key=np.ones((count, 1), dtype=np.int32),
            weight=np.ones(count),
            low=low,
            span=span,
            table=(self.log_potential if self.tie is None else self._numbers).ravel(),
            table_start=self._rows() * values,
        )

    def _rows(self) -> NDArray[np.int64]:
        """Where each factor's log-potentials begin among all parameters."""
        if self.tie is None or self.tie.tied is None:
            alone = self.tie is None or self._numbers.ndim == 2
            return np.arange(len(self), dtype=np.int64) * alone
        return self.tie.tied

    def arrays(self) -> dict[str, Any]:
        """The constructor's arguments."""
        log_potential = self.log_potential if self.tie is None else self._numbers
        return {"var": self._scope[:, 0], "log_potential": log_potential, **given_ties(self.tie)}


def unary_groups(rows: NDArray[np.float64], constant: float = 0.0) -> list[Factors]:
    """Unary factors of the rows [variable, value] that are not all 0; one bears the constant."""
    rows = rows.copy()
    rows[:1] += constant
    some = np.flatnonzero(rows.any(axis=1))
    return [Unary(some, rows[some])] if len(some) else []
