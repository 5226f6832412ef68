"""Arrays on a GPU, of CuPy, PyTorch and JAX, are accepted like NumPy's."""

import importlib

import numpy as np
import pytest

import minigibbs as mg


def of_cupy(given):
    return importlib.import_module("cupy").array(given)


def of_torch(given):
    torch = importlib.import_module("torch")
    made = torch.tensor(given, device="cuda")
    return made.requires_grad_() if made.is_floating_point() else made


def of_jax(given):
    jax = importlib.import_module("jax")
    return jax.device_put(jax.numpy.array(given), jax.devices("gpu")[0])


@pytest.fixture(params=[of_cupy, of_torch, of_jax], ids=["cupy", "torch", "jax"])
def make(request):
    try:
        request.param([1.0])
    except (ImportError, RuntimeError, AssertionError) as error:  # not installed, or no GPU
        pytest.skip(f"no arrays on a GPU: {error}")
    except Exception as error:  # an error class of CuPy
        if type(error).__module__.partition(".")[0] not in ("cupy", "cupy_backends"):
            raise
        pytest.skip(f"no arrays on a GPU: {error}")
    return request.param


def test_models_and_fits_take_them(make):
    rows = [[0, 1, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    plain = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], [0.5, -0.25], name="J")])
    given = mg.Ising(make([0, 1]), make([1, 2]), make([0.5, -0.25]), name="J")
    graph = mg.FactorGraph(make([2, 2, 2]), [given])
    np.testing.assert_array_equal(graph.log_potential(make(rows)), plain.log_potential(rows))
    first, second = (
        mg.learn(plain, data, method="exact", progress=False) for data in (make(rows), rows)
    )
    np.testing.assert_array_equal(first.parameters["J"], second.parameters["J"])
    start = make([[0, 1, 0], [1, 0, 1]])
    run = mg.sample(graph, sweeps=3, chains=2, start=start, seed=1, progress=False)
    assert run.state.shape == (2, 3)
