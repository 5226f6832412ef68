"""Runners of a run's segments: in this process, or on an executor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from minigibbs.errors import SampleError
from minigibbs.running.backends import BACKENDS
from minigibbs.running.executors.base import Runner
from minigibbs.running.executors.dask import Dask
from minigibbs.running.executors.ranks import Ranks
from minigibbs.running.executors.remote import OwnProcesses, Processes, Remote, WorkerPool
from minigibbs.running.executors.threads import Inline, Threads
from minigibbs.running.plan import Plan

__all__ = ["Runner", "check_executor", "runner_for", "shared_executor"]


_NAMES = ("threads", "processes")


def check_executor(executor: Any) -> None:
    """Raise `SampleError` unless `runner_for` accepts this executor."""
    if executor is None or isinstance(executor, Executor | WorkerPool):
        return
    if isinstance(executor, str) and executor in _NAMES:
        return
    if not (hasattr(executor, "get_executor") and hasattr(executor, "scatter")):
        raise SampleError(
            'executor must be a concurrent.futures.Executor, "threads", "processes" or a Dask '
            f"client; got {executor!r}"
        )


@contextmanager
def shared_executor(executor: Any, workers: int | None) -> Iterator[Any]:
    """Return an executor that several runs can share: "processes" becomes one pool for all."""
    if not (isinstance(executor, str) and executor == "processes"):
        yield executor
        return
    with WorkerPool(workers or os.cpu_count() or 1) as pool:
        yield pool


def runner_for(executor: Any, plan: Plan, data: Any, threads: int | None) -> Runner:
    """Return the runner of a plan's segments for an executor, or for threads without one."""
    backend = BACKENDS[plan.backend]
    if not backend.in_threads:
        return Ranks(plan, data) if backend.spreads(plan.scan) else Inline()
    workers = min(threads or os.cpu_count() or 1, plan.chains)
    name = executor if isinstance(executor, str) else None
    if executor is None or name == "threads" or not plan.graph.free:
        return Threads(ThreadPoolExecutor(workers), own=True)
    check_executor(executor)
    if name == "processes":
        return OwnProcesses(plan, data, WorkerPool(workers), own=True)
    if isinstance(executor, WorkerPool):
        return OwnProcesses(plan, data, executor, own=False)
    if isinstance(executor, ThreadPoolExecutor):
        return Threads(executor, own=False)
    if isinstance(executor, ProcessPoolExecutor):
        return Processes(executor, plan, data)
    if not isinstance(executor, Executor):
        return Dask(executor.get_executor(), executor, plan, data)
    client = getattr(executor, "_client", None)  # an attribute of Dask's executor
    if client is not None and hasattr(client, "scatter"):
        return Dask(executor, client, plan, data)
    return Remote(executor, plan, data)
