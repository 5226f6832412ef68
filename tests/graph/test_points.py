"""Points: weights by definition, trees, tables, bounds, and refused arguments."""

import math

import numba
import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.box_tables import COUNT_BITS, MOST_COUNT, make_tables
from minigibbs.kernels.boxes import grow_tree, pair_sums, scaled
from minigibbs.kernels.decay import GAUSSIAN, LAPLACE, POWER, Decay
from minigibbs.kernels.layout import DRAWS
from minigibbs.kernels.random import below
from minigibbs.running.api import one_chain
from minigibbs.samplers.poisson_gibbs.groups.points import BATCH, GUESS
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, chi_square, coarse, state_numbers
from tests.samplers.test_distribution import STARTS, exact_starts

FORMULAS = {
    "gaussian": lambda r: np.exp(-(r**2) / 2),
    "laplace": lambda r: np.exp(-r),
    "power": lambda r: (1 + r**2) ** (-2.5 / 2),
}
RULES = {
    "gaussian": Decay(GAUSSIAN, 0.0),
    "laplace": Decay(LAPLACE, 0.0),
    "power": Decay(POWER, 2.5),
}


@numba.njit
def hat(a, b):
    return max(0.0, 1.5 - abs(a[0] - b[0]) - abs(a[1] - b[1]))


@numba.njit
def hat_bound(low_a, high_a, low_b, high_b):
    apart = max(0.0, low_a[0] - high_b[0], low_b[0] - high_a[0])
    return max(0.0, 1.5 - apart - max(0.0, low_a[1] - high_b[1], low_b[1] - high_a[1]))


@numba.njit
def low_bound(low_a, high_a, low_b, high_b):
    return 0.4


def cloud(n, dims, seed=0, spread=2.0):
    return np.random.default_rng(seed).normal(0, spread, (n, dims)).astype(np.float32)


@pytest.mark.parametrize("dims", [1, 2, 7, 8, 20])
@pytest.mark.parametrize("kernel", FORMULAS)
def test_weights_are_those_of_the_definition(kernel, dims):
    rows, norms = cloud(30, dims), np.random.default_rng(1).uniform(0.5, 3, 30)
    group = mg.Points(rows, kernel, -0.7, norms=norms, exponent=2.5)
    i, j = np.triu_indices(30, 1)
    r = np.linalg.norm(rows[i].astype(float) - rows[j], axis=1)
    want = -0.7 * FORMULAS[kernel](r) / np.sqrt(norms[i] * norms[j])
    np.testing.assert_allclose(group.pair_weights(i, j), want, rtol=3e-7)  # single-precision scales
    np.testing.assert_array_equal(group.pair_weights(i, j), group.pair_weights(j, i))
    stored = group.stored().arrays()["weight"]
    np.testing.assert_array_equal(stored, group.pair_weights(i, j))


@pytest.mark.parametrize("kernel", FORMULAS)
def test_norms_are_sums_of_the_kernel(kernel):
    rows = cloud(300, 3)
    group = mg.Points(rows, kernel, norms="sums", exponent=2.5)
    r = np.linalg.norm(rows[:, None].astype(float) - rows, axis=2)
    # values below 1e-8 are excluded, and scales are in single precision
    np.testing.assert_allclose(
        group.scale.astype(float) ** -2, FORMULAS[kernel](r).sum(axis=1), rtol=1e-6
    )


