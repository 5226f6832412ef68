"""Arrays of other libraries are accepted like NumPy's."""

import importlib.util

import numpy as np
import pytest
from scipy import sparse

import minigibbs as mg
from minigibbs.system.arrays import is_foreign, to_numpy


class Foreign:
    """An array that only supports DLPack."""

    def __init__(self, given):
        self._array = np.array(given)

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnDevice(Foreign):
    """An array that must be copied from a device first, like CuPy's by `get`."""

    def __dlpack__(self, **options):
        raise BufferError("not on the CPU")

    def get(self):
        return self._array


def of_torch(given):
    torch = pytest.importorskip("torch")
    made = torch.tensor(given)
    return made.requires_grad_() if made.is_floating_point() else made


def of_jax(given):
    return pytest.importorskip("jax.numpy").array(given)


MAKERS = {"plain": Foreign, "device": OnDevice, "torch": of_torch, "jax": of_jax}
FREE = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]
kinds = pytest.mark.parametrize("make", [MAKERS[n] for n in ["plain", "device", *FREE]])


@kinds
def test_models_take_them(make):
    sizes, i, j, weight = make([2, 2, 2]), make([0, 1]), make([1, 2]), make([0.5, -0.25])
    table, rows = make([[0.0, 1.0], [2.0, 0.5]]), make([[0, 1, 1], [1, 1, 0]])
    groups = [
        mg.Ising(i, j, weight, name="J"),
        mg.Unary(i, make([0.0, 1.0])),
        mg.Table(make([[0, 2]]), log_potential=table),
    ]
    graph = mg.FactorGraph(sizes, groups)
    plain = mg.FactorGraph(
        [2] * 3,
        [
            mg.Ising([0, 1], [1, 2], [0.5, -0.25]),
            mg.Unary([0, 1], [0.0, 1.0]),
            mg.Table([[0, 2]], [[0.0, 1.0], [2.0, 0.5]]),
        ],
    )
    np.testing.assert_allclose(
        graph.log_potential(rows), plain.log_potential([[0, 1, 1], [1, 1, 0]])
    )
    assert graph.condition({1: make(1)}).evidence.tolist() == [-1, 1, -1]
    changed = graph.with_parameters({"J": make([1.0, 2.0])})
    assert changed.parameters["J"].tolist() == [1.0, 2.0]


@kinds
def test_runs_and_fits_take_them(make):
    graph = mg.ising_from_matrix(make([[0.0, 0.5], [0.5, 0.0]]), make([0.1, 0.2]))
    run = mg.sample(graph, sweeps=5, chains=2, start=make([[0, 1], [1, 0]]), progress=False, seed=1)
    assert run.info.chains == 2
    model = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.0, name="J")])
    data = [[0, 0], [1, 1], [0, 1], [1, 1]]
    fit, wanted = (
        mg.learn(model, rows, method="exact", progress=False) for rows in (make(data), data)
    )
    np.testing.assert_allclose(fit.parameters["J"], wanted.parameters["J"])


@kinds
def test_implicit_factors_take_them(make):
    places = [[0.0], [0.5], [2.0]]
    groups = [mg.Points(given, weight=0.5) for given in (make(places), places)]
    first, second = (mg.FactorGraph([2] * 3, [group]).log_potential([0, 0, 1]) for group in groups)
    assert first == second


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.coo_array, sparse.dok_matrix])
def test_sparse_ones_are_tables_with_zeros(kind):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (200, 2))
    rows[:, 1] ^= rows[:, 0] & (rng.random(200) < 0.9)
    found, wanted = (mg.learn_structure(one, progress=False) for one in (kind(rows), rows))
    assert found.edges == wanted.edges
    assert (found.encode(kind(rows)) == rows).all()
    model = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.0, name="J")])
    fits = [mg.learn(model, one, "exact", progress=False) for one in (kind(rows), rows)]
    assert fits[0].parameters["J"] == fits[1].parameters["J"]
    with pytest.raises(mg.TooLargeError, match=r"a sparse array of shape .* needs"):
        mg.learn_structure(kind((10**7, 10**7), dtype=np.int64), progress=False)


def test_no_copy_is_made_on_the_cpu():
    one = Foreign([1.0, 2.0])
    assert np.shares_memory(to_numpy(one), one._array)


def test_what_is_foreign():
    assert is_foreign(Foreign)
    assert not is_foreign(np.float64)
    assert to_numpy([1, 2]) == [1, 2]


class Broken(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("bfloat16")

    def get(self):
        raise TypeError("unsupported type bfloat16")


def test_what_cannot_be_converted_is_named():
    with pytest.raises(mg.GraphError, match=r"Ising: coupling must be an array .* bfloat16"):
        mg.Ising([0], [1], coupling=Broken([1.0]))


@pytest.mark.parametrize("library", FREE)
def test_bfloat16_is_read_exactly(library):
    """NumPy has no such type; float32 holds its numbers."""
    arrays = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])
    make = arrays.tensor if library == "torch" else arrays.array
    weights = make([0.5, 1 / 3], dtype=arrays.bfloat16)
    wanted = np.float32([0.5, 0.333984375])
    assert mg.Ising([0, 1], [1, 2], weights).coupling.tolist() == wanted.tolist()
    graph = mg.ising_from_matrix(make([[0.0, 1 / 3], [1 / 3, 0.0]], dtype=arrays.bfloat16))
    assert graph.factors[0].coupling.tolist() == wanted[1:].tolist()


@pytest.mark.parametrize("library", FREE)
def test_arrays_without_numbers_are_refused(library):
    if library == "torch":
        torch = pytest.importorskip("torch")
        given, message = torch.zeros(2, 2).to_sparse(), "J must be .* Use Tensor.to_dense"
    else:
        jax = pytest.importorskip("jax")
        given, message = jax.random.split(jax.random.key(1), 2), "J must be .* PRNGKey"
    with pytest.raises(mg.GraphError, match=message):
        mg.ising_from_matrix(given)


def test_arrays_of_wrong_types_are_refused_as_before():
    with pytest.raises(mg.GraphError, match="variables must be integers"):
        mg.Ising(Foreign([0.5]), [1], 0.5)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8])
def test_numbers_of_small_types_give_no_warning(kind):
    """Pytest turns warnings into errors."""
    weight = np.array([0.5, 1.0]).astype(kind)
    assert mg.Ising([0, 1], [1, 2], weight).coupling.tolist() == weight.tolist()
    with pytest.raises(mg.GraphError, match="a weight must be finite"):
        mg.Ising([0], [1], np.array([np.nan], dtype=np.float32))
