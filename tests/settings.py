"""The table of samplers for all tests: every registered sampler has an entry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigibbs as mg
from minigibbs.samplers import Sampler
from minigibbs.theory import Enumeration
from tests.hard import HARD
from tests.harness import state_numbers
from tests.zoo import ATTRACTIVE, GLASS, IMPLICIT, SPINS, STRONG, STRONG_RANK, ZOO


def nothing(graph, states, seed):
    """Return None, for samplers without running sums."""
    return None


def poisson_energy(batch):
    """Return a function that draws energies at stationarity, by Theorem 1: mu_x(eps) * exp(eps).

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
    """Return exact energies on the scale of the kernels."""
    return (graph.log_potential(states) - graph.offset)[:, None]


def fields(graph, states, seed):
    """Return every variable's sum of factors for every value, from the definition."""
    rows = []
    for x in np.asarray(states):
        key = x.tobytes()
        if key not in _FIELDS.setdefault(id(graph), {}):
            sums = []
            for i, size in enumerate(graph.sizes):
                y = np.repeat(x[None], size, axis=0)
                y[:, i] = np.arange(size)
                sums.append(graph.log_potential(y) - graph.log_potential(y)[0])
            _FIELDS[id(graph)][key] = np.concatenate(sums)
        rows.append(_FIELDS[id(graph)][key])
    return np.array(rows)


_FIELDS: dict[int, dict[bytes, Any]] = {}


@dataclass(frozen=True)
class Setting:
    """A sampler and its test settings."""

    sampler: Sampler
    carry: Callable[..., Any] = nothing  # running sums of stationary chains, given their states
    mixing_sweeps: int = 60
    pairs_only: bool = False  # for samplers that support only pairs and unary factors
    exact: bool = True  # whether its stationary distribution is the model's
    golden: str = ""  # its draws from ZOO["mixed"], which pin the random stream

    @property
    def graph(self):
        """A graph of the zoo with every kind of factor that the sampler supports."""
        return ZOO["potts" if self.pairs_only else "mixed"]


# Every registered sampler has a setting with golden draws; see tests/samplers/test_settings.py.
SETTINGS = {
    "gibbs": Setting(
        mg.Gibbs(),
        golden="001400 010301 111400 000200 000001 112101 001401 002301 002000 001401",
    ),
    "gibbs-textbook": Setting(mg.Gibbs(textbook=True)),
    "gibbs-fields": Setting(mg.Gibbs(fields=True), fields, pairs_only=True),
    "poisson-gibbs": Setting(mg.PoissonGibbs()),
    "poisson-gibbs-no-heavy": Setting(mg.PoissonGibbs(heavy=0, theta=0.7), mixing_sweeps=300),
    "poisson-gibbs-one-heavy": Setting(
        mg.PoissonGibbs(heavy=1, theta=1.0),
        mixing_sweeps=200,
        golden="112100 111400 111400 012100 000200 000001 001400 102000 110200 111401",
    ),
    "poisson-gibbs-guarantee": Setting(mg.PoissonGibbs(slowdown=1.1, heavy=1)),
    "mgpmh": Setting(
        mg.MGPMH(),
        golden="000001 000100 112100 000300 000000 112101 000101 111400 000001 000301",
    ),
    "mgpmh-small": Setting(mg.MGPMH(batch=1.5), mixing_sweeps=200),
    "min-gibbs": Setting(
        mg.MinGibbs(batch=50),
        poisson_energy(50),
        mixing_sweeps=400,
        golden="000000 000000 111401 111400 000201 110100 001400 111400 001001 101400",
    ),
    "min-gibbs-large": Setting(mg.MinGibbs(batch=3000), poisson_energy(3000)),
    "min-gibbs-exact": Setting(mg.MinGibbs(estimator=mg.ExactEstimator()), exact_energy),
    "min-gibbs-subset": Setting(mg.MinGibbs(estimator=mg.SubsetEstimator(3)), exact=False),
    "poisson-mh": Setting(mg.PoissonMH(), mixing_sweeps=300),
    "poisson-mh-small": Setting(
        mg.PoissonMH(batch=4),
        mixing_sweeps=500,
        golden="111400 002300 101300 112400 001400 110300 101401 001401 001401 001000",
    ),
    "tuna-mh": Setting(mg.TunaMH(), mixing_sweeps=300),
    "tuna-mh-small": Setting(
        mg.TunaMH(chi=0.5),
        mixing_sweeps=500,
        golden="000301 001400 002401 100301 111100 002300 012101 000201 001001 000000",
    ),
    "double-min": Setting(
        mg.DoubleMinGibbs(batch=4, second_batch=50),
        poisson_energy(50),
        mixing_sweeps=400,
        golden="111301 111401 111200 112101 110301 001401 001401 101101 000300 001400",
    ),
    "local": Setting(
        mg.LocalMinibatchGibbs(2),
        exact=False,
        golden="111400 001400 001400 002100 101400 102000 110201 112300 002300 000201",
    ),
    "local-adjusted": Setting(mg.LocalMinibatchGibbs(2, adjusted=True), exact=False),
}
EXACT = {name: setting for name, setting in SETTINGS.items() if setting.exact}
GOLDEN = {setting.sampler.name: setting for setting in SETTINGS.values() if setting.golden}