@pytest.mark.parametrize("n", [2, 3, 17, 500])
@pytest.mark.parametrize("dims", [1, 3, 8])
def test_a_tree_holds_every_point_once(n, dims):
    rows = cloud(n, dims)
    rows[n // 2 :] = rows[n // 2]  # many points coincide
    tree = grow_tree(rows)
    np.testing.assert_array_equal(np.sort(tree.order), np.arange(n))
    np.testing.assert_array_equal(tree.features, rows[tree.order])
    for node, low, high in zip(tree.nodes, tree.low, tree.high, strict=True):
        own = tree.features[node["begin"] : node["end"]]
        np.testing.assert_array_equal(low, own.min(axis=0))
        np.testing.assert_array_equal(high, own.max(axis=0))
        if node["left"]:
            left, right = tree.nodes[node["left"]], tree.nodes[node["left"] + 1]
            assert left["begin"] == node["begin"]
            assert left["end"] == right["begin"] < right["end"] == node["end"]
        else:
            assert node["end"] - node["begin"] == 1 or (low == high).all()


@pytest.mark.parametrize("slots", [1, 2, 7, 64])
@pytest.mark.parametrize("kernel", RULES)
def test_every_pair_is_in_one_slot_that_bounds_it(kernel, slots):
    n, rule = 90, RULES[kernel]
    scale = np.random.default_rng(2).uniform(0.2, 2.0, n).astype(np.float32)
    tree = scaled(grow_tree(cloud(n, 2)), scale)
    tables = make_tables(tree, rule, 20, slots)
    assert 1 <= len(tables.weight) <= 20
    assert max(slots, 2) <= tables.size < 2 * max(slots, 2)
    own = scale[tree.order]
    r = np.linalg.norm(tree.features[:, None].astype(float) - tree.features, axis=2)
    values = (FORMULAS[kernel](r) if kernel != "power" else (1 + r**2) ** -1.25) * own
    for place in range(n):
        source = tables.source[place]
        table = tables.slots[source].astype(np.int64)
        begin, count, share = table[:, 0], table[:, 1] & MOST_COUNT, table[:, 1] >> COUNT_BITS
        first, where, repeats = np.unique(begin, return_index=True, return_counts=True)
        np.testing.assert_array_equal(repeats[np.searchsorted(first, begin)], share)
        covered = np.concatenate([np.arange(begin[k], begin[k] + count[k]) for k in where])
        np.testing.assert_array_equal(covered, np.arange(n))
        bound = np.repeat((tables.weight[source] * share / count)[where], count[where])
        assert (values[place] <= bound).all()


def test_bounds_come_closer_with_more_slots():
    """With single points as sources, only rounding loses weight."""
    tree, n = grow_tree(cloud(300, 2)), 300
    true = np.array([pair_sums(tree, RULES["gaussian"], 0.0)]).sum() + n
    totals = []
    for slots in (16, 64, 256, 4096):
        tables = make_tables(tree, RULES["gaussian"], n, slots)
        totals.append(float((tables.size * tables.weight[tables.source]).sum()))
    assert totals == sorted(totals, reverse=True)
    assert true < totals[-1] < 1.1 * true


def test_a_slot_holds_no_more_points_than_it_can():
    """For distant points one entry would suffice, but counts have a limited number of bits."""
    places = np.concatenate([np.linspace(0, 1, 1000), np.linspace(100, 101, 400_000)])
    tree = grow_tree(places.astype(np.float32)[:, None])
    tables = make_tables(tree, RULES["gaussian"], 2000, 64)
    begin, word = tables.slots[0].astype(np.int64).T
    first = np.unique(begin, return_index=True)[1]
    assert (word & MOST_COUNT).max() == MOST_COUNT
    assert (word & MOST_COUNT)[first].sum() == len(places)
    assert (word >> COUNT_BITS)[first].sum() == tables.size


@numba.njit
def steep(a, b):
    return 1.0 / max(abs(a[0] - b[0]), 1e-3)


@numba.njit
def steep_bound(low_a, high_a, low_b, high_b):
    gap = max(low_a[0] - high_b[0], low_b[0] - high_a[0], 0.0)
    return 1.0 / gap if gap > 0.0 else np.inf


def test_a_bound_that_is_not_finite_is_refused():
    with pytest.raises(mg.GraphError, match="not finite, in single precision, for some two boxes"):
        mg.Points(np.arange(5000)[:, None], mg.PointKernel(steep, steep_bound))


@numba.njit
def narrow(a, b):
    return math.exp(-abs(np.float64(a[0]) - b[0]))


@numba.njit(error_model="numpy")
def odd_bound(low_a, high_a, low_b, high_b):
    wide = max(high_a[0], high_b[0]) - min(low_a[0], low_b[0])
    gap = np.float64(max(low_a[0] - high_b[0], low_b[0] - high_a[0], 0.0))
    return math.exp(-gap) * (wide / wide)


@numba.njit
def infinite_bound(low_a, high_a, low_b, high_b):
    wide = max(high_a[0], high_b[0]) - min(low_a[0], low_b[0])
    gap = np.float64(max(low_a[0] - high_b[0], low_b[0] - high_a[0], 0.0))
    return math.exp(-gap) if wide > 0.0 else np.inf


@pytest.mark.parametrize("bound", [odd_bound, infinite_bound])
def test_a_bound_that_is_none_for_a_point_and_itself_is_refused(bound):
    """Tested pairs may all be of distinct points; 0 / 0 once caused an infinite loop."""
    group = mg.Points(np.arange(30_000.0)[:, None], mg.PointKernel(narrow, bound), 5.0)
    with pytest.raises(mg.GraphError, match="also for a point and itself"):
        _ = group.tables


@pytest.mark.parametrize("least", [0.0, 1e-3])
def test_sums_of_labeled_pairs(least):
    n, rule = 400, RULES["gaussian"]
    scale = np.random.default_rng(3).uniform(0.5, 2.0, n).astype(np.float32)
    rows, labels = cloud(n, 2), np.random.default_rng(4).integers(0, 3, n)
    rows[:100] = rows[0]  # more coinciding points than a block
    r = np.linalg.norm(rows[:, None].astype(float) - rows, axis=2)
    values = np.exp(-(r**2) / 2) * scale.astype(float)
    np.fill_diagonal(values, 0.0)
    tree = scaled(grow_tree(rows), scale)
    for labeled in (None, labels):
        same = np.ones((n, n)) if labeled is None else labels[:, None] == labels
        found = pair_sums(tree, rule, least, labeled)
        want = (values * same).sum(axis=1)
        assert (np.abs(found - want) <= n * 2.0 * least + 1e-10).all()


def test_bounds_hold_and_shares_are_shares():
    group = mg.Points(cloud(3000, 3, spread=3.0), weight=-0.3)
    sums = np.array([np.abs(group._row(i)).sum() for i in range(0, 3000, 50)])
    bounds = group.bounds()[::50]
    assert (sums <= bounds).all()
    assert 0.1 < group.kept <= 1.0
    assert (group.local_weights() <= group.bounds()).all()


def test_more_points_than_are_counted_have_bounds(monkeypatch):
    group = mg.Points(cloud(500, 2), weight=0.1)
    exact = group.local_weights()
    monkeypatch.setattr("minigibbs.graph.factors.implicit.points._MOST_COUNTED", 10)
    assert (mg.Points(cloud(500, 2), weight=0.1).local_weights() >= exact * (1 - 1e-12)).all()
    graph = mg.FactorGraph([2] * 500, [mg.Points(cloud(500, 2), weight=0.1)])
    assert "upper bounds" in str(mg.explain(graph, costs={"draw": 1.0}))


@pytest.mark.parametrize("kind", ["potts", "ising"])
def test_a_kernel_of_ones_own_keeps_the_distribution(kind):
    """The test is by enumeration; one pair is out of range."""
    group = mg.Points(
        [[0.0, 0.0], [0.5, 0.2], [1.0, 0.9], [0.1, 0.4], [9.0, 9.0]],
        mg.PointKernel(hat, hat_bound),
        0.7,
        kind,
        norms="sums",
    )
    values = 2 if kind == "ising" else 3
    graph = mg.FactorGraph([values] * 5, [group, mg.Unary([0], [np.linspace(0, 0.5, values)])])
    starts = exact_starts(graph, STARTS, seed=51)
    for sampler in (mg.PoissonGibbs(), mg.PoissonGibbs(theta=0.4)):
        states, _, _ = advance_each(graph, sampler, starts, 10, seed=52)
        assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM
    assert graph.stats.factors == graph.stored().stats.factors
    np.testing.assert_allclose(
        graph.log_potential(starts[:50]), graph.stored().log_potential(starts[:50]), atol=1e-12
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.Points([[0.0], [math.nan]]), "got nan in row 1, column 0"),
        (lambda: mg.Points([1.0, 2.0]), "one row per variable"),
        (lambda: mg.Points([[1.0]]), "2 rows or more"),
        (lambda: mg.Points([[1e30], [0.0]]), "finite"),
        (lambda: mg.Points([["a"], ["b"]]), "features must be"),
        (lambda: mg.Points(cloud(3, 1), "cubic"), "gaussian, laplace, power or a PointKernel"),
        (lambda: mg.Points(cloud(3, 1), weight=math.inf), "finite number"),
        (lambda: mg.Points(cloud(3, 1), kind="clock"), "potts or ising"),
        (lambda: mg.Points(cloud(3, 1), norms="mean"), '"sums", numbers or None'),
        (lambda: mg.Points(cloud(3, 1), norms=[1.0, 2.0]), "one for each of 3"),
        (lambda: mg.Points(cloud(3, 1), norms=[1.0, 0.0, 2.0]), "got 0.0 of point 1"),
        (lambda: mg.Points(cloud(3, 1), "power", exponent=0), "exponent must be above 0"),
        (lambda: mg.PointKernel(lambda a, b: 1.0, hat_bound), "compiled with numba.njit"),
        (
            lambda: mg.Points(cloud(50, 2, spread=0.2), mg.PointKernel(hat, low_bound)),
            "above its bound",
        ),
        (lambda: mg.FactorGraph([2] * 4, [mg.Points(cloud(5, 2))]), "joins 5 variables"),
    ],
)
def test_bad_points_are_refused(make, message):
    with pytest.raises(mg.GraphError, match=message):
        make()


