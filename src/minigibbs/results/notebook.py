"""HTML displays of results in notebooks: small tables and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from minigibbs.results.observed import Estimate, Observation
from minigibbs.results.report.markup import cut, element, join, name, table
from minigibbs.results.tables import shown, uncertain

if TYPE_CHECKING:
    from minigibbs.results.answer import Answer
    from minigibbs.results.answers import Answers
    from minigibbs.results.fit import Fit
    from minigibbs.results.maximum import Maximum
    from minigibbs.results.run import Run
    from minigibbs.results.summary import Summary

_SHOWN = 10  # largest number of variables or models


def run_html(run: Run) -> str:
    """Return the summary of a run."""
    return _page(repr(run), run.summary().rows(), run.summary().warnings)


def summary_html(summary: Summary) -> str:
    """Return the rows of a summary and its warnings."""
    return _page("", summary.rows(), summary.warnings)


def answer_html(answer: Answer) -> str:
    """Return the method of an answer and its most uncertain marginals."""
    sizes = answer.domains.sizes
    lines = [
        (answer.domains.name(variable), shown(marginal, int(sizes[variable])))
        for variable, marginal in uncertain(answer, _SHOWN).items()
    ]
    return _page("", answer.rows(), answer.warnings, ["variable", "marginal"], lines)


def answers_html(answers: Answers) -> str:
    """Return the number of rows and the marginals of the first rows."""
    head = [f"{variable} = {value}" for variable, value in islice(answers.columns(), _SHOWN)]
    lines = [
        (str(row), *(f"{share:.3f}" for share in shares))
        for row, shares in enumerate(answers.flat[:_SHOWN, : len(head)].tolist())
    ]
    return _page("", answers.rows(), (), ["row", *map(cut, head)], lines)


def maximum_html(best: Maximum) -> str:
    """Return the quality of the best state and the values of its first variables."""
    first = range(min(len(best.domains), _SHOWN))
    lines = [(best.domains.name(number), str(best.value(number))) for number in first]
    if len(best.domains) > _SHOWN:
        lines.append(("...", f"{len(best.domains) - _SHOWN:,} more"))
    return _page("", best.rows(), (), ["variable", "value"], lines)


def fit_html(fit: Fit) -> str:
    """Return the course of learning and the first entries of each parameter."""
    lines = fit.parameter_rows()
    return _page("", fit.summary_rows(), fit.warnings, ["parameter", "value"], lines)


def runs_html(title: str, labels: Sequence[object], runs: Sequence[Run]) -> str:
    """Return one row per model with its scalar observables and its R-hat of the energy."""
    names = [one for one, found in runs[0].observables.items() if found.scalar] if runs else []
    head = ["model", *names, "R-hat of the energy"]
    lines: list[list[object]] = []
    for label, run in zip(labels, runs, strict=True):
        means = [_text(run.observables[one]) for one in names]
        rhat = run.summary().energy_rhat
        known = rhat is not None and np.isfinite(rhat)
        lines.append([str(label), *means, f"{rhat:.3f}" if known else "-"])
    return str(join(element("p", title), table(head, lines)))


def _text(one: Observation) -> str:
    return str(Estimate(one.mean, one.error, one.estimate.blocks))


def _page(
    title: str,
    rows: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    head: list[str] | None = None,
    lines: Sequence[tuple[str, ...]] = (),
) -> str:
    parts = [element("p", title)] if title else []
    parts.append(table(["", ""], [[label, value] for label, value in rows]))
    if head is not None:
        parts.append(table(head, [[name(label), *values] for label, *values in lines]))
    parts += [element("p", element("b", "warning: "), text) for text in warnings]
    return str(join(*parts))
