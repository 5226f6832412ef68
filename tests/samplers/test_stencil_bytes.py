"""Small domains of a lattice as bytes: draws are those of stored pairs, which are never made."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.factors.stencil import Stencil
from minigibbs.results import modes
from minigibbs.samplers.chromatic.stencil_bytes import ByteTile, StencilBytes, stencil_bytes
from minigibbs.samplers.registry import chromatic_layout, color_data, make_tile
from tests.harness import sample

SQUARE = [(0, 1), (1, 0)]


def lattice(shape, weights, periodic=True, size=3, offsets=None, kind="potts"):
    n = int(np.prod(shape))
    offsets = np.eye(len(shape), dtype=int) if offsets is None else offsets
    return mg.FactorGraph(np.full(n, size), [mg.Stencil(shape, offsets, weights, periodic, kind)])


GRAPHS = {
    "square": lattice((4, 6), 0.8),
    "open": lattice((5, 7), [0.9, -0.4], False),
    "long rows": lattice((4, 200), [0.9, 0.3], (True, False), 4),
    "whole blocks": lattice((2, 128), 0.7, (False, True), 16),
    "cube": lattice((4, 6, 130), [0.5, 0.4, 0.3], size=5),
    "far": lattice((6, 134), [0.9, 0.5, -0.2], size=3, offsets=[(0, 1), (1, 0), (1, 2)]),
    "absent": lattice((4, 6), [0.8, 0.8, 0.0], offsets=[*SQUARE, (1, 1)]),
}


def starts(graph, chains):
    return np.random.default_rng(1).integers(0, graph.sizes[0], (chains, len(graph)), np.uint8)


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_draws_are_those_of_stored_pairs(name, chains):
    graph, other = GRAPHS[name], GRAPHS[name].stored()
    data, first = color_data(mg.Gibbs(), graph), starts(GRAPHS[name], chains)
    assert isinstance(data, StencilBytes)
    own = ByteTile(graph, data, 8, first, 3)
    np.testing.assert_array_equal(own.states(), first)
    stored = make_tile(mg.Gibbs(), other, color_data(mg.Gibbs(), other), 8, first, 3)
    for tile in (own, stored):
        tile.advance(2, 30, True)
    np.testing.assert_array_equal(own.states(), stored.states())
    np.testing.assert_array_equal(own.counts(30), stored.counts(30))
    np.testing.assert_array_equal(own.tally(chains), stored.tally(chains))
    # sums of at most 10,000 numbers below 1: rounding errors are below 1e-9
    np.testing.assert_allclose(own.energies(), stored.energies(), atol=1e-9)


def test_any_split_gives_the_same_draws():
    graph = GRAPHS["cube"]
    whole, parts = (ByteTile(graph, stencil_bytes(graph), 5, starts(graph, 2), 3) for _ in range(2))
    whole.advance(4, 3, True)
    for sweep in range(4, 7):
        for begin, end in itertools.pairwise(parts._ends().tolist()):
            cuts = sorted({begin, end, *np.random.default_rng(sweep).integers(begin, end, 5)})
            for one, other in reversed(list(itertools.pairwise(cuts))):
                parts.noted += parts._sweep(int(one), int(other), sweep, 1, True)
    np.testing.assert_array_equal(parts.states(), whole.states())
    np.testing.assert_array_equal(parts.counts(3), whole.counts(3))
    np.testing.assert_array_equal(parts.noted, whole.noted)


def test_runs_never_expand_a_stencil(monkeypatch):
    """Graphs of up to 1,000 variables may be searched for modes, which needs pairs."""
    graph = lattice((8, 134), [0.9, 0.5, -0.2], offsets=[*SQUARE, (1, 2)])
    options = {"sweeps": 20, "chains": 2, "seed": 4, "scan": "chromatic", "progress": False}
    options |= {"record": ["marginals", "draws", "energy"]}
    expected = sample(graph.stored(), mg.Gibbs(), **options)
    monkeypatch.setattr(Stencil, "_expanded", None)
    monkeypatch.setattr(modes, "_MOST_EXPANDED", 0)
    run = sample(graph, mg.Gibbs(), **options)
    np.testing.assert_array_equal(run.draws, expected.draws)
    np.testing.assert_array_equal(run.marginals, expected.marginals)
    np.testing.assert_allclose(run.energy, expected.energy, atol=1e-9)


@pytest.mark.parametrize(
    "graph",
    [
        lattice((4, 6), 0.8).condition({3: 1}),
        lattice((5, 6), 0.8),  # odd and periodic: three colors
        lattice((4, 6), 30.0),  # beyond single precision
        lattice((4, 6), np.ones((2, 4, 6))),
        lattice((24,), 0.8),
        lattice((4, 6), 0.5, size=17),
        lattice((4, 6), 0.5, offsets=[(0, 1), (2, 1)]),  # even rows and odd rows are separate
    ],
    ids=["evidence", "odd", "strong", "weights by site", "line", "large", "parts"],
)
def test_other_lattices_have_other_layouts(graph):
    assert stencil_bytes(graph) is None
    assert chromatic_layout(mg.Gibbs(), graph).name != "stencil-bytes"


def test_a_device_has_the_layout_of_stored_pairs():
    assert chromatic_layout(mg.Gibbs(), GRAPHS["square"], "cuda").name == "small"
