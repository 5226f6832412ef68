"""`infer`: marginals and log Z, by the method that is best for the time limit."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact.bounds import log_z_bounds
from minigibbs.exact.device import Card
from minigibbs.exact.elimination import EliminationTree, exact_answer
from minigibbs.exact.slicing import sliced, sliced_answer
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.rounding import rounding_warning
from minigibbs.graph.simple import lighter
from minigibbs.inference.conditional import conditional_marginals, disagreement
from minigibbs.inference.population import POPULATIONS, PopulationAnnealing, anneal
from minigibbs.observables.reading import Observe, read_observe
from minigibbs.results.answer import Answer, best_of
from minigibbs.results.marginals import LEAST_SWEEPS, Known, Marginals
from minigibbs.results.run import Run
from minigibbs.results.verdict import LATE, ladder_warnings, warnings_within_infer
from minigibbs.running import durations
from minigibbs.running.api import sample, sample_until, time_updates
from minigibbs.running.executors import check_executor, shared_executor
from minigibbs.running.plan import LENGTH
from minigibbs.running.request import check_counts
from minigibbs.samplers import ExactSampler, PoissonGibbs, Sampler, Tempering
from minigibbs.samplers.tempering.account import Ladder
from minigibbs.system.boundary import checked
from minigibbs.system.memory import read_size
from minigibbs.system.progress import Stage
from minigibbs.system.watch import TIME, StopError, Watch

_EXACT = 0.6  # largest share of the time for the predicted exact answer
_LOG_Z = 0.5  # share of the time for log Z, if single chains give the marginals
_COUNTED = 0.5  # share of the rest in which single chains count visits, before states are drawn
_WARMUP = 0.15  # share of the time
_LEAST_WARMUP, _MOST_WARMUP = 50, 5_000  # sweeps
_CHAINS = 4  # on a CPU by default
_OBSERVED = 1_000  # independent draws of each chain, for observables of exact answers
_CHOOSING = 0.6  # share of the time in which a sampler is chosen, and its temperatures are found
_BEYOND = 0.5  # seconds, about, that sampling may take where the time was too short for any
_LATE_SHARE = 0.2  # of the time spent, in which plain chains are run where no result was ready
_TEMPERED = 1_000_000  # variables times levels, at most


@checked(SampleError)
def infer(
    graph: FactorGraph,
    max_time: str | float = "60s",
    *,
    standard_error: float = 0.005,
    exact: bool = True,
    memory: str | float | None = None,
    sampler: Sampler | PopulationAnnealing | None = None,
    chains: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: bool = True,
    observe: Observe = None,
    backend: str = "cpu",
    executor: Executor | str | Any = None,
) -> Answer:
    """Compute marginals and log Z with errors, exactly if possible, otherwise by sampling.

    The answer is exact if variable elimination fits into the time and the memory. Otherwise the
    graph is sampled, by parallel tempering if its factors are explicit, until the errors are small
    enough or time is up. `answer.method` and `answer.reason` state the method and why it was
    chosen. `answer.warnings` lists possible problems.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    max_time : str or float, default "60s"
        Time limit: "20s", "5min", "1h", or seconds.
    standard_error : float, default 0.005
        Largest standard error of a marginal to reach by sampling.
    exact : bool, default True
        Whether an exact answer may be computed.
    memory : str or float, optional
        Memory for an exact answer, "4G" or bytes. By default 4 GiB, or half of the free memory if
        that is less.
    sampler : Sampler or PopulationAnnealing, optional
        The sampler to use if the graph is sampled. By default it is chosen automatically.
        `mg.PopulationAnnealing()` cools populations of replicas.
    chains : int, optional
        Number of chains, or of independent populations, if the graph is sampled. By default 4, or
        enough to fill a GPU.
    seed : int, optional
        Seed of all draws.
    threads : int, optional
        Number of chains that run at the same time. By default one per processor.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.
    observe : function, Observable, str or mapping, optional
        Observables for `answer.observables`, as in `mg.sample`. If the answer is exact, counts,
        joint probabilities, energies and magnetizations are exact too. Other observables are
        measured on independent draws, 1,000 per chain.
    backend : str, default "cpu"
        "cpu", or "cuda" to eliminate on a GPU with CuPy, with tables in its memory. Models that do
        not fit are sampled on the GPU.
    executor : Executor, str or Dask client, optional
        Where chains run if the graph is sampled, as in `mg.sample`. By default threads.

    Returns
    -------
    Answer
        Marginals, log Z, their errors, and the method.

    Raises
    ------
    SampleError
        If a setting is invalid, or the model has no state of positive probability.

    Examples
    --------
    >>> import minigibbs as mg
    >>> grid = mg.models.ising_lattice(side=8, beta=0.6, periodic=False)
    >>> answer = mg.infer(grid.condition({0: 1}))
    >>> answer.method, round(answer.log_z, 3)
    ('exact', 69.37)
    >>> sampled = mg.infer(grid.condition({0: 1}), "1s", exact=False, seed=1, progress=False)
    >>> sampled.exact
    False
    """
    check_counts(chains=chains, threads=threads)
    budget = None if memory is None else read_size(memory, "memory")
    if backend not in ("cpu", "cuda"):
        raise SampleError(f"backend must be cpu or cuda, got {backend!r}")
    if isinstance(sampler, PopulationAnnealing):
        _check_population(backend, observe, executor)
    check_executor(executor)
    if executor is not None and backend != "cpu":
        raise SampleError(f'executor is for backend="cpu"; got backend={backend!r}')
    card = Card.found() if backend == "cuda" else None
    if chains is None and backend == "cpu":
        chains = _CHAINS
    options = {"chains": chains, "seed": seed, "threads": threads, "progress": progress}
    with (
        Watch(durations.seconds(max_time, "max_time")) as watch,
        shared_executor(executor, min(threads or os.cpu_count() or 1, chains or 1)) as workers,
    ):
        call = _Call(graph, standard_error, options | {"executor": workers}, observe, backend)
        why = "exact answers were not requested"
        if exact:
            with Stage("looking for an exact answer", progress):
                answer, why = _exact(graph, budget, watch, card)
            if answer is not None:
                return answer if observe is None else call.observed(answer)
        if isinstance(sampler, PopulationAnnealing):
            return _annealed(graph, sampler, call, why, watch)
        if sampler is None and not graph.implicits and graph.influence < 1.0:
            return call.two_runs(why, watch)
        try:
            with (
                Stage("choosing a sampler", progress),
                Watch(_CHOOSING * watch.left) as choosing,
                choosing.droppable(),
            ):
                chosen, reason = (sampler, "the sampler was given") if sampler else _choose(graph)
            run = call.sample(graph, chosen, watch, observe)
        except (StopError, TooLargeError) as error:
            if watch.signal or graph.implicits:  # preparing implicit groups takes the time
                raise
            if sampler and isinstance(error, TooLargeError):
                raise
            watch.extend(max(2 * _BEYOND, _LATE_SHARE * watch.spent))
            reason = "time was up before another sampler was ready"
            run = call.sample(graph, PoissonGibbs(), watch, observe)
        return _sampled(graph, run, run, f"{why}; {reason}", watch)


def _check_population(backend: str, observe: Observe, executor: Any) -> None:
    """Raise `SampleError` for options that population annealing does not support."""
    if backend != "cpu":
        raise SampleError(
            f'mg.PopulationAnnealing runs on backend="cpu"; got {backend!r}; use mg.Tempering()'
        )
    if executor is not None:
        raise SampleError("mg.PopulationAnnealing runs on threads; use mg.Tempering() on executors")
    if observe is not None:
        raise SampleError(
            "mg.PopulationAnnealing takes no observe=; evaluate answer.population.states, weighted "
            "by answer.population.weights, or use mg.Tempering()"
        )


def _annealed(
    graph: FactorGraph, settings: PopulationAnnealing, call: _Call, why: str, watch: Watch
) -> Answer:
    """Return the answer of populations that are cooled to the model."""
    options = call.options
    with Stage("annealing populations", options["progress"]):
        known, population = anneal(
            graph,
            settings,
            options["chains"] or POPULATIONS,
            call.error,
            options["seed"],
            options["threads"],
            watch,
        )
    return Answer(
        domains=graph.domains,
        known=known,
        log_z=float(population.log_z[-1]),
        log_z_error=float(population.log_z_error[-1]),
        method=str(settings),
        reason=f"{why}; the sampler was given",
        seconds=watch.spent,
        warnings=() if population.warning is None else (population.warning,),
        clamped=graph.evidence >= 0,
        model=graph.describe(),
        graph=graph,
        population=population,
    )


def _exact(
    graph: FactorGraph, memory: float | None, watch: Watch, card: Card | None = None
) -> tuple[Answer | None, str]:
    """Return the exact answer if it fits into time and memory, else None, and the reason."""
    try:
        with Watch(_EXACT * watch.left):
            found, why = _eliminated(graph, memory, watch, card)
    except TooLargeError as error:
        return None, str(error).split(";")[0]
    except StopError:
        return None, "an exact answer took longer than predicted, and was given up"
    if found is None:
        return None, why
    flat, log_z = found
    rounded = rounding_warning(graph.rounding_error)
    answer = Answer(
        domains=graph.domains,
        known=Known(flat, np.zeros(len(flat)), graph.sizes),
        log_z=log_z,
        log_z_error=0.0,
        method="exact",
        reason=why,
        seconds=watch.spent,
        warnings=() if rounded is None else (rounded,),
        clamped=graph.evidence >= 0,
        model=graph.describe(),
        graph=graph,
    )
    return answer, answer.reason


def _eliminated(
    graph: FactorGraph, memory: float | None, watch: Watch, card: Card | None
) -> tuple[tuple[NDArray[np.float64], float] | None, str]:
    """Return marginals and log Z, in slices if they do not fit into memory, and the reason.

    They are None if they would take too long.
    """
    late = "an exact answer would take about {:,.0f} s"
    try:
        tree = EliminationTree.of(graph, memory, card=card)
    except TooLargeError as error:
        try:
            slices = sliced(graph, memory, card)
        except TooLargeError:
            raise error from None
        if slices.seconds > _EXACT * watch.left:
            return None, f"{late.format(slices.seconds)} in {slices.count:,} slices"
        why = f"its tables fit into memory in {slices.count:,} slices"
        return sliced_answer(slices), f"{why}: about {slices.seconds:.1f} s"
    if tree.seconds > _EXACT * watch.left:
        return None, late.format(tree.seconds)
    why = f"its treewidth is at most {tree.order.width}: about {tree.seconds:.1f} s"
    return exact_answer(tree), why


def _choose(graph: FactorGraph) -> tuple[Sampler, str]:
    """Return the sampler to use, and the reason."""
    if graph.implicits:
        return PoissonGibbs(), "its factors are implicit, which only this sampler draws from"
    if graph.influence < 1.0:
        weak = f"its variables depend on each other weakly ({graph.influence:.2g} < 1, Dobrushin)"
        return PoissonGibbs(), f"{weak}, so that single chains mix fast"
    try:
        ladder = Tempering().settled(graph)
    except TooLargeError as error:
        return PoissonGibbs(), f"tempering does not fit: {error}"
    levels = len(ladder.levels) if isinstance(ladder.levels, tuple) else 0
    if levels * len(graph) > _TEMPERED:
        return PoissonGibbs(), f"tempering would take {levels} copies of {len(graph):,} variables"
    return ladder, "tempering visits modes that single chains would not leave"


@dataclass(frozen=True)
class _Call:
    """The arguments of `infer`, where it samples."""

    graph: FactorGraph
    error: float
    options: dict[str, Any]  # chains, seed, threads, progress, executor
    observe: Observe
    backend: str

    @property
    def _elsewhere(self) -> bool:
        """Whether chains run on an executor of the user, whose number of workers is unknown."""
        return isinstance(self.options["executor"], Executor) or hasattr(
            self.options["executor"], "scatter"
        )

    def observed(self, answer: Answer) -> Answer:
        """Add observables to an exact answer: exact ones, or measured on independent draws."""
        wanted = read_observe(self.observe)
        found = {name: one.expected(answer) for name, one in wanted.items()}
        known = {name: value for name, value in found.items() if value is not None}
        answer = replace(answer, expected=known)
        rest = {name: one for name, one in wanted.items() if name not in known}
        if not rest:
            return answer
        run = sample(self.graph, ExactSampler(), sweeps=_OBSERVED, observe=rest, **self.options)
        return replace(answer, run=run, seconds=answer.seconds + run.info.seconds)

    def two_runs(self, why: str, watch: Watch) -> Answer:
        """Compute marginals by single chains, which mix fast, and log Z by a temperature ladder.

        If a signal ends the call, the answer is that of the ladder, whose run has marginals too.
        """
        graph, (chosen, reason) = self.graph, _choose(self.graph)
        reason = f"{why}; {reason}"
        try:
            with Watch(_LOG_Z * watch.left) as half:
                tempered = self.sample(graph, Tempering(), half, None, beyond=False)
        except TooLargeError as error:
            run = self.sample(graph, chosen, watch, self.observe)
            return _sampled(graph, run, None, f"{reason}; there is no log Z: {error}", watch)
        if not tempered.interrupted:
            light = lighter(graph) if self.observe is None else graph  # it shifts the energy
            try:
                run = self.sample(light, chosen, watch, self.observe, share=_COUNTED)
                if run.visits.any():
                    known = self.averaged(light, chosen, run, watch)
                    return _sampled(graph, run, tempered, reason, watch, known)
            except KeyboardInterrupt:
                if not tempered.visits.any():
                    raise
        return _sampled(graph, tempered, tempered, reason, watch)

    def averaged(
        self, graph: FactorGraph, sampler: Sampler, run: Run, watch: Watch
    ) -> Known | None:
        """Average exact marginals of trees given further states; None if counts are better.

        The chains continue for at most twice as long as they took, or a second. On weakly dependent
        variables these means vary far less than counts of visits.
        """
        if self.backend != "cpu" or run.interrupted or run.info.ended == LENGTH:
            return None
        limit = min(watch.left, max(2.0 * run.info.seconds, _LEAST_AVERAGING))
        options = self.options | {"seed": _next_seed(self.options["seed"])}
        try:
            with Watch(limit):
                return conditional_marginals(graph, sampler, run, **options)
        except (StopError, TooLargeError, KeyboardInterrupt):
            return None

    def sample(
        self,
        graph: FactorGraph,
        sampler: Sampler,
        watch: Watch,
        observe: Observe,
        beyond: bool = True,
        share: float = 1.0,
    ) -> Run:
        """Sample after a warm-up until the errors are small enough or a share of the time is up.

        If time is up before every chain has recorded a sweep, a few sweeps are recorded `beyond`
        the limit, so that the answer has marginals.
        """
        seconds = min(0.05, max(watch.left, 0.0) / 100)
        with Stage("timing the sampler", self.options["progress"]):
            free, sampler = max(len(free_variables(graph.evidence)), 1), sampler.settled(graph)
            sweep = free * time_updates(graph, sampler, seconds=seconds, choose=fmean)
        chains, threads = self.options["chains"] or 1, self.options["threads"]
        workers = min(threads or os.cpu_count() or 1, chains)
        if self.backend != "cpu" or self._elsewhere:  # all chains advance together
            workers = chains
        sweeps = share * max(watch.left, 0.0) * workers / (chains * sweep)
        warmup = int(min(max(_WARMUP * sweeps, _LEAST_WARMUP), _MOST_WARMUP, sweeps / 3))
        options = self.options | {"observe": observe, "backend": self.backend}
        with Watch(share * watch.left):
            run = sample_until(graph, sampler, standard_error=self.error, warmup=warmup, **options)
        recorded = int(run.clock.min()) >= free
        if run.info.ended != TIME or recorded or not beyond:
            return run
        made = (run.info.updates + run.info.warmup) / (free * chains)  # sweeps per chain
        pace = run.info.seconds / made if made >= 1 else sweep * chains / workers
        few = min(max(int(_BEYOND / pace), 1), LEAST_SWEEPS)
        options["seed"] = _next_seed(options["seed"])
        watch.extend(_BEYOND)
        return sample(graph, sampler, sweeps=few, start=run, **options)


def _next_seed(seed: int | None) -> int | None:
    """Return another seed for chains that continue, not that of the numbers behind their start."""
    if seed is None:
        return None
    return int(np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)[0])


def _ladder(run: Run) -> Ladder | None:
    """Return a run's ladder, or None if the run was too short to estimate log Z."""
    short = int(run.clock.min()) < max(int((~run.clamped).sum()), 1)
    return None if short or run.info.ended == LENGTH else run.ladder


