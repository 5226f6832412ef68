"""Sections of the report, as functions from a run to HTML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from minigibbs.results.diagnostics import MOST_JUDGED, Judged
from minigibbs.results.report import pictures
from minigibbs.results.report.beliefs import Beliefs
from minigibbs.results.report.markup import Html, element, join, table
from minigibbs.results.report.markup import name as named
from minigibbs.results.result import CHROMATIC_SCAN, OWN_SCAN, log_z_text
from minigibbs.results.verdict import RECORD_ALL, Finding, findings, number
from minigibbs.samplers.tempering.account import Ladder

if TYPE_CHECKING:
    from minigibbs.results.answer import Answer
    from minigibbs.results.run import Run

_MOST_LINES = 8  # chains drawn
_MOST_OBSERVED = 60  # rows of the table of observables
_MOST_TRACED = 3  # observables whose traces are drawn
_MOST_WORST = 12  # rows of the least-converged variables
_STATS = (  # key, label, symbol, meaning
    ("max_degree", "largest degree", "Δ", "factors that an update of plain Gibbs evaluates"),
    ("local_energy", "largest local energy", "L", "sum of the ranges of factors at a variable"),
    ("total_energy", "total energy", "Ψ", "sum of the ranges of all factors"),
    ("max_domain", "largest domain", "D", "values that a variable can take"),
)


MARKS = {"bad": "✕", "warning": "!", "unknown": "?", "fair": "·", "good": "✓"}
_RECORDED = ("marginals", "draws", "energy")


def top(run: Run) -> Html:
    """Return the findings, one box per finding."""
    return join(
        *(
            element(
                "section",
                element("span", MARKS[finding.level], class_="mark", aria_hidden="true"),
                element("div", element("h2", finding.headline), element("p", _words(finding))),
                class_=f"finding {finding.level}",
            )
            for finding in findings(run, run.summary())
        )
    )


def verdict(answer: Answer) -> Html:
    """Return the method of an answer and its warnings."""
    level = "good" if not answer.warnings else "warning"
    told = f"By {answer.method}: {answer.reason}."
    headline = "The answer is exact" if answer.exact else "The answer was sampled"
    words = [element("p", told), *(element("p", warning) for warning in answer.warnings)]
    return element(
        "section",
        element("span", MARKS[level], class_="mark", aria_hidden="true"),
        element("div", element("h2", headline), *words),
        class_=f"finding {level}",
    )


def answer_facts(answer: Answer) -> Html:
    """Return the main numbers of an answer, one tile per number."""
    shown = [("log Z", answer.log_z_text(), "logarithm of the partition function")]
    shown.append(("time", _seconds(answer.seconds), "from question to answer"))
    if not answer.exact:
        largest = float(np.nanmax(answer.shares.standard_errors, initial=0.0))
        shown.append(("largest error", f"{largest:.4f}", "standard error of a marginal"))
    tiles = [
        element("div", element("dt", label), element("dd", value, element("small", note)))
        for label, value, note in shown
    ]
    return join(element("h2", "The answer"), element("dl", *tiles, class_="facts"))


def _words(finding: Finding) -> Html:
    """Return a finding's paragraph, with the variable's name emphasized."""
    if finding.name is None:
        return join(finding.words)
    before, after = finding.words.split("{}")
    return join(before, element("strong", named(finding.name)), after)


def facts(run: Run) -> Html:
    """Return the main numbers of a run, one tile per number."""
    info = run.info
    shown: list[tuple[str, object, str]] = [
        ("chains", info.chains, f"{info.updates // info.chains:,} updates each"),
        ("speed", f"{_short(info.updates_per_second)}/s", f"{_seconds(info.seconds)} of sampling"),
        ("values changed", f"{info.changed:.0%}", "share of updates"),
    ]
    if info.acceptance < 1:
        shown.append(("proposals accepted", f"{info.acceptance:.0%}", "the rest kept the value"))
    if run.energy is not None and run.energy.size:
        rhat, ess = run.summary().energy_rhat, run.summary().energy_ess
        shown.append(
            ("mean energy", f"{run.energy.mean():,.5g}", "minus log-probability + constant")
        )
        shown.append(("energy R-hat", number(rhat, ".3f"), "1 where chains agree"))
        shown.append(("energy ESS", number(ess, ",.0f"), "effective sample size"))
    if run.reference is not None and run.counts is not None:
        shown.append(("error of the marginals", f"{run.marginal_error:.4f}", "to the reference"))
    tiles = [
        element("div", element("dt", label), element("dd", value, element("small", note)))
        for label, value, note in shown
    ]
    sampler = element("p", "Sampled by ", element("code", info.sampler), ".")
    return join(element("h2", "The run"), sampler, element("dl", *tiles, class_="facts"))


def model(run: Run | Answer) -> Html:
    """Return a table of the model's size."""
    known = run.model
    rows: list[list[object]] = [["variables", f"{len(run.domains):,}", ""]]
    if known is None:
        note = "Its factors are not known: the run was saved by an earlier version of minigibbs."
        return join(element("h2", "The model"), element("p", f"{rows[0][1]} variables. {note}"))
    if known["clamped"]:
        rows.append(["of these clamped by evidence", f"{known['clamped']:,}", ""])
    for kind, count in known["kinds"].items():
        rows.append([join(element("code", kind), " factors"), f"{count:,}", ""])
    if known.get("zeros"):
        forbidden = element("span", "some values together are impossible", class_="soft")
        rows.append(["factors with hard constraints", f"{known['zeros']:,}", forbidden])
    for key, label, symbol, meaning in _STATS:
        value = known[key]
        if value is None and known.get("zeros"):
            value = math.inf
        text = f"{value:,}" if isinstance(value, int) else number(value, ",.4g")
        rows.append([f"{label} ({symbol})", text, element("span", meaning, class_="soft")])
    whole = table(["quantity", "value", "meaning"], rows, class_="words")
    return join(element("h2", "The model"), element("div", whole, class_="wide"))


