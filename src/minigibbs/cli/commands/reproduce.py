"""Command `minigibbs reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minigibbs.cli.options import Json, Quiet


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="fig1, fig2a, fig2b, fig2c, neighbors, table1, theorems or all."
        ),
    ] = "all",
    output: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path(
        "reproduce"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Short runs, about a minute in total.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of chains per curve [5; quick: 2].")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished curves again.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper. A second call resumes an interrupted one."""
    from minigibbs.paper.page import report
    from minigibbs.paper.reproduce import reproduce as run_paper

    def tell(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    try:
        made = run_paper(target, output, quick, seeds, fresh, progress=not quiet, tell=tell)
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted: call again to continue; finished curves are in {output}", err=True
        )
        raise typer.Exit(130) from None
    typer.echo(json.dumps(made.to_dict()) if as_json else report(made))