def _sampled(
    graph: FactorGraph,
    run: Run,
    tempered: Run | None,
    reason: str,
    watch: Watch,
    known: Known | None = None,
) -> Answer:
    """Return the answer of a run; log Z is from the ladder of this or another tempered run.

    Marginals are counts of the run if they are not `known` better.
    """
    if run.interrupted and not run.visits.any():
        raise KeyboardInterrupt  # a signal came before anything was recorded
    marginals = Marginals.of(run)
    ladder = None if tempered is None else _ladder(tempered)
    said = warnings_within_infer(run, run.summary())
    if tempered is not None and ladder is not None and tempered is not run:
        said += ladder_warnings(tempered)
    warnings = [text for text in said if run.info.ended != TIME or text != LATE]
    if run.info.ended == LENGTH:
        sweeps = marginals.sweeps
        warnings.append(
            f"the time was too short to sample this graph: {sweeps:.3g} sweeps of each chain were "
            "recorded beyond it, too few to tell how far from the truth they are; give more time. "
            "mg.theory.propagate approximates marginals in seconds, without errors"
        )
    if known is None:
        errors, degrees = marginals.standard_errors, marginals.degrees or np.nan
        known = Known(marginals.pooled, errors, graph.sizes, degrees)
    else:
        reason += "; its marginals are means of exact marginals of trees given the rest"
    if tempered is not None and ladder is not None and tempered is not run:
        apart = disagreement(known, Marginals.of(tempered), graph.domains)
        warnings += [] if apart is None else [apart]
    beyond = None
    if ladder is not None and not run.interrupted:
        beyond = _beyond_bounds(graph, ladder, best_of(graph, tempered), watch)
    if beyond is not None:
        warnings.append(beyond)
    return Answer(
        domains=graph.domains,
        known=known,
        log_z=None if ladder is None else ladder.log_z,
        log_z_error=None if ladder is None else ladder.log_z_error,
        method=run.info.sampler,
        reason=reason,
        seconds=watch.spent,
        warnings=tuple(warnings),
        clamped=run.clamped,
        model=run.model,
        run=run,
        graph=graph,
    )


