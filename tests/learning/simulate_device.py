"""Learning's chains in Numba's CUDA simulator; `test_device` starts this as a script.

Compilation is off here, so the layouts are prepared in advance, one per set of weights. The script
executes the steps in `FOLDER/NAME.json`. It writes the states after each step to `NAME.out.npz`,
and the counts for their statistics to `NAME.counts.npz`.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numba import extending

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.running import simulate_cuda, simulator


class Direct:
    """Groups that learning does not use, with the interface of its chains."""

    def __init__(self, graph, sampler, states, key):
        from minigibbs.running.request import Options

        options = Options(
            sampler=sampler,
            chains=len(states),
            seed=0,
            record=(),
            scan="chromatic",
            backend="cuda",
        )
        self.plan = options.plan(graph, 0, len(graph))
        self.first, self.key, self.group, self.swept = states, key, None, 0

    def set_weights(self, laid):
        from minigibbs.running.backends.cuda_colors_bits import CudaBits
        from minigibbs.running.backends.cuda_colors_small import CudaSmall
        from minigibbs.samplers.chromatic.small_tails import SmallTailColors

        if self.group is None:
            kind = CudaSmall if isinstance(laid, SmallTailColors) else CudaBits
            self.group = kind(self.plan, laid)
            self.group.key = self.key
            self.group.place(self.first)
            self.group.swept = self.swept
        else:
            self.group.set_weights(laid)

    def anew(self, laid):
        self.first, self.group = self.states(), None
        self.set_weights(laid)

    def sweep(self, sweeps):
        self.group.advance(sweeps * self.group.unit)
        self.swept += sweeps

    def states(self):
        return self.group.states()


def run_case(path):
    """Run the case that one file describes."""
    import minigibbs as mg
    from minigibbs.graph import packing
    from minigibbs.learning import device
    from minigibbs.running.backends import cuda_colors_bits
    from minigibbs.samplers.encoding import sampler_from

    case = json.loads(path.read_text())
    with np.load(path.with_suffix(".npz")) as arrays:
        model = simulate_cuda.restore(case["model"], arrays)
        laid = [simulate_cuda.restore(one, arrays) for one in case["laid"]]
        states = [simulate_cuda.restore(one, arrays) for one in case["states"]]
        counted = simulate_cuda.restore(case["counted"], arrays)
    packing.pack = lambda sizes, factors, evidence: (model, case["offset"])
    cuda_colors_bits._WALKERS = case["walkers"]
    graph = mg.read(path.with_suffix(".mg"))
    frame = SimpleNamespace(
        countable=True,
        counted_size=0 if counted is None else len(counted.one),
        counted=counted,
        sizes=graph.sizes,
        structure=model,
        from_counts=lambda counts, chains: counts,
    )
    if case["sampler"] is None:
        device.LearnedLayout = lambda graph: SimpleNamespace(at=lambda which: laid[which])
        device.learned_layout = lambda graph: True
        chains = device.DeviceChains(graph, states[0].copy(), tuple(case["seed"]))
    else:
        sampler = sampler_from(case["sampler"])
        chains = Direct(graph, sampler, states[0].copy(), case["seed"])
    seen, counts = [], []
    for name, value in case["steps"]:
        if name == "take":
            chains.set_weights(value if case["sampler"] is None else laid[value])
        elif name == "anew":
            chains.anew(laid[value])
        elif name == "put":
            chains.load(states[value])
        else:
            chains.sweep(value)
            if case["sampler"] is None:  # before states are read
                counts.append(chains.summed(frame, None, None))
            seen.append(chains.states().copy())
    np.savez(path.with_suffix(".out.npz"), *seen)
    np.savez(path.with_suffix(".counts.npz"), *counts)


def main(folder):
    np.seterr(over="ignore")  # the generator's words wrap
    simulator.install()
    extending.intrinsic = simulate_cuda.in_python
    from minigibbs.running.backends import (
        cuda_bits,
        cuda_colors,
        cuda_counts,
        cuda_group,
        cuda_small,
    )

    simulate_cuda.small_device(cuda_group)
    cuda_bits.WALKING = cuda_bits.THREADS = cuda_small.THREADS = cuda_small.CHAINS = 4
    cuda_colors.CudaColors.slots = 8
    cuda_counts.THREADS = 4
    for path in sorted(folder.glob("*.json")):
        run_case(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
