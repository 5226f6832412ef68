"""Variable elimination: same results as enumeration, and rejections before any allocation."""

import math
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import logsumexp

import minigibbs as mg
from minigibbs.exact import contraction, elimination, ordering
from minigibbs.formats import uai
from minigibbs.system import memory
from tests import naive
from tests.formats.test_uai import graphs
from tests.harness import FALSE_ALARM, chi_square, state_numbers
from tests.paths import DATA
from tests.zoo import IMPLICIT, ZOO

EVERY = ZOO | IMPLICIT


def enumerated(graph):
    """Compute marginals and log Z by summing over every state."""
    everything = mg.theory.Enumeration(graph)
    marginals = np.zeros((len(graph), int(graph.sizes.max())))
    for variable in range(len(graph)):
        np.add.at(marginals[variable], everything.states[:, variable], everything.distribution)
    return marginals, logsumexp(everything.log_potential)


def agree(graph):
    marginals, log_z = enumerated(graph)
    np.testing.assert_allclose(mg.exact_marginals(graph), marginals, atol=1e-11)
    assert mg.log_partition(graph) == pytest.approx(log_z, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("model", EVERY)
def test_every_kind_of_factor(model):
    agree(EVERY[model])


@settings(deadline=None, database=None, max_examples=60)
@given(graph=graphs())
def test_random_graphs(graph):
    agree(graph)
    evidence = {v: int(size) - 1 for v, size in enumerate(graph.sizes) if v % 2}
    agree(graph.condition(evidence))


def test_disconnected_parts_and_variables_without_factors():
    pairs = mg.Ising([0, 3], [1, 4], [0.4, -0.9])
    agree(mg.FactorGraph([2] * 7, [pairs, mg.Unary([6], [[0.0, 1.0]])]))
    agree(mg.FactorGraph([3, 1, 2], []))


def test_everything_clamped():
    graph = ZOO["potts"].condition(dict.fromkeys(range(4), 2))
    np.testing.assert_array_equal(mg.exact_marginals(graph)[:, 2], 1.0)
    assert mg.log_partition(graph) == pytest.approx(graph.log_potential([2] * 4))


@pytest.mark.parametrize("weight", [-800.0, 800.0])
def test_energies_beyond_exp(weight):
    agree(mg.FactorGraph([3] * 4, [mg.Potts([0, 1, 2, 3], [1, 2, 3, 0], weight)]))


def test_a_long_chain_has_its_closed_form():
    """Z of an open chain of spins is 2^n cosh(J)^(n-1); correlations are tanh(J)^distance."""
    n, coupling = 1000, 0.8
    chain = mg.FactorGraph([2] * n, [mg.Ising(range(n - 1), range(1, n), coupling)])
    log_z = n * np.log(2) + (n - 1) * np.log(np.cosh(coupling))
    assert mg.log_partition(chain) == pytest.approx(log_z, rel=1e-12)
    spins = mg.exact_marginals(chain.condition({0: 1})) @ [-1, 1]
    np.testing.assert_allclose(spins, np.tanh(coupling) ** np.arange(n), atol=1e-12)
    assert mg.theory.treewidth_bound(chain) == 1


def narrow_grid(length, width):
    site = np.arange(length * width).reshape(length, width)
    i = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
    j = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])
    weights = np.random.default_rng(2).normal(size=len(i))
    return mg.FactorGraph([2] * site.size, [mg.Ising(i, j, weights)])


def transfer_log_z(graph, length, width):
    """Compute log Z of a grid row by row, independently of elimination."""
    states = np.array(list(np.ndindex(*[2] * width))) * 2 - 1
    weight = np.zeros((length * width, length * width))
    (pairs,) = graph.factors
    weight[pairs.scope[:, 0], pairs.scope[:, 1]] = pairs.coupling
    log_z = None
    for row in range(length):
        sites = row * width + np.arange(width)
        inside = (weight[sites[:-1], sites[1:]] * states[:, :-1] * states[:, 1:]).sum(axis=1)
        if row:
            between = (states * weight[sites - width, sites]) @ states.T
            inside = inside + logsumexp(log_z[:, None] + between, axis=0)
        log_z = inside
    return logsumexp(log_z)


