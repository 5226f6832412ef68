"""Tests of samplers: run compiled code from many independent starts, test the final states."""

import numpy as np
from scipy import stats

import minigibbs as mg
from minigibbs.engine.dispatch import begin_sweeps, carries, sweep
from minigibbs.kernels.box_tables import MOST_COUNT, make_tables
from minigibbs.kernels.jit import entry, kernel
from minigibbs.running.backends.cpu import CpuGroup, advance, cpu_group
from minigibbs.running.request import Options

# One test in 10,000 fails on correct code with an unlucky seed. Seeds are fixed, so a test that
# passed once passes until the code or the random stream changes.
FALSE_ALARM = 1e-4


@kernel
def _copy(source, target):
    for k in range(len(target)):
        target[k] = source[k]


@entry
def _advance_each(data, model, chain, scan, recorder, states, carried, updates, counting):
    """Advance from each state. A literal in place of `counting` would compile `advance` again."""
    for k in range(len(states)):
        _copy(states[k], chain.x)
        _copy(carried[k], chain.carried)
        scan.position[0] = 0
        advance(data, model, chain, scan, recorder, updates, counting)
        _copy(chain.x, states[k])
        _copy(chain.carried, carried[k])


def recording(options):
    """Return options of a run with those of `mg.Record` collected, so that tests can vary each."""
    options = dict(options)
    names = options.pop("record", ("marginals", "energy"))
    parts = {key: options.pop(name) for name, key in _PARTS.items() if name in options}
    if not parts:
        return {**options, "record": names}
    return {
        **options,
        "record": mg.Record(*([names] if isinstance(names, str) else names), **parts),
    }


_PARTS = {"thin": "thin", "record_variables": "variables", "record_chains": "chains"}


PLAIN = {"warmup": 0, "start": "random"}


def sample(graph, *arguments, **options):
    """Call `mg.sample` with `thin`, `record_variables` and `record_chains` as separate options.

    The default has no warm-up and random initial states.
    """
    return mg.sample(graph, *arguments, **PLAIN | recording(options))


def sample_until(graph, *arguments, **options):
    """Call `mg.sample_until` with the same options."""
    return mg.sample_until(graph, *arguments, **PLAIN | recording(options))


def advance_each(graph, sampler, states, updates, seed, scan="random", carried=None):
    """Make `updates` updates from each of many states; return final states, running sums, tally."""
    plan = Options(sampler=sampler, chains=1, seed=0, scan=scan, record=()).plan(graph, 1, 1)
    stream = np.random.SeedSequence(seed).generate_state(4, np.uint64)
    data = sampler.prepare(graph)
    states = np.array(states, dtype=graph.state_type)
    group = CpuGroup(plan, data, states[0].copy(), stream)
    if carried is None:
        assert not carries(data), "a sampler that carries something needs it given"
        carried = np.zeros((len(states), len(group.chain.carried)))
    carried = np.array(carried, dtype=np.float64)
    parts = group.chain, group.scan, group.recorder
    _advance_each(data, graph.packed, *parts, states, carried, updates, False)
    return states, carried, group.chain.tally


def begun(graph, sampler, states):
    """Return the running sums of chains that begin in these states, from the sampler's `begin`."""
    plan = Options(sampler=sampler, chains=1, seed=0, record=()).plan(graph, 1, 1)
    data, stream = sampler.prepare(graph), np.zeros(4, np.uint64)
    states, inverse = np.unique(np.array(states, graph.state_type), axis=0, return_inverse=True)
    rows = []
    for state in states:
        group = CpuGroup(plan, data, state, stream)
        group.begin()
        rows.append(group.chain.carried)
    return np.array(rows)[inverse.ravel()]


def sweep_each(graph, sampler, states, sweeps, seed, data=None):
    """Make `sweeps` sweeps from each of many states; return final states and the tally."""
    plan = Options(sampler=sampler, chains=1, seed=0, record=()).plan(graph, 1, len(graph))
    stream = np.random.SeedSequence(seed).generate_state(4, np.uint64)
    data = sampler.prepare(graph) if data is None else data
    states = np.array(states, dtype=graph.state_type)
    group = cpu_group(plan, data, states[0].copy(), stream)
    _sweep_each(data, graph.packed, group.chain, group.replicas, states, sweeps)
    return states, group.chain.tally


@entry
def _sweep_each(data, model, chain, replicas, states, sweeps):
    for k in range(len(states)):
        _copy(states[k], chain.x)
        begin_sweeps(data, model, chain, replicas)
        for _ in range(sweeps):
            sweep(data, model, chain, replicas)
        _copy(chain.x, states[k])


def coarse(graph):
    """Give a graph of few points tables so small that an entry has several points; return it."""
    for group in graph.implicits:
        vars(group)["tables"] = make_tables(group.tree, group.rule, 3, 2)
        words = group.tables.slots[:, :, 1]
        assert (words & MOST_COUNT).max() > 1
    return graph


def state_numbers(graph, states):
    """Return each state's index in `naive.states`."""
    sizes = np.where(graph.evidence < 0, graph.sizes, 1)
    values = np.where(graph.evidence < 0, states, 0)
    return np.ravel_multi_index(tuple(values.T.astype(np.int64)), tuple(sizes))


def chi_square(numbers, probabilities):
    """Return the p-value of counts against probabilities; rare cells are pooled to expect 5."""
    counts = np.bincount(numbers, minlength=len(probabilities))
    expected = probabilities * len(numbers)
    order = np.argsort(expected)
    pool = np.cumsum(np.cumsum(expected[order]) >= 5.0)  # the rarest cells, until they expect 5
    pool[pool > 0] = np.arange(1, np.count_nonzero(pool) + 1)
    counts, expected = np.bincount(pool, counts[order]), np.bincount(pool, expected[order])
    counts, expected = counts[expected > 0], expected[expected > 0]
    if expected[0] < 5.0:  # the pool is still too small: merge it with the next cell
        counts = np.append(counts[:2].sum(), counts[2:])
        expected = np.append(expected[:2].sum(), expected[2:])
    return stats.chisquare(counts, expected).pvalue
