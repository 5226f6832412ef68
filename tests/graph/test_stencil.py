"""Stencils against the pairs that they represent."""

import pickle

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.factors.stencil import Stencil
from tests.harness import sample

RNG = np.random.default_rng(11)
SQUARE, DIAGONAL = [(0, 1), (1, 0)], [(0, 1), (1, 0), (1, -1)]
CUBE = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
CASES = {
    "periodic": ((3, 4), SQUARE, 0.3, True, "ising"),
    "open": ((2, 5), DIAGONAL, [0.3, -0.2, 0.5], False, "ising"),
    "cube": ((3, 3, 2), CUBE, RNG.normal(size=(3, 3, 3, 2)), (True, True, False), "ising"),
    "potts": ((3, 4), SQUARE, [0.7, -0.4], (False, True), "potts"),
    "glass": ((4, 3), SQUARE, RNG.choice([-1, 1], (2, 4, 3)).astype(np.int8), True, "potts"),
    "far": ((9,), [(2,), (-3,)], [0.4, 0.2], True, "ising"),
}


def graph_of(name, evidence=None):
    shape, offsets, weights, periodic, kind = CASES[name]
    n, rng = int(np.prod(shape)), np.random.default_rng(3)
    sizes = np.full(n, 2) if kind == "ising" else rng.integers(1, 4, n)
    sizes[:3] = 2
    stencil = mg.Stencil(shape, offsets, weights, periodic, kind)
    unary = mg.Unary([0, 2], rng.normal(size=(2, 2)))
    return mg.FactorGraph(sizes, [stencil, unary]).condition(evidence or {})


@pytest.mark.parametrize("evidence", [{}, {0: 1, 1: 0, 2: 1}], ids=["free", "clamped"])
@pytest.mark.parametrize("name", CASES)
def test_a_stencil_is_its_pairs(name, evidence):
    graph = graph_of(name, evidence)
    stored = graph.stored()
    states = np.random.default_rng(0).integers(0, graph.sizes, (7, len(graph)))
    # sums of some 40 numbers below 3: rounding errors are below 1e-12
    np.testing.assert_allclose(
        graph.log_potential(states), stored.log_potential(states), atol=1e-12
    )
    np.testing.assert_allclose(graph.local_energies, stored.local_energies, atol=1e-12)
    assert graph.influence == pytest.approx(stored.influence, abs=1e-12)
    assert graph.offset == pytest.approx(stored.offset, abs=1e-12)
    assert graph.rounding_error == pytest.approx(stored.rounding_error, rel=1e-9)
    for own, other in zip(vars(graph.stats).values(), vars(stored.stats).values(), strict=True):
        assert own == pytest.approx(other, abs=1e-12)
    assert "_packed" not in vars(graph)  # nothing was expanded


@pytest.mark.parametrize("name", CASES)
def test_packed_as_pairs(name):
    graph = graph_of(name, {1: 0})
    model, stored = graph.packed, graph.stored().packed
    np.testing.assert_array_equal(model.pair, stored.pair)
    np.testing.assert_array_equal(model.target, stored.target)
    np.testing.assert_array_equal(model.weight, stored.weight)
    assert len(graph.factors[0]) == len(model.pair)


def test_the_lattices_of_models_have_the_same_pairs_in_the_same_order():
    for periodic in (True, False):
        own = mg.models.ising_lattice(5, 0.3, periodic, implicit=True).stored()
        other = mg.models.ising_lattice(5, 0.3, periodic, implicit=False)
        np.testing.assert_array_equal(own.factors[0].scope, other.factors[0].scope)
    potts = mg.models.potts_lattice(4, 3, 0.5, implicit=True)
    assert isinstance(potts.factors[0], Stencil)
    assert isinstance(mg.models.ising_lattice(1100, 0.4).factors[0], Stencil)
    assert not mg.models.ising_lattice(100, 0.4).stencils


@pytest.mark.parametrize("name", CASES)
def test_files_and_pickles(name, tmp_path):
    graph = graph_of(name, {0: 1})
    mg.write(graph, tmp_path / "lattice.mg")
    for back in (mg.read(tmp_path / "lattice.mg"), pickle.loads(pickle.dumps(graph))):
        own, other = back.factors[0].arrays(), graph.factors[0].arrays()
        assert own.pop("kind") == other.pop("kind")
        for key, array in own.items():
            np.testing.assert_array_equal(array, other[key])
            assert array.dtype == other[key].dtype
        assert back.evidence.tolist() == graph.evidence.tolist()


@pytest.mark.parametrize("ending", ["uai", "gset"])
def test_other_formats_list_the_pairs(ending, tmp_path):
    graph = mg.models.ising_lattice(3, 0.4, implicit=True)
    mg.write(graph, tmp_path / f"lattice.{ending}")
    mg.write(graph.stored(), tmp_path / f"stored.{ending}")
    own, other = (tmp_path / f"{name}.{ending}" for name in ("lattice", "stored"))
    assert own.read_text() == other.read_text()