def traces(run: Run) -> Html:
    """Return plots against updates of the energy, and of the error if there is a reference."""
    parts: list[Html] = [element("h2", "Traces")]
    updates = run.energy_updates.astype(np.float64)
    if run.energy is None:
        parts.append(element("p", _missing("Energies", "energy")))
    elif len(updates) < 2 or not np.isfinite(run.energy).all():
        parts.append(element("p", "There are too few records for a trace; run longer."))
    else:
        drawn = run.energy[:_MOST_LINES]
        ends = ("0", "updates of each chain", _short(updates[-1]))
        label = (
            f"Energy of {len(drawn)} chains at {len(updates):,} records, from {drawn.min():.5g} "
            f"to {drawn.max():.5g}"
        )
        picture = pictures.lines(updates, drawn, label, ends, lambda t: f"{t + 0.0:,.6g}")
        words = (
            "Energy (minus the log-probability, up to a constant) of each chain. Traces of chains "
            "that have converged overlap and show no trend."
        )
        parts.append(_figure(picture, _legend(run), words + _undrawn(run)))
    updates = run.record_updates.astype(np.float64)
    if run.error is not None and len(updates) > 1 and (run.error > 0).all():
        drawn = np.log10(run.error[:_MOST_LINES])
        ends = (_short(updates[0]), "updates of each chain, log scale", _short(updates[-1]))
        label = f"Error of the marginals of {len(drawn)} chains, now {run.error[:, -1].mean():.3g}"
        picture = pictures.lines(np.log10(updates), drawn, label, ends, lambda t: f"{10**t:.2g}")
        words = (
            "Distance of each chain's running marginals to the reference; it should keep falling."
        )
        parts.append(_figure(picture, _legend(run), words + _undrawn(run)))
    return join(*parts)


