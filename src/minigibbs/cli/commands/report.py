"""Command `minigibbs report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minigibbs.cli.options import Json
from minigibbs.errors import SampleError


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run saved by `minigibbs sample --out`, or a checkpoint folder."
        ),
    ],
    output: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    shape: Annotated[
        str | None, typer.Option(help="Rows and columns of a lattice, such as 20x30.")
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Heading of the page [the name of the file].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML report about a run."""
    from minigibbs.results.report import read_shape, write
    from minigibbs.running.load import holds_run, load_run
    from minigibbs.system.files import check_target
    from minigibbs.system.text import printable

    if not run.exists() or not holds_run(run):
        raise SampleError(
            f"no such run: {run} is neither a saved run nor a checkpoint; "
            f"`minigibbs sample MODEL --out {run}` makes one"
        )
    check_target(output)
    sides = None if shape is None else read_shape(shape)
    write(load_run(run), output, run.name if title is None else title, sides)
    typer.echo(json.dumps({"report": str(output)}) if as_json else f"report: {printable(output)}")
