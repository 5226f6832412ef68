"""Arguments of public calls in `tests.fuzz.api`: valid values by parameter, and wrong ones."""

import inspect
import math
import os
import random
import tempfile
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path

import numba
import numpy as np

import minigibbs as mg
from minigibbs.samplers.costs import COSTS as _SHIPPED


@numba.njit
def _value(a, b):
    return max(0.0, 1.0 - abs(a[0] - b[0]))


@numba.njit
def _bound(low_a, high_a, low_b, high_b):
    return max(0.0, 1.0 - max(low_a[0] - high_b[0], low_b[0] - high_a[0], 0.0))


@numba.njit
def _estimate(model, x, stream, parameters):
    return 0.0


def _dimod() -> dict:
    """Return the samplers for dimod, if it is installed."""
    try:
        from minigibbs.interop.dimod import MiniGibbsAnnealer, MiniGibbsSampler
    except ImportError:
        return {}
    return {"reader": MiniGibbsSampler(), "annealer": MiniGibbsAnnealer()}


def _fitting(kind):
    """Return a function that fits an estimator with some parameters to a table."""

    def fit(X, **parameters):
        return kind(**parameters).fit(X).transform(X)

    table = inspect.Parameter("X", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = inspect.signature(kind).parameters.values()
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    fit.__signature__ = inspect.Signature([table, *keywords])
    return fit


def _estimators(rows) -> dict:
    """Return fitted estimators for scikit-learn, if it is installed, and their module."""
    try:
        from minigibbs import sklearn
    except (ImportError, mg.MissingDependencyError):
        return {}
    short = {"steps": 3, "log_z_time": "0.3s", "random_state": 0}
    return {
        "fit_imputer": _fitting(sklearn.CategoricalImputer),
        "fit_repairer": _fitting(sklearn.TableRepairer),
        "fit_machine": _fitting(sklearn.BoltzmannMachine),
        "fit_restricted": _fitting(sklearn.RestrictedBoltzmannMachine),
        "imputer": sklearn.CategoricalImputer(random_state=0).fit(rows),
        "repairer": sklearn.TableRepairer(random_state=0).fit(rows),
        "machine": sklearn.BoltzmannMachine(**short).fit(rows % 2),
        "restricted": sklearn.RestrictedBoltzmannMachine(2, **short).fit(rows % 2),
    }


def _constrained() -> dict:
    """Return a constrained quadratic model and its graph, if dimod is installed."""
    try:
        import dimod
    except ImportError:
        return {}
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.add_discrete(["red", "green", "blue"], label="color")
    a, b = dimod.Binaries(["a", "b"])
    cqm.set_objective(a - 2 * a * b)
    cqm.add_constraint(a + b <= 1, label="few")
    bqm = dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): -1.0}, 0.0, "SPIN")
    dqm = dimod.DiscreteQuadraticModel()
    dqm.add_variable(3, label="c")
    cubic = dimod.BinaryPolynomial({"ab": 1.0, "abc": -1.0}, "SPIN")
    return {"cubic": cubic, "cqm": cqm, "constrained": mg.from_cqm(cqm), "bqm": bqm, "dqm": dqm}


def _other_graphs() -> dict:
    """Return the chain as models of other libraries, if these are installed."""
    pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"])
    found = {}
    for name, convert in (("nx", mg.to_networkx), ("markov", mg.to_pgmpy), ("gum", mg.to_pyagrum)):
        with suppress(mg.MissingDependencyError):
            found[name] = convert(pair)
    return found


_COSTS = dict.fromkeys(_SHIPPED, 10.0)


