"""Run prepared chains in Numba's CUDA simulator; `test_cuda_simulator` starts this as a script.

The simulator runs kernels as plain Python, so compilation is off here and the model and the
sampler's data come prepared: `FOLDER/NAME.json` with the shape of the arguments, `NAME.npz` with
their arrays. The results are left in `FOLDER/NAME.out.npz`.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np


def flatten(value, arrays):
    """A description of nested NamedTuples for JSON; arrays go into a list of their own."""
    if isinstance(value, tuple):
        kind = f"{type(value).__module__}:{type(value).__name__}"
        return {"type": kind, "parts": [flatten(part, arrays) for part in value]}
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value))
        return {"array": len(arrays) - 1}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def restore(description, arrays):
    if "type" in description:
        module, name = description["type"].split(":")
        kind = getattr(importlib.import_module(module), name)
        return kind(*(restore(part, arrays) for part in description["parts"]))
    if "array" in description:
        return arrays[f"arr_{description['array']}"].copy()
    return description["value"]


class Nested:
    """Lets the simulator see into tuples, as the real thing does."""

    def prepare_args(self, kind, value, stream, retr):
        return kind, self.wrap(value)

    def wrap(self, value):
        from numba.cuda.simulator.cudadrv.devicearray import (
            FakeCUDAArray,
            FakeWithinKernelCUDAArray,
        )

        if isinstance(value, tuple):
            return type(value)(*(self.wrap(part) for part in value))
        return FakeWithinKernelCUDAArray(value) if isinstance(value, FakeCUDAArray) else value


def main(folder: Path) -> None:
    np.seterr(over="ignore")  # the generator's words wrap
    from minigibbs.running.backends import device

    backend = device.load_backend()
    backend.THREADS = device.LANES = 4
    device._MOST_BLOCKS = 2
    kernels = [kernel for kernel in vars(backend).values() if hasattr(kernel, "extensions")]
    for kernel in [*kernels, *(backend.advance(rows) for rows in range(1, backend.NARROW + 1))]:
        kernel.extensions.append(Nested())
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text())
        with np.load(path.with_suffix(".npz")) as arrays:
            parts = {name: restore(part, arrays) for name, part in case["parts"].items()}
        states, streams = parts.pop("states"), parts.pop("streams")
        device._BUFFER_BYTES = case["buffer"]
        run = device.DeviceRun(chains=len(states), kind=states.dtype, **parts, **case["options"])
        run.place(states, streams)
        run.every = case["every"]
        run.launch(case["warmup"])
        run.record_until(case["updates"])
        records = run.finish(case["warmup"], 0.0, False)
        kept = {
            name: getattr(records, name)
            for name in ("counts", "draws", "energy", "error", "tally")
            if getattr(records, name) is not None
        }
        np.savez(path.with_suffix(".out.npz"), states=run.final_states(), **kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
