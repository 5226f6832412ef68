"""Base classes of all kinds of factors, and the flat forms to which they are converted.

A kind is a group of factors given as whole arrays. It validates itself, and converts itself to
`Pairs` or `General`, the two forms that packing and the kernels use.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import Frozen, as_array, frozen
from minigibbs.graph.domains import Domains, unknown_name
from minigibbs.graph.factors.scope import refuse_repeats
from minigibbs.graph.factors.ties import Tie, check_fixed, spread
from minigibbs.system.boundary import checked
from minigibbs.system.caller import warn

FREE = -1  # in an evidence array: the variable is not clamped
LARGEST = 1e100  # magnitude of weights and log-potentials: their products and sums stay finite
FLOOR_CHANGES = (
    "this is another model: impossible states become unlikely, and updates of one variable at a "
    "time hardly ever reach them; without floor= the hard constraints are kept"
)


@dataclass(frozen=True)
class Pairs:
    """Factors weight * [x_i == x_j], plus a constant `offset` for the whole group."""

    scope: NDArray[np.int32]  # [factors, 2]
    weight: NDArray[np.float64]  # [factors]
    offset: float = 0.0


@dataclass(frozen=True)
class General:
    """Factors of any arity k: tables or formulas (see `kernels.layout`)."""

    form: int
    scope: NDArray[np.int32]  # [factors, k]
    key: NDArray[np.int32]  # [factors, k], may be a broadcast array
    weight: NDArray[np.float64]  # [factors]
    low: NDArray[np.float64]  # [factors] least finite value, given the evidence
    span: NDArray[
        np.float64
    ]  # [factors] largest minus least value; infinite with a hard constraint
    table: NDArray[np.float64]  # flat
    table_start: NDArray[np.int64]  # [factors]
    offset: float = 0.0  # a constant for the whole group


@checked(GraphError)
class Factors(Frozen, ABC):
    """A group of factors of one kind.

    Variables are indices, or names until a graph resolves them in a copy.
    """

    kind: ClassVar[str]  # the name in files and on the command line
    pairs: ClassVar[bool] = False  # whether it is converted to `Pairs`
    tie: Tie | None = None  # its parameters, if they have a name
    lowered: ClassVar[tuple[float, float]] = (1.0, 0.0)  # (a, b): weight w becomes a w, and b w
    _scope: NDArray[Any]  # [factors, k] int32, or objects (names, indices) before resolution

    def __len__(self) -> int:
        return len(self._scope)

    @property
    def entries(self) -> int:
        """The number of variables of all factors together."""
        return int(self._scope.size)

    @property
    def scope(self) -> NDArray[np.int32]:
        """The variables of each factor by index, one row per factor."""
        if self._scope.dtype == object:
            raise GraphError(
                f"this {self.kind} group refers to its variables by name, and only a graph knows "
                "their numbers: build one, and read graph.factors[...].scope"
            )
        return self._scope

    @abstractmethod
    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise `GraphError` if a factor does not fit the domains of its variables."""

    @abstractmethod
    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Pairs | General:
        """Convert the group to flat form; `evidence` has the clamped values, or `FREE`."""

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments as arrays and strings, for files."""

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The group's parameters, one entry for all factors that share it."""
        raise GraphError(f"{self.kind} factors have no parameters that could be learned")

    def with_numbers(self, numbers: NDArray[np.float64]) -> Self:
        """Return the same group with other parameters of the same shape."""
        raise GraphError(f"{self.kind} factors have no parameters that could be learned")

    @property
    def learns_entries(self) -> bool:
        """Whether the parameters are a table's entries instead of weights."""
        return False

    def resolve(self, domains: Domains, group: int) -> Factors:
        """Return the group with variables by index; itself if they were given so.

        Raises `GraphError` if a factor has an unknown variable.
        """
        resolved = self._numbered(domains, group) if self._scope.dtype == object else self
        scope = resolved.scope
        if len(scope) and (scope.max() >= len(domains)):
            factor = int(np.flatnonzero((scope >= len(domains)).any(axis=1))[0])
            raise GraphError(
                f"{self.where(factor, group)}: variables must be 0 to {len(domains) - 1}, "
                f"got {scope[factor].max()}"
            )
        return resolved

    def _numbered(self, domains: Domains, group: int) -> Self:
        """Return a copy of the group with its variables by index instead of name."""
        arity = self._scope.shape[1]
        given = self._scope.ravel().tolist()
        if domains.names is None:
            factor = next(k for k, v in enumerate(given) if isinstance(v, str)) // arity
            raise GraphError(
                f"{self.where(factor, group)}: the graph's variables have no names; give them as "
                "FactorGraph(..., names=[...]), or use numbers"
            )
        numbers = domains.numbers
        found = [numbers.get(v, -1) if isinstance(v, str) else v for v in given]
        scope = np.array(found, dtype=np.int32).reshape(self._scope.shape)
        if (scope < 0).any():
            factor, position = np.argwhere(scope < 0)[0].tolist()
            raise GraphError(
                f"{self.where(factor, group)}, position {position}: "
                f"{unknown_name(domains, self._scope[factor, position])}"
            )
        refuse_repeats(scope, lambda factor: self.where(factor, group))
        scope.flags.writeable = False
        resolved = copy.copy(self)
        vars(resolved).update(_scope=scope)
        return resolved

    def where(self, factor: int, group: int | None = None) -> str:
        """Return a factor's description in error messages."""
        place = "" if group is None else f" of group {group}"
        if not -len(self) <= factor < len(self):
            raise GraphError(f"unknown factor {factor}: the group has {len(self):,} factors")
        shown = self._scope[factor][:6].tolist()
        dots = ", ..." if self._scope.shape[1] > 6 else ""
        return f"{self.kind} factor {factor}{place} (variables {', '.join(map(repr, shown))}{dots})"

    def __repr__(self) -> str:
        name = "" if self.tie is None else f" {self.tie.name!r}"
        return (
            f"<{type(self).__name__}{name}: {len(self):,} factors of arity {self._scope.shape[1]}>"
        )