def test_a_long_grid_of_width_ten_takes_seconds():
    """Elimination took 1.5 s on a busy machine; the limit leaves a margin for slower ones."""
    graph = narrow_grid(100, 10)
    begun = time.perf_counter()
    marginals = mg.exact_marginals(graph)
    assert time.perf_counter() - begun < 30
    assert mg.theory.treewidth_bound(graph) == 10
    np.testing.assert_allclose(marginals, 0.5, atol=1e-9)  # no field: spins are symmetric
    assert mg.log_partition(graph) == pytest.approx(transfer_log_z(graph, 100, 10), rel=1e-12)


def test_a_hub_with_many_leaves():
    """A hub has too many neighbors to count its fill-in, so its leaves are eliminated first."""
    star = mg.FactorGraph([2] * 3001, [mg.Ising([0] * 3000, range(1, 3001), 0.3)])
    assert mg.theory.treewidth_bound(star) == 1
    assert mg.log_partition(star) == pytest.approx(3001 * np.log(2) + 3000 * np.log(np.cosh(0.3)))


TOO_LARGE = {
    "dense": (mg.models.potts_rbf(), r"e\+\d+ numbers or more, with \d+ variables"),
    "formula": (
        mg.FactorGraph([2] * 999, [mg.Logical("and", [range(999)], 1.0)]),
        r"5\.36e\+300 numbers",
    ),
    "domains": (mg.FactorGraph([50_000] * 2, [mg.Potts([0], [1], 1.0)]), r"2\.5e\+9 numbers"),
    "lattice": (mg.models.ising_lattice(side=40, beta=0.3), "with .* variables at once"),
}


@pytest.mark.parametrize("case", TOO_LARGE)
@pytest.mark.parametrize("question", ["exact_marginals", "log_partition"])
def test_what_is_too_large_is_refused_in_a_moment(case, question):
    graph, message = TOO_LARGE[case]
    begun = time.perf_counter()
    with pytest.raises(mg.TooLargeError, match=message) as caught:
        getattr(mg, question)(graph)
    assert "GiB hold" in str(caught.value)
    assert "memory=" in str(caught.value)
    assert "mg.sample" in str(caught.value)
    assert time.perf_counter() - begun < 20


def test_the_limit_is_the_memory_of_all_tables():
    graph = narrow_grid(12, 4)
    plan = elimination.EliminationTree.of(graph).plan
    need = int(plan.entries - plan.written)  # entries of the products, without the factors
    assert not refused(graph, memory=8 * need)
    assert refused(graph, memory=8 * (need - 1))
    with pytest.raises(mg.TooLargeError, match=r"numbers or more.* hold 16\. .*memory="):
        mg.exact_marginals(graph, memory=8 * 16)


def refused(graph, memory):
    try:
        mg.log_partition(graph, memory=memory)
    except mg.TooLargeError:
        return True
    return False


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("model", ZOO)
def test_logarithms_give_what_numbers_give(model, logs, monkeypatch):
    """Small graphs never need logarithms, so the limits are changed."""
    if logs:
        monkeypatch.setattr(contraction, "LEAST", math.inf)
        monkeypatch.setattr(contraction, "SPARE", -math.inf)
    states, distribution = mg.exact_distribution(ZOO[model])
    marginals = mg.exact_marginals(ZOO[model])
    for variable, row in enumerate(marginals):
        want = np.bincount(states[:, variable], distribution, minlength=len(row))
        np.testing.assert_allclose(row, want, atol=1e-12)


