"""Optimizers for noisy gradients: Adam, plain and scaled steps, all with decay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError

OPTIMIZERS = ("adam", "sgd", "natural")
RATES = {"adam": 0.05, "sgd": 0.05, "natural": 0.02}  # defaults
_DECAY_1, _DECAY_2, _LEAST = 0.9, 0.999, 1e-8  # constants of Adam, as published
_POWER = 0.75  # exponent of the decay: between 1/2 and 1, so that averages converge
_LATE = 3.0  # weight of step t in averages is about t**3


@dataclass
class Optimizer:
    """State of an optimizer; checkpoints contain all of it."""

    kind: str
    rate: float
    decay: float  # steps after which the rate has fallen to 2**-0.75 of its first value
    values: NDArray[np.float64]
    free: NDArray[np.bool_]
    scale: NDArray[np.float64] | None = None  # scale of natural steps
    step: int = 0
    begun: int = 0  # step at which rates and averages began
    average: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    first: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    second: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.kind not in OPTIMIZERS:
            raise LearnError(f"optimizer must be one of {', '.join(OPTIMIZERS)}; got {self.kind!r}")
        self._all = bool(self.free.all())
        if not len(self.average):
            self.average = self.values.copy()
            self.first, self.second = np.zeros_like(self.values), np.zeros_like(self.values)

    def ascend(self, gradient: NDArray[np.float64], l1: NDArray[np.float64]) -> None:
        """Make an ascent step; L1 shrinks values to exactly 0. Fixed values do not change."""
        self.step += 1
        age = self.step - self.begun
        rate = self.rate * (1.0 + age / self.decay) ** -_POWER
        gradient = gradient if self._all else np.where(self.free, gradient, 0.0)
        length: float | NDArray[np.float64] = rate
        if self.kind == "adam":
            self.first += (1 - _DECAY_1) * (gradient - self.first)
            self.second += (1 - _DECAY_2) * (gradient**2 - self.second)
            gradient = self.first / (1 - _DECAY_1**age)
            length = rate / (np.sqrt(self.second / (1 - _DECAY_2**age)) + _LEAST)
        elif self.scale is not None:
            length = rate * self.scale
        moved = self.values + length * gradient
        if l1.any():
            moved = np.sign(moved) * np.maximum(np.abs(moved) - length * l1, 0.0)
        share = min(1.0, (_LATE + 1) / (age + _LATE))
        if self._all:
            self.values[:] = moved
            self.average += share * (moved - self.average)
        else:
            self.values[self.free] = moved[self.free]
            self.average[self.free] += share * (moved[self.free] - self.average[self.free])

    def restart(self) -> None:
        """Begin again at the average so far, with the first rate."""
        self.begun = self.step
        self.values[self.free] = self.average[self.free]
        self.first[:], self.second[:] = 0.0, 0.0

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the arrays to store in a checkpoint."""
        names = ("values", "average", "first", "second")
        return {name: getattr(self, name) for name in names}
