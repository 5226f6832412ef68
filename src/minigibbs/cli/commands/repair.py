"""Command `minigibbs repair`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from minigibbs.cli.options import Json, Quiet
from minigibbs.cli.output import warnings_in_lines
from minigibbs.cli.rows import read_csv, write_csv
from minigibbs.errors import LearnError
from minigibbs.system.files import check_source, check_target
from minigibbs.system.text import printable

_STDOUT = Path("-")


def repair(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="A .csv file whose first line has the names of the columns. Empty cells are "
            "missing.",
        ),
    ],
    rules: Annotated[
        Path | None,
        typer.Option(
            help="A text file with one rule per line, such as zip -> city, or a denial constraint."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="A .csv file of true values with the columns row, column and value. Rows count "
            "from 0."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column whose cells may be wrong. May be repeated [all columns]."),
    ] = None,
    automatic: Annotated[
        bool,
        typer.Option(
            "--automatic/--no-automatic", help="Whether to find columns that predict other columns."
        ),
    ] = True,
    certainty: Annotated[
        float, typer.Option(help="Change a cell if another value has at least this probability.")
    ] = 0.5,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="Text that means a missing cell, such as NA. May be repeated."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Selects the cells from which weights are learned.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the repaired table to this .csv file; - prints it."
        ),
    ] = None,
    changes: Annotated[
        Path | None, typer.Option(help="Write the changed cells to this .csv file; - prints them.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML report about the repair.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find wrong and missing cells of a table, and replace them."""
    from minigibbs.repairing.api import repair as repaired

    printed = [out, changes].count(_STDOUT) + as_json
    if printed > 1:
        raise LearnError("--out -, --changes - and --json print on stdout: give one of them")
    saved = [path for path in (out, changes, report) if path not in (None, _STDOUT)]
    for path in saved:
        check_target(path)
        if path is not report and path.suffix != ".csv":
            raise LearnError(f"{path}: tables are written as CSV; give a name that ends in .csv")
    if rules is not None:
        check_source(rules, "a text file of rules")
    with warnings_in_lines():
        found = repaired(
            read_csv(table),
            None if rules is None else rules.read_text(encoding="utf-8", errors="replace"),
            None if labels is None else read_labels(labels),
            columns=column,
            automatic=automatic,
            certainty=certainty,
            missing=["", *(missing or [])],
            seed=seed,
            progress=not quiet,
        )
    if out is not None:
        write_csv(found.frame, out)
    if changes is not None:
        write_csv(found.cells, changes)
    if report is not None:
        found.report(report)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    elif not printed:
        typer.echo(str(found))
        for path in saved:
            typer.echo(f"saved: {printable(path)}")


def read_labels(path: Path) -> dict[int, dict[str, Any]]:
    """Read true values by row and column."""
    columns = read_csv(path)
    if not {"row", "column", "value"} <= set(columns):
        raise LearnError(
            f"{path}: expected the columns row, column and value, got {', '.join(columns)}"
        )
    found: dict[int, dict[str, Any]] = {}
    for row, name, value in zip(columns["row"], columns["column"], columns["value"], strict=True):
        if not row.isdecimal():
            raise LearnError(f"{path}: row must be the number of a row, from 0; got {row!r}")
        found.setdefault(int(row), {})[name] = value
    return found
