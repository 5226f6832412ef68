"""When chains have run long enough: R-hat and effective sample size, looked at in rounds.

Rounds grow by the square root of 2. Their ends, and how much of the records is looked at, depend on
updates alone, never on the clock: a seed fixes where a run that converges stops, whatever it runs
on and however often it was resumed. Only a run whose time is up stops elsewhere.

A run stops by what it sees within chains: how parts of the same chain differ. Its errors come from
how chains differ. The two are independent, so that runs do not stop when their errors look small by
chance. Chains are compared with each other only to refuse those that plainly disagree.

Without a warm-up of its own a run drops the first quarter of its chains at every look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.results import diagnostics
from minigibbs.results.marginals import WANTED_CHAINS, Marginals, chance_factor, within_rows
from minigibbs.results.run import Run
from minigibbs.running.plan import Plan
from minigibbs.system.watch import current

_LEAST_RECORDS = 50  # a chain: in the first round, and looked at
_KEPT = 5  # rounds that are remembered: they go back to a quarter of the run
_DROPPED = 0.3  # share of a run, of which the longest round below it is dropped: about a quarter
_MOST_ENERGIES = 20_000  # of all chains that are looked at, or four times the ESS that is wanted
_MOST_DRAWS = 4_000  # of all chains that are looked at for each value, or four times the ESS
_MOST_WANTED = 2.0**53  # records that anybody can ask for
_MOST_VARIABLES = 25  # whose draws are looked at,
_MOST_VALUES = 10  # each, as in `diagnostics.judge`
_LEAST_VALUES = 5  # of all these variables, and one more for each of this number of updates:
_UPDATES_PER_VALUE = 10**6  # some 50 ms of sampling, where a look at a value takes 3 ms

# Seconds that a look takes, about: a look that would end too late is not begun.
_SECONDS_PER_SERIES = 0.002
_SECONDS_PER_RECORD = 1.5e-6
_SECONDS_PER_COUNT = 1e-7


class Round(NamedTuple):
    """What a round's end is remembered by."""

    counts: NDArray[np.int64]  # [row, sum of sizes]
    visits: NDArray[np.int64]  # [row]
    clock: NDArray[np.int64]  # [row] updates

    @classmethod
    def of(cls, counts: NDArray[np.int64] | None, visits: Any, clock: Any) -> Round:
        """Return a round that ends here; without marginals the counts are empty."""
        none = np.empty((len(clock), 0), np.int64)
        return cls((none if counts is None else counts).copy(), visits.copy(), clock.copy())


