"""Options that several commands share, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model file; a ready-made model with its arguments, such as "
        "potts-rbf:side=20,states=10; or standard input with the ending of its format, such as "
        "stdin:uai.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random draws.")]
Given = Annotated[
    list[str] | None,
    typer.Option("--given", help="Clamp a variable, such as x3=1. May be repeated."),
]
Evidence = Annotated[
    Path | None, typer.Option("--evidence", help="Clamp the variables of a UAI .evid file.")
]
Floor = Annotated[
    float | None,
    typer.Option(
        help="Raise smaller probabilities in a .uai, .bif or .xmlbif file to this one, which "
        "changes the model."
    ),
]
IgnoreEvidence = Annotated[
    bool, typer.Option("--ignore-evidence", help="Do not clamp the evidence of a DimmWitted graph.")
]
Show = Annotated[
    int,
    typer.Option(
        help="Number of marginals to print, the most uncertain first. JSON holds all marginals, or "
        "none with --show 0."
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Number of chains that run at the same time [one per core].")
]
Every = Annotated[str | None, typer.Option(help="Time between saves, such as 5min [30s].")]
MaxTime = Annotated[str | None, typer.Option(help="Time limit, such as 60s, 5min or 1h [none].")]
Dask = Annotated[
    str | None,
    typer.Option("--dask", help="Address of a Dask scheduler to run on, such as tcp://host:8786."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Save the result to this file. A name that ends in .csv or .MAR (UAI) gets the "
        "marginals instead; - prints them as CSV.",
    ),
]
