"""A fit under way, in one file: written whole or not at all, sealed, and data only."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.graph.encoding import decode, encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.ascent import Ascent
from minigibbs.learning.data import Data
from minigibbs.learning.penalty import Penalty
from minigibbs.learning.settings import SAMPLED, Settings
from minigibbs.samplers import Sampler
from minigibbs.samplers.encoding import describe_sampler, sampler_from
from minigibbs.system import files

FORMAT = "minigibbs-learning-1"
EVERY = 30.0  # seconds between two saves, at the least


class Saver:
    """Writes an ascent to its file, now and then."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        ascent: Ascent,
        every: float | None,
        extra: dict[str, Any],
        held_out: Data | None,
    ) -> None:
        files.check_target(path)
        self.path, self.ascent, self.extra = path, ascent, extra
        self.every = EVERY if every is None else every
        self.held_out, self._last = held_out, time.monotonic()

    def __call__(self, now: bool) -> None:
        """Write if it is time, or at once."""
        if now or time.monotonic() - self._last >= self.every:
            self._write()
            self._last = time.monotonic()

    def _write(self) -> None:
        ascent = self.ascent
        graph, graph_arrays = encode(ascent.graph)
        state, arrays = ascent.save()
        header = {
            "format": FORMAT,
            "version": __version__,
            "settings": ascent.settings.encode(),
            "sampler": None if ascent.sampler is None else describe_sampler(ascent.sampler),
            "graph": graph,
            "state": state,
            "every": self.every,
            **self.extra,
        }
        penalty = ascent.penalty
        parts: dict[str, dict[str, NDArray[Any]]] = {
            "graph": graph_arrays,
            "state": arrays,
            "penalty": {"l1": penalty.l1, "l2": penalty.l2, "mean": penalty.mean},
            "data": _data_arrays(ascent.data),
            "held_out": {} if self.held_out is None else _data_arrays(self.held_out),
        }
        named = {f"{part}.{k}": v for part, own in parts.items() for k, v in own.items()}
        files.write_arrays(self.path, header, named, sealed=True)


class Saved:
    """What a checkpoint holds."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{path}: there is no such checkpoint")
        header, arrays = files.read_arrays(path, FORMAT)
        files.check_seal(path)
        self.header = header
        with files.refusing_damage(path):
            self._arrays = arrays
            self.settings = Settings.decode(header["settings"])
            if self.settings.method not in SAMPLED:
                raise ValueError(f"method: {self.settings.method} has no checkpoints")
            self.every = _seconds(header, "every")
            limit = None if header["max_time"] is None else _seconds(header, "max_time")
            flags = {name: _flag(header, name) for name in ("evidence", "errors")}
            self.extra: dict[str, Any] = {**flags, "max_time": limit}
            if len(self.part("state")["model.states"]) != self.settings.chains:
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

    @property
    def evidence(self) -> bool:
        """Whether the datum was the graph's own evidence."""
        return bool(self.extra["evidence"])

    def part(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of one part."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self._arrays.items() if k.startswith(prefix)}


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
