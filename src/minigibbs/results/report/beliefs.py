"""What a run says about each variable, and how far its chains agree on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from minigibbs.results import diagnostics
from minigibbs.results.run import Run

MOST_JUDGED = 60  # variables whose R-hat is worked out; those that differ most between chains
_MOST_VALUES = 10  # of a variable, whose R-hat is worked out
_AT_ONCE = 1 << 22  # draws counted at a time


@dataclass(frozen=True)
class Judged:
    """One variable's convergence over the indicators of its values; NaN where it cannot be told."""

    variable: int
    rhat: float
    ess: float


class Beliefs:
    """Marginals by chain as flat arrays, a stretch per variable."""

    def __init__(self, run: Run, counts: NDArray[np.int64], variables: int | None = None) -> None:
        self.run = run
        self.variables = variables or len(run.domains)  # of the model, those left out as well
        self.sizes = run.domains.sizes.astype(np.int64)
        self.starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        totals = counts[:, : self.sizes[0]].sum(axis=1)
        self.numbers = np.flatnonzero(totals)  # of the chains that recorded something
        self.chains: NDArray[np.float64]  # [chain, any value]
        self.chains = counts[self.numbers] / totals[self.numbers, None]
        self.pooled: NDArray[np.float64] = counts.sum(axis=0) / max(int(totals.sum()), 1)

    def marginal(self, variable: int) -> NDArray[np.float64]:
        """Probabilities of a variable's values."""
        return self.pooled[self._stretch(variable)]

    def by_chain(self, variable: int) -> NDArray[np.float64]:
        """The same of each chain: [chain, value]."""
        return self.chains[:, self._stretch(variable)]

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """For each variable the largest difference between two chains' probabilities."""
        if len(self.chains) < 2:
            return np.zeros(len(self.sizes))
        apart: NDArray[np.float64] = self.chains.max(axis=0) - self.chains.min(axis=0)
        return np.maximum.reduceat(apart, self.starts)

    @cached_property
    def doubt(self) -> NDArray[np.float64]:
        """For each variable its entropy over the largest possible: 0 is sure, 1 is anything."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(self.pooled > 0, -self.pooled * np.log(self.pooled), 0.0)
            entropy = np.add.reduceat(terms, self.starts)
            return np.where(self.sizes > 1, entropy / np.log(self.sizes), 0.0)

    @cached_property
    def top(self) -> NDArray[np.float64]:
        """For each variable the probability of its most probable value."""
        return np.maximum.reduceat(self.pooled, self.starts)

    @cached_property
    def likeliest(self) -> NDArray[np.int64]:
        """For each variable its most probable value."""
        return self.likeliest_in(self.pooled)

    def likeliest_in(self, flat: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each variable the value with the largest number, the first of equals."""
        largest = np.repeat(np.maximum.reduceat(flat, self.starts), self.sizes)
        places = np.flatnonzero(flat == largest)
        owners = np.searchsorted(self.starts, places, side="right") - 1
        first: NDArray[np.int64] = places[np.unique(owners, return_index=True)[1]]
        return first - self.starts

    @cached_property
    def judged(self) -> list[Judged]:
        """R-hat and ESS of the variables on which the chains differ most, the worst first."""
        draws, drawn = self.run.draws, self.run.drawn
        if draws is None or draws.shape[1] == 0:
            return []
        places = _largest(self.spread[drawn], MOST_JUDGED)
        found = [self._judge(drawn[k], draws[:, :, k]) for k in places if self.top[drawn[k]] < 1]
        return sorted(found, key=lambda one: -np.nan_to_num(one.rhat, nan=0.0, posinf=1e300))

    def _judge(self, variable: int, draws: NDArray[np.unsignedinteger]) -> Judged:
        values = np.argsort(-self.marginal(variable))[:_MOST_VALUES]
        values = values[:1] if self.sizes[variable] == 2 else values
        indicators = draws[:, :, None] == values
        return Judged(
            int(variable),
            float(np.fmax.reduce(np.atleast_1d(diagnostics.rhat(indicators)))),
            float(np.fmin.reduce(np.atleast_1d(diagnostics.ess(indicators)))),
        )

    def least_agreed(self, most: int) -> list[int]:
        """Variables by R-hat where all have draws, else by how far the chains are apart."""
        judged = [one.variable for one in self.judged if not np.isnan(one.rhat)]
        if judged and len(self.run.drawn) == len(self.sizes):
            return judged[:most]
        return [v for v in _largest(self.spread, most) if self.spread[v] > 0]

    def most_doubtful(self, most: int) -> list[int]:
        """Variables with the most spread-out marginals."""
        return [v for v in _largest(self.doubt, most) if self.doubt[v] > 0]

    def _stretch(self, variable: int) -> slice:
        start = int(self.starts[variable])
        return slice(start, start + int(self.sizes[variable]))


def beliefs(run: Run) -> Beliefs | None:
    """A run's marginals, from every update or else from its draws; None if it kept neither."""
    if run.counts is not None and run.clock.sum() > 0:
        return Beliefs(run, run.counts)
    if run.draws is not None and run.draws.shape[1] > 0:
        shown = _drawn_alone(run) if len(run.drawn) < len(run.domains) else run
        counts = _count(run.draws, shown.domains.sizes, shown.drawn)
        return Beliefs(shown, counts, len(run.domains))
    return None


def _drawn_alone(run: Run) -> Run:
    """A run of the variables whose draws were kept, where nothing is known of the others."""
    return replace(
        run,
        domains=run.domains.pick(run.drawn.tolist()),
        drawn=np.arange(len(run.drawn), dtype=np.int32),
        counts=None,
        reference=None,
    )


def _count(
    draws: NDArray[np.unsignedinteger], sizes: NDArray[np.int32], drawn: NDArray[np.int32]
) -> NDArray[np.int64]:
    """How often each value was drawn: [chain, sum of sizes]."""
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = (ends - sizes)[drawn]
    counts = np.zeros((len(draws), int(ends[-1])), dtype=np.int64)
    step = max(1, _AT_ONCE // len(sizes))
    for chain, rows in enumerate(draws):
        for begin in range(0, len(rows), step):
            places = (starts + rows[begin : begin + step]).ravel()
            counts[chain] += np.bincount(places, minlength=counts.shape[1])
    return counts


def _largest(values: NDArray[np.float64], most: int) -> list[int]:
    """Where the largest values stand, the largest first, equals in order."""
    chosen = np.arange(len(values))
    if len(values) > most:
        chosen = np.sort(np.argpartition(-values, most)[:most])
    return [int(v) for v in chosen[np.argsort(-values[chosen], kind="stable")]]
