"""A checkpoint folder, from which a run continues exactly as if uninterrupted.

The folder contains the model, the request, the two latest generations of all chains' states, and
the records in chunks, one per generation. Files are written atomically and sealed with a
checksum. A state lists the chunks that belong to it. See docs/adr/0004-checkpoints.md.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, SampleError
from minigibbs.formats import native
from minigibbs.running import durations
from minigibbs.running.backends import BACKENDS
from minigibbs.running.checkpoint.lock import Lock, is_lock
from minigibbs.running.checkpoint.saver import stacked
from minigibbs.running.group import RECORDED, Group
from minigibbs.running.observed import STATE
from minigibbs.running.plan import ENDINGS, MOST_UPDATES, Plan
from minigibbs.system import files
from minigibbs.system.caller import warn
from minigibbs.system.text import printable

_MODEL, _RUN, _LOCK = "model.mg", "run.npz", "lock"
_RUN_FORMAT = "minigibbs-checkpoint-2"
_STATE_FORMAT = "minigibbs-state-2"
_RECORDS_FORMAT = "minigibbs-records-1"
_KEPT = 2  # generations
_GENERATION = re.compile(r"(state|records)-\d{8}\.npz")
_TEMPORARY = re.compile(r"\.(model\.mg|run\.npz|(state|records)-\d{8}\.npz)\.[a-z0-9_]{8}")
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

T = TypeVar("T")


class Generation(NamedTuple):
    """The content of one generation."""

    header: dict[str, Any]
    states: dict[str, NDArray[Any]]  # arrays of a state with one row per group, and others
    chunks: list[dict[str, NDArray[Any]]]  # records in order: `first`, `count`, and rows by name


class Checkpoint:
    """An open checkpoint folder, locked against other runs until it is closed."""

    def __init__(self, folder: Path, locked: bool = True) -> None:
        self.folder = folder
        self.generation = 0
        self.chunks: list[int] = []
        self.number = ""  # identifies the run: files of different runs must not be mixed
        self._plan: Plan | None = None  # with `_header`, the content of `model.mg` and `run.npz`
        self._header: dict[str, Any] = {}
        self._lock = Lock(folder / _LOCK) if locked else None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()

    @property
    def read_only(self) -> bool:
        """Whether the folder is not writable."""
        return self._lock is None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], plan: Plan, request: dict[str, Any]
    ) -> Checkpoint:
        """Create the folder with the model and the request."""
        plan.encode()  # raises if a part cannot be stored in a file
        folder = Path(path)
        _make_folder(folder)
        try:
            new = cls(folder)
            try:
                new._begin(plan, request)
            except BaseException:
                new.close()
                raise
        except OSError as error:
            raise SampleError(
                f"cannot write the checkpoint {folder}: {error.strerror or error}; free space, or "
                "give a folder elsewhere"
            ) from error
        return new

    def _begin(self, plan: Plan, request: dict[str, Any]) -> None:
        if self._generations():
            raise SampleError(
                f"{self.folder} already holds a run: continue it with "
                f"mg.resume({str(self.folder)!r}) or `minigibbs resume {self.folder}`, or give "
                "another folder"
            )
        self._sweep()
        self.number = secrets.token_hex(8)
        self._plan, self._header = plan, request
        self._write_request()

    def _write_request(self) -> None:
        """Write the model and the request."""
        assert self._plan is not None
        encoded, arrays = self._plan.encode()
        native.write(self._plan.graph, self.folder / _MODEL)
        header = {
            **self._header,
            "format": _RUN_FORMAT,
            "run": self.number,
            "model": files.digest(self.folder / _MODEL),
            "plan": encoded,
        }
        files.write_arrays(self.folder / _RUN, header, arrays, sealed=True)

    @classmethod
    def inspect(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Open a folder only to read it, even if it is in use."""
        return cls(_existing(path), locked=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Open a folder that contains a run; if it is not writable, only to read it."""
        folder = _existing(path)
        try:
            return cls(folder)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise SampleError(f"cannot lock {folder}: {error.strerror or error}") from error
            return cls(folder, locked=False)

    def read_plan(self) -> tuple[Plan, dict[str, Any]]:
        """Read the plan at the beginning of the run, and the rest of the request."""
        path, model = self.folder / _RUN, self.folder / _MODEL
        if not model.is_file():
            raise FormatError(f"{model}: it is missing; a run cannot continue without its model")
        with files.refusing_damage(path):
            header, arrays = self._read_request()
            if files.digest(model, links=False) != header["model"]:
                raise FormatError(f"{model}: changed since the run began (wrong checksum)")
            plan = Plan.decode(native.read_own(model), header["plan"], arrays)
            if plan.backend not in BACKENDS:
                raise ValueError(f"unknown backend {plan.backend!r}")
            if BACKENDS[plan.backend].rows is None and plan.rows != plan.chains:
                raise ValueError(f"{plan.rows} rows of {plan.chains} chains")
            for name in ("every", "max_time"):
                if header.get(name) is not None:
                    header[name] = durations.seconds(header[name], name)
            self.number = str(header["run"])
        self._plan, self._header = plan, header
        return plan, header

    def recorded(self) -> list[str]:
        """Return what the run records, without reading its model."""
        with files.refusing_damage(self.folder / _RUN):
            return [str(name) for name in self._read_request()[0]["plan"]["kept"]]

    def _read_request(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        files.check_seal(self.folder / _RUN, links=False)
        return files.read_arrays(self.folder / _RUN, _RUN_FORMAT, links=False)

    def latest(self, restore: Callable[[Generation], T]) -> T:
        """Return `restore` of the latest intact generation; warn about damaged ones.

        If another process continues the run, generations may vanish during the read. Then the newer
        ones are tried.
        """
        before = self._generations()
        try:
            return self._latest(restore)
        except (FormatError, SampleError):
            if self._lock is not None or self._generations() == before:
                raise
            return self.latest(restore)

    def _latest(self, restore: Callable[[Generation], T]) -> T:
        problems: list[Exception] = []
        for generation in sorted(self._generations(), reverse=True):
            try:
                found = self._read(generation)
                with files.refusing_damage(self._name("state", generation)):
                    result = restore(found)
            except (FormatError, OSError) as error:
                problems.append(error)
                continue
            if problems:
                warn(f"{problems[0]}; the checkpoint before it is used")
            self.generation, self.chunks = generation, list(found.header["chunks"])
            if self._lock is not None:
                self._sweep()
            return result
        if problems:
            raise FormatError(f"{self.folder}: no checkpoint in it can be used: {problems[0]}")
        raise SampleError(
            f"{self.folder}: the run was stopped before its first checkpoint; start it again"
        )

    def _read(self, generation: int) -> Generation:
        header, states = self._read_sealed("state", generation, _STATE_FORMAT)
        with files.refusing_damage(self._name("state", generation)):
            _check_header(header)
        chunks = [
            self._read_sealed("records", number, _RECORDS_FORMAT)[1] for number in header["chunks"]
        ]
        return Generation(header, states, chunks)

    def _read_sealed(
        self, kind: str, generation: int, expected: str
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        path = self._name(kind, generation)
        files.check_seal(path, links=False)
        header, arrays = files.read_arrays(path, expected, links=False)
        if (header.get("run"), header.get("generation")) != (self.number, generation):
            raise FormatError(f"{path}: it belongs to another run, or to another time of this one")
        return header, arrays

    def write(
        self,
        header: dict[str, Any],
        states: dict[str, NDArray[Any]],
        chunk: dict[str, NDArray[Any]] | None,
    ) -> None:
        """Write a new generation and delete the older of the two before it.

        Missing files that it depends on are written again: the lock, the model, the request. For
        lost records see `lost_records`.
        """
        if self._lock is not None:
            self._lock.hold()
        if not all((self.folder / name).is_file() for name in (_MODEL, _RUN)):
            self._write_request()
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

    def lost_records(self) -> bool:
        """Return whether written records are missing; if so, forget all chunks."""
        lost = not all(self._name("records", number).is_file() for number in self.chunks)
        if lost:
            self.chunks = []
        return lost

    def _name(self, kind: str, generation: int) -> Path:
        return self.folder / f"{kind}-{generation:08d}.npz"

    def _generations(self) -> list[int]:
        return [int(path.stem[6:]) for path in self.folder.glob("state-" + "[0-9]" * 8 + ".npz")]

    def _sweep(self) -> None:
        """Remove the incomplete files of a killed run, and chunks to which no state refers.

        Names alone are not sufficient: users may have files of similar names here.
        """
        for path in self.folder.glob(".*"):
            if _TEMPORARY.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)
        for path in self.folder.glob("records-*.npz"):
            if _is_ours(path) and int(path.stem[8:]) > self.generation:
                path.unlink(missing_ok=True)


def _check_header(header: dict[str, Any]) -> None:
    """Raise `ValueError` unless a generation's header has the values that `Loop` writes."""
    length, seconds, chunks = (header[name] for name in ("length", "seconds", "chunks"))
    rounds = header.get("rounds", 0)
    if type(length) is not int or not 0 <= length <= MOST_UPDATES:
        raise ValueError(f"length: expected updates, got {length!r}")
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        raise ValueError(f"seconds: expected a time, got {seconds!r}")
    if header["ended"] not in ("", *ENDINGS):
        raise ValueError(f"ended: expected one of {', '.join(ENDINGS)}, got {header['ended']!r}")
    if type(chunks) is not list or not all(type(chunk) is int and chunk > 0 for chunk in chunks):
        raise ValueError(f"chunks: expected generations, got {chunks!r}")
    if type(rounds) is not int or not rounds >= 0:
        raise ValueError(f"rounds: expected a count, got {rounds!r}")


def _existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of an existing checkpoint folder."""
    folder = Path(path)
    if not folder.is_dir():
        raise SampleError(
            f"there is no checkpoint {folder}: expected a folder; checkpoint={str(folder)!r} of "
            "mg.sample, or --checkpoint of `minigibbs sample`, makes one"
        )
    if not (folder / _RUN).is_file():
        raise SampleError(f"there is no checkpoint in {folder}: the folder has no file {_RUN}")
    return folder


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder contains a checkpoint."""
    return (Path(path) / _RUN).is_file()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SampleError(
            f"cannot make the checkpoint folder {folder}: {error.strerror}; give another name"
        ) from None
    marked = is_lock(folder / _LOCK) or _format(folder / _RUN) == _RUN_FORMAT
    for path in folder.iterdir():
        if not (path.name.startswith(".") or (marked and _is_ours(path))):
            raise SampleError(
                f"{folder} holds other files ({printable(path.name)}); give a folder of its "
                "own, or a new name"
            )


def _is_ours(path: Path) -> bool:
    """Return whether a file of the folder was written by a run, by name and content."""
    wanted = {_MODEL: native.FORMAT, _RUN: _RUN_FORMAT}.get(path.name)
    if path.name == _LOCK:
        return is_lock(path)
    if _GENERATION.fullmatch(path.name):
        wanted = _STATE_FORMAT if path.name.startswith("state") else _RECORDS_FORMAT
    return wanted is not None and _format(path) == wanted


def _format(path: Path) -> Any:
    """Return the format that a file states; None for any other file."""
    try:
        return files.stated_format(path, links=False)
    except (OSError, FormatError):
        return None


def restore_groups(plan: Plan, groups: list[Group], found: Generation) -> None:
    """Restore a generation's states and records in new groups, after checking all of it."""
    restore_states(plan, groups, found.states)
    rows = join_rows(found.chunks, len(groups))
    for number, group in enumerate(groups):
        _check_rows(plan, group, rows[number])
        group.put_rows(0, rows[number])


def restore_states(plan: Plan, groups: list[Group], found: dict[str, NDArray[Any]]) -> None:
    """Restore stacked states in new groups, after checking all of them."""
    schema = groups[0].schema()  # groups of a plan have the same schema
    for name, (one, kind) in schema.items():
        if name in STATE and name not in found:  # missing in checkpoints of runs before 0.3
            found[name] = stacked(groups)[name]
        given, shape = found[name], (len(groups), *one)
        if given.shape != shape or given.dtype != kind:
            raise ValueError(f"{name}: expected {shape} of {kind}, got {given.shape}")
    states = {name: found[name] for name in schema}
    BACKENDS[plan.backend].check_state(plan, states)
    for number, group in enumerate(groups):
        group.restore({name: array[number] for name, array in states.items()})


def join_rows(chunks: list[dict[str, NDArray[Any]]], groups: int) -> list[dict[str, NDArray[Any]]]:
    """Return each group's records, concatenated over all chunks."""
    parts: list[dict[str, list[NDArray[Any]]]] = [
        {name: [] for name in RECORDED} for _ in range(groups)
    ]
    for chunk in chunks:
        ends = np.cumsum(chunk["count"])
        if len(ends) != groups or (chunk["count"] < 0).any():
            raise ValueError("a chunk of records is not one of this run")
        for name in RECORDED:
            if name in chunk:
                for own, rows in zip(parts, np.split(chunk[name], ends[:-1]), strict=True):
                    own[name].append(rows)
    return [{name: np.concatenate(rows) for name, rows in own.items() if rows} for own in parts]


def _check_rows(plan: Plan, group: Group, rows: dict[str, NDArray[Any]]) -> None:
    """Raise `ValueError` unless these can be the group's records."""
    for name, mine in group.rows(0).items():
        given = rows.get(name, mine[:0])
        if given.shape != mine.shape or given.dtype != mine.dtype:
            raise ValueError(f"{name}: expected {mine.shape} of {mine.dtype}, got {given.shape}")
    if "draws" in rows and (rows["draws"] >= plan.graph.sizes[plan.drawn]).any():
        raise ValueError("draws: a value lies outside its variable's domain")
