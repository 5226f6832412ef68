"""A run on disk: a folder from which it goes on as if it had never stopped.

The folder holds the model, what was asked for, the two latest generations of every chain's state,
and the records in chunks, one a generation. Every file is written whole or not at all and sealed
with a checksum; a state names the chunks that belong to it. See docs/adr/0004-checkpoints.md.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, SampleError
from minigibbs.formats import native
from minigibbs.graph.packing import free_variables
from minigibbs.results.run import check_drawn
from minigibbs.running.checkpoint.lock import Lock
from minigibbs.running.group import RECORDED, Job, State
from minigibbs.running.plan import Plan
from minigibbs.running.request import RECORDS, SCANS
from minigibbs.samplers.encoding import describe_sampler, sampler_from
from minigibbs.system import files

_MODEL, _RUN, _LOCK = "model.mg", "run.npz", "lock"
_RUN_FORMAT = "minigibbs-checkpoint-1"
_STATE_FORMAT = "minigibbs-state-1"
_RECORDS_FORMAT = "minigibbs-records-1"
_KEPT = 2  # generations

T = TypeVar("T")


class Generation(NamedTuple):
    """What one generation holds."""

    header: dict[str, Any]
    states: dict[str, NDArray[Any]]  # each of State's arrays with one row per chain, and others
    chunks: list[dict[str, NDArray[Any]]]  # records in turn: `first`, `count`, and rows by name


class Checkpoint:
    """An open checkpoint folder, locked against other runs until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        self.chunks: list[int] = []
        self.number = ""  # of the run: files of different runs do not mix
        self._lock = Lock(folder / _LOCK)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other runs in."""
        self._lock.release()

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], plan: Plan, request: dict[str, Any]
    ) -> Checkpoint:
        """Make the folder and put the model and the request into it."""
        described = describe_sampler(plan.sampler)
        folder = Path(path)
        _make_folder(folder)
        new = cls(folder)
        try:
            if new._generations():
                raise SampleError(
                    f"{folder} holds a run already: mg.resume({str(folder)!r}) goes on with it; "
                    "remove the folder to start anew"
                )
            new._sweep()
            new.number = secrets.token_hex(8)
            native.write(plan.graph, folder / _MODEL)
            header = {
                "format": _RUN_FORMAT,
                "run": new.number,
                "model": files.digest(folder / _MODEL),
                "sampler": described,
                "warmup": plan.warmup,
                "scan": plan.scan,
                "record": sorted(plan.kept),
                "thin": plan.thin,
                **request,
            }
            arrays = {"reference": plan.reference, "drawn": plan.variables}
            given = {name: np.asarray(a) for name, a in arrays.items() if a is not None}
            files.write_arrays(folder / _RUN, header, given, sealed=True)
        except BaseException:
            new.close()
            raise
        return new

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Open a folder that holds a run."""
        folder = Path(path)
        if not folder.is_dir():
            raise SampleError(f"there is no checkpoint {folder}: it is no folder")
        if not (folder / _RUN).is_file():
            raise SampleError(f"there is no checkpoint in {folder}: it holds no {_RUN}")
        return cls(folder)

    def read_plan(self) -> tuple[Plan, dict[str, Any]]:
        """The plan, with no length yet, and what else was asked for."""
        path = self.folder / _RUN
        files.check_seal(path)
        header, arrays = files.read_arrays(path, _RUN_FORMAT)
        model = self.folder / _MODEL
        if files.digest(model) != header["model"]:
            raise FormatError(f"{model}: changed since the run began (wrong checksum)")
        with files.refusing_damage(path):
            graph = native.read(model)
            thin, warmup = header["thin"], header["warmup"]
            if not (isinstance(thin, int) and isinstance(warmup, int) and thin > 0 <= warmup):
                raise ValueError(f"thin {thin!r} or warmup {warmup!r} is no count")
            if header["scan"] not in SCANS or not set(header["record"]) <= set(RECORDS):
                raise ValueError("unknown scan or record")
            self.number = header["run"]
            plan = Plan(
                graph,
                sampler_from(header["sampler"]),
                free_variables(graph.evidence),
                0,
                warmup,
                header["scan"],
                frozenset(header["record"]),
                thin,
                arrays.get("reference"),
                _variables(arrays.get("drawn"), header["record"], len(graph)),
            )
        return plan, header

    def latest(self, take_up: Callable[[Generation], T]) -> T:
        """What `take_up` makes of the latest generation that is sound; others are warned of."""
        problems: list[Exception] = []
        for generation in sorted(self._generations(), reverse=True):
            try:
                found = self._read(generation)
                with files.refusing_damage(self._name("state", generation)):
                    result = take_up(found)
            except (FormatError, OSError) as error:
                problems.append(error)
                continue
            if problems:
                warnings.warn(
                    f"{problems[0]}; the checkpoint before it is used", UserWarning, stacklevel=4
                )
            self.generation, self.chunks = generation, list(found.header["chunks"])
            self._sweep()
            return result
        if problems:
            raise FormatError(f"{self.folder}: no checkpoint in it can be used: {problems[0]}")
        raise SampleError(
            f"{self.folder}: the run was stopped before its first checkpoint; start it again"
        )

    def _read(self, generation: int) -> Generation:
        header, states = self._read_sealed("state", generation, _STATE_FORMAT)
        chunks = [
            self._read_sealed("records", number, _RECORDS_FORMAT)[1] for number in header["chunks"]
        ]
        return Generation(header, states, chunks)

    def _read_sealed(
        self, kind: str, generation: int, expected: str
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        path = self._name(kind, generation)
        files.check_seal(path)
        header, arrays = files.read_arrays(path, expected)
        if (header.get("run"), header.get("generation")) != (self.number, generation):
            raise FormatError(f"{path}: it belongs to another run, or to another time of this one")
        return header, arrays

    def write(
        self,
        header: dict[str, Any],
        states: dict[str, NDArray[Any]],
        chunk: dict[str, NDArray[Any]] | None,
    ) -> None:
        """Write a new generation; the older of the two before it goes."""
        generation, chunks = self.generation + 1, self.chunks
        own = {"run": self.number, "generation": generation}
        if chunk is not None:
            chunks = [*chunks, generation]
            where = self._name("records", generation)
            files.write_arrays(where, {"format": _RECORDS_FORMAT, **own}, chunk, sealed=True)
        header = {"format": _STATE_FORMAT, **own, "chunks": chunks, **header}
        files.write_arrays(self._name("state", generation), header, states, sealed=True)
        self.generation, self.chunks = generation, chunks
        self._name("state", generation - _KEPT).unlink(missing_ok=True)

    def _name(self, kind: str, generation: int) -> Path:
        return self.folder / f"{kind}-{generation:08d}.npz"

    def _generations(self) -> list[int]:
        return [int(path.stem[6:]) for path in self.folder.glob("state-" + "[0-9]" * 8 + ".npz")]

    def _sweep(self) -> None:
        """Remove what a killed run left half-written, and chunks that no state names."""
        for path in self.folder.glob(".*.npz.*"):
            path.unlink(missing_ok=True)
        for path in self.folder.glob("records-*.npz"):
            if int(path.stem[8:]) > self.generation:
                path.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SampleError(
            f"cannot make the checkpoint folder {folder}: {error.strerror}; give another name"
        ) from None
    ours = {_MODEL, _RUN, _LOCK}
    for path in folder.iterdir():
        if not (path.name in ours or path.suffix == ".npz" or path.name.startswith(".")):
            raise SampleError(
                f"{folder} holds other files ({path.name}); give a folder of its own, or a new name"
            )


def _variables(
    drawn: NDArray[Any] | None, record: list[str], variables: int
) -> NDArray[np.int32] | None:
    """The variables whose draws are kept, checked; None for all."""
    if drawn is None:
        return None
    if "draws" not in record:
        raise ValueError("variables are chosen whose draws are not recorded")
    check_drawn(drawn, variables)
    return drawn.astype(np.int32)


def take_up(plan: Plan, jobs: list[Job], found: Generation) -> None:
    """Put a generation's states and records into fresh jobs, once all of it is checked."""
    wanted = State(*(np.stack(several) for several in zip(*(j.state() for j in jobs), strict=True)))
    for name, mine in wanted._asdict().items():
        given = found.states[name]
        if given.shape != mine.shape or given.dtype != mine.dtype:
            raise ValueError(f"{name}: expected {mine.shape} of {mine.dtype}, got {given.shape}")
    _check_states(plan, State(**{name: found.states[name] for name in State._fields}))
    rows = _join(found.chunks, jobs)
    for job in jobs:
        job.restore(State(*(found.states[name][job.number] for name in State._fields)))
        job.left = plan.length - int(job.recorder.clock[0])
        job.warmup_left = plan.warmup - job.warmed
        _check_rows(plan, job, rows[job.number])
        job.put_rows(0, rows[job.number])


def _check_states(plan: Plan, states: State) -> None:
    """Raise `ValueError` for a state that no chain of this plan can be in.

    Compiled code trusts its arrays, so that none of this may be left out.
    """
    graph, clamped = plan.graph, plan.graph.evidence >= 0
    checks = {
        "x": (states.x < graph.sizes).all()
        and (states.x[:, clamped] == graph.evidence[clamped]).all(),
        "order": states.order.shape[1] == 0 or (np.sort(states.order) == plan.order).all(),
        "position": ((states.position >= 0) & (states.position < max(len(plan.order), 1))).all(),
        "clock": ((states.clock >= 0) & (states.clock <= plan.length)).all(),
        "warmed": ((states.warmed >= 0) & (states.warmed <= plan.warmup)).all(),
    }
    for name, right in checks.items():
        if not right:
            raise ValueError(f"{name} holds what it cannot")


def _join(chunks: list[dict[str, NDArray[Any]]], jobs: list[Job]) -> list[dict[str, NDArray[Any]]]:
    """Each chain's records, put together from all chunks."""
    parts: list[dict[str, list[NDArray[Any]]]] = [{name: [] for name in RECORDED} for _ in jobs]
    for chunk in chunks:
        ends = np.cumsum(chunk["count"])
        if len(ends) != len(jobs) or (chunk["count"] < 0).any():
            raise ValueError("a chunk of records is not one of this run")
        for name in RECORDED:
            if name in chunk:
                for own, rows in zip(parts, np.split(chunk[name], ends[:-1]), strict=True):
                    own[name].append(rows)
    return [{name: np.concatenate(rows) for name, rows in own.items() if rows} for own in parts]


def _check_rows(plan: Plan, job: Job, rows: dict[str, NDArray[Any]]) -> None:
    for name in RECORDED:
        mine = getattr(job.recorder, name)
        expected = (min(job.records, len(mine)), *mine.shape[1:])
        given = rows.get(name, mine[:0])
        if given.shape != expected or given.dtype != mine.dtype:
            raise ValueError(f"{name}: expected {expected} of {mine.dtype}, got {given.shape}")
    if "draws" in rows and (rows["draws"] >= plan.graph.sizes[plan.drawn]).any():
        raise ValueError("draws: a value lies outside its variable's domain")
