"""Command `minigibbs learn`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from minigibbs.cli.model import read_model
from minigibbs.cli.options import Every, Json, MaxTime, Model, Quiet, Seed, Threads
from minigibbs.cli.output import EXIT_CODES, warn
from minigibbs.cli.rows import read_csv
from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.files import check_source, check_target
from minigibbs.system.text import printable


def learn(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Rows of data: a .csv file whose first line has the names of variables, or a .npy "
            "file of numbers. By default the evidence of the model."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="pcd, cd, pseudo or exact.")] = "pcd",
    steps: Annotated[
        int | None,
        typer.Option(help="Largest number of gradient steps [1000 to 4000, until convergence]."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="First step size of pcd and cd [0.05; natural gradient 0.02]."),
    ] = None,
    chains: Annotated[
        int | None, typer.Option(help="Number of chains of the model [up to 1000].")
    ] = None,
    sweeps: Annotated[int, typer.Option(help="Sweeps per chain and step.")] = 1,
    l1: Annotated[float, typer.Option(help="Penalty on absolute values of parameters.")] = 0.0,
    l2: Annotated[float, typer.Option(help="Penalty on squares of parameters.")] = 0.0,
    start: Annotated[
        str | None, typer.Option(help="First parameters: given, independent or pseudo [given].")
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(
            help="Stop when no moment of the model differs from the data by more, relative to its "
            "range."
        ),
    ] = None,
    max_time: MaxTime = None,
    seed: Seed = None,
    threads: Threads = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Save progress to this file.")] = None,
    every: Every = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from --checkpoint with its settings.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the fit to this file, for mg.load.")
    ] = None,
    learned: Annotated[
        Path | None, typer.Option(help="Write the learned model to this .mg file.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report about the fit.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn named parameters from data or from evidence."""
    from minigibbs.formats import write
    from minigibbs.learning.api import learn as fit_of
    from minigibbs.learning.api import resume_learning

    for path in filter(None, (out, learned, report)):
        check_target(path)
    if resume:
        if checkpoint is None:
            raise LearnError("--resume continues from a checkpoint: give --checkpoint")
        fit = resume_learning(
            checkpoint, steps, max_time=max_time, threads=threads, progress=not quiet
        )
    else:
        graph = read_model(model, None, False, None, None)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # `fit.warnings` has them
            fit = fit_of(
                graph,
                None if data is None else read_rows(graph, data),
                method,
                steps=steps,
                rate=rate,
                chains=chains,
                sweeps=sweeps,
                l1=l1,
                l2=l2,
                start=start,
                tol=tol,
                max_time=max_time,
                seed=seed,
                threads=threads,
                checkpoint=checkpoint,
                every=every,
                progress=not quiet,
            )
    if out is not None:
        fit.save(out)
    if learned is not None:
        write(fit.graph, learned)
    if report is not None:
        fit.report(report)
    if as_json:
        typer.echo(json.dumps(fit.to_dict()))
    else:
        for label, value in [*fit.summary_rows(), *fit.parameter_rows()]:
            typer.echo(f"{label:<12}{value}")
        for path in filter(None, (out, learned, report)):
            typer.echo(f"saved: {printable(path)}")
    for text in fit.warnings:
        warn(text)
    if fit.ended in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[fit.ended])


def read_rows(graph: FactorGraph, path: Path) -> Any:
    """Read rows of data from a file."""
    import numpy as np

    if path.suffix not in (".csv", ".npy"):
        raise LearnError(f"{path}: data are a .csv or .npy file")
    check_source(path, "rows of data")
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    columns: dict[str, Any] = {}
    for name, texts in read_csv(path).items():
        labels = graph.domains.values(graph.domains.index(name))
        cells = [_cell(text, labels) for text in texts]
        columns[name] = np.array([*cells, None], dtype=object)[:-1]
    return columns


def _cell(text: str, labels: tuple[Any, ...]) -> Any:
    """Return a cell as a label or a number; None if it is empty."""
    if text == "":
        return None
    if text in labels:
        return text
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
