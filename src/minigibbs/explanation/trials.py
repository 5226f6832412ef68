"""Short trials of samplers on a graph: processor time per effective sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import MinigibbsError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.results.diagnostics import ess, rhat
from minigibbs.results.run import Run
from minigibbs.running.api import sample, time_updates
from minigibbs.running.request import Record
from minigibbs.samplers import (
    BlockGibbs,
    ExactSampler,
    Gibbs,
    PoissonGibbs,
    Sampler,
    SwendsenWang,
    Tempering,
)
from minigibbs.system.watch import Compiling, StopError, Watch

# Fast to compile first. Sweeps of the last two read at least what a sweep of plain Gibbs reads.
_CANDIDATES = (PoissonGibbs, Gibbs, ExactSampler, SwendsenWang, Tempering, BlockGibbs)
_SLOWER = (Tempering, BlockGibbs)
_CHAINS = 4
_LEAST_SWEEPS, _MOST_SWEEPS = 20, 1_000
_WARMUP = 4  # recorded sweeps per sweep of warm-up
_TIMED = 0.05  # share of a trial's time for each timed run of updates
_LONGEST = 0.5  # seconds of a timed run of updates
_PREPARING = 4.0  # time limit of a sampler's preparation, in trials
_VARIABLES = 256  # number of variables whose values are recorded
_PROJECTIONS = 16
_APART = 1.2  # R-hat from which a trial is too short


@dataclass(frozen=True)
class Trial:
    """Trial of one sampler.

    Attributes
    ----------
    sampler
        Name of the sampler.
    seconds
        Processor seconds per effective sample; None if it was not tried.
    sweep
        Seconds per sweep of one chain.
    effective
        Effective samples per sweep.
    note
        Reason why there was no trial, or a note that its chains disagree.
    """

    sampler: str
    seconds: float | None
    sweep: float | None
    effective: float | None
    note: str


def try_samplers(
    graph: FactorGraph, seconds: float, compiling: float = np.inf
) -> tuple[Trial, ...]:
    """Run samplers on a graph for a few seconds together; the fastest comes first.

    The effective sample size is the smallest one of the energy and of random projections of the
    state. It includes differences between chains from dispersed starts, so that stuck chains have
    few effective samples.

    Parameters
    ----------
    graph
        The model.
    seconds
        The time of all trials together, without compilation.
    compiling
        Seconds of compilation after which no other sampler is tried.
    """
    share, begun, found = seconds / len(_CANDIDATES), Compiling.seconds, dict[type, Trial]()
    for kind in _CANDIDATES:
        spent, note = Compiling.seconds - begun, ""
        if spent > compiling:
            note = f"not tried: compiling took {spent:.0f} s; the next call tries it"
        elif kind in _SLOWER:
            note = _hopeless(found)
        if note:
            found[kind] = Trial(kind.name, None, None, None, note)
        else:
            found[kind] = _try(graph, kind(), share)
    return _ranked(list(found.values()))


def _hopeless(found: dict[type, Trial]) -> str:
    """Why a sweep that reads as much as that of plain Gibbs cannot pay, or "".

    An effective sample takes a sweep or more.
    """
    usual = [one for one in found.values() if one.seconds is not None and not one.note]
    sweep = found[Gibbs].sweep
    best = min(usual, key=lambda one: one.seconds or np.inf, default=None)
    if best is None or best.seconds is None or sweep is None or sweep <= best.seconds:
        return ""
    return f"not tried: a sweep takes longer than an effective sample with {best.sampler}"


def _ranked(found: list[Trial]) -> tuple[Trial, ...]:
    return tuple(sorted(found, key=lambda one: np.inf if one.seconds is None else one.seconds))


def _try(graph: FactorGraph, sampler: Sampler, share: float) -> Trial:
    name = sampler.name
    free = max(len(free_variables(graph.evidence)), 1)
    late = f"not ready in {_PREPARING * share:.2g} s"
    watch = Watch(_PREPARING * share)
    try:
        with watch:
            sampler = sampler.settled(graph)
            sweep = free * time_updates(graph, sampler, seconds=min(_TIMED * share, _LONGEST))
        length = int(share / (_CHAINS * sweep) * _WARMUP / (_WARMUP + 1))
        if length < _LEAST_SWEEPS:
            return Trial(name, None, sweep, None, f"{length} sweeps in {share:.2g} s are too few")
        length = min(length, _MOST_SWEEPS)
        rng = np.random.default_rng(free)
        variables = free_variables(graph.evidence)
        if len(variables) > _VARIABLES:
            variables = np.sort(rng.choice(variables, _VARIABLES, replace=False))
        run = sample(
            graph,
            sampler,
            sweeps=length,
            warmup=length // _WARMUP,
            chains=_CHAINS,
            seed=1,
            threads=1,
            record=Record("draws", "energy", thin=1, variables=variables.tolist()),
            progress=False,
        )
    except MinigibbsError as error:
        return Trial(name, None, None, None, late if watch.left <= 0 else str(error).split(";")[0])
    except StopError:
        return Trial(name, None, None, None, late)
    effective, agree = _effective(run, rng)
    note = "" if agree else "chains disagree: the trial is too short to rely on"
    each = _CHAINS * length * sweep / effective
    return Trial(name, each, sweep, effective / (_CHAINS * length), note)


def _effective(run: Run, rng: np.random.Generator) -> tuple[float, bool]:
    """Return the smallest effective sample size, and whether the chains agree."""
    series = [run.energy[:, :, None]] if run.energy is not None else []
    series.append(_projections(run, rng))
    least, agree = float(run.draws.shape[0] * run.draws.shape[1]), True
    for some in series:
        apart = np.asarray(rhat(some))
        sizes = np.asarray(ess(some))
        moved = ~np.isnan(apart)
        if moved.any():
            # chains that are each stuck at a different value are one sample each
            sizes = np.where(np.isinf(apart) | np.isnan(sizes), float(len(some)), sizes)[moved]
            least = min(least, float(sizes.min()))
            agree = agree and float(apart[moved].max()) < _APART
    return max(least, 1.0), agree


def _projections(run: Run, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return random functions of the variables, summed over them: [chain, draw, projection]."""
    draws = run.draws
    result = np.zeros((*draws.shape[:2], _PROJECTIONS))
    for k in range(draws.shape[2]):
        values, places = np.unique(draws[:, :, k], return_inverse=True)
        weights = rng.normal(size=(len(values), _PROJECTIONS))
        result += weights[places.reshape(draws.shape[:2])]
    return result