@cache
def names() -> dict:
    """Return the names that the text of a call may use; compiling for them takes a while."""
    graph = mg.models.ising_lattice(side=3, beta=0.2)
    chain = mg.FactorGraph(
        [2, 3, 2],
        [mg.Potts([0, 1], [1, 2], 0.5, name="J"), mg.Unary([0], [0.0, 0.4])],
        names=["rain", "wind", "wet"],
        labels={"rain": ["no", "yes"]},
    )
    pair = mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.1)])
    short = {"sweeps": 20, "seed": 1, "progress": False}
    record = ("marginals", "energy", "draws")
    observe = {"m": mg.observables.Magnetization(), "E": mg.observables.Energy()}
    run = mg.sample(graph, record=record, observe=observe, **short)
    bare = mg.sample(graph, record=(), **short)
    rows = np.array([[0, 1, 1], [1, 2, 0], [0, 0, 0], [1, 1, 1]])
    fit = mg.learn(chain, rows, steps=5, seed=1, progress=False)
    cells = {"name": ["a", "a", "b", "b"], "value": ["x", "y"] * 2}
    rule = mg.Rule({"who": ["a", "b"], "what": ["x", "y"]}, ["who"], ["what"])
    folder = Path(tempfile.mkdtemp(prefix="minigibbs-api-"))
    mg.write(chain, folder / "chain.mg")
    mg.sample(graph, checkpoint=folder / "c.zarr", **short)
    mg.learn(chain, rows, steps=5, seed=1, progress=False, checkpoint=folder / "c.fit")
    run.save(folder / "a.run")
    table = {"zip": ["1", "2", "3"] * 8, "city": ["Rome", "Oslo", "Paris"] * 8}
    clean = {"zip": list(table["zip"]), "city": list(table["city"])}
    table["city"][7] = "Osxo"
    likely = np.random.default_rng(1).integers(0, 2, (40, 3))
    likely[:, 1] = likely[:, 0]
    glass = mg.models.spin_glass(side=3, dimensions=2, seed=1)
    hot = {"record": mg.Record("energy", "draws", temperatures=True), "observe": {"m": "count"}}
    tempered = mg.sample(glass, mg.Tempering(levels=3, houdayer=True), **short, **hot)
    annealing = mg.PopulationAnnealing(population=20, sweeps=1)
    annealed = mg.infer(chain, "5s", exact=False, sampler=annealing, seed=1, progress=False)
    for name in ("chain.uai", "chain.bif", "chain.xmlbif"):
        with suppress(mg.MinigibbsError):  # not representable in a format
            mg.write(pair, folder / name)
    return {
        "table": table, "clean": clean, "likely": likely, "glass": glass,
        "repaired": mg.repair(table, "zip -> city"),
        "learned": mg.learn_structure(likely, "network", progress=False),
        "tree": mg.learn_structure(likely, progress=False),
        "answers": mg.infer_many(chain, {"rain": ["no", None], "wet": [1, 0]}),
        "tempered": tempered, "temperatures": tempered.temperatures, "ladder": tempered.ladder,
        "annealed": annealed, "population": annealed.population, "suppress": suppress,
        "stencil": mg.FactorGraph([2] * 9, [mg.Stencil((3, 3), [(0, 1), (1, 0)], 0.2)]),
        **_estimators(likely), **_constrained(), **_other_graphs(),
        "mg": mg, "np": np, "math": math, "os": os, "Path": Path, "Decimal": Decimal,
        "Fraction": Fraction, "graph": graph, "chain": chain, "run": run, "bare": bare,
        "rows": rows, "fit": fit, "cells": cells, "rule": rule, "folder": folder,
        "framed": mg.from_frames(cells, [rule]), "answer": mg.infer(chain, progress=False),
        "best": mg.maximize(chain, rounds=2, seed=1, progress=False),
        "runs": mg.sample_many([graph, graph], sweeps=10, seed=1, progress=False, observe=observe),
        "seen": run.observables["m"], "grid": mg.Grid(0.0, 1.0, 3), "costs": _COSTS,
        "explained": mg.explain(graph, _COSTS),
        "everything": mg.theory.Enumeration(pair), "pair": pair, **_dimod(),
        "point_kernel": mg.PointKernel(_value, _bound), "estimate": _estimate,
        "value": _value, "bound": _bound, "random": random,
    }  # fmt: skip


