"""Parallel tempering: joint distribution of all levels, exchanges, Houdayer moves, log Z."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.engine.dispatch import sweep
from minigibbs.graph.factors.implicit.copied import Copied
from minigibbs.graph.simple import simplified
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.running.api import one_chain
from minigibbs.samplers.poisson_gibbs.groups import group_energy, prepare_energies
from minigibbs.samplers.tempering.account import Ladder, _log_sum, _without_each, account
from minigibbs.samplers.tempering.ladder import (
    BLOCKS,
    EMPTY,
    KEY_0,
    LENGTH,
    ROUNDS,
    SWAPS,
    noted,
    read_slot,
    swap_slots,
)
from minigibbs.samplers.tempering.levels import equally_spaced
from minigibbs.samplers.tempering.small import SmallLadder
from minigibbs.samplers.tempering.soft import softened
from minigibbs.samplers.tempering.spins import SpinLadder, put_spin_states, spin_states
from minigibbs.theory import Enumeration
from tests.graph.test_simple import one_valued
from tests.hard import HARD
from tests.harness import FALSE_ALARM, sample
from tests.running.test_checkpoint import same_runs
from tests.zoo import IMPLICIT, ZOO

SPINS = mg.FactorGraph(
    [2, 2, 2],
    [mg.Ising([0, 1], [1, 2], [0.9, -0.6]), mg.Unary([0, 2], [[0.0, 0.7], [0.4, 0.0]])],
)
POTTS = mg.FactorGraph(
    [3, 2],
    [mg.Potts([0], [1], 1.4), mg.Unary([0], [[0.0, 0.8, -0.5]])],
)
BETA = (0.0, 0.6, 1.0)
RANK = mg.FactorGraph(
    [2, 2, 2],
    [mg.LowRank([[0.9, 0.2], [-0.5, 0.7], [0.4, 0.6]]), mg.Unary([0], [[0.0, 0.5]])],
)


def exact_replicas(graph, beta, twins, count, rng):
    """Return independent states of every level, [count, variable, lane], and distributions."""
    everything = Enumeration(graph)
    columns, distributions = [], []
    for _, b in itertools.product(range(twins), beta):
        distribution = np.exp(b * (everything.log_potential - everything.log_potential.max()))
        distributions.append(distribution / distribution.sum())
        columns.append(everything.states[rng.choice(len(distribution), count, p=distributions[-1])])
    return np.stack(columns, axis=2).astype(graph.state_type), distributions


@entry
def _sweep_each(data, model, chain, replicas, carried, packed, states):
    """Make one round from each packed start, and write the states [start, replica, variable].

    Every start has its own key. Even and odd exchanges alternate, with and without clusters.
    """
    for k in range(len(packed)):
        for j in range(len(carried)):
            chain.carried[j] = carried[j]
        chain.carried[data.own + ROUNDS] = k % 4
        chain.carried[data.own + KEY_0] = k
        for j in range(len(replicas)):
            replicas[j] = packed[k, j]
        sweep(data, model, chain, replicas)
        for slot in range(len(data.beta) * data.twins):
            read_slot(data, replicas, slot, states[k, slot])


def packed_states(data, states):
    """Pack states [start, variable, replica] in the layout of `data`: one row per start."""
    if not isinstance(data, SpinLadder):
        packed = np.zeros((len(states), data.stride * states.shape[1]), states.dtype)
        packed[:, data.place + data.stride * np.arange(states.shape[1])[:, None]] = states
        return packed
    words = np.zeros((len(states), data.words, states.shape[1]), np.uint64)
    for slot, place in enumerate(data.place):
        bits = states[:, data.model.variable, slot].astype(np.uint64) << np.uint64(place % 64)
        words[:, place // 64] |= bits
    return words.reshape(len(states), -1)


def joint_p_value(graph, sampler, twins, change=lambda data: data, count=60_000):
    """Return the p-value of one round from exact starts, for an unchanged joint distribution."""
    rng = np.random.default_rng(3)
    group = one_chain(graph, sampler)
    data, beta = change(group.data), group.data.beta
    states, distributions = exact_replicas(graph, beta, twins, count, rng)
    found = states.swapaxes(1, 2).copy()
    packed, carried = packed_states(data, states), group.chain.carried.copy()
    _sweep_each(data, graph.packed, group.chain, group.replicas, carried, packed, found)
    lanes = len(beta) * twins
    after = found.swapaxes(1, 2)
    assert (after != states).any(axis=(1, 2)).mean() > 0.5  # states must change
    numbers = [np.ravel_multi_index(tuple(after[:, :, c].T), graph.sizes) for c in range(lanes)]
    sizes = [len(distribution) for distribution in distributions]
    joint = np.bincount(np.ravel_multi_index(numbers, sizes), minlength=np.prod(sizes))
    expected = distributions[0]
    for distribution in distributions[1:]:
        expected = np.multiply.outer(expected, distribution).ravel()
    order = np.argsort(expected)
    groups = np.minimum(np.cumsum(expected[order]) * count // 10, 2000).astype(int)
    observed = np.bincount(groups, joint[order])
    wanted = np.bincount(groups, expected[order] * count)
    keep = wanted > 0
    return stats.chisquare(observed[keep], wanted[keep] * observed.sum() / wanted.sum()).pvalue


LADDERS = {
    "spins": (SPINS, mg.Tempering(levels=BETA, houdayer=False), 1),
    "spins-houdayer": (SPINS, mg.Tempering(levels=BETA, houdayer=True), 2),
    "copies": (POTTS, mg.Tempering(mg.PoissonGibbs(), BETA, houdayer=False), 1),
    "copies-houdayer": (POTTS, mg.Tempering(mg.PoissonGibbs(), BETA, houdayer=True), 2),
    "copies-poisson": (
        POTTS,
        mg.Tempering(mg.PoissonGibbs(heavy=0, theta=1.0), BETA, houdayer=False),
        1,
    ),
    "copies-mgpmh": (SPINS, mg.Tempering(mg.MGPMH(batch=2.0), BETA, houdayer=False), 1),
    "kernel": (
        mg.FactorGraph([2] * 3, [mg.Kernel((3,), lambda d: 0.9 / d**2, kind="ising")]),
        mg.Tempering(mg.PoissonGibbs(heavy=2), BETA),
        1,
    ),
    "low-rank-sums": (RANK, mg.Tempering(levels=BETA), 1),
    "low-rank-draws": (RANK, mg.Tempering(mg.PoissonGibbs(heavy=0), BETA), 1),
    "points-and-complete": (
        mg.FactorGraph(
            [3, 2],
            [mg.Points([[0.0], [0.7]], weight=1.8), mg.Complete(2, -0.5, "potts"), *POTTS.factors],
        ),
        mg.Tempering(levels=BETA),
        1,
    ),
    "copies-gibbs": (SPINS, mg.Tempering(mg.Gibbs(), BETA, houdayer=True), 2),
}


@pytest.mark.parametrize("name", LADDERS)
def test_a_round_leaves_the_distribution_of_all_levels(name):
    """False alarm: 1e-4 per case."""
    graph, sampler, twins = LADDERS[name]
    assert joint_p_value(graph, sampler, twins) > FALSE_ALARM


def test_exchanges_at_wrong_temperatures_are_caught():
    """The levels are updated correctly, but exchanged with wrong temperatures."""

    def wrong(data):
        return data._replace(beta=np.array([0.0, 0.8, 1.0]))

    graph, sampler, twins = LADDERS["copies"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_clusters_that_leave_a_neighbor_out_are_caught():
    def wrong(data):
        return data._replace(start=np.zeros_like(data.start))

    graph, sampler, twins = LADDERS["copies-houdayer"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_a_field_that_is_off_is_caught():
    def wrong(data):
        spins = data.model.spins._replace(base=data.model.spins.base * np.float32(1.25))
        return data._replace(model=data.model._replace(spins=spins))

    graph, sampler, twins = LADDERS["spins"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_an_energy_that_is_off_is_caught():
    def wrong(data):
        return data._replace(model=data.model._replace(weight=data.model.weight // 2))

    graph, sampler, twins = LADDERS["spins"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_clusters_of_spins_that_leave_a_neighbor_out_are_caught():
    def wrong(data):
        start = np.zeros_like(data.model.start)
        return data._replace(model=data.model._replace(start=start))

    graph, sampler, twins = LADDERS["spins-houdayer"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


@pytest.mark.parametrize(("levels", "twins"), [(3, 1), (3, 2), (32, 2), (33, 2), (64, 1), (130, 2)])
def test_every_slot_has_a_bit_of_its_own(levels, twins):
    """Test words of one and two ladders, with swaps between all neighboring replicas."""
    tempering = mg.Tempering(levels=tuple(np.linspace(0, 1, levels)), houdayer=twins == 2)
    group = one_chain(SPINS, tempering)
    data = group.data
    assert len(set(data.place.tolist())) == levels * twins == len(data.place)
    states = np.random.default_rng(levels).integers(0, 2, (3, levels * twins)).astype(np.uint8)
    put_spin_states(data, group.replicas, states)
    np.testing.assert_array_equal(spin_states(data, group.replicas), states)
    for first in (0, 1):
        flags = np.zeros(levels * twins)
        for twin in range(twins):
            flags[twin * levels + first : (twin + 1) * levels - 1 : 2] = 1
        begin = data.own + SWAPS + levels - 1
        group.chain.carried[begin : begin + len(flags)] = flags
        _swap(data, group.chain, group.replicas)
        for slot in np.flatnonzero(flags):
            states[:, [slot, slot + 1]] = states[:, [slot + 1, slot]]
        np.testing.assert_array_equal(spin_states(data, group.replicas), states)


@entry
def _swap(data, chain, replicas):
    swap_slots(data, chain, replicas)


def test_clusters_of_two_ladders_in_several_words():
    """Forty levels take two words of 64 bits per ladder: after rounds every state is in its slot.

    The energies used for exchanges are the energies of the states, replica by replica.
    """
    beta = tuple(np.linspace(0, 1, 40))
    group = one_chain(SPINS, mg.Tempering(levels=beta, houdayer=True))
    run_rounds(group.data, SPINS.packed, group.chain, group.replicas, 41)
    states = spin_states(group.data, group.replicas)
    first = group.data.own + SWAPS + 39 + 2 * 80
    energies = group.chain.carried[first : first + 80]
    np.testing.assert_allclose(energies + SPINS.offset, SPINS.log_potential(states.T), rtol=1e-12)


@entry
def run_rounds(data, model, chain, replicas, rounds):
    for _ in range(rounds):
        sweep(data, model, chain, replicas)


def test_implicit_copies_that_are_too_strong_are_caught():
    def wrong(data):
        copied = data.inner.implicit
        strong = copied._replace(scales=np.minimum(copied.scales * 1.4, 1.0))
        return data._replace(inner=data.inner._replace(implicit=strong))

    graph, sampler, twins = LADDERS["low-rank-draws"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_exchanges_by_a_wrong_implicit_energy_are_caught():
    def wrong(data):
        return data._replace(implicit=data.implicit._replace(weight=data.implicit.weight * 0.6))

    graph, sampler, twins = LADDERS["kernel"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_sums_that_exchanges_leave_behind_are_caught():
    """The sums of each copy are recomputed; here the sums of one copy overwrite another's."""

    def wrong(data):
        copied = data.inner.implicit._replace(room=0)
        return data._replace(inner=data.inner._replace(implicit=copied))

    graph, sampler, twins = LADDERS["low-rank-sums"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


@entry
def _energies_of(data, states, numbers, out):
    for k in range(len(states)):
        out[k] = group_energy(data, states[k], numbers)


@pytest.mark.parametrize("name", ["kernel", "ring", "complete-potts", "low-rank", "several"])
def test_energies_of_implicit_groups(name):
    graph, rng = IMPLICIT[name], np.random.default_rng(0)
    states = (rng.random((50, len(graph))) * graph.sizes).astype(graph.state_type)
    found, numbers = np.empty(50), np.zeros(2 * int(graph.sizes.max()))
    _energies_of(prepare_energies(graph.implicits), states, numbers, found)
    np.testing.assert_allclose(found, graph.implicit_energies(states), rtol=1e-12, atol=1e-12)


def test_energies_of_points_have_their_scales():
    """Points with different norms: pairs are in single precision, so sums agree to 1e-6."""
    places = np.random.default_rng(1).uniform(0, 2, (30, 2)) ** 2
    graph = mg.FactorGraph([3] * 30, [mg.Points(places, norms="sums")])
    (group,), rng = graph.implicits, np.random.default_rng(0)
    assert np.ptp(group.scale) > 0.1
    states = rng.integers(0, 3, (50, 30)).astype(graph.state_type)
    found, numbers = np.empty(50), np.zeros(6)
    _energies_of(prepare_energies(graph.implicits), states, numbers, found)
    np.testing.assert_allclose(found, graph.implicit_energies(states), rtol=1e-6)


def test_copies_of_a_group_are_the_group_scaled():
    graph, scales = IMPLICIT["low-rank"], np.array([0.0, 0.3, 1.0])
    (group,), rng = graph.implicits, np.random.default_rng(0)
    copied, n = Copied(group, scales), 3 * len(graph)
    i, j = np.triu_indices(n, 1)
    matrix = np.zeros((n, n))
    matrix[i, j] = matrix[j, i] = copied.pair_weights(i, j)
    a, b = np.triu_indices(len(graph), 1)
    for c, scale in enumerate(scales):
        own = matrix[c::3, c::3].copy()
        np.testing.assert_allclose(own[a, b], scale * group.pair_weights(a, b))
        matrix[c::3, c::3] = 0.0
        np.testing.assert_allclose(np.abs(own).sum(axis=1), copied.local_weights()[c::3])
        np.testing.assert_array_equal(np.count_nonzero(own, axis=1), copied.degrees()[c::3])
    assert not matrix.any()
    states = rng.integers(0, 2, (20, n))
    stored = mg.FactorGraph([2] * n, [copied.stored()])
    np.testing.assert_allclose(copied.energies(states), stored.log_potential(states))
    with pytest.raises(mg.GraphError, match="between 0 and 1"):
        Copied(group, np.array([0.0, 1.5]))


def test_both_modes_of_a_complete_graph():
    """Chains stay in a mode; ladders spend half the time in each, within 5 standard errors."""
    graph = mg.FactorGraph([2] * 200, [mg.Complete(200, 1.6 / 200)])
    stuck = mg.sample(graph, start=[0] * 200, sweeps=300, seed=1, progress=False)
    assert stuck.marginals[:, 1].mean() < 0.2
    run = mg.sample(graph, mg.Tempering(), start=[0] * 200, sweeps=3000, seed=1, progress=False)
    assert abs(run.marginals[:, 1].mean() - 0.5) < 5 * max(run.standard_errors.max(), 0.005)


@pytest.mark.parametrize(
    ("name", "houdayer"),
    [*itertools.product(ZOO, [False, True])]
    + [(name, False) for name in ("kernel", "points-dense", "several")],
)
def test_marginals_and_log_z(name, houdayer):
    """Test every graph of the zoo, and implicit ones, to 5 standard errors: 5e-7 if normal.

    Errors of log Z are from 16 parts, so 8 standard errors are allowed."""
    graph = (ZOO | IMPLICIT)[name]
    run = mg.sample(
        graph,
        mg.Tempering(houdayer=houdayer),
        sweeps=3000,
        warmup=100,
        seed=4,
        progress=False,
        record=("marginals", "draws", "energy"),
    )
    exact = mg.exact_marginals(graph)
    spread = np.maximum(run.standard_errors, 0.003)
    assert (np.abs(run.marginals - exact) < 5 * spread).all()
    log_z = mg.log_partition(graph)
    assert abs(run.ladder.log_z - log_z) < 8 * run.ladder.log_z_error + 1e-9
    np.testing.assert_allclose(run.energy[0], graph.energy(run.draws[0]))


FORBIDDEN = mg.Table([[0, 2]], [[[0.0, -np.inf], [0.3, 0.0]]])


@pytest.mark.parametrize("houdayer", [False, True])
@pytest.mark.parametrize(
    "graph",
    [one_valued(2), one_valued(3), one_valued(2, [FORBIDDEN])],
    ids=["bits", "copies", "hard"],
)
def test_log_z_counts_factors_of_variables_of_one_value(graph, houdayer):
    """The bound is 8 standard errors, as above."""
    run = mg.sample(graph, mg.Tempering(houdayer=houdayer), sweeps=2000, seed=4, progress=False)
    log_z = mg.log_partition(graph)
    assert abs(run.ladder.log_z - log_z) < 8 * run.ladder.log_z_error + 1e-9


def tied(chain=4):
    """Return variables tied by hard constraints: no single update connects the two states."""
    same = [[0.3, -np.inf], [-np.inf, 0.0]]
    return mg.FactorGraph([2] * chain, [mg.Table([[k, k + 1] for k in range(chain - 1)], same)])


@pytest.mark.parametrize("graph", [*HARD.values(), tied()], ids=[*HARD, "tied"])
@pytest.mark.parametrize("houdayer", [False, True])
def test_zeros_are_crossed_below_the_target(graph, houdayer):
    """The target obeys hard constraints and visits every state: 5 or 8 standard errors."""
    run = mg.sample(
        graph,
        mg.Tempering(houdayer=houdayer),
        sweeps=4000,
        warmup=100,
        seed=4,
        progress=False,
        record=("marginals", "energy"),
    )
    assert np.isfinite(run.energy).all()
    exact = mg.exact_marginals(graph)
    assert (np.abs(run.marginals - exact) < 5 * np.maximum(run.standard_errors, 0.004)).all()
    log_z = mg.log_partition(graph)
    assert abs(run.ladder.log_z - log_z) < 8 * run.ladder.log_z_error + 1e-9


def test_a_round_leaves_the_distribution_of_soft_levels_and_the_hard_one():
    """Test three levels at 0, 0.5 and 1 with softened constraints, and the model, as above."""
    graph = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], [[0.3, -np.inf], [-np.inf, 0.0]])])
    sampler = mg.Tempering(levels=(0.0, 0.5, 1.0), houdayer=False)
    soft = softened(graph, simplified(graph)).table
    distributions = [np.exp(beta * soft) for beta in (0.0, 0.5, 1.0)]
    distributions.append(np.exp(graph.log_potential(STATES)))
    distributions = [distribution / distribution.sum() for distribution in distributions]
    rng, count = np.random.default_rng(5), 60_000
    group = one_chain(graph, sampler)
    chosen = [rng.choice(4, count, p=distribution) for distribution in distributions]
    states = np.stack([STATES[one] for one in chosen], axis=2).astype(np.uint8)
    found, packed = states.swapaxes(1, 2).copy(), packed_states(group.data, states)
    carried = group.chain.carried.copy()
    _sweep_each(group.data, graph.packed, group.chain, group.replicas, carried, packed, found)
    after = found.swapaxes(1, 2)
    numbers = [2 * after[:, 0, c] + after[:, 1, c] for c in range(4)]
    joint = np.bincount(np.ravel_multi_index(numbers, (4,) * 4), minlength=256)
    expected = distributions[0]
    for distribution in distributions[1:]:
        expected = np.multiply.outer(expected, distribution).ravel()
    assert not joint[expected == 0].any()
    order = np.argsort(expected)
    order = order[expected[order] > 0]
    groups = (np.cumsum(expected[order]) * count // 10).astype(int)
    groups = np.unique(groups, return_inverse=True)[1]
    observed, wanted = np.bincount(groups, joint[order]), np.bincount(groups, expected[order])
    assert stats.chisquare(observed, wanted * observed.sum()).pvalue > FALSE_ALARM
    assert (after[:, 0, 3] != states[:, 0, 3]).mean() > 0.01  # the hard level must change


STATES = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


@pytest.mark.parametrize("levels", [65, 66, 67])
def test_the_number_of_levels_does_not_change_what_is_noted(levels):
    """With hard constraints there is one more level, for any number of running sums.

    One more level has 132 numbers, which equals two numbers per level for 66 given levels.
    """
    beta, graph = tuple(np.linspace(0.0, 1.0, levels)), HARD["apart"]
    run = sample(graph, mg.Tempering(levels=beta, houdayer=False), sweeps=20, chains=2)
    assert run.ladder.levels == (*beta, 1.0)
    assert run.ladder.rounds == 40


def test_two_modes_are_visited():
    """Single-site chains stay in their initial mode, with fields of 20 at each spin."""
    i, j = np.triu_indices(10, 1)
    graph = mg.FactorGraph([2] * 10, [mg.Ising(i, j, 1.2)])
    run = mg.sample(graph, mg.Tempering(), sweeps=4000, seed=1, progress=False)
    assert abs(run.chain_marginals[:, :, 1] - 0.5).max() < 0.1
    stuck = mg.sample(graph, sweeps=4000, seed=1, progress=False)
    assert abs(stuck.chain_marginals[:, :, 1] - 0.5).min() > 0.4
    assert run.ladder.round_trips > 100


def test_levels_reject_equally_and_are_found_again():
    graph = mg.models.ising_lattice(side=12, beta=0.6, periodic=False)
    sampler = mg.Tempering().settled(graph)
    assert sampler == mg.Tempering().settled(graph)
    assert sampler.levels[0] == 0.0
    assert sampler.levels[-1] == 1.0
    run = mg.sample(graph, sampler, sweeps=2000, seed=1, progress=False)
    rejected = 1 - np.array(run.ladder.swap_rates)
    assert rejected.max() - rejected.min() < 0.25
    assert run.ladder.barrier == pytest.approx(rejected.sum())
    assert abs(len(sampler.levels) - 2 * run.ladder.barrier) < 4


def test_levels_in_equal_steps_of_the_barrier():
    beta = np.array([0.0, 0.5, 1.0])
    found = equally_spaced(beta, np.array([0.6, 0.2]), 5)
    np.testing.assert_allclose(found, [0, 1 / 6, 1 / 3, 0.5, 1.0])


def test_counts_are_those_of_all_levels():
    graph = mg.models.ising_lattice(side=4, beta=0.3)
    sampler = mg.Tempering(levels=(0.0, 0.3, 0.6, 1.0), houdayer=False)
    run = sample(graph, sampler, sweeps=50, chains=2, seed=1, progress=False)
    assert run.info.factor_evaluations == 2 * 50 * 4 * 16 * 4
    assert run.info.updates == 2 * 50 * 16
    assert run.ladder.rounds == 100


def test_dense_models_exchange_rarely():
    """Energies read all pairs, sweeps only few: energies take a third of the time at most."""
    dense = mg.models.ising_rbf(side=12, beta=0.2)
    data = mg.Tempering(mg.PoissonGibbs(), (0.0, 0.5, 1.0), houdayer=False).prepare(dense)
    assert data.sweeps > 1
    sparse = mg.models.potts_lattice(6, 3, 0.5)
    assert isinstance(mg.Tempering(levels=(0.0, 1.0)).prepare(sparse), SmallLadder)
    assert mg.Tempering(levels=(0.0, 1.0)).prepare(sparse).sweeps == 1
    assert one_chain(dense, mg.Tempering(mg.Gibbs(), 3)).chain.tally[EVALUATIONS] == 0


@pytest.mark.parametrize(
    ("graph", "sampler"),
    [
        (ZOO["ising"], mg.Tempering()),
        (ZOO["mixed"], mg.Tempering(levels=5, houdayer=True)),
    ],
)
def test_the_same_draws_on_threads_and_processes(graph, sampler):
    options = {"sweeps": 400, "seed": 3, "record": ("marginals", "draws", "energy")}
    runs = [
        sample(graph, sampler, **options, progress=False, **where)
        for where in ({"threads": 1}, {"threads": 2}, {"executor": "processes"})
    ]
    for run in runs[1:]:
        same_runs(runs[0], run)
        assert run.ladder == runs[0].ladder


def test_a_resumed_run_is_the_same(tmp_path):
    check_resumed(ZOO["mixed"], tmp_path)


def check_resumed(graph, tmp_path):
    """Compare a run that was resumed from a checkpoint with an uninterrupted one."""
    options = {"seed": 3, "record": ("marginals", "draws", "energy")}
    whole = sample(graph, mg.Tempering(), sweeps=300, thin=3, **options, progress=False)
    folder = tmp_path / "run"
    half = sample(
        graph, mg.Tempering(), sweeps=150, thin=3, **options, checkpoint=folder, progress=False
    )
    assert half.ladder.rounds == 600
    resumed = mg.resume(folder, sweeps=150, progress=False)
    same_runs(whole, resumed)
    assert resumed.ladder == whole.ladder
    path = tmp_path / "run.mgr"
    resumed.save(path)
    assert mg.load(path).ladder == whole.ladder
    assert mg.load(folder).ladder == whole.ladder


def test_until_a_goal_is_met():
    run = mg.sample_until(ZOO["ising"], mg.Tempering(), ess=300, seed=1, progress=False)
    assert run.info.ended == "converged"
    assert run.info.scan == "own"


@pytest.mark.parametrize("sampler", [mg.Tempering(), mg.Tempering(mg.Gibbs(), 3)])
def test_small_and_extreme(sampler):
    one = mg.FactorGraph([2], [mg.Unary([0], [0.0, 30.0])])
    run = mg.sample(one, sampler, sweeps=500, seed=1, progress=False)
    assert run.marginals[0, 1] > 0.99
    nothing = mg.sample(one.condition({0: 0}), sampler, sweeps=5, progress=False)
    assert nothing.marginals[0, 0] == 1.0
    assert nothing.ladder is None
    lonely = mg.FactorGraph([1, 2, 1], [mg.Potts([0, 0], [1, 2], [1.0, 2.0])])
    run = mg.sample(lonely, sampler, sweeps=3000, seed=1, progress=False)
    exact = mg.exact_marginals(lonely)
    np.testing.assert_allclose(run.marginals, exact, atol=0.05)
    assert run.ladder.log_z == pytest.approx(mg.log_partition(lonely), abs=0.2)
    strong = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 400.0)])
    run = mg.sample(strong, sampler, sweeps=2000, seed=1, progress=False)
    assert 0.2 < run.marginals[0, 1] < 0.8


