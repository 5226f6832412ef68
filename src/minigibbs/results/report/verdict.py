"""Whether a run can be trusted, in words that need no statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minigibbs.graph.factors import KINDS
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.results import diagnostics
from minigibbs.results.report.beliefs import Beliefs
from minigibbs.results.report.markup import Html, element, join, name
from minigibbs.results.run import Run

_FAR = 1.1  # R-hat above which chains plainly disagree; up to here they have not quite settled
_APART = 0.2  # two chains' probabilities that differ by this much need no statistics
_LEAST_RECORDS = 4  # of a chain, for R-hat
_ESS_PER_CHAIN = 100  # Vehtari et al. 2021, doi:10.1214/20-BA1221


@dataclass(frozen=True)
class Finding:
    """One thing to say at the top; `level` is "bad", "doubt", "unknown" or "good"."""

    level: str
    headline: str
    words: Html


MARKS = {"bad": "✕", "doubt": "!", "unknown": "?", "good": "✓"}


def findings(run: Run, found: Beliefs | None) -> list[Finding]:
    """All that is wrong with a run, the worst first; or that nothing seems to be."""
    apart = _disagreement(run, found)
    few = [] if any(finding.level == "bad" for finding in apart) else _few(run, found)
    wrong = [*apart, *few, *_interruption(run)]
    order = list(MARKS)
    if wrong:
        return sorted(wrong, key=lambda finding: order.index(finding.level))
    return [_all_well(run, found)]


def _disagreement(run: Run, found: Beliefs | None) -> list[Finding]:
    """Chains that tell different stories."""
    energy, value = energy_rhat(run), _worst(found)
    rhat = max(energy or 0.0, value[1] if value else 0.0)
    on = [] if energy is None or energy <= diagnostics.RHAT_LIMIT else [Html("the energy")]
    if value and value[1] > diagnostics.RHAT_LIMIT:
        on.append(join("the variable ", element("strong", name(run.domains.name(value[0])))))
    if rhat > diagnostics.RHAT_LIMIT:
        return [_apart(run, rhat, on)]
    if found is None or len(found.chains) < 2 or 0 < len(run.record_updates) < _LEAST_RECORDS:
        return []
    return [_apart_in_marginals(run, found)] if found.spread.max() > _APART else []


def _apart(run: Run, rhat: float, on: list[Html]) -> Finding:
    subject = join(on[0], *(join(" and on ", other) for other in on[1:]))
    measure = f"R-hat {number(rhat, '.3f')}; at most {diagnostics.RHAT_LIMIT} is wanted"
    story = f"The {run.info.chains} chains are independent and should end up telling "
    if rhat > _FAR:
        return Finding(
            "bad",
            "The chains disagree: do not use these numbers yet",
            join(
                f"{story}the same story. They do not: they disagree most on ",
                subject,
                f" ({measure}). Each chain has probably seen only a part of what is possible. "
                "Run several times longer, with a warm-up. If they still disagree, the model has "
                "states that are hard to leave one variable at a time.",
            ),
        )
    return Finding(
        "doubt",
        "The chains have not quite come together",
        join(
            f"{story}the same story. They nearly do; they differ most on ",
            subject,
            f" ({measure}). Averages are roughly right. Run two to four times longer, or leave "
            "out the beginning with a warm-up, before you rely on them.",
        ),
    )


def _apart_in_marginals(run: Run, found: Beliefs) -> Finding:
    variable = int(found.spread.argmax())
    return Finding(
        "bad",
        "The chains disagree: do not use these numbers yet",
        join(
            "For the variable ",
            element("strong", name(run.domains.name(variable))),
            f" two chains give probabilities that are {found.spread[variable]:.0%} apart, and "
            "they should be nearly the same. Run longer, with a warm-up.",
        ),
    )


def _few(run: Run, found: Beliefs | None) -> list[Finding]:
    """Too little to go by."""
    if run.clock.sum() == 0:
        return [Finding("unknown", "Nothing was recorded", Html("The run has no updates in it."))]
    if energy_rhat(run) is None and _worst(found) is None:
        return [Finding("unknown", "Nobody can tell whether this run is long enough", _why(run))]
    if run.info.chains == 1:
        return [
            Finding(
                "unknown",
                "There is a single chain",
                Html(
                    "A chain that is stuck looks just like one that has settled. Run four, from "
                    "different starts, and see whether they agree."
                ),
            )
        ]
    least = _least_ess(run, found)
    if least is None or least >= _ESS_PER_CHAIN * run.info.chains:
        return []
    return [
        Finding(
            "doubt",
            "There are few independent draws",
            Html(
                "Successive states of a chain resemble each other. All that was recorded is worth "
                f"about {least:,.0f} independent draws where it is worth least, and "
                f"{_ESS_PER_CHAIN * run.info.chains} are wanted. Probabilities may be off by "
                f"{0.5 / math.sqrt(max(least, 1.0)):.2f} or so. Run longer."
            ),
        )
    ]


def _why(run: Run) -> Html:
    records = len(run.record_updates)
    if run.energy is None and run.draws is None:
        return join(
            "It kept nothing in which one could see whether the chains agree. Sample with ",
            element("code", record_all(run)),
            ".",
        )
    if records < _LEAST_RECORDS:
        return Html(
            f"It has {records} records of each chain, and at least {_LEAST_RECORDS} are needed. "
            "Run longer, or record more often with a smaller thin."
        )
    return Html("What it recorded never changed.")


def _interruption(run: Run) -> list[Finding]:
    if not run.interrupted:
        return []
    return [
        Finding(
            "doubt",
            "The run was interrupted",
            Html("What follows is from the updates that were made until then."),
        )
    ]


def _all_well(run: Run, found: Beliefs | None) -> Finding:
    value = _worst(found)
    rhat = max(energy_rhat(run) or 0.0, value[1] if value else 0.0)
    least = _least_ess(run, found)
    worth = "" if least is None else f", and have drawn at least {least:,.0f} independent samples"
    looked = ""
    if found is None or value is None:
        looked = " Only the energy was checked; record draws as well to check the variables."
    elif (drawn := len(found.run.drawn)) < found.variables:
        looked = f" R-hat looks at the {drawn:,} of {found.variables:,} variables that were drawn."
    return Finding(
        "good",
        "No sign of trouble",
        Html(
            f"The {run.info.chains} chains agree (R-hat at most {number(rhat, '.3f')}){worth}. "
            "That is no proof: chains can miss the same states together." + looked
        ),
    )


def energy_rhat(run: Run) -> float | None:
    """R-hat of the energy; None where there is nothing to tell it from."""
    return _judge_energy(run, diagnostics.rhat)


def energy_ess(run: Run) -> float | None:
    """The effective sample size of the energy; None where there is nothing to tell it from."""
    return _judge_energy(run, diagnostics.ess)


def _judge_energy(run: Run, measure: object) -> float | None:
    if run.energy is None or run.energy.shape[1] == 0 or not np.isfinite(run.energy).all():
        return None
    value = float(measure(run.energy))  # type: ignore[operator]
    return None if math.isnan(value) else value


def _worst(found: Beliefs | None) -> tuple[int, float] | None:
    known = [one for one in found.judged if not math.isnan(one.rhat)] if found else []
    return (known[0].variable, known[0].rhat) if known else None


def _least_ess(run: Run, found: Beliefs | None) -> float | None:
    known = [one.ess for one in found.judged] if found else []
    known.append(math.nan if (energy := energy_ess(run)) is None else energy)
    least = float(np.fmin.reduce(known))
    return None if math.isnan(least) else least


def recordable(run: Run) -> list[str]:
    """What a run of this model can record."""
    kinds = run.model["kinds"] if run.model else {}
    implicit = any(kind in KINDS and issubclass(KINDS[kind], Implicit) for kind in kinds)
    return ["marginals", "draws"] if implicit else ["marginals", "draws", "energy"]


def record_all(run: Run) -> str:
    """The argument that records all of it."""
    return "record=(" + ", ".join(f'"{what}"' for what in recordable(run)) + ")"


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    if value is None or math.isnan(value):
        return "-"
    return "infinite" if math.isinf(value) else format(value, form)
