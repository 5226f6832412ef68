"""How a noisy gradient moves the parameters: Adam and plain steps, both with decay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError

OPTIMISERS = ("adam", "sgd")
_FIRST, _SECOND, _LEAST = 0.9, 0.999, 1e-8  # Adam's, as published
_POWER = 0.75  # of the decay: between 1/2 and 1, so that averages converge
_LATE = 3.0  # averages weigh step t by about t**3


@dataclass
class Optimiser:
    """The state of an ascent: everything in it is kept in checkpoints."""

    kind: str
    rate: float
    decay: float  # steps after which the rate has fallen to 2**-0.75 of its first
    values: NDArray[np.float64]
    free: NDArray[np.bool_]
    step: int = 0
    average: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    first: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    second: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.kind not in OPTIMISERS:
            raise LearnError(f"optimizer must be one of {', '.join(OPTIMISERS)}; got {self.kind!r}")
        if not len(self.average):
            self.average = self.values.copy()
            self.first, self.second = np.zeros_like(self.values), np.zeros_like(self.values)

    def ascend(self, gradient: NDArray[np.float64], l1: NDArray[np.float64]) -> None:
        """Make a step upwards; L1 pulls towards 0, and to 0 exactly. Fixed values do not move."""
        self.step += 1
        rate = self.rate * (1.0 + self.step / self.decay) ** -_POWER
        gradient = np.where(self.free, gradient, 0.0)
        length = np.full(len(self.values), rate)
        if self.kind == "adam":
            self.first += (1 - _FIRST) * (gradient - self.first)
            self.second += (1 - _SECOND) * (gradient**2 - self.second)
            gradient = self.first / (1 - _FIRST**self.step)
            length = rate / (np.sqrt(self.second / (1 - _SECOND**self.step)) + _LEAST)
        moved = self.values[self.free] + (length * gradient)[self.free]
        pull = (length * l1)[self.free]
        moved = np.sign(moved) * np.maximum(np.abs(moved) - pull, 0.0)
        self.values[self.free] = moved
        share = min(1.0, (_LATE + 1) / (self.step + _LATE))
        self.average[self.free] += share * (moved - self.average[self.free])

    def state(self) -> dict[str, NDArray[np.float64]]:
        """What a checkpoint keeps."""
        names = ("values", "average", "first", "second")
        return {name: getattr(self, name) for name in names}
