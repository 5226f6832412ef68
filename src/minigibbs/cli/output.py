"""Output of commands: results are saved, then printed; warnings on stderr; exit codes."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from minigibbs.errors import SampleError, StoppedError
from minigibbs.formats.uai import write_marginals
from minigibbs.interop.common import unique_names
from minigibbs.results import tables
from minigibbs.results.answer import Answer
from minigibbs.results.run import Run
from minigibbs.results.summary import for_json
from minigibbs.system.files import check_target
from minigibbs.system.text import printable
from minigibbs.system.watch import INTERRUPTED, TERMINATED, TIME

# Exit codes of commands that ended early; 0 means that all work was done.
EXIT_CODES = {INTERRUPTED: 130, TERMINATED: 143, TIME: 3}
_STDOUT = Path("-")


def check_out(out: Path | None, kept: list[str], as_json: bool) -> None:
    """Refuse an output that cannot be written, before any sampling."""
    if out is None:
        return
    if out != _STDOUT:
        check_target(out)
    elif as_json:
        raise SampleError("--out - and --json both print on stdout: give one of them")
    if (out == _STDOUT or out.suffix in (".MAR", ".csv")) and "marginals" not in kept:
        raise SampleError(f"{out} holds marginals: add marginals to --record")


@contextmanager
def warnings_in_lines() -> Iterator[None]:
    """Print every warning as a line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: warn(str(message))
        yield


@contextmanager
def stopping_in_order(out: Path | None, as_json: bool, show: int) -> Iterator[None]:
    """Save and report the results of a stopped run, and print warnings as lines."""
    with warnings_in_lines():
        try:
            yield
        except StoppedError as error:
            if error.run is not None:
                _keep_what_there_is(error.run, out, as_json, show)
            raise


def finish(run: Run, out: Path | None, as_json: bool, show: int, **extra: Any) -> None:
    """Save and report a run; the exit code tells whether it ended early."""
    if run.info.ended not in EXIT_CODES:
        keep(run, out, as_json, show, **extra)
        return
    _keep_what_there_is(run, out, as_json, show, **extra)
    raise typer.Exit(EXIT_CODES[run.info.ended])


def _keep_what_there_is(run: Run, out: Path | None, as_json: bool, show: int, **extra: Any) -> None:
    """Save and report a run that ended early, perhaps before anything was recorded."""
    try:
        keep(run, out, as_json, show, **extra)
    except SampleError as error:
        warn(f"{out} was not written: {error}")


def keep(run: Run, out: Path | None, as_json: bool, show: int, **extra: Any) -> None:
    """Save a run, then print its results."""
    if out is not None:
        save_marginals(run, out)
    if out == _STDOUT:
        for note in extra.get("notes", ()):
            typer.echo(f"note: {printable(note)}", err=True)
        for warning in run.summary().warnings:
            warn(warning)
        return
    print_run(run, as_json, show, saved=None if out is None else str(out), **extra)


def save_marginals(result: Run | Answer, out: Path) -> None:
    """Save a result, or its marginals if the name ends in .csv or .MAR, or is - for stdout."""
    if out == _STDOUT:
        tables.print_csv(result, sys.stdout)
    elif out.suffix == ".MAR":
        write_marginals(result, out)
    elif out.suffix == ".csv":
        tables.write_csv(result, out)
    else:
        result.save(out)


def print_run(run: Run, as_json: bool, show: int, **extra: Any) -> None:
    """Print a run's summary and its most uncertain marginals, as a table or as JSON."""
    summary = run.summary()
    recorded = run.counts is not None and run.visits.sum() > 0
    if as_json:
        rows = all_marginals(run) if recorded and show > 0 else {}
        info = {key: for_json(value) for key, value in asdict(run.info).items()}
        info["seed"] = str(run.info.seed)
        whole = {**summary.to_dict(), "info": info, "marginals": rows, **extra}
        typer.echo(json.dumps(whole))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for label, value in summary.rows():
        table.add_row(label, Text(value))  # no markup: names may contain brackets
    Console(file=sys.stdout).print(table)
    if recorded:
        print_marginals(run, show)
    for note in extra.pop("notes", ()):
        typer.echo(f"note: {printable(note)}")
    for label, value in extra.items():
        if value is not None:
            typer.echo(f"{label}: {printable(value)}")
    for warning in summary.warnings:
        warn(warning)


def all_marginals(result: Run | Answer) -> dict[str, dict[str, float]]:
    """Return the marginals of all variables by name, for JSON, including clamped ones."""
    domains = result.domains
    return {
        domains.name(variable): by_label(domains.values(variable), shares)
        for variable, shares in enumerate(tables.rows(result))
    }


def by_label(values: tuple[Any, ...], probability: NDArray[np.float64]) -> dict[str, float]:
    """Return probabilities by label, for JSON; 1 and "1" get different labels."""
    return dict(zip(unique_names(values), probability.tolist(), strict=True))


def print_marginals(result: Run | Answer, show: int) -> None:
    """Print at most `show` of the most uncertain marginals."""
    chosen = tables.uncertain(result, show) if show > 0 else {}
    if chosen:
        typer.echo(
            f"\nmarginals of the {len(chosen)} most uncertain variables (--out X.csv: of all)"
        )
    for variable, marginal in chosen.items():
        text = tables.shown(marginal, int(result.domains.sizes[variable]))
        typer.echo(f"  {printable(result.domains.name(variable))}: {text}")


def warn(text: str) -> None:
    """Print a warning on stderr."""
    typer.echo(f"warning: {printable(text)}", err=True)
