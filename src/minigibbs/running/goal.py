"""When chains have run long enough: R-hat and effective sample size, looked at in rounds.

Rounds grow by the square root of 2, and their ends depend on updates alone, never on the clock: a
seed fixes where a run that converges stops, whatever it runs on and however often it was resumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.results import diagnostics
from minigibbs.results.marginals import Marginals, split_rhat
from minigibbs.results.run import Run

_LEAST_RECORDS = 50  # a chain, in the first round
_MOST_RECORDS = 50_000  # a chain, that are looked at
_MOST_VARIABLES = 25  # whose draws are looked at


class Round(NamedTuple):
    """What a round's end is remembered by."""

    counts: NDArray[np.int64]  # [row, sum of sizes]
    visits: NDArray[np.int64]  # [row]


@dataclass
class Goal:
    """What is to be reached, and how far it is."""

    rhat: float | None
    ess: float | None
    seen_rhat: float = math.nan
    seen_ess: float = math.nan
    past: list[Round] = field(default_factory=list)  # the last two

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
        earlier = self.past[0] if self.past else None
        none = np.empty((len(run.clock), 0), np.int64)
        counts = none if run.counts is None else run.counts
        self.past = [*self.past[-1:], Round(counts.copy(), run.visits.copy())]
        self.seen_rhat, self.seen_ess = _measure(run, earlier)
        return earlier is not None and self._reached()

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
        arrays = {
            f"round.{k}.{name}": array
            for k, one in enumerate(self.past)
            for name, array in one._asdict().items()
        }
        return {"rounds": len(self.past)}, arrays

    def load(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what `save` kept."""
        self.past = [
            Round(*(arrays[f"round.{k}.{name}"] for name in Round._fields))
            for k in range(int(header["rounds"]))
        ]


def _measure(run: Run, earlier: Round | None) -> tuple[float, float]:
    """The greatest R-hat and the least ESS of all that was recorded."""
    rhat, ess = diagnostics.of_energy(run, _MOST_RECORDS)
    judged = diagnostics.judge(run, _MOST_VARIABLES)
    rhats = [rhat, *(one.rhat for one in judged)]
    if run.counts is not None and earlier is not None:
        late = Marginals.of(run)
        early = replace(late, counts=earlier.counts, visits=earlier.visits)
        rhats.append(split_rhat(late, early))
    known = [one for one in rhats if one is not None and not math.isnan(one)]
    least = diagnostics.least([ess, *(one.ess for one in judged)])
    return max(known, default=math.nan), math.nan if least is None else least