def observables(run: Run) -> Html:
    """Return a table of the observables and the first few traces; empty without observables."""
    known = run.summary().observables
    if not known:
        return Html("")
    rows: list[list[object]] = [
        [
            named(f"{one['observable']} {one['part']}".strip()),
            f"{one['mean']:.6g}",
            number(one["error"], ".2g"),
            number(one["ess"], ",.0f"),
            number(one["rhat"], ".3f"),
            number(one["autocorrelation_time"], ".3g"),
        ]
        for one in known[:_MOST_OBSERVED]
    ]
    head = ["observable", "mean", "error", "ESS", "R-hat", "autocorrelation time"]
    note = "Errors come from blocks of records; times are in records."
    if len(known) > _MOST_OBSERVED:
        note += f" {len(known) - _MOST_OBSERVED:,} more numbers are in run.observables."
    parts = [
        element("h2", "Observables"),
        element("div", table(head, rows), class_="wide"),
        element("p", note, class_="small soft"),
    ]
    drawn = [one for one in run.observables.values() if one.scalar and one.series is not None]
    updates = run.record_updates.astype(np.float64)
    for one in drawn[:_MOST_TRACED]:
        series = np.asarray(one.series)[:_MOST_LINES]
        if len(updates) < 2 or not np.isfinite(series).all():
            continue
        ends = ("0", "updates of each chain", _short(updates[-1]))
        label = f"{one.name} of {len(series)} chains at {len(updates):,} records"
        picture = pictures.lines(updates, series, label, ends, lambda t: f"{t + 0.0:,.4g}")
        parts.append(_figure(picture, _legend(run), f"{one.name} of each chain."))
    return join(*parts)


def ladder(run: Run) -> Html:
    """Return the swap rates of a tempered run; empty for other runs."""
    found = run.ladder
    if found is None:
        return Html("")
    rates = np.array(found.swap_rates)
    label = (
        f"How often {len(rates)} pairs of neighboring temperatures exchanged states: from "
        f"{rates.min():.0%} to {rates.max():.0%}"
    )
    ends = ("hot", "pairs of neighboring temperatures", "the model")
    words = (
        "How often neighboring temperatures exchanged states. Rates that are alike, and none near "
        "0, let states travel between the hottest level and the model; a round trip is one that "
        "went there and back."
    )
    tiles = [
        element("div", element("dt", name), element("dd", value, element("small", note)))
        for name, value, note in _ladder_facts(found)
    ]
    return join(
        element("h2", "The ladder"),
        element("dl", *tiles, class_="facts"),
        _figure(pictures.shares(rates, label, ends), Html(""), words),
    )


def _ladder_facts(found: Ladder) -> list[tuple[str, str, str]]:
    log_z = log_z_text(found.log_z, found.log_z_error)
    return [
        ("levels", f"{len(found.levels)}", "temperatures, the model's included"),
        ("round trips", f"{found.round_trips:,}", f"in {found.rounds:,} rounds of all chains"),
        ("barrier", f"{found.barrier:.2f}", "sum of the rejection rates"),
        ("log Z", log_z, "by stepping stones"),
    ]


def least_converged(run: Run, found: Beliefs | None) -> Html:
    """Return the variables on which chains disagree most."""
    title = element("h2", "Least-converged variables")
    if found is None or len(found.marginals.rows) < 2:
        why = "This needs two chains or more." if found else "Nothing is known of the variables."
        return join(title, element("p", why))
    shown = found.least_agreed(_MOST_WORST)
    if not shown:
        return join(title, element("p", "All chains agree on every variable."))
    judged = {one.variable: one for one in run.judged}
    head = ["variable", "chains apart"] + (["R-hat", "ESS"] if judged else [])
    rows: list[list[object]] = []
    for variable in shown:
        row: list[object] = [
            named(run.domains.name(variable)),
            f"{found.marginals.spread[variable]:.1%}",
        ]
        if judged:
            one = judged.get(variable, Judged(variable, math.nan, math.nan))
            row += [number(one.rhat, ".3f"), number(one.ess, ",.0f")]
        rows.append(row)
    return join(
        title,
        element("div", table(head, rows, class_="narrow"), class_="wide"),
        element("p", _worst_note(run, bool(judged)), class_="small soft"),
    )


def _worst_note(run: Run, judged: bool) -> Html:
    words = "Chains apart: the largest difference between two chains' probabilities of a value."
    if not judged:
        return join(words, " For R-hat and ESS: ", _missing("draws", "draws"))
    words += " R-hat: 1 where chains agree, and should be at most 1.01. ESS: effective sample size."
    drawn, variables = len(run.drawn), len(run.domains)
    if drawn < variables:
        words += f" Both need draws, which were kept of {drawn:,} of {variables:,} variables."
    if drawn > MOST_JUDGED:
        words += (
            f" R-hat was computed for the {MOST_JUDGED} of {drawn:,} variables on "
            "which the chains differ most."
        )
    return Html(words)


