"""Implicit factors: the same distribution, energy and statistics as their explicit form."""

import math

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.graph.factors import implicit
from minigibbs.samplers import SAMPLERS
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, begun, chi_square, sample, state_numbers
from tests.samplers.test_distribution import STARTS, exact_starts
from tests.zoo import IMPLICIT


@pytest.mark.parametrize("model", IMPLICIT)
@pytest.mark.parametrize(
    "sampler",
    [mg.PoissonGibbs(), mg.PoissonGibbs(heavy=0, theta=0.8), mg.PoissonGibbs(heavy=2, theta=2.0)],
    ids=["default", "no-heavy", "two-heavy"],
)
def test_exact_start_keeps_the_distribution(sampler, model):
    graph = IMPLICIT[model]
    starts = exact_starts(graph, STARTS, seed=31)
    carried = begun(graph, sampler, starts)
    updates = graph.stats.variables
    states, _, _ = advance_each(graph, sampler, starts, updates, seed=32, carried=carried)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.3


@pytest.mark.parametrize("model", IMPLICIT)
def test_a_slightly_wrong_weight_is_caught(model):
    """Negative control: the distribution of the model with one more weak factor is rejected."""
    graph = IMPLICIT[model]
    wrong = mg.FactorGraph(
        graph.domains, [*graph.factors, mg.Potts([0], [1], 0.6)], evidence=graph.evidence
    )
    starts = exact_starts(graph, STARTS, seed=31)
    states, _, _ = advance_each(wrong, mg.PoissonGibbs(heavy=2, theta=2.0), starts, 30, seed=32)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) < FALSE_ALARM


@pytest.mark.parametrize("theta", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["ising", "potts"])
def test_low_rank_draws_keep_a_conditional_distribution(kind, theta):
    """One free variable among clamped ones tests only the weights of kept draws."""
    rng = np.random.default_rng(9)
    values, a = 2 if kind == "ising" else 4, rng.normal(0, 0.7, (8, 2))
    group = mg.LowRank(a, rng.normal(0, 0.7, (8, 2)), kind=kind)
    clamped = rng.integers(0, values, 8)
    graph = mg.FactorGraph([values] * 8, [group, mg.Unary([0], [np.zeros(values)])])
    graph = graph.condition({i: int(clamped[i]) for i in range(1, 8)})
    every = np.repeat(clamped[None], values, axis=0)
    every[:, 0] = np.arange(values)
    distribution = np.exp(graph.log_potential(every) - graph.log_potential(every).max())
    distribution /= distribution.sum()
    starts = every[rng.choice(values, size=200_000, p=distribution)]
    states, _, _ = advance_each(graph, mg.PoissonGibbs(theta=theta), starts, 3, seed=33)
    assert chi_square(states[:, 0].astype(int), distribution) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.02


@pytest.mark.parametrize("model", IMPLICIT)
def test_stats_and_energy_are_those_of_the_stored_form(model):
    graph = IMPLICIT[model]
    if (graph.evidence >= 0).any():  # pairs of clamped variables are included, see graph.stats
        graph = mg.FactorGraph(graph.domains, graph.factors)
    ours, stored = graph.stats, graph.stored().stats
    assert (ours.factors, ours.max_degree) == (stored.factors, stored.max_degree)
    assert ours.local_energy == pytest.approx(stored.local_energy, rel=1e-12)
    assert ours.total_energy == pytest.approx(stored.total_energy, rel=1e-12)
    states = np.array(naive.states(graph))[::7]
    np.testing.assert_allclose(
        graph.log_potential(states), graph.stored().log_potential(states), atol=1e-12
    )


def test_the_papers_models_as_kernels():
    """The models have the same constants and the same distribution of energies."""
    potts = mg.Kernel((20, 20), lambda r, c: 4.6 * np.exp(-1.5 * (r * r + c * c)))
    ising = mg.Kernel((20, 20), lambda r, c: np.exp(-1.5 * (r * r + c * c)), kind="ising")
    for kernel, states, stored in (
        (potts, 10, mg.models.potts_rbf()),
        (ising, 2, mg.models.ising_rbf()),
    ):
        graph = mg.FactorGraph(np.full(400, states), [kernel])
        assert graph.stats == pytest.approx(stored.stats) or np.allclose(
            list(vars(graph.stats).values()), list(vars(stored.stats).values()), rtol=1e-12
        )
        runs = [
            sample(g, sweeps=1_000, warmup=40_000, seed=s, record="draws", thin=400, progress=False)
            for g, s in ((graph, 1), (stored, 2))
        ]
        means = [[stored.log_potential(chain).mean() for chain in run.draws] for run in runs]
        # eight chains of 1,000 draws: t-test of their mean energies, false alarm 1e-4
        assert stats.ttest_ind(*means).pvalue > FALSE_ALARM


