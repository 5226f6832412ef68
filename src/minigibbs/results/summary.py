"""A run in a few lines: speed, error, effective sample sizes, R-hat, and warnings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from minigibbs.results import diagnostics
from minigibbs.results.run import Run, worst

_STUCK = 1.2  # an R-hat that longer runs may not bring down


@dataclass(frozen=True)
class Summary:
    """What matters about a run; prints as a table."""

    sampler: str
    chains: int
    updates: int  # over all chains
    seconds: float
    updates_per_second: float
    acceptance: float
    marginal_error: float | None  # to the reference, if one was given
    energy_mean: float | None
    energy_ess: float | None
    energy_rhat: float | None
    value_ess: float | None  # least over the variables' values; needs draws
    value_rhat: float | None  # greatest over the variables' values; needs draws or marginals
    standard_error: float | None  # greatest of a marginal; needs marginals of several chains
    worst_variable: str | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, NaN as None, for JSON."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }

    def rows(self) -> list[tuple[str, str]]:
        """What the table shows: label and value."""
        rows = [
            ("sampler", self.sampler),
            ("chains x updates", f"{self.chains} x {self.updates // self.chains:,}"),
            ("seconds", f"{self.seconds:.2f}"),
            ("updates/s", f"{self.updates_per_second:,.0f}"),
            ("acceptance", f"{self.acceptance:.3f}"),
        ]
        if self.marginal_error is not None:
            rows.append(("marginal error", f"{self.marginal_error:.4f}"))
        if self.energy_mean is not None:
            rows.append(("mean energy", f"{self.energy_mean:.4g}"))
            rows.append(("energy ESS", _number(self.energy_ess, ",.0f")))
            rows.append(("energy R-hat", _number(self.energy_rhat, ".3f")))
        if self.value_ess is not None:
            rows.append(("least value ESS", _number(self.value_ess, ",.0f")))
        if self.value_rhat is not None:
            rows.append(
                (
                    "greatest value R-hat",
                    f"{_number(self.value_rhat, '.3f')} ({self.worst_variable})",
                )
            )
        if self.standard_error is not None:
            rows.append(("greatest standard error", f"{self.standard_error:.4f} (of a marginal)"))
        return rows

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        lines = [f"{label:<{width}}  {value}" for label, value in self.rows()]
        return "\n".join(lines + [f"warning: {warning}" for warning in self.warnings])


def summarise(run: Run) -> Summary:
    """Compute the diagnostics of a run."""
    has_energy = run.energy is not None and run.energy.shape[1] > 0
    energy = run.energy if has_energy else None
    drawn, spread = worst(run), _spread(run)
    value = _worse(drawn, spread)
    energy_rhat = None if energy is None else float(diagnostics.rhat(energy))
    return Summary(
        sampler=run.info.sampler,
        chains=run.info.chains,
        updates=run.info.updates,
        seconds=run.info.seconds,
        updates_per_second=run.info.updates_per_second,
        acceptance=run.info.acceptance,
        marginal_error=None if run.reference is None else run.marginal_error,
        energy_mean=None if energy is None else float(energy.mean()),
        energy_ess=None if energy is None else float(diagnostics.ess(energy)),
        energy_rhat=energy_rhat,
        value_ess=None if drawn is None else drawn[2],
        value_rhat=None if value is None else value[1],
        standard_error=None if spread is None else spread.error,
        worst_variable=None if value is None else run.domains.name(value[0]),
        warnings=tuple(_warnings(run, energy_rhat, value, 0 if spread is None else spread.apart)),
    )


def _spread(run: Run) -> diagnostics.Spread | None:
    if run.counts is None:
        return None
    return diagnostics.spread(run.counts, run.clock, run.domains.sizes)


def _worse(
    drawn: tuple[int, float, float] | None, spread: diagnostics.Spread | None
) -> tuple[int, float] | None:
    """The variable with the largest R-hat, by draws or by marginals, and its R-hat."""
    found = [] if drawn is None else [drawn[:2]]
    found += [] if spread is None else [(spread.variable, spread.rhat)]
    return max(found, key=lambda one: one[1], default=None)


def _warnings(
    run: Run, energy_rhat: float | None, value: tuple[int, float] | None, apart: int
) -> list[str]:
    found = []
    if run.interrupted:
        found.append("interrupted: these are the updates made until then")
    if run.info.ended == "time":
        found.append("time was up before R-hat and ESS were as wanted: run longer")
    limit = diagnostics.RHAT_LIMIT
    if energy_rhat is not None and energy_rhat > limit:
        found.append(
            f"the chains disagree on the energy (R-hat {energy_rhat:.3f} > {limit}): "
            f"{_advice(energy_rhat)}"
        )
    if value is not None and value[1] > limit:
        more = f" and {apart - 1:,} of {len(run.domains) - 1:,} others" if apart > 1 else ""
        found.append(
            f"the chains disagree on {run.domains.name(value[0])} (R-hat {value[1]:.3f} > "
            f"{limit}){more}: {_advice(value[1])}"
        )
    return found


def _advice(rhat: float) -> str:
    if rhat < _STUCK:
        return "run longer, or with a warm-up"
    return (
        "run longer, or with a warm-up; if that does not help, updates of one variable at a time "
        "do not mix on this model, and its marginals are not to be trusted"
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)