def __getattr__(name: str) -> object:
    """Let reproducers import these names with `from tests.fuzz.values import *`."""
    if name == "__all__":
        return list(names())
    if name.startswith("_") or name not in names():
        raise AttributeError(name)
    return names()[name]


# Names of objects of other libraries. They are absent from `names()` without these libraries.
OPTIONAL = frozenset(
    "reader annealer imputer repairer machine restricted fit_imputer fit_repairer fit_machine "
    "fit_restricted cubic cqm constrained bqm dqm nx markov gum".split()
)

# Wrong values for most parameters: types, sizes, numbers, text and unexpected classes.
POOL = """
None|True|False|0|-1|3|1.5|-0.0|float('nan')|math.inf|-math.inf|10**400|-10**400|2**63|1e308
1e-320|''|'x'|'nan'|'a\\x00b'|'\\ud800'|'ü'*300|'../x/y'|'1e400s'|'-5s'|b'bytes'|bytearray(b'a')
[]|[[]]|[1, [2]]|[None]|['a']|[float('nan')]|[-1]|[1, 2]|[[1, 2], [3, 4]]|[10**400]|[1e308]*3
['a', 1]|()|(1,)|(None, None)|{}|{'a': 1}|{0: 1}|{None: None}|{'rain': None}|{(1, 2): [3]}|set()
{1}|frozenset()|range(0)|range(3)|iter([1])|(k for k in [1, 2])|map(int, '12')|zip([1], [2])
dict(a=1).keys()|np.array([])|np.zeros((2, 2))|np.zeros((0, 3))|np.array(1)
np.array([1, 'a'], dtype=object)|np.array([None])|np.array(['a', 'b'])|np.array([1 + 2j])
np.array([b'a'])|np.zeros(3, dtype='M8[s]')|np.zeros((1, 1, 1, 1))|np.array([np.nan])
np.zeros(2, dtype=[('a', int)])|np.array([2**63], dtype=np.uint64)|np.float32(1)|np.float64('nan')
np.int8(-1)|np.uint64(2**63)|np.bool_(True)|np.str_('a')|np.float16(2)|np.datetime64('2020')
np.timedelta64(1, 'D')|np.complex128(1)|np.ma.array([1.0], mask=[True])|np.ma.masked|1j
Decimal('1')|Decimal('NaN')|Fraction(1, 3)|object()|int|float|type|len|print|lambda: 1
lambda *a: None|lambda *a: 'text'|np.mean|np|Path('x')|Path('x\\x00')|Exception()|Ellipsis
NotImplemented|slice(1)|memoryview(b'ab')|graph|chain|graph.domains|run|bare|answer|fit|best|runs
seen|rule|grid|everything|mg.Gibbs()|mg.Gibbs|mg.Ising|mg.Potts([0], [1], 0.5)
mg.Ising([0], [8], 0.5)|mg.Record('draws')|mg.observables.Energy()|mg.PoissonEstimator(5.0)|cells
point_kernel|estimate|run.info|run.summary()|graph.stats|mg.GraphError('no')|mg.models|open
random.Random(1)|table|repaired|learned|answers|temperatures|annealed|mg.NoisyMax|{'a': []}
tempered|mg.Stencil((3, 3), [(0, 1)], 0.2)|mg.PopulationAnnealing()|mg.Tempering(levels=3)
{'a': [1], 'b': []}|[['rain', 'wet']]|[('x0',)]|{'x0': 'x1'}|{0: [1.0, -1.0]}|{'rain': [0.0, 0.0]}
['rain', 'rain']|[[None, 1]]|np.array([[None, 'a']], dtype=object)|{'rain': [{}]}|{(): 1.0}
{('a', 'a', 'a'): 2}
""".replace("\n", "|").strip("|").split("|")  # fmt: skip