def test_what_it_cannot_do_is_said():
    with pytest.raises(mg.SampleError, match="Houdayer moves follow stored factors"):
        mg.sample(IMPLICIT["kernel"], mg.Tempering(houdayer=True), sweeps=1)
    with pytest.raises(mg.SampleError, match="Gibbs reads stored factors"):
        mg.sample(IMPLICIT["kernel"], mg.Tempering(mg.Gibbs()), sweeps=1)
    large = mg.FactorGraph(
        [2] * 90_000, [mg.Kernel((300, 300), lambda a, b: 0.1 / (a * a + b * b))]
    )
    with pytest.raises(mg.SampleError, match=r"every exchange needs the energies .* shorter reach"):
        mg.sample(large, mg.Tempering(levels=(0.0, 1.0)), sweeps=1)
    with pytest.raises(mg.SampleError, match="MinGibbs, which stores more than a state"):
        mg.sample(ZOO["potts"], mg.Tempering(mg.MinGibbs(batch=50)), sweeps=1)
    with pytest.raises(mg.SampleError, match="Tempering, which stores"):
        mg.sample(ZOO["potts"], mg.Tempering(mg.Tempering()), sweeps=1)
    with pytest.raises(mg.SampleError, match="give sweeps, of 4 updates each"):
        mg.sample(ZOO["potts"], mg.Tempering(), updates=100)
    with pytest.raises(mg.SampleError, match="has no scan"):
        mg.sample(ZOO["potts"], mg.Tempering(), sweeps=1, scan="random")
    for levels in (1, 0.5, (0.0, 0.5), (0.1, 1.0), (0.0, 0.7, 0.7, 1.0), "two", (0.0, "a", 1.0)):
        with pytest.raises(mg.SampleError, match="levels must be"):
            mg.Tempering(levels=levels)
    with pytest.raises(mg.SampleError, match="sampler must be a Sampler"):
        mg.Tempering("gibbs")


