"""Questions about small extreme graphs, compared with the exact distribution.

Each function asks one entry point. It returns an error of a probability or of log Z, divided by the
allowed error, and the warnings of the result. An error above 1 is wrong.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import minigibbs as mg
from tests.fuzz import graphs

ERROR = 2e-3  # of a probability, if rounding may change log-odds by 1e-3
SAMPLED = 0.12  # of a probability, with the least ESS without a warning
DRAWS = 2_000
DRAWN = 6.0 / math.sqrt(DRAWS)  # standard deviations of 0.5 or less: 1 false alarm in 1e8
LIMIT = 0.3  # seconds of sampled answers
QUIET = {"progress": False}


class Truth(NamedTuple):
    """The possible states of a graph, their probabilities, and log Z up to rounding."""

    states: Any
    distribution: Any
    log_z: float
    scale: float  # sum of the magnitudes of all weights


Found = tuple[float, Sequence[Any]]


def truth_of(graph: mg.FactorGraph) -> Truth | None:
    """Return the exact distribution; None if no state is possible."""
    states, distribution = graphs.enumerated(graph)
    if not distribution.any():
        return None
    best = int(distribution.argmax())
    log_z = float(graph.log_potential(states[best])) - math.log(distribution[best])
    return Truth(states, distribution, log_z, graphs.scale_of(graph))


def _some(graph, rng, most=3) -> list[int]:
    count = min(len(graph), rng.randint(1, most))
    return rng.sample(range(len(graph)), count)


def _log_error(truth: Truth, log_z: float) -> float:
    return abs(log_z - truth.log_z) / (ERROR + 1e-13 * truth.scale)


def _answer(graph):
    return mg.infer(graph, "60s", **QUIET)


def log_partition(graph, truth, rng) -> Found:
    """Log Z by elimination, and as stated by an answer."""
    answer = _answer(graph)
    found = _log_error(truth, mg.log_partition(graph, progress=False))
    return max(found, _log_error(truth, answer.log_z)), answer.warnings


def joint(graph, truth, rng) -> Found:
    """A joint marginal, the probability of evidence, and the most probable values."""
    answer, chosen = _answer(graph), _some(graph, rng)
    table = np.zeros([int(graph.sizes[i]) for i in chosen])
    np.add.at(table, tuple(truth.states[:, chosen].T), truth.distribution)
    found = float(np.abs(answer.joint(*chosen) - table).max())
    place = tuple(rng.randrange(size) for size in table.shape)
    asked = dict(zip(chosen, place, strict=True))
    found = max(found, abs(answer.probability(asked) - table[place]))
    values, share = answer.most_probable(*chosen)
    own = table[tuple(values[i] for i in chosen)]
    found = max(found, abs(share - own), table.max() - own)
    return found / ERROR, answer.warnings


def likelihood(graph, truth, rng) -> Found:
    """The probability of soft evidence, and marginals given it."""
    chosen = _some(graph, rng)
    soft = {i: [rng.choice((0.0, 0.3, 1.0)) for _ in range(graph.sizes[i])] for i in chosen}
    factor = np.prod([np.array(soft[i])[truth.states[:, i]] for i in chosen], axis=0)
    wanted = float((factor * truth.distribution).sum())
    answer = _answer(graph)
    found = abs(answer.likelihood(soft) - wanted)
    if wanted > 1e-6:
        distribution = factor * truth.distribution / wanted
        after = mg.exact_marginals(graph.with_likelihoods(soft), progress=False)
        found = max(found, _off(after, truth.states, distribution))
    return found / ERROR, answer.warnings


def _off(marginals, states, distribution) -> float:
    """Return the largest error of marginals."""
    worst = 0.0
    for variable, row in enumerate(marginals):
        wanted = np.bincount(states[:, variable], distribution, minlength=len(row))
        worst = max(worst, float(np.abs(row - wanted).max()))
    return worst


def draws(graph, truth, rng) -> Found:
    """Independent draws."""
    answer = _answer(graph)
    states = answer.draws(DRAWS, seed=rng.randrange(2**32))
    worst = 0.0
    for variable, size in enumerate(graph.sizes.tolist()):
        wanted = np.bincount(truth.states[:, variable], truth.distribution, minlength=size)
        seen = np.bincount(states[:, variable], minlength=size) / DRAWS
        worst = max(worst, float(np.abs(seen - wanted).max()))
    return worst / DRAWN, answer.warnings


def many(graph, truth, rng) -> Found:
    """Answers for rows of evidence, one of which has no evidence."""
    chosen = _some(graph, rng)
    rows = [[rng.choice((None, int(row[i]))) for i in chosen] for row in _likely(truth, rng)]
    rows.append([None] * len(chosen))
    frame = {i: [row[k] for row in rows] for k, i in enumerate(chosen)}
    answers = mg.infer_many(graph, frame, progress=False)
    worst = 0.0
    for number, row in enumerate(rows):
        same = np.ones(len(truth.distribution), dtype=bool)
        for i, value in zip(chosen, row, strict=True):
            if value is not None:
                same &= truth.states[:, i] == value
        share = float(truth.distribution[same].sum())
        worst = max(worst, abs(math.exp(answers.log_probability[number]) - share))
        if share > 1e-6:
            distribution = np.where(same, truth.distribution, 0.0) / share
            marginals = [answers.marginal(i)[number] for i in range(len(graph))]
            worst = max(worst, _off(marginals, truth.states, distribution))
    return worst / ERROR, ()


def _likely(truth, rng):
    """Return two states that are not improbable."""
    likely = np.flatnonzero(truth.distribution > 1e-6)
    return [truth.states[rng.choice(likely.tolist())] for _ in range(2)]


def maximum(graph, truth, rng) -> Found:
    """The most probable state, and the proven bound."""
    best = mg.maximize(graph, 2.0, rounds=30, seed=rng.randrange(2**32), **QUIET)
    same = (truth.states == np.asarray(best.state)).all(axis=1)
    lost = math.log(truth.distribution.max()) - math.log(
        max(float(truth.distribution[same].sum()), 1e-300)
    )
    return lost / 0.01, ()


def bounds(graph, truth, rng) -> Found:
    """Proven bounds on log Z."""
    entries = rng.choice((4, 16, 2**16))
    lower, upper = mg.theory.log_z_bounds(graph, entries=entries)
    slack = ERROR + 1e-13 * truth.scale
    return max(lower - truth.log_z, truth.log_z - upper) / slack, ()


def inferred(graph, truth, rng) -> Found:
    """A sampled answer."""
    answer = mg.infer(graph, LIMIT, exact=False, seed=rng.randrange(2**32), **QUIET)
    return _off(answer.marginals, truth.states, truth.distribution) / SAMPLED, answer.warnings


def annealed(graph, truth, rng) -> Found:
    """An answer by population annealing."""
    answer = mg.infer(
        graph,
        LIMIT,
        exact=False,
        sampler=mg.PopulationAnnealing(population=200),
        seed=rng.randrange(2**32),
        **QUIET,
    )
    return _off(answer.marginals, truth.states, truth.distribution) / SAMPLED, answer.warnings


def written(graph, truth, rng) -> Found:
    """Exact marginals of a graph that was written to a file and read."""
    name = rng.choice(("x.mg", "x.uai"))
    with tempfile.TemporaryDirectory() as folder:
        mg.write(graph, Path(folder) / name)
        again = mg.read(Path(folder) / name)
    if name == "x.uai":  # evidence has a file of its own
        clamped = np.flatnonzero(graph.evidence >= 0).tolist()
        again = again.condition({i: int(graph.evidence[i]) for i in clamped})
    if len(again) != len(graph) or (again.sizes != graph.sizes).any():
        return 0.0, ()  # impossible values are left out of a file
    answer = _answer(again)
    return _off(answer.marginals, truth.states, truth.distribution) / ERROR, answer.warnings


Query = Callable[[mg.FactorGraph, Truth, random.Random], Found]
EXACT: list[Query] = [log_partition, joint, likelihood, draws, many, bounds, written]
SEARCHES: list[Query] = [maximum, inferred, annealed]
MAY_REFUSE = (written, annealed)  # formats and samplers that do not support every graph