@pytest.mark.parametrize("beta", [0.5, 1.1])
def test_curie_weiss_magnetization(beta):
    """The number of up spins has the exact binomial-sum distribution."""
    n = 40
    graph = mg.FactorGraph(np.full(n, 2), [mg.Complete(n, beta / n)])
    up = np.arange(n + 1)
    spin = 2.0 * up - n
    logs = np.array([math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in up])
    logs += beta / (2 * n) * (spin**2 - n)
    distribution = np.exp(logs - logs.max())
    distribution /= distribution.sum()
    rng = np.random.default_rng(3)
    counts = rng.choice(n + 1, size=20_000, p=distribution)
    starts = rng.permuted(np.arange(n) < counts[:, None], axis=1).astype(int)
    states, _, _ = advance_each(graph, mg.PoissonGibbs(), starts, 5 * n, seed=4)
    assert chi_square(states.sum(axis=1).astype(int), distribution) > FALSE_ALARM


@pytest.mark.parametrize("name", [n for n, s in SAMPLERS.items() if not s.draws_implicit])
def test_other_samplers_say_what_it_would_cost(name):
    graph = mg.FactorGraph(np.full(2500, 2), [mg.Complete(2500, 1e-4)])
    with pytest.raises(mg.SampleError, match=r"2,499 of them. Use mg.PoissonGibbs"):
        sample(graph, name, updates=1, progress=False)


def test_a_million_variables_take_little_memory():
    graph = mg.FactorGraph(
        np.full(10**6, 10), [mg.Kernel((1000, 1000), lambda r, c: np.exp(-(r * r + c * c)))]
    )
    run = sample(graph, updates=1000, chains=1, record=(), progress=False, seed=1)
    assert run.info.factor_evaluations < 40 * 1000
    assert graph.packed.rows.strides == (0,)  # all variables share one row


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.Kernel((4, 4), lambda r, c: r + c), "same for a displacement and its opposite"),
        (lambda: mg.Kernel((4,), lambda d: np.where(d == 2, np.nan, 1.0)), "finite; got nan"),
        (
            lambda: mg.Kernel((4,), lambda d: np.where(np.abs(d) == 3, np.inf, 1.0)),
            "finite; got inf",
        ),
        (lambda: mg.Kernel((4, 4, 4, 4), lambda *d: 0.0), "1, 2 or 3"),
        (lambda: mg.Kernel((0, 4), lambda *d: 0.0), "positive sides"),
        (lambda: mg.Kernel((10**5, 10**5), lambda *d: 0.0), "too many displacements"),
        (lambda: mg.Kernel((4,), np.ones(4)), "odd sides"),
        (lambda: mg.Kernel((4,), np.ones(5), periodic=True), r"shape \(4,\)"),
        (lambda: mg.Kernel((4,), lambda d: 1.0, kind="clock"), "potts or ising"),
        (lambda: mg.Complete(1, 0.5), "at least 2"),
        (lambda: mg.Complete(5, math.inf), "finite"),
        (lambda: mg.LowRank(np.ones((3, 2)), np.ones((2, 2))), "same shape"),
        (lambda: mg.LowRank([[1.0], [np.nan]]), "finite"),
        (lambda: mg.FactorGraph([2] * 4, [mg.Complete(5, 0.5)]), "joins 5 variables"),
        (lambda: mg.FactorGraph([3] * 5, [mg.Complete(5, 0.5)]), "2 values"),
    ],
)
def test_bad_groups_are_refused(make, message):
    with pytest.raises(mg.GraphError, match=message):
        make()


@pytest.mark.parametrize("model", IMPLICIT)
def test_model_files_keep_them(model, tmp_path):
    graph = IMPLICIT[model]
    mg.write(graph, tmp_path / "model.mg")
    again = mg.read(tmp_path / "model.mg")
    states = np.array(naive.states(graph))[::11]
    np.testing.assert_allclose(again.log_potential(states), graph.log_potential(states), atol=1e-12)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("side", [2, 3, 4, 7, 8])