def test_it_says_what_it_does():
    assert str(mg.Tempering()) == "Tempering()"
    assert str(mg.Tempering(mg.Gibbs(), BETA)) == "Tempering(Gibbs(), levels=3)"
    assert "levels" in mg.Tempering().describe(ZOO["ising"])
    run = mg.sample(ZOO["ising"], mg.Tempering(), sweeps=5, progress=False)
    assert run.info.sampler.startswith("Tempering(levels=")
    assert not mg.Tempering(mg.LocalMinibatchGibbs(2)).exact


def test_golden_draws():
    """Golden draws pin the random stream."""
    graph = ZOO["ising"]
    run = sample(
        graph,
        mg.Tempering(levels=4),
        sweeps=10,
        chains=1,
        seed=1,
        record="draws",
        thin=1,
        progress=False,
    )
    shown = " ".join("".join(map(str, row)) for row in run.draws[0])
    assert shown == "11110 10110 01110 00011 00011 11110 01111 11111 11111 10110"


def test_log_z_leaves_out_the_first_stretch_without_a_warmup():
    """The first rounds depend on the start: 60 short runs have no bias, and their intervals cover.

    The mean of the errors is within 5 of its standard errors of 0 (false alarm 1e-6). At least 46
    of 60 intervals of 95% cover the truth (1e-6).
    """
    graph = mg.models.ising_lattice(side=5, beta=0.6)
    truth, off, covered = mg.infer(graph).log_z, [], []
    for seed in range(60):
        options = {"warmup": 0, "seed": seed, "progress": False, "threads": 1}
        ladder = mg.sample(graph, mg.Tempering(), sweeps=200, **options).ladder
        low, high = ladder.log_z_interval()
        off.append(ladder.log_z - truth)
        covered.append(low <= truth <= high)
        assert ladder.log_z_degrees in (3, 7)
    assert abs(np.mean(off)) < 5 * np.std(off) / np.sqrt(60)
    assert sum(covered) >= 46