@dataclass(frozen=True)
class Goal:
    """What is to be reached, and how far it was at the last look."""

    rhat: float | None
    ess: float | None
    error: float | None = None
    seen_rhat: float = math.nan
    seen_ess: float = math.nan
    seen_error: float = math.nan
    drop: bool = False  # whether the first quarter of each chain is dropped
    past: tuple[Round, ...] = ()  # the last `_KEPT`
    met: bool = False

    def __post_init__(self) -> None:
        error = ("standard_error", self.error, 0.0)
        goals = (("rhat", self.rhat, 1.0), ("ess", self.ess, 0.0), error)
        if all(value is None for _, value, _ in goals):
            raise SampleError("sample_until needs a goal: rhat, ess or standard_error")
        for name, value, least in goals:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and least < value < math.inf):
                raise SampleError(f"{name} must be a number above {least:g}, got {value!r}")

    def check_kept(self, kept: frozenset[str]) -> None:
        """Raise if what is recorded cannot tell."""
        if self.ess is not None and not kept & {"energy", "draws"}:
            raise SampleError('ess needs record to hold "energy" or "draws", or leave it out: None')
        if self.error is not None and "marginals" not in kept:
            raise SampleError('standard_error needs record to hold "marginals"')
        if not kept:
            raise SampleError('rhat needs record to hold "marginals", "energy" or "draws"')

    def prepare(self) -> None:
        """Import what looks need, so that none of them has to."""
        diagnostics.ess(np.zeros((1, 1)))

    def first_length(self, chains: int, thin: int) -> int:
        """Updates of each chain in the first round; the goal is looked at from the second on."""
        records = max(_LEAST_RECORDS, math.ceil((self.ess or 0) / chains / 2))
        return -(-records // 2) * thin if self.drop else records * thin

    def more(self, length: int, thin: int) -> int:
        """How many updates longer the next round is than all before it together."""
        return max(1, round(length / thin * (math.sqrt(2) - 1))) * thin

    def begin(self, clock: NDArray[np.int64]) -> Round | None:
        """Return the end of what is dropped from chains of this length; None for nothing."""
        short = [one for one in self.past if (one.clock <= _DROPPED * clock).all()]
        return short[-1] if self.drop and short else None

    def middle(self, clock: NDArray[np.int64]) -> Round | None:
        """Return the end of a round in the middle of what is not dropped; None without one."""
        begin = self.begin(clock)
        first = 0 if begin is None else int(begin.clock[0])
        wanted = (first + int(clock[0])) / 2
        inner = [one for one in self.past if (one.clock < clock).all() and one.clock[0] > first]
        return min(inner, key=lambda one: abs(int(one.clock[0]) - wanted), default=None)

    def check(self, run: Run, here: Round | None = None) -> Goal | None:
        """Look at a round's end; None if the time that is left would not be enough.

        The first round has nothing to be compared with. What is expensive to compute waits until
        what is cheap is as wanted.

        Parameters
        ----------
        run : Run
            What is recorded, without what is dropped.
        here : Round or None
            The end of the round; None where nothing is dropped.
        """
        end = Round.of(run.counts, run.visits, run.clock) if here is None else here
        nan = math.nan
        past = (*self.past[1 - _KEPT :], end)
        looked = replace(self, past=past, seen_rhat=nan, seen_ess=nan, seen_error=nan)
        if not self.past or (self.drop and self.begin(end.clock) is None):
            return looked
        for measure in (_energy(run, self), _counts(run, self, end), _draws(run, self)):
            if measure.seconds > current().left:
                return None
            rhat, ess, error = measure.evaluate()
            looked = replace(
                looked,
                seen_rhat=float(np.fmax(looked.seen_rhat, rhat)),  # which pass over NaN
                seen_ess=float(np.fmin(looked.seen_ess, ess)),
                seen_error=float(np.fmax(looked.seen_error, error)),
            )
            if not looked._reached():
                return looked
        return replace(looked, met=True)

    def _reached(self) -> bool:
        """NaN means that a value never varies. It does not delay the end of a run."""
        rhat_met = self.rhat is None or not self.seen_rhat > self.rhat
        error_met = self.error is None or not self.seen_error > self.error
        return rhat_met and error_met and (self.ess is None or not self.seen_ess < self.ess)

    def note(self) -> str:
        """How far it is, in a few words; nothing where nothing is known."""
        if math.isnan(self.seen_rhat) and math.isnan(self.seen_ess):
            return ""
        rhat = "" if self.rhat is None else f"R-hat {self.seen_rhat:.3f} of {self.rhat:g}"
        ess = "" if self.ess is None else f"ESS {self.seen_ess:,.0f} of {self.ess:g}"
        error = "" if self.error is None else f"error {self.seen_error:.4f} of {self.error:g}"
        return ", ".join(filter(None, (rhat, ess, error)))

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a checkpoint keeps of the rounds before."""
        arrays = {
            f"round.{k}.{name}": array
            for k, one in enumerate(self.past)
            for name, array in one._asdict().items()
        }
        return {"rounds": len(self.past)}, arrays

    def load(self, plan: Plan, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Goal:
        """The goal with what `save` kept; raises `ValueError` for what no run keeps."""
        values = plan.values if "marginals" in plan.kept else 0
        past = []
        for k in range(header["rounds"]):
            own = {name: arrays.get(f"round.{k}.{name}") for name in Round._fields}
            if own["clock"] is None:  # which checkpoints before 0.3 lack
                own["clock"] = own["visits"]
            one = Round(**own)  # type: ignore[arg-type]
            shapes = ((plan.rows, values), (plan.rows,), (plan.rows,))
            for array, shape in zip(one, shapes, strict=True):
                if array.shape != shape or array.dtype != np.int64 or (array < 0).any():
                    raise ValueError(f"round {k}: expected counts in shape {shape}")
            past.append(one)
        if len(past) > _KEPT or any((b.clock <= a.clock).any() for a, b in pairwise(past)):
            raise ValueError(f"rounds: expected {_KEPT} at the most, the longer one last")
        return replace(self, past=tuple(past))


class _Measure(NamedTuple):
    """A part of a look."""

    seconds: float  # that it takes, about
    evaluate: Callable[[], tuple[float, float, float]]  # R-hat, ESS and error; NaN if unknown


_NOTHING = _Measure(0.0, lambda: (math.nan, math.nan, math.nan))


def _energy(run: Run, goal: Goal) -> _Measure:
    """The energy's R-hat and ESS; the ESS is the sum of those of single chains."""
    if run.energy is None:
        return _NOTHING
    energy = _thinned(run.energy, _wanted(goal, _MOST_ENERGIES))

    def evaluate() -> tuple[float, float, float]:
        if not np.isfinite(energy).all():
            return math.nan, math.nan, math.nan
        rhat, ess = float(diagnostics.rhat(energy)), float(diagnostics.ess_within(energy))
        return _rhat(rhat, ess, len(energy), 1, goal), ess, math.nan

    return _Measure(2 * _seconds(energy.size), evaluate)


def _rhat(rhat: float, ess: float, chains: int, values: int, goal: Goal) -> float:
    """Return the R-hat that an ESS within chains implies, or R-hat where chains disagree.

    Half a chain that is worth k independent draws has an R-hat of about sqrt(1 + 1 / k).
    """
    nested = max(1.0, chains / WANTED_CHAINS)
    chance = chance_factor(max(2 * chains - 1, 1), values)
    limit = 1 + ((goal.rhat or math.inf) * (goal.rhat or math.inf) - 1) * nested * chance
    if rhat > math.sqrt(limit):
        return rhat
    return math.sqrt(1 + 2 * chains / max(ess, 1e-9) / nested)


def _counts(run: Run, goal: Goal, end: Round) -> _Measure:
    """R-hat and error of all values of all variables, by how parts of the same chain differ."""
    if run.counts is None:
        return _NOTHING
    begin = goal.begin(end.clock)
    first = 0 if begin is None else int(begin.clock[0])
    edges = [one for one in goal.past if first <= one.clock[0] < end.clock[0]]
    if begin is None:
        edges = [Round(*(np.zeros_like(array) for array in end)), *edges]

    def evaluate() -> tuple[float, float, float]:
        marginals = Marginals.of(run)
        found = within_rows(marginals, [(one.counts, one.visits) for one in (*edges, end)])
        rhat, apart = found.rhat, marginals.apart
        if apart is not None:
            rhat = float(np.fmax(rhat, apart.rhat))
        error = found.error if goal.error is not None and marginals.comparable else math.nan
        return rhat, math.nan, error

    return _Measure(_SECONDS_PER_COUNT * run.counts.size * len(edges), evaluate)


def _draws(run: Run, goal: Goal) -> _Measure:
    """R-hat and ESS of values of the variables whose draws differ most between chains."""
    if run.kept_draws is None:
        return _NOTHING
    draws = _thinned(run.draws, _wanted(goal, _MOST_DRAWS))
    largest = int(run.domains.sizes[run.drawn].max())
    each = 1 if largest == 2 else min(largest, _MOST_VALUES)
    values = _LEAST_VALUES + run.info.updates // _UPDATES_PER_VALUE
    variables = min(_MOST_VARIABLES, max(1, values // each))

    def evaluate() -> tuple[float, float, float]:
        judged = diagnostics.judge(replace(run, kept_draws=draws), variables, within=True)
        known = [one.rhat for one in judged if not math.isnan(one.rhat)]
        ess = _number(diagnostics.least([one.ess for one in judged]))
        rhat = max(known, default=math.nan)
        return _rhat(rhat, ess, len(draws), len(known), goal), ess, math.nan

    return _Measure(variables * each * _seconds(draws[:, :, 0].size), evaluate)


def _seconds(records: int) -> float:
    return _SECONDS_PER_SERIES + _SECONDS_PER_RECORD * records


def _wanted(goal: Goal, most: int) -> float:
    """How many records are looked at: four times those that the ESS needs, at least."""
    return max(most, 4 * min(goal.ess or 0, _MOST_WANTED))


def _thinned(series: NDArray[Any], most: float) -> NDArray[Any]:
    """About this number of records of all chains, evenly spaced; some of each chain."""
    each = max(_LEAST_RECORDS, math.ceil(most / len(series)))
    return series[:, :: -(-series.shape[1] // each) or 1]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
