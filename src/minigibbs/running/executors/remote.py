"""Segments on any executor, near or far: chains travel there and back."""

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

SEGMENT_SECONDS = 1.0  # of a segment that has to travel, at least
CHAIN_SECONDS = 0.03  # for each chain, since all come back through one process; see docs/scale.md
BYTE_SECONDS = 24e-9  # and for each byte of each chain: three times what a gigabit needs
MOST_TRIES = 5  # of one segment
_UNGUARDED = (
    'With executor="processes" every worker imports the main script first, so a script must keep '
    'its calls under  if __name__ == "__main__":  or use executor="threads"'
)
_PAUSE = 0.02  # seconds, and twice as long after each loss
_METHODS = multiprocessing.get_all_start_methods()
_ADDRESS = len("/pymp-12345678/listener-12345678")  # what the fork server adds to the folder
_LONGEST_ADDRESS = 103  # bytes that every system takes as the name of a socket


def segment_seconds(chains: int, size: float) -> float:
    """How long a segment should take, so that chains of `size` bytes do not wait for each other."""
    return max(SEGMENT_SECONDS, chains * (CHAIN_SECONDS + BYTE_SECONDS * size))


class Remote:
    """Segments on any executor: chains travel there and back, the model once to each worker.

    A worker that has not seen the model says so, and gets it with the next try. What is here is
    always a chain after its last finished segment, so that a lost segment is simply run again.
    """

    in_place = False

    def __init__(self, executor: Executor, plan: Plan, data: Any) -> None:
        self._executor = executor
        self._outline = Outline(secrets.token_hex(8), plan.small(), type(data).__name__)
        self._with_counts = plan.reference is not None
        self._sent: dict[int, tuple[int, bool]] = {}  # the segment of each chain under way
        self._bringing: dict[int, str] = {}  # chains that bring the model, and to whom
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
        """Write down what workers are sent or map."""
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
        """Send a chain off for its next segment."""
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
        """A state without the counts, of which the worker sends back what it adds."""
        return state if self._with_counts else state | {"counts": np.zeros(1, dtype=np.int64)}

    def _parcel(self, group: Group) -> Any:
        """What carries the model to the worker that gets this chain."""
        return self._content() if group.number in self._bringing else None

    def _content(self) -> Parcel:
        reference = self._folder / "reference.npy"
        return Parcel(
            (self._folder / "model.mg").read_bytes(),
            np.load(reference) if reference.exists() else None,
        )

    def collect(self, group: Group, future: Future[Any]) -> int:
        """Take a chain back; 0 if its segment was lost and must be run again."""
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
        """Raise if nothing can come back any more."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Forget what is under way: the chains are here as they were before it."""
        for future in running:
            future.cancel()


class Processes(Remote):
    """Segments on processes of this machine, which map the model's file into memory."""

    def _parcel(self, group: Group) -> Parcel:
        reference = self._folder / "reference.npy"
        return Parcel(
            str(self._folder / "model.mg"), str(reference) if reference.exists() else None
        )


class OwnProcesses(Processes):
    """Processes that are started here, and started again if one of them dies."""

    def __init__(self, plan: Plan, data: Any, workers: int) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise SampleError(_UNGUARDED)
        self._workers = workers
        self._context = multiprocessing.get_context(_start_method())
        self._started = self._context.RawValue("b", 0)  # 1 once a worker has begun
        self._home: dict[int, Executor] = {}  # the pool that each chain was sent to
        super().__init__(self._pool(), plan, data)
        if _start_method() == "forkserver":
            self._scratch.note_sockets()

    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._workers, self._context, _begin_worker, (self._started,))

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)
        super().__exit__()

    def submit(self, group: Group) -> Future[Any]:
        """Send a chain off, and remember to which pool."""
        self._home[group.number] = self._executor
        return super().submit(group)

    def _note_loss(self, group: Group, error: Exception) -> None:
        if isinstance(error, BrokenExecutor) and not self._started.value:
            raise StoppedError(f"no worker process could be started. {_UNGUARDED}") from error
        super()._note_loss(group, error)
        if isinstance(error, BrokenExecutor) and self._home[group.number] is self._executor:
            self._executor.shutdown(wait=False)
            self._executor = self._pool()


def _start_method() -> str:
    """The fork server where there is one and its socket's address fits; else processes anew."""
    fits = len(os.fsencode(tempfile.gettempdir())) + _ADDRESS <= _LONGEST_ADDRESS
    return "forkserver" if fits and "forkserver" in _METHODS else "spawn"


def _begin_worker(started: Any) -> None:
    """Ctrl-C is for the process that started the run; if that one dies, so does the worker."""
    started.value = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of a pipe that only the parent can write to, and leave at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
