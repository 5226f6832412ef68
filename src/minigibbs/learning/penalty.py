"""Penalties of parameters: L1, L2 and normal priors, in units of a row's log-likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.parameters import Frame


@dataclass(frozen=True, eq=False)
class Penalty:
    """Penalty l1 * |value| + l2 / 2 * (value - mean)^2 of each parameter."""

    l1: NDArray[np.float64]
    l2: NDArray[np.float64]
    mean: NDArray[np.float64]

    def value(self, values: NDArray[np.float64]) -> float:
        """Return the penalty, including L1."""
        smooth = float(self.l2 @ (values - self.mean) ** 2) / 2
        return smooth + float(self.l1 @ np.abs(values))

    def slope(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gradient without L1, which has none at 0."""
        return self.l2 * (values - self.mean)


def read_penalty(
    frame: Frame, l1: Any, l2: Any, prior: Mapping[str, Any] | None, rows: int
) -> Penalty:
    """Read the penalties; a normal prior (mean and deviation) counts once for all rows."""
    first, second = _by_parameter(frame, "l1", l1), _by_parameter(frame, "l2", l2)
    mean = np.zeros(frame.size)
    for name, given in (prior or {}).items():
        place = frame.find(name).place
        center, deviation = _read_prior(name, given)
        if second[place].any():
            raise LearnError(f"parameter {name!r} has l2 and a prior: give one of them")
        mean[place], second[place] = center, 1.0 / (deviation**2 * rows)
    free = ~frame.fixed
    return Penalty(first * free, second * free, mean)


def _read_prior(name: str, given: Any) -> tuple[float, float]:
    """Return mean and deviation."""
    pair = tuple(given) if isinstance(given, tuple | list) else (0.0, given)
    if len(pair) == 2 and all(map(_is_real, pair)) and np.isfinite(pair[0]) and pair[1] > 0:
        return float(pair[0]), float(pair[1])
    raise LearnError(
        f"prior of parameter {name!r}: expected a deviation above 0, or (mean, deviation); "
        f"got {given!r}"
    )


def _is_real(number: Any) -> bool:
    return isinstance(number, int | float | np.number) and not isinstance(number, bool)


def _by_parameter(frame: Frame, what: str, given: Any) -> NDArray[np.float64]:
    """Return one number per parameter, from one number for all or numbers by name."""
    numbers = np.zeros(frame.size)
    named = given if isinstance(given, Mapping) else dict.fromkeys(frame.parameters, given)
    for name, number in named.items():
        if not (_is_real(number) and 0 <= number < np.inf):
            raise LearnError(f"{what} must be a number of at least 0, got {number!r}")
        numbers[frame.find(name).place] = number
    return numbers
