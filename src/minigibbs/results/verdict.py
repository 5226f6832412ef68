"""Verdict on a run, in words; used by the summary, the command line and the report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from minigibbs.exact import CONNECTED, SPLIT
from minigibbs.graph.rounding import rounding_warning
from minigibbs.results.diagnostics import LEAST_RECORDS
from minigibbs.results.marginals import LEAST_SWEEPS, WANTED_CHAINS, Disagreement, rhat_limit
from minigibbs.results.result import ONE_STATE, OWN_SCAN
from minigibbs.system.text import printable

if TYPE_CHECKING:
    from minigibbs.results.run import Run
    from minigibbs.results.summary import Summary

_FAR = 1.1  # R-hat above which chains clearly disagree; below it they are close to agreement
_HARDLY = 0.05  # flip rate of poor mixing; all models that mix had twice this rate
_MODES = 2.0  # R-hat of marginals, beside energies that agree, of chains in different modes
_STUCK = 1.2  # R-hat that longer runs may not reduce
_SHORT = 100  # sweeps; with fewer, the largest R-hat of many variables is large in any model
_ESS_PER_CHAIN = 100  # for up to four chains; Vehtari et al. 2021, doi:10.1214/20-BA1221
_LEAST_WARMUP = 0.1  # share of all updates, if chains start at one state
LEAST_TRIPS = 10  # round trips of a temperature ladder per chain
_FALSE_ALARM_LOG_Z = 1e-4  # false-alarm rate of the warning that log Z is too small
_ROUNDING = 1e-6  # relative error of a log-potential, in single precision on some devices
_SCATTER = 0.5  # share of the wanted ESS, because estimates of it vary by a fifth or more
_INDEPENDENT = 0.25  # ESS per rarely recorded energy above which records count as independent
# Worst first. "fair" has no sign of trouble, but nothing that rules trouble out.
LEVELS = ("bad", "warning", "unknown", "fair", "good")


@dataclass(frozen=True)
class Finding:
    """One statement about a run."""

    level: str  # one of LEVELS
    headline: str
    words: str  # a paragraph; {} is replaced by the name
    warning: str = ""  # the same in a line, for a terminal; empty where all is well
    name: str | None = None  # of the variable that it is about
    within_infer: str = ""  # the warning to a user of `mg.infer`; empty if it is the same


class Advice(NamedTuple):
    """What to do about a finding, for the readers of its one-line warning.

    Models with implicit factors need other advice, because few methods support them.
    """

    sample: str
    infer: str  # to a user who has called `mg.infer` already
    implicit: str
    implicit_infer: str

    def lines(self, run: Run, fact: str, reason: str = "") -> dict[str, str]:
        """Return the warnings of a finding: the fact, the advice, and a reason for it."""
        here, within = (self.sample, self.infer)
        if _is_implicit(run):
            here, within = self.implicit, self.implicit_infer
        return {"warning": f"{fact}{here}{reason}", "within_infer": f"{fact}{within}{reason}"}


_USE_INFER = Advice(
    sample="use mg.infer",
    infer="give more time, or another sampler (sampler=...)",
    implicit="begin at another state (start=...)",
    implicit_infer="give more time",
)
_USE_INFER_OR_TEMPER = Advice(
    sample="use mg.infer or mg.Tempering()",
    infer="give more time, or sampler=mg.Tempering()",
    implicit="compare runs from other starts (start=...)",
    implicit_infer="compare other seeds (seed=...)",
)
_COMPARE = Advice(
    sample="check with mg.infer",
    infer="compare other samplers and seeds (sampler=..., seed=...)",
    implicit="compare runs from other starts (start=...)",
    implicit_infer="compare other seeds (seed=...)",
)
_RUN_LONGER = Advice(
    sample="run longer, with a warm-up",
    infer="give more time",
    implicit="run longer, with a warm-up",
    implicit_infer="give more time",
)
_RUN_LONGER_OR_INFER = Advice(
    sample="run longer, with a warm-up, or use mg.infer",
    infer="give more time, or another sampler",
    implicit="run longer, with a warm-up, or start closer to the answer (start=...)",
    implicit_infer="give more time",
)


def warnings_within_infer(run: Run, summary: Summary) -> list[str]:
    """Return the warnings about a run of `mg.infer`, with advice to its user.

    Parameters
    ----------
    run : Run
        The run.
    summary : Summary
        Its summary, whose warnings have advice to users of `mg.sample`.

    Returns
    -------
    list of str
        The worst warning first.
    """
    found = findings(run, summary)
    return [one.within_infer or one.warning for one in found if one.warning]


def findings(run: Run, summary: Summary) -> list[Finding]:
    """Return all problems of a run, worst first, or one finding that there are none."""
    apart = [*_standstill(run), *_disagreement(run, summary)]
    few = [] if any(finding.level == "bad" for finding in apart) else _few(run, summary)
    more = [
        *_missed(run),
        *_phase(run),
        *_one_start(run),
        *_few_trips(run),
        *_too_small_log_z(run),
        *few,
        *_zeros(run),
        *_biased(run),
        *_rounded(run),
        *_ending(run),
    ]
    wrong = [*apart, *more]
    if wrong:
        return sorted(wrong, key=lambda finding: LEVELS.index(finding.level))
    return [_all_well(run, summary)]


def _is_implicit(run: Run) -> bool:
    """Return whether the model has implicit factors."""
    return bool((run.model or {}).get("implicit"))


def _disagreement(run: Run, summary: Summary) -> list[Finding]:
    """Report chains that disagree."""
    found = []
    limit = energy_limit(run)
    if summary.energy_rhat is not None and summary.energy_rhat > limit:
        found.append(_apart(run, summary.energy_rhat, None, "", limit))
    disagreement = _disagreeing(run)
    if disagreement is not None:
        others, many = len(run.domains) - 1, disagreement.variables
        more = f" and {many - 1:,} of {others:,} others" if many > 1 else ""
        name = run.domains.name(disagreement.variable)
        settled = summary.energy_rhat is not None and summary.energy_rhat <= limit
        modes = settled and disagreement.rhat > _MODES
        found.append(_apart(run, disagreement.rhat, name, more, disagreement.limit, modes))
    return found + _observed_apart(run, summary)


def _disagreeing(run: Run) -> Disagreement | None:
    """Return the variable on which chains, or their halves, differ most by more than chance.

    It uses the marginals, or the draws if only some variables have draws.
    """
    marginals = run.known_marginals
    if marginals is not None:
        found = [one for one in (marginals.apart, marginals.slow) if one is not None]
        return max(found, key=lambda one: one.rhat, default=None)
    limit = rhat_limit(len(run.clock), len(run.judged))
    wrong = [one for one in run.judged if one.rhat > limit]
    if run.info.chains == 1 or not wrong:
        return None
    return Disagreement(wrong[0].variable, wrong[0].rhat, limit, len(wrong))


def energy_limit(run: Run) -> float:
    """Return the R-hat of the energy from which chains disagree.

    R-hat from few energies varies. With k in half a chain it is 1 + (F - 1) / 2k, where F is a
    variance ratio of eight halves or more. For independent energies, F exceeds 5 about once in
    10,000 times. The limit of 9 leaves a margin for dependent energies.
    """
    rare = run.energy is not None and run.info.energy_thin > run.info.thin
    limit = rhat_limit(len(run.clock), 1)
    if not rare or run.energy is None:
        return limit
    return max(limit, 1.0 + 8.0 / max(int(run.energy.shape[1]), 1))


def _observed_apart(run: Run, summary: Summary) -> list[Finding]:
    """Report observables on which chains disagree."""
    known = [one for one in summary.observables if not math.isnan(one["rhat"])]
    worst = max(known, key=lambda one: one["rhat"], default=None)
    limit = rhat_limit(len(run.clock), len(known))
    if worst is None or worst["rhat"] <= limit:
        return []
    what = f"{worst['observable']} {worst['part']}".strip()
    shown = number(worst["rhat"], ".3f")
    return [
        Finding(
            "bad" if worst["rhat"] > _FAR else "warning",
            "The chains disagree on an observable",
            f"R-hat of {{}} is {shown}, and should be at most {limit:.3g}. Its stated error is too "
            "small. Run longer, with a warm-up.",
            name=what,
            **_RUN_LONGER.lines(run, f"R-hat of {printable(what)} is {shown}: "),
        )
    ]


def _standstill(run: Run) -> list[Finding]:
    """Report poor mixing, because such chains may agree in the same mode."""
    if _fixed(run) or run.info.scan == OWN_SCAN or not run.info.updates + run.info.warmup:
        return []
    if run.info.changed == 0.0:
        way_out = "" if _is_implicit(run) else " mg.infer updates many variables at a time."
        return [
            Finding(
                "bad",
                "Nothing moved",
                f"No update changed a value: every chain is still in its first state.{way_out}",
                **_USE_INFER.lines(run, "nothing moved: every chain is still in its first state; "),
            )
        ]
    influence = None if run.model is None else run.model.get("influence")
    if run.info.changed >= _HARDLY or (influence is not None and influence < 1.0):
        return []
    share = f"{run.info.changed:.2g}"
    way_out = "mg.infer answers such models, exactly or by tempering."
    if _is_implicit(run):
        way_out = "Compare runs from other starts."
    fact = f"the chains mix poorly (flip rate {share}): all may be in the same mode and agree; "
    return [
        Finding(
            "warning",
            "The chains mix poorly",
            f"Of all updates {run.info.changed:.1%} changed a value, and the variables depend on "
            "each other strongly. Chains that are all in the same mode agree, but their marginals "
            f"are wrong if there are other modes. {way_out}",
            **_COMPARE.lines(run, fact),
        )
    ]


def _apart(
    run: Run, rhat: float, name: str | None, more: str, limit: float, modes: bool = False
) -> Finding:
    subject, short = ("the energy",) * 2 if name is None else ("the variable {}", printable(name))
    shown, sweeps = number(rhat, ".3f"), _sweeps(run)
    measure = f"R-hat {shown}; it should be at most {limit:.3g}"
    chains = f"The {run.info.chains:,} independent chains"
    fact = f"the chains disagree on {short} (R-hat {shown} > {limit:.3g}){more}: "
    lines = _disagreement_lines(run, fact, rhat, sweeps)
    if rhat > _FAR and sweeps < _SHORT:
        return Finding(
            "bad",
            "The run is too short: do not use these numbers yet",
            f"Its chains made {sweeps:,.3g} sweeps each, and still differ, most on {subject}{more} "
            f"({measure}). Fewer than {_SHORT} sweeps do not show whether they converge. Run "
            "longer, with a warm-up.",
            name=name,
            **lines,
        )
    if modes and sweeps >= _SHORT:
        way_out = (
            "mg.infer and mg.Tempering() move between modes, and so does mg.SwendsenWang() where "
            "couplings are attractive."
        )
        if _is_implicit(run):
            way_out = "Compare runs from other starts (`start=`)."
        return Finding(
            "bad",
            "The chains are in different modes: do not use these numbers",
            f"{chains} have the same energies, but disagree on {subject}{more} ({measure}). Each "
            "chain has probably stayed in one mode of several, and longer runs hardly help. "
            f"{way_out}",
            name=name,
            **_USE_INFER_OR_TEMPER.lines(
                run,
                f"{fact}their energies agree, so that they are probably in different modes, and "
                "longer runs hardly help; ",
            ),
        )
    if rhat > _FAR:
        way_out = "let mg.infer find a method"
        if _is_implicit(run):
            way_out = "start closer to the answer (`start=`)"
        return Finding(
            "bad",
            "The chains disagree: do not use these numbers yet",
            f"{chains} disagree most on {subject}{more} ({measure}). Each chain has probably "
            "visited only some of the probable states. Run several times longer, with a warm-up, "
            f"or {way_out}. If they still disagree, updates of one variable at a time do not mix "
            "on this model, and its marginals are not to be trusted.",
            name=name,
            **lines,
        )
    return Finding(
        "warning",
        "The chains have nearly converged",
        f"{chains} nearly agree. They differ most on {subject}{more} ({measure}). Averages are "
        "roughly right. Run two to four times longer, or with a longer warm-up, before you rely on "
        "them.",
        name=name,
        **lines,
    )


def _sweeps(run: Run) -> float:
    """Return the number of recorded sweeps of the longest chain."""
    return float(run.clock.max()) / max(int((~run.clamped).sum()), 1)


def _disagreement_lines(run: Run, fact: str, rhat: float, sweeps: float) -> dict[str, str]:
    """Return the warnings about chains that disagree."""
    if sweeps < _SHORT:
        return _RUN_LONGER.lines(run, f"{fact}the run is short ({sweeps:,.3g} sweeps per chain); ")
    reason = ""
    if rhat >= _STUCK:
        reason = (
            ": updates of one variable at a time may not mix on this model, and its marginals are "
            "not to be trusted"
        )
    return _RUN_LONGER_OR_INFER.lines(run, fact, reason)


def _zeros(run: Run) -> list[Finding]:
    """Report hard constraints that updates of one variable at a time may be unable to bypass."""
    found = (run.model or {}).get("reach", CONNECTED)
    if found == CONNECTED or _fixed(run):
        return []
    sure = found == SPLIT
    moves = "cannot" if sure else "may not"
    story = (
        "Some factors are hard constraints, which forbid states. Updates of one variable at a time "
        f"must go around them, and {'do' if sure else 'may'} not reach every possible state. "
    )
    more = (
        "Each chain stays in the part where it began, however long it runs. "
        if sure
        else "The chains do not show it, because they can all miss the same states. "
    )
    return [
        Finding(
            "bad" if sure else "warning",
            f"Single-site updates {moves} reach every state",
            f"{story}{more}Use mg.infer, which does not depend on such moves.",
            **_USE_INFER.lines(
                run, f"hard constraints: single-site moves {moves} reach every state; "
            ),
        )
    ]


def _missed(run: Run) -> list[Finding]:
    """Report a probable mode that no chain visited: chains that agree by chance."""
    missed = (run.model or {}).get("missed")
    if missed is None:
        return []
    name, size, share = missed["variable"], missed["size"], missed["share"]
    if size == 1:
        return [_stuck(name, share)]
    others = f" and {size - 1:,} variables that depend on it"
    fact = (
        f"the chains missed a mode: {printable(name)}{others} hardly moved, and other values have "
        f"a share of about {share:.2f}; "
    )
    return [
        Finding(
            "bad",
            "The chains missed a probable mode",
            f"The variable {{}}{others} hardly moved in any chain. The model has a state in which "
            f"they have other values, with a share of about {share:.2f} against the one that the "
            "chains are in, and updates of one variable at a time do not reach it. The chains "
            "agree by chance. Use mg.infer, or mg.sample with mg.Tempering().",
            name=name,
            **_USE_INFER_OR_TEMPER.lines(run, fact),
        )
    ]


def _phase(run: Run) -> list[Finding]:
    """Report a phase of higher log-potential that no chain visited."""
    found = (run.model or {}).get("phase")
    if found is None:
        return []
    name, others = found["variable"], f" and {found['size'] - 1:,} others"
    fact = (
        f"the chains missed a phase of higher log-potential: {printable(name)}{others} have other "
        "values there; "
    )
    return [
        Finding(
            "bad",
            "The chains missed a phase",
            f"Annealing leads to states in which the variable {{}}{others} have values that are "
            "rare in this run. Their log-potential is higher than that of all recorded states, and "
            "updates of one variable at a time stay there. By a rough estimate their share is "
            f"{found['share']:.2f}. Use mg.infer, or mg.sample with mg.Tempering().",
            name=name,
            **_USE_INFER_OR_TEMPER.lines(run, fact),
        )
    ]


def _stuck(name: str, share: float) -> Finding:
    """Report a variable whose moves were all rejected."""
    return Finding(
        "bad",
        "The chains are stuck at one value",
        f"The variable {{}} hardly moved in any chain, although another of its values has a share "
        f"of about {share:.2f} given the other variables. The sampler rejects such moves, and the "
        "chains agree by chance. Use a larger batch, mg.Gibbs() or mg.PoissonGibbs().",
        f"the chains are stuck: {printable(name)} hardly moved, although another value has a share "
        f"of about {share:.2f}; use a larger batch, mg.Gibbs() or mg.PoissonGibbs()",
        name,
    )


def _one_start(run: Run) -> list[Finding]:
    """Report a common start: such chains may drift together, which no comparison shows."""
    info = run.info
    alone = info.chains == 1 or info.start != ONE_STATE or _fixed(run)
    warmed = info.warmup >= _LEAST_WARMUP * (info.updates + info.warmup)
    if alone or warmed or _support(run):
        return []
    return [
        Finding(
            "warning",
            "All chains began at one state, without a warm-up",
            "The first updates of all chains resemble the state that was given, and chains that "
            "begin alike agree however far they are from the truth. Sample with a warm-up, or let "
            "chains begin at different states.",
            "all chains began at one state without a warm-up: they may drift together; sample "
            "with a warm-up",
        )
    ]


def ladder_warnings(run: Run) -> tuple[str, ...]:
    """Return the warnings of a tempered run that make its log Z doubtful.

    Returns
    -------
    tuple of str
        Warnings, as in the summary.
    """
    return tuple(finding.warning for finding in (*_few_trips(run), *_too_small_log_z(run)))


def _few_trips(run: Run) -> list[Finding]:
    """Report a temperature ladder with few round trips."""
    wanted = LEAST_TRIPS * run.info.chains
    if run.ladder is None or run.ladder.round_trips >= wanted or _fixed(run):
        return []
    made = run.ladder.round_trips
    return [
        Finding(
            "warning",
            "The temperature ladder made few round trips",
            f"Replicas made {made:,} round trips between the hottest temperature and the model, "
            f"and at least {wanted:,} are needed. Modes may be missing, and log Z may be wrong by "
            "more than its error. Run longer, or use more temperatures.",
            f"{made:,} round trips between the hottest temperature and the model, and {wanted:,} "
            "are needed: modes may be missing; run longer",
        )
    ]


def _too_small_log_z(run: Run) -> list[Finding]:
    """Report a log Z below the log-potential of a visited state, which is impossible."""
    if run.ladder is None or run.ladder.log_z is None or run.energy is None or not run.energy.size:
        return []
    best, high = -float(run.energy.min()), run.ladder.log_z_interval(1.0 - _FALSE_ALARM_LOG_Z)[1]
    if not best > high + _ROUNDING * abs(best):
        return []
    return [
        Finding(
            "bad",
            "Log Z is too small",
            f"Log Z is {run.ladder.log_z:,.6g}, but a visited state has the log-potential "
            f"{best:,.6g}, and log Z is at least as large. The temperature ladder did not reach "
            "equilibrium. Run longer, or use more temperatures.",
            f"log Z = {run.ladder.log_z:.6g} is below the log-potential of a visited state, "
            f"{best:.6g}: the temperature ladder did not reach equilibrium; run longer",
        )
    ]


def _biased(run: Run) -> list[Finding]:
    """Report a sampler whose stationary distribution is not that of the model."""
    if not (run.model or {}).get("biased", False) or _fixed(run):
        return []
    fact = f"{run.info.sampler} is biased: its chains do not have the distribution of the model"
    words = f"{fact}. Standard errors do not include the bias. Use mg.PoissonGibbs() or mg.Gibbs()."
    short = f"{fact}, and standard errors leave that out: use mg.PoissonGibbs() or mg.Gibbs()"
    return [Finding("warning", "The sampler is biased", words, short)]


def _rounded(run: Run) -> list[Finding]:
    """Report weights so large that rounding hides smaller ones."""
    text = rounding_warning((run.model or {}).get("rounding_error", 0.0))
    if text is None or _fixed(run):
        return []
    return [Finding("bad", "Rounding hides some factors", f"The model has {text}.", text)]


def _few(run: Run, summary: Summary) -> list[Finding]:
    """Report too few records to judge the run."""
    if run.clock.sum() == 0:
        return [
            Finding(
                "unknown",
                "Nothing was recorded",
                "The run has no updates in it.",
                "nothing was recorded: the run made no updates after its warm-up",
            )
        ]
    if _fixed(run):
        return []
    if run.info.chains == 1:
        return [
            Finding(
                "unknown",
                "There is a single chain",
                "A chain that is stuck looks just like one that has settled. Run four, from "
                "different starts, and see whether they agree.",
                "a single chain: one that is stuck looks just like one that has settled; run four",
            )
        ]
    if summary.energy_rhat is None and summary.value_rhat is None:
        why = _why(run)
        return [
            Finding(
                "unknown",
                "Convergence cannot be assessed",
                why,
                f"convergence cannot be assessed. {why}",
            )
        ]
    least = summary.least_ess
    if run.energy is not None and run.info.energy_thin > run.info.thin:
        nearly_all = (summary.energy_ess or 0.0) > _INDEPENDENT * run.energy.size
        least = summary.value_ess if nearly_all else least  # energies miss the states between
    wanted = _ESS_PER_CHAIN * min(run.info.chains, len(run.clock), WANTED_CHAINS)
    small = _small_ess(run)
    if small is not None:
        least = min(small, math.inf if least is None else least)
    elif least is None or least >= _SCATTER * wanted:
        return []
    return [
        Finding(
            "warning",
            "There are few independent draws",
            "Successive states of a chain resemble each other. The smallest effective sample size "
            f"of the recorded quantities is about {least:,.0f}, and should be at least "
            f"{wanted:,}. Probabilities may be off by "
            f"{0.5 / math.sqrt(max(least, 1.0)):.2f} or so. Run longer.",
            f"few independent draws: about {least:,.0f}, and {wanted:,} are needed; run longer",
        )
    ]


def _small_ess(run: Run) -> float | None:
    """The effective sample size of all values together, if it is too small."""
    marginals = run.known_marginals
    if marginals is None:
        return None
    found = []
    if marginals.ess < marginals.least_ess:
        found.append(marginals.ess)
    uniform = (run.model or {}).get("uniform", False) and marginals.comparable
    if uniform and marginals.ess_if_uniform < marginals.least_ess_if_uniform:
        found.append(marginals.ess_if_uniform)
    return min(found, default=None)


def _fixed(run: Run) -> bool:
    """Return whether evidence and domains leave no variable free."""
    return bool((run.clamped | (run.domains.sizes == 1)).all())


def _why(run: Run) -> str:
    records, thinned = len(run.record_updates), run.energy is not None or run.kept_draws is not None
    if not thinned and run.counts is None:
        return f"It kept nothing by which chains can be compared. Sample with {RECORD_ALL}."
    if thinned and records < LEAST_RECORDS:
        return (
            f"It has {records} records of each chain, and at least {LEAST_RECORDS} are needed. "
            "Run longer, or record more often with a smaller thin."
        )
    if _sweeps(run) < LEAST_SWEEPS:
        return f"Its chains made fewer than {LEAST_SWEEPS} sweeps. Run longer."
    return "What it recorded never changed."


RECORD_ALL = 'record=("marginals", "draws", "energy")'

LATE = "time was up before the requested length, R-hat or ESS was reached: run longer"

# Headline, paragraph and one-line warning, by the reason for the end of a run.
_ENDINGS = {
    "interrupted": (
        "The run was interrupted",
        "What follows is from the updates that were made until then.",
        "interrupted: these are the updates made until then",
    ),
    "terminated": (
        "The run was terminated",
        "What follows is from the updates that were made until then.",
        "terminated: these are the updates made until then",
    ),
    "stopped": (
        "The run was stopped",
        "Something failed, such as a disk that is full. What follows is from the updates that were "
        "made until then.",
        "stopped: these are the updates made until then",
    ),
    "running": (
        "The run has not ended",
        "What follows is from its latest checkpoint.",
        "the run has not ended: these are the updates up to its latest checkpoint",
    ),
    "time": (
        "Time was up",
        "The run reached its time limit before its requested length, R-hat or ESS. Run longer.",
        LATE,
    ),
}


def _ending(run: Run) -> list[Finding]:
    ended = run.info.ended if run.info.ended in _ENDINGS or not run.interrupted else "interrupted"
    return [Finding("warning", *_ENDINGS[ended])] if ended in _ENDINGS else []


def _all_well(run: Run, summary: Summary) -> Finding:
    if _fixed(run):
        return Finding("good", "Nothing to sample", "Every variable has one value only.")
    rhat = max(summary.energy_rhat or 0.0, summary.value_rhat or 0.0)
    least = summary.least_ess
    worth = "" if least is None else f", and have drawn at least {least:,.0f} independent samples"
    looked = ""
    if summary.value_rhat is None:
        looked = " Only the energy was checked; record marginals as well to check the variables."
    agree = f"The {run.info.chains:,} chains agree (R-hat at most {number(rhat, '.3f')}){worth}."
    support = _support(run)
    if support:
        return Finding("good", "No sign of trouble", f"{agree} {support}{looked}")
    return Finding(
        "fair",
        "The chains agree",
        f"{agree} That is no proof: the variables depend on each other strongly, and chains can "
        f"miss the same states together. mg.infer or mg.Tempering() can check that.{looked}",
    )


def _support(run: Run) -> str:
    """Return why chains are unlikely to all miss the same states; empty without a reason."""
    if run.ladder is not None:
        return "Replicas travel between the hottest temperature and the model, as they should."
    if run.info.sampler.startswith("Exact"):
        return "All draws are independent."
    influence = None if run.model is None else run.model.get("influence")
    if influence is not None and influence < 1.0:
        return "The variables depend on each other weakly, so that every chain mixes fast."
    return ""


def number(value: float | None, form: str) -> str:
    """Format a number; return a dash if there is none."""
    if value is None or math.isnan(value):
        return "-"
    return "infinite" if math.isinf(value) else format(value, form)
