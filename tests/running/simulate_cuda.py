"""Whole runs in Numba's CUDA simulator; `test_cuda_simulator` starts this as a script.

The simulator runs kernels as plain Python, so compilation is off here. Results of compiled code are
prepared in advance. `FOLDER/NAME.json` describes the case, and the shapes of the packed model and
of the sampler's data. `NAME.npz` has their arrays, `NAME.mg` the graph. Runs are saved in the same
folder. Folders within the folder are searched as well. Cases run in the order of their paths, and
cases that kill their process run in a fork.
"""

import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numba import extending

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.running import simulator


def flatten(value, arrays):
    """Describe nested NamedTuples for JSON; arrays are appended to `arrays`."""
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
        parts = [restore(part, arrays) for part in description["parts"]]
        return tuple(parts) if kind is tuple else kind(*parts)
    if "array" in description:
        return arrays[f"arr_{description['array']}"].copy()
    return description["value"]


PLAIN = {"warmup": 0, "start": "random"}  # as in `tests.harness.sample`

IN_PYTHON = {  # functions for which the compiler has instructions
    "as_float": lambda word: np.uint32(word).view(np.float32),
    "as_double": lambda word: np.uint64(word).view(np.float64),
    "word_of": lambda number: np.float64(number).view(np.int64),
    "fused": lambda a, b, c: np.float32(np.float64(a) * np.float64(b) + np.float64(c)),
    "any_bits": lambda word, mask: bool(int(word) & int(mask)),
    "right": lambda word, by: np.uint32(int(word) >> int(by)),
    "lanes_of": lambda size, example: np.full(size, example),
    "floored": lambda value: np.float32(np.floor(value)),
    "far_two": lambda words, pair: tuple(words[2 * int(pair) + k] for k in range(2)),
    "far_four": lambda words, quad: tuple(words[4 * int(quad) + k] for k in range(4)),
    "near_four": lambda words, quad: tuple(words[4 * int(quad) + k] for k in range(4)),
    "quick_power_of_2": lambda value: np.float32(2.0 ** float(value)),
    "quick_root": lambda value: np.float32(float(value) ** 0.5),
    "multiprocessor": lambda: np.uint32(0),
    "as_word": lambda value: np.float32(value).view(np.uint32),
    "as_long_double": lambda low, high: np.array([low, high], np.uint32).view(np.float64)[0],
}


def squared_steps(rows, i, j, first):
    columns = range(int(first), int(first) + 7)
    steps = [np.float64(rows[int(i), k]) - np.float64(rows[int(j), k]) for k in columns]
    return sum(step * step for step in steps)


IN_PYTHON |= {"fetch": lambda array, place, line: None, "squared_steps": squared_steps}


def in_python(function=None, **options):
    """Replace Numba's `intrinsic`; CPU-only functions are unchanged."""
    return in_python if function is None else IN_PYTHON.get(function.__name__, function)


