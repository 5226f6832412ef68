"""A run's marginals as rows: the most uncertain ones to show, all of them as CSV."""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.results import diagnostics
from minigibbs.results.run import Marginal, Run
from minigibbs.system.files import write_whole

_COLUMNS = ("variable", "name", "value", "probability", "standard_error")


def rows(run: Run) -> list[NDArray[np.float64]]:
    """A run's marginals, one array per variable, without the padding of `run.marginals`."""
    return np.split(_flat(run), np.cumsum(run.domains.sizes)[:-1])


def uncertain(run: Run, most: int, values: int = 10) -> dict[int, Marginal]:
    """The variables of the largest entropy, at most so many, with their likeliest values first."""
    flat = _flat(run)
    information = -flat * np.log(np.where(flat > 0, flat, 1.0))
    first = np.cumsum(run.domains.sizes, dtype=np.int64) - run.domains.sizes
    entropy = np.add.reduceat(information, first)
    chosen = np.argsort(-entropy, kind="stable")[:most]
    found = {}
    for variable in sorted(chosen[entropy[chosen] > 0].tolist()):
        row = flat[first[variable] : first[variable] + run.domains.sizes[variable]]
        order = np.argsort(-row, kind="stable")[:values]
        called = run.domains.values(variable)
        found[variable] = Marginal(tuple(called[k] for k in order.tolist()), row[order])
    return found


def shown(marginal: Marginal, size: int, most: int = 4) -> str:
    """A marginal of `uncertain` in a line; `size` is how many values the variable has."""
    pairs = zip(marginal.values[:most], marginal.probability[:most].tolist(), strict=True)
    parts = [f"{value} {probability:.4f}" for value, probability in pairs]
    return ", ".join([*parts, "..."] if size > most else parts)


def write_csv(run: Run, path: str | os.PathLike[str]) -> None:
    """Write a run's marginals as CSV, a line for each value of each variable.

    Standard errors come from how the chains differ; one chain has none.
    """
    lines = _lines(run, rows(run))

    def write(stream: IO[bytes]) -> None:
        text = codecs.getwriter("utf-8")(stream)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(lines)

    write_whole(path, write)


def _lines(run: Run, marginals: list[NDArray[np.float64]]) -> Iterator[tuple[object, ...]]:
    errors = None
    if len(run.clock) > 1 and run.counts is not None and run.clock.min() > 0:
        errors = diagnostics.standard_errors(run.counts, run.clock, run.domains.sizes)
    place = 0
    for variable, row in enumerate(marginals):
        name = run.domains.name(variable)
        for value, probability in zip(run.domains.values(variable), row.tolist(), strict=True):
            error = "" if errors is None else f"{errors[place]:.3g}"
            yield variable, name, value, repr(probability), error
            place += 1


def _flat(run: Run) -> NDArray[np.float64]:
    if run.counts is None:
        raise SampleError('this run kept no marginals; sample with record=("marginals",)')
    if not run.clock.sum():
        raise SampleError("this run has no marginals: it made no updates after its warm-up")
    flat: NDArray[np.float64] = run.counts.sum(axis=0) / run.clock.sum()
    return flat