def missing(run: Run) -> Html:
    """Return a list of quantities that were not recorded, and how to record them."""
    arrays = _arrays(run)
    use = {
        "marginals": "probabilities from every update",
        "draws": "R-hat and ESS of the variables, and ArviZ",
        "energy": "traces, and R-hat and ESS of the whole",
    }
    lost = [what for what in _RECORDED if arrays[what] is None]
    if not lost:
        return Html("")
    items = [element("li", element("b", what), f": {use[what]}.") for what in lost]
    return join(
        element("h2", "Not recorded"),
        element("ul", *items),
        element(
            "p",
            "To have them, sample with ",
            element("code", RECORD_ALL),
            ", or on the command line ",
            element("code", f"--record {','.join(_RECORDED)}"),
            ".",
        ),
    )


def again(run: Run) -> Html:
    """Return the code that repeats the run."""
    info, unit = run.info, _unit(run)
    on = "" if info.backend == "cpu" else f', backend="{info.backend}"'
    scan = "" if info.scan == OWN_SCAN else f'scan="{info.scan}", '
    start = 'start="random", ' if info.start == "random" else ""
    length = "updates" if unit == 1 else "sweeps"
    call = (
        f"mg.sample(graph, sampler={info.sampler_call or 'mg.' + info.sampler}, "
        f"{length}={info.updates // info.chains // unit}, "
        f"warmup={info.warmup // info.chains // unit},\n          chains={info.chains}, "
        f"{scan}{start}seed={info.seed}{on},\n          record={_record(run)})"
    )
    note = f"With minigibbs {info.version}, and the same start."
    return join(
        element("h2", "Make it again"),
        element("pre", element("code", call)),
        element("p", note, class_="small soft"),
    )


def _unit(run: Run) -> int:
    """Return the updates per unit of length: a sweep if the run consists of sweeps, else 1."""
    free = max(int(np.count_nonzero(~run.clamped)), 1)
    return free if run.info.scan in (OWN_SCAN, CHROMATIC_SCAN) else 1


def _record(run: Run) -> str:
    """Return the `record` argument of `mg.sample`, as code."""
    kept = [f'"{what}"' for what, array in _arrays(run).items() if array is not None]
    if not kept:
        return "()"
    parts = [*kept, f"thin={run.info.thin // _unit(run)}"]
    if run.kept_draws is not None and len(run.drawn) < len(run.domains):
        parts.append(f"variables={run.drawn.tolist()}")
    if run.info.backend != "cpu":
        parts.append(f"chains={len(run.clock)}")
    if run.kept_temperatures is not None:
        parts.append("temperatures=True")
    return f"mg.Record({', '.join(parts)})"


def _arrays(run: Run) -> dict[str, Any]:
    return {"marginals": run.counts, "draws": run.kept_draws, "energy": run.energy}


def _figure(picture: Html, legend: Html, words: str) -> Html:
    return element("figure", picture, legend, element("figcaption", words))


def _legend(run: Run) -> Html:
    items = [
        element("li", element("i", class_=f"c{chain % pictures.COLORS}"), f"chain {chain + 1}")
        for chain in range(min(run.info.chains, _MOST_LINES))
    ]
    return element("ul", *items, class_="legend")


def _undrawn(run: Run) -> str:
    left = run.info.chains - _MOST_LINES
    return f" The first {_MOST_LINES} chains are drawn, {left:,} are not." if left > 0 else ""


def _missing(what: str, record: str) -> Html:
    how = element("code", f'record=("{record}",)')
    return join(f"{what} were not recorded; sample with ", how, ".")


def _seconds(seconds: float) -> str:
    return "under 0.01 s" if seconds < 0.01 else f"{seconds:,.3g} s"


def _short(value: float) -> str:
    """Format a large number in few characters."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}" if math.isfinite(value) else "-"
