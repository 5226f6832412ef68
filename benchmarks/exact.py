"""Exact answers on public models: `mg.infer`, pyAgrum and opt_einsum, and rows of evidence.

Seconds are processor time, in one process per engine, since a machine may be loaded. Peers have a
limit of time and memory.
"""

from __future__ import annotations

import importlib.metadata
import math
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA
from benchmarks.report import Report
from minigibbs.exact.costs import cost_functions
from minigibbs.formats import uai

MODELS = {  # seconds of mg.infer before plans and matrix products, on the same machine
    "uai2014_zeros/Segmentation_11": 0.18,
    "uai2014/Grids_11": 0.73,
    "uai2014/ObjectDetection_25.pruned": 1.89,
    "uai2014/Grids_15": 11.0,
    "uai2014_zeros/CSP_11": 17.0,
    "uai2014_zeros/Promedus_14": 11.9,
    "uai2014_zeros/linkage_26": None,
    "uai2014_zeros/linkage_22": None,
    "uai2014_zeros/linkage_12": None,
    "uai2014_zeros/linkage_20": None,
    "uai2014_zeros/linkage_15": None,
}
PEERS = [  # models on which they are measured
    "uai2014_zeros/Segmentation_11",
    "uai2014/ObjectDetection_25.pruned",
    "uai2014_zeros/CSP_11",
    "uai2014_zeros/Promedus_14",
]
LIMIT = 20  # seconds of processor time of a peer's process
EVIDENCE = 10  # answers with other evidence
PATIENCE = 30  # seconds of processor time for them
OWN_LIMIT = 200  # the same for mg.infer
MEMORY = 12 * 2**30  # bytes of address space


def load(name: str) -> mg.FactorGraph:
    path = DATA / f"{name}.uai"
    graph = mg.read(path)
    evidence = DATA / f"{name}.uai.evid"
    return graph.condition(uai.read_evidence(evidence)) if evidence.exists() else graph


def ours(name: str) -> tuple[float, float, float, float, float]:
    """Return seconds of a first and a second answer and two with other evidence, and log Z.

    The first of these two observes one variable. The other one is the last of `EVIDENCE` answers,
    each of which observes another variable; fewer if they take longer than `PATIENCE` seconds.
    """
    mg.infer(mg.models.ising_lattice(8, 0.5, periodic=False), progress=False)  # compiles
    for warm in ("uai2014/Grids_11", "uai2014_zeros/Segmentation_11", "uai2014/Grids_15"):
        mg.infer(load(warm), progress=False)
    base, seconds, log_z = load(name), [], math.nan
    graph = base
    for number in range(2 + EVIDENCE):
        if number > 2 and sum(seconds) > PATIENCE:
            break
        begun = time.process_time()
        answer = mg.infer(graph, "600s", memory="10G", progress=False)
        seconds.append(time.process_time() - begun)
        assert answer.exact, answer.reason
        if number == 1:  # then the least certain variables are observed one by one
            log_z, first = float(answer.log_z or 0.0), answer.marginals
            least = first.max(axis=1).argsort()[:EVIDENCE].tolist()
        if 1 <= number <= EVIDENCE:
            seen = least[number - 1]
            graph = base.condition({seen: int(first[seen].argmax())})
    return seconds[0], seconds[1], seconds[2], seconds[-1], log_z


def pyagrum(name: str) -> tuple[float]:
    """Return seconds for all marginals by Shafer-Shenoy propagation, without reading the file."""
    import pyagrum as gum

    graph = load(name)
    model = gum.MarkovRandomField()
    for v in range(len(graph)):
        model.add(gum.LabelizedVariable(f"x{v}", "", int(graph.sizes[v])))
    for scope, costs in joined(graph):
        table = model.addFactor([f"x{v}" for v in scope])
        table[:] = np.ascontiguousarray(np.exp(-costs).transpose())
    begun = time.process_time()
    engine = gum.ShaferShenoyMRFInference(model)
    engine.makeInference()
    for v in range(len(graph)):
        engine.posterior(f"x{v}")
    return (time.process_time() - begun,)