def test_a_line_or_ring_in_closed_form(side, periodic):
    """Compare pairs by definition, from a function and from a table of its values."""

    def weight(d):
        return np.where(d == 0, np.inf, 1.0) * 0.6 / np.maximum(np.abs(d), 1) ** 1.5

    ours = mg.Kernel((side,), weight, kind="ising", periodic=periodic)
    table = mg.Kernel((side,), ours.table(), kind="ising", periodic=periodic)
    i, j = np.triu_indices(side, 1)
    apart = np.minimum(j - i, side - (j - i)) if periodic else j - i
    for kernel in (ours, table):
        np.testing.assert_allclose(kernel.pair_weights(i, j), 0.6 / apart**1.5, rtol=1e-14)
        np.testing.assert_array_equal(kernel.pair_weights(i, j), kernel.pair_weights(j, i))


def test_a_line_asks_its_function_once_for_all_displacements():
    asked = []

    def weight(d):
        asked.append(len(d))
        return np.exp(-np.abs(d))

    mg.Kernel((1000,), weight)
    assert asked == [1999] * 2  # the values, and their mirror image


def test_a_bad_weight_is_shown_with_its_displacement():
    with pytest.raises(mg.GraphError, match=r"got nan at displacement \[2, -1\]"):
        mg.Kernel((4, 3), lambda r, c: np.where((r == 2) & (c == -1), np.nan, 1.0))
    with pytest.raises(mg.GraphError, match=r"got nan at displacement \[2\]"):
        mg.Kernel((4,), lambda d: np.where(d == 2, np.nan, 1.0))
    with pytest.raises(mg.GraphError, match="same for a displacement and its opposite"):
        mg.Kernel((5,), [0.0, 1.0, 2.0, 3.0, 1.0], periodic=True)


@pytest.mark.parametrize("model", IMPLICIT)
def test_energies_of_many_states(model, monkeypatch):
    """Compare more rows than one batch with the explicit form."""
    for module in (implicit.base, implicit.kernel, implicit.low_rank, implicit.points):
        monkeypatch.setattr(module, "CHUNK", 3000)
    graph = mg.FactorGraph(IMPLICIT[model].domains, IMPLICIT[model].implicits)
    rows = 2 * 3000 // len(graph) + 100
    states = np.random.default_rng(5).integers(0, graph.sizes, (rows, len(graph)))
    # sums of at most 21 terms of order 1
    np.testing.assert_allclose(
        graph.log_potential(states), graph.stored().log_potential(states), atol=1e-12
    )


@pytest.mark.parametrize("kind", ["ising", "potts"])
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", [(60,), (61,), (8, 9), (5, 4, 6)])
@pytest.mark.parametrize("decay", [0.1, 30.0], ids=["far", "near"])
def test_energies_of_kernels_of_every_shape(decay, shape, periodic, kind):
    """Test even and odd sides, and long and short reach."""
    kernel = mg.Kernel(shape, lambda *d: np.exp(-decay * sum(map(np.abs, d))), kind, periodic)
    graph = mg.FactorGraph([2] * kernel.variables, [kernel])
    states = np.random.default_rng(6).integers(0, 2, (20, len(graph)))
    # about 7,000 terms below 1: rounding errors are below 1e-10
    np.testing.assert_allclose(
        graph.log_potential(states), graph.stored().log_potential(states), rtol=1e-12, atol=1e-10
    )


def test_energies_do_not_grow_with_the_domain():
    """The domain has a million values, of which a state has few."""
    graph = mg.FactorGraph([10**6] * 6, [mg.Kernel((6,), lambda d: 1.0 / np.abs(d))])
    states = np.array([[7, 7, 999_999, 7, 1, 999_999], [1, 2, 3, 4, 5, 6]])
    want = [1 + 1 / 3 + 1 / 2 + 1 / 3, 0.0]
    np.testing.assert_allclose(graph.log_potential(states), want, atol=1e-12)
    pairs = mg.FactorGraph([10**6] * 6, [mg.Complete(6, 0.5, kind="potts")])
    np.testing.assert_allclose(pairs.log_potential(states), [2.0, 0.0], atol=1e-12)


def test_energy_of_no_states():
    for graph in IMPLICIT.values():
        assert graph.log_potential(np.empty((0, len(graph)), dtype=int)).shape == (0,)
