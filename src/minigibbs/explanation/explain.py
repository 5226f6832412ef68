"""Comparison of samplers on a graph: batches, bounds, predicted costs, and a recommendation."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, NamedTuple

from minigibbs.errors import SampleError
from minigibbs.explanation.costs import predict, remembered_costs
from minigibbs.explanation.trials import Trial, try_samplers
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.stats import Stats
from minigibbs.results.summary import for_json
from minigibbs.running import durations
from minigibbs.running.backends import BACKENDS, Backend
from minigibbs.running.backends.partition import describe_ranks
from minigibbs.running.plan import CHROMATIC, SCANS
from minigibbs.running.request import check_counts
from minigibbs.samplers import SINGLE_SITE, Gibbs, PoissonGibbs, Sampler
from minigibbs.samplers.base import check_stored, check_zeros
from minigibbs.samplers.bounds import LOOSEST, guarantee
from minigibbs.samplers.costs import COSTS, Costs
from minigibbs.samplers.registry import ScanChoice, check_colors
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Stage

_SYMBOLS = {
    "max_degree": "Delta",
    "local_energy": "L",
    "total_energy": "Psi",
    "max_domain": "D",
}


_SLOWDOWN = (
    "slowdown: proven bound on how much smaller than plain Gibbs's the spectral gap of the random "
    "scan can be, for the factors that this run would minibatch; for systematic and chromatic "
    "scans see mg.theory.systematic_slowdown."
)
_PER_UPDATE = "per update: predicted for one chain on a processor of this machine, "
_PER_SAMPLE = (
    "per effective sample: processor time per independent sample of the worst of these: the energy "
    "and random functions of the state."
)
_WIDTH = 96  # characters per line of the notes
_GIVEN = "from the given costs"
_REMEMBERED = "from costs that were measured on it"
_MEASURE = "Run `minigibbs explain --measure` once to measure the costs"
_TYPICAL = f"from typical costs. {_MEASURE}"
_SCALED = f"from typical costs, scaled by a trial. {_MEASURE}"


_ANSWERS = "For marginals and log Z with errors: mg.infer(graph), or minigibbs infer."
_ANSWERS_IMPLICIT = (
    "For marginals with errors: mg.infer(graph), or minigibbs infer. Log Z of implicit factors is "
    "known only where an exact answer fits."
)
_TRIALS = "3s"  # for all samplers together, if the costs of this machine are used
_LONGEST = 86_400.0  # seconds of trials
_COMPILING = 6.0  # seconds of compilation in a call, unless trials are requested
_CLEARLY = 2.0  # times as fast as the default in trials, to be recommended in its place


_ORDERS = {
    "random": "random order",
    "shared": "one random order for all chains",
    "systematic": "a fixed order",
    "shuffled": "an order that is shuffled for each sweep",
    "chromatic": "order of colors",
}


@dataclass(frozen=True)
class Row:
    """One sampler on the graph."""

    sampler: str
    batch: float | None  # expected draws per update
    slowdown: float | None  # guaranteed, relative to plain Gibbs; None without a guarantee
    nanoseconds: float | None  # predicted, per update; None if it cannot run
    exact: bool
    note: str


@dataclass(frozen=True)
class Explanation:
    """A comparison of samplers on a graph; prints as a table.

    Attributes
    ----------
    stats : Stats
        Size of the graph.
    rows : tuple
        One row per sampler: batch, guaranteed slowdown, predicted nanoseconds per update.
    recommended : str
        Name of the recommended sampler.
    why : str
        The reason.
    bounded : str
        Which statistics are upper bounds, in words; empty if none.
    scan : str
        Order of updates.
    lanes : int
        Number of synchronized chains.
    guarantee : str
        The proven bound on the slowdown of the default sampler, in words.
    trials : tuple
        Results of the short trials, one per sampler.
    answers : str
        A hint to `mg.infer`.
    ranks : str
        What each process of a run with `backend="mpi"` stores and sends; else empty.
    costs : str
        What the predicted times are based on.

    Examples
    --------
    >>> import minigibbs as mg
    >>> explanation = mg.explain(mg.models.potts_rbf(), costs={"read": 1.0, "draw": 10.0})
    >>> explanation.recommended, explanation.stats.max_degree
    ('poisson-gibbs', 399)
    >>> [row.sampler for row in explanation.rows if not row.exact]
    ['local']
    """

    stats: Stats
    rows: tuple[Row, ...]
    recommended: str
    why: str
    bounded: str = ""
    scan: str = ""
    lanes: int = 1
    guarantee: str = ""
    trials: tuple[Trial, ...] = ()
    answers: str = _ANSWERS
    ranks: str = ""
    costs: str = _GIVEN

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and strings for JSON; an infinite L or Psi is "inf".

        Returns
        -------
        dict
            The fields by name.
        """
        plain = asdict(self)
        plain["stats"] = {key: for_json(value) for key, value in plain["stats"].items()}
        return plain

    def __str__(self) -> str:
        lines = []
        for name, value in vars(self.stats).items():
            label = name.replace("_", " ")
            label += f" ({_SYMBOLS[name]})" if name in _SYMBOLS else ""
            lines.append(
                f"{label:<22}{value:,}" if isinstance(value, int) else f"{label:<22}{value:,.4g}"
            )
        lines += [self.bounded] if self.bounded else []
        head = f"{'sampler':<15}{'batch':>10}{'slowdown':>10}{'per update':>12}"
        lines += ["", f"{head}  distribution"]
        for row in self.rows:
            kept = "exact" if row.exact else "BIASED"
            lines.append(
                f"{row.sampler:<15}{_number(row.batch):>10}{_number(row.slowdown):>10}"
                f"{_time(row.nanoseconds):>12}  {kept}{'; ' if row.note else ''}{row.note}"
            )
        lines += ["", *wrap(_SLOWDOWN, _WIDTH), *wrap(f"{_PER_UPDATE}{self.costs}.", _WIDTH)]
        if self.trials:
            lines += ["", f"{'in trials':<15}{'per effective sample':>22}{'per sweep':>12}"]
        for trial in self.trials:
            each, sweep = (_seconds(value) for value in (trial.seconds, trial.sweep))
            lines.append(f"{trial.sampler:<15}{each:>22}{sweep:>12}  {trial.note}".rstrip())
        lines += ["", *wrap(_PER_SAMPLE, _WIDTH)] if self.trials else []
        lines += ["", f"Use {self.recommended}: {self.why}"]
        notes = (self.scan, self.guarantee, self.answers, self.ranks)
        lines += [text for text in notes if text]
        return "\n".join(lines)


