"""How each registered sampler enters the tests of law: registering a sampler enrols it here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigibbs as mg
from minigibbs.samplers import SAMPLERS, Sampler
from minigibbs.theory import Enumeration
from tests.harness import state_numbers


def nothing(graph, states, seed):
    """For samplers that carry nothing."""
    return None


def poisson_energy(batch):
    """Energies that belong to states at stationarity, by Theorem 1: mu_x(eps) * exp(eps).

    Tilting Poisson(rate) by (1 + phi/rate)^s gives Poisson(rate + phi).
    """

    def carry(graph, states, seed):
        everything = Enumeration(graph)
        phi = everything.phi[:, state_numbers(graph, states)]
        spans = everything.spans[:, None]
        rate = batch * spans / spans.sum()
        counts = np.random.default_rng(seed).poisson(rate + phi)
        return (counts * np.log1p(phi / rate)).sum(axis=0)[:, None]

    return carry


def exact_energy(graph, states, seed):
    """Exact energies on the kernels' scale."""
    return (graph.energy(states) - graph.offset)[:, None]


def fields(graph, states, seed):
    """Every variable's sum of factors for every value, from the definition."""
    rows = []
    for x in np.asarray(states):
        key = x.tobytes()
        if key not in _FIELDS.setdefault(id(graph), {}):
            sums = []
            for i, size in enumerate(graph.sizes):
                y = np.repeat(x[None], size, axis=0)
                y[:, i] = np.arange(size)
                sums.append(graph.energy(y) - graph.energy(y)[0])
            _FIELDS[id(graph)][key] = np.concatenate(sums)
        rows.append(_FIELDS[id(graph)][key])
    return np.array(rows)


_FIELDS: dict[int, dict[bytes, Any]] = {}


@dataclass(frozen=True)
class Setting:
    sampler: Sampler
    carry: Callable[..., Any] = nothing  # what chains at stationarity carry, given their states
    mixing_sweeps: int = 60
    pairs_only: bool = False  # for samplers that take pairs and unary factors alone


SETTINGS = {
    "gibbs": Setting(mg.Gibbs()),
    "gibbs-textbook": Setting(mg.Gibbs(textbook=True)),
    "gibbs-fields": Setting(mg.Gibbs(fields=True), fields, pairs_only=True),
    "poisson-gibbs": Setting(mg.PoissonGibbs()),
    "poisson-gibbs-no-heavy": Setting(mg.PoissonGibbs(heavy=0, theta=0.7), mixing_sweeps=300),
    "poisson-gibbs-one-heavy": Setting(mg.PoissonGibbs(heavy=1), mixing_sweeps=200),
    "poisson-gibbs-guarantee": Setting(mg.PoissonGibbs(slowdown=1.1, heavy=1)),
    "mgpmh-recipe": Setting(mg.MGPMH()),
    "mgpmh-small": Setting(mg.MGPMH(batch=1.5), mixing_sweeps=200),
    "min-gibbs": Setting(mg.MinGibbs(batch=60), poisson_energy(60), mixing_sweeps=400),
    "min-gibbs-large": Setting(mg.MinGibbs(batch=3000), poisson_energy(3000)),
    "min-gibbs-exact": Setting(mg.MinGibbs(estimator=mg.ExactEstimator()), exact_energy),
    "poisson-mh": Setting(mg.PoissonMH(), mixing_sweeps=300),
    "poisson-mh-small": Setting(mg.PoissonMH(batch=1.5), mixing_sweeps=500),
    "tuna-mh": Setting(mg.TunaMH(), mixing_sweeps=300),
    "tuna-mh-small": Setting(mg.TunaMH(chi=0.1), mixing_sweeps=500),
    "double-min": Setting(
        mg.DoubleMinGibbs(batch=4, second_batch=80), poisson_energy(80), mixing_sweeps=400
    ),
}

enrolled = {setting.sampler.name for setting in SETTINGS.values()}
missing = {name for name, sampler in SAMPLERS.items() if sampler.exact} - enrolled
assert not missing, f"samplers without a test of their law: {missing}"
