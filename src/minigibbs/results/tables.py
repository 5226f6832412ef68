"""Tables of a run's marginals: the most uncertain ones, CSV files and pandas frames."""

from __future__ import annotations

import codecs
import csv
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.results.marginals import Marginal, Shares
from minigibbs.system.files import write_whole
from minigibbs.system.optional import optional
from minigibbs.system.text import cell, printable

if TYPE_CHECKING:
    from minigibbs.results.maximum import Maximum
    from minigibbs.results.result import Result

_OTHERS = {  # endings of files that `save` does not write, and what writes them
    ".html": "report(path)",
    ".json": "json.dump with to_dict() of the answer or of run.summary()",
    ".mar": "minigibbs.formats.uai.write_marginals(result, path)",
    ".nc": "to_arviz() of the run",
    ".parquet": "to_pandas().to_parquet(path)",
    ".tsv": "to_pandas().to_csv(path, sep='\\t')",
    ".txt": "an ending in .csv",
    ".xlsx": "to_pandas().to_excel(path)",
}
COLUMNS = ("variable", "name", "value", "probability", "standard_error", "low", "high")


def rows(run: Result) -> list[NDArray[np.float64]]:
    """Return a run's marginals, one array per variable, without the padding of `run.marginals`."""
    return np.split(run.shares.pooled, np.cumsum(run.domains.sizes)[:-1])


def uncertain(run: Result, most: int, values: int = 10) -> dict[int, Marginal]:
    """Return at most `most` variables with the largest entropy, most probable values first."""
    marginals = run.shares
    chosen = np.argsort(-marginals.entropy, kind="stable")[:most]
    found = {}
    for variable in sorted(chosen[marginals.entropy[chosen] > 0].tolist()):
        row = marginals.pooled[marginals.of_variable(variable)]
        order = np.argsort(-row, kind="stable")[:values]
        called = run.domains.values(variable)
        found[variable] = Marginal(tuple(called[k] for k in order.tolist()), row[order])
    return found


def shown(marginal: Marginal, size: int, most: int = 4) -> str:
    """Format a marginal of `uncertain` in one line; `size` is the variable's number of values."""
    pairs = zip(marginal.values[:most], marginal.probability[:most].tolist(), strict=True)
    parts = [f"{printable(value)} {probability:.4f}" for value, probability in pairs]
    return ", ".join([*parts, "..."] if size > most else parts)


def write_csv(run: Result, path: str | os.PathLike[str]) -> None:
    """Write a run's marginals as CSV, one line per value of each variable.

    Standard errors and 95% intervals come from differences between chains; one chain has none.
    Names and labels are escaped so that neither terminals nor spreadsheets execute them; see
    `system.text`.
    """
    _ = run.shares  # raises if there are none, before anything is written
    write_whole(path, lambda stream: print_csv(run, codecs.getwriter("utf-8")(stream)))


def write_as_named(result: Result, path: str | os.PathLike[str]) -> bool:
    """Write marginals to a .csv file; reject endings of other known formats.

    Returns whether the file was written. All other names are left to the library's own format.
    """
    ending = Path(path).suffix.lower()
    if ending == ".csv":
        write_csv(result, path)
    elif ending in _OTHERS:
        raise SampleError(f"{path}: save does not write {ending} files; use {_OTHERS[ending]}")
    return ending == ".csv"


def print_csv(run: Result, stream: Any) -> None:
    """Write a run's marginals as CSV to a text stream."""
    marginals, writer = run.shares, csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_lines(run, marginals))


def write_state(best: Maximum, path: str | os.PathLike[str]) -> None:
    """Write a state as CSV, one line per variable."""
    write_whole(path, lambda stream: print_state(best, codecs.getwriter("utf-8")(stream)))


def print_state(best: Maximum, stream: Any) -> None:
    """Write a state as CSV to a text stream."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("variable", "name", "value"))
    for variable in range(len(best.domains)):
        writer.writerow((variable, cell(best.domains.name(variable)), cell(best.value(variable))))


def _lines(run: Result, marginals: Shares) -> Iterator[tuple[object, ...]]:
    numbers = zip(
        marginals.pooled.tolist(),
        marginals.standard_errors.tolist(),
        marginals.intervals().tolist(),
        strict=True,
    )
    for variable in range(len(run.domains)):
        name = cell(run.domains.name(variable))
        for value in run.domains.values(variable):
            probability, error, (low, high) = next(numbers)
            spread = ("" if math.isnan(x) else f"{x:.4g}" for x in (error, low, high))
            yield variable, name, cell(value), repr(probability), *spread


def to_pandas(run: Result, wide: bool = False, shape: Sequence[int] | None = None) -> Any:
    """Return a run's marginals as a frame; see `Run.to_pandas`."""
    pandas = optional("pandas", "pandas")
    marginals = run.shares
    places = _places(pandas, run, shape)
    values = [run.domains.values(variable) for variable in range(len(run.domains))]
    if wide:
        return _wide(pandas, run, values, places)
    frame = places.take(np.repeat(np.arange(len(places)), run.domains.sizes)).reset_index(drop=True)
    frame["value"] = [value for row in values for value in row]
    frame["probability"] = marginals.pooled
    frame["standard_error"] = marginals.standard_errors
    frame["low"], frame["high"] = marginals.intervals().T
    return frame


def _places(pandas: Any, run: Result, shape: Sequence[int] | None) -> Any:
    """One row per variable: its name, or its position on a lattice."""
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


def _wide(pandas: Any, run: Result, values: list[tuple[Any, ...]], places: Any) -> Any:
    """Return one row per variable, one column per value; NaN outside a variable's values."""
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