# The instance whose methods are called, by public class. Only the library creates results, so their
# constructors are not called.
RESULTS = {
    "mg.Run": "run", "mg.Answer": "answer", "mg.Fit": "fit", "mg.Maximum": "best",
    "mg.RunCollection": "runs", "mg.FrameModel": "framed", "mg.Explanation": "explained",
    "mg.Info": "run.info", "mg.Stats": "graph.stats", "mg.Summary": "run.summary()",
    "mg.Marginal": "run.marginal(0)", "Observation": "seen", "MiniGibbsSampler": "reader",
    "MiniGibbsAnnealer": "annealer",
    "mg.observables.Estimate": "seen.estimate",
    "mg.observables.Measure": "mg.observables.Energy().bind(graph)",
    "mg.Answers": "answers", "mg.Structure": "learned", "mg.RepairedTable": "repaired",
    "mg.Constrained": "constrained", "Temperatures": "temperatures", "Ladder": "ladder",
    "Population": "population", "CategoricalImputer": "imputer", "TableRepairer": "repairer",
    "BoltzmannMachine": "machine", "RestrictedBoltzmannMachine": "restricted",
    "mg.theory.Comparison": "mg.theory.promise(pair, mg.PoissonGibbs(slowdown=1.1))",
    "mg.theory.Transition": "mg.theory.transition(pair, mg.Gibbs())",
}  # fmt: skip
INSTANCES = {
    "mg.FactorGraph": "chain", "mg.Domains": "chain.domains", "mg.Table": "chain.factors[0]",
    "mg.Potts": "mg.Potts(['rain'], ['wet'], 0.5)", "mg.Grid": "grid",
    "mg.Unary": "chain.factors[1]", "mg.Ising": "graph.factors[0]",
    "mg.Logical": "mg.Logical('and', [[0, 1]], 1.0)", "mg.Complete": "mg.Complete(4, 0.1)",
    "mg.Kernel": "mg.Kernel((3, 3), lambda a, b: np.exp(-a * a - b * b))",
    "mg.LowRank": "mg.LowRank(np.ones((4, 2)))", "mg.Points": "mg.Points(np.ones((4, 2)))",
    "mg.PoissonEstimator": "mg.PoissonEstimator(5.0)", "mg.theory.Enumeration": "everything",
    "mg.SubsetEstimator": "mg.SubsetEstimator(2)",
    "mg.CustomEstimator": "mg.CustomEstimator(estimate)",
    "mg.theory.TwoPointEstimator": "mg.theory.TwoPointEstimator(0.5)",
    "mg.theory.TruncatedEstimator": "mg.theory.TruncatedEstimator(mg.PoissonEstimator(5.0), 0.5)",
    "mg.Stencil": "stencil.factors[0]",
    "mg.NoisyMax": "mg.NoisyMax('wet', {'wind': [[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]]})",
    **{f"mg.{name}": f"mg.{name}()" for name in (
        "MGPMH", "BlockGibbs", "DoubleMinGibbs", "ExactEstimator", "ExactSampler", "Gibbs",
        "LocalMinibatchGibbs", "MinGibbs", "PoissonGibbs", "PoissonMH", "PopulationAnnealing",
        "Record", "SwendsenWang", "Tempering", "TunaMH",
    )},
    **RESULTS,
}  # fmt: skip

_GRAPHS = ["graph", "chain"]
_SAMPLERS = ["mg.Gibbs()", "mg.PoissonGibbs()", "mg.MinGibbs(batch=5.0)", "mg.BlockGibbs()"]
_PATHS = ["'x.run'", "Path('x.mg')", "'y.html'", "folder / 'chain.mg'"]

