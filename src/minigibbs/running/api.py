"""Public functions `sample`, `sample_until` and `resume`, which all use the same run loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.random import streams
from minigibbs.observables import Observable
from minigibbs.observables.reading import Observe, encode, read_observe, unknown
from minigibbs.results.run import Run
from minigibbs.running import durations
from minigibbs.running.backends import BACKENDS, mpi
from minigibbs.running.backends.cpu import CpuGroup, cpu_group
from minigibbs.running.backends.lockstep import LockstepGroup
from minigibbs.running.checkpoint.folder import Checkpoint, Generation, restore_groups
from minigibbs.running.checkpoint.peek import saved_run
from minigibbs.running.executors import runner_for
from minigibbs.running.goal import Goal
from minigibbs.running.group import Group, share_threads
from minigibbs.running.halves import load_halves
from minigibbs.running.loop import Loop
from minigibbs.running.plan import CHROMATIC, DISPERSED, FINISHED, RANDOM_START, Plan
from minigibbs.running.request import (
    DEFAULT_RECORD,
    MOST_DISPERSED,
    Options,
    Record,
    check_counts,
    run_length,
    start_states,
)
from minigibbs.samplers import Sampler
from minigibbs.samplers.chromatic.first import first_states
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Stage
from minigibbs.system.watch import Watch


@checked(SampleError)
def sample(
    graph: FactorGraph,
    sampler: Sampler | str | None = None,
    updates: int | None = None,
    sweeps: int | None = None,
    warmup: int | None = None,
    chains: int | None = None,
    seed: int | None = None,
    start: str | ArrayLike | Run = DISPERSED,
    scan: str | None = None,
    record: Record | str | Sequence[str] = DEFAULT_RECORD,
    progress: bool = True,
    *,
    reference: ArrayLike | None = None,
    threads: int | None = None,
    executor: Executor | str | Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: str | float | None = None,
    backend: str = "cpu",
    observe: Observe = None,
) -> Run:
    """Sample a graph with several independent chains.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    sampler : Sampler or str, optional
        A sampler such as `mg.Gibbs()`, or its name. By default `mg.PoissonGibbs()`.
    updates : int, optional
        Length of each chain in single-variable updates. Give this or `sweeps`.
    sweeps : int, optional
        Length of each chain in sweeps: one sweep has as many updates as there are free variables.
        By default 1,000 sweeps.
    warmup : int, optional
        Length of each chain before anything is recorded: in sweeps, or in updates if the length is
        given in updates. By default a quarter of the length, or 0 if `start` is a run.
    chains : int, optional
        Number of independent chains. By default 4, and 16,384 on a GPU.
    seed : int, optional
        Fixes every draw, for any number of threads. By default a fresh seed, stored in
        `run.info.seed`.
    start : str, array-like or Run, default "dispersed"
        "dispersed", "random", one state for all chains, one state per chain, or a run to continue
        from (`run.state`). "dispersed" starts half of up to 64 chains at constant states (all first
        values, all second values, ...) and the others at random states in mirrored pairs, so that
        chains start in different modes of symmetric models. A constant state with practically no
        weight is replaced by a random one.
    scan : str, optional
        The order of updates. "random" picks each variable at random, as in the paper. "systematic"
        visits variables in order, "shuffled" in a new order each sweep. "shared" picks at random,
        the same variable for all chains. "chromatic" updates all variables of one color of the
        graph together, for `Gibbs` and `PoissonGibbs` on explicit factors; with `Points` it visits
        variables in a fixed order. By default the fastest scan for `PoissonGibbs` ("chromatic" on
        sparse graphs and with 16 or more chains, else "systematic"), and "random" for other
        samplers and with a guaranteed slowdown. On a GPU "chromatic" or "shared".
    record : Record, str or sequence of str, default ("marginals", "energy")
        What to record: "marginals" (counts over every update), "draws" and "energy". `mg.Record`
        also sets how often, for which variables and for which chains.
    progress : bool, default True
        Whether to show a progress bar if stderr is a terminal.
    reference : array-like, optional
        Marginals [variable, value]. `run.error` is then the distance of the running marginals to
        them at every record.
    threads : int, optional
        Number of chains that run at the same time. By default one per processor.
    executor : Executor, str or Dask client, optional
        Where chains run: a `concurrent.futures.Executor` such as Dask's or mpi4py's, "processes"
        for processes of this machine, or a Dask client. By default threads. The draws are the same
        everywhere. If a worker dies, about one second of work is repeated.
    checkpoint : str or path, optional
        Folder in which the run is saved. `mg.resume` continues from it.
    every : str or float, optional
        Time between saves: "30s", "5min", "1h", or seconds. By default 30 s, or longer if writing
        would take more than 1% of the time.
    backend : str, default "cpu"
        "cpu", or "cuda" for many thousand chains on a GPU (`pip install "minigibbs[cuda]"`), which
        counts marginals about once per sweep over all chains. "mpi" splits one model over the
        processes that `mpiexec` or `srun` started (`pip install "minigibbs[mpi]"`), or the chains
        of samplers and scans that cannot split a model, such as `mg.Tempering()`.
    observe : function, Observable, str or mapping, optional
        Observables to measure at every record, by name: a function of the state (`x[i]` is the
        index of variable i's value) that returns a number or a tuple and is compiled; one of
        `mg.observables`; or its name. `run.observables["m"]` has the mean, its error and more. See
        docs/observables.md.

    Returns
    -------
    Run
        Marginals, draws, energies and diagnostics of all chains.

    Raises
    ------
    SampleError
        If a setting is invalid, or the sampler, scan or backend cannot be used on this graph.
    TooLargeError
        If the run does not fit into memory.
    StoppedError
        If the run ends early for a reason such as a full disk. `error.run` has the results up to
        then.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> run = mg.sample(graph, sweeps=2000, seed=1, progress=False)
    >>> abs(run.marginals[:, 1] - 0.5).max() < 0.05
    np.True_
    """
    options = Options.gather(locals())
    with Watch() as watch:
        length, unit = run_length(updates, sweeps, graph.free)
        with Stage("preparing", progress):
            plan = options.plan(graph, length, unit, reference)
        return _run(options, plan, watch)


@checked(SampleError)
def sample_until(
    graph: FactorGraph,
    sampler: Sampler | str | None = None,
    rhat: float | None = 1.01,
    ess: float | None = 400,
    max_time: str | float | None = None,
    warmup: int | None = None,
    chains: int | None = None,
    seed: int | None = None,
    start: str | ArrayLike | Run = DISPERSED,
    scan: str | None = None,
    record: Record | str | Sequence[str] = DEFAULT_RECORD,
    progress: bool = True,
    *,
    standard_error: float | None = None,
    threads: int | None = None,
    executor: Executor | str | Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: str | float | None = None,
    backend: str = "cpu",
    observe: Observe = None,
) -> Run:
    """Sample a graph until convergence criteria are met or a time limit is reached.

    R-hat is the largest over the energy, the observables and, if marginals are recorded, all values
    of all variables, with chains split in half. The effective sample size is the smallest of the
    energy and the observables. If draws are recorded, both criteria include the values of up to 25
    variables. Observables with more than 16 numbers in all are left out. Criteria are checked in
    rounds; each round is 1.41 times as long as all previous ones together.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    sampler : Sampler or str, optional
        A sampler such as `mg.Gibbs()`, or its name. By default `mg.PoissonGibbs()`.
    rhat : float or None, default 1.01
        Largest acceptable R-hat. None disables the criterion.
    ess : float or None, default 400
        Smallest acceptable effective sample size. None disables the criterion.
    max_time : str or float, optional
        Time limit: "60s", "5min", "1h", or seconds. By default none.
    warmup : int, optional
        Sweeps of each chain before anything is recorded. By default the first quarter of each chain
        is dropped at the end.
    chains : int, optional
        Number of independent chains. By default 4, and 16,384 on a GPU.
    seed : int, optional
        Fixes every draw, for any number of threads.
    start : str, array-like or Run, default "dispersed"
        Initial states, as in `mg.sample`.
    scan : str, optional
        Order of updates, as in `mg.sample`.
    record : Record, str or sequence of str, default ("marginals", "energy")
        What to record, as in `mg.sample`. `mg.Record(thin=...)` counts sweeps, by default 1.
    progress : bool, default True
        Whether to show a progress bar if stderr is a terminal.
    standard_error : float, optional
        Largest acceptable standard error of a marginal. By default this criterion is disabled.
    threads : int, optional
        Number of chains that run at the same time. By default one per processor.
    executor : Executor, str or Dask client, optional
        Where chains run, as in `mg.sample`.
    checkpoint : str or path, optional
        Folder in which the run is saved. `mg.resume` continues from it.
    every : str or float, optional
        Time between saves, as in `mg.sample`.
    backend : str, default "cpu"
        "cpu", "cuda" or "mpi", as in `mg.sample`.
    observe : function, Observable, str or mapping, optional
        Observables to measure at every record, as in `mg.sample`.

    Returns
    -------
    Run
        `run.info.ended` is "converged" or "time".

    Raises
    ------
    SampleError
        If a setting is invalid, or the sampler, scan or backend cannot be used on this graph.
    TooLargeError
        If the run does not fit into memory.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> run = mg.sample_until(graph, ess=200, seed=1, progress=False)
    >>> run.info.ended
    'converged'
    """
    options = Options.gather(locals())
    goal = Goal(rhat, ess, standard_error, drop=warmup is None and not isinstance(start, Run))
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    with Watch(limit) as watch:
        with Stage("preparing", progress):
            plan = options.plan(graph, None, max(graph.free, 1))
        goal.check_kept(plan.kept)
        spacing = plan.thin * plan.energy_every  # updates between two energies
        plan = replace(plan, length=goal.first_length(plan.rows, spacing))
        return _run(options, plan, watch, goal, limit)


def _run(
    options: Options,
    plan: Plan,
    watch: Watch,
    goal: Goal | None = None,
    max_time: float | None = None,
) -> Run:
    """Run a plan from its beginning, in a new checkpoint if one is requested."""
    interval = None if options.every is None else durations.seconds(options.every, "every")
    with Stage("preparing", options.progress):
        BACKENDS[plan.backend].check_memory(plan, snapshots=options.checkpoint is not None)
        data, groups = _place(plan, options.start)
    loop = Loop(plan, groups, goal)
    share_threads(groups, options.threads)

    def run() -> Run:
        return _run_placed(options, plan, data, loop, watch, interval, goal, max_time)

    return BACKENDS[plan.backend].together(groups, run)


def _run_placed(
    options: Options,
    plan: Plan,
    data: Any,
    loop: Loop,
    watch: Watch,
    interval: float | None,
    goal: Goal | None,
    max_time: float | None,
) -> Run:
    """Run existing groups, in a new checkpoint if one is requested."""
    with runner_for(options.executor, plan, data, options.threads) as runner:
        if options.checkpoint is None:
            return loop.run(runner, options.progress, watch)
        request: dict[str, Any] = {"every": interval}
        if goal is not None:
            names = ("rhat", "ess", "error", "drop")
            wanted = {name: getattr(goal, name) for name in names}
            request |= {"goal": wanted, "max_time": max_time}
        with Checkpoint.create(options.checkpoint, plan, request) as saved:
            return loop.run(runner, options.progress, watch, saved, interval)


def _place(plan: Plan, start: Any = RANDOM_START) -> tuple[Any, list[Group]]:
    """Return the sampler's prepared data, and the groups of chains at their initial states."""
    backend = BACKENDS[plan.backend]
    data = backend.prepare(plan)
    dispersed = plan.start == DISPERSED and 1 < plan.chains <= MOST_DISPERSED
    at_random = plan.start in (RANDOM_START, DISPERSED) and not dispersed
    counted = plan.scan == CHROMATIC and at_random and not len(plan.graph.hard)

    def states() -> NDArray[Any]:
        if counted:
            return first_states(plan.graph, plan.chains, plan.seed)
        return start_states(plan.graph, start, plan.chains, plan.seed)

    return data, backend.groups(plan, data, states, counted)


@checked(SampleError)
def resume(
    checkpoint: str | os.PathLike[str],
    updates: int | None = None,
    sweeps: int | None = None,
    *,
    progress: bool = True,
    threads: int | None = None,
    executor: Executor | str | Any = None,
    every: str | float | None = None,
    max_time: str | float | None = None,
    observe: Observe = None,
) -> Run:
    """Continue a run from its checkpoint, with the same draws as an uninterrupted run.

    Parameters
    ----------
    checkpoint : str or path
        The folder given to `mg.sample` or `mg.sample_until`.
    updates : int, optional
        Updates to add to the planned length of each chain. By default none; a finished run is
        then returned unchanged.
    sweeps : int, optional
        Sweeps to add to the planned length of each chain.
    progress : bool, default True
        Whether to show a progress bar if stderr is a terminal.
    threads : int, optional
        Number of chains that run at the same time. By default one per processor.
    executor : Executor, str or Dask client, optional
        Where chains run, as in `mg.sample`.
    every : str or float, optional
        Time between saves. By default as before.
    max_time : str or float, optional
        Time limit of this call for runs of `mg.sample_until`. By default as before.
    observe : function or mapping, optional
        The user functions that the run observes, by name. Checkpoints contain no code, so they
        must be given again. Observables of `mg.observables` are restored automatically.

    Returns
    -------
    Run
        The whole run, including earlier records.

    Raises
    ------
    SampleError
        If the folder is no checkpoint, is in use, or was written by an incompatible version.

    Examples
    --------
    >>> import minigibbs as mg, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "run"
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> first = mg.sample(graph, sweeps=50, seed=1, checkpoint=folder, progress=False)
    >>> longer = mg.resume(folder, sweeps=50, progress=False)
    >>> longer.info.updates == 2 * first.info.updates
    True
    """
    check_counts(threads=threads)
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    if mpi.follows():
        base, _ = Checkpoint.inspect(checkpoint).read_plan()
        if base.backend == mpi.BACKEND.name:
            _, groups = _place(_with_functions(base, read_observe(observe)))
            return mpi.BACKEND.together(groups, _never)
    try:
        with Watch(limit) as call, Checkpoint.open(checkpoint) as saved:
            return _resume(
                call, saved, updates, sweeps, progress, threads, executor, every, limit, observe
            )
    except BaseException as error:
        mpi.BACKEND.release(error)
        raise


def _never() -> Run:
    raise AssertionError("rank 0 runs the loop")


def _resume(
    call: Watch,
    saved: Checkpoint,
    updates: int | None,
    sweeps: int | None,
    progress: bool,
    threads: int | None,
    executor: Any,
    every: str | float | None,
    limit: float | None,
    observe: Observe,
) -> Run:
    """Continue the run of an open checkpoint."""
    interval = None if every is None else durations.seconds(every, "every")
    base, request = saved.read_plan()
    base = _with_functions(base, read_observe(observe))
    BACKENDS[base.backend].check()
    with Stage("reading the checkpoint", progress):
        data, loop = saved.latest(lambda found: _restore_loop(base, request, found))
    more = 0
    if updates is not None or sweeps is not None:
        length, unit = run_length(updates, sweeps, len(base.order))
        more = length * unit
        if more % base.unit:
            raise SampleError(
                f"this run is made of sweeps of {base.unit:,} updates; give sweeps instead of "
                f"updates={length}"
            )
    if loop.ended in FINISHED and not more:
        return BACKENDS[base.backend].together(loop.groups, loop.result)
    if saved.read_only:
        raise SampleError(
            f"{saved.folder} cannot be written to, and its run has not ended; copy the folder, "
            "and resume the copy"
        )
    loop.grow(more)
    share_threads(loop.groups, threads)
    interval = request.get("every") if every is None else interval
    limit = request.get("max_time") if limit is None else limit
    left = None if limit is None else limit - call.spent

    def run() -> Run:
        with runner_for(executor, loop.plan, data, threads) as runner, Watch(left) as watch:
            return loop.run(runner, progress, watch, saved, interval)

    return BACKENDS[base.backend].together(loop.groups, run)


def _with_functions(plan: Plan, given: dict[str, Observable]) -> Plan:
    """Return the plan with the user's functions, which a file cannot contain."""
    for name, one in given.items():
        width = one.bind(plan.graph).width
        if name not in plan.observe:
            known = ", ".join(plan.observe) or "nothing"
            raise SampleError(f"observe: this run does not observe {name!r}; it observes {known}")
        was = plan.observe[name]
        if encode(one, width, {}) != encode(was, was.bind(plan.graph).width, {}):
            raise SampleError(f"observe: {name!r} was another observable where the run began")
    whole = {name: given.get(name, one) for name, one in plan.observe.items()}
    missing = [name for name, one in whole.items() if unknown(one)]
    if missing:
        raise SampleError(
            f"this run observes functions of your own, which no file holds: give "
            f"observe={{{missing[0]!r}: ...}} as it was ({', '.join(missing)} are missing)"
        )
    return replace(plan, observe=whole)


def _restore_loop(base: Plan, request: dict[str, Any], found: Generation) -> tuple[Any, Loop]:
    """Restore the run loop of a checkpoint's generation; also return the sampler's data."""
    plan = replace(base, length=found.header["length"])
    BACKENDS[plan.backend].check_memory(plan, snapshots=True)
    data, groups = _place(plan)
    restore_groups(plan, groups, found)
    goal = _saved_goal(plan, request, found)
    ended = found.header["ended"]
    if ended in FINISHED and not all(group.done for group in groups):
        raise ValueError(f"ended: {ended}, but not all updates are made")
    halves = load_halves(found.states, plan.values, len(groups))
    return data, Loop(plan, groups, goal, float(found.header["seconds"]), ended, halves)


def _saved_goal(plan: Plan, request: dict[str, Any], found: Generation) -> Goal | None:
    """Restore the goal of a saved run, with its rounds so far."""
    if "goal" not in request:
        return None
    return Goal(**request["goal"]).load(plan, found.header, found.states)


def peek(checkpoint: str | os.PathLike[str]) -> Run:
    """Read the run of a checkpoint without running, writing or locking anything."""
    saved = Checkpoint.inspect(checkpoint)
    plan, request = saved.read_plan()
    return saved.latest(lambda found: saved_run(plan, found, _saved_goal(plan, request, found)))


def one_chain(
    graph: FactorGraph,
    sampler: Sampler,
    state: NDArray[Any] | None = None,
    stream: NDArray[np.uint64] | None = None,
    scan: str = "random",
) -> CpuGroup | LockstepGroup:
    """Create a chain that records nothing, at its initial state, to be timed or inspected."""
    scan_or_own = None if sampler.sweeps else scan
    plan = Options(sampler=sampler, chains=1, seed=0, scan=scan_or_own, record=()).plan(graph, 0, 1)
    state = start_states(graph, "random", 1, 0)[0] if state is None else state
    stream = streams(0, 1)[0] if stream is None else stream
    data = BACKENDS["cpu"].prepare(plan)
    group = cpu_group(plan, data, state.astype(graph.state_type), stream)
    group.begin()
    return group


def time_updates(
    graph: FactorGraph,
    sampler: Sampler,
    seconds: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
    choose: Callable[[Sequence[float]], float] = min,
) -> float:
    """Measure seconds per update of one chain after a short warm-up: the best of five stretches.

    A chain whose shortest stretch takes longer than `seconds` is timed once.

    With `clock=time.thread_time`, processor time is measured, which other processes affect less.
    With `choose=statistics.fmean`, delays count: use it to plan what fits into a time limit.
    """
    group = one_chain(graph, sampler)
    group.compile()
    updates, found = group.whole(16), []
    for stretch in range(8):
        begun = clock()
        group.advance(updates, False)
        taken = max(clock() - begun, 1e-9) / updates
        if stretch == 0 and taken * updates > seconds:
            return taken
        if stretch < 3:
            updates = group.whole(max(4, int(seconds / taken)))
        else:
            found.append(taken)
    return choose(found)
