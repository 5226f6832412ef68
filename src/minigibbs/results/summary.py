"""Summary of a run: speed, error, effective sample sizes, R-hat, and warnings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from minigibbs.results import diagnostics
from minigibbs.results.marginals import Marginals
from minigibbs.results.observed import rows as observed_rows
from minigibbs.results.result import log_z_text
from minigibbs.results.verdict import findings, number
from minigibbs.samplers.tempering.account import Ladder
from minigibbs.system.text import printable

if TYPE_CHECKING:
    from minigibbs.results.run import Run

_MOST_OBSERVED = 12  # displayed numbers of observables


@dataclass(frozen=True)
class Summary:
    """Diagnostics of a run; prints as a table.

    Attributes
    ----------
    sampler : str
        Name of the sampler.
    chains : int
        Number of chains.
    updates : int
        Recorded updates of all chains.
    seconds : float
        Time of sampling.
    updates_per_second : float
        Updates per second, warm-up included.
    acceptance : float
        Share of accepted proposals.
    seed : int
        The seed of the run.
    marginal_error : float or None
        Distance of the marginals to the reference, if one was given.
    energy_mean : float or None
        Mean energy.
    energy_ess : float or None
        Effective sample size of the energy.
    energy_rhat : float or None
        R-hat of the energy.
    value_ess : float or None
        Smallest effective sample size over the values of variables; needs draws.
    value_rhat : float or None
        Largest R-hat over the values of variables; needs draws or marginals.
    standard_error : float or None
        Largest standard error of a marginal; needs marginals of several chains.
    worst_variable : str or None
        The variable with the largest R-hat.
    apart : int
        Number of variables whose R-hat is too large.
    warnings : tuple of str
        Possible problems with the run.
    ladder : Ladder or None
        The temperature ladder of a tempered run.
    observables : tuple of dict
        Mean, error, ESS and R-hat of each observable.
    records : int
        Records per chain: draws, energies and observables. Marginals use every update.
    thin : int
        Updates between two records.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> summary = mg.sample(graph, sweeps=2000, seed=1, progress=False).summary()
    >>> summary.chains, summary.energy_rhat < 1.01
    (4, True)
    """

    sampler: str
    chains: int
    updates: int
    seconds: float
    updates_per_second: float
    acceptance: float
    seed: int
    marginal_error: float | None
    energy_mean: float | None
    energy_ess: float | None
    energy_rhat: float | None
    value_ess: float | None
    value_rhat: float | None
    standard_error: float | None
    worst_variable: str | None
    apart: int
    warnings: tuple[str, ...] = ()
    ladder: Ladder | None = None
    observables: tuple[dict[str, Any], ...] = ()
    records: int = 0
    thin: int = 1

    @property
    def least_ess(self) -> float | None:
        """The smallest known effective sample size."""
        return diagnostics.least([self.energy_ess, self.value_ess])

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and strings for JSON: NaN as None, infinity as "inf", the seed as text.

        Returns
        -------
        dict
            The fields by name.
        """
        return {key: for_json(value) for key, value in asdict(self).items()} | {
            "seed": str(self.seed),
            "observables": [
                {key: for_json(value) for key, value in one.items()} for one in self.observables
            ],
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the table.

        Returns
        -------
        list of (str, str)
            Label and value.
        """
        rows = [
            ("sampler", self.sampler),
            ("chains x updates", f"{self.chains} x {self.updates // self.chains:,}"),
            *([("records", self._records())] if self.records else []),
            ("seed", str(self.seed)),
            ("seconds", f"{self.seconds:.2f}"),
            ("updates/s", f"{self.updates_per_second:,.0f}"),
            ("acceptance", f"{self.acceptance:.3f}"),
        ]
        if self.marginal_error is not None:
            rows.append(("marginal error", f"{self.marginal_error:.4f}"))
        if self.energy_mean is not None:
            rows.append(("mean energy", f"{self.energy_mean:.4g}"))
            rows.append(("energy ESS", number(self.energy_ess, ",.0f")))
            rows.append(("energy R-hat", number(self.energy_rhat, ".3f")))
        if self.value_ess is not None:
            rows.append(("least value ESS", number(self.value_ess, ",.0f")))
        if self.value_rhat is not None:
            shown = f"{number(self.value_rhat, '.3f')} ({printable(self.worst_variable)})"
            rows.append(("max R-hat (marginals)", shown))
        if self.standard_error is not None:
            rows.append(("max standard error", f"{self.standard_error:.4f} (of a marginal)"))
        rows += [observable_row(one) for one in self.observables[:_MOST_OBSERVED]]
        if len(self.observables) > _MOST_OBSERVED:
            left = len(self.observables) - _MOST_OBSERVED
            rows.append(("more observables", f"{left:,} numbers, in run.observables"))
        return rows + ([] if self.ladder is None else ladder_rows(self.ladder))

    def _records(self) -> str:
        each = "one per update" if self.thin == 1 else f"one every {self.thin:,} updates"
        return f"{self.records:,} per chain, {each}"

    def _repr_html_(self) -> str:
        """Return the result as HTML tables, for notebooks."""
        from minigibbs.results.notebook import summary_html

        return summary_html(self)

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        lines = [f"{label:<{width}}  {value}" for label, value in self.rows()]
        return "\n".join(lines + [f"warning: {warning}" for warning in self.warnings])


def observable_row(one: dict[str, Any]) -> tuple[str, str]:
    """Return the displayed label and value of one number of an observable."""
    label = printable(f"{one['observable']} {one['part']}".strip())
    error = "" if math.isnan(one["error"]) else f" +- {one['error']:.2g}"
    return label, f"{one['mean']:.6g}{error} (ESS {number(one['ess'], ',.0f')})"


def ladder_rows(ladder: Ladder) -> list[tuple[str, str]]:
    """Return the displayed rows of a ladder: label and value."""
    low, high = min(ladder.swap_rates), max(ladder.swap_rates)
    rows = [
        (
            "levels",
            f"{len(ladder.levels)}, neighbors exchange {low:.0%} to {high:.0%} of the time",
        ),
        ("round trips", f"{ladder.round_trips:,} in {ladder.rounds:,} rounds"),
        ("barrier", f"{ladder.barrier:.2f} (sum of the rejection rates)"),
    ]
    if ladder.log_z is not None:
        rows.append(("log Z", log_z_text(ladder.log_z, ladder.log_z_error)))
    return rows


def for_json(value: Any) -> Any:
    """Convert a number for JSON: NaN to None, infinity to "inf"."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def summarize(run: Run) -> Summary:
    """Compute the diagnostics of a run."""
    rhat, ess = diagnostics.of_energy(run)
    energy = run.energy if run.energy is not None and run.energy.shape[1] else None
    marginals = run.known_marginals
    value = _worst(run, marginals)
    errors = None if marginals is None or not marginals.comparable else marginals.standard_errors
    summary = Summary(
        sampler=run.info.sampler,
        chains=run.info.chains,
        updates=run.info.updates,
        seconds=run.info.seconds,
        updates_per_second=run.info.updates_per_second,
        acceptance=run.info.acceptance,
        seed=run.info.seed,
        marginal_error=None if run.reference is None or marginals is None else run.marginal_error,
        energy_mean=None if energy is None else float(energy.mean()),
        energy_ess=ess,
        energy_rhat=rhat,
        value_ess=diagnostics.least([one.ess for one in run.judged]) if run.judged else None,
        value_rhat=None if value is None else value[1],
        standard_error=None if errors is None else float(errors.max()),
        worst_variable=None if value is None else run.domains.name(value[0]),
        apart=0 if marginals is None or marginals.worst is None else marginals.worst.apart,
        ladder=run.ladder,
        observables=tuple(observed_rows(run.observables)),
        records=0 if energy is None else energy.shape[1],
        thin=run.info.energy_thin or run.info.thin,
    )
    found = tuple(finding.warning for finding in findings(run, summary) if finding.warning)
    return replace(summary, warnings=found)


def _worst(run: Run, marginals: Marginals | None) -> tuple[int, float] | None:
    """Return the variable with the largest R-hat, by draws or by marginals, and its R-hat."""
    found = [(one.variable, one.rhat) for one in run.judged[:1] if not math.isnan(one.rhat)]
    if marginals is not None and marginals.worst is not None:
        found.append((marginals.worst.variable, marginals.worst.rhat))
    return max(found, key=lambda one: one[1], default=None)