@checked(SampleError)
def explain(
    graph: FactorGraph,
    costs: Costs | None = None,
    *,
    scan: str | None = None,
    backend: str = "cpu",
    chains: int | None = None,
    trials: str | float | None = None,
    ranks: int | None = None,
    progress: bool = True,
) -> Explanation:
    """Compare the samplers on a graph, with batches from the paper's recipes.

    Bounds and draws are those of `mg.sample` with the same scan, backend and number of chains.
    These determine which factors the default sampler minibatches.

    Short trials rank the samplers by processor time per effective sample: the default sampler,
    plain Gibbs, blocked Gibbs, Swendsen-Wang clusters, tempering and exact draws. Another sampler
    than the default is recommended if it is at least twice as fast.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    costs : dict, optional
        Nanoseconds by kind of operation. By default they are the costs that `minigibbs explain
        --measure` has measured on this machine, or typical ones, scaled by a trial.
    scan : str, optional
        The order of updates, as for `mg.sample`. By default that of each sampler.
    backend : str, default "cpu"
        "cpu" or "cuda". No GPU is needed.
    chains : int, optional
        The number of chains. By default that of the backend.
    trials : str or float, optional
        Time for all trials together, such as "10s"; 0 for none. By default "3s", and none if costs
        are given or the backend is a GPU. By default a call that must compile for more than 6 s
        leaves the remaining samplers to the next call.
    ranks : int, optional
        The number of processes of a run with `backend="mpi"`. The explanation then states what each
        process stores and sends.
    progress : bool, default True
        Whether to show what is done if stderr is a terminal.

    Returns
    -------
    Explanation
        A table that prints as text.

    Raises
    ------
    SampleError
        If the scan or the backend is unknown, or the default sampler does not support the scan.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.explain(mg.models.ising_rbf(), costs={"read": 1.0, "draw": 10.0}))
    variables             400
    factors               79,348
    max degree (Delta)    399
    local energy (L)      2.212
    ...
    """
    if backend not in BACKENDS:
        raise SampleError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if scan is not None and scan not in SCANS:
        raise SampleError(f"scan must be one of {', '.join(SCANS)}; got {scan!r}")
    check_counts(ranks=ranks)
    compiling = _COMPILING if trials is None else math.inf
    if trials is None:
        trials = _TRIALS if costs is None and backend == "cpu" else 0.0
    limit = 0.0 if trials == 0 else min(durations.seconds(trials, "trials"), _LONGEST)
    way = _Way(BACKENDS[backend], scan, BACKENDS[backend].chains if chains is None else chains)
    way.scan_of(PoissonGibbs(), graph)  # refused before anything is tried
    found: tuple[Trial, ...] = ()
    if limit > 0:
        with Stage(f"trying samplers for {limit:g} s", progress):
            found = try_samplers(graph, limit, compiling)
    with Stage("predicting costs", progress):
        return _explained(graph, costs, way, found, ranks)


