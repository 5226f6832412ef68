"""Objectives whose gradient is known without noise, climbed by L-BFGS; L1 by splitting signs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.learning.ascent import STEPS
from minigibbs.learning.penalty import Penalty
from minigibbs.learning.progress import StepBar
from minigibbs.running.plan import CONVERGED, TIME
from minigibbs.running.signals import Signals

Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
_TOLERANCE = 1e-7  # of the gradient's largest entry
_MEMORY = 20  # steps that L-BFGS remembers


class _StopError(Exception):
    """A signal, or the end of the time."""


class Climb:
    """A climb under way: where it is, and what it has seen."""

    def __init__(
        self,
        objective: Objective,
        penalty: Penalty,
        values: NDArray[np.float64],
        free: NDArray[np.bool_],
    ) -> None:
        self.objective, self.penalty, self.free = objective, penalty, free
        self.values = values.copy()
        self.steps, self.seconds = 0, 0.0
        self.history: dict[str, list[float]] = {"step": [], "seconds": [], "objective": []}

    def run(self, steps: int, signals: Signals, bar: StepBar, deadline: float | None) -> str:
        """Climb until the gradient is as good as 0; returns how it ended."""
        from scipy.optimize import minimize

        self._begun, self._signals, self._deadline, self._bar = (
            time.monotonic(),
            signals,
            deadline,
            bar,
        )
        split = self.free & (self.penalty.l1 > 0)
        try:
            found = minimize(
                self._loss,
                self._coordinates(split),
                args=(split,),
                jac=True,
                method="L-BFGS-B",
                bounds=self._bounds(split),
                callback=lambda at: self._note(at, split),
                options={
                    "maxiter": steps,
                    "maxfun": 20 * steps + 20,
                    "gtol": _TOLERANCE,
                    "ftol": 1e-14,
                    "maxcor": _MEMORY,
                },
            )
        except _StopError:
            self.seconds = time.monotonic() - self._begun
            return signals.ended or TIME
        self.values = self._values(found.x, split)
        self.seconds = time.monotonic() - self._begun
        return STEPS if found.nit >= steps else CONVERGED

    def _coordinates(self, split: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Free values; those with L1 as their positive and their negative part."""
        halves = self.values[split]
        plain = self.values[self.free & ~split]
        return np.concatenate([plain, np.maximum(halves, 0.0), np.maximum(-halves, 0.0)])

    def _bounds(self, split: NDArray[np.bool_]) -> Any:
        plain = int(np.count_nonzero(self.free & ~split))
        return [(None, None)] * plain + [(0.0, None)] * (2 * int(split.sum()))

    def _values(self, at: NDArray[np.float64], split: NDArray[np.bool_]) -> NDArray[np.float64]:
        """All values at some coordinates; fixed ones are as they were, to the bit."""
        values, count = self.values.copy(), int(split.sum())
        plain = len(at) - 2 * count
        values[self.free & ~split] = at[:plain]
        values[split] = at[plain : plain + count] - at[plain + count :]
        return values

    def _loss(
        self, at: NDArray[np.float64], split: NDArray[np.bool_]
    ) -> tuple[float, NDArray[np.float64]]:
        values = self._values(at, split)
        value, slope = self.objective(values)
        finite = np.where(np.isfinite(values), values, 0.0)
        value -= self.penalty.value(finite)
        slope = slope - self.penalty.slope(finite)
        self._value = value
        plain, halves = slope[self.free & ~split], slope[split]
        pull = self.penalty.l1[split]
        return -value, -np.concatenate([plain, halves - pull, -halves - pull])

    def _note(self, at: NDArray[np.float64], split: NDArray[np.bool_]) -> None:
        self.values = self._values(at, split)
        self.steps += 1
        seen = (float(self.steps), time.monotonic() - self._begun, self._value)
        for name, value in zip(self.history, seen, strict=True):
            self.history[name].append(value)
        self._bar.show(self.steps, float("nan"))
        late = self._deadline is not None and time.monotonic() > self._deadline
        if self._signals.ended or late:
            raise _StopError
