"""Asynchronous Gibbs: exact on one thread, biased by what threads do not see of each other.

What threads do at the same time is up to the machine, so that laws are tested on schedules that are
stated: one thread after the other, and threads that see each other's writes only when they meet.
With real threads, laws that no schedule can change are tested, and that nothing is lost.
"""

import itertools
import os

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.api import _place
from minigibbs.running.backends.cpu import AsyncGroup, CpuGroup, cpu_group
from minigibbs.running.request import Options
from minigibbs.theory import transition
from tests import naive
from tests.hard import HARD
from tests.harness import FALSE_ALARM, chi_square, state_numbers
from tests.zoo import IMPLICIT, ZOO

PAIR = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.0)])
TRIANGLE = mg.FactorGraph(
    [2, 2, 3], [mg.Potts([0, 0, 1], [1, 2, 2], [1.5, -1.0, 0.8]), mg.Unary([2], [[0.0, 0.7, 0.2]])]
)


def group_of(graph, threads, seed=1):
    """A chain at a random state, with the class that so many threads ask for."""
    sampler = mg.AsyncGibbs(threads=threads)
    plan = Options(sampler=sampler, chains=1, seed=seed, record=()).plan(graph, 0, 1)
    start = (np.random.default_rng(seed).random(len(graph)) * graph.sizes).astype(graph.state_type)
    start[graph.evidence >= 0] = graph.evidence[graph.evidence >= 0]
    stream = np.random.SeedSequence(seed).generate_state(4, np.uint64)
    return cpu_group(plan, sampler.prepare(graph), start, stream)


def one_after_the_other(work, tasks):
    """A schedule on which every update sees all those before it."""
    for task in tasks:
        work(*task)


def apart(work, tasks):
    """A schedule on which threads see no write of another until they meet.

    Where several have changed a variable, the last one's value stays.
    """
    shared = tasks[0][0].x
    before = shared.copy()
    after = before.copy()
    for chain, scan, updates in tasks:
        own = chain._replace(x=before.copy())
        work(own, scan, updates)
        changed = own.x != before
        after[changed] = own.x[changed]
    shared[:] = after


def visited(graph, threads, schedule, matrix, count=2500):
    """The numbers of so many states of one chain, with one update a thread between two meetings.

    `matrix` leads from meeting to meeting: states are so far apart that they remember a thousandth.
    """
    second = np.sort(np.abs(np.linalg.eigvals(matrix)))[-2]
    every = int(np.ceil(np.log(1e-3) / np.log(second)))
    group = group_of(graph, threads)
    assert isinstance(group, AsyncGroup)
    group.hands.together = schedule
    seen = []
    for _ in range(count):
        for _ in range(every):
            group.hands.work(group._work, threads)
        seen.append(group.chain.x.copy())
    return state_numbers(graph, np.array(seen))


def apart_matrix(graph, threads):
    """From the definition, state by state: `apart` with one update a thread."""
    states = naive.states(graph)
    numbers = {tuple(state): k for k, state in enumerate(np.asarray(states).tolist())}
    free = range(len(graph))
    matrix = np.zeros((len(states), len(states)))
    for row, state in enumerate(np.asarray(states).tolist()):
        for chosen in itertools.product(free, repeat=threads):
            laws = [conditional(graph, state, i) for i in chosen]
            for values in itertools.product(*(range(graph.sizes[i]) for i in chosen)):
                after, chance = list(state), len(free) ** -float(threads)
                for i, value, law in zip(chosen, values, laws, strict=True):
                    chance *= law[value]
                    after[i] = value if value != state[i] else after[i]
                matrix[row, numbers[tuple(after)]] += chance
    return matrix


def conditional(graph, state, i):
    several = np.repeat(np.array(state)[None], graph.sizes[i], axis=0)
    several[:, i] = np.arange(graph.sizes[i])
    energy = graph.energy(several)
    law = np.exp(energy - energy.max())
    return law / law.sum()


def stationary(matrix):
    return np.linalg.matrix_power(matrix, 4096)[0]


