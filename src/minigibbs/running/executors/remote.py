"""Segments on any executor, local or remote: the state of a chain is sent and returned."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Collection
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any

import numpy as np

from minigibbs.errors import SampleError, StoppedError
from minigibbs.formats import native
from minigibbs.running.executors.scratch import Scratch
from minigibbs.running.executors.worker import Missing, Outline, Parcel, absorb, work
from minigibbs.running.group import Group, State
from minigibbs.running.plan import Plan

SEGMENT_SECONDS = 1.0  # least duration of a remote segment
CHAIN_SECONDS = 0.03  # per chain, because one process receives all results; see docs/scale.md
BYTE_SECONDS = 24e-9  # per byte of each chain: three times the time on a gigabit link
MOST_TRIES = 5  # tries of one segment
_UNGUARDED = (
    'With executor="processes" every worker imports the main script first, so a script must keep '
    'its calls under  if __name__ == "__main__":  or use executor="threads"'
)
_PAUSE = 0.02  # seconds, doubled after each loss
_METHODS = multiprocessing.get_all_start_methods()
_ADDRESS = len("/pymp-12345678/listener-12345678")  # bytes that the fork server appends
_LONGEST_ADDRESS = 103  # longest socket name, in bytes, on every system


def segment_seconds(chains: int, size: float) -> float:
    """Return the duration of a segment at which chains of `size` bytes do not queue up."""
    return max(SEGMENT_SECONDS, chains * (CHAIN_SECONDS + BYTE_SECONDS * size))


class Remote:
    """Segments on any executor: chains are sent and returned, the model is sent once per worker.

    A worker without the model returns `Missing` and gets the model with the next try. The groups
    here always have the state after their last finished segment, so lost segments are repeated.
    """

    in_place = False

    def __init__(self, executor: Executor, plan: Plan, data: Any) -> None:
        self._executor = executor
        self._outline = Outline(secrets.token_hex(8), plan.small(), type(data).__name__)
        self._with_counts = plan.reference is not None
        self._sent: dict[int, tuple[int, bool]] = {}  # the submitted segment of each chain
        self._bringing: dict[int, str] = {}  # chains sent with the model, and to which worker
        self._losses: dict[int, int] = {}
        self._scratch = Scratch()
        self._folder = self._scratch.path
        try:
            self._write(plan)
        except BaseException:
            self._scratch.close()
            raise

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    def _write(self, plan: Plan) -> None:
        """Write the files that workers receive or map."""
        try:
            native.write(plan.graph, self._folder / "model.mg")
            if plan.reference is not None:
                reference = np.asarray(plan.reference, dtype=np.float64)
                np.save(self._folder / "reference.npy", reference)
        except OSError as error:
            raise SampleError(
                f"cannot write the model for the workers: {error.strerror or error}; free space in "
                f"{self._folder.parent}, or set TMPDIR to a folder elsewhere"
            ) from error

    def submit(self, group: Group) -> Future[Any]:
        """Submit a chain's next segment."""
        self._sent[group.number] = updates, recording = group.next_segment()
        try:
            parcel = self._parcel(group)
            state = self._light(group.state())
            return self._executor.submit(work, self._outline, parcel, state, updates, recording)
        except Exception as error:  # a broken executor; `collect` decides
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def _light(self, state: State) -> State:
        """Return a state without counts; the worker returns only the counts that it adds."""
        return state if self._with_counts else state | {"counts": np.zeros(1, dtype=np.int64)}

    def _parcel(self, group: Group) -> Any:
        """Return the model for the worker of this chain, or None if it should have it."""
        return self._content() if group.number in self._bringing else None

    def _content(self) -> Parcel:
        reference = self._folder / "reference.npy"
        return Parcel(
            (self._folder / "model.mg").read_bytes(),
            np.load(reference) if reference.exists() else None,
        )

    def collect(self, group: Group, future: Future[Any]) -> int:
        """Store a returned chain; return 0 if its segment was lost and must be repeated."""
        try:
            segment = future.result()
        except Exception as error:
            self._note_loss(group, error)
            return 0
        finally:
            self._bringing.pop(group.number, None)
        if isinstance(segment, Missing):
            if segment.worker not in self._bringing.values():
                self._bringing[group.number] = segment.worker
            return 0
        updates, recording = self._sent[group.number]
        size = sum(array.nbytes for array in segment.state.values())
        wanted = segment_seconds(len(self._sent), size)
        absorb(group, segment, updates, recording, wanted)
        self._losses[group.number] = 0
        return updates

    def _note_loss(self, group: Group, error: Exception) -> None:
        losses = self._losses[group.number] = self._losses.get(group.number, 0) + 1
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        if isinstance(error, SampleError):
            raise StoppedError(f"a worker refused the run: {error}") from error
        if losses >= MOST_TRIES:
            raise StoppedError(
                f"a segment of chain {group.number} was lost {losses} times, and the run was "
                f"stopped; the last time: {reason[:500]}"
            ) from error
        time.sleep(_PAUSE * 2**losses)

    def check(self) -> None:
        """Do nothing: every error arrives with a segment."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Cancel segments; the groups have the states before them."""
        for future in running:
            future.cancel()