def test_the_interval_of_log_z_is_students():
    ladder = Ladder((0.0, 1.0), (0.5,), 0.5, 10, 1, 2.0, 0.1, 3)
    low, high = ladder.log_z_interval()
    assert (high - low) / 2 == pytest.approx(0.1 * stats.t(3).ppf(0.975))
    assert np.isnan(replace(ladder, log_z_degrees=0).log_z_interval()).all()
    saved = ladder.to_dict()
    assert Ladder.from_dict(saved) == ladder
    del saved["log_z_degrees"]  # files before 0.3 lack it
    assert Ladder.from_dict(saved).log_z_degrees == 0


def test_a_log_z_without_an_error_is_saved_and_shown(tmp_path):
    graph = mg.models.ising_lattice(4, 0.3)
    run = mg.sample(graph, mg.Tempering(), sweeps=1, chains=1, warmup=0, seed=1, progress=False)
    assert run.ladder.log_z is not None
    assert run.ladder.log_z_error is None
    assert "of unknown error" in str(run.summary())
    run.save(tmp_path / "short.run")
    assert mg.load(tmp_path / "short.run").ladder == run.ladder


def test_a_ladder_whose_hard_level_was_never_reached_has_no_log_z():
    """In statistics of two chains, the sums of the last two temperatures are empty on one side."""
    beta, own, twins = np.array([0.0, 1.0, 1.0]), 0, 1
    carried = np.zeros((2, noted(len(beta), twins)))
    carried[:, [ROUNDS, LENGTH]] = 8, 1
    blocks = carried[:, -BLOCKS * (len(beta) - 1) * 2 :].reshape(2, BLOCKS, len(beta) - 1, 2)
    blocks[:] = EMPTY
    blocks[:, :8] = 0.0
    assert account(carried, beta, twins, own, 1.5, 0).log_z == pytest.approx(1.5)
    blocks[:, :8, 1, 0] = EMPTY
    empty = account(carried, beta, twins, own, 1.5, 0)
    assert (empty.log_z, empty.log_z_error) == (None, None)
    blocks[0, 7, 1, 0] = 0.0  # one part has data
    known = account(carried, beta, twins, own, 1.5, 0)
    assert np.isfinite(known.log_z)
    assert known.log_z_error is None


