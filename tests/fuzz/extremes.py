"""Random small graphs with extreme numbers, against exact rational arithmetic.

Weights range from 1e-300 to 1e300. Terms cancel, values nearly tie, hundreds of factors share a
variable, domains have one value, evidence and hard constraints exclude states. Every method may
refuse a graph or warn. An answer without a warning must be correct.
"""

import random
import warnings

import numpy as np

import minigibbs as mg
from tests.fuzz import graphs, queries
from tests.settings import SETTINGS, SWEEPS

RIGHT, WARNED, REFUSED = "right", "warned", "refused"
OUTCOMES = (RIGHT, WARNED, REFUSED)  # a case has the worst outcome of its methods, in this order
MOST_STATES = 128
EXACT_ERROR = 2e-3  # of a probability, if rounding may change log-odds by 1e-3
SWEEPS_MADE = 400
SAMPLED_ERROR = 0.12  # of a probability: 4 x 400 sweeps, with the least ESS without a warning
METHODS = 3  # number of samplers per graph
# Samplers whose number of draws grows with the weights are too slow on strong graphs.
STRONG = 1e3
GROWING = ("mgpmh", "min-gibbs", "double-min", "poisson-mh", "tuna-mh", "poisson-gibbs")
SCANS = ("random", "systematic", "shuffled", "shared", "chromatic")


def check(rng: random.Random) -> str:
    """Answer a random graph by several methods; raise an error for an unwarned wrong answer."""
    try:
        graph = random_graph(rng)
    except mg.GraphError:
        return REFUSED
    try:
        truth = marginals(graph)
        found = [exactly(graph, truth, method) for method in EXACT]
        if truth is not None:
            whole = queries.truth_of(graph)
            asked = [*queries.EXACT, rng.choice(queries.SEARCHES)]
            found += [queried(graph, whole, query, rng) for query in asked]
        names = sampler_names(graph)
        for _ in range(METHODS):
            found.append(sampled(graph, truth, rng.choice(names), rng))
    except Exception as error:
        error.add_note(describe(graph))
        raise
    return max(found, key=OUTCOMES.index)


def describe(graph) -> str:
    """Return the graph as text, so that a case can be reproduced by hand."""
    arrays = [(type(group).__name__, group.arrays()) for group in graph.factors]
    return f"sizes {graph.sizes.tolist()}, evidence {graph.evidence.tolist()}, {arrays}"


def marginals(graph):
    """Return the true marginals [variable, value]; None if no state is possible."""
    states, distribution = graphs.enumerated(graph)
    if not distribution.any():
        return None
    found = np.zeros((len(graph), int(graph.sizes.max())))
    for variable in range(len(graph)):
        np.add.at(found[variable], states[:, variable], distribution)
    return found


def by_enumeration(graph):
    """Compute marginals by `exact_distribution`."""
    states, distribution = mg.exact_distribution(graph)
    found = np.zeros((len(graph), int(graph.sizes.max())))
    for variable in range(len(graph)):
        np.add.at(found[variable], states[:, variable], distribution)
    return found, ()


def by_inference(graph):
    """Compute exact marginals by `infer`."""
    answer = mg.infer(graph, "60s", progress=False)
    assert answer.exact, "a tiny graph was sampled"
    return answer.marginals, answer.warnings


EXACT = [by_enumeration, by_inference, lambda graph: (mg.exact_marginals(graph), ())]


def exactly(graph, truth, method) -> str:
    """Return the outcome of an exact method on a graph."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found, own = method(graph)
        except mg.MinigibbsError as error:
            if truth is None and "probability 0" in str(error):
                return REFUSED
            raise AssertionError(f"WRONG: refused for no reason: {error}") from error
    assert truth is not None, "an answer where no state is possible"
    if own or any(one.category is UserWarning for one in said):
        return WARNED
    off = float(np.abs(found - truth).max())
    assert off < EXACT_ERROR, f"WRONG: exact marginals are off by {off:.2g}"
    return RIGHT


def queried(graph, truth, query, rng) -> str:
    """Return the outcome of a question about a graph."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            error, own = query(graph, truth, rng)
        except mg.MinigibbsError as refusal:
            if query in queries.MAY_REFUSE:
                return REFUSED
            name = query.__name__
            raise AssertionError(f"WRONG: {name} refused for no reason: {refusal}") from refusal
    if own or any(one.category is UserWarning for one in said):
        return WARNED
    assert error <= 1.0, f"WRONG: {query.__name__} is off by {error:.2g} times what is allowed"
    return RIGHT