def _explained(
    graph: FactorGraph, given: Costs | None, way: _Way, found: tuple[Trial, ...], ranks: int | None
) -> Explanation:
    """Return the explanation, with the results of the trials."""
    costs, source = (given, _GIVEN) if given is not None else _known_costs(graph, found)
    default = PoissonGibbs()
    chosen = way.scan_of(default, graph)
    lanes = way.lanes_of(default, graph)
    faster = _faster(found, default)
    answers = _ANSWERS_IMPLICIT if graph.implicits else _ANSWERS
    recommended, why, subject = default.name, default.reason(graph, lanes), "It"
    if faster is not None:
        recommended, why, subject = faster.sampler, _faster_why(found, faster), default.name
    return Explanation(
        graph.stats,
        tuple(_row(graph, kind(), costs, way) for kind in SINGLE_SITE.values()),
        recommended,
        why,
        _bounded(graph),
        f"{subject} scans in {_ORDERS[chosen.scan]}: {chosen.why}.",
        lanes,
        guarantee(default.guaranteed_slowdown(graph, lanes), chosen.scan),
        found,
        answers,
        "" if ranks is None else describe_ranks(default, graph, ranks),
        source,
    )


def _known_costs(graph: FactorGraph, trials: tuple[Trial, ...]) -> tuple[Costs, str]:
    """Costs without measuring all of them, and where they are from.

    Typical costs are scaled so that they predict the sweep of a trial.
    """
    costs = remembered_costs()
    if costs is not None:
        return costs, _REMEMBERED
    free = len(free_variables(graph.evidence))
    sweeps = {trial.sampler: trial.sweep for trial in trials}
    for kind in (Gibbs, PoissonGibbs):
        sweep = sweeps.get(kind.name)
        if sweep and free:
            scale = 1e9 * sweep / free / predict(COSTS, kind().operations(graph))
            return {name: scale * cost for name, cost in COSTS.items()}, _SCALED
    return COSTS, _TYPICAL


def _faster(trials: tuple[Trial, ...], default: Sampler) -> Trial | None:
    """Return the best sampler of the trials if it is clearly better than the default, else None."""
    usual = next((trial.seconds for trial in trials if trial.sampler == default.name), None)
    best = next((trial for trial in trials if trial.seconds is not None and not trial.note), None)
    if best is None or best.seconds is None or best.sampler == default.name:
        return None
    return best if usual is None or best.seconds * _CLEARLY < usual else None


def _faster_why(trials: tuple[Trial, ...], best: Trial) -> str:
    usual = next(trial for trial in trials if trial.sampler == PoissonGibbs.name)
    with_it = "the default sampler was too slow to try"
    if usual.seconds is not None:
        with_it = f"with {usual.sampler} it took {_seconds(usual.seconds)}"
    return f"an effective sample took {_seconds(best.seconds)} in trials; {with_it}."


class _Way(NamedTuple):
    """Backend, scan and number of chains of a run."""

    backend: Backend
    scan: str | None  # None: the sampler's default
    chains: int

    def scan_of(self, sampler: Sampler, graph: FactorGraph) -> ScanChoice:
        """Return the scan of a run in sweeps, and the reason."""
        if self.scan is None:
            return self.backend.choose_scan(sampler, graph, self.chains, sweeps=True)
        if self.scan == CHROMATIC:
            check_colors(sampler, graph)
        return ScanChoice(self.scan, "as requested")

    def lanes_of(self, sampler: Sampler, graph: FactorGraph) -> int:
        """Return the number of lanes for which factors are split."""
        return self.backend.split_lanes(sampler, graph, self.scan_of(sampler, graph).scan)


def _bounded(graph: FactorGraph) -> str:
    """Return a note on the groups that are too large to count; empty if there are none."""
    kinds = sorted({group.kind for group in graph.implicits if not group.is_counted})
    if not kinds:
        return ""
    return (
        f"factors, Delta, L and Psi are upper bounds: the pairs of {' and '.join(kinds)} groups "
        "are too many to look at one by one."
    )


def _row(graph: FactorGraph, sampler: Sampler, costs: Costs, way: _Way) -> Row:
    try:
        check_stored(sampler, graph)
        check_zeros(sampler, graph)
        lanes = way.lanes_of(sampler, graph)
        operations = sampler.operations(graph, lanes)
        slowdown = _useful(sampler.guaranteed_slowdown(graph, lanes))
    except SampleError as error:
        note = str(error).split(";")[0]
        return Row(sampler.name, None, None, None, sampler.exact, note)
    batch = sum(operations.get(kind, 0.0) for kind in ("draw", "strong", "member"))
    return Row(
        sampler=sampler.name,
        batch=batch or None,
        slowdown=slowdown,
        nanoseconds=predict(costs, operations),
        exact=sampler.exact,
        note="" if slowdown is not None or not sampler.exact else _no_guarantee(sampler, graph),
    )


def _useful(slowdown: float | None) -> float | None:
    """Return the bound, or None if it is too loose to be useful."""
    return slowdown if slowdown is not None and slowdown <= LOOSEST else None


def _no_guarantee(sampler: Sampler, graph: FactorGraph) -> str:
    return sampler.proviso(graph) or "no guarantee"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"


def _seconds(seconds: float | None) -> str:
    return _time(None if seconds is None else 1e9 * seconds)


def _time(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"
