"""Command `minigibbs demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minigibbs.cli.options import Json, Quiet
from minigibbs.cli.output import EXIT_CODES, print_run
from minigibbs.system.text import printable


def demo(
    output: Annotated[Path, typer.Option("--out", "-o", help="The picture to write.")] = Path(
        "minigibbs-demo.png"
    ),
    updates: Annotated[int, typer.Option(help="Updates per chain.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sample the Potts model of the paper and draw a picture."""
    from minigibbs.cli.demo import check_picture, describe_demo, draw_demo, run_demo

    check_picture(output)
    run = run_demo(updates, seed, progress=not quiet)
    drawn = len(run.record_updates) > 0 or not run.interrupted  # else Ctrl-C came too early
    if drawn:
        draw_demo(run, output)
    if as_json:
        print_run(run, as_json, 0, picture=str(output) if drawn else None)
    elif drawn:
        typer.echo("\n".join([*describe_demo(run), "", f"picture: {printable(output)}"]))
    if run.info.ended in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[run.info.ended])