@checked(GraphError)
class Weighted(Factors):
    """A group with one weight per factor: its parameters are these weights."""

    weight_name: ClassVar[str] = "weight"  # the name of argument and attribute
    _numbers: NDArray[np.float64]

    def _set_weights(self, given: ArrayLike, tie: Tie | None, count: int) -> None:
        """Read the weights: one for all, one per factor, or one per tied parameter."""
        total = count if tie is None else tie.numbers(count)
        numbers = read_weight(
            self.kind if tie is None else f"{self.kind} {tie.name!r}", given, total
        )
        check_fixed(self.kind, tie, numbers.shape)
        weight = spread(tie, numbers, count)
        vars(self).update({"tie": tie, "_numbers": numbers, self.weight_name: weight})

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The weights, one entry for all factors that share it."""
        return self._numbers

    def with_numbers(self, numbers: NDArray[np.float64]) -> Self:
        """Return the same group with other weights."""
        changed = copy.copy(self)
        changed._set_weights(numbers, self.tie, len(self))
        return changed


def require_two_valued(group: Factors, domains: Domains, number: int) -> None:
    """Raise an error if a factor of the group has a variable without exactly two values."""
    wrong = (domains.sizes != 2)[group.scope]
    if wrong.any():
        factor, slot = np.argwhere(wrong)[0]
        variable = int(group.scope[factor, slot])
        raise GraphError(
            f"{group.where(int(factor), number)}: {group.kind} factors need variables with 2 "
            f"values, but {domains.describe(variable)} has {domains.sizes[variable]}"
        )


def read_weight(kind: str, weight: ArrayLike, count: int) -> NDArray[np.float64]:
    """Read one finite weight per factor as a read-only array; a single number is repeated."""
    array = as_array(weight, "iufb", f"{kind}: weights must be real numbers, one per factor")
    if array.ndim == 0:
        array = np.full(count, array, dtype=np.float64)
    if array.shape != (count,):
        raise GraphError(f"{kind}: expected {count} weights, one per factor, got {array.shape}")
    bad = _unusable(array)
    if bad.any():
        factor = int(np.flatnonzero(bad)[0])
        hint = (
            ". Hard constraints are log-potentials of -inf in mg.Table or mg.Unary; here, use a "
            "finite weight such as 50 (a probability of e^-50 = 2e-22)"
        )
        raise GraphError(
            f"{kind} factor {factor}: a weight must be finite, at most {LARGEST} in size, "
            f"got {array[factor]}{'' if np.isnan(array[factor]) else hint}"
        )
    return frozen(array, np.float64)


def read_log_potential(
    kind: str, values: ArrayLike, floor: float | None, arity: int
) -> NDArray[np.float64]:
    """Read log-potentials as a read-only float64 array; `floor` is a lower limit.

    A log-potential of -inf is a hard constraint: it excludes a state.
    """
    array = _copy_numbers(values, f"{kind}: log-potentials must be real numbers")
    if floor is not None:
        if not np.isfinite(floor):
            raise GraphError(f"{kind}: floor must be finite, got {floor}")
        warn_of_floor(kind, int(np.count_nonzero(array == -np.inf)), f"log-potential {floor:g}")
        np.maximum(array, floor, out=array)  # keeps NaN
    rule = f"a log-potential must be -inf or finite, at most {LARGEST} in size"
    _refuse(kind, arity, array, _unusable(array) & (array != -np.inf), rule)
    array.flags.writeable = False
    return array


def log_probabilities(
    kind: str, probability: ArrayLike, floor: float | None, arity: int
) -> NDArray[np.float64]:
    """Compute logarithms of nonnegative numbers; that of 0 is -inf unless there is a `floor`."""
    array = _copy_numbers(probability, f"{kind}: probabilities must be real numbers")
    if floor is not None:
        if not floor > 0:
            raise GraphError(f"{kind}: floor must be a positive probability, got {floor}")
        warn_of_floor(kind, int(np.count_nonzero(array == 0)), f"probability {floor:g}")
        np.maximum(array, floor, out=array, where=array >= 0)
    bad = ~((array >= 0) & np.isfinite(array))
    _refuse(kind, arity, array, bad, "a probability must be finite and not negative")
    with np.errstate(divide="ignore"):
        return np.log(array)


def warn_of_floor(kind: str, zeros: int, floor: str) -> None:
    """Warn about the effect of a floor if it raises zeros."""
    if zeros:
        entries = f"{zeros:,} zero{'' if zeros == 1 else 's'}"
        warn(f"{kind}: {entries} raised to {floor}: {FLOOR_CHANGES}")


def usable_weights(
    kind: str, values: NDArray[np.float64], weight: NDArray[np.float64], shared: bool
) -> None:
    """Raise an error for a weight that is not positive at a table with a hard constraint."""
    low = np.flatnonzero(~(weight > 0))
    if not len(low):
        return
    hard = (values == -np.inf).any() if shared else _rows_with_zeros(values)[low]
    if np.any(hard):
        factor = int(low[np.flatnonzero(np.broadcast_to(hard, len(low)))[0]])
        raise GraphError(
            f"{kind} factor {factor}: its table has a hard constraint (a log-potential of "
            f"-inf), so its weight must be above 0, got {weight[factor]}; give the factor a table "
            "of its own"
        )


def _rows_with_zeros(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    hard: NDArray[np.bool_] = (values == -np.inf).any(axis=tuple(range(1, values.ndim)))
    return hard


def finite_range(rows: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the least and largest finite number of each row, and whether it has a -inf.

    Both are 0 for a row with only -inf.
    """
    low, high = rows.min(axis=1, initial=np.inf), rows.max(axis=1, initial=-np.inf)
    hard = low == -np.inf
    if hard.any():
        least = np.where(rows[hard] == -np.inf, np.inf, rows[hard]).min(axis=1)
        low[hard] = np.where(least == np.inf, 0.0, least)
        high[hard] = np.where(least == np.inf, 0.0, high[hard])
    return low, high, hard


def _copy_numbers(given: ArrayLike, rule: str) -> NDArray[np.float64]:
    return np.array(as_array(given, "iufb", rule), dtype=np.float64, order="C")


def _unusable(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark NaN and numbers larger than `LARGEST`."""
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        array = array.astype(np.float64)  # smaller types overflow at `LARGEST`
    return ~((array >= -LARGEST) & (array <= LARGEST))


def _refuse(kind: str, arity: int, array: NDArray[Any], bad: NDArray[np.bool_], rule: str) -> None:
    """Raise an error for the first bad entry, if any.

    An array of more than `arity` dimensions has one row per factor, whose index is then in the
    message.
    """
    if not bad.any():
        return
    place = np.argwhere(bad)[0].tolist()
    value = array[tuple(place)]
    factor = f" factor {place.pop(0)}" if array.ndim > arity else ""
    raise GraphError(f"{kind}{factor}: {rule}; got {value} at {place}")