# Valid values by parameter, or by call and parameter.
VALID = {
    "graph": _GRAPHS, "graphs": ["[graph]", "{0.1: graph}"], "run": ["run"], "sampler": _SAMPLERS,
    "estimator": ["mg.PoissonEstimator(5.0)", "mg.ExactEstimator()"], "path": _PATHS,
    "checkpoint": ["'c.zarr'", "Path('d.zarr')"], "i": ["[0, 1]", "0"], "j": ["[1, 2]", "2"],
    "coupling": ["0.5", "[0.5, 0.2]"], "weight": ["0.5"], "scope": ["[[0, 1]]", "[0, 1]"],
    "log_potential": ["[[0.0, 1.0], [0.5, 0.0]]"],
    "var": ["[0]"], "probability": ["[[0.5, 0.5]] * 2"],
    "name": ["'m'", "'J'"], "names": ["['a', 'b']"], "labels": ["['no', 'yes']"],
    "sizes": ["[2, 2]", "[3, grid]"], "factors": ["[mg.Potts([0], [1], 0.5)]", "[]"],
    "tied": ["0"], "fixed": ["False"], "scale": ["None"], "floor": ["-5.0"],
    "learn": ["'log_potential'"],
    "op": ["'and'", "'imply'"], "negated": ["None"], "values": ["None"], "shape": ["(3, 3)"],
    "kind": ["'ising'", "'potts'"], "features": ["np.arange(8.0).reshape(4, 2)"],
    "kernel": ["'gaussian'", "point_kernel"], "norms": ["None", "'sums'"], "value": ["1"],
    "bound": ["bound"], "a": ["np.ones((4, 2))"], "b": ["None"], "variable": ["0", "2"],
    "variables": ["[0, 1]"], "evidence": ["{0: 1}"], "x": ["[0, 1, 1]"], "factor": ["0"],
    "parameters": ["{'J': 0.3}"], "data": ["rows"], "held_out": ["None", "0.5"], "rows": ["rows"],
    "columns": ["None"], "weights": ["[1.0] * 4"], "start": ["'random'"], "record": ["'draws'"],
    "method": ["'jackknife'"], "observe": ["None", "'energy'"], "executor": ["None"],
    "backend": ["'cpu'"], "scan": ["'random'", "'systematic'"],
    "max_time": ["'0.2s'", "0.2"], "every": ["'1s'"], "memory": ["1e8"], "reference": ["None"],
    "rules": ["[rule]"], "frame": ["cells"], "result": ["answer", "run"], "fit": ["fit"],
    "what": ["'m'"], "function": ["None"], "image": ["np.zeros((3, 4, 3), dtype=np.uint8)"],
    "probabilities": ["None"],
    "mg.models.dense_crf.costs": ["np.zeros((2, 3, 4))"],
    "everything": ["everything"], "state": ["0"],
    "of": ["mg.observables.Energy()"],
    "where": ["{0: 1}"], "J": ["np.array([[0, 1.0], [1.0, 0]])"], "h": ["None"], "level": ["0.9"],
    "grids": ["[grid, grid]"], "f": ["lambda a, b: a * b"], "levels": ["3"], "blocks": ["None"],
    "beta_range": ["(0.1, 1.0)"], "costs": ["costs"], "record_chains": ["None"], "title": ["'t'"],
    "prior": ["None"], "l1": ["0.0"], "l2": ["0.1"], "optimizer": ["None"], "axes": ["None"],
    "seed": ["1"], "count": ["3"], "thin": ["None", "2"], "side": ["3"],
    "n": ["4"], "states": ["3"],
    "sxy": ["3.0"], "srgb": ["13.0"], "bilateral_sxy": ["80.0"], "domains": ["graph.domains"],
    "distribution": ["np.ones(4) / 4"], "group": ["0"], "initial_states": ["None"], "shift": ["0"],
    "mg.FactorGraph.evidence": ["[-1, 1]"], "mg.Table.weight": ["None"],
    "mg.Unary.log_potential": ["[0.0, 1.0]"],
    "mg.Unary.from_probabilities.probability": ["[0.5, 0.5]"],
    "mg.Rule.variables": ["['name']"], "mg.Rule.values": ["['value']"], "mg.Rule.weight": ["None"],
    "mg.from_frames.variables": ["cells"], "mg.from_frames.name": ["'name'"],
    "mg.from_frames.value": ["'value'"], "mg.learn.method": ["'pcd'", "'pseudo'"],
    "mg.learn.start": ["None"], "mg.learn.graph": ["chain"], "mg.PointKernel.value": ["value"],
    "mg.CustomEstimator.function": ["estimate"], "mg.CustomEstimator.parameters": ["0.5"],
    "mg.Kernel.weight": ["lambda a, b: np.exp(-a * a - b * b)"], "mg.Kernel.shape": ["(3, 3)"],
    "mg.read.path": ["folder / 'chain.mg'"], "mg.load.path": ["folder / 'a.run'"],
    "mg.Tempering.sampler": ["None"], "mg.from_networkx.weight": ["'weight'"],
    "mg.observables.Own.function": ["lambda x: 1.0 * x[0]"],
    "mg.observables.Agreement.reference": ["[0] * 9"],
    "mg.observables.correlation_length.name": ["'m'"], "mg.observables.reweight.scale": ["1.1"],
    "mg.observables.Estimate.value": ["0.5"], "mg.models.random_tables.unary": ["0.0"],
    "mg.models.random_tables.factors": ["4"], "mg.models.random_tables.variables": ["5"],
    "mg.models.random_tables.scale": ["1.0"], "mg.Domains.names": ["['a', 'b']"],
    "mg.write.path": ["'x.mg'", "'x.uai'"], "run.save.path": ["'x.run'"],
    "answer.save.path": ["'x.answer'"], "fit.save.path": ["'x.fit'"],
    "mg.learn_structure.frame": ["likely", "clean"], "score": ["None", "'bic'"],
    "mg.learn_structure.method": ["'tree'", "'network'", "'pairwise'"], "tiers": ["None"],
    "required": ["()", "[('x0', 'x1')]"], "forbidden": ["()", "[('x1', 'x0')]"],
    "bins": ["None", "3"], "restarts": ["1"], "bootstrap": ["0", "2"], "gamma": ["0.25"],
    "max_parents": ["2"], "tabu": ["3"], "equivalent_size": ["1.0"], "pseudocount": ["1.0"],
    "mg.repair.frame": ["table"], "mg.repair.constraints": ["'zip -> city'", "None"],
    "mg.repair.labels": ["None", "{0: {'city': 'Rome'}}"], "mg.repair.columns": ["['city']"],
    "mg.repair.missing": ["('',)"], "certainty": ["0.5"], "clean": ["clean"], "column": ["'x1'"],
    "repaired.calibration.bins": ["4"], "repaired.report.path": ["'x.html'"],
    "learned.write.path": ["'x.mg'", "'x.bif'"], "learned.encode.frame": ["likely"],
    "mg.infer_many.frame": ["{'rain': ['no', None]}", "rows"], "mg.infer_many.graph": ["chain"],
    "mg.infer.sampler": ["None", "mg.Gibbs()", "mg.Tempering(levels=3)",
                         "mg.PopulationAnnealing(population=20, sweeps=1)"],
    "mg.infer.observe": ["None", "{'m': 'count'}"], "exact": ["None", "False"],
    "prove": ["False", "True"], "betas": ["None", "[0.5, 1.0]", "1.0"],
    "temperatures.observed.name": ["'m'"], "temperatures.mean.name": ["'energy'", "'m'"],
    "temperatures.binder.name": ["'overlap'", "'m'"], "temperatures.plot.name": ["'energy'"],
    "beta": ["1.0"], "likelihoods": ["{0: [1, 4]}", "{'wind': [0.1, 1.0, 0.0]}"],
    "temperatures": ["True", "False"], "offsets": ["[(0, 1), (1, 0)]"], "sides": ["(3, 3)"],
    "mg.Stencil.weights": ["0.2", "[0.2, -0.1]"], "mg.Stencil.kind": ["'ising'", "'potts'"],
    "effect": ["'wet'"], "causes": ["{'rain': 0.5}"], "leak": ["0.1"],
    "mg.add_noisy_max.rules": ["[mg.NoisyMax('wet', {'rain': 0.5})]"],
    "mg.add_noisy_max.graph": ["chain"], "population": ["20"], "sweeps": ["1", "3"],
    "overlap": ["0.85"], "couplings": ["'gaussian'", "'signs'"], "dimensions": ["2", "3"],
    "polynomial": ["cubic"], "cqm": ["cqm"], "bqm": ["bqm"], "dqm": ["dqm"],
    "penalty": ["None", "10.0"], "wide": ["False"], "mg.from_cqm.wide": ["'penalty'"],
    "mg.from_pgmpy.model": ["markov"], "mg.from_pyagrum.model": ["gum"], "G": ["nx"],
    "constrained.samples.states": ["[[0, 0, 0]]", "np.zeros((2, len(constrained.graph)), int)"],
    "num_reads": ["2"], "entries": ["1000"], "order": ["None"],
    "X": ["likely", "likely[:3]", "likely % 2"], "y": ["None"], "n_samples": ["2"],
    "random_state": ["0", "np.random.RandomState(1)"], "n_components": ["2"], "steps": ["2"],
    "log_z_time": ["'0.3s'"], "n_iter": ["2"], "threshold": ["0.5"], "input_features": ["None"],
    "fit_imputer.method": ["'tree'", "'network'"], "max_categories": ["100"],
    "fit_machine.method": ["'pcd'", "'pseudo'"], "fit_restricted.method": ["'pcd'", "'cd'"],
    "fit_repairer.labels": ["None"], "fit_repairer.constraints": ["None", "'x0 -> x1'"],
    "mg.theory.site_updates.chain": ["mg.theory.transition(pair, mg.Gibbs())"],
    "mg.learn_tables.graph": ["learned.graph"], "mg.learn_tables.data": ["likely"],
    "mg.resume.checkpoint": ["folder / 'c.zarr'"], "failure": ["0.1"],
    "mg.resume_learning.checkpoint": ["folder / 'c.fit'"], "low": ["0.0"], "high": ["1.0"],
    "framed.best.result": ["mg.infer(framed.graph, progress=False)"], "slowdown": ["None", "1.5"],
    "mg.theory.systematic_slowdown.slowdown": ["1.5"], "fit.contrast.weights": ["{'J': 1.0}"],
    "seen.apply.function": ["np.mean"],
}  # fmt: skip