@pytest.mark.parametrize("graph", [PAIR, TRIANGLE], ids=["pair", "triangle"])
def test_threads_one_after_the_other_keep_the_law(graph):
    """Three streams in turn are one chain: nothing in how work is handed out adds a bias."""
    matrix = np.linalg.matrix_power(transition(graph, mg.Gibbs()).matrix, 3)
    seen = visited(graph, 3, one_after_the_other, matrix)
    assert chi_square(seen, naive.distribution(graph)) > FALSE_ALARM


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("graph", [PAIR, TRIANGLE], ids=["pair", "triangle"])
def test_threads_that_do_not_see_each_other_are_biased_as_stated(graph, threads):
    """The same kernels on a schedule that is fixed: its law by enumeration, and not the model's."""
    matrix = apart_matrix(graph, threads)
    seen = visited(graph, threads, apart, matrix)
    assert chi_square(seen, stationary(matrix)) > FALSE_ALARM
    assert chi_square(seen, naive.distribution(graph)) < 1e-12


def test_the_bias_of_two_coupled_spins():
    """Each that is updated without the other's news agrees with what the other was."""
    exact = np.exp(1.0) / (np.exp(1.0) + np.exp(-1.0))
    law = transition(PAIR, mg.AsyncGibbs(threads=2)).stationary()
    p = exact  # of taking the other's value
    both, one = 0.5, 0.5  # meetings at which both spins are updated, or one of them by both
    # agreeing spins still agree afterwards; those that differ do so afterwards
    stay = one * p + both * (p * p + (1 - p) * (1 - p))
    join = one * p + both * 2 * p * (1 - p)
    agree = join / (1 - stay + join)
    assert law[0] + law[3] == pytest.approx(agree, abs=1e-12)
    assert agree < exact - 0.1


@pytest.mark.parametrize("graph", [PAIR, TRIANGLE], ids=["pair", "triangle"])
def test_the_transition_of_one_thread_is_plain_gibbs(graph):
    one, plain = transition(graph, mg.AsyncGibbs(threads=1)), transition(graph, mg.Gibbs())
    np.testing.assert_allclose(one.matrix, plain.matrix, atol=1e-15)
    several = transition(graph, mg.AsyncGibbs(threads=3))
    np.testing.assert_allclose(several.matrix.sum(axis=1), 1.0, atol=1e-12)
    assert several.law is None
    assert np.abs(several.stationary() - naive.distribution(graph)).max() > 0.01


def test_lockstep_by_enumeration_agrees_with_the_definition():
    """Two threads at once, state by state; a variable that both choose is drawn once."""
    states = np.asarray(naive.states(TRIANGLE)).tolist()
    numbers = {tuple(state): k for k, state in enumerate(states)}
    expected = np.zeros((len(states), len(states)))
    for row, state in enumerate(states):
        for chosen in itertools.product(range(3), repeat=2):
            laws = [conditional(TRIANGLE, state, i) for i in chosen]
            for values in itertools.product(*(range(TRIANGLE.sizes[i]) for i in chosen)):
                after = list(state)
                for i, value in zip(chosen, values, strict=True):
                    after[i] = value  # the last one's stays
                chance = laws[0][values[0]] * laws[1][values[1]] / 9
                expected[row, numbers[tuple(after)]] += chance
    got = transition(TRIANGLE, mg.AsyncGibbs(threads=2)).matrix
    np.testing.assert_allclose(got, expected, atol=1e-14)


OPTIONS = {"seed": 5, "progress": False, "record": ("draws", "marginals", "energy")}


@pytest.mark.parametrize("model", ["mixed", "large", "potts"])
def test_one_thread_is_plain_gibbs_draw_for_draw(model):
    graph = ZOO[model]
    one = mg.sample(graph, mg.AsyncGibbs(threads=1), sweeps=60, warmup=7, **OPTIONS)
    plain = mg.sample(graph, mg.Gibbs(fields=False), scan="random", sweeps=60, warmup=7, **OPTIONS)
    for name in ("draws", "counts", "energy", "state"):
        np.testing.assert_array_equal(getattr(one, name), getattr(plain, name))
    assert type(group_of(graph, 1)) is CpuGroup


