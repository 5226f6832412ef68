"""Public functions `learn` and `resume_learning`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import LearnError, TooLargeError
from minigibbs.graph.data import Data, read_data
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.rounding import rounding_warning
from minigibbs.learning import checks, information
from minigibbs.learning.ascent import HELD_OUT, STEPS, Ascent
from minigibbs.learning.chains import Chains, Threads
from minigibbs.learning.checkpoint import Saved, Saver, Target
from minigibbs.learning.climb import Climb
from minigibbs.learning.exact import Eliminated, Enumerated, Expectations
from minigibbs.learning.information import Uncertainty
from minigibbs.learning.moments import joint, marginals_of
from minigibbs.learning.natural import MANY, Natural, natural_steps_exist
from minigibbs.learning.optimizer import RATES, Optimizer
from minigibbs.learning.penalty import Penalty, read_penalty
from minigibbs.learning.placing import model_chains, row_chains
from minigibbs.learning.progress import StepBar
from minigibbs.learning.pseudo import PseudoLikelihood
from minigibbs.learning.settings import METHODS, SAMPLED, Settings
from minigibbs.results.fit import Fit
from minigibbs.running import durations
from minigibbs.running.plan import CONVERGED
from minigibbs.running.request import check_counts, choose, entropy_of
from minigibbs.samplers import Sampler, Tempering
from minigibbs.system.boundary import checked
from minigibbs.system.caller import warn
from minigibbs.system.files import refusing_damage
from minigibbs.system.progress import Stage
from minigibbs.system.watch import TIME, StopError, Watch, current

_STATES = 2_000_000  # default number of values over all chains together
_MOST_CHAINS = 1000
_STARTS = ("given", "independent", "pseudo")
_NATURAL_NEEDS = (
    "needs complete data, fields of its own for every variable, and tables of their own for pairs, "
    "all learned by their entries and none fixed"
)
_BURN = 20  # sweeps before errors are estimated, in units of a step's sweeps
_EXTENSIONS = 3  # most extensions by the default number of steps while moments differ
_PSEUDO_STEPS = 200  # steps of start="pseudo"


@checked(LearnError)
def learn(
    graph: FactorGraph,
    data: Any = None,
    method: str = "pcd",
    *,
    columns: Sequence[int | str] | None = None,
    weights: ArrayLike | None = None,
    start: str | Mapping[str, ArrayLike] | None = None,
    steps: int | None = None,
    rate: float | None = None,
    decay: float | None = None,
    optimizer: str | None = None,
    chains: int | None = None,
    sweeps: int = 1,
    batch: int | None = None,
    sampler: Sampler | str | None = None,
    reweight: bool = False,
    backend: str = "cpu",
    l1: float | Mapping[str, float] = 0.0,
    l2: float | Mapping[str, float] = 0.0,
    prior: Mapping[str, Any] | None = None,
    tol: float | None = None,
    pearson: float | None = None,
    held_out: Any = None,
    log_likelihood: bool = False,
    patience: int = 10,
    max_time: str | float | None = None,
    errors: bool = True,
    seed: int | None = None,
    threads: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: str | float | None = None,
    progress: bool = True,
) -> Fit:
    """Learn the named parameters of a graph's factors from data.

    Learning maximizes the log-likelihood of the observed values minus penalties. Missing values are
    summed out. `fit.graph` is the graph with the learned parameters.

    Parameters
    ----------
    graph : FactorGraph
        The model. Factors with a `name` are learned, starting from their current parameters.
        Evidence of the graph applies to all rows.
    data : array, mapping or frame, optional
        One row per datum, one column per variable, values numbered from 0, and -1 (or NaN, None,
        masked) for missing values. Give spins -1 and +1 as `(data + 1) // 2`; data whose two-valued
        variables have -1 and 1 but no 0 are refused, because -1 is ambiguous. A mapping or a
        frame has columns by the names of variables and values by label; variables without a column
        are hidden. By default the evidence of the graph is the only datum, and its other variables
        are hidden.
    method : str, default "pcd"
        "pcd" is persistent contrastive divergence: the moments of the model are estimated with
        chains that persist while parameters change. "cd" uses chains that start at the data and are
        `sweeps` long. "pseudo" maximizes the pseudo-likelihood by L-BFGS. "exact" maximizes the
        likelihood itself, for graphs that are small or of low treewidth.
    columns : sequence of int or str, optional
        The variables of an array's columns; others are hidden.
    weights : array-like, optional
        Weight of each row. By default all rows have the same weight.
    start : str or mapping, optional
        Start parameters: "given" for those of the graph (default), "pseudo" for the maximum of the
        pseudo-likelihood, "independent" for fields that reproduce the frequencies in the data
        (default for natural gradient steps if all tables are 0), or parameters by name.
    steps : int, optional
        Largest number of gradient steps. By default 1,000, and up to 4,000 while "pcd" and "cd" are
        more than half a standard error from convergence. The distance is estimated from the gap
        between the moments of data and model beyond the noise of the chains. Without `errors`, and
        for more than 1,000 parameters, it counts standard errors of the moments of the data. Steps
        do not continue with a checkpoint.
    rate : float, optional
        First step size of "pcd" and "cd".
    decay : float, optional
        Number of steps after which the step size begins to fall. By default a twentieth of all
        steps, and a fifth for natural gradient steps.
    optimizer : str, optional
        "adam", "sgd" or "natural". Natural gradient steps divide the gradient of a table by the
        variance that its moments would have if variables were independent. They are the default for
        more than 10,000 parameters if data are complete, every variable has fields of its own, and
        tables are learned by their entries.
    chains : int, optional
        Number of chains of the model. By default up to 1,000.
    sweeps : int, default 1
        Sweeps of each chain per step.
    batch : int, optional
        Number of rows with missing values per step. By default the number of chains.
    sampler : Sampler or str, optional
        The sampler of the model's chains. By default plain Gibbs, for which new parameters are
        cheapest. On the CPU, up to 64 chains of `mg.Tempering()` replace plain chains of "pcd" that
        do not move between the modes of the model; `fit.tempered` is the step at which they do, and
        `sampler="gibbs"` prevents it. The internal state of a sampler persists between steps:
        `mg.Tempering()` keeps the state of every temperature. Settings that a sampler tunes before
        a run are tuned again at steps 1, 2, 4, 8 and so on.
    reweight : bool, default False
        Whether the chains of "pcd" have importance weights that follow the parameters. Chains are
        resampled by these weights if few chains have most of the weight. Moments then stay correct
        if chains do not move between the modes of the model. A step takes about twice as long, and
        steps must be small: for Boltzmann machines use `rate=0.01`. It cannot be combined with
        `sampler`.
    backend : str, default "cpu"
        "cpu", or "cuda" for chains on a GPU. Without `sampler` the GPU supports variables with few
        values, coupled by pairs and by tables of two variables that are learned by their entries.
    l1 : float or mapping, default 0.0
        Penalty l1 * abs(parameter), subtracted from the mean log-likelihood per row. One number, or
        numbers by name.
    l2 : float or mapping, default 0.0
        Penalty l2 / 2 * parameter**2. One number, or numbers by name.
    prior : mapping, optional
        Normal priors by name: a standard deviation, or (mean, standard deviation).
    tol : float, optional
        Stop when the moments of all learned parameters differ by at most this share of their range.
    pearson : float, optional
        Stop when the correlation of the connected moments of data and model, for factors of several
        variables, is at least this.
    held_out : array, mapping, frame or float, optional
        Rows as in `data`, or the share of rows to hold out. Learning stops when their
        pseudo-likelihood has not increased for `patience` checks, and returns the best parameters.
    log_likelihood : bool, default False
        Whether `fit.history["log_likelihood"]` records the mean log-likelihood of up to 1,000 rows
        during "pcd". Up to 500 additional chains follow the steps, which serve as the schedule of
        their annealed importance sampling. It cannot be combined with a checkpoint.
    patience : int, default 10
        Number of checks, 10 steps apart, without an increase of the held-out pseudo-likelihood.
    max_time : str or float, optional
        Time limit: "60s", "5min", "1h", or seconds. By default none.
    errors : bool, default True
        Whether to compute standard errors from the Fisher information, for up to 1,000 parameters.
    seed : int, optional
        Fixes every draw and the result, for any number of threads.
    threads : int, optional
        Number of threads. By default one per processor.
    checkpoint : str or path, optional
        File in which "pcd" and "cd" save their state. `mg.resume_learning` continues from it.
    every : str or float, optional
        Time between saves, as in `mg.sample`.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.

    Returns
    -------
    Fit
        The graph with learned parameters, standard errors, and the course of learning.

    Raises
    ------
    LearnError
        If the graph has no parameters, the data do not fit the graph, or settings contradict each
        other.
    TooLargeError
        If "exact" learning does not fit into memory.

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> pairs = mg.Ising([0, 1, 2], [1, 2, 3], 0.0, name="J", tied=0)
    >>> truth = mg.FactorGraph([2] * 4, [pairs]).with_parameters({"J": 0.5})
    >>> rows = mg.exact_draws(truth, 4000, seed=1)
    >>> fit = mg.learn(mg.FactorGraph([2] * 4, [pairs]), rows, seed=1, progress=False)
    >>> bool(abs(fit.parameters["J"][0] - 0.5) < 4 * fit.errors["J"][0])
    True
    """
    check_counts(threads=threads)
    checks.require_parameters(graph)
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    watch = Watch(limit)
    interval = None if every is None else durations.seconds(every, "every")
    given = {"checkpoint": checkpoint, "held_out": held_out, "error": tol, "pearson": pearson}
    _require_sampled(method, [name for name, value in given.items() if value is not None])
    if log_likelihood and (method != "pcd" or checkpoint is not None or backend != "cpu"):
        raise LearnError(
            'log_likelihood=True needs method="pcd" and backend="cpu", without a checkpoint'
        )
    if reweight and sampler is not None:
        raise LearnError("reweight=True is for plain Gibbs chains: leave sampler out")
    whole = _unclamped(graph) if data is None else graph
    with Stage("reading data", progress):
        rows = read_data(graph, data, columns, weights)
    kind = _optimizer(graph, rows, method, optimizer)
    settings = Settings(
        method=method,
        chains=_default_chains(graph) if chains is None else chains,
        sweeps=sweeps,
        steps=1000 if steps is None else steps,
        rate=RATES.get(kind, 0.05) if rate is None else rate,
        decay=_default_decay(kind, steps) if decay is None else decay,
        optimizer=kind,
        batch=batch,
        error=tol,
        pearson=pearson,
        patience=patience,
        seed=entropy_of(seed),
        backend=backend,
        reweight=reweight,
    )
    checks.require_possible(graph, rows)
    rows, held = _split(graph, rows, held_out, columns, settings.seed)
    penalty = read_penalty(whole.frame, l1, l2, prior, len(rows))
    chosen = None if sampler is None else choose(sampler)
    task = _Task(
        graph, whole, rows, held, settings, penalty, chosen, errors, bool(prior), log_likelihood
    )
    saved_to = nullcontext() if checkpoint is None else Target(checkpoint)
    with saved_to as target, closing(Threads(threads)) as pool, watch:
        with Stage("preparing", progress):
            values = task.first(start, pool)
            ascent = task.ascent(values, pool) if method in SAMPLED else None
        if ascent is None:
            return task.climbed(values, pool, progress)
        saver = None
        if target is not None:
            extra = {"evidence": data is None, "errors": errors, "max_time": limit}
            extra["prior"] = bool(prior)
            saver = Saver(target, ascent, interval, extra, held)
        more = steps is None and saver is None
        return task.sampled(ascent, saver, progress, more)


@checked(LearnError)
def resume_learning(
    checkpoint: str | os.PathLike[str],
    steps: int | None = None,
    *,
    max_time: str | float | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> Fit:
    """Continue learning from a checkpoint, with the same result as without interruption.

    Parameters
    ----------
    checkpoint : str or path
        The file given to `mg.learn`.
    steps : int, optional
        Steps to add to the planned ones. By default none.
    max_time : str or float, optional
        Time limit of this call: "60s", "5min", "1h", or seconds. By default none.
    threads : int, optional
        Number of threads. By default one per processor.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.

    Returns
    -------
    Fit
        The learned parameters, as `mg.learn` returns them.

    Raises
    ------
    LearnError
        If the file is no checkpoint of a fit, or was written by an incompatible version.

    Examples
    --------
    >>> import minigibbs as mg, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "fit.mgl"
    >>> coins = mg.FactorGraph([2] * 3, [mg.Unary([0, 1, 2], [0.0, 0.0], name="bias")])
    >>> rows = [[1, 1, 0], [1, 1, 1]]
    >>> half = mg.learn(coins, rows, steps=20, seed=1, checkpoint=path, progress=False)
    >>> mg.resume_learning(path, steps=20, progress=False).steps
    40
    """
    check_counts(threads=threads)
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    with Target(checkpoint, resumed=True) as target:
        return _resumed(target, steps, limit, threads, progress)


def _resumed(
    target: Target, steps: int | None, limit: float | None, threads: int | None, progress: bool
) -> Fit:
    """Continue from a locked checkpoint."""
    saved = Saved(target.path)
    target.number = saved.number or target.number
    more = replace(saved.settings, steps=0 if steps is None else steps).steps
    settings = replace(saved.settings, steps=saved.settings.steps + more)
    whole = saved.graph
    graph = whole
    if saved.evidence:
        graph = FactorGraph(whole.domains, whole.factors, evidence=saved.data.evidence(0))
    held, extra = saved.held_out, saved.extra
    task = _Task(
        graph,
        whole,
        saved.data,
        held,
        settings,
        saved.penalty,
        saved.sampler,
        extra["errors"],
        extra["prior"],
    )
    with closing(Threads(threads)) as pool:
        with refusing_damage(target.path):
            ascent = task.ascent(whole.frame.flat(whole.factors), pool)
            ascent.restore(saved.header["state"], saved.part("state"))
        saver = Saver(target, ascent, saved.every, extra, held)
        with Watch(limit):
            return task.sampled(ascent, saver, progress)


@dataclass(frozen=True, eq=False)
class _Judged:
    """How far learned parameters are known, and how many standard errors they are from the end."""

    known: Uncertainty | None = None
    away: float | None = None  # minus noise; infinite if the objective was still rising
    whole: bool = True  # whether `away` counts errors of parameters, and not of their moments
    in_vain: bool = False  # whether several times as many steps came hardly nearer


@dataclass(frozen=True, eq=False)
class _Task:
    """A learning task: model, data and settings."""

    graph: FactorGraph  # as given by the user
    whole: FactorGraph  # model of the chains: without evidence if that is the datum
    data: Data
    held: Data | None
    settings: Settings
    penalty: Penalty
    sampler: Sampler | None
    errors: bool
    has_prior: bool = False
    followed: bool = False

    def first(
        self, start: str | Mapping[str, ArrayLike] | None, pool: Threads
    ) -> NDArray[np.float64]:
        """Return the initial parameters."""
        frame = self.whole.frame
        values = frame.flat(self.whole.factors)
        if isinstance(start, Mapping):
            given = frame.read(start, values)
            if (given[frame.fixed] != values[frame.fixed]).any():
                number = np.flatnonzero(frame.fixed & (given != values))[0]
                raise LearnError(f"start: parameter {frame.where(int(number))} is fixed")
            return given
        if start is None:
            alone = self.settings.optimizer == "natural" and not values[joint(frame)].any()
            start = "independent" if alone else "given"
        if start not in _STARTS:
            raise LearnError(
                f"start must be one of {', '.join(_STARTS)}, or numbers by name; got {start!r}"
            )
        if start == "pseudo":
            climb = self._climb(values, pool, self._pseudo(pool))
            with StepBar(1, 0, False) as bar:
                climb.run(_PSEUDO_STEPS, bar, current())
            values = climb.values
        if start == "independent":
            values = self._independent().independent(values)
        return values

    def _independent(self) -> Natural:
        if not (self.data.complete and natural_steps_exist(self.whole)):
            raise LearnError(f'start="independent" {_NATURAL_NEEDS}')
        frame, data = self.whole.frame, self.data
        shares = marginals_of(frame, data.rows, data.weight)
        return Natural(frame, shares, self.settings.chains)

    def ascent(self, values: NDArray[np.float64], pool: Threads) -> Ascent:
        """Create the stochastic ascent at its beginning."""
        settings, free = self.settings, ~self.whole.frame.fixed
        optimizer = Optimizer(
            settings.optimizer, settings.rate, settings.decay, values.copy(), free
        )
        held = None if self.held is None else PseudoLikelihood(self.whole, self.held, pool)
        return Ascent(
            self.whole,
            self.data,
            settings,
            self.penalty,
            optimizer,
            pool,
            self.sampler,
            held,
            self.followed,
        )

    def sampled(
        self, ascent: Ascent, saver: Saver | None, progress: bool, more: bool = False
    ) -> Fit:
        """Run the ascent, and return the fit, however it ended.

        With `more`, steps continue while the moments of data and model differ by more than noise.
        """
        steps, watch = self.settings.steps, current()
        with StepBar(steps, ascent.optimizer.step, progress) as bar, watch.noted():
            ended, judged = ascent.run(bar, watch, saver), None
            if more and ended == STEPS:
                ended, judged = self._until_converged(ascent, bar, watch)
            if saver is not None:
                saver(True)
            values = ascent.best if ended == HELD_OUT else None
            values = ascent.result() if values is None else values
            with suppress(StopError):
                watch.check()
                if judged is None:
                    judged = self._judged(ascent, values)
        history = {name: np.array(series) for name, series in ascent.history.items()}
        return self._fit(
            values,
            ended,
            ascent.optimizer.step,
            ascent.seconds,
            history,
            ascent.data_moments,
            ascent.model_moments,
            judged or _Judged(),
            ascent.tempered,
        )

    def _until_converged(
        self, ascent: Ascent, bar: StepBar, watch: Watch
    ) -> tuple[str, _Judged | None]:
        """Continue until the moments of data and model agree up to their noise."""
        first = math.nan  # distance after the first steps
        for extension in range(_EXTENSIONS + 1):
            try:
                watch.check()
                judged = self._judged(ascent, ascent.result())
            except StopError:
                return watch.ended, None
            if judged.away is None or judged.away <= checks.UNFINISHED:
                return STEPS if judged.away is None else CONVERGED, judged
            first = judged.away if extension == 0 else first
            far = judged.away > max(checks.FAR, checks.NEARER * first)
            if extension == _EXTENSIONS:
                break
            if extension and far:
                ascent.temper()
            longer = ascent.settings.steps + self.settings.steps
            ascent.settings = replace(ascent.settings, steps=longer)
            ended = ascent.run(bar, watch, None)
            if ended != STEPS:
                return ended, None
        return STEPS, replace(judged, in_vain=far and self._plain(ascent))

    def _plain(self, ascent: Ascent) -> bool:
        """Return whether the chains of the model neither temper nor have weights."""
        tempered = isinstance(self.sampler, Tempering) or ascent.tempered is not None
        return self.settings.method == "pcd" and not tempered and not self.settings.reweight

    def _judged(self, ascent: Ascent, values: NDArray[np.float64]) -> _Judged:
        """Estimate errors, or the distance alone, from chains that continue with the parameters."""
        frame = self.whole.frame
        free = int(np.count_nonzero(~frame.fixed))
        whole = self.errors and free <= information.MOST_PARAMETERS
        most = max(len(ascent.model), 0 if ascent.rows is None else len(ascent.rows))
        if not whole and free * most > information.MOST_STATISTICS:
            return _Judged()
        sweeps = self.settings.sweeps
        ascent.even_out()
        chains: list[Any] = [ascent.model, *([ascent.rows] if ascent.rows else [])]
        for one in chains:
            one.set_weights(values)
            for _ in range(_BURN):
                current().check()
                one.sweep(sweeps)
        given = (ascent.model, sweeps, ascent.rows, ascent.observed, ascent.data_moments)
        rows = len(self.data)
        if not whole:
            return _Judged(
                away=information.distance(frame, *given, self.penalty, rows, values), whole=False
            )
        found, score = information.from_chains(frame, *given)
        known = information.errors(frame, found, self.penalty, rows, score, values)
        return _Judged(known, known.away)

    def climbed(self, values: NDArray[np.float64], pool: Threads, progress: bool) -> Fit:
        """Maximize an objective without noise, and return the fit, however it ended."""
        exact = self.settings.method == "exact"
        distribution = self._distribution() if exact else None
        likelihood = None if exact else self._pseudo(pool)
        climb, watch = self._climb(values, pool, likelihood, distribution), current()
        with StepBar(self.settings.steps, 0, progress) as bar, watch.noted():
            ended = climb.run(self.settings.steps, bar, watch)
            data, model = self._moments(climb.values, pool, distribution)
            known = None
            with suppress(StopError):
                watch.check()
                if self.errors:
                    gap = data - model
                    known = self._climbed_errors(
                        climb.values, pool, likelihood, distribution, data, gap
                    )
        history = {name: np.array(series) for name, series in climb.history.items()}
        rising = ended == STEPS and known is None
        judged = _Judged(known, math.inf if rising else None if known is None else known.away)
        return self._fit(
            climb.values, ended, climb.steps, climb.seconds, history, data, model, judged
        )

    def _distribution(self) -> Expectations:
        try:
            return (
                Enumerated(self.whole)
                if Enumerated.possible(self.whole)
                else Eliminated(self.whole)
            )
        except TooLargeError as error:
            raise LearnError(
                f'method="exact" is for small graphs and graphs of low treewidth: {error}; '
                'use method="pcd"'
            ) from error

    def _pseudo(self, pool: Threads) -> PseudoLikelihood:
        return PseudoLikelihood(self.whole, self.data, pool)

    def _climb(
        self,
        values: NDArray[np.float64],
        pool: Threads,
        likelihood: PseudoLikelihood | None,
        distribution: Expectations | None = None,
    ) -> Climb:
        def objective(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            if distribution is None:
                assert likelihood is not None
                return likelihood.of(at)
            inside, data = distribution.of_data(at, self.data)
            outside, model = distribution.of(at, self.whole.evidence)
            return inside - outside, data - model

        return Climb(objective, self.penalty, values, ~self.whole.frame.fixed)

    def _moments(
        self, values: NDArray[np.float64], pool: Threads, distribution: Expectations | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the moments of data and model at these parameters: exact, or from chains."""
        with suppress(StopError):
            if distribution is not None:
                evidence = self.whole.evidence
                return distribution.of_data(values, self.data)[1], distribution.of(
                    values, evidence
                )[1]
        frame, chains = self.whole.frame, self._chains(values, pool)
        weights, found = [None, self.data.weight], []
        for one, weight in zip(chains, weights, strict=False):
            total, made = np.zeros(frame.size), 0
            while made == 0 or (made < _BURN and not current().ended):
                one.sweep(self.settings.sweeps)
                total += one.summed(frame, weight, pool) / len(one)
                made += 1
            found.append(total / made)
        if len(chains) == 1:
            moments = frame.summed(self.data.rows, self.data.weight, pool)
            found.append(moments / self.data.weight.sum())
        return found[1], found[0]

    def _chains(self, values: NDArray[np.float64], pool: Threads) -> list[Any]:
        """Create warmed-up chains of the model, and of the rows with missing values.

        The warm-up is shorter if the call must end.
        """
        settings = self.settings
        chains: list[Any] = [
            model_chains(
                self.whole, self.sampler, settings.chains, settings.seed, pool, settings.backend
            )
        ]
        if not self.data.complete:
            chains.append(row_chains(self.whole, self.data, settings.seed, pool))
        for one in chains:
            one.set_weights(values)
            for _ in range(_BURN):
                if current().ended:
                    break
                one.sweep(settings.sweeps)
        return chains

    def _climbed_errors(
        self,
        values: NDArray[np.float64],
        pool: Threads,
        likelihood: PseudoLikelihood | None,
        distribution: Expectations | None,
        moments: NDArray[np.float64],
        gap: NDArray[np.float64],
    ) -> Uncertainty | None:
        frame, rows = self.whole.frame, len(self.data)
        if np.count_nonzero(~frame.fixed) > information.MOST_PARAMETERS:
            return None
        if likelihood is not None:
            if not self.data.complete or np.count_nonzero(self.data.weight) < 2:
                return None  # errors come from differences between rows
            return information.sandwich(frame, likelihood, values, self.penalty)
        if isinstance(distribution, Enumerated):
            found = information.from_states(frame, distribution, values, self.data)
        else:
            model, *rest = self._chains(values, pool)
            within: Chains | None = rest[0] if rest else None
            found, _ = information.from_chains(
                frame, model, self.settings.sweeps, within, self.data, moments
            )
        score = information.Score(gap[~frame.fixed])
        return information.errors(frame, found, self.penalty, rows, score, values)

    def _fit(
        self,
        values: NDArray[np.float64],
        ended: str,
        steps: int,
        seconds: float,
        history: dict[str, NDArray[np.float64]],
        data: NDArray[np.float64],
        model: NDArray[np.float64],
        judged: _Judged,
        tempered: int | None = None,
    ) -> Fit:
        """Build the result, and issue its warnings."""
        known = judged.known
        frame, deviations = self.whole.frame, None if known is None else known.deviations
        found = checks.unspoken(self.whole, self.data)
        if self.data.complete:
            found += checks.separated(frame, data, self.penalty)
        elif self.settings.method in SAMPLED:
            found += checks.pinned(self.whole, self.data, data, self.penalty)
        found += checks.grown(frame, values, deviations, self.penalty) if not found else []
        if judged.away is None:
            found += checks.late(steps) if ended == TIME and not found else []
        elif ended in (STEPS, TIME) and not found:
            found += checks.unfinished(judged.away, judged.whole, steps, judged.in_vain)
        rounded = rounding_warning(self.graph.with_flat(values).rounding_error)
        found += [] if rounded is None else [rounded]
        for text in found:
            warn(text)
        return Fit(
            graph=self.graph.with_flat(values),
            method=self.settings.method,
            ended=ended,
            steps=steps,
            seconds=seconds,
            seed=self.settings.seed,
            rows=len(self.data),
            history=history,
            data_moments=data,
            model_moments=model,
            deviations=deviations,
            warnings=tuple(found),
            covariance=None if known is None else known.covariance,
            undetermined=None if known is None else known.undetermined,
            error_kind="" if known is None else self._error_kind(),
            tempered=tempered,
        )

    def _error_kind(self) -> str:
        """Describe the kind of errors."""
        penalty = self.penalty
        if self.settings.method == "pseudo":
            kind = "standard errors of the maximum pseudo-likelihood (sandwich)"
        else:
            kind = "standard errors of the maximum likelihood (Fisher information)"
        if self.has_prior:
            kind = "posterior standard deviations (normal approximation)"
        elif penalty.l1.any() or penalty.l2.any():
            kind = "standard deviations of the penalized maximum; its bias is not included"
        return kind


