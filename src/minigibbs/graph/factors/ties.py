"""Parameters of factor groups: named, shared between factors, or fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array, frozen

MOST_PARAMETERS = 2**31 - 1  # of one name


@dataclass(frozen=True, eq=False)
class Tie:
    """The names and ties of a group's parameters.

    Factor k of the group has parameter `tied[k]`, multiplied by `scale[k]`.
    """

    name: str
    tied: NDArray[np.int64] | None  # [factors]; None if each factor has its own, or all share one
    fixed: NDArray[np.bool_]  # of the parameters' shape, or of shape () for all
    scale: NDArray[np.float64] | None = None  # [factors]; None for 1

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, for files."""
        given: dict[str, Any] = {"name": self.name, "tied": self.tied, "scale": self.scale}
        if self.fixed.any():
            given["fixed"] = True if self.fixed.ndim == 0 else self.fixed
        return {key: value for key, value in given.items() if value is not None}

    def numbers(self, count: int) -> int:
        """Return the number of parameters; each factor has its own unless tied."""
        return count if self.tied is None else int(self.tied.max(initial=-1)) + 1


def read_tie(
    kind: str,
    count: int,
    name: str | None,
    tied: ArrayLike | None,
    fixed: ArrayLike,
    scale: ArrayLike | None = None,
) -> Tie | None:
    """Read the arguments about a group's parameters; return None if it has none."""
    flags = as_array(fixed, "b", f"{kind}: fixed must hold booleans")
    if name is None:
        given = {"tied": tied is not None, "fixed": flags.any(), "scale": scale is not None}
        extra = [key for key, there in given.items() if there]
        if extra:
            raise GraphError(
                f"{kind}: {extra[0]} is for parameters, which have a name; give name= as well"
            )
        return None
    if not isinstance(name, str) or not name:
        raise GraphError(f"{kind}: a parameter's name must be text that is not empty, got {name!r}")
    return Tie(name, _read_ties(kind, name, tied, count), flags, _scales(kind, name, scale, count))


def _read_ties(
    kind: str, name: str, tied: ArrayLike | None, count: int
) -> NDArray[np.int64] | None:
    if tied is None:
        return None
    rule = f"{kind} {name!r}: tied must hold the number of each factor's parameter, 0, 1, 2, ..."
    array = as_array(tied, "iu", rule)
    if array.ndim == 0:
        array = np.full(count, array)
    if array.shape != (count,):
        raise GraphError(f"{rule}, for {count} factors; got shape {array.shape}")
    if len(array) and (array.min() < 0 or array.max() > MOST_PARAMETERS):
        raise GraphError(f"{rule}; got {array[(array < 0) | (array > MOST_PARAMETERS)][0]}")
    return frozen(array, np.int64)


def _scales(
    kind: str, name: str, scale: ArrayLike | None, count: int
) -> NDArray[np.float64] | None:
    if scale is None:
        return None
    rule = f"{kind} {name!r}: scale must hold finite numbers, one per factor or one for all"
    array = as_array(scale, "iufb", rule).astype(np.float64)
    if array.shape not in ((), (count,)) or not np.isfinite(array).all():
        shown = array.shape if array.shape not in ((), (count,)) else "one that is not finite"
        raise GraphError(f"{rule}; got {shown}")
    return frozen(np.broadcast_to(array, count), np.float64)


def spread(tie: Tie | None, numbers: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return each factor's weight: the parameter to which it is tied, scaled."""
    if tie is None:
        return numbers
    weight = numbers if tie.tied is None else numbers[tie.tied]
    if tie.scale is not None:
        with np.errstate(over="ignore"):
            scaled = weight * tie.scale
        wrong = np.flatnonzero(np.isinf(scaled) & np.isfinite(weight))
        if len(wrong):
            k = int(wrong[0])
            raise GraphError(
                f"parameter {tie.name!r}: a weight times its scale must be a finite number; factor "
                f"{k} has {weight[k]:g} times {tie.scale[k]:g}"
            )
        weight = scaled
    weight = np.ascontiguousarray(weight)
    weight.flags.writeable = False
    return weight


def check_fixed(kind: str, tie: Tie | None, shape: tuple[int, ...]) -> None:
    """Raise an error unless `fixed` matches the parameters: one for all, or one per parameter."""
    if tie is not None and tie.fixed.shape not in ((), shape):
        raise GraphError(
            f"{kind} {tie.name!r}: fixed must be True, False or of shape {shape}, one for each "
            f"number; got shape {tie.fixed.shape}"
        )


def given_ties(tie: Tie | None) -> Mapping[str, Any]:
    """Return the ties of a group for a file; empty without parameters."""
    return {} if tie is None else tie.arguments()