def test_real_threads_keep_a_law_of_independent_variables():
    """Where no factor joins variables there is nothing to miss, on any schedule.

    A sweep of random choices leaves a variable as it was with chance 1/e, so that states 16 sweeps
    apart are independent but for 1e-7.
    """
    weights = np.log([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    graph = mg.FactorGraph([3, 3, 3], [mg.Unary([0, 1], weights)])
    run = mg.sample(
        graph,
        mg.AsyncGibbs(threads=2),
        sweeps=16 * 500,
        warmup=20,
        chains=1,
        record=mg.Record("draws", thin=16),
        progress=False,
    )
    seen = state_numbers(graph, run.draws[0])
    law = np.einsum("a,b,c->abc", *np.exp(weights), np.full(3, 1 / 3)).ravel()
    assert chi_square(seen, law) > FALSE_ALARM


@pytest.mark.parametrize("values", [2, 3])
def test_real_threads_count_the_states_that_they_leave_after_a_sweep(values):
    """Also after a warm-up, and whenever the counts are asked for."""
    graph = mg.models.potts_lattice(6, values, 0.4).condition({3: 1})
    options = Options(sampler=mg.AsyncGibbs(threads=2), chains=1, seed=1, record="marginals")
    _, [group] = _place(options.plan(graph, 20, 35))
    group.advance(35, False)
    expected = np.zeros(36 * values, dtype=np.int64)
    for sweep in range(20):
        group.advance(35, True)
        expected[graph.packed.first + group.chain.x] += 35
        if sweep % 7 == 0:
            np.testing.assert_array_equal(group.state()["counts"], expected)
    np.testing.assert_array_equal(group.state()["counts"], expected)


def test_real_threads_lose_nothing():
    """Every update is made and counted, whichever thread makes it; clamped variables stay."""
    graph = mg.models.potts_lattice(40, 5, 0.6).condition({0: 3, 77: 1})
    run = mg.sample(
        graph,
        mg.AsyncGibbs(threads=3),
        sweeps=21,
        warmup=4,
        chains=2,
        record=mg.Record("marginals", "draws", "energy", thin=3),
        progress=False,
    )
    free = 40 * 40 - 2
    assert run.info.sampler == "AsyncGibbs(threads=3)"
    assert (run.info.updates, run.info.warmup) == (2 * 21 * free, 2 * 4 * free)
    made = (run.info.updates + run.info.warmup) * mean_degree(graph)
    # factors at a random variable have a variance below 0.1: a standard error of 0.001 each
    assert run.info.factor_evaluations == pytest.approx(made, rel=0.005)
    assert 0.2 < run.info.changed < 0.8
    sums = np.add.reduceat(run.counts, graph.packed.first, axis=1)
    assert (sums == 21 * free).all()
    assert (run.draws[:, :, [0, 77]] == [3, 1]).all()
    assert run.draws.shape == (2, 7, 1600)
    np.testing.assert_allclose(run.energy, graph.energy(run.draws.reshape(-1, 1600)).reshape(2, 7))
    assert (run.draws[:, -1] == run.state).all()
    moved = (run.draws[:, 1:] != run.draws[:, :-1]).any(axis=(0, 1))
    assert moved.sum() == free  # 12 turns of 3 sweeps each: left alone with chance exp(-36)


@pytest.mark.parametrize("states", [2, 4])
def test_marginals_are_those_of_the_states_after_each_sweep(states):
    graph = mg.models.potts_lattice(6, states, 0.5)
    run = mg.sample(
        graph,
        mg.AsyncGibbs(threads=2),
        sweeps=40,
        warmup=3,
        chains=2,
        record=mg.Record("marginals", "draws", thin=1),
        progress=False,
    )
    seen = run.draws[..., None] == np.arange(states)
    expected = 36 * seen.sum(axis=1)
    np.testing.assert_array_equal(run.counts.reshape(expected.shape), expected)


def mean_degree(graph):
    rows = graph.packed.rows[graph.evidence < 0]
    return float((rows["end"] - rows["start"]).mean())


def test_a_length_in_updates_need_not_be_whole_sweeps():
    run = mg.sample(
        ZOO["mixed"], mg.AsyncGibbs(threads=2), updates=1001, chains=1, seed=1, progress=False
    )
    sums = np.add.reduceat(run.counts, ZOO["mixed"].packed.first, axis=1)
    assert (sums == 1001).all()


def test_energy_of_a_lattice_is_near_the_exact_one():
    """Ten thousand spins on two threads: within 2% of plain Gibbs's, as neighbours rarely meet.

    The energies' own errors are below 0.2%; the rest is room for a machine's schedules.
    """
    graph = mg.models.ising_lattice(100, 0.3)
    options = {"sweeps": 400, "warmup": 50, "chains": 2, "seed": 1, "progress": False}
    several = mg.sample(graph, mg.AsyncGibbs(threads=2), **options)
    plain = mg.sample(graph, mg.Gibbs(), scan="random", **options)
    assert several.energy.mean() == pytest.approx(plain.energy.mean(), rel=0.02)


def test_a_resumed_run_goes_on(tmp_path):
    """It is a valid run of the full length; draws are not those of an undisturbed one."""
    graph, folder = mg.models.ising_lattice(12, 0.3), tmp_path / "run"
    options = {"seed": 1, "progress": False, "record": ("draws", "marginals")}
    first = mg.sample(graph, mg.AsyncGibbs(threads=2), sweeps=30, checkpoint=folder, **options)
    longer = mg.resume(folder, sweeps=20, progress=False)
    np.testing.assert_array_equal(longer.draws[:, :30], first.draws)
    assert longer.info.updates == 50 * 4 * 144
    assert longer.info.sampler == "AsyncGibbs(threads=2)"
    sums = np.add.reduceat(longer.counts, graph.packed.first, axis=1)
    assert (sums == 50 * 144).all()


def test_processes_have_threads_of_their_own():
    graph = mg.models.ising_lattice(8, 0.3)
    run = mg.sample(
        graph,
        mg.AsyncGibbs(threads=2),
        sweeps=20,
        chains=2,
        executor="processes",
        seed=1,
        progress=False,
    )
    sums = np.add.reduceat(run.counts, graph.packed.first, axis=1)
    assert (sums == 20 * 64).all()


def test_everything_clamped():
    graph = PAIR.condition({0: 1, 1: 0})
    run = mg.sample(graph, mg.AsyncGibbs(threads=2), sweeps=5, seed=1, progress=False)
    assert (run.state == [1, 0]).all()
    assert (run.energy == -1.0).all()


def test_left_out_there_are_as_many_threads_as_processors():
    run = mg.sample(PAIR, "async-gibbs", sweeps=2, chains=1, seed=1, progress=False)
    assert run.info.sampler == f"AsyncGibbs(threads={os.cpu_count()})"


def test_it_says_that_it_is_biased():
    assert not mg.AsyncGibbs().exact
    assert not mg.AsyncGibbs(threads=2).exact
    assert mg.AsyncGibbs(threads=1).exact
    assert "BIASED, with no guarantee; 4 threads" in mg.AsyncGibbs(threads=4).describe(PAIR)
    assert "exact; one thread" in mg.AsyncGibbs(threads=1).describe(PAIR)
    assert mg.AsyncGibbs(threads=2).guaranteed_slowdown(PAIR) is None


def refuse(message, graph=PAIR, sampler=None, **options):
    sampler = sampler or mg.AsyncGibbs(threads=2)
    with pytest.raises(mg.SampleError, match=message):
        mg.sample(graph, sampler, sweeps=1, progress=False, **options)


def test_what_is_refused():
    for threads in (0, -1, 1.5, True, "2"):
        with pytest.raises(mg.SampleError, match="threads must be an integer of at least 1, got"):
            mg.AsyncGibbs(threads=threads)
    refuse('chosen at random; leave scan out, got "systematic"', scan="systematic")
    refuse('scan="chromatic"', scan="chromatic")
    refuse(r"leave threads out, or give mg.AsyncGibbs\(threads=3\)", threads=3)
    refuse("holds a zero", graph=HARD["apart"])
    refuse("reads stored factors", graph=IMPLICIT["complete"])
    refuse("on one thread", sampler=mg.Tempering(mg.AsyncGibbs(threads=2)))


def test_learning_refuses_it():
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.0, name="J", tied=0)])
    with pytest.raises(mg.LearnError, match="one thread for a chain"):
        mg.learn(graph, [[0, 0], [1, 1]], sampler=mg.AsyncGibbs(threads=2), progress=False)
