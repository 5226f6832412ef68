"""Chains spread over MPI ranks, for samplers and scans that cannot split one model.

Rank 0 runs the loop and submits segments like to any executor. Every rank has the plan already,
because all ranks make the same call, so that no model is sent.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from minigibbs.running.backends import mpi
from minigibbs.running.executors.remote import Remote
from minigibbs.running.executors.worker import Parcel, forget, hold
from minigibbs.running.group import Group
from minigibbs.running.plan import Plan

_PAUSE = 1e-3  # seconds between two looks for messages


class Ranks(Remote):
    """Segments on all ranks of a job, rank 0 included."""

    def __init__(self, plan: Plan, data: Any) -> None:
        self._ranks = _RankExecutor(mpi.world())
        super().__init__(self._ranks, plan, data)
        hold(self._outline.key, plan, data)

    def __enter__(self) -> Ranks:
        self._ranks.start(self._outline.key)
        return self

    def __exit__(self, *error: object) -> None:
        self._ranks.shutdown()
        forget(self._outline.key)
        super().__exit__(*error)

    def _write(self, plan: Plan) -> None:
        """Do nothing: every rank has the model."""

    def _parcel(self, group: Group) -> Parcel | None:
        return None


class _RankExecutor(Executor):
    """Executor of rank 0: a thread sends tasks to idle ranks and receives their results."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._waiting: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._own = ThreadPoolExecutor(1)  # the work of rank 0
        self._ending = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self, key: str) -> None:
        """Let all other ranks wait for tasks of a run."""
        mpi.tell(self._comm, (None, "spread", (follow, key)))
        self._thread.start()

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        """Submit a task to the next idle rank."""
        assert not options
        future: Future[Any] = Future()
        self._waiting.append((future, function, arguments))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for running tasks, and let the other ranks leave `follow`."""
        self._ending = True
        self._thread.join()
        self._own.shutdown()

    def _serve(self) -> None:
        busy: dict[int, tuple[Future[Any], Future[Any] | None]] = {}
        while busy or not self._ending:
            some = self._collect(busy)
            while self._waiting and len(busy) < self._comm.size and not self._ending:
                future, function, arguments = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    rank = next(k for k in reversed(range(self._comm.size)) if k not in busy)
                    busy[rank] = future, self._begin(rank, function, arguments)
                some = True
            if not some:
                time.sleep(_PAUSE)
        for rank in range(1, self._comm.size):
            _send(self._comm, rank, None)

    def _begin(self, rank: int, function: Any, arguments: tuple[Any, ...]) -> Future[Any] | None:
        """Begin a task on a rank; return its future if it is this one."""
        if rank == 0:
            return self._own.submit(function, *arguments)
        _send(self._comm, rank, (function, arguments))
        return None

    def _collect(self, busy: dict[int, tuple[Future[Any], Future[Any] | None]]) -> bool:
        """Collect finished tasks; return whether there were any."""
        done = [
            rank
            for rank, (_, own) in busy.items()
            if (self._comm.Iprobe(source=rank) if own is None else own.done())
        ]
        for rank in done:
            future, own = busy.pop(rank)
            result, error = _receive(self._comm, rank) if own is None else _result(own)
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        return bool(done)


def _result(own: Future[Any]) -> tuple[Any, BaseException | None]:
    error = own.exception()
    return (own.result() if error is None else None), error


def follow(comm: Any, plan: Plan, data: Any, key: str) -> None:
    """Execute tasks of rank 0 until there are no more.

    Parameters
    ----------
    comm
        The communicator of all ranks.
    plan : Plan
        The plan of this rank, which is that of all ranks.
    data
        Its prepared data.
    key : str
        The key of the run on rank 0.
    """
    hold(key, plan, data)
    while True:
        task = _receive(comm, 0)
        if task is None:
            break
        function, arguments = task
        answer: tuple[Any, BaseException | None]
        try:
            answer = function(*arguments), None
        except Exception as error:
            answer = None, error
        _send(comm, 0, answer)
    forget(key)


def _send(comm: Any, rank: int, what: Any) -> None:
    data = np.frombuffer(pickle.dumps(what), np.uint8)
    pieces = [np.array([len(data)]), *mpi.pieces(data)]
    mpi.finish([comm.Isend(piece, rank) for piece in pieces])


def _receive(comm: Any, rank: int) -> Any:
    length = np.empty(1, np.int64)
    request = comm.Irecv(length, rank)
    while not request.Test():
        time.sleep(_PAUSE)
    data = np.empty(int(length[0]), np.uint8)
    mpi.finish([comm.Irecv(piece, rank) for piece in mpi.pieces(data)])
    return pickle.loads(data.tobytes())