def _require_sampled(method: str, given: list[str]) -> None:
    """Raise an error for options that deterministic methods do not have."""
    if method in METHODS and method not in SAMPLED and given:
        raise LearnError(f'{given[0]} is for {" and ".join(SAMPLED)}, not for method="{method}"')


def _unclamped(graph: FactorGraph) -> FactorGraph:
    """Return the graph without its evidence."""
    if (graph.evidence == FREE).all():
        return graph
    return FactorGraph(graph.domains, graph.factors)


def _default_chains(graph: FactorGraph) -> int:
    return int(np.clip(_STATES // len(graph), 4, _MOST_CHAINS))


def _default_decay(kind: str, steps: int | None) -> float:
    """Return the decay; natural-gradient steps decay later (1/5 of the steps, not 1/20)."""
    share = 5 if kind == "natural" else 20
    return max((1000 if steps is None else steps) / share, 1.0)


def _optimizer(graph: FactorGraph, rows: Data, method: str, asked: str | None) -> str:
    """Choose the optimizer: the requested one, natural steps for many parameters, or Adam."""
    if asked not in (None, "natural"):
        return str(asked)
    fits = method in SAMPLED and rows.complete and natural_steps_exist(graph)
    if asked == "natural" and method in SAMPLED and not fits:
        raise LearnError(f'optimizer="natural" {_NATURAL_NEEDS}')
    return "natural" if fits and (asked or graph.frame.size > MANY) else "adam"


def _split(
    graph: FactorGraph,
    rows: Data,
    held_out: Any,
    columns: Sequence[int | str] | None,
    seed: int,
) -> tuple[Data, Data | None]:
    """Return the rows to learn from, and those held out."""
    if held_out is None:
        return rows, None
    if isinstance(held_out, float):
        count = round(held_out * len(rows)) if 0 < held_out < 1 else 0
        if not 0 < count < len(rows):
            raise LearnError(
                f"held_out must be rows, or a share that leaves some of {len(rows)} rows on both "
                f"sides; got {held_out!r}"
            )
        order = np.random.default_rng([seed, count]).permutation(len(rows))
        parts = np.sort(order[count:]), np.sort(order[:count])
        if not all(rows.weight[part].any() for part in parts):
            raise LearnError(
                f"held_out={held_out}: rows that are held out, or those that are left, have no "
                "weight; give rows to hold out, or more rows with weight"
            )
        return rows.some(parts[0]), rows.some(parts[1])
    return rows, read_data(graph, held_out, columns)


__all__ = ["METHODS", "learn", "resume_learning"]
