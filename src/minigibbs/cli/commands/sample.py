"""Command `minigibbs sample`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from minigibbs.cli.calls import call, read_value
from minigibbs.cli.model import read_model, typed
from minigibbs.cli.options import (
    Dask,
    Every,
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
from minigibbs.cli.output import check_out, finish, stopping_in_order
from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph

_RECORD = "marginals,energy"


def sample(
    model: Model,
    sampler: Annotated[
        str | None,
        typer.Option(help="A sampler by name, such as gibbs or mgpmh:batch=20 [poisson-gibbs]."),
    ] = None,
    updates: Annotated[
        int | None, typer.Option(help="Updates per chain, instead of --sweeps.")
    ] = None,
    sweeps: Annotated[int | None, typer.Option(help="Sweeps per chain [1000].")] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            help="Sweeps per chain that are dropped first; updates with --updates [a quarter]."
        ),
    ] = None,
    chains: Annotated[
        int | None, typer.Option(help="Number of independent chains [4; cuda: 16384].")
    ] = None,
    seed: Seed = None,
    scan: Annotated[
        str | None,
        typer.Option(
            help="random, systematic, shuffled, shared or chromatic [chosen for the model]."
        ),
    ] = None,
    record: Annotated[
        str, typer.Option(help="What to record: some of marginals,draws,energy.")
    ] = _RECORD,
    variables: Annotated[
        str | None,
        typer.Option(help="Variables whose draws are recorded, such as a,b,7 [all]."),
    ] = None,
    thin: Annotated[
        int | None,
        typer.Option(
            help="Sweeps between two records; updates with --updates "
            "[at most 100,000 records per chain, 1,000 with draws]."
        ),
    ] = None,
    record_chains: Annotated[
        int | None, typer.Option(help="Number of chains that a GPU records one by one [64].")
    ] = None,
    temperatures: Annotated[
        bool | None,
        typer.Option("--temperatures", help="Record all temperatures of tempered runs."),
    ] = None,
    observe: Annotated[
        list[str] | None,
        typer.Option(
            help="An observable to measure at every record, such as magnetization or "
            "m2=magnetization:power=2. May be repeated."
        ),
    ] = None,
    threads: Threads = None,
    until: Annotated[
        str | None, typer.Option(help="Run until the chains agree, such as rhat=1.01,ess=400.")
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(help="Time limit of --until, such as 60s, 5min or 1h [none].")
    ] = None,
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
    from minigibbs.running.api import sample as run_chains
    from minigibbs.running.api import sample_until
    from minigibbs.running.executors.dask import dask_client
    from minigibbs.running.request import Options, Record
    from minigibbs.samplers import SAMPLERS

    chosen = None if sampler is None else call(sampler, dict(SAMPLERS), "sampler")
    kept = [name.strip() for name in record.split(",") if name.strip()]
    check_out(out, kept, as_json)
    goal = read_goal(until, updates, sweeps, max_time)
    graph = read_model(model, floor, ignore_evidence, evidence, given)
    whose = _variables(variables, kept, graph)
    chosen_records = [] if record == _RECORD else kept  # by default energies have a time budget
    what = Record(
        *chosen_records,
        thin=thin,
        variables=whose,
        chains=record_chains,
        temperatures=bool(temperatures),
    )
    options = Options(
        sampler=chosen,
        warmup=warmup,
        chains=chains,
        seed=seed,
        scan=scan,
        record=what if kept else (),
        progress=not quiet,
        threads=threads,
        checkpoint=checkpoint,
        every=every,
        backend=backend,
        observe=read_observables(observe) or None,
    )
    with dask_client(dask) as client, stopping_in_order(out, as_json, show):
        common = vars(replace(options, executor=client))
        if goal is None:
            run = run_chains(graph, updates=updates, sweeps=sweeps, **common)
        else:
            run = sample_until(graph, **goal, **common)
    extra = {"notes": graph.domains.notes} if graph.domains.notes else {}
    finish(run, out, as_json, show, **extra)


def read_goal(
    until: str | None, updates: int | None, sweeps: int | None, max_time: str | None
) -> dict[str, Any] | None:
    """Read `--until rhat=1.01,ess=400`; None without it."""
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


def read_observables(texts: list[str] | None) -> dict[str, Any]:
    """Read `--observe m=magnetization:power=2` by name; the name may be omitted."""
    from minigibbs.observables import OBSERVABLES

    found: dict[str, Any] = {}
    for text in texts or ():
        before, equals, after = text.partition("=")
        named = bool(equals) and ":" not in before
        name, what = (before.strip(), after.strip()) if named else (text.split(":")[0], text)
        if name in found:
            raise SampleError(f"--observe: two are called {name!r}; name them: a={what}")
        found[name] = call(what, dict(OBSERVABLES), "observable")
    return found


def _variables(text: str | None, kept: list[str], graph: FactorGraph) -> list[Any] | None:
    """Return the variables whose draws are recorded; None for all."""
    if text is None:
        return None
    if "draws" not in kept:
        raise SampleError("--variables says whose draws to keep: add draws to --record")
    known = graph.names or ()
    return [typed(name.strip(), known) for name in text.split(",") if name.strip()]
