"""L-BFGS for objectives with exact gradients; L1 penalties split parameters by sign."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.driver import drive
from minigibbs.learning.ascent import STEPS
from minigibbs.learning.penalty import Penalty
from minigibbs.learning.progress import StepBar
from minigibbs.running.plan import CONVERGED
from minigibbs.system.watch import Watch

Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
_TOLERANCE = 1e-7  # tolerance of the gradient's largest entry
_MEMORY = 20  # steps in the memory of L-BFGS


class Climb:
    """L-BFGS in progress: its parameters and history."""

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

    def run(self, steps: int, bar: StepBar, watch: Watch) -> str:
        """Maximize until the gradient is close to 0.

        Parameters
        ----------
        steps : int
            Largest number of iterations of L-BFGS.
        bar : StepBar
            Progress bar of the iterations.
        watch : Watch
            Deadline and signals of the call; evaluations of the objective check them.

        Returns
        -------
        str
            "converged", "steps", "time", "interrupted" or "terminated".
        """
        self._begun, self._bar, self._watch, self._most = time.monotonic(), bar, watch, steps
        ended = drive(self, watch)
        self.seconds = time.monotonic() - self._begun
        return ended

    def segment(self) -> str:
        """Run to the end: SciPy's L-BFGS has no segments, but its evaluations can be stopped."""
        from scipy.optimize import minimize

        split = self.free & (self.penalty.l1 > 0)
        found = minimize(
            self._loss,
            self._coordinates(split),
            args=(split,),
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds(split),
            callback=lambda at: self._note(at, split),
            options={
                "maxiter": self._most,
                "maxfun": 20 * self._most + 20,
                "gtol": _TOLERANCE,
                "ftol": 1e-14,
                "maxcor": _MEMORY,
            },
        )
        self.values = self._values(found.x, split)
        return STEPS if found.nit >= self._most else CONVERGED

    def keep(self) -> None:
        """Do nothing: L-BFGS has no checkpoint."""

    def rest(self) -> None:
        """Do nothing: no work runs in the background."""

    def _coordinates(self, split: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the free values; those with L1 as their positive and negative parts."""
        halves = self.values[split]
        plain = self.values[self.free & ~split]
        return np.concatenate([plain, np.maximum(halves, 0.0), np.maximum(-halves, 0.0)])

    def _bounds(self, split: NDArray[np.bool_]) -> Any:
        plain = int(np.count_nonzero(self.free & ~split))
        return [(None, None)] * plain + [(0.0, None)] * (2 * int(split.sum()))

    def _values(self, at: NDArray[np.float64], split: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return all values at some coordinates; fixed ones stay bit-identical."""
        values, count = self.values.copy(), int(split.sum())
        plain = len(at) - 2 * count
        values[self.free & ~split] = at[:plain]
        values[split] = at[plain : plain + count] - at[plain + count :]
        return values

    def _loss(
        self, at: NDArray[np.float64], split: NDArray[np.bool_]
    ) -> tuple[float, NDArray[np.float64]]:
        self._watch.check()
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
