"""Logical factors: a weight if a formula over two-valued variables holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array, frozen
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import (
    FREE,
    General,
    Weighted,
    require_two_valued,
)
from minigibbs.graph.factors.scope import read_scope
from minigibbs.graph.factors.ties import given_ties, read_tie
from minigibbs.kernels.layout import AND, EQUAL
from minigibbs.system.boundary import checked

OPS = ("imply", "and", "or", "equal", "istrue")


@checked(GraphError)
class Logical(Weighted):
    """Factors phi = weight if a formula holds, else 0, over two-valued variables.

    Value 1 is true. An update costs O(arity); no table is built.

    Parameters
    ----------
    op : str
        "and": all literals hold; "or": at least one holds; "equal": all or none hold; "imply": the
        last one holds or some other one does not; "istrue": the only literal holds.
    scope : array-like
        One row per factor, one column per literal, by number or name.
    weight : array-like
        One log-potential per factor, or one for all.
    negated : array-like, optional
        Which literals are negated: booleans of the scope's shape, or one row for all.
    values : array-like, optional
        For "and" and "equal": the index of the value that makes each literal true, in the shape of
        the scope or one row for all. Variables may then have any number of values.
    name : str, optional
        Name of the weights, to learn them with `mg.learn`.
    tied : array-like, optional
        A number per factor, or one for all. Factors with the same number share a weight, which is
        then given once per number.
    fixed : array-like, default False
        Weights that are not learned.
    scale : array-like, optional
        A multiplier of the weight, per factor.

    Examples
    --------
    >>> import minigibbs as mg
    >>> rule = mg.Logical("imply", [[0, 1, 2]], 1.5)
    >>> mg.FactorGraph([2, 2, 2], [rule]).log_potential([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    array([0. , 1.5, 1.5])
    >>> named = mg.Logical("imply", [["rain", "wet"]], 1.5)
    >>> mg.FactorGraph([2, 2], [named], names=["rain", "wet"]).log_potential([1, 0])
    0.0
    """

    kind = "logical"
    op: str
    weight: NDArray[np.float64]
    negated: NDArray[np.bool_]
    values: NDArray[np.int32] | None  # that make literals true; None for value 1

    def __init__(
        self,
        op: str,
        scope: ArrayLike,
        weight: ArrayLike,
        negated: ArrayLike | None = None,
        values: ArrayLike | None = None,
        *,
        name: str | None = None,
        tied: ArrayLike | None = None,
        fixed: ArrayLike = False,
        scale: ArrayLike | None = None,
    ) -> None:
        if op not in OPS:
            raise GraphError(f"logical: op must be one of {', '.join(OPS)}; got {op!r}")
        literals = read_scope(self.kind, scope)
        if op == "istrue" and literals.shape[1] != 1:
            raise GraphError(
                f"logical: istrue takes one literal per factor, got {literals.shape[1]}"
            )
        flags = _read_flags(False if negated is None else negated, literals.shape)
        keys = None if values is None else _read_values(op, values, negated, literals.shape)
        vars(self).update(op=op, _scope=literals, negated=flags, values=keys)
        tie = read_tie(self.kind, len(literals), name, tied, fixed, scale)
        self._set_weights(weight, tie, len(literals))

    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise an error if literals do not have two values, or not the given ones."""
        if self.values is None:
            require_two_valued(self, domains, group)
            return
        wrong = self.values >= domains.sizes[self._scope]
        if wrong.any():
            factor, slot = np.argwhere(wrong)[0].tolist()
            variable = int(self._scope[factor, slot])
            raise GraphError(
                f"{self.where(factor, group)}: values must be those of its variables, but "
                f"{domains.describe(variable)} has values 0 to {domains.sizes[variable] - 1}, "
                f"got {self.values[factor, slot]}"
            )

    @property
    def lowered(self) -> tuple[float, float]:  # type: ignore[override]
        """A formula that is converted to its negation has a negative weight, and a constant."""
        return (-1.0, 1.0) if self.op in ("or", "imply") else (1.0, 0.0)

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> General:
        """Convert to conjunctions: a or b is not (not a and not b); a implies b, not (a and not b).

        A weight on the negation of a formula is a negative weight on the formula itself, plus a
        constant.
        """
        key, weight, offset = 1 - self.negated.astype(np.int32), self.weight, 0.0
        if self.values is not None:
            key = self.values.copy()
        if self.op == "or":
            key = 1 - key
        if self.op == "imply":
            key[:, -1] = 1 - key[:, -1]
        if self.op in ("or", "imply"):
            weight, offset = -weight, float(weight.sum())
        can_hold, can_fail = self._outcomes(evidence, key)
        least = np.where(can_fail, np.minimum(weight, 0.0), weight)
        return General(
            form=EQUAL if self.op == "equal" else AND,
            scope=self._scope,
            key=key,
            weight=weight,
            low=np.where(can_hold, least, 0.0),
            span=np.where(can_hold & can_fail, np.abs(weight), 0.0),
            table=np.empty(0),
            table_start=np.zeros(len(self), dtype=np.int64),
            offset=offset,
        )

    def _outcomes(
        self, evidence: NDArray[np.int32], key: NDArray[np.int32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether each converted formula can hold, and can fail, given the evidence."""
        fixed = evidence[self._scope]
        can_be_true = (fixed == FREE) | (fixed == key)
        can_be_false = (fixed == FREE) | (fixed != key)
        all_true, all_false = can_be_true.all(axis=1), can_be_false.all(axis=1)
        if self.op != "equal":
            return all_true, can_be_false.any(axis=1)
        surely = all_true & ~can_be_false.any(axis=1) | all_false & ~can_be_true.any(axis=1)
        return all_true | all_false, ~surely & (self._scope.shape[1] > 1)

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        literals = {"negated": self.negated} if self.values is None else {"values": self.values}
        return {
            "op": self.op,
            "scope": self._scope,
            "weight": self._numbers,
            **literals,
            **given_ties(self.tie),
        }


def _read_flags(negated: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    rule = "logical: negated must hold booleans"
    flags = as_array(negated, "biuf", rule)
    if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
        raise GraphError(f"{rule}; got {flags[~np.isin(flags, (0, 1))][0]}")
    try:
        return frozen(np.broadcast_to(flags, shape), np.bool_)
    except ValueError:
        raise GraphError(f"{rule} in the scope's shape {shape}; got shape {flags.shape}") from None


def _read_values(
    op: str, values: ArrayLike, negated: ArrayLike | None, shape: tuple[int, ...]
) -> NDArray[np.int32]:
    rule = "logical: values must hold numbers of values, 0 or more"
    if op not in ("and", "equal") or negated is not None:
        raise GraphError(
            'logical: values are for "and" and "equal" without negated; got '
            + (f"op {op!r}" if op not in ("and", "equal") else "negated as well")
        )
    array = as_array(values, "iu", rule)
    if (array < 0).any():
        raise GraphError(f"{rule}; got {array[array < 0][0]}")
    try:
        return frozen(np.broadcast_to(array, shape), np.int32)
    except ValueError:
        raise GraphError(f"{rule}, in the scope's shape {shape}; got {array.shape}") from None