def test_files_keep_the_very_points(tmp_path):
    """Scales and boxes are bit-identical, so resumed runs are, too."""
    group = mg.Points(cloud(200, 3), "laplace", 0.2, norms="sums")
    mg.write(mg.FactorGraph([2] * 200, [group]), tmp_path / "model.mg")
    again = mg.read(tmp_path / "model.mg").implicits[0]
    np.testing.assert_array_equal(again.scale, group.scale)
    np.testing.assert_array_equal(again.tables.slots, group.tables.slots)
    own = mg.Points(cloud(5, 2), mg.PointKernel(hat, hat_bound))
    with pytest.raises(mg.GraphError, match="function and cannot be written"):
        mg.write(mg.FactorGraph([2] * 5, [own]), tmp_path / "own.mg")


def test_describing_says_what_is_proposed_for_each_draw():
    graph = mg.FactorGraph([2] * 400, [mg.Points(cloud(400, 2, spread=5.0), weight=0.2)])
    assert "proposals for each draw" in mg.PoissonGibbs().describe(graph)


def test_the_largest_sum_is_bounded_by_true_sums(monkeypatch):
    """The result is exact for few points, and between the exact sum and the bounds for many."""
    group = mg.Points(cloud(400, 3), weight=-0.4, norms="sums")
    true = np.array([np.abs(group._row(i)).sum() for i in range(400)])
    assert group.largest == pytest.approx(true.max(), rel=1e-12)
    monkeypatch.setattr("minigibbs.graph.factors.implicit.points._SUMMED", 400 * 20)
    some = mg.Points(cloud(400, 3), weight=-0.4, norms="sums")
    assert true.max() <= some.largest * (1 + 1e-12)
    assert some.largest < some.bounds().max()


