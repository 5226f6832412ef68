"""Command `minigibbs explain`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from minigibbs.cli.model import read_model
from minigibbs.cli.options import Evidence, Floor, Given, IgnoreEvidence, Json, Model
from minigibbs.system.text import printable


def explain(
    model: Model,
    given: Given = None,
    evidence: Evidence = None,
    floor: Floor = None,
    ignore_evidence: IgnoreEvidence = False,
    scan: Annotated[
        str | None,
        typer.Option(help="Order of updates, as for `minigibbs sample` [chosen for the model]."),
    ] = None,
    backend: Annotated[str, typer.Option(help="cpu or cuda. No GPU is needed.")] = "cpu",
    chains: Annotated[int | None, typer.Option(help="The number of chains of the run.")] = None,
    trials: Annotated[
        str | None,
        typer.Option(help="Time of short trials of all samplers, such as 10s; 0 for none."),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Measure the costs of operations on this machine first, once.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the samplers on a model: costs and short trials."""
    from minigibbs.explanation.costs import machine_costs
    from minigibbs.explanation.explain import explain as compare

    graph = read_model(model, floor, ignore_evidence, evidence, given)
    if measure:
        machine_costs()
    limit = 0.0 if trials == "0" or backend != "cpu" else trials
    explanation = compare(graph, scan=scan, backend=backend, chains=chains, trials=limit)
    typer.echo(json.dumps(explanation.to_dict()) if as_json else str(explanation))
    for note in () if as_json else graph.domains.notes:
        typer.echo(f"note: {printable(note)}")
