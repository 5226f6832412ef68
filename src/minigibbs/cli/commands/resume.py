"""Command `minigibbs resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minigibbs.cli.options import Dask, Every, Json, MaxTime, Out, Quiet, Show, Threads
from minigibbs.cli.output import check_out, finish, stopping_in_order


def resume(
    checkpoint: Annotated[Path, typer.Argument(help="The folder given to --checkpoint.")],
    updates: Annotated[
        int | None, typer.Option(help="Updates per chain beyond those planned.")
    ] = None,
    sweeps: Annotated[
        int | None, typer.Option(help="Sweeps per chain beyond those planned.")
    ] = None,
    threads: Threads = None,
    max_time: MaxTime = None,
    every: Every = None,
    dask: Dask = None,
    show: Show = 10,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run from its checkpoint, and print a summary."""
    from minigibbs.running.api import resume as go_on
    from minigibbs.running.checkpoint.folder import Checkpoint
    from minigibbs.running.executors.dask import dask_client

    check_out(out, Checkpoint.inspect(checkpoint).recorded(), as_json)
    with dask_client(dask) as client, stopping_in_order(out, as_json, show):
        run = go_on(
            checkpoint,
            updates=updates,
            sweeps=sweeps,
            threads=threads,
            executor=client,
            every=every,
            max_time=max_time,
            progress=not quiet,
        )
    finish(run, out, as_json, show)