def test_a_guarantee_goes_by_the_true_weights():
    """A far too large bound of boxes neither increases the draws nor weakens the guarantee."""
    rows = cloud(600, 3, spread=6.0)
    graph = mg.FactorGraph([3] * 600, [mg.Points(rows, weight=0.3)])
    (group,) = graph.implicits
    sampler = mg.PoissonGibbs(slowdown=1.2)
    assert sampler.guaranteed_slowdown(graph) <= 1.2 * (1 + 1e-9)
    (split,) = sampler.split(graph).implicits
    assert split.tail == pytest.approx(max(np.abs(group._row(i)).sum() for i in range(600)))
    strong = mg.FactorGraph([3] * 600, [mg.Points(rows, weight=40.0)])
    told = mg.PoissonGibbs().describe(strong)
    assert "Guaranteed" not in told


def test_what_is_drawn_from_lies_on_lines_of_memory():
    group = mg.Points(cloud(3000, 5), norms="sums")
    for array in (group.tables.slots, group.tree.points):
        assert array.ctypes.data % 64 == 0


@pytest.mark.parametrize("wrong", [1.0, 1.1])
def test_updates_of_several_batches_keep_the_distribution(wrong):
    """One free variable has more proposals than a batch; a wrong weight is detected."""
    places, labels = cloud(8, 2, spread=0.5), [0, 1, 2, 0, 1, 1, 0, 2]
    graphs = [
        mg.FactorGraph([3] * 8, [mg.Points(places, weight=w), mg.Points(places, weight=0.3)])
        for w in (0.5, 0.5 * wrong)
    ]
    clamped = [graph.condition(dict(enumerate(labels[:7]))) for graph in graphs]
    every = np.repeat([labels], 3, axis=0)
    every[:, 7] = range(3)
    distribution = np.exp(clamped[0].log_potential(every) - clamped[0].log_potential(every).max())
    distribution /= distribution.sum()
    sampler = mg.PoissonGibbs(theta=100.0)
    assert sampler.split(clamped[1]).implicits[0].draws > 1.5 * BATCH
    starts = every[np.random.default_rng(5).choice(3, size=400_000, p=distribution)]
    states, _, counts = advance_each(clamped[1], sampler, starts, 1, seed=6)
    p = chi_square(states[:, 7].astype(int), distribution)
    assert p > FALSE_ALARM if wrong == 1.0 else p < FALSE_ALARM
    assert counts[DRAWS] > 1.5 * BATCH * len(starts)