def test_few_round_trips_are_warned_of_wherever_a_ladder_is_used():
    graph = mg.models.curie_weiss(100, 1.5)
    run = mg.sample(graph, mg.Tempering(levels=2), sweeps=200, seed=1, progress=False)
    assert run.ladder.round_trips < 40
    assert any("round trips" in text for text in run.summary().warnings)
    run = mg.sample(graph, mg.Tempering(), sweeps=1000, seed=1, progress=False)
    assert run.ladder.round_trips >= 40
    assert not any("round trips" in text for text in run.summary().warnings)


def test_a_log_z_below_a_visited_state_is_warned_of():
    graph = mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2], [1, 2, 3], 3.0)])
    run = mg.sample(graph, mg.Tempering(), sweeps=1000, seed=1, progress=False)
    assert not any("visited state" in text for text in run.summary().warnings)
    assert -run.energy.min() == pytest.approx(9.0)  # of two states: log Z is 9.7
    wrong = replace(run, ladder=replace(run.ladder, log_z=8.0, log_z_error=0.01))
    assert any("visited state" in text for text in wrong.summary().warnings)
    unknown = replace(run, ladder=replace(run.ladder, log_z=8.0, log_z_error=None))
    assert not any("visited state" in text for text in unknown.summary().warnings)


def test_estimates_without_each_part():
    """The jackknife's estimates from cumulative sums equal those from the other parts."""
    rng = np.random.default_rng(0)
    sums, counts = rng.normal(0, 3, (12, 4, 2)), rng.integers(1, 9, 12).astype(float)
    sums[3, 2] = sums[:, 3, 0] = EMPTY  # empty sums
    sums[7, 3, 0] = 1.0
    found = _without_each(sums, counts)
    for k in range(12):
        others = np.arange(12) != k
        means = _log_sum(sums[others]) - np.log(counts[others].sum())
        assert found[k] == pytest.approx((means[:, 0] - means[:, 1]).sum(), rel=1e-12)


@pytest.mark.parametrize(("levels", "message"), [(1, "at least 2"), (10**4 + 1, "at most 10,000")])
def test_numbers_of_levels_that_make_no_ladder_are_refused(levels, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.Tempering(levels=levels)
