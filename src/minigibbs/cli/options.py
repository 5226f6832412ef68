"""The options that commands share: each is defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model file, or a generator by name: potts-rbf:side=20,states=10. Or "
        "standard input, by the ending of its format: stdin:uai",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Seed = Annotated[int | None, typer.Option(help="Fixes every draw.")]
Given = Annotated[list[str] | None, typer.Option("--given", help="Clamp a variable: --given x3=1")]
Evidence = Annotated[
    Path | None, typer.Option("--evidence", help="Clamp the variables of a UAI .evid file.")
]
Floor = Annotated[
    float | None,
    typer.Option(
        help="Raise the zeros of a .uai or .bif file to this probability, which changes the model."
    ),
]
IgnoreEvidence = Annotated[
    bool, typer.Option("--ignore-evidence", help="Sample the evidence of a DimmWitted graph too.")
]
Show = Annotated[
    int,
    typer.Option(
        help="Marginals to print, the most uncertain ones. JSON holds those of all variables, or "
        "none with --show 0."
    ),
]
Threads = Annotated[int | None, typer.Option(help="Chains to run at a time.")]
Every = Annotated[str | None, typer.Option(help="How often to save: 30s, 5min, 1h [30s].")]
MaxTime = Annotated[str | None, typer.Option(help="With --until: 60s, 5min, 1h.")]
Dask = Annotated[
    str | None, typer.Option("--dask", help="Run on a Dask cluster: tcp://scheduler:8786")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Save the run here; a name in .csv or .MAR (UAI) gets the marginals instead, - prints "
        "them as CSV.",
    ),
]
