"""The command line: progress on stderr, results on stdout, `--json` for machines."""

from __future__ import annotations

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
    from minigibbs.graph.graph import FactorGraph
    from minigibbs.results.run import Run

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
Given = Annotated[list[str] | None, typer.Option("--given", help="Clamp a variable: --given x3=1")]
Evidence = Annotated[
    Path | None, typer.Option("--evidence", help="Clamp the variables of a UAI .evid file.")
]
Floor = Annotated[
    float | None,
    typer.Option(help="Raise the zeros of a .uai or .bif file to this probability."),
]
IgnoreEvidence = Annotated[
    bool, typer.Option("--ignore-evidence", help="Sample the evidence of a DimmWitted graph too.")
]
Show = Annotated[int, typer.Option(help="Marginals to print, the most uncertain ones.")]
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
        help="Save the run here; a name in .csv or .MAR (UAI) gets the marginals instead.",
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
    from minigibbs.cli.demo import check_picture, draw_demo, run_demo

    check_picture(output)
    run = run_demo(updates, seed, progress=not quiet)
    drawn = len(run.record_updates) > 0 or not run.interrupted  # else Ctrl-C came too early
    if drawn:
        draw_demo(run, output)
    _print_run(run, as_json, 0, picture=str(output) if drawn else None)
    if run.interrupted:
        raise typer.Exit(130)


