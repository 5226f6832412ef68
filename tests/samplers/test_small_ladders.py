"""Ladders of small domains: levels as bytes of lanes, hard constraints, and one level at a time."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.api import one_chain
from minigibbs.samplers.tempering.sampler import ladder_slots, ladder_states
from minigibbs.samplers.tempering.small import SerialLadder, SmallLadder
from tests.harness import FALSE_ALARM, sample
from tests.running.test_checkpoint import same_runs
from tests.samplers.test_tempering import (
    BETA,
    POTTS,
    check_resumed,
    joint_p_value,
    run_rounds,
)

TABLES = mg.FactorGraph(
    [3, 2],
    [
        mg.Table([[1, 0]], [[[0.0, 1.1, -0.4], [0.9, 0.0, 0.5]]], weight=1.2),
        mg.Unary([1], [[0.0, 0.6]]),
    ],
)
LADDERS = {
    "small": (POTTS, mg.Tempering(levels=BETA, houdayer=False), 1),
    "small-houdayer": (POTTS, mg.Tempering(levels=BETA, houdayer=True), 2),
    "small-tables": (TABLES, mg.Tempering(levels=BETA, houdayer=False), 1),
}


def fixed(array):
    """Return the array without write access, so that no other function is compiled for it."""
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("name", LADDERS)
def test_a_round_leaves_the_distribution_of_all_levels(name):
    """False alarm: 1e-4 per case."""
    graph, sampler, twins = LADDERS[name]
    assert isinstance(sampler.prepare(graph), SmallLadder)
    assert joint_p_value(graph, sampler, twins) > FALSE_ALARM


@pytest.mark.parametrize("name", ["small", "small-tables"])
@pytest.mark.parametrize("part", ["betas", "base", "energy"])
def test_small_domains_whose_numbers_are_off_are_caught(name, part):
    """Wrong temperatures of updates, wrong log weights, and wrong energies of exchanges."""

    def wrong(data):
        if part == "betas":
            return data._replace(betas=fixed(data.betas * np.float32(0.7)))
        model, colors = data.model, data.model.colors
        if part == "base":
            colors = colors._replace(base=fixed(colors.base * np.float32(1.4)))
            return data._replace(model=model._replace(colors=colors))
        weight, table = model.weight // 2, model.table // 2
        return data._replace(model=model._replace(weight=weight, table=table))

    graph, sampler, twins = LADDERS[name]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def test_clusters_of_small_domains_that_leave_a_neighbor_out_are_caught():
    def wrong(data):
        return data._replace(start=fixed(np.zeros_like(data.start)))

    graph, sampler, twins = LADDERS["small-houdayer"]
    assert joint_p_value(graph, sampler, twins, wrong) < FALSE_ALARM


def mixed_domains(hard=False):
    """Return a ring of sizes 2 to 5 with pairs, tables, unary factors and one clamped variable."""
    rng, sizes = np.random.default_rng(8), [3, 2, 5, 4, 3, 2, 4, 3]
    groups = [mg.Potts([0, 2, 4, 6], [1, 3, 5, 7], rng.normal(0, 1, 4))]
    for i, j in ((1, 2), (3, 4), (5, 6), (7, 0), (2, 6)):
        table = rng.normal(0, 1, (sizes[i], sizes[j]))
        if hard:
            table[0, 1] = -np.inf
        groups.append(mg.Table([[i, j]], table))
    groups.append(mg.Unary([0, 4], rng.normal(0, 1, (2, 3))))
    return mg.FactorGraph(sizes, groups).condition({3: 2})


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize(("levels", "houdayer"), [(5, True), (31, False), (40, True), (70, False)])
def test_levels_updated_together_are_those_updated_one_by_one(levels, houdayer, hard):
    """The states, the energies and the exchanges of all words are equal, bit by bit."""
    graph = mixed_domains(hard)
    tempering = mg.Tempering(levels=tuple(np.linspace(0, 1, levels)), houdayer=houdayer)
    group = one_chain(graph, tempering)
    serial = tempering.prepare(graph, lanes=32)
    assert isinstance(group.data, SmallLadder)
    assert isinstance(serial, SerialLadder)
    carried, first = group.chain.carried.copy(), group.replicas.copy()
    ended = []
    for data in (group.data, serial):
        group.chain.carried[:], group.replicas[:] = carried, first
        run_rounds(data, graph.packed, group.chain, group.replicas, 40)
        ended.append((ladder_states(data, group.replicas), group.chain.carried.copy()))
    np.testing.assert_array_equal(ended[0][0], ended[1][0])
    np.testing.assert_array_equal(ended[0][1], ended[1][1])
    assert np.ptp(ended[0][0], axis=1).all()  # every variable has several values
    states, found = ladder_slots(group.data, group.chain, group.replicas)
    soft = slice(0, levels) if not hard else slice(levels, levels + 1)
    np.testing.assert_allclose(found[soft] + graph.offset, graph.log_potential(states[soft]))


def test_the_same_draws_on_threads():
    graph, options = mixed_domains(hard=True), {"sweeps": 200, "seed": 3, "progress": False}
    tempering = mg.Tempering(levels=5, houdayer=True)
    one, two = (sample(graph, tempering, **options, threads=threads) for threads in (1, 2))
    same_runs(one, two)
    assert one.ladder == two.ladder


def test_a_resumed_run_is_the_same(tmp_path):
    check_resumed(mixed_domains(hard=True), tmp_path)


@pytest.mark.parametrize("hard", [False, True])
def test_marginals_and_log_z(hard):
    """Marginals agree to 5 standard errors, log Z to 8, as in the tests of all ladders."""
    graph = mixed_domains(hard)
    run = mg.sample(graph, mg.Tempering(), sweeps=3000, warmup=100, seed=4, progress=False)
    exact = mg.exact_marginals(graph)
    assert (np.abs(run.marginals - exact) < 5 * np.maximum(run.standard_errors, 0.003)).all()
    log_z = mg.log_partition(graph)
    assert abs(run.ladder.log_z - log_z) < 8 * run.ladder.log_z_error + 1e-9


def test_golden_draws_of_small_domains():
    options = {"sweeps": 8, "chains": 1, "seed": 1, "record": "draws", "thin": 1, "progress": False}
    run = sample(mixed_domains(hard=True), mg.Tempering(levels=4), **options)
    shown = " ".join("".join(map(str, row)) for row in run.draws[0])
    assert shown == "01421130 01021030 01220132 10420132 10320131 10320132 21321030 10321022"
