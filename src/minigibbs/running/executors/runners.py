"""Where segments run: on threads of this process, or on any executor, near or far."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from minigibbs.errors import SampleError, StoppedError
from minigibbs.formats import native
from minigibbs.running.executors.worker import Missing, Outline, Parcel, absorb, work
from minigibbs.running.group import Job, State
from minigibbs.running.plan import Plan

SEGMENT_SECONDS = 1.0  # of a segment that has to travel, at the least
CHAIN_SECONDS = 0.03  # for each chain, since all come back through one process; see docs/scale.md
BYTE_SECONDS = 24e-9  # and for each byte of each chain: three times what a gigabit needs
MOST_TRIES = 5  # of one segment
_PAUSE = 0.02  # seconds, and twice as long after each loss


def segment_seconds(chains: int, size: float) -> float:
    """How long a segment should take, so that chains of `size` bytes do not wait for each other."""
    return max(SEGMENT_SECONDS, chains * (CHAIN_SECONDS + BYTE_SECONDS * size))


def runner_for(
    executor: Any, plan: Plan, data: Any, chains: int, threads: int | None
) -> Threads | Remote:
    """What runs the segments of a plan on an executor, or on threads if there is none."""
    workers = min(threads or os.cpu_count() or 1, chains)
    if executor is None or executor == "threads" or not len(plan.order):
        return Threads(ThreadPoolExecutor(workers), own=True)
    if executor == "processes":
        return OwnProcesses(plan, data, workers)
    if isinstance(executor, ThreadPoolExecutor):
        return Threads(executor, own=False)
    if isinstance(executor, ProcessPoolExecutor):
        return Processes(executor, plan, data)
    if hasattr(executor, "get_executor") and hasattr(executor, "scatter"):
        return Dask(executor.get_executor(), executor, plan, data)
    if not isinstance(executor, Executor):
        raise SampleError(
            'executor must be a concurrent.futures.Executor, "threads", "processes" or a Dask '
            f"client; got {executor!r}"
        )
    client = getattr(executor, "_client", None)  # as Dask's executor has
    if client is not None and hasattr(client, "scatter"):
        return Dask(executor, client, plan, data)
    return Remote(executor, plan, data)


class Threads:
    """Segments on threads of this process, in the chains' own arrays."""

    in_place = True

    def __init__(self, pool: ThreadPoolExecutor, own: bool) -> None:
        self._pool, self._own = pool, own

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._pool.shutdown()

    def submit(self, job: Job) -> Future[Any]:
        """Run a job's next segment."""
        return self._pool.submit(job.run_segment)

    def collect(self, job: Job, future: Future[Any]) -> int:
        """The updates made; everything else is in place."""
        return int(future.result())

    def check(self) -> None:
        """Threads are not lost."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Drop what has not begun, and wait for the rest."""
        for future in running:
            future.cancel()
        wait(running)