def _beyond_bounds(
    graph: FactorGraph, ladder: Ladder, state: NDArray[Any] | None, watch: Watch
) -> str | None:
    """Return a warning if log Z is outside its proven bounds: the ladder missed modes.

    Bounds are computed for graphs with few factors, in a twentieth of the time that was spent.
    """
    if ladder.log_z is None or graph.implicits or graph.stats.factors > _MOST_BOUNDED:
        return None
    watch.extend(max(_LEAST_BOUNDING, 0.05 * watch.spent))
    try:
        lower, upper = log_z_bounds(graph, entries=_ENTRIES, state=state)
    except (StopError, TooLargeError):
        return None
    error = ladder.log_z_error
    slack = np.inf if error is None or not np.isfinite(error) else 5.0 * error
    if lower - slack <= ladder.log_z <= upper + slack:
        return None
    return (
        f"log Z = {ladder.log_z:.4g} is outside its proven bounds, {lower:.4g} to {upper:.4g}: the "
        "chains missed probable states, and marginals are wrong; give more time"
    )


_MOST_BOUNDED = 20_000  # largest number of factors for which log Z is compared with its bounds
_LEAST_AVERAGING = 1.0  # least number of seconds for further states and marginals given them
_LEAST_BOUNDING = 0.5  # least number of seconds for the bounds
_ENTRIES = 2**14  # per table of the bounds
