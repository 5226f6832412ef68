"""Marginals of a run by variable, and the choice of variables to display."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.domains import Domains
from minigibbs.results.diagnostics import largest
from minigibbs.results.marginals import Shares

if TYPE_CHECKING:
    from minigibbs.results.run import Run


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Marginals of all variables, or of the drawn ones."""

    domains: Domains
    marginals: Shares
    variables: int  # number of variables of the model, including those without records
    numbers: list[int]  # indices of the rows with records
    judged: list[int]  # variables by decreasing R-hat, if all have draws

    def marginal(self, variable: int) -> NDArray[np.float64]:
        """Return the probabilities of a variable's values."""
        return self.marginals.pooled[self.marginals.of_variable(variable)]

    def by_chain(self, variable: int) -> NDArray[np.float64]:
        """Return the probabilities of a variable's values by row: [row, value]."""
        return self.marginals.rows[:, self.marginals.of_variable(variable)]

    @cached_property
    def uncertainty(self) -> NDArray[np.float64]:
        """[variable] entropy relative to the largest possible: 0 is certain, 1 is uniform."""
        most = np.log(np.maximum(self.marginals.sizes, 2))
        return self.marginals.entropy / most  # type: ignore[no-any-return]

    def least_agreed(self, most: int) -> list[int]:
        """Return variables by R-hat if all have draws, else by the difference between chains."""
        if self.judged:
            return self.judged[:most]
        spread = self.marginals.spread
        return [int(v) for v in largest(spread, most) if spread[v] > 0]

    def most_uncertain(self, most: int) -> list[int]:
        """Return the variables with the largest relative entropy."""
        return [int(v) for v in largest(self.uncertainty, most) if self.uncertainty[v] > 0]


def beliefs(run: Run) -> tuple[Run, Beliefs | None]:
    """Return a run's marginals, from every update or else from its draws; None if it kept neither.

    The returned run has only the variables with records.
    """
    known = run
    if run.counts is None and run.kept_draws is not None and len(run.drawn) < len(run.domains):
        known = _drawn_alone(run)
    marginals = known.known_marginals
    if marginals is None:
        return run, None
    seen = known.visits if known.counts is not None else known.clock
    judged = [one.variable for one in known.judged if not np.isnan(one.rhat)]
    return known, Beliefs(
        known.domains,
        marginals,
        len(run.domains),
        [int(k) for k in np.flatnonzero(seen)],
        judged if len(known.drawn) == len(marginals.sizes) else [],
    )


def _drawn_alone(run: Run) -> Run:
    """Return a run of only the variables whose draws were kept."""
    return replace(
        run,
        domains=run.domains.pick(run.drawn.tolist()),
        drawn=np.arange(len(run.drawn), dtype=np.int32),
        counts=None,
        reference=None,
        state=None,
        clamped=run.clamped[run.drawn],
    )
