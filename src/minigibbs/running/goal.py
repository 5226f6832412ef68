"""When chains have run long enough: R-hat and effective sample size, looked at in rounds.

Rounds grow by the square root of 2, and their ends depend on updates alone, never on the clock: a
seed fixes where a run that converges stops, whatever it runs on and however often it was resumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.results import diagnostics
from minigibbs.results.run import Run, worst

_LEAST_RECORDS = 50  # a chain, in the first round
_MOST_RECORDS = 50_000  # a chain, that are looked at
_MOST_VARIABLES = 25  # whose draws are looked at


@dataclass
class Goal:
    """What is to be reached, and how far it is."""

    rhat: float | None
    ess: float | None
    seen_rhat: float = math.nan
    seen_ess: float = math.nan
    past: list[tuple[int, NDArray[np.int64]]] = field(default_factory=list)  # the last two rounds

    def __post_init__(self) -> None:
        if self.rhat is None and self.ess is None:
            raise SampleError("sample_until needs a goal: rhat, ess or both")
        for name, value, least in (("rhat", self.rhat, 1.0), ("ess", self.ess, 0.0)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and least < value < math.inf):
                raise SampleError(f"{name} must be a number above {least:g}, got {value!r}")

    def check_kept(self, kept: frozenset[str]) -> None:
        """Raise if what is recorded cannot tell."""
        if self.ess is not None and not kept & {"energy", "draws"}:
            raise SampleError('ess needs record to hold "energy" or "draws", or leave it out: None')
        if not kept:
            raise SampleError('rhat needs record to hold "marginals", "energy" or "draws"')

    def first_length(self, chains: int, thin: int) -> int:
        """Updates of each chain in the first round; the goal is looked at from the third on."""
        records = max(_LEAST_RECORDS, math.ceil((self.ess or 0) / chains / 2))
        return records * thin

    def more(self, length: int, thin: int) -> int:
        """How many updates longer the next round is than all before it together."""
        return max(1, round(length / thin * (math.sqrt(2) - 1))) * thin

    def met(self, run: Run) -> bool:
        """Look at a round's end; whether the goal is reached."""
        updates, earlier = int(run.clock.min()), self.past[:1]
        counts = np.empty((run.info.chains, 0), np.int64) if run.counts is None else run.counts
        self.past = [*self.past[-1:], (updates, counts.copy())]
        self.seen_rhat, self.seen_ess = _measure(run, earlier)
        return bool(earlier) and self._reached()

    def _reached(self) -> bool:
        """NaN stands for what never varies, and holds nobody up."""
        rhat_met = self.rhat is None or not self.seen_rhat > self.rhat
        return rhat_met and (self.ess is None or not self.seen_ess < self.ess)

    def note(self) -> str:
        """How far it is, in a few words."""
        rhat = "" if self.rhat is None else f"R-hat {self.seen_rhat:.3f} of {self.rhat:g}"
        ess = "" if self.ess is None else f"ESS {self.seen_ess:,.0f} of {self.ess:g}"
        return ", ".join(filter(None, (rhat, ess)))

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a checkpoint keeps of the rounds before."""
        rounds = [updates for updates, _ in self.past]
        return {"rounds": rounds}, {f"round.{k}": counts for k, (_, counts) in enumerate(self.past)}

    def load(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what `save` kept."""
        self.past = [(int(n), arrays[f"round.{k}"]) for k, n in enumerate(header["rounds"])]


def _measure(run: Run, earlier: list[tuple[int, NDArray[np.int64]]]) -> tuple[float, float]:
    """The greatest R-hat and the least ESS of all that was recorded."""
    rhats, sizes = [math.nan], [math.nan]
    if run.energy is not None:
        step = max(1, run.energy.shape[1] // _MOST_RECORDS)
        rhats.append(float(diagnostics.rhat(run.energy[:, ::step])))
        sizes.append(float(diagnostics.ess(run.energy[:, ::step])))
    value = worst(run, _MOST_VARIABLES)
    if value is not None:
        rhats.append(value[1])
        sizes.append(value[2])
    if run.counts is not None and earlier:
        early_updates, early = earlier[0]
        rhats.append(split_rhat(run.counts, int(run.clock.min()), early, early_updates))
    return float(np.fmax.reduce(rhats)), float(np.fmin.reduce(sizes))


def split_rhat(
    counts: NDArray[np.int64], updates: int, early: NDArray[np.int64], early_updates: int
) -> float:
    """The greatest R-hat over all values of all variables, from how long chains spent in each.

    Chains [chain, value] are split at `early_updates`. The variance of a value's indicator within
    a stretch is p (1 - p), so that the stretches' marginals p are all that is needed.
    """
    late = (counts - early) / (updates - early_updates)
    share = np.concatenate([early / early_updates, late])
    within = (share * (1.0 - share)).mean(axis=0)
    between = share.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.sqrt(1.0 + between / within)  # infinite where stretches are stuck apart
    return float(np.fmax.reduce(rhat, initial=math.nan))
