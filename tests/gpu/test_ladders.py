"""Temperature ladders on a real GPU equal the CPU's bit by bit; skipped without a GPU."""

import numpy as np
import pytest

import minigibbs as mg
from tests.gpu.test_device import device_is_there
from tests.harness import sample
from tests.running.test_cuda_ladders import CASES, EVERYTHING, glass, tempering

pytestmark = pytest.mark.skipif(not device_is_there(), reason="there is no GPU")

LARGER = {
    "lattice": (mg.models.ising_lattice(side=12, beta=0.45), tempering(13, True), 64),
    "several-words": (glass(3), tempering(70, True), 70),
}


@pytest.mark.parametrize("name", [*CASES, *LARGER])
def test_ladders_are_those_of_the_cpu(name):
    graph, sampler, chains = (CASES | LARGER)[name]
    options = {"sweeps": 60, "warmup": 5, "chains": chains, "seed": 7, "record": EVERYTHING}
    found = sample(
        graph,
        sampler,
        backend="cuda",
        progress=False,
        **(options | {"record": mg.Record(*EVERYTHING, chains=chains)}),
    )
    expected = sample(graph, sampler, progress=False, **options)
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_array_equal(found.state, expected.state)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-9)
    assert found.ladder.round_trips == expected.ladder.round_trips
    np.testing.assert_allclose(found.ladder.log_z, expected.ladder.log_z, rtol=1e-9)
