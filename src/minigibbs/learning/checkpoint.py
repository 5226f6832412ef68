"""A fit under way, in one file: written whole or not at all, sealed, and data only."""

from __future__ import annotations

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
            self.graph: FactorGraph = decode(header["graph"], self.part("graph"))
            self.data = _read(self.graph, self.part("data"))
            own = self.part("penalty")
            self.penalty = Penalty(own["l1"], own["l2"], own["mean"])
            held = self.part("held_out")
            self.held_out = _read(self.graph, held) if held else None
            described = header["sampler"]
            self.sampler: Sampler | None = None if described is None else sampler_from(described)

    def part(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of one part."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self._arrays.items() if k.startswith(prefix)}


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
    if weight.shape != (len(rows),) or not (weight >= 0).all():
        raise ValueError("weight: expected one for each row")
    return Data(rows, seen, weight)