@app.command()
def sample(
    model: Model,
    sampler: Annotated[
        str | None,
        typer.Option(help="By name, with options or not: mgpmh:batch=20; see `minigibbs explain`."),
    ] = None,
    updates: Annotated[int | None, typer.Option(help="Updates of each chain.")] = None,
    sweeps: Annotated[int | None, typer.Option(help="Sweeps of each chain [1000].")] = None,
    warmup: Annotated[int, typer.Option(help="Updates before the recording.")] = 0,
    chains: Annotated[int | None, typer.Option(help="Independent chains [4; cuda: 16384].")] = None,
    seed: Seed = None,
    scan: Annotated[
        str | None, typer.Option(help="random, systematic, shuffled or shared [random].")
    ] = None,
    record: Annotated[
        str, typer.Option(help="What to keep: marginals, draws, energy.")
    ] = "marginals,energy",
    variables: Annotated[
        str | None, typer.Option(help="Whose draws to keep, by name or number: a,b,7 [all].")
    ] = None,
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
    backend: Annotated[str, typer.Option(help="cpu, or cuda for many chains on a GPU.")] = "cpu",
    given: Given = None,
    evidence: Evidence = None,
    floor: Floor = None,
    ignore_evidence: IgnoreEvidence = False,
    show: Show = 10,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sample a model and print a summary."""
    from minigibbs.cli.calls import call
    from minigibbs.running.api import sample as run_chains
    from minigibbs.running.api import sample_until
    from minigibbs.running.executors.cluster import dask_client
    from minigibbs.samplers import SAMPLERS

    chosen = None if sampler is None else call(sampler, dict(SAMPLERS), "sampler")
    kept = [name.strip() for name in record.split(",") if name.strip()]
    if out is not None:
        _check_out(out, kept)
    goal = _goal(until, updates, sweeps, max_time)
    graph = _model(model, floor, ignore_evidence, evidence, given)
    options: dict[str, Any] = {
        "sampler": chosen,
        "record_variables": _variables(variables, kept, graph),
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
    with dask_client(dask) as client, _stopping_in_order(out, as_json, show):
        if goal is None:
            length: dict[str, Any] = {"updates": updates, "sweeps": sweeps, "backend": backend}
            run = run_chains(graph, executor=client, **length, **options)
        else:
            given_only = {name: value for name, value in options.items() if value is not None}
            run = sample_until(graph, executor=client, **goal, **given_only)
    extra = {"notes": graph.domains.notes} if graph.domains.notes else {}
    _finish(run, out, as_json, show, **extra)


@app.command()
def resume(
    checkpoint: Annotated[Path, typer.Argument(help="The folder given to --checkpoint.")],
    updates: Annotated[int | None, typer.Option(help="So many more than planned.")] = None,
    sweeps: Annotated[int | None, typer.Option(help="So many more than planned.")] = None,
    threads: Threads = None,
    max_time: MaxTime = None,
    every: Every = None,
    dask: Dask = None,
    show: Show = 10,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run from its checkpoint, and print a summary."""
    from minigibbs.running.api import resume as go_on
    from minigibbs.running.executors.cluster import dask_client

    if out is not None:
        _check_out(out, ["marginals"])
    with dask_client(dask) as client, _stopping_in_order(out, as_json, show):
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
    _finish(run, out, as_json, show)


@app.command()
def explain(
    model: Model,
    given: Given = None,
    evidence: Evidence = None,
    floor: Floor = None,
    ignore_evidence: IgnoreEvidence = False,
    as_json: Json = False,
) -> None:
    """Say how large a model is in the paper's terms, and what each sampler would cost."""
    from minigibbs.explanation.explain import explain as compare

    graph = _model(model, floor, ignore_evidence, evidence, given)
    explanation = compare(graph)
    typer.echo(json.dumps(explanation.to_dict()) if as_json else str(explanation))
    for note in () if as_json else graph.domains.notes:
        typer.echo(f"note: {note}")


@app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="fig1, fig2a, fig2b, fig2c, table1, theorems or all."),
    ] = "all",
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")] = Path(
        "reproduce"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Short runs: a minute in all.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Chains of each curve [5; quick: 2].")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished curves again.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper: figures, table, theorems. A second call resumes an interrupted one."""
    from minigibbs.paper.page import report
    from minigibbs.paper.reproduce import reproduce as run_paper

    def tell(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    try:
        made = run_paper(target, output, quick, seeds, fresh, progress=not quiet, tell=tell)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: call again to go on; finished curves are in {output}", err=True)
        raise typer.Exit(130) from None
    typer.echo(json.dumps(made.to_dict()) if as_json else report(made))


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
    from minigibbs.results.report import read_shape, write
    from minigibbs.results.run import load
    from minigibbs.system.files import check_target

    if not run.is_file():
        raise SampleError(
            f"no such run: {run} is no file; `minigibbs sample MODEL --out {run}` makes one"
        )
    check_target(output)
    sides = None if shape is None else read_shape(shape)
    write(load(run), output, run.name if title is None else title, sides)
    typer.echo(json.dumps({"report": str(output)}) if as_json else f"report: {output}")


def _goal(
    until: str | None, updates: int | None, sweeps: int | None, max_time: str | None
) -> dict[str, Any] | None:
    """What `--until rhat=1.01,ess=400` asks for; None without it."""
    from minigibbs.cli.calls import read_value

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
        goal[name] = read_value("--until", name, value, "float")
    return goal


@contextmanager
def _stopping_in_order(out: Path | None, as_json: bool, show: int) -> Iterator[None]:
    """Report what a run that had to stop has sampled, and warn in a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
        try:
            yield
        except StoppedError as error:
            if error.run is not None:
                _keep(error.run, out, as_json, show)
            raise


def _finish(run: Run, out: Path | None, as_json: bool, show: int, **extra: Any) -> None:
    """Save and report a run; an interrupted one ends the program as Ctrl-C does."""
    _keep(run, out, as_json, show, **extra)
    if run.interrupted:
        raise typer.Exit(130)


def _keep(run: Run, out: Path | None, as_json: bool, show: int, **extra: Any) -> None:
    if out is not None:
        _save(run, out)
    _print_run(run, as_json, show, saved=None if out is None else str(out), **extra)


def _check_out(out: Path, kept: list[str]) -> None:
    """Refuse an output that could not be written, before any sampling."""
    from minigibbs.system.files import check_target

    check_target(out)
    if out.suffix in (".MAR", ".csv") and "marginals" not in kept:
        raise SampleError(f"{out} holds marginals: add marginals to --record")


def _variables(text: str | None, kept: list[str], graph: FactorGraph) -> list[Any] | None:
    """The variables whose draws are kept; None for all."""
    if text is None:
        return None
    if "draws" not in kept:
        raise SampleError("--variables says whose draws to keep: add draws to --record")
    known = graph.names or ()
    return [_typed(name.strip(), known) for name in text.split(",") if name.strip()]


def _save(run: Run, out: Path) -> None:
    """Save a run, or its marginals if the name ends in .csv or .MAR."""
    if out.suffix == ".MAR":
        from minigibbs.formats.uai import write_marginals

        write_marginals(run, out)
    elif out.suffix == ".csv":
        from minigibbs.results.tables import write_csv

        write_csv(run, out)
    else:
        run.save(out)


def _print_run(run: Run, as_json: bool, show: int, **extra: Any) -> None:
    from minigibbs.results import tables as marginals

    summary = run.summary()
    recorded = run.counts is not None and run.clock.sum() > 0
    chosen = marginals.uncertain(run, show) if recorded and show > 0 else {}
    if as_json:
        rows = {
            run.domains.name(v): dict(zip(map(str, values), probability.tolist(), strict=True))
            for v, (values, probability) in chosen.items()
        }
        whole = {**summary.to_dict(), "info": asdict(run.info), "marginals": rows, **extra}
        typer.echo(json.dumps(whole))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for label, value in summary.rows():
        table.add_row(label, value)
    Console(file=sys.stdout).print(table)
    if chosen:
        typer.echo(
            f"\nmarginals of the {len(chosen)} most uncertain variables (--out X.csv: of all)"
        )
    for variable, marginal in chosen.items():
        text = marginals.shown(marginal, int(run.domains.sizes[variable]))
        typer.echo(f"  {run.domains.name(variable)}: {text}")
    for note in extra.pop("notes", ()):
        typer.echo(f"note: {note}")
    for label, value in extra.items():
        if value is not None:
            typer.echo(f"{label}: {value}")
    for warning in summary.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _model(
    text: str,
    floor: float | None,
    ignore_evidence: bool,
    evidence: Path | None,
    given: list[str] | None,
) -> FactorGraph:
    """A model from `name:key=value,...` or from a file, with what is known about it."""
    from minigibbs.cli.calls import call
    from minigibbs.formats import read
    from minigibbs.models import GENERATORS

    options = {} if floor is None else {"floor": floor}
    options |= {"evidence": False} if ignore_evidence else {}
    if text.partition(":")[0] in GENERATORS:
        if options:
            raise SampleError(f"{text}: {', '.join(options)} is for model files")
        graph = call(text, GENERATORS, "generator")
    elif not Path(text).exists():
        raise SampleError(
            f"no such model: {text!r} is neither a file nor one of {', '.join(GENERATORS)}"
        )
    else:
        graph = read(text, **options)
    return _condition(_observe(graph, evidence), given or [])


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
