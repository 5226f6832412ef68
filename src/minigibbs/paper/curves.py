"""The curves of the paper's figures: what each one is, how it is run, and where it is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs import models
from minigibbs.errors import FormatError
from minigibbs.graph.graph import FactorGraph
from minigibbs.paper.estimator import pair_estimator
from minigibbs.running.api import sample, time_updates
from minigibbs.running.request import Record
from minigibbs.samplers import (
    MGPMH,
    DoubleMinGibbs,
    Gibbs,
    LocalMinibatchGibbs,
    MinGibbs,
    PoissonGibbs,
    PoissonMH,
    Sampler,
    TunaMH,
)
from minigibbs.system import files

UPDATES = 1_000_000
QUICK_UPDATES = 20_000
RECORDS = 1000
SEED = 2018
PSI_SQUARED = r"\Psi^2"
_FORMAT = "minigibbs-curve-2"


@cache
def paper_model(name: str) -> FactorGraph:
    """The paper's Ising or Potts model, with the settings of its appendix."""
    return models.ising_rbf() if name == "ising" else models.potts_rbf()


@dataclass(frozen=True)
class Curve:
    """One line of a figure."""

    name: str  # in files
    label: str  # in figures
    model: str  # "ising" or "potts"
    sampler: Callable[[FactorGraph], Sampler]
    seconds_only: bool = False  # its draws are another curve's, and only its time differs


def _min_gibbs(share: float) -> Callable[[FactorGraph], Sampler]:
    def make(graph: FactorGraph) -> Sampler:
        batch = share * graph.stats.total_energy**2
        return MinGibbs(estimator=pair_estimator(graph, batch))

    return make


def _local(batch: int) -> Callable[[FactorGraph], Sampler]:
    return lambda graph: LocalMinibatchGibbs(batch)


def _mgpmh(share: float) -> Callable[[FactorGraph], Sampler]:
    return lambda graph: MGPMH(batch=share * graph.stats.local_energy**2)


def _double_min(share: float) -> Callable[[FactorGraph], Sampler]:
    def make(graph: FactorGraph) -> Sampler:
        estimator = pair_estimator(graph, share * graph.stats.total_energy**2)
        return DoubleMinGibbs(batch=graph.stats.local_energy**2, estimator=estimator)

    return make


def _mgpmh_curve(share: float) -> Curve:
    label = rf"MGPMH, $\lambda = {_times(share, 'L^2')}$"
    return Curve(f"potts-mgpmh-{share:g}", label, "potts", _mgpmh(share))


_TEXTBOOK = Curve(
    "potts-gibbs-textbook", "Gibbs, textbook", "potts", lambda graph: Gibbs(textbook=True), True
)


def _baselines(model: str) -> list[Curve]:
    """Plain Gibbs and our default sampler, which several figures share."""
    return [
        Curve(f"{model}-gibbs", "Gibbs", model, lambda graph: Gibbs()),
        Curve(f"{model}-default", "our default", model, lambda graph: PoissonGibbs()),
    ]


def _times(share: float, unit: str) -> str:
    return unit if share == 1 else rf"{share:g}\,{unit}"


FIGURES: dict[str, list[Curve]] = {
    "fig1": [
        *(
            Curve(
                f"ising-min-gibbs-{share:g}",
                rf"MIN-Gibbs, $\lambda = {_times(share, PSI_SQUARED)}$",
                "ising",
                _min_gibbs(share),
            )
            for share in (0.25, 1, 4)
        ),
        *_baselines("ising"),
    ],
    "fig2a": [
        *(
            Curve(f"ising-local-{batch}", f"Local, $B = {batch}$", "ising", _local(batch))
            for batch in (20, 40, 80, 160)
        ),
        *_baselines("ising"),
    ],
    "fig2b": [
        *(_mgpmh_curve(share) for share in (0.5, 1, 2, 4)),
        _TEXTBOOK,
        *_baselines("potts"),
    ],
    "fig2c": [
        *(
            Curve(
                f"potts-double-min-{share:g}",
                rf"DoubleMIN, $\lambda_2 = {_times(share, PSI_SQUARED)}$",
                "potts",
                _double_min(share),
            )
            for share in (0.25, 1, 4)
        ),
        _mgpmh_curve(1),
        *_baselines("potts"),
    ],
    "neighbors": [
        Curve(
            "potts-poisson-gibbs-1",
            r"Poisson-Gibbs, $\lambda = L^2$",
            "potts",
            lambda graph: PoissonGibbs(heavy=0, theta=graph.stats.local_energy),
        ),
        Curve(
            "potts-poisson-mh-1", r"Poisson-MH, $\lambda = L^2$", "potts", lambda graph: PoissonMH()
        ),
        Curve("potts-tuna-mh-1", r"TunaMH, $\chi = 1$", "potts", lambda graph: TunaMH(chi=1.0)),
        _mgpmh_curve(1),
        *_baselines("potts"),
    ],
}


