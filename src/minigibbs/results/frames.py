"""Marginals as pandas frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.interop.common import optional
from minigibbs.results.run import Run


def to_pandas(run: Run, wide: bool = False, shape: Sequence[int] | None = None) -> Any:
    """A run's marginals as a frame; see `Run.to_pandas`."""
    pandas = optional("pandas", "pandas")
    if run.counts is None:
        raise SampleError('this run kept no marginals; sample with record=("marginals",)')
    places = _places(pandas, run, shape)
    values = [run.domains.values(variable) for variable in range(len(run.domains))]
    if wide:
        return _wide(pandas, run, values, places)
    frame = places.take(np.repeat(np.arange(len(places)), run.domains.sizes)).reset_index(drop=True)
    frame["value"] = [value for row in values for value in row]
    frame["probability"] = run.counts.sum(axis=0) / max(int(run.clock.sum()), 1)
    frame["standard_error"] = _standard_error(run)
    return frame


def _places(pandas: Any, run: Run, shape: Sequence[int] | None) -> Any:
    """One row per variable: its name, or where it lies on a lattice."""
    count = len(run.domains)
    if shape is None:
        names = [run.domains.name(variable) for variable in range(count)]
        column = pandas.Categorical.from_codes(np.arange(count), names)
        return pandas.DataFrame({"variable": column})
    sides = tuple(shape)
    whole = all(isinstance(side, int | np.integer) and side > 0 for side in sides)
    if not whole or math.prod(sides) != count:
        raise SampleError(f"shape must be that of {count} variables, got {sides}")
    axes = np.unravel_index(np.arange(count), sides)
    names = ["row", "column"] if len(sides) == 2 else [f"axis{k}" for k in range(len(sides))]
    return pandas.DataFrame(dict(zip(names, axes, strict=True)))


def _standard_error(run: Run) -> NDArray[np.float64]:
    """Of the pooled marginals, from how far chains lie apart; NaN for a single chain."""
    assert run.counts is not None
    chains = run.counts / np.maximum(run.clock, 1)[:, None]
    if len(chains) < 2:
        return np.full(chains.shape[1], np.nan)
    result: NDArray[np.float64] = chains.std(axis=0, ddof=1) / math.sqrt(len(chains))
    return result


def _wide(pandas: Any, run: Run, values: list[tuple[Any, ...]], places: Any) -> Any:
    """A row per variable, a column per value; NaN where a variable has no such value."""
    columns = {value: k for k, value in enumerate(dict.fromkeys(v for row in values for v in row))}
    table = np.full((len(values), len(columns)), np.nan)
    for variable, row in enumerate(values):
        table[variable, [columns[value] for value in row]] = run.marginals[variable, : len(row)]
    if list(places.columns) == ["variable"]:
        index = pandas.Index(places["variable"].astype(object), name="variable")
    else:
        index = pandas.MultiIndex.from_frame(places)
    labels = pandas.Index(list(columns), name="value", tupleize_cols=False)
    return pandas.DataFrame(table, index=index, columns=labels)
