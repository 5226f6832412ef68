"""`sample`: chains, warm-up, recording, progress; the one way to run a sampler."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs import memory
from minigibbs._version import __version__
from minigibbs.backends.cpu import advance, start_chain
from minigibbs.backends.device import DEFAULT_CHAINS as DEVICE_CHAINS
from minigibbs.backends.device import DEFAULT_KEPT as DEVICE_KEPT
from minigibbs.backends.device import LANES, DeviceRun, load_backend, run_on_device
from minigibbs.domains import as_array
from minigibbs.errors import SampleError
from minigibbs.graph import FactorGraph
from minigibbs.kernels.energy import energies
from minigibbs.kernels.layout import (
    ACCEPTED,
    CHANGES,
    DRAWS,
    EVALUATIONS,
    PROPOSED,
    RANDOM,
    SHARED,
    SHUFFLED,
    SYSTEMATIC,
    Chain,
    Recorder,
    Scan,
)
from minigibbs.kernels.random import SEEDED, shared_stream, streams
from minigibbs.kernels.record import settle
from minigibbs.packed import free_variables
from minigibbs.progress import Bar
from minigibbs.record import Info, Run
from minigibbs.samplers import SAMPLERS, PoissonGibbs, Sampler
from minigibbs.samplers.base import carries, check_stored

SCANS = {"random": RANDOM, "systematic": SYSTEMATIC, "shuffled": SHUFFLED, "shared": SHARED}
BACKENDS = ("cpu", "cuda")
RECORDS = ("marginals", "draws", "energy")
DEFAULT_RECORD = ("marginals", "energy")
DEFAULT_SWEEPS = 1000
DEFAULT_RECORDS = 1000  # at the most, where `thin` is left out
_SEGMENT_SECONDS = 0.2  # between two looks at Ctrl-C and the progress bar
_FIRST_SEGMENT = 16


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
    backend: str = "cpu",
    record_chains: int | None = None,
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
    backend
        "cpu", or "cuda" for thousands of chains on a GPU: `pip install "minigibbs[cuda]"`.
        There, marginals are counted about once a sweep, over all chains.
    record_chains
        Of how many chains a GPU keeps draws and energies, 64 if left out. They are spread evenly;
        row k of the run's arrays is then chain k * chains // record_chains, and its counts are
        those of all chains from there to the next.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> run = mg.sample(graph, sweeps=2000, seed=1, progress=False)
    >>> abs(run.marginals[:, 1] - 0.5).max() < 0.05
    np.True_
    """
    chosen = _choose(sampler)
    on_device = _on_device(backend)
    chains = (DEVICE_CHAINS if on_device else 4) if chains is None else chains
    scan = ("shared" if on_device else "random") if scan is None else scan
    order = free_variables(graph.evidence)
    length = _length(updates, sweeps, len(order))
    _check_counts(warmup=warmup, chains=chains, threads=threads, thin=thin)
    _check_counts(record_chains=record_chains)
    if not isinstance(scan, str) or scan not in SCANS:
        raise SampleError(f"scan must be one of {', '.join(SCANS)}; got {scan!r}")
    check_stored(chosen, graph)
    kept = _records(record, reference, graph)
    spacing = int(thin or max(len(order), -(-length // DEFAULT_RECORDS), 1))
    entropy = _entropy(seed)
    plan = _Plan(graph, chosen, order, length, int(warmup), scan, kept, spacing, reference, entropy)
    kept_chains = min(record_chains or DEVICE_KEPT, chains) if on_device else chains
    plan.check_memory(kept_chains)
    states = _start_states(graph, start, chains, entropy)
    data = chosen.prepare(graph, LANES if on_device else 1)
    if on_device and len(order):
        return plan.run_on_device(data, states, kept_chains, progress)
    jobs = [
        plan.job(data, state, stream)
        for state, stream in zip(states, streams(entropy, chains), strict=True)
    ]
    workers = min(threads or os.cpu_count() or 1, chains)
    seconds, interrupted = _run(jobs, workers, progress)
    return plan.result(jobs, seconds, interrupted)


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
    plan = _Plan(graph, sampler, order, 0, 0, "random", frozenset(), 2**62, None, 0)
    (state,) = _start_states(graph, "random", 1, 0)
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


@dataclass
class _Job:
    """One chain, which runs segment by segment."""

    data: Any
    model: Any
    chain: Chain
    scan: Scan
    recorder: Recorder
    warmup_left: int
    left: int
    segment: int = _FIRST_SEGMENT

    def prepare(self) -> None:
        """Compile, and let the sampler set what it carries."""
        if carries(self.data):
            start_chain(self.data, self.model, self.chain)
        if not self.scan.variables:
            self._record_all()
        advance(self.data, self.model, self.chain, self.scan, self.recorder, 0, True)

    def _record_all(self) -> None:
        """Everything is clamped: all records are the same, and known before time passes."""
        state, energy = self.chain.x, np.empty(1)
        energies(self.model, state[None], energy)
        self.recorder.draws[:] = state
        self.recorder.energy[:] = energy
        self.recorder.error[:] = settle(self.recorder, self.model, 1, state)

    def run_segment(self) -> int:
        """Make some updates; returns how many. The segment's length follows the clock."""
        recording = self.warmup_left == 0
        updates = min(self.segment, self.left if recording else self.warmup_left)
        before = time.perf_counter()
        if self.scan.variables:
            advance(self.data, self.model, self.chain, self.scan, self.recorder, updates, recording)
        else:  # everything is clamped: time passes, nothing changes
            self.recorder.clock[0] += updates if recording else 0
        took = time.perf_counter() - before
        if recording:
            self.left -= updates
        else:
            self.warmup_left -= updates
        growth = _SEGMENT_SECONDS / max(took, 1e-9)
        self.segment = max(1, int(self.segment * min(growth, 8.0)))
        return updates

    @property
    def done(self) -> bool:
        return self.warmup_left == 0 and self.left == 0


def _run(jobs: list[_Job], workers: int, progress: bool) -> tuple[float, bool]:
    """Run all chains on threads, turn about; returns the seconds and whether Ctrl-C ended it."""
    total = sum(job.warmup_left + job.left for job in jobs)
    interrupted, made = False, 0
    with Bar(total, progress) as bar, ThreadPoolExecutor(workers) as pool:
        for job in jobs:
            job.prepare()
        begun = time.perf_counter()
        running: dict[Future[int], _Job] = {}
        try:
            running.update({pool.submit(job.run_segment): job for job in jobs if not job.done})
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    done = future.result()
                    if not job.done:
                        running[pool.submit(job.run_segment)] = job
                    made += done
                    bar.advance(done, made / (time.perf_counter() - begun))
        except KeyboardInterrupt:
            interrupted = True
            for future in running:
                future.cancel()
            wait(running)
        seconds = time.perf_counter() - begun
    return seconds, interrupted


@dataclass(frozen=True)
class _Plan:
    """Everything about a run that its chains share."""

    graph: FactorGraph
    sampler: Sampler
    order: NDArray[np.int32]
    length: int
    warmup: int
    scan: str
    kept: frozenset[str]
    thin: int
    reference: ArrayLike | None
    seed: int = 0
    flat_reference: NDArray[np.float64] | None = field(init=False)

    def __post_init__(self) -> None:
        flat = None if self.reference is None else _flat_reference(self.graph, self.reference)
        object.__setattr__(self, "flat_reference", flat)

    @property
    def values(self) -> int:
        return int(self.graph.sizes.sum(dtype=np.int64))

    @property
    def records(self) -> int:
        return self.length // self.thin

    def check_memory(self, chains: int) -> None:
        """Refuse a run whose records would not fit, before anything is sampled."""
        need = len(self.graph) * self.graph.state_type.itemsize
        need += 16 * int(self.graph.sizes.max())  # the chain's weights
        if "marginals" in self.kept:
            need += 8 * (self.values + len(self.graph))
        if "draws" in self.kept:
            need += self.records * len(self.graph) * self.graph.state_type.itemsize
        need += 16 * self.records
        memory.require(
            chains * need,
            f"recording {', '.join(sorted(self.kept))} of {chains} chains, {self.records:,} times,",
            "use a larger thin, fewer chains, or record less",
        )

    def job(self, data: Any, state: NDArray[Any], stream: NDArray[np.uint64]) -> _Job:
        """One chain, ready to run."""
        space = self.sampler.workspace(self.graph, data)
        chain = Chain(
            x=state,
            stream=stream.copy(),
            carried=np.zeros(space.carried),
            weights=np.zeros(2 * int(self.graph.sizes.max())),
            scratch=np.zeros(space.scratch, dtype=np.int64),
            tally=np.zeros(CHANGES + 1, dtype=np.int64),
        )
        scan, recorder = self.make_scan(), self._recorder()
        return _Job(data, self.graph.packed, chain, scan, recorder, self.warmup, self.length)

    def run_on_device(self, data: Any, states: NDArray[Any], kept: int, progress: bool) -> Run:
        """All chains on a GPU, of which `kept` are recorded one by one."""
        space = self.sampler.workspace(self.graph, data)
        run = DeviceRun(
            model=self.graph.packed,
            data=data,
            states=states,
            streams=streams(self.seed, len(states)),
            scan=self.make_scan(),
            carried=space.carried,
            scratch=space.scratch,
            weights=space.weights,
            thin=self.thin,
            records=self.records,
            kept=kept,
            marginals="marginals" in self.kept,
            draws="draws" in self.kept,
            energy="energy" in self.kept,
            reference=self.flat_reference,
        )
        with Bar((self.warmup + self.length) * len(states), progress) as bar:
            records = run_on_device(run, self.warmup, self.length, bar)
        made = (records.warmup + int(records.clock[0])) * len(states)
        energy = None if records.energy is None else records.energy + self.graph.offset
        return Run(
            domains=self.graph.domains,
            info=self._info(
                records.tally,
                len(states),
                made,
                records.warmup * len(states),
                records.seconds,
                records.interrupted,
                backend="cuda",
            ),
            clock=records.clock,
            counts=records.counts,
            draws=records.draws,
            energy=energy,
            error=records.error,
            reference=self.flat_reference,
        )

    def make_scan(self) -> Scan:
        """The scan of one chain, at its beginning."""
        kind, everything = SCANS[self.scan], len(self.order) == len(self.graph)
        at_random = kind in (RANDOM, SHARED)
        order = self.order[:0] if at_random and everything else self.order.copy()
        position = np.zeros(1, dtype=np.int64)
        return Scan(kind, len(self.order), order, position, shared_stream(self.seed))

    def _recorder(self) -> Recorder:
        values = self.values if "marginals" in self.kept else 0
        variables, none = len(self.graph), np.empty(0)
        return Recorder(
            clock=np.zeros(1, dtype=np.int64),
            thin=self.thin,
            counts=np.zeros(values, dtype=np.int64),
            since=np.zeros(variables if values else 0, dtype=np.int64),
            draws=np.zeros(
                (self.records if "draws" in self.kept else 0, variables), self.graph.state_type
            ),
            energy=np.zeros(self.records if "energy" in self.kept else 0),
            reference=none if self.flat_reference is None else self.flat_reference,
            error=none if self.flat_reference is None else np.zeros(self.records),
        )

    def result(self, jobs: list[_Job], seconds: float, interrupted: bool) -> Run:
        """Put the chains' records together."""
        clock = np.array([job.recorder.clock[0] for job in jobs])
        for job in jobs:
            settle(job.recorder, job.model, job.recorder.clock[0], job.chain.x)
        records = int(clock.min()) // self.thin  # that every chain has reached
        tally = np.sum([job.chain.tally for job in jobs], axis=0)
        warmup = sum(self.warmup - job.warmup_left for job in jobs)
        made = warmup + int(clock.sum())
        return Run(
            domains=self.graph.domains,
            info=self._info(tally, len(jobs), made, warmup, seconds, interrupted),
            clock=clock,
            counts=_gather(jobs, "counts", None, "marginals" in self.kept),
            draws=_gather(jobs, "draws", records, "draws" in self.kept),
            energy=_gather(jobs, "energy", records, "energy" in self.kept, self.graph.offset),
            error=_gather(jobs, "error", records, self.flat_reference is not None),
            reference=self.flat_reference,
            model=self.graph.describe(),
        )

    def _info(
        self,
        tally: NDArray[np.int64],
        chains: int,
        made: int,
        warmup: int,
        seconds: float,
        interrupted: bool,
        backend: str = "cpu",
    ) -> Info:
        return Info(
            sampler=str(self.sampler),
            chains=chains,
            updates=made - warmup,
            warmup=warmup,
            scan=self.scan,
            thin=self.thin,
            seed=self.seed,
            seconds=seconds,
            updates_per_second=made / max(seconds, 1e-9),
            factor_evaluations=int(tally[EVALUATIONS]),
            minibatch_draws=int(tally[DRAWS]),
            acceptance=float(tally[ACCEPTED] / tally[PROPOSED]) if tally[PROPOSED] else 1.0,
            changed=float(tally[CHANGES] / max(made, 1)),
            interrupted=interrupted,
            version=__version__,
            backend=backend,
        )


def _gather(
    jobs: list[_Job], name: str, records: int | None, wanted: bool, shift: float | None = None
) -> Any:
    if not wanted:
        return None
    whole = np.stack([getattr(job.recorder, name)[:records] for job in jobs])
    return whole if shift is None else whole + shift


def _on_device(backend: str) -> bool:
    if backend not in BACKENDS:
        raise SampleError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if backend == "cuda":
        load_backend()
    return backend == "cuda"


def _choose(sampler: Sampler | str | None) -> Sampler:
    if sampler is None:
        return PoissonGibbs()
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str) and sampler in SAMPLERS:
        return SAMPLERS[sampler]()
    raise SampleError(
        f"sampler must be a sampler such as mg.Gibbs() or one of {', '.join(SAMPLERS)}; "
        f"got {sampler!r}"
    )


def _length(updates: int | None, sweeps: int | None, free: int) -> int:
    if updates is not None and sweeps is not None:
        raise SampleError("give updates or sweeps, not both")
    _check_counts(updates=updates, sweeps=sweeps)
    if updates is not None:
        return int(updates)
    return int(DEFAULT_SWEEPS if sweeps is None else sweeps) * max(free, 1)


_LEAST = {
    "updates": 0,
    "sweeps": 0,
    "warmup": 0,
    "chains": 1,
    "threads": 1,
    "thin": 1,
    "record_chains": 1,
}


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is None:
            continue
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not whole or count < _LEAST[name]:
            raise SampleError(
                f"{name} must be an integer of at least {_LEAST[name]}, got {count!r}"
            )


def _records(
    record: str | Sequence[str], reference: ArrayLike | None, graph: FactorGraph
) -> frozenset[str]:
    several = isinstance(record, Iterable) and not isinstance(record, str)
    asked: list[Any] = list(record) if several else [record]
    unknown = [name for name in asked if name not in RECORDS]
    if unknown:
        raise SampleError(f"record takes {', '.join(RECORDS)}; got {unknown[0]!r}")
    if reference is not None and "marginals" not in asked:
        raise SampleError('a reference needs record to hold "marginals"')
    if graph.unstored is not None and "energy" in asked:
        if record is not DEFAULT_RECORD:
            raise SampleError(
                "the energy of factors that are never stored is not recorded along the way; "
                'record "draws" and ask graph.energy(draws)'
            )
        asked.remove("energy")
    return frozenset(asked)


def _flat_reference(graph: FactorGraph, reference: ArrayLike) -> NDArray[np.float64]:
    shape = (len(graph), int(graph.sizes.max()))
    rule = f"reference must hold real numbers in shape {shape}"
    array = as_array(reference, "iufb", rule).astype(np.float64)
    if array.shape != shape:
        raise SampleError(f"{rule}; got shape {array.shape}")
    return array[np.arange(shape[1]) < graph.sizes[:, None]]


def _entropy(seed: int | None) -> int:
    if seed is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SampleError(f"seed must be a non-negative integer, got {seed!r}")
    return int(seed)


def _start_states(
    graph: FactorGraph, start: str | ArrayLike, chains: int, entropy: int
) -> NDArray[Any]:
    """One state per chain, which agrees with the evidence: writable, [chain, variable]."""
    clamped = graph.evidence >= 0
    if isinstance(start, str):
        if start != "random":
            raise SampleError(f'start must be "random" or a state, got {start!r}')
        states = np.empty((chains, len(graph)), graph.state_type)
        for first in range(0, chains, SEEDED):
            block = states[first : first + SEEDED]
            _fill_random(block, graph, first, entropy)
        states[:, clamped] = graph.evidence[clamped]
        return states
    given = graph.check_states(start)
    if given.ndim == 2 and len(given) != chains:
        raise SampleError(f"start holds {len(given)} states for {chains} chains")
    rows = np.broadcast_to(given, (chains, len(graph)))
    wrong = clamped & (rows != graph.evidence)
    if wrong.any():
        row, variable = np.argwhere(wrong)[0]
        raise SampleError(
            f"start violates the evidence: {graph.domains.describe(int(variable))} is clamped to "
            f"{graph.evidence[variable]}, got {rows[row, variable]}"
        )
    return rows.astype(graph.state_type, copy=True)


def _fill_random(states: NDArray[Any], graph: FactorGraph, first: int, entropy: int) -> None:
    """Draw uniform states for chains from `first` on: the first 4096 each by a seed of its own."""
    if first == 0:
        for state, child in zip(
            states, np.random.SeedSequence(entropy).spawn(len(states)), strict=True
        ):
            rng = np.random.default_rng(child.spawn(1)[0])
            state[:] = rng.random(len(graph)) * graph.sizes
    else:
        rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(2**32 - 2, first)))
        for state in states:
            state[:] = rng.random(len(graph)) * graph.sizes
