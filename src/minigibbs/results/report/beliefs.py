"""What a run says about each variable, and which ones to show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from minigibbs.results.diagnostics import largest
from minigibbs.results.marginals import Marginals
from minigibbs.results.run import Run
from minigibbs.results.summary import marginals_of


@dataclass(frozen=True, eq=False)
class Beliefs:
    """A run's marginals, of all variables or of those that were drawn."""

    run: Run
    marginals: Marginals
    variables: int  # of the model, those of which nothing is known as well

    @cached_property
    def numbers(self) -> list[int]:
        """The numbers of the rows that recorded something."""
        seen = self.run.visits if self.run.counts is not None else self.run.clock
        return [int(k) for k in np.flatnonzero(seen)]

    def marginal(self, variable: int) -> NDArray[np.float64]:
        """Probabilities of a variable's values."""
        return self.marginals.pooled[self.marginals.of_variable(variable)]

    def by_chain(self, variable: int) -> NDArray[np.float64]:
        """The same of each row: [row, value]."""
        return self.marginals.rows[:, self.marginals.of_variable(variable)]

    @cached_property
    def doubt(self) -> NDArray[np.float64]:
        """For each variable its entropy over the largest possible: 0 is sure, 1 is anything."""
        most = np.log(np.maximum(self.marginals.sizes, 2))
        return self.marginals.entropy / most  # type: ignore[no-any-return]

    def least_agreed(self, most: int) -> list[int]:
        """Variables by R-hat where all have draws, else by how far the chains are apart."""
        judged = [one.variable for one in self.run.judged if not np.isnan(one.rhat)]
        if judged and len(self.run.drawn) == len(self.marginals.sizes):
            return judged[:most]
        spread = self.marginals.spread
        return [int(v) for v in largest(spread, most) if spread[v] > 0]

    def most_doubtful(self, most: int) -> list[int]:
        """Variables with the most spread-out marginals."""
        return [int(v) for v in largest(self.doubt, most) if self.doubt[v] > 0]


def beliefs(run: Run) -> Beliefs | None:
    """A run's marginals, from every update or else from its draws; None if it kept neither."""
    known = run
    if run.counts is None and run.draws is not None and len(run.drawn) < len(run.domains):
        known = _drawn_alone(run)
    marginals = marginals_of(known)
    return None if marginals is None else Beliefs(known, marginals, len(run.domains))


def _drawn_alone(run: Run) -> Run:
    """A run of the variables whose draws were kept, where nothing is known of the others."""
    return replace(
        run,
        domains=run.domains.pick(run.drawn.tolist()),
        drawn=np.arange(len(run.drawn), dtype=np.int32),
        counts=None,
        reference=None,
        state=None,
        clamped=run.clamped[run.drawn],
    )