class Nested:
    """Extension that lets the simulator handle nested tuples, as numba-cuda does."""

    def prepare_args(self, kind, value, stream, retr):
        return kind, self.wrap(value)

    def wrap(self, value):
        from numba.cuda.simulator.cudadrv.devicearray import (
            FakeCUDAArray,
            FakeWithinKernelCUDAArray,
        )

        if isinstance(value, tuple):
            parts = [self.wrap(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return FakeWithinKernelCUDAArray(value) if isinstance(value, FakeCUDAArray) else value


def seeing_into_tuples(make):
    """Wrap a function that makes kernels so that they handle nested tuples."""

    def made(*settings):
        kernel = make(*settings)
        kernel.extensions.append(Nested())
        return kernel

    return made


def see_into_tuples(module):
    """Let all kernels of a module handle nested tuples."""
    for kernel in vars(module).values():
        if hasattr(kernel, "extensions"):
            kernel.extensions.append(Nested())


def small_device(cuda_group):
    """Use few threads and short paths, so that few chains cover every branch."""
    kernels = cuda_group.load_kernels()
    kernels.THREADS = cuda_group.WARP = 4
    cuda_group.PATH = 10
    see_into_tuples(kernels)
    kernels.observe_kernel = seeing_into_tuples(kernels.observe_kernel)
    for rows in range(1, kernels.NARROW + 1):
        kernels.advance(rows).extensions.append(Nested())


def plain_weights(group):
    """Return the weights of all pairs of `mg.Points`, computed in NumPy for Potts factors."""
    assert group.form == "potts"
    rows, scale = group.features.astype(float), group.scale.astype(float)
    square = ((rows[:, None] - rows) ** 2).sum(axis=2)
    decays = {
        "gaussian": lambda: np.exp(-0.5 * square),
        "laplace": lambda: np.exp(-np.sqrt(square)),
        "power": lambda: (1.0 + square) ** (-0.5 * group.exponent),
    }
    weights = group.weight * decays[group.kernel]() * np.outer(scale, scale)
    return weights * (1 - np.eye(len(rows)))


def plain_points(kind):
    """Let points work without the compiled sums."""
    kind._local = property(lambda group: np.abs(plain_weights(group)).sum(axis=1))
    kind._energies = lambda group, states: np.array(
        [0.5 * (plain_weights(group) * (x[:, None] == x)).sum() for x in states]
    )


def pair_and_share(x):
    """User observable: a tuple of a number and a truth value."""
    ones = 0
    for i in range(len(x)):
        ones += x[i] == 1
    return ones / len(x), x[0] == x[1]


def set_points(points, warp=32, near=1 << 20):
    """Set the width of a warp, and the bytes of values that a block stores in shared memory."""
    points.WARP, points.NEAR_BYTES = warp, near
    points._sync_warp = simulator.sync_warp(warp)
    for made in (points._choosing, points._proposing, points._keeping, points._noting):
        made.cache_clear()


def maximized(graph, data, chains, rounds):
    """Return the best states of a search on the device."""
    from minigibbs.engine.driver import drive
    from minigibbs.inference.device import DeviceSearching
    from minigibbs.running.progress import Bar
    from minigibbs.system.watch import Watch

    states = np.tile(np.maximum(graph.evidence, 0).astype(graph.state_type), (chains, 1))
    search = DeviceSearching(graph, data, states, 1, rounds)
    with Watch() as watch, Bar(search.total, 0, False) as bar:
        search.begin(None, bar, watch)
        assert drive(search, watch) == "rounds"
    assert search.rounds == rounds
    return search.states


RUN_SEGMENT = None  # the original, before a case replaces it


def run_case(path):
    """Run the case that one file describes."""
    import minigibbs as mg
    from minigibbs.graph import packing
    from minigibbs.observables.reading import decode
    from minigibbs.running import budget, request
    from minigibbs.running.backends import (
        base,
        cuda,
        cuda_colors_bits,
        cuda_colors_stencil,
        cuda_group,
        cuda_ladders,
        cuda_points,
    )
    from minigibbs.running.backends.device import shapes
    from minigibbs.running.group import Group
    from minigibbs.samplers.encoding import sampler_from

    case = json.loads(path.read_text())
    with np.load(path.with_suffix(".npz")) as arrays:
        model, data = (restore(case[name], arrays) for name in ("model", "data"))
    packing.pack = lambda sizes, factors, evidence: (model, case["offset"] if factors else 0.0)
    sampler = sampler_from(case["sampler"])
    prepare = type(sampler).prepare
    type(sampler).prepare = lambda self, graph, lanes=1: data
    laid = SimpleNamespace(name="prepared", lay_out=lambda sampler, graph: data)
    base.chromatic_layout = lambda *asked: laid  # needs compiled code
    base.Backend.promise = lambda self, plan: base.Promise(self.lanes, "")  # needs compiled code
    cuda_colors_bits._WALKERS = case.get("walkers", cuda_colors_bits._WALKERS)
    cuda_colors_stencil._NARROW = case.get("narrow", 1 << 32)
    set_points(cuda_points, **case.get("points", {}))
    cuda_ladders._FEW = case.get("few", cuda_ladders._FEW)
    cuda_group._BUFFER_BYTES = case["buffer"]
    cuda_group.COUNT_EVERY = case.get("count_every", 1 << 10)
    shapes.LIMITS = shapes.Limits(grid=(1 << 20, 2, case.get("deep", 1 << 10)))
    request.energy_every = budget.energy_every
    if "energy_every" in case:
        request.energy_every = lambda *asked: case["energy_every"]
    cuda_colors_bits._LARGE, cuda_group._PART = case.get("large", 1 << 24), case.get("part", 64)
    Group.first_segment, Group.segment_seconds = case["segment"], 0.0
    cuda_group.CudaGroup.first_segment, cuda_group.CudaGroup.segment_seconds = case["segment"], 0.0
    left = [case["die_after"] or -1]

    def run_segment(group):
        made = RUN_SEGMENT(group)
        if "energy_every" in case:  # energies that a progress bar would read
            np.save(path.with_suffix(".live.npy"), group.energies())
        group.segment = case["segment"]
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    Group.run_segment = run_segment
    made, groups = [], cuda.CudaBackend.groups
    if case.get("best"):

        def keeping(backend, *given):
            made.extend(groups(backend, *given))
            made[-1].keep_best()
            return made

        cuda.CudaBackend.groups = keeping
    own = {"own": pair_and_share} if case["own"] else None
    if case.get("maximize"):
        best = maximized(mg.read(path.with_suffix(".mg")), data, *case["maximize"])
        np.save(path.with_suffix(".best.npy"), best)
        type(sampler).prepare = prepare
        return
    if case["resume"]:
        run = mg.resume(case["resume"], progress=False, observe=own)
    else:
        record = mg.Record(*case["record"], **case["record_options"])
        options = {"backend": "cuda", "record": record, "progress": False, **case["options"]}
        known = {key: np.array(array) for key, array in case.get("observe_arrays", {}).items()}
        asked = {
            key: decode(one, known) if isinstance(one, dict) else one
            for key, one in (options.get("observe") or {}).items()
        }
        options["observe"] = asked | (own or {})
        request._MOST_SERIES = case["most_series"]
        run = mg.sample(mg.read(path.with_suffix(".mg")), sampler, **PLAIN | options)
    type(sampler).prepare = prepare
    cuda.CudaBackend.groups = groups
    if made:
        np.save(path.with_suffix(".best.npy"), made[-1].best_states())
    run.save(path.with_suffix(".run"))


def set_up() -> None:
    """Prepare the simulator: few threads, and Python versions of intrinsics."""
    np.seterr(over="ignore")  # the generator's words wrap
    simulator.install()
    extending.intrinsic = in_python
    from minigibbs.graph.factors import Points
    from minigibbs.running.backends import (
        cuda_bits,
        cuda_colors,
        cuda_colors_bits,
        cuda_group,
        cuda_ladder_kernels,
        cuda_ladders,
        cuda_level_kernels,
        cuda_observed,
        cuda_points,
        cuda_small,
        cuda_small_ladders,
        cuda_stencil,
        cuda_sums,
    )
    from minigibbs.running.group import Group
    from minigibbs.samplers import registry

    plain_points(Points)
    registry._first = lambda *asked: registry.POINTS  # any layout is sufficient
    small_device(cuda_group)
    cuda_bits.WALKING = cuda_bits.THREADS = cuda_small.THREADS = cuda_small.CHAINS = 4
    cuda_stencil.THREADS = 4
    cuda_points.sweep_points = seeing_into_tuples(cuda_points.sweep_points)
    cuda_sums.sums_kernel = seeing_into_tuples(cuda_sums.sums_kernel)
    cuda_sums.THREADS, cuda_observed._BLOCKS, cuda_colors.COUNT_EVERY = 4, 2, 4
    cuda_points.THREADS = cuda_points.CHUNK = cuda_points.TILE = cuda_points.MOST_OPEN = 4
    cuda_points.MOST_HELD = 2
    cuda_ladder_kernels.THREADS = cuda_ladder_kernels.GROWING = 4
    cuda_ladders._ADDING, cuda_ladders._PART = 64, 2
    see_into_tuples(cuda_level_kernels)
    cuda_level_kernels.THREADS = cuda_level_kernels.ALONE = 4
    cuda_small_ladders._ADDING, cuda_small_ladders._PART = 64, 2
    cuda_small_ladders._CLUSTER_BYTES = 1 << 10  # a few levels at a time
    cuda_group._ADDING = cuda_colors_bits._ADDING = cuda_colors.CudaColors.slots = 8
    global RUN_SEGMENT
    RUN_SEGMENT = Group.run_segment


def main(folder: Path) -> None:
    set_up()
    for path in sorted(folder.rglob("*.json")):
        if json.loads(path.read_text())["die_after"] is None:
            run_case(path)
        else:
            run_killed(path)


def run_killed(path):
    """Run a case that kills its process, in a fork."""
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            run_case(path)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == -signal.SIGKILL, f"{path.name}: ended with {status} before it was killed"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
