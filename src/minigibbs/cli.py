"""The command line: progress on stderr, results on stdout, `--json` for machines."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Container
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minigibbs._version import __version__
from minigibbs.errors import MinigibbsError, SampleError

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
    threads: Annotated[int | None, typer.Option(help="Chains to run at a time.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--given", help="Clamp a variable: --given x3=1")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", help="Clamp the variables of a UAI .evid file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Save the run here; a name in .MAR gets UAI marginals instead."
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sample a model and print a summary."""
    from minigibbs.run import sample as run_chains

    kept = [name.strip() for name in record.split(",") if name.strip()]
    if out is not None:
        _check_out(out, kept)
    graph = _condition(_observe(_model(model), evidence), given or [])
    run = run_chains(
        graph,
        sampler=sampler,
        updates=updates,
        sweeps=sweeps,
        warmup=warmup,
        chains=chains,
        seed=seed,
        scan=scan,
        record=kept,
        thin=thin,
        threads=threads,
        progress=not quiet,
    )
    if out is not None:
        _save(run, out)
    _report(run, as_json, saved=None if out is None else str(out))


@app.command()
def explain(model: Model, as_json: Json = False) -> None:
    """Say how large a model is in the paper's terms, and what each sampler would cost."""
    from minigibbs.explanation import explain as compare

    explanation = compare(_model(model))
    typer.echo(json.dumps(explanation.to_dict()) if as_json else str(explanation))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that `sample --out` saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    shape: Annotated[
        str | None, typer.Option(help="Rows and columns of a lattice: --shape 20x30")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's heading [the file's name].")] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a run: whether to trust it, and what it says."""
    from minigibbs.files import check_target
    from minigibbs.record import load
    from minigibbs.report import read_shape, write

    if not run.is_file():
        raise SampleError(
            f"no such run: {run} is no file; `minigibbs sample MODEL --out {run}` makes one"
        )
    check_target(output)
    sides = None if shape is None else read_shape(shape)
    write(load(run), output, run.name if title is None else title, sides)
    typer.echo(json.dumps({"report": str(output)}) if as_json else f"report: {output}")


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
