"""Random trials that try to break a claim, and a local search from the worst one.

A trial reads uniform numbers from a tape. Equal numbers give the same trial, and close numbers give
a similar one. So one search works for every claim.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigibbs import theory
from minigibbs.errors import SampleError, TooLargeError
from minigibbs.graph.factors import Potts, Table, Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers import Estimator, PoissonEstimator, SubsetEstimator
from minigibbs.theory.bounds import Comparison

SEED = 2018
_TRIES = 100  # most attempts to draw a trial that can be enumerated


class Tape:
    """Sequence of uniform numbers on [0, 1) that a trial reads, extended as needed."""

    def __init__(self, rng: np.random.Generator, numbers: tuple[float, ...] = ()) -> None:
        self._rng, self._known = rng, numbers
        self.numbers: list[float] = []  # numbers read so far

    def next(self) -> float:
        """Return the next number, a known one if there is one."""
        place = len(self.numbers)
        self.numbers.append(
            self._known[place] if place < len(self._known) else float(self._rng.random())
        )
        return self.numbers[-1]

    def uniform(self, low: float, high: float) -> float:
        """Draw a number between two."""
        return low + (high - low) * self.next()

    def log_uniform(self, low: float, high: float) -> float:
        """Draw a number between two, uniform in its logarithm."""
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def below(self, count: int) -> int:
        """Draw an integer from 0 to `count` - 1."""
        return min(int(count * self.next()), count - 1)

    def chance(self, probability: float) -> bool:
        """Return True with a given probability."""
        return self.next() < probability

    def near(self, rng: np.random.Generator) -> Tape:
        """Return a tape with some of the numbers perturbed, by small or large amounts."""
        numbers = np.array(self.numbers)
        moved = rng.random(len(numbers)) < 2.0 / max(len(numbers), 1)
        size = 10.0 ** rng.uniform(-3.0, 0.0)
        numbers[moved] = (numbers[moved] + size * rng.normal(size=moved.sum())) % 1.0
        return Tape(rng, tuple(numbers.tolist()))


@dataclass(frozen=True, eq=False)
class Trial:
    """A claim on one graph, and the comparison found."""

    graph: FactorGraph
    settings: dict[str, Any]
    comparison: Comparison

    def __str__(self) -> str:
        """Describe the graph and the settings on one line, with few digits."""
        parts = [f"domains {'x'.join(map(str, self.graph.sizes))}"]
        for group in self.graph.factors:
            arrays = group.arrays()
            values = arrays["weight"] if group.kind == "potts" else arrays["log_potential"]
            for scope, value in zip(group.scope.tolist(), np.asarray(values), strict=True):
                parts.append(f"{group.kind} {','.join(map(str, scope))}: {_numbers(value)}")
        parts += [f"{name} = {_setting(value)}" for name, value in self.settings.items()]
        return "; ".join(parts)


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.3g}" for value in np.ravel(values))


def _setting(value: Any) -> str:
    """Format a setting with every number at four digits."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", str(value))


Make = Callable[[Tape], Trial]


def fresh(make: Make, number: int) -> tuple[Trial, Tape]:
    """Return the random trial with this index."""
    return _attempt(make, lambda rng: Tape(rng), number)


def climb(make: Make, trial: Trial, tape: Tape, steps: int) -> Trial:
    """Return the worst trial in this number of steps, each close to the worst so far."""
    for step in range(steps):
        other, its_tape = _attempt(make, tape.near, -1 - step)
        if other.comparison.strain > trial.comparison.strain:
            trial, tape = other, its_tape
    return trial


def _attempt(
    make: Make, draw: Callable[[np.random.Generator], Tape], number: int
) -> tuple[Trial, Tape]:
    """Return a trial that can be enumerated."""
    rng = np.random.default_rng([SEED, abs(number), int(number < 0)])
    for _ in range(_TRIES):
        tape = draw(rng)
        try:
            return make(tape), tape
        except (SampleError, TooLargeError):  # no estimate within delta, or too many minibatches
            continue
    raise RuntimeError(f"no trial in {_TRIES} could be enumerated")


def hostile_graph(tape: Tape, strongest: float, indicators: bool = False) -> FactorGraph:
    """Draw a graph of up to three variables: weak or strong factors, ties, repulsion, fields.

    With `indicators`, factors have two values only, so that Poisson estimates have few points.
    """
    count = 1 + tape.below(3)
    sizes = [2 + tape.below(2) for _ in range(count)]
    scale, tied = tape.log_uniform(1e-3, strongest), tape.chance(0.4)

    def weight() -> float:
        size = scale * (1.0 if tied else tape.uniform(0.05, 1.0))
        return -size if tape.chance(0.4) else size

    groups: list[Any] = []
    for i, j in ((0, 1), (1, 2), (0, 2)):
        if j < count and tape.chance(0.8):
            copies = 2 if tape.chance(0.2) else 1  # parallel factors
            groups.append(Potts([i] * copies, [j] * copies, [weight() for _ in range(copies)]))
    for i, size in enumerate(sizes):
        if not groups or tape.chance(0.4):
            peak = 6.0 if tape.chance(0.15) else abs(weight())
            field = [0.0] * size
            field[tape.below(size)] = peak
            if not indicators and size > 2:
                field[tape.below(size)] = peak * tape.uniform(0.0, 1.0)
            groups.append(Unary([i], [field]))
    if count > 1 and not indicators and tape.chance(0.3):
        table = [[weight() for _ in range(sizes[1])] for _ in range(sizes[0])]
        groups.append(Table([[0, 1]], [table]))
    return FactorGraph(sizes, groups)


def bounded_estimates(tape: Tape) -> tuple[FactorGraph, Estimator]:
    """Draw a graph, and an estimator whose deviations are bounded by some delta."""
    kind = tape.below(3)
    graph = hostile_graph(tape, 4.0 if kind == 0 else 1.0, indicators=kind == 2)
    if kind == 0:
        peaked = tape.chance(0.3)
        chance = tape.log_uniform(1e-4, 0.5) if peaked else tape.uniform(0.1, 0.9)
        return graph, theory.TwoPointEstimator(tape.log_uniform(1e-4, 1.0), chance)
    if kind == 1 and graph.stats.factors > 1:
        return graph, SubsetEstimator(1 + tape.below(graph.stats.factors - 1))
    return graph, theory.TruncatedEstimator(*poisson_estimates(tape, graph))


def poisson_estimates(tape: Tape, graph: FactorGraph) -> tuple[Estimator, float]:
    """Return Poisson estimates, and a bound of a few of their steps for truncation."""
    batch = graph.stats.total_energy * tape.log_uniform(0.5, 30.0)
    step = math.log1p(graph.stats.total_energy / batch)
    return PoissonEstimator(batch), step * tape.uniform(0.6, 3.0)


def any_estimates(tape: Tape) -> tuple[FactorGraph, Estimator]:
    """Draw a graph, and an estimator with any stationary distribution."""
    if tape.chance(0.5):
        graph = hostile_graph(tape, 2.0)
        return graph, SubsetEstimator(1 + tape.below(graph.stats.factors))
    graph = hostile_graph(tape, 1.5, indicators=True)
    return graph, PoissonEstimator(tape.log_uniform(0.3, 3.0))


def local_batch(tape: Tape, graph: FactorGraph) -> float:
    """Draw a lambda for MGPMH, at least L, and small enough to enumerate minibatches."""
    local = graph.stats.local_energy
    return max(local, min(local**2 * tape.log_uniform(0.5, 30.0), 12.0))