# Arguments that every call gets, so that it ends soon.
_SHORT = {"sweeps": "3", "progress": "False"}
ALWAYS = {
    "mg.sample": _SHORT,
    "mg.sample_many": _SHORT,
    "mg.sample_until": {"max_time": "'0.3s'", "progress": "False"},
    "mg.infer": {"max_time": "'0.5s'", "progress": "False"},
    "mg.maximize": {"rounds": "2", "progress": "False"},
    "mg.learn": {"steps": "2", "data": "rows", "progress": "False"},
    "mg.explain": {"costs": "costs"},
    "mg.models.dense_crf": {"costs": "np.zeros((2, 3, 4))"},
    "mg.learn_structure": {"progress": "False"},
    "fit_imputer": {"X": "likely[:20]"},
    "fit_machine": {"steps": "2", "log_z_time": "'0.3s'"},
    "fit_restricted": {"steps": "2", "log_z_time": "'0.3s'"},
    "fit.log_likelihood": {"max_time": "'0.3s'"},
    "reader.sample": {"num_sweeps": "3"},
    "reader.sample_dqm": {"num_sweeps": "3"},
    "annealer.sample": {"num_sweeps": "3"},
    "annealer.sample_dqm": {"num_sweeps": "3"},
    "annealer.sample_cqm": {"num_sweeps": "3"},
    "annealer.sample_poly": {"num_sweeps": "3"},
}


def by_annotation(annotation: str) -> list[str]:
    """Return valid values of a plain type."""
    plain = {"bool": ["True", "False"], "float": ["0.5", "1.0"], "int": ["1", "2"], "str": ["'x'"]}
    found = [value for kind, values in plain.items() if kind in annotation for value in values]
    return found or ["None"]