def sampler_names(graph) -> list[str]:
    """Return the samplers that terminate on this graph."""
    local = graph.local_energies
    strong = float(local[np.isfinite(local)].max(initial=0.0)) > STRONG
    every = {**SETTINGS, **SWEEPS}
    return [
        name
        for name, setting in every.items()
        if setting.sampler.exact and not (strong and name.startswith(GROWING))
    ]


def sampled(graph, truth, name, rng) -> str:
    """Return the outcome of a sampler on a graph."""
    sampler = {**SETTINGS, **SWEEPS}[name].sampler
    scan = None if sampler.sweeps else rng.choice(SCANS)
    try:
        run = mg.sample(
            graph,
            sampler,
            scan=scan,
            sweeps=SWEEPS_MADE,
            warmup=SWEEPS_MADE // 4,
            seed=rng.randrange(2**32),
            threads=1,
            progress=False,
        )
        summary = run.summary()
    except mg.MinigibbsError:
        return REFUSED
    assert truth is not None, "a run where no state is possible"
    if summary.warnings:
        return WARNED
    off = np.abs(run.marginals - truth)
    assert off.max() < SAMPLED_ERROR, (
        f"WRONG: {name}, scan {scan}: marginals are off by {off.max():.2g}"
    )
    return RIGHT


def random_graph(rng: random.Random) -> mg.FactorGraph:
    """Return a few variables with extreme factors and, often, evidence."""
    sizes, states = [], 1
    for _ in range(rng.randrange(1, 7)):
        size = rng.choice((1, 2, 2, 2, 2, 3, 4))
        if states * size <= MOST_STATES:
            sizes.append(size)
            states *= size
    made = (rng.choice(MAKERS)(rng, sizes) for _ in range(rng.choice((1, 2, 2, 3, 5))))
    graph = mg.FactorGraph(sizes, [group for group in made if group is not None])
    share = rng.choice((0.0, 0.0, 0.2, 0.5, 1.0))
    clamped = {i: rng.randrange(size) for i, size in enumerate(sizes) if rng.random() < share}
    return graph.condition(clamped) if clamped else graph


def size_of(rng) -> float:
    """Return a number of any magnitude; common ones and those near a limit are more frequent."""
    sign = rng.choice((-1.0, 1.0))
    kind = rng.random()
    if kind < 0.4:
        return sign * rng.uniform(0.05, 2.0)
    if kind < 0.6:
        return sign * rng.choice((5.0, 10.0, 20.0, 50.0, 350.0, 700.0, 745.0, 1500.0))
    if kind < 0.8:
        return sign * 10.0 ** rng.uniform(8, 18)
    return sign * 10.0 ** rng.uniform(-300, 101 if kind < 0.99 else 300)


def two(rng, sizes):
    """Return two variables, or None."""
    return rng.sample(range(len(sizes)), 2) if len(sizes) > 1 else None


def wild(rng, sizes):
    """Return a factor of any kind with numbers of any magnitude."""
    return rng.choice(graphs.KINDS)(rng, sizes, False)


def canceling(rng, sizes):
    """Return large weights of one pair that cancel, and a small one."""
    if two(rng, sizes) is None:
        return None
    i, j = two(rng, sizes)
    large = size_of(rng)
    weights = [large, rng.uniform(0.1, 1.0), -large]
    rng.shuffle(weights)
    return mg.Potts([i] * 3, [j] * 3, weights)


def tied(rng, sizes):
    """Return large numbers that differ in their last digits."""
    i, large = rng.randrange(len(sizes)), size_of(rng)
    values = [large * (1.0 + rng.randrange(8) * 2.0**-50) for _ in range(sizes[i])]
    return mg.Unary([i], [values])


def crowded(rng, sizes):
    """Return hundreds of factors at one variable, which nearly cancel."""
    i, count = rng.randrange(len(sizes)), rng.randrange(50, 400)
    strength = rng.choice((0.5, 2.0, 7.0, 40.0))
    rows = np.zeros((count, sizes[i]))
    rows[np.arange(count), np.arange(count) % sizes[i]] = strength
    return mg.Unary([i] * count, rows)


def locked(rng, sizes):
    """Return a chain of spins that hardly ever change individually."""
    spins = [i for i, size in enumerate(sizes) if size == 2]
    if len(spins) < 2:
        return None
    strength = rng.choice((3.0, 6.0, 10.0, 30.0, 1e3, 1e9, 1e13, 1e16)) * rng.choice((-1, 1))
    return mg.Ising(spins[:-1], spins[1:], strength)


def field(rng, sizes):
    """Return a weak field, which large weights must not hide."""
    i = rng.randrange(len(sizes))
    return mg.Unary([i], [[rng.uniform(-1.0, 1.0) for _ in range(sizes[i])]])


MAKERS = [wild, wild, canceling, tied, crowded, locked, field, field]
