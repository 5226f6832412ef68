"""Rows of CSV files on the command line, as text."""

from __future__ import annotations

import codecs
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minigibbs.errors import LearnError
from minigibbs.system.files import check_source, write_whole


def read_csv(path: Path) -> dict[str, list[str]]:
    """Read the columns of a CSV file whose first line has their names."""
    check_source(path, "a .csv file")
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.reader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise LearnError(f"{path}: expected a CSV file in UTF-8: {error}") from None
    if len(rows) < 2:
        raise LearnError(f"{path}: expected a line with names, and then rows of values")
    names = rows[0]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise LearnError(
            f"{path}: expected values separated by commas, got one column called {names[0]!r}"
        )
    if len(set(names)) < len(names):
        raise LearnError(f"{path}: two columns have the same name")
    for number, row in enumerate(rows[1:]):
        if len(row) != len(names):
            raise LearnError(
                f"{path}, row {number}: expected {len(names)} values, got {len(row)}; put values "
                "with commas in quotation marks"
            )
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(names)}


def write_csv(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns to a CSV file, or to standard output for the name -; None is an empty cell.

    Cells are written as they were read, without the escapes of `system.text`, so that a table of
    the user comes back unchanged.
    """
    if path == Path("-"):
        _write(columns, sys.stdout)
    else:
        write_whole(path, lambda stream: _write(columns, codecs.getwriter("utf-8")(stream)))


def _write(columns: Mapping[str, Sequence[Any]], stream: Any) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
