"""Code of an executor's worker: it restores a chain, runs a segment and returns the chain.

The model is sent once and stored under the run's key; a task contains only the chain. Nothing here
listens or connects: the executor transports tasks.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.errors import SampleError
from minigibbs.formats import native
from minigibbs.running.backends.cpu import BACKEND, cpu_group
from minigibbs.running.executors.scratch import Scratch
from minigibbs.running.group import Group, State
from minigibbs.running.plan import Plan

MOST_RUNS = 8  # whose models a worker stores


class Outline(NamedTuple):
    """The small part of a plan, which every task contains."""

    key: str  # key of the run
    plan: dict[str, Any]  # all but the graph and the reference; see `Plan.small`
    data: str  # type of the sampler's prepared data in the main process
    version: str = __version__


class Parcel(NamedTuple):
    """The large part of a plan, sent once per worker: a path on this machine, or the content."""

    model: str | bytes  # a model file
    reference: str | NDArray[np.float64] | None


class Missing(NamedTuple):
    """Result of a worker that does not have the model."""

    worker: str


class Segment(NamedTuple):
    """Result of a segment."""

    state: State  # its counts are those of the segment alone
    rows: dict[str, NDArray[Any]]  # the records of the segment
    seconds: float


_plans: dict[str, tuple[Plan, Any]] = {}
_name = secrets.token_hex(8)
_kept: dict[str, Parcel] = {}  # sent before the tasks that need them
_lock = threading.Lock()  # a worker may have several threads


def keep(key: str, parcel: Parcel) -> None:
    """Store a run's model for later tasks."""
    _kept[key] = parcel


def hold(key: str, plan: Plan, data: Any) -> None:
    """Store a run's plan and data, where they are known already."""
    _plans[key] = plan, data


def forget(key: str) -> None:
    """Delete everything stored for a run."""
    _kept.pop(key, None)
    _plans.pop(key, None)


def work(
    outline: Outline, parcel: Parcel | None, state: State, updates: int, recording: bool
) -> Segment | Missing:
    """Run a segment, or return `Missing` if the model is not here yet."""
    known = _plan(outline, parcel)
    if known is None:
        return Missing(f"{_name} {os.getpid()}")
    plan, data = known
    clock = int(state["clock"][0])
    # Without a reference only differences of clocks matter, so past records need no space.
    span = plan.thin * plan.energy_every
    shift = 0 if plan.reference is not None else clock - clock % span
    length = clock - shift + (updates if recording else 0)
    group = cpu_group(plan, data, np.array(state["x"]), state["stream"], length=length)
    group.restore(state | {"clock": state["clock"] - shift})
    first = group.records
    before = np.array(group.state()["counts"])
    begun = time.perf_counter()
    group.advance(updates, recording)
    seconds = time.perf_counter() - begun
    after = group.state()
    added = _small(after["counts"] - before, updates)
    own = after | {"counts": added, "clock": after["clock"] + shift}
    return Segment(own, group.rows(first), seconds)


def _small(counts: NDArray[np.int64], updates: int) -> NDArray[Any]:
    """Return counts in the smallest type; a value is counted at most once per update."""
    return counts.astype(np.min_scalar_type(updates))


def _plan(outline: Outline, parcel: Parcel | None) -> tuple[Plan, Any] | None:
    with _lock:
        if outline.key not in _plans:
            parcel = parcel or _kept.get(outline.key)
            if parcel is None:
                return None
            while len(_plans) >= MOST_RUNS:
                _plans.pop(next(iter(_plans)))
            _plans[outline.key] = _unpack(outline, parcel)
        return _plans[outline.key]


def _unpack(outline: Outline, parcel: Parcel) -> tuple[Plan, Any]:
    if outline.version != __version__:
        raise SampleError(
            f"a worker has minigibbs {__version__}, the run was started with {outline.version}; "
            "install the same version everywhere"
        )
    graph, reference = _read(parcel.model), parcel.reference
    if isinstance(reference, str):
        reference = np.load(reference, allow_pickle=False)
    plan = Plan(graph=graph, reference=reference, **outline.plan)
    data = BACKEND.prepare(plan)
    if type(data).__name__ != outline.data:
        raise SampleError(
            f"a worker prepared {type(data).__name__} for this model, and the process that started "
            f"the run {outline.data}: their processors differ; see docs/long_runs.md"
        )
    return plan, data


def _read(model: str | bytes) -> Any:
    if isinstance(model, str):
        return native.read_mapped(model)
    with Scratch() as folder:
        path = folder / "model.mg"
        path.write_bytes(model)
        return native.read(path)


def absorb(group: Group, segment: Segment, updates: int, recording: bool, wanted: float) -> None:
    """Store the result of `work` in the group's own arrays."""
    first, warmed = group.records, group.warmed
    counts = group.state()["counts"] + segment.state["counts"]
    group.restore(segment.state | {"counts": counts})
    group.warmed = warmed + (0 if recording else updates)
    group.put_rows(first, segment.rows)
    group.pace(segment.seconds, wanted)
