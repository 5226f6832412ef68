"""`sample` and `resume`: chains, warm-up, recording, progress, checkpoints; all ways to run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.random import streams
from minigibbs.results.run import Run
from minigibbs.running import durations
from minigibbs.running.backends.cpu import advance
from minigibbs.running.backends.device import DEFAULT_CHAINS as DEVICE_CHAINS
from minigibbs.running.backends.device import DEFAULT_KEPT as DEVICE_KEPT
from minigibbs.running.backends.device import (
    LANES,
    refuse_on_device,
    run_on_device,
    uses_device,
    without_size_warnings,
)
from minigibbs.running.checkpoint.folder import Checkpoint, Generation, take_up
from minigibbs.running.executors.runners import runner_for
from minigibbs.running.goal import Goal
from minigibbs.running.plan import FINISHED, Plan
from minigibbs.running.progress import Bar
from minigibbs.running.request import (
    DEFAULT_RECORD,
    DEFAULT_RECORDS,
    SCANS,
    check_counts,
    choose,
    entropy_of,
    run_length,
    start_states,
    variables_to_keep,
    what_to_keep,
)
from minigibbs.running.sampling import Sampling
from minigibbs.samplers import Sampler
from minigibbs.samplers.base import check_stored
from minigibbs.system import memory


def sample(
    graph: FactorGraph,
    sampler: Sampler | str | None = None,
    updates: int | None = None,
    sweeps: int | None = None,
    warmup: int = 0,
    chains: int | None = None,
    seed: int | None = None,
    start: str | ArrayLike = "random",
    scan: str | None = None,
    record: str | Sequence[str] = DEFAULT_RECORD,
    thin: int | None = None,
    progress: bool = True,
    *,
    reference: ArrayLike | None = None,
    threads: int | None = None,
    executor: Executor | str | Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: str | float | None = None,
    backend: str = "cpu",
    record_chains: int | None = None,
    record_variables: Sequence[int | str] | None = None,
) -> Run:
    """Sample a graph with several independent chains.

    Parameters
    ----------
    graph
        The model, conditioned on evidence or not.
    sampler
        A sampler such as `mg.Gibbs()`, or its name; left out, `mg.PoissonGibbs()`.
    updates, sweeps
        How long each chain runs, in single-variable updates or in sweeps of as many updates as
        there are free variables; left out, 1,000 sweeps.
    warmup
        Updates of each chain before anything is recorded.
    chains
        How many independent chains to run; left out, 4, or 16,384 on a GPU.
    seed
        Fixes every draw, whatever the number of threads; left out, a fresh one is drawn and
        kept in `run.info.seed`.
    start
        "random", one state for all chains, or one state per chain.
    scan
        "random" picks each variable at random (the paper's), "systematic" goes through them in
        order, "shuffled" in a new order each sweep; "shared" picks at random, but the same for
        all chains of a run. Left out, "random"; on a GPU "shared", which is much faster there.
    record
        What to keep: "marginals" (from every update), "draws" and "energy" (every `thin`
        updates). Draws have shape [chain, draw, variable] and the smallest unsigned type that
        fits: convert before arithmetic (`2 * run.draws.astype(int) - 1` for spins).
    thin
        Updates between two records; left out, a sweep, or more so that there are at most 1,000.
    progress
        Show a progress bar if stderr is a terminal.
    reference
        Marginals [variable, value] to measure the error of the running marginals against, at
        every record; see `Run.error`.
    threads
        How many chains to run at a time; left out, as many as there are processors.
    executor
        Where chains run: any `concurrent.futures.Executor`, such as Dask's or mpi4py's,
        "processes" for processes of this machine, or a Dask client; left out, threads. The
        draws are the same everywhere. A worker that dies costs a segment of about a second.
    checkpoint
        A folder to save the run in, from which `mg.resume` goes on with it.
    every
        How often to save: "30s", "5min", "1h", or seconds; left out, every 30 s, or more rarely
        where writing would take more than 1% of the time.
    backend
        "cpu", or "cuda" for many thousand chains on a GPU: `pip install "minigibbs[cuda]"`.
        There, marginals are counted about once a sweep, over all chains.
    record_chains
        Of how many chains a GPU keeps draws and energies, 64 if left out. They are spread evenly:
        row k of the run's arrays is chain k * chains // record_chains, and its counts are those
        of all chains from there to the next.
    record_variables
        The variables whose draws are kept, by number or name; left out, all. Draws then have shape
        [chain, draw, chosen variable], in the order given, which `run.drawn` repeats in numbers;
        `run.draws_of(variable)` is one variable's.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> run = mg.sample(graph, sweeps=2000, seed=1, progress=False)
    >>> abs(run.marginals[:, 1] - 0.5).max() < 0.05
    np.True_
    """
    chosen, on_device = choose(sampler), uses_device(backend)
    chains = (DEVICE_CHAINS if on_device else 4) if chains is None else chains
    scan = ("shared" if on_device else "random") if scan is None else scan
    order = free_variables(graph.evidence)
    length = run_length(updates, sweeps, len(order))
    spacing = max(len(order), -(-length // DEFAULT_RECORDS), 1)
    plan = _plan(
        graph, chosen, length, warmup, scan, record, thin or spacing, reference, record_variables
    )
    check_counts(chains=chains, threads=threads, thin=thin, record_chains=record_chains)
    if on_device and len(order):
        refuse_on_device(threads=threads, executor=executor, checkpoint=checkpoint, every=every)
        return _run_on_device(plan, start, chains, seed, record_chains or DEVICE_KEPT, progress)
    sampling = _first_sampling(plan, start, chains, seed, checkpoint is not None)
    return _run(sampling, executor, threads, progress, checkpoint, every)


def sample_until(
    graph: FactorGraph,
    sampler: Sampler | str | None = None,
    rhat: float | None = 1.01,
    ess: float | None = 400,
    max_time: str | float | None = None,
    warmup: int = 0,
    chains: int = 4,
    seed: int | None = None,
    start: str | ArrayLike = "random",
    scan: str = "random",
    record: str | Sequence[str] = DEFAULT_RECORD,
    thin: int | None = None,
    progress: bool = True,
    *,
    threads: int | None = None,
    executor: Executor | str | Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: str | float | None = None,
    record_variables: Sequence[int | str] | None = None,
) -> Run:
    """Sample a graph until the chains agree and are long enough, or until time is up.

    `run.info.ended` says which: "converged" or "time". R-hat is the greatest over the energy and,
    with marginals, over all values of all variables, chains split in half; the effective sample
    size is that of the energy. With draws recorded, both also look at the values of up to 25
    variables. The chains are looked at in rounds, each 1.41 times as long as all before it.

    Parameters
    ----------
    rhat, ess
        What to reach; None for one that does not matter.
    max_time
        "60s", "5min", "1h", or seconds; left out, as long as it takes.
    graph, sampler, warmup, chains, seed, start, scan, record, progress
        As in `mg.sample`.
    thin
        Updates between two records; left out, a sweep.
    threads, executor, checkpoint, every, record_variables
        As in `mg.sample`.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> run = mg.sample_until(graph, ess=200, seed=1, progress=False)
    >>> run.info.ended
    'converged'
    """
    goal = Goal(rhat, ess)
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    chosen, free = choose(sampler), len(free_variables(graph.evidence))
    check_counts(chains=chains, threads=threads, thin=thin)
    spacing = int(thin or max(free, 1))
    length = goal.first_length(chains, spacing)
    plan = _plan(graph, chosen, length, warmup, scan, record, spacing, None, record_variables)
    goal.check_kept(plan.kept)
    sampling = _first_sampling(plan, start, chains, seed, checkpoint is not None)
    sampling.goal = goal
    return _run(sampling, executor, threads, progress, checkpoint, every, limit)


def _plan(
    graph: FactorGraph,
    sampler: Sampler,
    length: int,
    warmup: int,
    scan: str,
    record: str | Sequence[str],
    thin: int,
    reference: ArrayLike | None,
    variables: Sequence[int | str] | None,
) -> Plan:
    """What all chains share, checked."""
    check_counts(warmup=warmup, thin=thin)
    if not isinstance(scan, str) or scan not in SCANS:
        raise SampleError(f"scan must be one of {', '.join(SCANS)}; got {scan!r}")
    check_stored(sampler, graph)
    kept, order = what_to_keep(record, reference, graph), free_variables(graph.evidence)
    chosen = variables_to_keep(variables, kept, graph)
    return Plan(
        graph, sampler, order, length, int(warmup), scan, kept, int(thin), reference, chosen
    )


def _first_sampling(
    plan: Plan, start: str | ArrayLike, chains: int, seed: int | None, snapshots: bool
) -> Sampling:
    """The chains of a plan at their start."""
    plan.check_memory(chains, snapshots)
    entropy = entropy_of(seed)
    states = start_states(plan.graph, start, chains, entropy)
    jobs = plan.jobs(plan.sampler.prepare(plan.graph), states, entropy)
    for job in jobs:
        job.begin()
    return Sampling(plan, jobs, entropy)


def _run_on_device(
    plan: Plan, start: str | ArrayLike, chains: int, seed: int | None, kept: int, progress: bool
) -> Run:
    """Run all chains on a GPU."""
    kept, entropy = min(kept, chains), entropy_of(seed)
    plan.check_device_memory(kept)
    run = plan.device_run(plan.sampler.prepare(plan.graph, LANES), chains, entropy, kept)
    size = chains * len(plan.graph) * plan.graph.state_type.itemsize
    memory.require(2 * size, f"the first states of {chains:,} chains", "use fewer chains")
    states = start_states(plan.graph, start, chains, entropy)
    with without_size_warnings(), Bar((plan.warmup + plan.length) * chains, progress) as bar:
        run.place(states, streams(entropy, chains))
        records = run_on_device(run, plan.warmup, plan.length, bar)
    return plan.device_result(records, chains, entropy)


def _run(
    sampling: Sampling,
    executor: Any,
    threads: int | None,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None,
    every: str | float | None,
    max_time: float | None = None,
) -> Run:
    """Run a new sampling, in a new checkpoint if one is wanted."""
    interval = None if every is None else durations.seconds(every, "every")
    plan, jobs, goal = sampling.plan, sampling.jobs, sampling.goal
    with runner_for(executor, plan, jobs[0].data, len(jobs), threads) as runner:
        if checkpoint is None:
            return sampling.run(runner, progress, max_time=max_time)
        request: dict[str, Any] = {"chains": len(jobs), "seed": sampling.entropy, "every": interval}
        if goal is not None:
            request |= {"goal": {"rhat": goal.rhat, "ess": goal.ess}, "max_time": max_time}
        with Checkpoint.create(checkpoint, plan, request) as saved:
            return sampling.run(runner, progress, saved, interval, max_time)


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
) -> Run:
    """Go on with a run from its checkpoint, as if it had never stopped.

    Parameters
    ----------
    checkpoint
        The folder given to `mg.sample` or `mg.sample_until`.
    updates, sweeps
        How much longer than planned each chain shall run; left out, no longer. A run that had
        reached its end is then returned as it is.
    progress, threads, executor
        As in `mg.sample`.
    every, max_time
        As in `mg.sample_until`; each stays as it was if left out. Time counts anew.

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
    interval = None if every is None else durations.seconds(every, "every")
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    with Checkpoint.open(checkpoint) as saved:
        base, request = saved.read_plan()
        sampling = saved.latest(lambda found: _take_up(base, request, found))
        more = _more(updates, sweeps, len(base.order))
        if sampling.ended in FINISHED and not more:
            return sampling.result()
        sampling.grow(more)
        jobs = sampling.jobs
        with runner_for(executor, sampling.plan, jobs[0].data, len(jobs), threads) as runner:
            interval = request["every"] if every is None else interval
            limit = request.get("max_time") if max_time is None else limit
            return sampling.run(runner, progress, saved, interval, limit)


def _take_up(base: Plan, request: dict[str, Any], found: Generation) -> Sampling:
    """The sampling that a generation of a checkpoint holds."""
    length, chains, entropy = found.header["length"], request["chains"], request["seed"]
    check_counts(updates=length, chains=chains)
    plan = replace(base, length=length)
    plan.check_memory(chains, snapshots=True)
    data = plan.sampler.prepare(plan.graph)
    jobs = plan.jobs(data, start_states(plan.graph, "random", chains, entropy), entropy)
    for job in jobs:
        job.begin()
    take_up(plan, jobs, found)
    goal = Goal(**request["goal"]) if "goal" in request else None
    if goal:
        goal.load(found.header, found.states)
    return Sampling(
        plan, jobs, entropy, float(found.header["seconds"]), found.header["ended"], goal
    )


def _more(updates: int | None, sweeps: int | None, free: int) -> int:
    return 0 if updates is None and sweeps is None else run_length(updates, sweeps, free)


def time_updates(
    graph: FactorGraph,
    sampler: Sampler,
    seconds: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds per update of one chain after a short warm-up: the best of five stretches.

    With `time.thread_time` for a clock, processor time: what others do on the machine counts less.
    """
    order = free_variables(graph.evidence)
    plan = Plan(graph, sampler, order, 0, 0, "random", frozenset(), 2**62, None)
    (state,) = start_states(graph, "random", 1, 0)
    job = plan.job(sampler.prepare(graph), state, streams(0, 1)[0])
    job.prepare()
    updates, best = 16, float("inf")
    for stretch in range(8):
        begun = clock()
        advance(job.data, job.model, job.chain, job.scan, job.recorder, updates, False)
        taken = max(clock() - begun, 1e-9) / updates
        if stretch < 3:
            updates = max(4, int(seconds / taken))
        else:
            best = min(best, taken)
    return best
