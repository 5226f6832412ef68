"""Large lattices store one size and no evidence for all variables, in memory and in files."""

import tracemalloc

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.checks import is_constant
from minigibbs.graph.encoding import decode, encode

SIDE = 1056  # above 2**20 sites


@pytest.fixture(scope="module")
def large():
    return mg.models.ising_lattice(SIDE, 0.4)


def test_a_run_of_a_large_lattice_needs_few_bytes_per_site(large):
    options = {"chains": 1, "record": "energy", "progress": False, "seed": 1}
    mg.sample(large, sweeps=2, **options)  # loads compiled code, which needs memory, too
    tracemalloc.start()
    try:
        graph = mg.models.ising_lattice(SIDE, 0.4)
        assert tracemalloc.get_traced_memory()[1] < 2 * SIDE**2
        run = mg.sample(graph, sweeps=2, **options)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert run.state.shape == (1, SIDE**2)
    assert held < 3 * SIDE**2  # the last state, which sites are clamped, and the bits
    assert peak < 6 * SIDE**2


def test_draws_do_not_depend_on_how_sizes_are_stored(large):
    plain = mg.FactorGraph(np.full(SIDE**2, 2), large.factors)
    assert is_constant(large.sizes)
    assert not is_constant(plain.sizes)
    options = {"sweeps": 2, "chains": 3, "record": "energy", "progress": False, "seed": 1}
    one, other = mg.sample(large, **options), mg.sample(plain, **options)
    np.testing.assert_array_equal(one.state, other.state)
    np.testing.assert_array_equal(one.energy, other.energy)


def test_evidence_and_statistics(large):
    plain = mg.FactorGraph(np.full(SIDE**2, 2), large.factors)
    assert large.describe() == plain.describe()
    clamped = large.condition({5: 1})
    assert clamped.free == SIDE**2 - 1
    assert clamped.evidence[5] == 1
    assert mg.FactorGraph(large.domains, large.factors, evidence=large.evidence).free == SIDE**2


def test_a_file_of_a_large_lattice_is_small(large, tmp_path):
    path = tmp_path / "lattice.mg"
    mg.write(large, path)
    assert path.stat().st_size < 10_000
    back = mg.read(path)
    assert is_constant(back.sizes)
    assert is_constant(back.evidence)
    assert back.describe() == large.describe()


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "9", 2**31, None])
def test_files_with_a_wrong_number_of_variables_are_refused(large, count):
    header, arrays = encode(large)
    with pytest.raises((ValueError, mg.GraphError)):
        decode(header | {"variables": count}, arrays)


@pytest.mark.parametrize("size", [0, -1])
def test_wrong_constant_sizes_are_refused(size):
    with pytest.raises(mg.GraphError, match="a domain needs 1 to"):
        mg.FactorGraph(np.broadcast_to(size, 9), [])


def test_a_user_cannot_change_constant_sizes():
    sizes = np.array(2)
    graph = mg.FactorGraph(np.broadcast_to(sizes, 9), [])
    sizes[...] = 3
    assert graph.sizes.tolist() == [2] * 9