def joined(graph: mg.FactorGraph) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Combine the factors of each set of variables."""
    found: dict[tuple[int, ...], np.ndarray] = {}
    for scope, costs in cost_functions(graph)[1]:
        order = sorted(range(len(scope)), key=scope.__getitem__)
        key = tuple(scope[k] for k in order)
        found[key] = found.get(key, 0.0) + costs.transpose(order)
    return list(found.items())


def einsum(name: str) -> tuple[float, float]:
    """Return seconds for Z alone, with the path of "auto", and log Z."""
    import opt_einsum

    graph = load(name)
    constant, _ = cost_functions(graph)
    arguments: list[Any] = []
    for scope, costs in joined(graph):
        arguments += [np.exp(-costs), scope]
    begun = time.process_time()
    total = opt_einsum.contract(*arguments, (), optimize="auto")
    return time.process_time() - begun, constant + float(np.log(total))


def limited(function: Callable[[str], Any], name: str) -> Any:
    """Return the result of a function from its own process, or None beyond the limits."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(function, name, sender))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:  # the child ended without a result
        return None
    finally:
        child.join()


def _child(function: Callable[[str], Any], name: str, sender: Any) -> None:
    limit = OWN_LIMIT if function is ours else LIMIT
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        sender.send(function(name))
    except Exception as error:  # memory, or a model that a peer does not support
        print(f"    {function.__name__} {name}: {type(error).__name__}", flush=True)


def many(report: Report) -> None:
    """Measure rows of evidence on a network."""
    alarm = mg.read(DATA / "bnlearn_zeros" / "alarm.bif.gz")
    draws = mg.exact_draws(alarm, 10_000, seed=1)
    seen = np.random.default_rng(1).choice(len(alarm), 5, replace=False).tolist()
    mg.infer_many(alarm, {v: draws[:10, v].tolist() for v in seen})
    for count in (200, 10_000):
        frame = {v: draws[:count, v].tolist() for v in seen}
        begun = time.process_time()
        mg.infer_many(alarm, frame)
        report.add(f"alarm, {count:,} rows of evidence", f"{time.process_time() - begun:.3g} s")


def main() -> None:
    report = Report("exact", "Exact answers: all marginals and log Z", column="before")
    for name, before in MODELS.items():
        found = limited(ours, name)
        first, again, other, late, log_z = found if found is not None else (np.nan,) * 5
        was = "" if before is None else f"{before:g} s"
        report.add(
            name,
            f"{first:.2f} s; again {again:.2f} s; other evidence {other:.2f} s; "
            f"after more answers {late:.2f} s",
            last=was,
        )
        if name not in PEERS:
            continue
        theirs = limited(pyagrum, name)
        report.add("  pyAgrum", "-" if theirs is None else f"{theirs[0]:.2f} s")
        sums = limited(einsum, name)
        report.add("  opt_einsum, Z alone", "-" if sums is None else f"{sums[0]:.2f} s")
        if sums is not None and np.isfinite(sums[1]):
            apart = abs(sums[1] - log_z)
            report.add("  difference of log Z", f"{apart:.1e}", "at most 1e-6", apart <= 1e-6)
    many(report)
    peers = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("pyagrum", "opt_einsum"))
    report.notes.append(
        f"{peers}. Processor time of all threads on a shared, loaded machine; '-' is more than "
        f"{LIMIT} s, more than {MEMORY >> 30} GiB, or a refusal. The second answer reuses the "
        "plan. The third one has one more observed variable, and uses the plan without it. "
        "On the largest models both take the time of the products, which is about half of the "
        "first answer or more. "
        f"'After more answers' is the last of up to {EVIDENCE} answers with other evidence. Peers "
        "were tried on four models; in an earlier run with 25 s neither finished Grids_11, "
        "Grids_15 or linkage_26. The column 'before' was measured at commit 748fe35, on a quieter "
        "machine; it is not the release 0.2."
    )
    report.write()