@pytest.mark.parametrize("strength", [1.0, 400.0, 2000.0])
def test_strong_couplings_that_pull_against_each_other(strength):
    """A chain with different fixed ends: losing small numbers on the way gives a wrong result."""
    n = 6
    graph = mg.FactorGraph(
        [2] * n,
        [
            mg.Ising(range(n - 1), range(1, n), strength),
            mg.Unary([0, n - 1], [[0.0, 3 * strength], [3 * strength, 0.3]]),
        ],
    )
    states, distribution = mg.exact_distribution(graph)
    for variable, row in enumerate(mg.exact_marginals(graph)):
        want = np.bincount(states[:, variable], distribution, minlength=2)
        np.testing.assert_allclose(row, want, atol=1e-12)


@pytest.mark.parametrize("model", ZOO)
def test_draws_are_independent_draws_of_the_model(model):
    """Chi-square test of 60,000 draws, false-alarm rate 1e-4; wrong weights must be detected."""
    graph = ZOO[model]
    draws = mg.exact_draws(graph, 60_000, seed=5)
    distribution = naive.distribution(graph)
    assert chi_square(state_numbers(graph, draws), distribution) > FALSE_ALARM
    flat = 0.9 * distribution + 0.1 / len(distribution)
    assert chi_square(state_numbers(graph, draws), flat) < FALSE_ALARM
    again = mg.exact_draws(graph, 60_000, seed=5)
    np.testing.assert_array_equal(draws, again)


def test_draws_of_a_wide_graph_follow_its_marginals():
    graph = narrow_grid(30, 6)
    draws = mg.exact_draws(graph, 40_000, seed=1)
    exact = mg.exact_marginals(graph)[:, 1]
    # Largest of 180 deviations, in standard errors: above 5 in 1 of 10,000 runs.
    assert (np.abs(draws.mean(axis=0) - exact) / np.sqrt(exact * (1 - exact) / 40_000)).max() < 5


def test_a_message_may_be_summed_in_pieces(monkeypatch):
    graph = narrow_grid(10, 5)
    whole = mg.exact_marginals(graph)
    for limit in ("_THREADED", "_THREADED_BLAS", "_AT_ONCE"):
        monkeypatch.setattr(contraction, limit, 5)
    np.testing.assert_allclose(mg.exact_marginals(graph), whole, atol=1e-14)


@pytest.mark.parametrize("states", [10, 10**6])
def test_enumeration_says_how_many_states_there_are(states):
    graph = mg.FactorGraph([states] * 1000, [])
    count = r"1e\+1000" if states == 10 else r"1e\+6000"
    with pytest.raises(mg.TooLargeError, match=f"{count} states.*4,194,304"):
        mg.exact_distribution(graph)


REAL = """bnlearn/hepar2 uai2006/BN_0 uai2006/BN_4 uai2008_protein/pdb1etl
uai2014/Segmentation_11 uai2014/relational_3
spin/bqp50_01_beta0.01 merlin/bn""".split()


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")
@pytest.mark.parametrize("model", REAL)
def test_public_models_have_their_published_answers(model):
    graph = mg.read(DATA / f"{model}.uai")
    evidence = DATA / f"{model}.uai.evid"
    if evidence.exists():
        graph = graph.condition(uai.read_evidence(evidence))
    truth = uai.read_marginals(DATA / f"{model}.uai.MAR")
    for row, want in zip(mg.exact_marginals(graph), truth, strict=True):
        np.testing.assert_allclose(row[: len(want)], want, atol=1e-8)
    log_z = float((DATA / f"{model}.uai.lnZ").read_text())
    assert mg.log_partition(graph) == pytest.approx(log_z, rel=1e-9, abs=1e-8)


def naive_bayes(features, weight=1.0):
    """A class with many observed features; half of the features favor each value."""
    graph = mg.FactorGraph(
        [2] * (features + 1), [mg.Ising([0] * features, range(1, features + 1), weight)]
    )
    return graph.condition({k + 1: k % 2 for k in range(features)})


