"""Random graphs, tame and wild, and the requirements on every sampler for them.

A sampler may refuse a graph. Otherwise a run must stay in the domains and record the energies of
its states. From exact draws, a sweep's number of updates must preserve the distribution.
"""

import random
from fractions import Fraction

import numpy as np
from scipy import stats

import minigibbs as mg
from minigibbs.engine.dispatch import carries
from minigibbs.samplers.gibbs.fields import FieldData
from tests import naive
from tests.harness import advance_each, sweep_each
from tests.settings import _FIELDS, SETTINGS, SWEEPS, fields, nothing

FALSE_ALARM = 1e-4  # per test of a distribution
TRIES = 3  # with independent draws: a correct sampler fails one case in 1e12
LEAST_EXPECTED = 20.0  # per pool of states
STARTS = 20_000
MOST_STATES = 1_000  # enumerated; more for a single large domain
MOST_WORK = 3 * 10**7  # running sums of all starts, or values that an update of each start reads
LARGEST = 1e8  # largest energy that rounding changes by less than 1e-7


def check(rng: random.Random) -> None:
    """Sample a random graph with a random sampler; raise an error for a failure."""
    name = rng.choice(list(SETTINGS))
    tame = rng.random() < 0.5
    graph = random_graph(rng, tame)
    try:
        check_run(graph, SETTINGS[name].sampler, rng)
        check_distribution(graph, SETTINGS[name], rng, tame)
        name = rng.choice(list(SWEEPS))
        check_sweeps(graph, SWEEPS[name], rng, tame)
    except mg.MinigibbsError:
        raise
    except Exception as error:
        error.add_note(f"{name} on {graph!r}, sizes {graph.sizes.tolist()}")
        raise


def check_sweeps(graph, setting, rng, tame) -> None:
    """Check a sampler that updates all variables at once, unless it refuses the graph."""
    try:
        setting.sampler.settled(graph).prepare(graph)
    except mg.MinigibbsError:
        return
    check_run(graph, setting.sampler, rng)
    check_distribution(graph, setting, rng, tame)


def check_run(graph, sampler, rng) -> None:
    """Check that a run stays in the domains, keeps the evidence, and records its energies."""
    record = ("marginals", "draws", "energy")
    seed, scan = rng.randrange(2**32), rng.choice(["random", "systematic", "shuffled", "shared"])
    options = {"sweeps": 3, "chains": 2, "seed": seed, "record": record}
    options["scan"] = None if sampler.sweeps else scan
    run = mg.sample(graph, sampler, progress=False, threads=1, **options)
    assert (run.draws < graph.sizes).all(), "a value outside its domain"
    clamped = graph.evidence >= 0
    assert (run.draws[:, :, clamped] == graph.evidence[clamped]).all(), "evidence was not kept"
    flat = run.draws.reshape(-1, len(graph))
    want = graph.energy(flat).reshape(run.energy.shape)
    scale = np.maximum(np.abs(want), scale_of(graph))
    assert (np.abs(run.energy - want) <= 1e-9 * scale).all(), "an energy that is not its state's"


def scale_of(graph) -> float:
    """Return the sum of the magnitudes of all energies, to which rounding errors are relative."""
    total = 1.0
    for group in graph.factors:
        for value in group.arrays().values():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                total += float(np.abs(value[np.isfinite(value)]).sum())
    return total


def check_distribution(graph, setting, rng, tame) -> None:
    """Check that a sweep preserves the distribution of exact draws."""
    sampler, free = setting.sampler, graph.evidence < 0
    if not free.any() or (not tame and not sampler.sweeps and carries(sampler.prepare(graph))):
        return  # nothing to sample, or running sums beyond double precision
    states, distribution = enumerated(graph)
    if not tame and not well_conditioned(graph, states[distribution > 1e-12]):
        return
    for _ in range(TRIES):
        p = distribution_kept(graph, setting, states, distribution, rng)
        if p > FALSE_ALARM:
            return
    raise AssertionError(f"not the distribution: p = {p:.2g}")


