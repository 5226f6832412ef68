"""The contract in Numba's CUDA simulator; `test_layouts` starts this as a script.

Compilation is off here, so results of compiled code are prepared in advance.
"""

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.running import simulate_cuda


def packed_again(packed, rest, offset, sizes, factors, evidence):
    """Replace `packing.pack`: return all factors as compiled code packed them, or the others."""
    return packed if any(one.kind == "stencil" for one in factors) else rest, offset


def run_case(path):
    import minigibbs as mg  # after `set_up`, which changes compilation
    from minigibbs.graph import packing
    from minigibbs.running.backends import BACKENDS, cuda_colors_bits
    from minigibbs.samplers.encoding import sampler_from
    from tests.contract import steps

    case = json.loads(path.read_text())
    sampler, chains = sampler_from(case["sampler"]), case["chains"]
    model = SimpleNamespace(sampler=sampler, scan=case["scan"])
    graphs, plans, data, energies = {}, {}, {}, {}
    cuda_colors_bits.spin_energy = lambda graph, variable: energies[id(graph.packed)]
    with np.load(path.with_suffix(".npz")) as arrays:
        for which in ("graph", "other"):
            packed = simulate_cuda.restore(case[which]["model"], arrays)
            rest = simulate_cuda.restore(case[which]["rest"], arrays)
            data[which] = simulate_cuda.restore(case[which]["data"], arrays)
            energies[id(packed)] = simulate_cuda.restore(case[which]["energy"], arrays)
            offset = case[which]["offset"]
            graphs[which] = mg.read(path.with_suffix(f".{which}.mg"))
            others = rest if graphs[which].stencils else packed  # read separately, but equal
            packing.pack = partial(packed_again, packed, others, offset)
            assert graphs[which].packed is packed
            plans[which] = steps.plan_of(model, graphs[which], chains, "cuda")

    def place(which, states):
        return steps.Whole(BACKENDS["cuda"].groups(plans[which], data[which], lambda: states))

    found = steps.perform(place, graphs["graph"], chains)
    np.savez(path.with_suffix(".out.npz"), **found)


if __name__ == "__main__":
    simulate_cuda.set_up()
    from minigibbs.running.backends import cuda_points
    from minigibbs.running.backends.device import shapes

    simulate_cuda.set_points(cuda_points)
    shapes.LIMITS = shapes.Limits(grid=(1 << 20, 2, 1 << 10))
    for file in sorted(Path(sys.argv[1]).glob("*.json")):
        run_case(file)