def test_a_networkx_graph_lists_the_pairs():
    pytest.importorskip("networkx")
    graph = mg.models.ising_lattice(3, 0.4, implicit=True)
    own, other = mg.to_networkx(graph), mg.to_networkx(graph.stored())
    assert list(own.edges(data=True)) == list(other.edges(data=True))


def test_exact_answers():
    graph = mg.models.ising_lattice(4, 0.3, periodic=False, implicit=True).condition({0: 1})
    own, other = mg.infer(graph), mg.infer(graph.stored())
    assert own.log_z == pytest.approx(other.log_z, abs=1e-10)


SAMPLERS = [
    mg.Gibbs(),
    mg.PoissonGibbs(),
    mg.PoissonGibbs(heavy=1),
    mg.MGPMH(),
    mg.BlockGibbs(),
    mg.SwendsenWang(),
    mg.Tempering(),
    mg.ExactSampler(),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_samplers_of_pairs_draw_the_same(sampler):
    graph = mg.models.ising_lattice(4, 0.3, implicit=True).condition({3: 1})
    options = {"seed": 2, "chains": 2, "record": "draws", "progress": False}
    if not sampler.sweeps:
        options["scan"] = "systematic"
    own = sample(graph, sampler, sweeps=5, **options)
    other = sample(graph.stored(), sampler, sweeps=5, **options)
    np.testing.assert_array_equal(own.draws, other.draws)


WRONG = {
    "shape must be": ((), SQUARE, 1.0, True, "ising"),
    "at least 1; got": ((0, 3), SQUARE, 1.0, True, "ising"),
    "at most 1,099,511,627,776 sites": ((2**20, 2**21), SQUARE, 1.0, True, "ising"),
    "offsets must be integers": ((4, 4), [(1,)], 1.0, True, "ising"),
    "joins every site with itself": ((4, 4), [(0, 4)], 1.0, True, "ising"),
    "joins every pair twice": ((4, 2), [(0, 1)], 1.0, True, "ising"),
    "that another one joins": ((4, 4), [(0, 1), (0, -1)], 1.0, True, "ising"),
    "weights must be real numbers": ((4, 4), SQUARE, [1.0, 2.0, 3.0], True, "ising"),
    "weights must be finite": ((4, 4), SQUARE, np.inf, True, "ising"),
    "periodic must be": ((4, 4), SQUARE, 1.0, [True], "ising"),
    "kind must be potts or ising": ((4, 4), SQUARE, 1.0, True, "spin"),
}


def test_lattices_of_more_sites_than_can_be_numbered():
    """Numbers of sites are computed where possible, and refused where they would be stored."""
    shape = (2**18, 2**18)
    graph = mg.FactorGraph(np.broadcast_to(2, 2**36), [mg.Stencil(shape, SQUARE, 0.25)])
    assert graph.free == 2**36
    assert graph.stats.factors == 2**37
    assert str(graph) == "<FactorGraph: 68,719,476,736 variables; factors: 137,438,953,472 stencil>"
    without = mg.FactorGraph
    for wrong in (lambda: graph.packed, graph.stored, lambda: without(graph.domains, [])):
        with pytest.raises(mg.TooLargeError):
            wrong()
    with pytest.raises(mg.TooLargeError, match="only stencils can have 68,719,476,736 variables"):
        mg.observables.Magnetization().bind(graph).sums.terms()


@pytest.mark.parametrize("message", WRONG)
def test_wrong_stencils(message):
    with pytest.raises(mg.GraphError, match=message):
        mg.Stencil(*WRONG[message])


def test_wrong_graphs():
    square = mg.Stencil((3, 3), SQUARE, 0.2)
    with pytest.raises(mg.GraphError, match="lattice of 9 sites, but the graph has 8"):
        mg.FactorGraph([2] * 8, [square])
    with pytest.raises(mg.GraphError, match=r'has 3; use kind="potts"'):
        mg.FactorGraph([2] * 8 + [3], [square])


def test_expanding_a_huge_stencil_is_refused():
    square = mg.Stencil((40_000, 40_000), SQUARE, 0.2)
    with pytest.raises(mg.TooLargeError, match="expanding a stencil into 3,200,000,000 pairs"):
        square.stored()


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("kind", [np.int8, np.float32, np.float64])
def test_couplings_of_one_size_are_described_without_an_array(kind, periodic):
    """-128 has no positive counterpart in eight bits; the other offset has both signs."""
    signs = np.random.default_rng(0).choice([-1, 1], (4, 6))
    weights = np.stack([np.full((4, 6), -128), 3 * signs]).astype(kind)
    graph = mg.FactorGraph([2] * 24, [mg.Stencil((4, 6), [(0, 1), (1, 0)], weights, periodic)])
    assert graph.stats == graph.stored().stats
    assert graph.influence == pytest.approx(graph.stored().influence)
    assert graph.offset == pytest.approx(graph.stored().offset)
