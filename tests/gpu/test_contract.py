"""The contract of ensembles on a real GPU; skipped without a GPU.

Chromatic scans and ladders of bits have the chains of the CPU, bit by bit. Single-variable updates
use `exp` and `log`, whose last bit may differ on a GPU, so their bits are not compared. Their
chains must still restore, load, count and have energies according to the contract.
"""

import pytest

from minigibbs.running.backends import BACKENDS
from tests.contract.models import CHROMATIC, MODELS
from tests.contract.steps import Whole, check, perform, plan_of
from tests.contract.test_layouts import on_a_gpu, reference
from tests.gpu.test_device import device_is_there

pytestmark = pytest.mark.skipif(not device_is_there(), reason="there is no GPU")

CUDA = BACKENDS["cuda"]
BITS = {*CHROMATIC, "ladder of bits", "twin ladders of bits"}


@pytest.mark.parametrize("name", [name for name in MODELS if on_a_gpu(name)])
@pytest.mark.parametrize("chains", [1, 31, 32, 33])
def test_on_a_gpu(name, chains):
    model = MODELS[name]
    graphs = {"graph": model.graph, "other": model.other}
    plans = {which: plan_of(model, graph, chains, "cuda") for which, graph in graphs.items()}

    def place(which, states):
        return Whole(CUDA.groups(plans[which], CUDA.prepare(plans[which]), lambda: states))

    found = perform(place, model.graph, chains)
    check(model.graph, chains, found, reference(name), bits=name in BITS)