class Processes(Remote):
    """Segments on processes of this machine, which map the model's file into memory."""

    def _parcel(self, group: Group) -> Parcel:
        reference = self._folder / "reference.npy"
        return Parcel(
            str(self._folder / "model.mg"), str(reference) if reference.exists() else None
        )


class WorkerPool:
    """Processes started here, which several runs may share; a broken pool is replaced."""

    def __init__(self, workers: int) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise SampleError(_UNGUARDED)
        self._workers = workers
        self._context = multiprocessing.get_context(_start_method())
        self._started = self._context.RawValue("b", 0)  # 1 once a worker has started
        self._lock = threading.Lock()
        self.executor = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._workers, self._context, _begin_worker, (self._started,))

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.shutdown(cancel_futures=True)

    @property
    def started(self) -> bool:
        """Whether any worker has started."""
        return bool(self._started.value)

    def replace(self, broken: Executor | None) -> None:
        """Start new processes in place of a broken pool, unless that is already done."""
        with self._lock:
            if broken is self.executor:
                self.executor.shutdown(wait=False)
                self.executor = self._new()


class OwnProcesses(Processes):
    """Segments on a pool of processes that are restarted if one of them dies."""

    def __init__(self, plan: Plan, data: Any, pool: WorkerPool, own: bool) -> None:
        self._pool, self._own = pool, own
        self._home: dict[int, Executor] = {}  # the executor of each submitted chain
        super().__init__(pool.executor, plan, data)
        if _start_method() == "forkserver":
            self._scratch.note_sockets()

    def __exit__(self, *error: object) -> None:
        if self._own:
            self._pool.__exit__(*error)
        super().__exit__()

    def submit(self, group: Group) -> Future[Any]:
        """Submit a chain's next segment, and note its pool."""
        self._home[group.number] = self._executor = self._pool.executor
        return super().submit(group)

    def _note_loss(self, group: Group, error: Exception) -> None:
        if isinstance(error, BrokenExecutor) and not self._pool.started:
            raise StoppedError(f"no worker process could be started. {_UNGUARDED}") from error
        super()._note_loss(group, error)
        if isinstance(error, BrokenExecutor):
            self._pool.replace(self._home[group.number])


def _start_method() -> str:
    """Choose the fork server if its socket's address is short enough, else "spawn"."""
    fits = len(os.fsencode(tempfile.gettempdir())) + _ADDRESS <= _LONGEST_ADDRESS
    return "forkserver" if fits and "forkserver" in _METHODS else "spawn"


def _begin_worker(started: Any) -> None:
    """Ignore Ctrl-C, which the parent handles, and end when the parent dies."""
    started.value = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of a pipe that only the parent can write to, then exit."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