class Remote:
    """Segments on any executor: chains travel there and back, the model once to each worker.

    A worker that has not seen the model says so, and gets it with the next try. What is here is
    always a chain after its last finished segment, so that a lost segment is simply run again.
    """

    in_place = False

    def __init__(self, executor: Executor, plan: Plan, data: Any) -> None:
        self._executor = executor
        key, kind = secrets.token_hex(8), type(data).__name__
        self._outline = Outline(
            key, plan.sampler, plan.scan, plan.kept, plan.thin, kind, plan.variables
        )
        self._with_counts = plan.reference is not None
        self._sent: dict[int, tuple[int, bool]] = {}  # the segment of each chain under way
        self._bringing: dict[int, str] = {}  # chains that bring the model, and to whom
        self._losses: dict[int, int] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="minigibbs-"))
        native.write(plan.graph, self._folder / "model.mg")
        if plan.reference is not None:
            np.save(self._folder / "reference.npy", np.asarray(plan.reference, dtype=np.float64))

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def submit(self, job: Job) -> Future[Any]:
        """Send a chain off for its next segment."""
        self._sent[job.number] = updates, recording = job.next_segment()
        try:
            parcel = self._parcel(job)
            state = self._light(job.state())
            return self._executor.submit(work, self._outline, parcel, state, updates, recording)
        except Exception as error:  # a broken executor; `collect` decides
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def _light(self, state: State) -> State:
        """A state without the counts, of which the worker sends back what it adds."""
        return state if self._with_counts else state._replace(counts=np.zeros(1, dtype=np.int64))

    def _parcel(self, job: Job) -> Any:
        """What carries the model to the worker that gets this chain."""
        return self._content() if job.number in self._bringing else None

    def _content(self) -> Parcel:
        reference = self._folder / "reference.npy"
        return Parcel(
            (self._folder / "model.mg").read_bytes(),
            np.load(reference) if reference.exists() else None,
        )

    def collect(self, job: Job, future: Future[Any]) -> int:
        """Take a chain back; 0 if its segment was lost and must be run again."""
        try:
            segment = future.result()
        except Exception as error:
            self._note_loss(job, error)
            return 0
        finally:
            self._bringing.pop(job.number, None)
        if isinstance(segment, Missing):
            if segment.worker not in self._bringing.values():
                self._bringing[job.number] = segment.worker
            return 0
        updates, recording = self._sent[job.number]
        wanted = segment_seconds(len(self._sent), sum(array.nbytes for array in segment.state))
        absorb(job, segment, updates, recording, wanted)
        self._losses[job.number] = 0
        return updates

    def _note_loss(self, job: Job, error: Exception) -> None:
        losses = self._losses[job.number] = self._losses.get(job.number, 0) + 1
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        if isinstance(error, SampleError):
            raise StoppedError(f"a worker refused the run: {error}") from error
        if losses >= MOST_TRIES:
            raise StoppedError(
                f"a segment of chain {job.number} was lost {losses} times, and the run was "
                f"stopped; the last time: {reason[:500]}"
            ) from error
        time.sleep(_PAUSE * 2**losses)

    def check(self) -> None:
        """Raise if nothing can come back any more."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Forget what is under way: the chains are here as they were before it."""
        for future in running:
            future.cancel()


class Processes(Remote):
    """Segments on processes of this machine, which map the model's file into memory."""

    def _parcel(self, job: Job) -> Parcel:
        reference = self._folder / "reference.npy"
        return Parcel(
            str(self._folder / "model.mg"), str(reference) if reference.exists() else None
        )


class OwnProcesses(Processes):
    """Processes that are started here, and started again if one of them dies."""

    def __init__(self, plan: Plan, data: Any, workers: int) -> None:
        self._workers = workers
        self._home: dict[int, Executor] = {}  # the pool that each chain was sent to
        super().__init__(self._pool(), plan, data)

    def _pool(self) -> ProcessPoolExecutor:
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        return ProcessPoolExecutor(self._workers, context, _ignore_ctrl_c)

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)
        super().__exit__()

    def submit(self, job: Job) -> Future[Any]:
        """Send a chain off, and remember to which pool."""
        self._home[job.number] = self._executor
        return super().submit(job)

    def _note_loss(self, job: Job, error: Exception) -> None:
        super()._note_loss(job, error)
        if isinstance(error, BrokenExecutor) and self._home[job.number] is self._executor:
            self._executor.shutdown(wait=False)
            self._executor = self._pool()


def _ignore_ctrl_c() -> None:
    """Ctrl-C is for the process that started the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Dask(Remote):
    """Segments on a Dask cluster; the scheduler hands the model to every worker there will be."""

    def __init__(self, executor: Executor, client: Any, plan: Plan, data: Any) -> None:
        from minigibbs.running.executors.plugin import ModelPlugin

        super().__init__(executor, plan, data)
        self._client = client
        self._plugin = ModelPlugin(self._outline.key, self._content())
        client.register_plugin(self._plugin)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._client.status == "running":
            with suppress(Exception):  # a cluster that is going down has forgotten it anyway
                self._client.unregister_worker_plugin(self._plugin.name)

    def check(self) -> None:
        """Raise if the scheduler is gone, and Dask has given up on it."""
        if self._client.status == "closed":
            raise StoppedError(
                "the Dask scheduler was lost, or its client closed, and the run was stopped"
            )