@dataclass(frozen=True)
class Settings:
    """What else a curve depends on."""

    updates: int = UPDATES
    seeds: int = 5


@dataclass(frozen=True, eq=False)
class Result:
    """A finished curve."""

    updates: NDArray[np.int64]  # [record]
    error: NDArray[np.float64]  # [seed, record] mean l2 distance of the marginals to uniform
    log_potential: NDArray[np.float64]  # [seed, record]
    seconds_per_update: float  # processor time of one chain alone
    acceptance: float
    changed: float  # share of updates that changed a value
    wall_seconds: float  # that all seeds together took

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The time axis: what one chain alone would have taken up to each record."""
        return (self.updates * self.seconds_per_update).astype(np.float64)


def compute(curve: Curve, settings: Settings, progress: bool) -> Result:
    """Run a curve: every seed is a chain of one run; `KeyboardInterrupt` if that was cut short.

    Threads share the machine's cores while they run, so the time of an update is measured apart:
    processor time of one chain alone.
    """
    graph = paper_model(curve.model)
    values = graph.stats.max_domain
    sampler = curve.sampler(graph)
    first = 1 if curve.model == "ising" else 0  # spin +1; state 1 of 1..D
    run = sample(
        graph,
        sampler,
        updates=settings.updates,
        warmup=0,
        chains=settings.seeds,
        seed=SEED,
        start=np.full(len(graph), first),
        reference=np.full((len(graph), values), 1.0 / values),
        record=Record("marginals", "energy", thin=max(settings.updates // RECORDS, 1)),
        progress=progress,
    )
    if run.interrupted:
        raise KeyboardInterrupt
    assert run.error is not None
    assert run.energy is not None
    return Result(
        updates=run.record_updates,
        error=run.error,
        log_potential=-run.energy,
        seconds_per_update=time_updates(graph, sampler, clock=time.thread_time),
        acceptance=run.info.acceptance,
        changed=run.info.changed,
        wall_seconds=run.info.seconds,
    )


def _file(folder: Path, curve: Curve, settings: Settings) -> Path:
    return folder / f"{curve.name}-{settings.updates}x{settings.seeds}.npz"


def save(folder: Path, curve: Curve, settings: Settings, result: Result) -> None:
    """Keep a finished curve, whole or not at all."""
    numbers = asdict(result)
    arrays = {name: numbers.pop(name) for name in ("updates", "error", "log_potential")}
    header = {"format": _FORMAT, "settings": _key(curve, settings), **numbers}
    files.write_arrays(_file(folder, curve, settings), header, arrays)


def load(folder: Path, curve: Curve, settings: Settings) -> Result | None:
    """A curve that was finished before; None if there is none, or of other settings, or damaged."""
    try:
        header, arrays = files.read_arrays(_file(folder, curve, settings), _FORMAT)
        if header.pop("settings") != _key(curve, settings):
            return None
        del header["format"]
        result = Result(**{**arrays, **header})
        records = min(RECORDS, settings.updates)
        shapes = result.updates.shape, result.error.shape, result.log_potential.shape
        fits = shapes == ((records,), *((settings.seeds, records),) * 2)
        return result if fits else None
    except (FormatError, OSError, KeyError, TypeError, AttributeError):
        return None


def _key(curve: Curve, settings: Settings) -> dict[str, Any]:
    return {"curve": curve.name, "seed": SEED, **asdict(settings)}
