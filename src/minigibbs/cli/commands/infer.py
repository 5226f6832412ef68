"""Command `minigibbs infer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minigibbs.cli.model import read_model
from minigibbs.cli.options import (
    Dask,
    Evidence,
    Floor,
    Given,
    IgnoreEvidence,
    Json,
    Model,
    Out,
    Quiet,
    Seed,
    Show,
    Threads,
)
from minigibbs.cli.output import (
    EXIT_CODES,
    all_marginals,
    check_out,
    print_marginals,
    save_marginals,
    warn,
)
from minigibbs.system.files import check_target
from minigibbs.system.text import printable
from minigibbs.system.watch import INTERRUPTED, TERMINATED


def infer(
    model: Model,
    max_time: Annotated[str, typer.Option(help="Time limit, such as 20s, 5min or 1h.")] = "60s",
    standard_error: Annotated[
        float, typer.Option(help="Sample until no standard error of a marginal is larger.")
    ] = 0.005,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact/--no-exact",
            help="Whether to compute exactly if that fits into time and memory.",
        ),
    ] = True,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory that an exact answer may use, such as 4G [most of the free memory]."
        ),
    ] = None,
    chains: Annotated[int, typer.Option(help="Number of chains if the answer is sampled.")] = 4,
    seed: Seed = None,
    threads: Threads = None,
    dask: Dask = None,
    given: Given = None,
    evidence: Evidence = None,
    floor: Floor = None,
    ignore_evidence: IgnoreEvidence = False,
    show: Show = 10,
    out: Out = None,
    partition: Annotated[
        Path | None, typer.Option(help="Write log Z to this file, as a UAI .PR file.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute marginals and log Z, exactly or by sampling."""
    from minigibbs.formats.uai import write_partition
    from minigibbs.inference.infer import infer as answer_for
    from minigibbs.running.executors.dask import dask_client

    check_out(out, ["marginals"], as_json)
    if partition is not None:
        check_target(partition)
    graph = read_model(model, floor, ignore_evidence, evidence, given)
    with dask_client(dask) as client:
        answer = answer_for(
            graph,
            max_time,
            standard_error=standard_error,
            exact=exact,
            memory=memory,
            chains=chains,
            seed=seed,
            threads=threads,
            executor=client,
            progress=not quiet,
        )
    if partition is not None and answer.log_z is not None:
        write_partition(answer.log_z, partition)
    if out is not None:
        save_marginals(answer, out)
    if out != Path("-") and as_json:
        rows = all_marginals(answer) if show > 0 else {}
        typer.echo(json.dumps({**answer.to_dict(), "marginals": rows}))
    elif out != Path("-"):
        for label, value in answer.rows():
            typer.echo(f"{label:<12}{value}")
        print_marginals(answer, show)
        for note in graph.domains.notes:
            typer.echo(f"note: {printable(note)}")
        for path in filter(None, (out, partition)):
            typer.echo(f"saved: {printable(path)}")
    if partition is not None and answer.log_z is None:
        warn(f"{partition} was not written: log Z is not known by {answer.method}")
    for text in answer.warnings:
        warn(text)
    ended = "" if answer.run is None else answer.run.info.ended
    if ended in (INTERRUPTED, TERMINATED):
        raise typer.Exit(EXIT_CODES[ended])
