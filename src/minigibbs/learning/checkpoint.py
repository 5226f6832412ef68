"""Checkpoint of a fit on disk: written atomically, sealed, and pure data.

A checkpoint is two files. `fit.mgl` contains the changing state and is rewritten at each interval.
`fit.mgl.<number>.npz` in the same folder contains the constant part: the graph, the data and the
penalties. It is written once, under a unique number, before the first `fit.mgl` that refers to it.
The file that it replaces is removed afterwards. So any kill leaves an intact checkpoint.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.errors import FormatError, LearnError, SampleError
from minigibbs.graph.data import Data
from minigibbs.graph.encoding import decode, encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.ascent import Ascent, ladders
from minigibbs.learning.penalty import Penalty
from minigibbs.learning.settings import SAMPLED, Settings
from minigibbs.running.checkpoint.lock import Lock
from minigibbs.samplers import Sampler
from minigibbs.samplers.encoding import describe_sampler, sampler_from
from minigibbs.system import files

FORMAT = "minigibbs-learning-2"
FIXED_FORMAT = "minigibbs-learning-data-1"
_WHOLE = "minigibbs-learning-1"  # format of minigibbs 0.2: all in one file
_NUMBER = re.compile("[0-9a-f]{16}")
EVERY = 30.0  # least seconds between two saves


class Target:
    """Location of a checkpoint; a context that excludes other processes.

    An existing checkpoint is replaced at the first save, unless learning is `resumed` from it. Any
    other existing file is refused.
    """

    def __init__(self, path: str | os.PathLike[str], resumed: bool = False) -> None:
        files.check_target(path)
        self.path = Path(path)
        self.number = secrets.token_hex(8)  # number of the constant part
        self._lock = _locked(self.path)
        try:
            self._replaced = None if resumed else _named_by(self.path)
        except BaseException:
            self._lock.remove()
            raise

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.remove()

    def hold(self) -> None:
        """Raise an error if another process has locked the checkpoint after removal of the lock."""
        try:
            self._lock.hold()
        except SampleError as error:
            raise LearnError(str(error)) from None

    @property
    def fixed(self) -> Path:
        """Path of the constant part."""
        return _fixed(self.path, self.number)

    def settle(self) -> None:
        """Remove the constant part of the checkpoint that was replaced."""
        if self._replaced is None:
            return
        path, self._replaced = _fixed(self.path, self._replaced), None
        with suppress(OSError, FormatError):
            if files.stated_format(path, links=False) == FIXED_FORMAT:
                path.unlink()


class Saver:
    """Writes an ascent to its files at intervals."""

    def __init__(
        self,
        target: Target,
        ascent: Ascent,
        every: float | None,
        extra: dict[str, Any],
        held_out: Data | None,
    ) -> None:
        self.target, self.ascent, self.extra = target, ascent, extra
        self.every = EVERY if every is None else every
        self.held_out, self._last = held_out, time.monotonic()

    def __call__(self, now: bool) -> None:
        """Write if `now`, or if the interval has passed."""
        if now or time.monotonic() - self._last >= self.every:
            self._write()
            self._last = time.monotonic()

    def _write(self) -> None:
        self.target.hold()
        if not self.target.fixed.is_file():
            self._write_fixed()
        ascent = self.ascent
        state, arrays = ascent.save()
        header = {
            "format": FORMAT,
            "version": __version__,
            "settings": ascent.settings.encode(),
            "sampler": None if ascent.sampler is None else describe_sampler(ascent.sampler),
            "state": state,
            "every": self.every,
            "data": self.target.number,
            **self.extra,
        }
        named = {f"state.{name}": array for name, array in arrays.items()}
        files.write_arrays(self.target.path, header, named, sealed=True)
        self.target.settle()

    def _write_fixed(self) -> None:
        """Write the constant part."""
        graph, graph_arrays = encode(self.ascent.graph)
        penalty = self.ascent.penalty
        parts: dict[str, dict[str, NDArray[Any]]] = {
            "graph": graph_arrays,
            "penalty": {"l1": penalty.l1, "l2": penalty.l2, "mean": penalty.mean},
            "data": _data_arrays(self.ascent.data),
            "held_out": {} if self.held_out is None else _data_arrays(self.held_out),
        }
        named = {f"{part}.{k}": v for part, own in parts.items() for k, v in own.items()}
        header = {"format": FIXED_FORMAT, "data": self.target.number, "graph": graph}
        files.write_arrays(self.target.fixed, header, named, sealed=True)


def _fixed(path: Path, number: str) -> Path:
    """Return the path of a checkpoint's constant part."""
    return path.with_name(f"{path.name}.{number}.npz")


def _locked(path: Path) -> Lock:
    try:
        return Lock(path.with_name(f"{path.name}.lock"), path)
    except SampleError as error:
        raise LearnError(f"checkpoint: {error}") from None
    except OSError as error:
        raise LearnError(
            f"checkpoint: cannot lock {path} ({error.strerror or error}); give a file elsewhere"
        ) from error