@dataclass(frozen=True)
class Case:
    """A sampler on a graph, and a checksum of its draws, which pins the random stream."""

    sampler: Sampler
    graph: mg.FactorGraph
    golden: int


# Every layout of Poisson-Gibbs, with every kind of implicit group.
LAYOUT_CASES = {
    "fields": Case(mg.PoissonGibbs(), mg.models.curie_weiss(40, 1.3), 2190883394),
    "spin-fields": Case(mg.PoissonGibbs(), GLASS, 3029374022),
    "gibbs": Case(mg.PoissonGibbs(), ZOO["mixed"], 3834980154),
    "spins": Case(mg.PoissonGibbs(heavy=1), ZOO["ising"], 2624023085),
    "small": Case(mg.PoissonGibbs(heavy=1), ZOO["potts"], 1692537507),
    "large": Case(mg.PoissonGibbs(heavy=1), ZOO["large"], 2469504397),
    "carrying": Case(mg.PoissonGibbs(), IMPLICIT["low-rank"], 390079652),
    "strong-carrying": Case(mg.PoissonGibbs(), STRONG_RANK, 2709608238),
    "general": Case(mg.PoissonGibbs(heavy=1), ZOO["mixed"], 372736820),
    "strong": Case(mg.PoissonGibbs(heavy=2, theta=1.0), STRONG, 1057616061),
}
IMPLICIT_CASES = {
    "kernel": Case(mg.PoissonGibbs(), IMPLICIT["kernel"], 4035348060),
    "complete": Case(mg.PoissonGibbs(), IMPLICIT["complete"], 839094655),
    "low-rank": Case(mg.PoissonGibbs(heavy=0), IMPLICIT["low-rank"], 496109906),
    "points": Case(mg.PoissonGibbs(), IMPLICIT["points"], 2524570956),
    "several": Case(mg.PoissonGibbs(), IMPLICIT["several"], 1063443794),
}
CASES = LAYOUT_CASES | IMPLICIT_CASES


@dataclass(frozen=True)
class SweepSetting:
    """A sampler that updates all variables at once, and its test graphs."""

    sampler: Sampler
    graphs: dict[str, mg.FactorGraph]
    reversible: bool = True
    golden: int | None = None  # a checksum of its draws from the first graph

    @property
    def graph(self):
        """The first graph."""
        return next(iter(self.graphs.values()))


_HARD = {f"hard-{name}": graph for name, graph in HARD.items()}
_STORED = {"mixed": ZOO["mixed"]} | ZOO | {"strong": STRONG} | _HARD

# Every registered sampler that makes whole sweeps has a setting with golden draws.
SWEEPS = {
    "swendsen-wang": SweepSetting(
        mg.SwendsenWang(), {"fields": ATTRACTIVE["fields"]} | ATTRACTIVE, golden=4292525340
    ),
    "swendsen-wang-kernel": SweepSetting(
        mg.SwendsenWang(), {"line": ATTRACTIVE["line"]}, golden=4211072527
    ),
    "swendsen-wang-complete": SweepSetting(
        mg.SwendsenWang(), {"complete": ATTRACTIVE["complete"]}, golden=918305945
    ),
    "block-gibbs": SweepSetting(
        mg.BlockGibbs(width=1), _STORED, reversible=False, golden=2336735811
    ),
    "block-gibbs-spins": SweepSetting(
        mg.BlockGibbs(width=1), {"spins": SPINS}, reversible=False, golden=1376184656
    ),
    "block-gibbs-single": SweepSetting(mg.BlockGibbs(width=0), _STORED, reversible=False),
    "block-gibbs-2": SweepSetting(mg.BlockGibbs(width=2), _STORED, reversible=False),
    "block-gibbs-3": SweepSetting(mg.BlockGibbs(width=3), _STORED, reversible=False),
    "block-gibbs-given": SweepSetting(
        mg.BlockGibbs(width=2, blocks=[[0, 2, 1], [1]]), _STORED, reversible=False
    ),
    "exact": SweepSetting(mg.ExactSampler(), _STORED | IMPLICIT, golden=1336406301),
}
