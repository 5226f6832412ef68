"""The function `mg.repair`: find and correct errors in a table, with probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigibbs.errors import LearnError
from minigibbs.repairing.constraints import read_rules
from minigibbs.repairing.model import Model, chosen, fit
from minigibbs.repairing.result import RepairedTable
from minigibbs.repairing.table import MISSING, Table, read_table
from minigibbs.running.request import entropy_of
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Stage


@checked(LearnError)
def repair(
    frame: Any,
    constraints: str | Sequence[str] | None = None,
    labels: Mapping[int, Mapping[str, Any]] | None = None,
    *,
    columns: Sequence[str] | None = None,
    automatic: bool = True,
    certainty: float = 0.5,
    missing: Sequence[Any] = ("",),
    seed: int = 0,
    progress: bool = True,
) -> RepairedTable:
    """Find cells of a table that are probably wrong, and estimate their true values.

    Every cell is a variable. Its candidates are its own value, values that co-occur with other
    cells of the row, and values that it may be a typo of. Features with tied weights score the
    candidates: their frequency, other columns that predict the column, rules, similarity of text,
    and votes of rows that describe the same entity. Weights are learned from the other cells of the
    table, and from labels. No cell is evidence for its own value.

    Parameters
    ----------
    frame : frame or mapping
        The table, of pandas, Polars or PyArrow, or a mapping from names to columns.
    constraints : str or sequence of str, optional
        Rules, one per line: dependencies such as `zip, street -> city`, or denial constraints in
        the notation of HoloClean, `t1&t2&EQ(t1.zip,t2.zip)&IQ(t1.city,t2.city)`.
    labels : mapping, optional
        True values of cells in some rows: `{row: {column: value}}`, with rows by position.
    columns : list of str, optional
        The columns whose cells may be wrong. By default all.
    automatic : bool, default True
        Whether to find and use columns that predict other columns.
    certainty : float, default 0.5
        A cell is changed if another value has at least this probability. Missing cells get their
        most probable value.
    missing : sequence, default ("",)
        Entries that mean a missing cell, in addition to None and NaN.
    seed : int, default 0
        Seed that selects the cells from which weights are learned.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.

    Returns
    -------
    RepairedTable
        The repaired table, the changed cells and their probabilities.

    Raises
    ------
    MinigibbsError
        If the frame is not a table, or a rule cannot be parsed.

    Examples
    --------
    >>> import minigibbs as mg
    >>> rows = {"zip": ["1", "2", "3"] * 20, "city": ["Rome", "Oslo", "Paris"] * 20}
    >>> rows["city"][7] = "Osxo"
    >>> found = mg.repair(rows, "zip -> city")
    >>> [found.cells[name].tolist() for name in ("row", "before", "after")]
    [[7], ['Osxo'], ['Oslo']]
    """
    entropy_of(seed)
    if not 0.0 < certainty <= 1.0:
        raise LearnError(f"certainty must be above 0 and at most 1, got {certainty}")
    with Stage("reading the table", progress):
        table = read_table(frame, "frame", missing)
        table, known = read_labels(table, labels)
    with Stage("learning weights", progress):
        model = fitted(table, constraints, known, columns, automatic, seed)
    with Stage("repairing cells", progress):
        return answered(model, frame, table, known, certainty)


def fitted(
    table: Table,
    constraints: str | Sequence[str] | None,
    known: Mapping[tuple[int, int], int],
    columns: Sequence[str] | None,
    automatic: bool,
    seed: int,
) -> Model:
    """Return the model of a table of codes."""
    rules = read_rules(constraints, table)
    some = (
        range(len(table.names)) if columns is None else [table.index(c, "columns") for c in columns]
    )
    return fit(table, rules, known, automatic, list(some), seed)


def answered(
    model: Model, frame: Any, table: Table, known: Mapping[tuple[int, int], int], certainty: float
) -> RepairedTable:
    """Return the repair of a table by a model."""
    found, probability = model.answer(table)
    codes = chosen(table.codes, found, probability, certainty)
    for (row, column), code in known.items():
        codes[row, column] = code
    return RepairedTable(frame, table, model, found, probability, codes, dict(known))


def read_labels(
    table: Table, labels: Mapping[int, Mapping[str, Any]] | None
) -> tuple[Table, dict[tuple[int, int], int]]:
    """Return true codes by (row, column), and the table with the new values added."""
    values = [dict.fromkeys(one) for one in table.values]
    places = [{value: code for code, value in enumerate(one)} for one in values]
    found: dict[tuple[int, int], int] = {}
    for row, cells in (labels or {}).items():
        if not 0 <= row < len(table):
            raise LearnError(f"labels: there is no row {row}; there are {len(table):,} rows")
        for name, value in cells.items():
            column = table.index(str(name), f"labels, row {row}")
            if table.is_blank(value):
                found[row, column] = MISSING
            else:
                found[row, column] = places[column].setdefault(value, len(places[column]))
    whole = tuple(tuple(place) for place in places)
    return Table(table.names, whole, np.array(table.codes), table.blank), found