def _named_by(path: Path) -> str | None:
    """Return the number of an existing checkpoint's constant part; refuse any other file."""
    if not os.path.lexists(path):
        return None
    try:
        header, _ = files.read_arrays(path, _WHOLE, FORMAT, links=False)
    except FormatError:
        raise LearnError(
            f"checkpoint: {path} exists, and is not a checkpoint of learning; give another "
            "name, or move that file away"
        ) from None
    number = header.get("data")
    return number if isinstance(number, str) and _NUMBER.fullmatch(number) else None


class Saved:
    """Content of a checkpoint."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        files.check_source(path, "a checkpoint of mg.learn")
        self.header, self._arrays = self._read()
        header = self.header
        with files.refusing_damage(path):
            self.settings = Settings.decode(header["settings"])
            if self.settings.method not in SAMPLED:
                raise ValueError(f"method: {self.settings.method} has no checkpoints")
            self.every = _seconds(header, "every")
            limit = None if header["max_time"] is None else _seconds(header, "max_time")
            header.setdefault("prior", False)  # missing in files before 0.3
            flags = {name: _flag(header, name) for name in ("evidence", "errors", "prior")}
            self.extra: dict[str, Any] = {**flags, "max_time": limit}
            chains = self.settings.chains
            if header["state"].get("tempered") is not None:
                chains = ladders(chains)
            if len(self.part("state")["model.states"]) != chains:
                raise ValueError("chains: expected a state for each")
            self.graph: FactorGraph = decode(header["graph"], self.part("graph"))
            self.data = _read(self.graph, self.part("data"))
            if self.evidence and len(self.data) != 1:
                raise ValueError("evidence: expected one row of data")
            self.penalty = _penalty(self.graph.frame.size, self.part("penalty"))
            held = self.part("held_out")
            self.held_out = _read(self.graph, held) if held else None
            described = header["sampler"]
            self.sampler: Sampler | None = None if described is None else sampler_from(described)

    def _read(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Read header and arrays of both files."""
        header, arrays = _read_sealed(self.path, _WHOLE, FORMAT)
        if header["format"] == _WHOLE:
            return header, arrays
        number = header.get("data")
        if not isinstance(number, str) or not _NUMBER.fullmatch(number):
            raise FormatError(f"{self.path}: damaged: expected the number of its data")
        beside = _fixed(Path(self.path), number)
        if not os.path.lexists(beside):
            raise FormatError(
                f"{self.path}: its data are missing: expected {beside.name} in the same folder; "
                "move both files of a checkpoint together"
            )
        fixed, more = _read_sealed(beside, FIXED_FORMAT)
        if fixed.get("data") != number or "graph" not in fixed:
            raise FormatError(f"{beside}: it belongs to another checkpoint")
        own = {name: array for name, array in arrays.items() if name.startswith("state.")}
        return {**header, "graph": fixed["graph"]}, {**more, **own}

    @property
    def number(self) -> str | None:
        """Number of the constant part; None if all is in one file."""
        return None if self.header["format"] == _WHOLE else str(self.header["data"])

    @property
    def evidence(self) -> bool:
        """Whether the datum was the graph's own evidence."""
        return bool(self.extra["evidence"])

    def part(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of one part."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self._arrays.items() if k.startswith(prefix)}


def _read_sealed(
    path: str | os.PathLike[str], *formats: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    header, arrays = files.read_arrays(path, *formats, links=False)
    files.check_seal(path, links=False)
    return header, arrays


def _flag(header: dict[str, Any], name: str) -> bool:
    value = header[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected true or false, got {value!r}")
    return value


def _seconds(header: dict[str, Any], name: str) -> float:
    value = header[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name}: expected seconds, got {value!r}")
    return float(value)


def _penalty(size: int, arrays: dict[str, NDArray[Any]]) -> Penalty:
    parts = [arrays[name] for name in ("l1", "l2", "mean")]
    for array in parts:
        if array.shape != (size,) or array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"penalty: expected {size} finite doubles")
    if (parts[0] < 0).any() or (parts[1] < 0).any():
        raise ValueError("penalty: l1 and l2 must not be negative")
    return Penalty(*parts)


def _data_arrays(data: Data) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {"rows": data.rows, "weight": data.weight}
    return arrays if data.seen is None else arrays | {"seen": data.seen}


def _read(graph: FactorGraph, arrays: dict[str, NDArray[Any]]) -> Data:
    rows, seen, weight = arrays["rows"], arrays.get("seen"), arrays["weight"]
    shape = (len(rows), len(graph))
    if rows.shape != shape or rows.dtype != graph.state_type or (rows >= graph.sizes).any():
        raise ValueError("rows: expected states of the graph")
    if seen is not None and (seen.shape != shape or seen.dtype != np.uint8):
        raise ValueError("seen: expected a mark for each value")
    if weight.shape != (len(rows),) or weight.dtype != np.float64 or not (weight >= 0).all():
        raise ValueError("weight: expected one for each row")
    if not 0 < weight.sum() < math.inf:
        raise ValueError("weight: expected a finite sum above 0")
    return Data(rows, seen, weight)