@pytest.mark.parametrize("wrong", [1.0, 1.5])
def test_slots_of_several_points_keep_the_distribution(wrong):
    """Exact starts, ten updates, and a chi-square test; a wrong weight is detected."""
    graphs = [
        coarse(mg.FactorGraph([3] * 5, [mg.Points(cloud(5, 2), weight=w, norms="sums")]))
        for w in (1.5, 1.5 * wrong)
    ]
    starts = exact_starts(graphs[0], STARTS, seed=3)
    states, _, counts = advance_each(graphs[1], mg.PoissonGibbs(theta=0.5), starts, 10, seed=4)
    p = chi_square(state_numbers(graphs[0], states), naive.distribution(graphs[0]))
    assert p > FALSE_ALARM if wrong == 1.0 else p < FALSE_ALARM
    assert counts[DRAWS] > 5 * len(starts)


@numba.njit
def visited_next(stream, count):
    return below(stream, count)


def test_the_next_variable_of_a_random_scan_is_foreseen():
    groups = [mg.Points(cloud(40, 2, seed=k), weight=0.3) for k in range(3)]
    graph, sampler = mg.FactorGraph([3] * 40, groups), mg.PoissonGibbs()
    first = sampler.prepare(graph).implicit.group.first + GUESS
    chain = one_chain(graph, sampler)
    for _ in range(100):
        chain.advance(1, False)
        following = visited_next(chain.chain.stream.copy(), 40)
        np.testing.assert_array_equal(chain.chain.scratch[first : first + 3], following)