@pytest.mark.parametrize("features", [745, 746, 3001])
def test_many_factors_at_one_variable_do_not_underflow(features):
    """Each feature changes the odds by e^2; the product of all is below the range of doubles."""
    graph = naive_bayes(features)
    want = 1 / (1 + math.exp(-2 * (features % 2)))
    assert mg.exact_marginals(graph)[0, 0] == pytest.approx(want)
    free = mg.log_partition(graph)
    assert free == pytest.approx(math.log(2 * math.cosh(features % 2)), abs=1e-9)
    share = (mg.exact_draws(graph, 4000, seed=1)[:, 0] == 0).mean()
    assert share == pytest.approx(want, abs=0.04)  # 5 standard errors
    answer = mg.infer(graph, progress=False)
    assert answer.exact
    assert answer.marginals[0, 0] == pytest.approx(want)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("leaves", [300, 500])
def test_many_messages_at_one_variable_do_not_underflow(leaves, zeros):
    """As above, with free features that are nearly certain of their values."""
    fields = np.zeros((leaves, 2))
    fields[np.arange(leaves), np.arange(leaves) % 2] = 6.0
    groups = [
        mg.Ising([0] * leaves, range(1, leaves + 1), 1.0),
        mg.Unary(range(1, leaves + 1), fields),
        mg.Unary([0], [[0.0, 0.7]]),
    ]
    sizes = [2] * (leaves + 1)
    if zeros:
        sizes = [3] + sizes[1:]
        groups[0] = mg.Potts([0] * leaves, range(1, leaves + 1), 2.0)
        groups[2] = mg.Unary([0], [[0.0, 0.7, -np.inf]])
    graph = mg.FactorGraph(sizes, groups)
    want = 1 / (1 + math.exp(-0.7))
    assert mg.exact_marginals(graph)[0, 1] == pytest.approx(want)


def test_large_tables_that_oppose_each_other():
    """Two tables too large to be merged; their product is below the range of doubles everywhere."""
    size = 70
    first, second = np.zeros((2, size, size))
    first[1:], second[:1] = -720.0, -719.0
    first[2:], second[2:] = -1500.0, -1500.0
    graph = mg.FactorGraph([size] * 3, [mg.Table([[0, 1]], first), mg.Table([[0, 2]], second)])
    want = 1 / (1 + math.exp(-1.0))
    assert mg.exact_marginals(graph)[0, 0] == pytest.approx(want)
    assert mg.exact_marginals(graph)[0, 1] == pytest.approx(1 - want)


HUGE = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1e16), mg.Unary([0], [[0.0, 0.3]])])


@pytest.mark.parametrize(
    "question",
    [
        mg.exact_marginals,
        mg.exact_distribution,
        lambda graph: mg.exact_draws(graph, 1),
        lambda graph: mg.maximize(graph, rounds=2, seed=1, progress=False),
    ],
)
def test_weights_that_hide_others_in_rounding_are_warned_of(question):
    with pytest.warns(UserWarning, match=r"rounding changes log-odds by about 4.*such as 50"):
        question(HUGE)


def test_evidence_is_cut_before_a_pair_is_written_out(monkeypatch):
    """A pair of 4e8 entries with one clamped end has 20,000 entries."""
    graph = mg.FactorGraph([20_000] * 2, [mg.Potts([0], [1], 2.0)]).condition({0: 7})
    monkeypatch.setattr(memory, "available", lambda: 2**27)
    answer = mg.infer(graph, memory="100M", progress=False)
    assert answer.exact
    assert answer.marginal(1).probability[7] == pytest.approx(math.exp(2) / (math.exp(2) + 19_999))