def distribution_kept(graph, setting, states, distribution, rng) -> float:
    """Return the p-value of the states after a sweep from exact draws; 1 if no test is possible."""
    data, free = setting.sampler.prepare(graph), graph.evidence < 0
    carry = fields if isinstance(data, FieldData) else getattr(setting, "carry", nothing)
    _FIELDS.clear()  # cached by the address of a graph
    width = max(int(graph.sizes.max()), setting.sampler.workspace(graph, data).carried)
    count = min(STARTS, MOST_WORK // width)
    numbers = np.random.default_rng(rng.randrange(2**32)).choice(
        len(distribution), size=count, p=distribution
    )
    starts, seeds = states[numbers], [rng.randrange(2**32) for _ in range(2)]
    carried = carry(graph, starts, seed=seeds[0])
    updates = int(free.sum())
    if setting.sampler.sweeps:
        found, _ = sweep_each(graph, setting.sampler, starts, 1, seeds[1], data)
    else:
        parts = graph, setting.sampler, starts, updates, seeds[1]
        found, _, _ = advance_each(*parts, carried=carried)
    assert (found < graph.sizes).all(), "a value outside its domain"
    values = np.where(free, found, 0).astype(np.int64)
    places = np.ravel_multi_index(tuple(values.T), tuple(np.where(free, graph.sizes, 1)))
    assert (distribution[places] > 0).all(), "a state that has no probability"
    return goodness(np.bincount(places, minlength=len(distribution)), distribution * count)


def goodness(counts, expected) -> float:
    """Return the chi-square p-value of counts; cells are pooled until each expects 20 or more."""
    pools = [[0.0, 0.0]]
    for cell in np.argsort(expected):
        if pools[-1][1] >= LEAST_EXPECTED:
            pools.append([0.0, 0.0])
        pools[-1][0] += counts[cell]
        pools[-1][1] += expected[cell]
    if len(pools) > 1 and pools[-1][1] < LEAST_EXPECTED:
        last = pools.pop()
        pools[-1] = [pools[-1][0] + last[0], pools[-1][1] + last[1]]
    if len(pools) < 2:
        return 1.0
    return float(stats.chisquare(*np.transpose(pools)).pvalue)


def enumerated(graph):
    """Return all states that agree with the evidence, and their probabilities, from exact sums.

    All probabilities are 0 if hard constraints exclude every state.
    """
    graph = graph.stored()
    free = graph.evidence < 0
    states = np.indices(np.where(free, graph.sizes, 1)).reshape(len(graph), -1).T
    states = np.where(free, states, graph.evidence)
    if len(states) > MOST_STATES:  # one large domain, tame
        logs = graph.log_potential(states)
    else:
        sums, possible = [Fraction(0)] * len(states), np.ones(len(states), dtype=bool)
        for scope, function in naive.factor_functions(graph):
            energies = [function(*own) for own in states[:, scope].tolist()]
            possible &= np.array(energies) > -np.inf
            sums = [
                total + (Fraction(one) if one > -np.inf else 0)
                for total, one in zip(sums, energies, strict=True)
            ]
        most = max((total for total, one in zip(sums, possible, strict=True) if one), default=0)
        logs = np.array([float(total - most) for total in sums])
        logs[~possible] = -np.inf
    if logs.max() == -np.inf:
        return states, np.zeros(len(states))
    weights = np.exp(logs - logs.max())
    return states, weights / weights.sum()


def well_conditioned(graph, states) -> bool:
    """Return whether double precision suffices: factors of free variables are not too large.

    In 1e90 - 1e90 + 0.5 the summand 0.5 is lost in some orders of summation.
    """
    graph = graph.stored()
    moves = np.flatnonzero((states != states[:1]).any(axis=0))
    sizes = np.zeros((len(graph), len(states)))
    for scope, function in naive.factor_functions(graph):
        value = np.abs([function(*own) for own in states[:, scope].tolist()])
        for variable in scope:
            sizes[variable] += value
    return bool((sizes[moves] < LARGEST).all())


def random_graph(rng: random.Random, tame: bool) -> mg.FactorGraph:
    """Return a few variables, connected randomly by factors of all kinds and sizes."""
    sizes = random_sizes(rng, tame)
    groups = [
        group
        for _ in range(rng.choice((0, 1, 1, 2, 3, 5)))
        if (group := rng.choice(KINDS)(rng, sizes, tame)) is not None
    ]
    graph = mg.FactorGraph(sizes, groups)
    share = rng.choice((0.0, 0.0, 0.2, 0.5, 1.0))
    clamped = {i: rng.randrange(size) for i, size in enumerate(sizes) if rng.random() < share}
    return graph.condition(clamped) if clamped else graph


def random_sizes(rng, tame):
    """Return domains of 1 to a million values, with a limited number of states."""
    if tame and rng.random() < 0.1:
        return [rng.choice((300, 70_000, 1_000_000))]
    sizes, states = [], 1
    for _ in range(rng.randrange(1, 8)):
        size = rng.choice((1, 2, 2, 2, 3, 4, 9, 20, 300))
        if states * size <= MOST_STATES:
            sizes.append(size)
            states *= size
    return sizes


def weight(rng, tame):
    """Return a number of an ordinary magnitude, or of any if not tame."""
    sign = rng.choice((-1.0, 1.0))
    if tame or rng.random() < 0.5:
        return sign * rng.uniform(0.01, 1.5)
    return rng.choice((0.0, sign * 10.0 ** rng.uniform(-300, 100), sign * rng.uniform(5, 800)))


def weights(rng, tame, count):
    return [weight(rng, tame) for _ in range(count)]


def pairs(rng, sizes, allowed):
    """Return pairs of variables: a star, a ring, one pair many times, or random ones."""
    variables = [i for i, size in enumerate(sizes) if allowed(size)]
    if len(variables) < 2:
        return [], []
    shape = rng.choice(("star", "ring", "same", "any"))
    if shape == "star":
        return [variables[0]] * (len(variables) - 1), variables[1:]
    if shape == "ring":
        return variables[:-1], variables[1:]
    if shape == "same":
        count = rng.randrange(1, 40)
        return [variables[0]] * count, [variables[1]] * count
    chosen = [rng.sample(variables, 2) for _ in range(rng.randrange(1, 12))]
    return [i for i, _ in chosen], [j for _, j in chosen]


def potts(rng, sizes, tame):
    i, j = pairs(rng, sizes, lambda size: True)
    return mg.Potts(i, j, weights(rng, tame, len(i)))


def ising(rng, sizes, tame):
    i, j = pairs(rng, sizes, lambda size: size == 2)
    return mg.Ising(i, j, weights(rng, tame, len(i)))


def unary(rng, sizes, tame):
    i = rng.randrange(len(sizes))
    energy = np.array(weights(rng, tame, min(sizes[i], 50)) + [0.0] * (sizes[i] - 50))
    return mg.Unary([i], [with_zeros(rng, energy)])


def table(rng, sizes, tame):
    scope = rng.sample(range(len(sizes)), rng.randrange(1, min(len(sizes), 3) + 1))
    shape = [sizes[i] for i in scope]
    entries = int(np.prod(shape))
    energy = np.zeros(entries)
    some = min(entries, 60)
    places = rng.sample(range(entries), some)
    energy[places] = weights(rng, tame, some)
    return mg.Table([scope], with_zeros(rng, energy).reshape(1, *shape))


def with_zeros(rng, energy):
    """Occasionally forbid some entries."""
    if rng.random() < 0.3:
        share = rng.choice((0.1, 0.3, 0.6))
        energy[[k for k in range(min(len(energy), 1000)) if rng.random() < share]] = -np.inf
    return energy


def logical(rng, sizes, tame):
    two = [i for i, size in enumerate(sizes) if size == 2]
    if not two:
        return None
    op = rng.choice(("and", "or", "equal", "imply", "istrue"))
    arity = 1 if op == "istrue" else rng.randrange(1, min(len(two), 4) + 1)
    scope = rng.sample(two, arity)
    negated = [[rng.random() < 0.5 for _ in scope]]
    return mg.Logical(op, [scope], weight(rng, tame), negated=negated)


KINDS = [potts, potts, ising, unary, table, logical]
