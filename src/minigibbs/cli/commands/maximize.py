"""Command `minigibbs maximize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minigibbs.cli.model import read_model
from minigibbs.cli.options import (
    Evidence,
    Floor,
    Given,
    IgnoreEvidence,
    Json,
    Model,
    Quiet,
    Seed,
    Threads,
)
from minigibbs.cli.output import EXIT_CODES, check_out, warnings_in_lines
from minigibbs.results.tables import print_state, write_state
from minigibbs.system.text import printable

_STDOUT = Path("-")


def maximize(
    model: Model,
    max_time: Annotated[str, typer.Option(help="Time limit, such as 10s, 5min or 1h.")] = "10s",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds per chain, instead of a time limit.")
    ] = None,
    chains: Annotated[
        int | None, typer.Option(help="Number of independent searches [one per thread].")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Try to prove that no state is better.")
    ] = False,
    seed: Seed = None,
    threads: Threads = None,
    given: Given = None,
    evidence: Evidence = None,
    floor: Floor = None,
    ignore_evidence: IgnoreEvidence = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the state to this file as CSV; - prints it."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for the most probable state: MAP or ground state."""
    from minigibbs.inference.maximize import maximize as search

    check_out(out, ["marginals"], as_json)
    graph = read_model(model, floor, ignore_evidence, evidence, given)
    with warnings_in_lines():
        best = search(
            graph,
            max_time,
            rounds=rounds,
            chains=chains,
            seed=seed,
            threads=threads,
            progress=not quiet,
            prove=prove,
        )
    if out == _STDOUT:
        print_state(best, typer.get_text_stream("stdout"))
    elif out is not None:
        write_state(best, out)
    if as_json:
        typer.echo(json.dumps(best.to_dict()))
    elif out != _STDOUT:
        typer.echo(str(best))
        if out is not None:
            typer.echo(f"saved: {printable(out)}")
    if best.ended in ("interrupted", "terminated"):
        raise typer.Exit(EXIT_CODES[best.ended])