def test_factors_and_temporary_tables_count_as_memory():
    """A pair of 3,000 values has a message of 3,000 entries, and a table of 9,000,000."""
    graph = mg.FactorGraph([3000] * 2, [mg.Potts([0], [1], 2.0)])
    with pytest.raises(mg.TooLargeError, match="memory="):
        mg.log_partition(graph, memory=2**26)
    assert mg.log_partition(graph) == pytest.approx(math.log(3000 * (math.exp(2) + 2999)))
    wide = mg.FactorGraph([2] * 22, [mg.Logical("and", [range(22)], 1.0)])
    with pytest.raises(mg.TooLargeError, match="memory="):
        mg.log_partition(wide, memory=2**26)  # the table alone needs 2**25


def test_exact_answers_at_the_same_time_share_the_memory(monkeypatch):
    """Each call reserves its memory; if only one fits, the other is rejected or sampled."""
    graph = mg.models.ising_lattice(14, 0.3, periodic=False)
    size = elimination.EliminationTree.of(graph).size
    monkeypatch.setattr(memory, "_physical", lambda: int(1.5 * size))
    with elimination.EliminationTree.of(graph, 2**40).reserved(), pytest.raises(mg.TooLargeError):
        mg.log_partition(graph, memory=2**40)
    assert math.isfinite(mg.log_partition(graph, memory=2**40))


def test_draws_of_large_domains_are_looked_up_in_pieces(monkeypatch):
    graph = mg.FactorGraph([50] * 3, [mg.Potts([0, 1], [1, 2], 1.0)])
    whole = mg.exact_draws(graph, 1000, seed=1)
    monkeypatch.setattr(elimination, "_WEIGHTS", 64)
    np.testing.assert_array_equal(mg.exact_draws(graph, 1000, seed=1), whole)


@pytest.mark.parametrize("count", [-1, 2.5, True, "many"])
def test_a_count_of_draws_is_a_whole_number(count):
    with pytest.raises(mg.SampleError, match="count must be an integer"):
        mg.exact_draws(ZOO["potts"], count)


def test_some_factors_of_a_dense_graph_show_that_it_is_hopeless(monkeypatch):
    """Counting the edges of 500,000 pairs took most of the time of a short call."""
    counted, neighbors = [], ordering._neighbors

    def spied(sizes, scopes, most):
        counted.append(sum(map(len, scopes)))
        return neighbors(sizes, scopes, most)

    monkeypatch.setattr(ordering, "_neighbors", spied)
    i, j = np.triu_indices(400, 1)
    with pytest.raises(mg.TooLargeError, match="numbers or more"):
        mg.log_partition(mg.FactorGraph([2] * 400, [mg.Ising(i, j, 0.1)]), progress=False)
    assert sum(counted) < len(i) / 2


@pytest.mark.parametrize(
    "ask", [mg.exact_marginals, mg.log_partition, lambda g, m: mg.exact_draws(g, 2, 1, m)]
)
@pytest.mark.parametrize(
    ("memory", "message"), [(-1, "positive"), (0.0, "positive"), (8, "8 B hold 1")]
)
def test_memory_that_holds_no_table_is_refused(ask, memory, message):
    with pytest.raises(mg.MinigibbsError, match=message):
        ask(mg.models.ising_lattice(side=5, beta=0.3), memory)


def test_a_huge_constant_of_evidence_hides_no_factors_of_free_variables():
    """The value 1 of the clamped variable has a weight of 1e28."""
    groups = [mg.Unary([0], [0.0, 1.0]), mg.Unary([1], [[0.0, 1e28]])]
    graph = mg.FactorGraph([2, 2], groups).condition({1: 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, found = mg.exact_distribution(graph)
    np.testing.assert_allclose(found, [1 / (1 + math.e), math.e / (1 + math.e)], rtol=1e-12)


def test_the_share_of_the_most_probable_values_is_lost_beside_a_huge_log_z():
    graph = mg.FactorGraph([2, 3], [mg.Unary([1], [[5e17] * 3])]).condition({1: 1})
    answer = mg.infer(graph, "5s", progress=False)
    with pytest.warns(UserWarning, match="rounding changes log-odds"):
        answer.most_probable(0)
