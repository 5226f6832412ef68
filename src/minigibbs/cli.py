"""The command line: progress on stderr, results on stdout, `--json` for machines."""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minigibbs._version import __version__
from minigibbs.errors import MinigibbsError, SampleError, StoppedError

if TYPE_CHECKING:
    from minigibbs.graph import FactorGraph
    from minigibbs.record import Run

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Exact, fast sampling of large discrete graphical models.",
)

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model file, or a generator by name: potts-rbf:side=20,states=10",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Seed = Annotated[int | None, typer.Option(help="Fixes every draw.")]
Threads = Annotated[int | None, typer.Option(help="Chains to run at a time.")]
Every = Annotated[str | None, typer.Option(help="How often to save: 30s, 5min, 1h [30s].")]
MaxTime = Annotated[str | None, typer.Option(help="With --until: 60s, 5min, 1h.")]
Dask = Annotated[
    str | None, typer.Option("--dask", help="Run on a Dask cluster: tcp://scheduler:8786")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Save the run here; a name in .MAR gets UAI marginals instead."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minigibbs {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to draw.")] = Path(
        "minigibbs-demo.png"
    ),
    updates: Annotated[int, typer.Option(help="Updates of each chain.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Fixes every draw.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sample the paper's Potts model with 4 chains and draw the result."""
    from minigibbs.demo import check_picture, draw_demo, run_demo

    check_picture(output)
    run = run_demo(updates, seed, progress=not quiet)
    drawn = len(run.record_updates) > 0 or not run.interrupted  # else Ctrl-C came too early
    if drawn:
        draw_demo(run, output)
    _report(run, as_json, picture=str(output) if drawn else None)


@app.command()
def sample(
    model: Model,
    sampler: Annotated[str | None, typer.Option(help="By name; see `minigibbs explain`.")] = None,
    updates: Annotated[int | None, typer.Option(help="Updates of each chain.")] = None,
    sweeps: Annotated[int | None, typer.Option(help="Sweeps of each chain [1000].")] = None,
    warmup: Annotated[int, typer.Option(help="Updates before the recording.")] = 0,
    chains: Annotated[int, typer.Option(help="Independent chains.")] = 4,
    seed: Seed = None,
    scan: Annotated[str, typer.Option(help="random, systematic or shuffled.")] = "random",
    record: Annotated[
        str, typer.Option(help="What to keep: marginals, draws, energy.")
    ] = "marginals,energy",
    thin: Annotated[int | None, typer.Option(help="Updates between two records.")] = None,
    threads: Threads = None,
    until: Annotated[
        str | None, typer.Option(help="Run until the chains agree: rhat=1.01,ess=400")
    ] = None,
    max_time: MaxTime = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the run in this folder; see `minigibbs resume`.")
    ] = None,
    every: Every = None,
    dask: Dask = None,
    given: Annotated[
        list[str] | None, typer.Option("--given", help="Clamp a variable: --given x3=1")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="Clamp the variables of a UAI .evid file.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sample a model and print a summary."""
    from minigibbs.cluster import dask_client
    from minigibbs.run import sample as run_chains
    from minigibbs.run import sample_until

    kept = [name.strip() for name in record.split(",") if name.strip()]
    if out is not None:
        _check_out(out, kept)
    goal = _goal(until, updates, sweeps, max_time)
    graph = _condition(_observe(_model(model), evidence), given or [])
    options: dict[str, Any] = {
        "sampler": sampler,
        "warmup": warmup,
        "chains": chains,
        "seed": seed,
        "scan": scan,
        "record": kept,
        "thin": thin,
        "threads": threads,
        "checkpoint": checkpoint,
        "every": every,
        "progress": not quiet,
    }
    with dask_client(dask) as client, _stopping_in_order(out, as_json):
        if goal is None:
            run = run_chains(graph, updates=updates, sweeps=sweeps, executor=client, **options)
        else:
            run = sample_until(graph, executor=client, **goal, **options)
    _finish(run, out, as_json)


@app.command()
def resume(
    checkpoint: Annotated[Path, typer.Argument(help="The folder given to --checkpoint.")],
    updates: Annotated[int | None, typer.Option(help="So many more than planned.")] = None,
    sweeps: Annotated[int | None, typer.Option(help="So many more than planned.")] = None,
    threads: Threads = None,
    max_time: MaxTime = None,
    every: Every = None,
    dask: Dask = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run from its checkpoint, and print a summary."""
    from minigibbs.cluster import dask_client
    from minigibbs.run import resume as go_on

    if out is not None:
        _check_out(out, ["marginals"])
    with dask_client(dask) as client, _stopping_in_order(out, as_json):
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
    _finish(run, out, as_json)


@app.command()
def explain(model: Model, as_json: Json = False) -> None:
    """Say how large a model is in the paper's terms, and what each sampler would cost."""
    from minigibbs.explanation import explain as compare

    explanation = compare(_model(model))
    typer.echo(json.dumps(explanation.to_dict()) if as_json else str(explanation))


def _goal(
    until: str | None, updates: int | None, sweeps: int | None, max_time: str | None
) -> dict[str, Any] | None:
    """What `--until rhat=1.01,ess=400` asks for; None without it."""
    if until is None:
        if max_time is not None:
            raise SampleError("--max-time needs --until, such as --until rhat=1.01,ess=400")
        return None
    if updates is not None or sweeps is not None:
        raise SampleError("give --until, or a number of updates or sweeps, not both")
    goal: dict[str, Any] = {"rhat": None, "ess": None, "max_time": max_time}
    for part in until.split(","):
        name, equals, value = (text.strip() for text in part.partition("="))
        if name not in ("rhat", "ess") or not equals:
            raise SampleError(f"--until takes rhat=... and ess=..., got {part!r}")
        goal[name] = _value("--until", name, value, "float")
    return goal


@contextmanager
def _stopping_in_order(out: Path | None, as_json: bool) -> Iterator[None]:
    """Report what a run that had to stop has sampled, and warn in a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
        try:
            yield
        except StoppedError as error:
            if error.run is not None:
                _keep(error.run, out, as_json)
            raise


def _finish(run: Run, out: Path | None, as_json: bool) -> None:
    """Save and report a run; an interrupted one ends the program as Ctrl-C does."""
    _keep(run, out, as_json)
    if run.interrupted:
        raise typer.Exit(130)


def _keep(run: Run, out: Path | None, as_json: bool) -> None:
    if out is not None:
        _save(run, out)
    _print_run(run, as_json, saved=None if out is None else str(out))


def _check_out(out: Path, kept: list[str]) -> None:
    """Refuse an output that could not be written, before any sampling."""
    from minigibbs.files import check_target

    check_target(out)
    if out.suffix == ".MAR" and "marginals" not in kept:
        raise SampleError(f"{out} holds marginals: add marginals to --record")


def _save(run: Run, out: Path) -> None:
    """Save a run, or its marginals in the UAI format if the name ends in .MAR."""
    if out.suffix == ".MAR":
        from minigibbs.formats.uai import write_marginals

        write_marginals(run, out)
    else:
        run.save(out)


def _report(run: Run, as_json: bool, **extra: Any) -> None:
    """Print a run's summary; an interrupted one ends the program as Ctrl-C does."""
    _print_run(run, as_json, **extra)
    if run.interrupted:
        raise typer.Exit(130)


def _print_run(run: Run, as_json: bool, **extra: Any) -> None:
    summary = run.summary()
    if as_json:
        typer.echo(json.dumps({**summary.to_dict(), "info": asdict(run.info), **extra}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for label, value in summary.rows():
        table.add_row(label, value)
    Console(file=sys.stdout).print(table)
    for label, value in extra.items():
        if value is not None:
            typer.echo(f"{label}: {value}")
    for warning in summary.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _model(text: str) -> FactorGraph:
    """A model from `name:key=value,...` or from a file."""
    from minigibbs.formats import read
    from minigibbs.models import GENERATORS

    name, _, arguments = text.partition(":")
    if name not in GENERATORS:
        if not Path(text).is_file():
            raise SampleError(
                f"no such model: {text!r} is neither a file nor one of {', '.join(GENERATORS)}"
            )
        return read(text)
    generator = GENERATORS[name]
    parameters = inspect.signature(generator).parameters
    values: dict[str, Any] = {}
    for part in filter(None, arguments.split(",")):
        key, equals, value = part.partition("=")
        if key not in parameters or not equals:
            raise SampleError(
                f"{name} takes {', '.join(f'{key}=...' for key in parameters)}; got {part!r}"
            )
        values[key] = _value(name, key, value, str(parameters[key].annotation))
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in values]
    if missing:
        raise SampleError(f"{name} needs {', '.join(missing)}: {name}:{missing[0]}=...")
    return generator(**values)


def _value(name: str, key: str, text: str, kind: str) -> Any:
    read = {"int": int, "float": float, "bool": {"true": True, "false": False}.__getitem__}[kind]
    try:
        return read(text.lower())  # type: ignore[operator]
    except (ValueError, KeyError):
        raise SampleError(f"{name}: {key} must be of type {kind}, got {text!r}") from None


def _observe(graph: FactorGraph, evidence: Path | None) -> FactorGraph:
    """The graph with the evidence of a UAI file."""
    from minigibbs.formats.uai import read_evidence

    return graph if evidence is None else graph.condition(read_evidence(evidence))


def _condition(graph: FactorGraph, given: list[str]) -> FactorGraph:
    for text in given:
        variable, equals, value = text.partition("=")
        if not equals:
            raise SampleError(f"--given takes VARIABLE=VALUE, got {text!r}")
        number = graph.domains.index(_typed(variable, graph.names or ()))
        labels = graph.domains.labels.get(number, ())
        graph = graph.condition({number: _typed(value, labels)})
    return graph


def _typed(text: str, known: Container[Any]) -> Any:
    """What a person means by a text: a name that is known, or the number it spells."""
    for read in (int, float) if text not in known else ():
        try:
            return read(text)
        except ValueError:
            continue
    return text


def main() -> None:
    """Run the command line; an error a person can act on is one line on stderr and exit 2."""
    try:
        app()
    except MinigibbsError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
