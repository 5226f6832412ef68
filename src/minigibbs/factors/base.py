"""What every kind of factor provides, and the flat forms that kinds lower to.

A kind is a group of factors given as whole arrays. It validates itself, and lowers itself to
`Pairs` or `General`, the two shapes that packing and the kernels know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.domains import Domains, frozen
from minigibbs.errors import GraphError

FREE = -1  # in an evidence array: the variable is not clamped


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
    key: NDArray[np.int32]  # [factors, k], may be broadcast
    weight: NDArray[np.float64]  # [factors]
    low: NDArray[np.float64]  # [factors] least value, given the evidence
    span: NDArray[np.float64]  # [factors] greatest minus least value, given the evidence
    table: NDArray[np.float64]  # flat
    table_start: NDArray[np.int64]  # [factors]
    offset: float = 0.0  # a constant for the whole group


class Factors(ABC):
    """A group of factors of one kind."""

    kind: ClassVar[str]  # the name in files and on the command line
    _scope: NDArray[np.int32]  # [factors, k]

    def __len__(self) -> int:
        return len(self._scope)

    @property
    def scope(self) -> NDArray[np.int32]:
        """The variables of each factor, one row per factor."""
        return self._scope

    @abstractmethod
    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise `GraphError` if a factor does not fit the domains of its variables."""

    @abstractmethod
    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Pairs | General:
        """The group in flat form; `evidence` holds each variable's clamped value or `FREE`."""

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """The constructor's arguments as arrays and strings, for files."""

    def check_scope(self, domains: Domains, group: int) -> None:
        """Raise `GraphError` if a factor names a variable that does not exist."""
        scope = self._scope
        if len(scope) and (scope.max() >= len(domains)):
            factor = int(np.flatnonzero((scope >= len(domains)).any(axis=1))[0])
            raise GraphError(
                f"{self.where(factor, group)}: variables must be 0 to {len(domains) - 1}, "
                f"got {self._scope[factor].max()}"
            )

    def where(self, factor: int, group: int | None = None) -> str:
        """A factor as errors call it."""
        place = "" if group is None else f" of group {group}"
        shown = self._scope[factor][:6].tolist()
        dots = ", ..." if self._scope.shape[1] > 6 else ""
        return f"{self.kind} factor {factor}{place} (variables {', '.join(map(str, shown))}{dots})"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} factors of arity {self._scope.shape[1]}>"


def read_scope(kind: str, columns: list[ArrayLike] | ArrayLike, arity: int | None = None) -> Any:
    """Variables as a read-only int32 array [factors, arity], checked as far as it can be alone."""
    if isinstance(columns, list) and arity is not None:
        arrays = [np.atleast_1d(np.asarray(column)) for column in columns]
        lengths = {len(a) for a in arrays}
        if any(a.ndim != 1 for a in arrays) or len(lengths) != 1:
            shapes = ", ".join(str(a.shape) for a in arrays)
            raise GraphError(f"{kind}: variables must be 1-D arrays of one length, got {shapes}")
    else:
        whole = np.asarray(columns)
        if whole.ndim == 1:
            whole = whole[None, :]
        if whole.ndim != 2 or whole.shape[1] == 0:
            raise GraphError(
                f"{kind}: scope must have one row per factor and one column per variable, "
                f"got shape {whole.shape}"
            )
        arrays = [whole[:, k] for k in range(whole.shape[1])]
    scope = np.empty((len(arrays[0]), len(arrays)), dtype=np.int32)
    for k, column in enumerate(arrays):
        if column.dtype.kind not in "iu" and len(column):
            raise GraphError(f"{kind}: variables must be integers, got type {column.dtype}")
        if len(column) and (column.min() < 0 or column.max() > np.iinfo(np.int32).max):
            factor = int(np.flatnonzero((column < 0) | (column > np.iinfo(np.int32).max))[0])
            raise GraphError(
                f"{kind} factor {factor}: a variable must be a non-negative number, "
                f"got {column[factor]}"
            )
        scope[:, k] = column
    _refuse_repeats(kind, scope)
    scope.flags.writeable = False
    return scope


def _refuse_repeats(kind: str, scope: NDArray[np.int32]) -> None:
    if scope.shape[1] == 2:
        repeated = scope[:, 0] == scope[:, 1]
    elif scope.shape[1] > 2:
        ordered = np.sort(scope, axis=1)
        repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    else:
        return
    if repeated.any():
        factor = int(np.flatnonzero(repeated)[0])
        raise GraphError(
            f"{kind} factor {factor}: the variables of a factor must differ, "
            f"got {scope[factor].tolist()}"
        )


def read_weight(kind: str, weight: ArrayLike, count: int) -> NDArray[np.float64]:
    """One finite weight per factor as a read-only float64 array; a single number is repeated."""
    array = np.asarray(weight)
    if array.dtype.kind not in "iufb":
        raise GraphError(f"{kind}: weights must be real numbers, got type {array.dtype}")
    if array.ndim == 0:
        array = np.full(count, array, dtype=np.float64)
    if array.shape != (count,):
        raise GraphError(f"{kind}: expected {count} weights, one per factor, got {array.shape}")
    finite = np.isfinite(array)
    if not finite.all():
        factor = int(np.flatnonzero(~finite)[0])
        raise GraphError(
            f"{kind} factor {factor}: a weight must be finite, got {array[factor]}. "
            "Hard constraints are outside the theory; use a large finite weight instead"
        )
    return frozen(array, np.float64)


def read_energy(kind: str, energy: ArrayLike, floor: float | None) -> NDArray[np.float64]:
    """Finite log-potentials as a read-only float64 array, raised to `floor` where one is given."""
    array = np.asarray(energy)
    if array.dtype.kind not in "iufb":
        raise GraphError(f"{kind}: energies must be real numbers, got type {array.dtype}")
    array = np.array(array, dtype=np.float64, order="C")
    if floor is not None:
        if not np.isfinite(floor):
            raise GraphError(f"{kind}: floor must be finite, got {floor}")
        np.maximum(array, floor, out=array)  # keeps NaN
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(k) for k in np.argwhere(~finite)[0])
        value = array[place]
        if value == -np.inf:
            problem = (
                "is -inf, a zero probability. Hard constraints are outside the theory; "
                "floor=-20.0, say, makes such states very unlikely instead"
            )
        else:
            problem = f"must be finite, got {value}"
        raise GraphError(f"{kind}: the energy at {list(place)} {problem}")
    array.flags.writeable = False
    return array


def log_probabilities(
    kind: str, probability: ArrayLike, floor: float | None
) -> NDArray[np.float64]:
    """Logarithms of positive numbers; zeros are refused unless `floor` lifts them."""
    array = np.array(probability, dtype=np.float64)
    if floor is not None:
        if not floor > 0:
            raise GraphError(f"{kind}: floor must be a positive probability, got {floor}")
        np.maximum(array, floor, out=array)
    bad = ~(array > 0) | ~np.isfinite(array)
    if bad.any():
        place = tuple(int(k) for k in np.argwhere(bad)[0])
        value = array[place]
        if value == 0:
            problem = (
                "is zero. Hard constraints are outside the theory; floor=1e-9, say, makes "
                "such states very unlikely instead"
            )
        else:
            problem = f"must be positive and finite, got {value}"
        raise GraphError(f"{kind}: the probability at {list(place)} {problem}")
    return np.log(array)
