"""Contrastive divergence: gradient ascent by the difference of moments of data and model.

The model's moments come from chains that continue while the parameters change (persistent), or that
restart at the data (CD-k). Every draw has its own stream, and sums are computed in fixed pieces.
So a seed gives the same parameters with any number of threads, and after any number of resumes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.driver import drive
from minigibbs.errors import SampleError, TooLargeError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.chains import Chains, Threads, seed_of
from minigibbs.learning.mixing import Mixing, swings
from minigibbs.learning.moments import Moments, marginals_of
from minigibbs.learning.natural import Natural
from minigibbs.learning.optimizer import Optimizer
from minigibbs.learning.penalty import Penalty
from minigibbs.learning.placing import model_chains, row_chains
from minigibbs.learning.progress import StepBar
from minigibbs.learning.pseudo import PseudoLikelihood
from minigibbs.learning.settings import LOOK, Settings
from minigibbs.learning.trajectory import Trajectory
from minigibbs.learning.weighted import WeightedChains
from minigibbs.running.plan import CONVERGED
from minigibbs.samplers import Sampler, Tempering
from minigibbs.system.watch import Watch

STEPS, HELD_OUT = "steps", "held-out"
_SHARE = 0.05  # least weight of a step in the running means of moments
_FEW = 200_000  # most factors whose connected moments are always computed
_BURN = 3  # part of the seed that selects the rows of a step
_DRAWN = 5  # part of the seed that resamples chains by their weights
_WARMUP = 20  # sweeps of weighted or tempered chains before their first moments
_TEMPERED = 6  # part of the seed of tempered chains that replace plain ones
LADDERS = 64  # most tempered chains that replace plain ones


@dataclass
class Ascent:
    """Learning in progress: everything that it needs to continue."""

    graph: FactorGraph
    data: Data
    settings: Settings
    penalty: Penalty
    optimizer: Optimizer
    threads: Threads
    sampler: Sampler | None = None
    held_out: PseudoLikelihood | None = None
    followed: bool = False  # whether the log-likelihood is estimated during the steps
    seconds: float = 0.0
    history: dict[str, list[float]] = field(default_factory=dict)
    best: NDArray[np.float64] | None = None  # parameters of the best held-out pseudo-likelihood
    model: Chains = field(init=False)
    observed: Data = field(init=False)  # the rows, repeated if they are fewer than chains
    rows: Chains | None = field(init=False, default=None)
    natural: Natural | None = field(init=False, default=None)
    trajectory: Trajectory | None = field(init=False, default=None)
    weighted: WeightedChains | None = field(init=False, default=None)
    tempered: int | None = field(init=False, default=None)  # step at which plain chains ended
    mixing: Mixing | None = field(init=False, default=None)  # None if chains are never replaced
    _shared: bool = field(init=False, default=False)  # whether rows use the model's weights

    def __post_init__(self) -> None:
        frame, settings = self.graph.frame, self.settings
        chains, self.observed = settings.chains, self.data
        self.model = model_chains(
            self.graph, self.sampler, chains, settings.seed, self.threads, settings.backend
        )
        if self.data.complete:
            moments = frame.summed(self.data.rows, _some(self.data.weight), self.threads)
            self.data_moments = moments / self.data.weight.sum()
            self.data_marginals = marginals_of(frame, self.data.rows, _some(self.data.weight))
        else:
            times = max(chains // len(self.data), 1)
            self.observed = self.data.some(np.tile(np.arange(len(self.data)), times))
            self.rows = row_chains(self.graph, self.observed, settings.seed, self.threads)
            self.data_moments = np.zeros(frame.size)
            self.data_marginals = np.zeros(int(frame.sizes.sum(dtype=np.int64)))
            self._shared = self.rows.share(self.model)
        if settings.reweight:
            self.weighted = WeightedChains(self.graph, self.optimizer.values, self.model)
        if settings.optimizer == "natural":
            self.natural = Natural(frame, self.data_marginals, chains)
            self.optimizer.scale = self.natural.scale
        plain = self.sampler is None and not settings.reweight
        if plain and settings.method == "pcd" and settings.backend == "cpu":
            self.mixing = Mixing(self.graph)
        self.model_moments = np.zeros(frame.size)
        self.model_marginals = np.zeros(int(frame.sizes.sum(dtype=np.int64)))
        names = ["step", "seconds", "error", "pearson"]
        names += ["held_out"] if self.held_out else []
        names += ["log_likelihood"] if self.followed else []
        self.history = self.history or {name: [] for name in names}

    def run(self, bar: StepBar, watch: Watch, saver: Callable[[bool], None] | None) -> str:
        """Make all steps; return how they ended.

        Parameters
        ----------
        bar : StepBar
            Progress bar of the steps.
        watch : Watch
            Deadline and signals of the call.
        saver : callable or None
            `saver(False)` writes a checkpoint if one is due.

        Returns
        -------
        str
            "steps", "converged", "held-out", "time", "interrupted" or "terminated".
        """
        self._bar, self._saver = bar, saver
        self._begun = time.monotonic() - self.seconds
        return drive(self, watch)

    def segment(self) -> str:
        """Make one step, and check the moments after every few; return how steps ended."""
        if self.optimizer.step >= self.settings.steps:
            return STEPS
        self.step()
        self.seconds = time.monotonic() - self._begun
        last = self.optimizer.step == self.settings.steps
        if not last and self.optimizer.step % LOOK:
            return ""
        ended = self.note()
        if not ended and self._sticks():
            self.temper()
        self._bar.show(self.optimizer.step, self.history["error"][-1], self.tempered is not None)
        return ended or (STEPS if last else "")

    def _sticks(self) -> bool:
        """Return whether chains of plain Gibbs updates do not move between modes."""
        step = self.optimizer.step
        if self.mixing is None or step % LOOK:
            return False
        gap = self.data_moments - self.model_moments
        kept = self.mixing.stuck(step, gap, self.model, self.threads)
        return kept or swings(step, self.history["error"], len(self.model))

    def temper(self) -> bool:
        """Replace plain chains by tempered ones; return False if that is not possible."""
        if self.mixing is None:
            return False
        self.mixing = None
        settings = self.settings
        chains, seed = ladders(settings.chains), seed_of((settings.seed, _TEMPERED))
        try:
            model = model_chains(self.graph, Tempering(), chains, seed, self.threads)
            model.set_weights(self.optimizer.average)
        except (SampleError, TooLargeError):
            return False
        model.sweep(_WARMUP)
        self.model, self.tempered, self._shared = model, self.optimizer.step, False
        self.optimizer.restart()
        return True

    def keep(self) -> None:
        """Write a checkpoint if one is due."""
        if self._saver is not None:
            self._saver(False)

    def rest(self) -> None:
        """Do nothing: no work runs in the background between steps."""

    def step(self) -> None:
        """Make one step along the gradient."""
        if self.followed and self.trajectory is None:
            self.trajectory = Trajectory(
                self.graph, self.optimizer.values, self.data, self.settings, self.threads
            )
        if self.weighted is not None and self.optimizer.step == 0:
            self.model.set_weights(self.optimizer.values)
            self.model.sweep(_WARMUP)
        gradient = self.gradient()
        if self.natural is not None:
            gradient = self.natural.centered(gradient)
        values = self.optimizer.values
        self.optimizer.ascend(gradient - self.penalty.slope(_finite(values)), self.penalty.l1)
        if self.trajectory is not None:
            self.trajectory.follow(self.optimizer.values)
        if self.weighted is not None:
            self.weighted.follow(self.optimizer.values, self._drawing())

    def _drawing(self) -> np.random.Generator:
        """Return this step's generator for resampling chains by their weights."""
        return np.random.default_rng([self.settings.seed, _DRAWN, self.optimizer.step])

    def even_out(self) -> None:
        """Give all chains of the model equal weights."""
        if self.weighted is not None:
            self.weighted.resample(self._drawing())

    def gradient(self) -> NDArray[np.float64]:
        """Return the data's moments minus the model's, from the chains' present states."""
        values, settings = self.optimizer.values, self.settings
        data = self.data_moments
        if self.rows is not None or settings.method == "cd":
            data = self._at_the_data(values)
        if not self._shared:
            self.model.set_weights(values)
        self.model.sweep(settings.sweeps)
        frame = self.graph.frame
        shares = None if self.weighted is None else self.weighted.shares
        whole = len(self.model) if shares is None else 1
        model = self.model.summed(frame, shares, self.threads) / whole
        _blend(self.model_moments, model, self._share())
        if self._looks():
            marginals = marginals_of(frame, self.model.states(), shares)
            _blend(self.model_marginals, marginals, self._look_share())
        difference: NDArray[np.float64] = data - model
        return difference

    def _at_the_data(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the moments of some rows with missing values redrawn; CD chains start there."""
        chosen = self._chosen()
        frame, weight = self.graph.frame, self.observed.weight[chosen]
        states = self.observed.rows[chosen]
        if self.rows is not None:
            if self._shared:  # the same weights: written once
                self.model.set_weights(values)
                self.rows.share(self.model)
            else:
                self.rows.set_weights(values)
            self.rows.sweep(self.settings.sweeps, chosen)
            states = self.rows.states()[chosen]
        if self.settings.method == "cd":
            self.model.load(states)
            weight = np.ones(len(chosen))
        moments = frame.summed(states, _some(weight), self.threads)
        moments /= weight.sum()
        if self.rows is not None:
            _blend(self.data_moments, moments, self._share())
            if self._looks():
                _blend(self.data_marginals, marginals_of(frame, states, weight), self._look_share())
        return moments

    def _chosen(self) -> NDArray[np.int64]:
        """Choose the rows of this step: by weight for CD, else the next batch of a permutation."""
        count, settings, step = len(self.observed), self.settings, self.optimizer.step
        if settings.method == "cd":
            rng = np.random.default_rng([settings.seed, _BURN, step])
            share = self.observed.weight / self.observed.weight.sum()
            return rng.choice(count, settings.chains, p=share).astype(np.int64)
        batch = min(settings.batch or max(settings.chains, 1), count)
        if batch == count:
            return np.arange(count)
        rounds, place = divmod(step * batch, count)
        orders = [
            np.random.default_rng([settings.seed, _BURN, one]).permutation(count)
            for one in (rounds, rounds + 1)
        ]
        return np.sort(np.concatenate(orders)[place : place + batch]).astype(np.int64)

    def _looks(self) -> bool:
        """Return whether connected moments are computed after this step."""
        step = self.optimizer.step + 1
        return self.correlates and (step % LOOK == 0 or step == self.settings.steps)

    @property
    def correlates(self) -> bool:
        """Whether Pearson's correlation is computed: if requested, or if cheap."""
        structure = self.graph.frame.structure
        few = len(structure.pair) + len(structure.factors) <= _FEW
        return few or self.settings.pearson is not None

    def _look_share(self) -> float:
        return max(1 / (1 + self.optimizer.step // LOOK), 0.3)

    def _share(self) -> float:
        return max(1 / (self.optimizer.step + 1), _SHARE)

    def moments(self) -> Moments:
        """Return running means of the moments of data and model."""
        frame, data, model = self.graph.frame, self.data_moments, self.model_moments
        if not self.correlates:
            nothing = np.zeros(frame.size)
            return Moments(data, model, nothing, nothing)
        return Moments(
            data,
            model,
            data - frame.independent(self.data_marginals),
            model - frame.independent(self.model_marginals),
        )

    def note(self) -> str:
        """Record the present progress; return how the ascent ends, or ""."""
        frame, settings, moments = self.graph.frame, self.settings, self.moments()
        seen = {
            "step": float(self.optimizer.step),
            "seconds": self.seconds,
            "error": moments.error(frame),
            "pearson": moments.pearson(frame),
        }
        if self.held_out is not None:
            seen["held_out"] = self.held_out.of(self.result(), slope=False)[0]
        if self.followed:
            known = self.trajectory
            seen["log_likelihood"] = float("nan") if known is None else known.log_likelihood()
        for name, value in seen.items():
            self.history[name].append(value)
        goals = []
        if settings.error is not None:
            goals.append(seen["error"] <= settings.error)
        if settings.pearson is not None:
            goals.append(seen["pearson"] >= settings.pearson)
        if goals and all(goals):
            return CONVERGED
        return self._tired() if self.held_out is not None else ""

    def _tired(self) -> str:
        """Return "held-out" if the held-out pseudo-likelihood has stopped rising, else ""."""
        series = np.array(self.history["held_out"])
        if series.argmax() == len(series) - 1:
            self.best = self.result()
        return HELD_OUT if len(series) - 1 - series.argmax() >= self.settings.patience else ""

    def result(self) -> NDArray[np.float64]:
        """Return the parameters after the steps so far: their average, weighted to late steps."""
        sparse = self.penalty.l1 > 0
        values = np.where(sparse, self.optimizer.values, self.optimizer.average)
        return np.where(self.optimizer.free, values, self.optimizer.values)

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything that the ascent needs to continue, as JSON and arrays."""
        arrays: dict[str, NDArray[Any]] = {
            **{f"optimizer.{name}": array for name, array in self.optimizer.state().items()},
            **{f"model.{name}": array for name, array in self.model.state().items()},
            **{f"history.{name}": np.array(series) for name, series in self.history.items()},
            "data_moments": self.data_moments,
            "model_moments": self.model_moments,
            "data_marginals": self.data_marginals,
            "model_marginals": self.model_marginals,
        }
        if self.rows is not None:
            arrays |= {f"rows.{name}": array for name, array in self.rows.state().items()}
        if self.best is not None:
            arrays["best"] = self.best
        if self.weighted is not None:
            arrays["weighted"] = self.weighted.weights
        if self.mixing is not None:
            arrays |= {
                "mixing.direction": self.mixing.direction,
                "mixing.before": self.mixing.before,
            }
        header = {"step": self.optimizer.step, "seconds": self.seconds, "tempered": self.tempered}
        return header, arrays

    def restore(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the result of `save`; raise an error for impossible values."""
        step = header["step"]
        if type(step) is not int or not 0 <= step < 2**53:
            raise ValueError(f"step: expected a count, got {step!r}")
        self.optimizer.step, self.seconds = step, float(header["seconds"])
        if not 0 <= self.seconds < math.inf:
            raise ValueError(f"seconds: got {self.seconds}")
        self._restore_mixing(header.get("tempered"), _part(arrays, "mixing."))
        for name, array in self.optimizer.state().items():
            _refill(array, arrays[f"optimizer.{name}"], name)
        if (self.optimizer.second < 0).any():
            raise ValueError("second: squares are not negative")
        self.model.restore(_part(arrays, "model."))
        if self.rows is not None:
            self.rows.restore(_part(arrays, "rows."))
        if self.weighted is not None:
            _refill(self.weighted.weights, arrays["weighted"], "weighted")
            self.weighted.values = self.optimizer.values.copy()
        self._restore_history(_part(arrays, "history."))
        for name in ("data_moments", "model_moments", "data_marginals", "model_marginals"):
            _refill(getattr(self, name), arrays[name], name)
        if "best" in arrays:
            self.best = np.empty_like(self.optimizer.values)
            _refill(self.best, arrays["best"], "best")

    def _restore_mixing(self, tempered: Any, arrays: dict[str, NDArray[Any]]) -> None:
        """Continue with tempered chains if plain ones were replaced, or with their comparison."""
        if tempered is not None:
            if type(tempered) is not int or not 0 <= tempered <= self.optimizer.step:
                raise ValueError(f"tempered: expected a step, got {tempered!r}")
            if not self.temper():
                raise ValueError("tempered: the chains of this fit cannot be replaced")
            self.tempered = self.optimizer.begun = tempered
        elif self.mixing is not None and len(arrays.get("direction", [])):  # none before 0.3
            self.mixing.direction = np.empty_like(self.optimizer.values)
            self.mixing.before = np.empty(len(self.model))
            _refill(self.mixing.direction, arrays["direction"], "mixing.direction")
            _refill(self.mixing.before, arrays["before"], "mixing.before")

    def _restore_history(self, series: dict[str, NDArray[Any]]) -> None:
        length = (len(series["step"]),)
        if set(series) != set(self.history):
            raise ValueError(f"history: expected {', '.join(self.history)}")
        if any(one.shape != length or one.dtype != np.float64 for one in series.values()):
            raise ValueError("history: expected series of doubles of one length")
        kept = series["step"] % LOOK == 0  # a last check out of turn is not part of a longer run
        self.history = {name: values[kept].tolist() for name, values in series.items()}


def ladders(chains: int) -> int:
    """Return the number of tempered chains that replace this many plain ones."""
    return min(chains, LADDERS)


def _refill(array: NDArray[np.float64], saved: NDArray[Any], name: str) -> None:
    """Copy saved numbers into an array, if shape and type match."""
    if saved.shape != array.shape or saved.dtype != array.dtype or np.isnan(saved).any():
        raise ValueError(f"{name}: expected {array.shape} doubles, got {saved.shape} {saved.dtype}")
    array[:] = saved


def _part(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names have a prefix, without the prefix."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _blend(mean: NDArray[np.float64], new: NDArray[np.float64], share: float) -> None:
    """Move a running mean by a share of the difference to a new value."""
    mean += share * (new - mean)


def _some(weights: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the weights, or None if all are 1; rows are then counted."""
    return None if (weights == 1.0).all() else weights


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, 0.0)
