"""Compiled passes over stored pairs have the results of the passes that they replace."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph import coloring
from minigibbs.graph.packing import IN_ORDER, energy_at, entry_spans, row_sums, sum_pairs
from minigibbs.samplers.chromatic.places import order_places
from minigibbs.samplers.chromatic.spin_energy import spin_energy
from minigibbs.samplers.chromatic.spins import spin_colors, spin_layout


def sparse(n, pairs, seed, even=False):
    """Return spins with random pairs; with `even`, pairs join even and odd variables."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, pairs))
    if even:
        i, j = 2 * (i // 2), 2 * (j // 2) + 1
    keep = i != j
    unary = mg.Unary(np.arange(n), rng.normal(size=(n, 2)))
    return mg.FactorGraph([2] * n, [mg.Ising(i[keep], j[keep], rng.normal(size=keep.sum())), unary])


@pytest.mark.parametrize("longest", [1, 3, IN_ORDER, IN_ORDER + 1])
def test_sums_have_the_bits_of_numpy(longest):
    rng = np.random.default_rng(longest)
    degree = rng.integers(1, longest + 1, 500)
    degree[0] = longest
    rows = np.zeros(500, mg.models.ising_lattice(3, 0.1).packed.rows.dtype)
    rows["pair_end"] = rows["end"] = np.cumsum(degree)
    rows["start"] = rows["end"] - degree
    weight = rng.normal(size=degree.sum()) * 10.0 ** rng.integers(-9, 9, degree.sum())
    for scale, absolute in ((1.0, True), (1.7, False)):
        out, scaled = np.empty(500), scale * weight
        summed = sum_pairs(rows, weight, scale, absolute, out)
        assert summed == (longest <= IN_ORDER)
        if summed:
            expected = np.add.reduceat(np.abs(scaled) if absolute else scaled, rows["start"])
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("pairs", [0, 200, 3000])
def test_local_energies(pairs):
    model = sparse(300, pairs, 1).packed
    np.testing.assert_array_equal(energy_at(model), row_sums(model.rows, entry_spans(model)))


@pytest.mark.parametrize("pairs", [200, 500, 3000])
def test_layouts_and_energies_of_pairs(pairs):
    graph = sparse(300, pairs, 2)
    data, (plain, _) = spin_colors(graph), spin_layout(graph)
    for own, other in zip(data, plain, strict=True):
        np.testing.assert_array_equal(own, other)
    energy, place = spin_energy(graph, data.variable), np.empty(300, np.int64)
    place[data.variable] = np.arange(300)
    pair = place[graph.packed.pair]
    order = np.argsort(pair.max(axis=1), kind="stable")
    np.testing.assert_array_equal(energy.pair, pair[order])
    np.testing.assert_array_equal(energy.weight, graph.packed.pair_weight[order])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pairs", [100, 300, 900])
def test_colors_in_order_are_those_of_breadth_first_search(pairs, seed):
    model, free = (
        sparse(300, pairs, seed, even=True).packed,
        np.random.default_rng(seed).random(300) < 0.9,
    )
    color, expected = np.full((2, 300), coloring.NONE, np.int32)
    assert coloring._two_colors(model, free, expected, np.empty(300, np.int32))
    if coloring._color_in_order(model, free, color):
        np.testing.assert_array_equal(color, expected)
    else:
        assert (color == coloring.NONE).all()


def test_a_lattice_is_colored_in_order():
    graph = mg.models.ising_lattice(20, 0.4)
    color = np.full(400, coloring.NONE, np.int32)
    assert coloring._color_in_order(graph.packed, graph.evidence < 0, color)
    odd = mg.models.ising_lattice(21, 0.4)
    assert not coloring._color_in_order(odd.packed, odd.evidence < 0, np.full(441, -1, np.int32))


def test_places_are_sorted_by_color_size_and_degree():
    rng = np.random.default_rng(3)
    sizes, degree = rng.integers(2, 5, 300), rng.integers(0, 400, 300)
    i = rng.integers(0, 299, 400)
    graph = mg.FactorGraph(sizes, [mg.Potts(i, i + 1, 0.5)]).condition({7: 1})
    places, color = order_places(graph, degree), graph.colors.color
    order = np.lexsort((degree, sizes, color))
    np.testing.assert_array_equal(places.variable, order[color[order] >= 0])


def test_exact_parts_of_a_split_leave_out_implicit_factors():
    pairs, dense = mg.Ising([0, 1], [1, 2], [0.5, 0.25]), mg.Complete(9, 0.1, kind="ising")
    split = mg.PoissonGibbs().split(mg.FactorGraph([2] * 9, [pairs, dense]))
    assert split.heavy.all()
    np.testing.assert_allclose(split.exact[:4], [1.0, 1.5, 0.5, 0.0])
