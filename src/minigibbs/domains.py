"""What variables are called and which values they take: names, labels and grids."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError

MAX_DOMAIN = 2**31 - 1


@dataclass(frozen=True)
class Grid:
    """A continuous variable discretised to evenly spaced points, both ends included.

    >>> Grid(0.0, 1.0, 5).values
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """

    low: float
    high: float
    points: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise GraphError(
                f"a Grid needs finite low < high, got low={self.low}, high={self.high}"
            )
        if not isinstance(self.points, int | np.integer) or self.points < 2:
            raise GraphError(f"a Grid needs at least 2 points, got points={self.points!r}")

    @property
    def values(self) -> NDArray[np.float64]:
        """The points, lowest first."""
        return np.linspace(self.low, self.high, int(self.points))


class Domains:
    """The variables of a graph: sizes, names, and labels or grids of their values."""

    def __init__(
        self,
        sizes: ArrayLike | Sequence[int | Grid],
        names: Sequence[str] | None = None,
        labels: Any = None,
    ) -> None:
        self.grids: dict[int, Grid] = {}
        self.sizes = self._read_sizes(sizes)
        self.names = self._read_names(names)
        self.labels: dict[int, tuple[Hashable, ...]] = {}
        if labels is not None:
            self._read_labels(labels)

    def __len__(self) -> int:
        return len(self.sizes)

    def name(self, variable: int) -> str:
        """The variable's name; `x7` for variable 7 where none was given."""
        return f"x{variable}" if self.names is None else self.names[variable]

    def describe(self, variable: int) -> str:
        """The variable as errors call it."""
        return f"variable {variable}" + (f" ({self.names[variable]!r})" if self.names else "")

    def values(self, variable: int) -> tuple[Any, ...]:
        """The variable's values as a user knows them: labels, grid points or 0, 1, 2, ..."""
        if variable in self.labels:
            return self.labels[variable]
        if variable in self.grids:
            return tuple(self.grids[variable].values.tolist())
        return tuple(range(int(self.sizes[variable])))

    def index(self, variable: int | str) -> int:
        """The number of a variable given by number or name."""
        if isinstance(variable, int | np.integer) and not isinstance(variable, bool):
            if 0 <= variable < len(self):
                return int(variable)
            raise GraphError(
                f"unknown variable {variable}: the graph has variables 0 to {len(self) - 1}"
            )
        try:
            return self._numbers[variable]  # type: ignore[index]
        except (KeyError, TypeError):
            hint = "the graph's variables have no names" if self.names is None else "no such name"
            raise GraphError(f"unknown variable {variable!r}: {hint}") from None

    def value(self, variable: int, value: Any) -> int:
        """The number of a variable's value given by label, grid point or number."""
        labels = self.labels.get(variable, ())
        if value in labels:
            return labels.index(value)
        size = int(self.sizes[variable])
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            if 0 <= value < size:
                return int(value)
        elif variable in self.grids and isinstance(value, float | np.floating):
            points = self.grids[variable].values
            nearest = int(np.argmin(np.abs(points - value)))
            if np.isclose(points[nearest], value, rtol=1e-9, atol=1e-12):
                return nearest
        expected = f"a value from 0 to {size - 1}"
        if labels:
            expected += " or one of its labels " + _list(labels)
        if variable in self.grids:
            grid = self.grids[variable]
            expected += f" or one of the {size} grid points from {grid.low} to {grid.high}"
        raise GraphError(f"{self.describe(variable)}: expected {expected}, got {value!r}")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names or ())}

    def _read_sizes(self, sizes: Any) -> NDArray[np.int32]:
        if not isinstance(sizes, np.ndarray):
            sizes = list(sizes)
            self.grids = {v: size for v, size in enumerate(sizes) if isinstance(size, Grid)}
            for variable, grid in self.grids.items():
                sizes[variable] = int(grid.points)
            try:
                sizes = np.asarray(sizes)
            except ValueError:
                raise GraphError("sizes must be one domain size (or Grid) per variable") from None
        if sizes.ndim != 1 or not len(sizes):
            raise GraphError(
                "sizes must list one domain size (or Grid) per variable, at least one; "
                f"got an array of shape {sizes.shape}"
            )
        if sizes.dtype.kind not in "iu":
            raise GraphError(f"sizes must be integers or Grids, got type {sizes.dtype}")
        bad = np.flatnonzero((sizes < 1) | (sizes > MAX_DOMAIN))
        if len(bad):
            raise GraphError(
                f"variable {bad[0]}: a domain needs 1 to {MAX_DOMAIN} values, got {sizes[bad[0]]}"
            )
        return frozen(sizes, np.int32)

    def _read_names(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        names = tuple(names)
        if len(names) != len(self):
            raise GraphError(f"names: expected {len(self)}, one per variable, got {len(names)}")
        seen: dict[str, int] = {}
        for variable, name in enumerate(names):
            if not isinstance(name, str):
                raise GraphError(f"variable {variable}: a name must be a str, got {name!r}")
            if name in seen:
                raise GraphError(f"duplicate name {name!r}: variables {seen[name]} and {variable}")
            seen[name] = variable
        return names

    def _read_labels(self, labels: Any) -> None:
        if isinstance(labels, Mapping):
            per_variable = {self.index(key): value for key, value in labels.items()}
        elif all(_is_label(label) for label in labels):  # one list, shared by all variables
            per_variable = dict.fromkeys(range(len(self)), labels)
        elif len(labels) == len(self):
            per_variable = {v: value for v, value in enumerate(labels) if value is not None}
        else:
            raise GraphError(f"labels: expected {len(self)} lists, one per variable")
        for variable, given in per_variable.items():
            values = tuple(given)
            if len(values) != self.sizes[variable]:
                raise GraphError(
                    f"{self.describe(variable)}: expected {self.sizes[variable]} labels, one per "
                    f"value, got {len(values)}"
                )
            if len(set(values)) != len(values):
                raise GraphError(f"{self.describe(variable)}: duplicate labels in {values!r}")
            self.labels[variable] = values


def domains_header(domains: Domains) -> dict[str, Any]:
    """Names, labels and grids as JSON."""
    return {
        "names": domains.names,
        "labels": {v: [_plain(label) for label in row] for v, row in domains.labels.items()},
        "grids": {v: [g.low, g.high, int(g.points)] for v, g in domains.grids.items()},
    }


def domains_from_header(header: Mapping[str, Any], sizes: NDArray[Any]) -> Domains:
    """The inverse of `domains_header`."""
    domains = Domains(sizes, header["names"], {int(v): row for v, row in header["labels"].items()})
    domains.grids = {int(v): Grid(*row) for v, row in header["grids"].items()}
    return domains


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def frozen(array: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A read-only copy, so that a graph cannot change behind its own back."""
    copy = np.array(array, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy


def _is_label(label: Any) -> bool:
    return isinstance(label, str | int | float | bool | np.generic)


def _list(labels: Sequence[Any], most: int = 8) -> str:
    shown = ", ".join(repr(label) for label in labels[:most])
    return shown + (", ..." if len(labels) > most else "")
