"""CUDA backend without a GPU: every kernel compiles to PTX; see also test_cuda_simulator."""

from functools import cache
from importlib import import_module

import numpy as np
import pytest

import minigibbs as mg
from tests.settings import ATTRACTIVE, CASES, SETTINGS
from tests.zoo import ZOO

numba_cuda = pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
import numba  # noqa: E402
from numba import cuda, types  # noqa: E402

if numba.config.ENABLE_CUDASIM:
    pytest.skip("PTX needs the compiler, not the simulator", allow_module_level=True)

from numba.cuda import dispatcher  # noqa: E402

from minigibbs.kernels.layout import Scan  # noqa: E402
from minigibbs.running.backends import BACKENDS, cuda_colors  # noqa: E402
from minigibbs.running.backends import cuda_bits as bits  # noqa: E402
from minigibbs.running.backends import cuda_counts as counts_of  # noqa: E402
from minigibbs.running.backends import cuda_group as device  # noqa: E402
from minigibbs.running.backends import cuda_kernels as backend  # noqa: E402
from minigibbs.running.backends import cuda_ladder_kernels as ladders  # noqa: E402
from minigibbs.running.backends import cuda_level_kernels as by_level  # noqa: E402
from minigibbs.running.backends import cuda_points as points  # noqa: E402
from minigibbs.running.backends import cuda_small as small  # noqa: E402
from minigibbs.running.backends import cuda_stencil as stencils  # noqa: E402
from minigibbs.running.backends import cuda_sums as sums  # noqa: E402
from minigibbs.running.backends.cuda_colors_small import CudaSmall  # noqa: E402
from minigibbs.running.backends.cuda_colors_stencil import pattern_of  # noqa: E402
from minigibbs.running.backends.packed_points import pack_points  # noqa: E402
from minigibbs.running.request import Options  # noqa: E402
from minigibbs.samplers.chromatic.small import small_colors  # noqa: E402
from minigibbs.samplers.chromatic.spins import spin_colors  # noqa: E402
from minigibbs.samplers.registry import color_data  # noqa: E402
from minigibbs.system import memory  # noqa: E402


class Hopper:
    compute_capability = (9, 0)


@pytest.fixture(autouse=True)
def pretend_there_is_a_device(monkeypatch):
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: Hopper)


def device_type(value):
    """Return the type of an argument whose arrays are on the device."""
    if isinstance(value, tuple):
        parts = [device_type(part) for part in value]
        named = hasattr(value, "_fields")
        return types.NamedTuple(parts, type(value)) if named else types.Tuple(parts)
    if isinstance(value, np.ndarray):
        kind = numba.typeof(value)
        return types.Array(kind.dtype, kind.ndim, "C")
    return numba.typeof(value)


def matrix(kind):
    return types.Array(kind, 2, "C")


def chains_type(state):
    parts = (state, types.uint64, types.float64, types.float64, types.int64, types.int64)
    return types.NamedTuple([matrix(kind) for kind in parts], backend.ChainArrays)


COUNTING = types.NamedTuple(
    [types.Array(types.int64, 1, "C"), matrix(types.int64), types.int64, types.int64],
    backend.Counting,
)
SCAN = Scan(0, 1, np.empty(0, np.int32), np.empty(1, np.int64), np.empty(4, np.uint64))


@cache  # several samplers have data of the same type
def ptx(kernel, *arguments):
    text, _ = cuda.compile_ptx(kernel.py_func, arguments, cc=(9, 0), device=False)
    assert ".visible .entry" in text
    return text


def check_advance(name, sampler, graph):
    """Compile every update in one loop, and a few of them in the other loops."""
    data, model = sampler.prepare(graph), graph.packed
    arguments = [device_type(part) for part in (data, model)]
    chains = chains_type(numba.typeof(np.zeros(1, graph.state_type)).dtype)
    path = types.Array(types.int32, 1, "C")
    ptx(backend.advance(8), *arguments, chains, path, COUNTING)
    if name in IN_ALL_LOOPS:
        ptx(backend.advance_wide, *arguments, chains, path, COUNTING)
        scan = device_type(SCAN)
        ptx(backend.advance_apart, *arguments, chains, scan, types.int64, COUNTING)
    return arguments, chains


IN_ALL_LOOPS = {"gibbs", "poisson-gibbs", "double-min", "several"}  # several: all implicit kinds
assert SETTINGS.keys() | CASES.keys() >= IN_ALL_LOOPS


@pytest.mark.parametrize("name", SETTINGS)
def test_every_sampler_compiles_for_a_gpu(name):
    sampler, graph = SETTINGS[name].sampler, SETTINGS[name].graph
    arguments, chains = check_advance(name, sampler, graph)
    if backend_carries(sampler, graph):
        ptx(backend.start_chains, *arguments, chains)


def backend_carries(sampler, graph):
    from minigibbs.engine.dispatch import carries

    return carries(sampler.prepare(graph))


@pytest.mark.parametrize("name", CASES)
def test_every_layout_and_implicit_group_compiles_for_a_gpu(name):
    check_advance(name, CASES[name].sampler, CASES[name].graph)


@pytest.mark.parametrize("name", ["swendsen-wang", "block-gibbs", "tempering"])
def test_samplers_that_sweep_compile_for_a_gpu(name):
    sampler, graph = SWEEPERS[name]
    arguments = [device_type(part) for part in (sampler.prepare(graph), graph.packed)]
    kind = numba.typeof(np.zeros(1, graph.state_type)).dtype
    chains, replicas = chains_type(kind), matrix(kind)
    ptx(backend.start_sweeps, *arguments, chains, replicas)
    ptx(backend.advance_sweeps, *arguments, chains, replicas, types.int64, COUNTING)


SWEEPERS = {
    "swendsen-wang": (mg.SwendsenWang(), ATTRACTIVE["fields"]),
    "block-gibbs": (mg.BlockGibbs(width=1), ZOO["potts"]),
    "tempering": (mg.Tempering(mg.Gibbs(), (0.0, 1.0), houdayer=False), ZOO["potts"]),
}


def test_an_observable_of_states_compiles_for_a_gpu():
    measure = mg.observables.Correlations((4, 4)).bind(mg.models.ising_lattice(side=4, beta=0.4))
    values = types.Array(types.float64, 3, "C")
    kernel = backend.observe_kernel(measure.function)
    ptx(kernel, placed_type(measure.parameters), matrix(types.int8), values)


def test_every_recording_kernel_compiles_for_a_gpu():
    x, first = matrix(types.uint8), types.Array(types.int64, 1, "C")
    states = types.Array(types.uint8, 3, "C")
    ptx(backend.count_values, x, first, matrix(types.int64))
    ptx(backend.count_wide, x, first, matrix(types.int64))
    some = types.Array(types.int32, 1, "C")
    ptx(backend.keep_states, x, first, some, types.int64, states)
    parts = types.Array(types.float64, 3, "C")
    ptx(backend.part_energies, device_type(ZOO["mixed"].packed), states, parts)
    ptx(backend.sum_parts, parts, matrix(types.float64))
    ptx(backend.average_rows, parts, types.int64, types.int64, parts)


def row(kind):
    return types.Array(kind, 1, "C")


NUMBERS = (types.int64,) * 3  # two words of the seed, and a sweep


def spin_arrays(strong):
    """Return the type of log-odds, and the types of a spin kernel's arrays."""
    weight = 500.0 if strong else 0.3
    data = spin_colors(mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2], [1, 2, 3], weight)]))
    arrays = [device_type(getattr(data, name)) for name in bits.Spins._fields]
    return data.base.dtype.type, arrays


@pytest.mark.parametrize("strong", [False, True])
def test_spins_by_colors_compile_for_a_gpu(strong):
    """Log-odds are in single precision, or in double for large weights; no local memory."""
    kind, arrays = spin_arrays(strong)
    x, copy = matrix(types.uint32), row(types.uint32)
    span, few = (types.int64, types.int64, *NUMBERS, types.int64), types.uint8
    for lanes in (1, bits.QUAD, bits.HALF):
        kernel = bits.sweep_color(kind, lanes)
        assert ".local" not in ptx(kernel, *arrays, *span, x, copy)
        assert ".local" not in ptx(kernel, *arrays, *span, matrix(few), row(few))
    blocks, _, base, _, weight = arrays
    ptx(bits.find_thresholds(kind), blocks, base, weight, copy)
    assert ".local" not in ptx(bits.sweep_patterns, *arrays, copy, *span, x, copy)
    ptx(bits.walk(kind), *arrays, *NUMBERS, types.int64, matrix(types.uint16))
    ptx(bits.first_bits, arrays[1], types.int64, types.int64, x)


@pytest.mark.parametrize("strong", [False, True])
def test_ladders_of_spins_compile_for_a_gpu(strong):
    """The fields of a thread's replicas are in registers."""
    number, words, places = types.int64, row(types.uint32), row(types.int32)
    kind, arrays = spin_arrays(strong)
    keys, x, counts = matrix(types.uint32), matrix(types.uint32), row(types.int64)
    betas = row(types.float64 if strong else types.float32)
    settings = (number, number, number, words, betas, keys, number, number, x, words)
    for parts in (1, 4):
        sweep = ladders.sweep_levels(kind, parts)
        assert ".local" not in ptx(sweep, *arrays, *settings, row(types.uint8))
    pairs, totals = matrix(types.uint32), matrix(types.int64)
    assert ".local" not in ptx(ladders.add_energies, pairs, counts, counts, x, number, totals)
    beta, label = row(types.float64), types.Array(types.uint8, 3, "C")
    sums = (types.Array(types.float64, 3, "C"), types.Array(types.float64, 5, "C"))
    constants = (types.float64, types.float64, number, number)
    where, notes = (beta, number, number, keys), (label, label, totals, words, words)
    ptx(ladders.exchange_levels, *where, *constants, totals, totals, *sums, *notes)
    ptx(ladders.swap_levels, words, *[number] * 5, x, x, words)
    ptx(ladders.grow_clusters, places, places, counts, places, keys, *[number] * 4, x, x, x)
    ptx(ladders.halve_blocks, sums[1])
    ptx(ladders.spread_states, x, number, x)
    ptx(ladders.find_best, totals, number, number, number, counts, counts)
    ptx(ladders.keep_best, counts, number, x, x)


def test_ladders_of_small_domains_compile_for_a_gpu():
    """The fields of a thread's variable are in registers."""
    graph = mg.models.potts_lattice(3, 3, 0.9)
    data = mg.Tempering(levels=5, houdayer=True).prepare(graph, BACKENDS["cuda"].lanes)
    number, x, keys = types.int64, matrix(types.uint8), matrix(types.uint32)
    numbers, totals, carried = row(number), matrix(number), matrix(types.float64)
    chain = [x, matrix(types.uint64), carried, carried, totals, totals]
    chains, whole = types.NamedTuple(chain, backend.ChainArrays), device_type(data)
    slots = (numbers, numbers, row(types.float32), number)
    where, order = types.NamedTuple(slots, by_level.Levels), device_type(data.order)
    kinds = [data.order, *(getattr(data.model, one) for one in by_level.Terms._fields[1:])]
    terms = types.NamedTuple([device_type(one) for one in kinds], by_level.Terms)
    colors = [device_type(getattr(data.model.colors, one)) for one in small.Small._fields]
    settings = (*[number] * 4, *slots, keys, number, number, x)
    assert ".local" not in ptx(by_level.sweep_levels(3), *colors, *settings)
    ptx(by_level.add_level_energies, terms, where, number, totals, x)
    ptx(by_level.decide_levels, whole, chains, totals)
    ptx(by_level.exchange_level_clusters, whole, chains, x, totals, number, number)
    ptx(by_level.swap_small_levels, whole, carried, order, number, x, x)
    ptx(by_level.find_best, totals, numbers, numbers)
    ptx(by_level.keep_best, numbers, where, order, x, x)
    ptx(by_level.read_keys, carried, number, keys)


def test_spins_with_tails_compile_for_a_gpu():
    graph = mg.models.ising_rbf(side=6, beta=1.0, implicit=False)
    data = color_data(mg.PoissonGibbs(heavy=4), graph)
    arrays = [device_type(getattr(data, name)) for name in bits.TailSpins._fields]
    kernel = bits.walk_with_tails(data.base.dtype.type)
    ptx(kernel, *arrays, *NUMBERS, types.int64, matrix(types.uint16), row(types.int64))


def lattices():
    """Return lattices whose rows fill their words or not, with couplings of several signs."""
    rng = np.random.default_rng(0)
    square, cube = [(0, 1), (1, 0)], [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    signs = rng.choice([-1.0, 1.0], (3, 4, 6, 64))
    holes = rng.choice([-1.0, 0.0, 1.0], (2, 6, 70))
    graphs = {
        "square": (mg.Stencil((6, 64), square, 0.4), {}),
        "glass": (mg.Stencil((4, 6, 64), cube, signs), {}),
        "open": (mg.Stencil((6, 70), square, holes, False), {3: 1}),
    }
    return {
        name: mg.FactorGraph([2] * one.variables, [one]).condition(given)
        for name, (one, given) in graphs.items()
    }


@pytest.mark.parametrize("name", ["square", "glass", "open"])
def test_lattices_of_bits_compile_for_a_gpu(name):
    """Levels and thresholds are in registers, because every loop over them is unrolled."""
    pattern = pattern_of(stencils, color_data(mg.Gibbs(), lattices()[name]))
    pattern = pattern._replace(wide=name == "glass")
    number, words, sides = types.int64, row(types.uint32), row(types.int32)
    arrays = (sides, sides, words, words, words, words)
    text = ptx(stencils.sweep_color(pattern), *arrays, *[number] * 3, *NUMBERS, number, words)
    assert ".local" not in text
    sums, counts = matrix(number), row(number)
    together = stencils.sweep_together(pattern)
    after = (*[number] * 4, matrix(types.uint32), counts, words)
    text = ptx(together, *arrays, *[number] * 3, *NUMBERS[:2], *after)
    assert ".local" not in text
    assert "cudaCGSynchronize" in text
    count = stencils.count_pairs(pattern)
    ptx(count, sides, sides, words, words, words, number, number, words, counts, sums)


def test_states_of_lattices_compile_for_a_gpu():
    number, words, states = types.int64, row(types.uint32), row(types.uint8)
    where = (row(number), row(number), number, number, number)
    ptx(stencils.first_words, *where, number, number, words, words, number, words)
    ptx(stencils.pack_words, *where, matrix(types.uint8), number, words)
    ptx(stencils.unpack_words, *where, words, *[number] * 4, states)
    ptx(stencils.flush_planes, *where, matrix(types.uint32), row(number), number, matrix(number))
    ptx(stencils.count_ones, words, number, number, types.Array(number, 3, "C"))
    sums, real = matrix(number), types.float64
    terms = (row(number), row(real), real, real)
    ptx(stencils.add_energies, sums, *terms, number, matrix(real))


@pytest.mark.parametrize("word", [types.uint8, types.uint32])
def test_counts_and_energies_of_bits_compile_for_a_gpu(word):
    x, words, counts = matrix(word), row(word), row(types.int64)
    values, places = row(types.uint8), row(types.int32)
    parts = types.Array(types.float64, 3, "C")
    ptx(bits.count_bits, x, types.int64, x)
    ptx(bits.count_changes, words, words, *NUMBERS, counts)
    planes = types.Array(word, 3, "C")
    ptx(bits.flush_counts, planes, places, counts, counts, types.int64, matrix(types.int64))
    numbers = row(types.float64)
    pairs = matrix(types.uint32)
    for lanes in (1, 32):
        ptx(bits.part_energies(lanes), pairs, numbers, numbers, x, counts, parts)
    constant = types.float64
    ptx(bits.sum_energies, parts, counts, constant, types.int64, matrix(types.float64))
    ptx(bits.read_bits, x, places, values, types.int64, matrix(types.uint8))
    states = types.Array(types.uint8, 3, "C")
    ptx(bits.keep_bits, x, places, values, counts, places, types.int64, states)
    ptx(bits.clear, words)
    ptx(bits.spread_bits, x, places, values, matrix(types.uint8))


@pytest.mark.parametrize("word", [types.uint8, types.uint32])
def test_sums_over_variables_compile_for_a_gpu(word):
    """Counters are in registers."""
    places, pieces, number = row(types.int32), matrix(types.int32), types.int64
    kept = types.Array(types.int32, 3, "C")
    text = ptx(sums.count_words, matrix(word), number, number, places, pieces, *[number] * 5, kept)
    assert ".local" not in text
    wanted = row(types.int64)
    ptx(sums.count_values, matrix(word), places, wanted, pieces, *[number] * 3, kept)
    ptx(sums.begin_sums, places, kept)


READY_MADE = [
    mg.observables.Magnetization(power=3, absolute=True),
    mg.observables.PottsOrder(),
    mg.observables.Count(),
    mg.observables.JointEvent({0: 1, 3: 0}),
    mg.observables.Agreement([0, 1] * 8),
    mg.observables.StructureFactor((4, 4)),
    mg.observables.Energy(),
    mg.observables.Moments(mg.observables.Energy()),
    mg.observables.Histogram(mg.observables.Magnetization(), bins=3),
]


@pytest.mark.parametrize("observable", READY_MADE, ids=lambda one: one.name)
def test_functions_of_sums_compile_for_a_gpu(observable):
    measure = observable.bind(mg.models.ising_lattice(side=4, beta=0.4))
    assert measure.sums is not None
    parameters = placed_type(measure.sums.of.parameters)
    kept = types.Array(types.int32 if measure.sums.terms else types.float64, 3, "C")
    values, numbers = types.Array(types.float64, 3, "C"), [types.int64] * 3
    ptx(sums.sums_kernel(measure.sums.of.function), parameters, kept, *numbers, values)


def placed_type(value):
    """Return the type like `device_type`, also for tuples without names."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return types.Tuple([placed_type(part) for part in value])
    return device_type(value)


def test_small_domains_by_colors_compile_for_a_gpu():
    data = small_colors(mg.models.potts_lattice(side=3, states=5, beta=0.5))
    arrays = [device_type(getattr(data, name)) for name in small.Small._fields]
    x, changed = matrix(types.uint8), row(types.int64)
    numbers = (types.int64, types.int64, *NUMBERS, types.int64)
    ptx(small.sweep_color(5), *arrays, *numbers, x, changed)
    numbers, places = matrix(types.float32), row(types.int32)
    kernel = small.sweep_sites(20, 5, 4)
    ptx(kernel, places, numbers, numbers, *NUMBERS, types.int64, x, changed)
    ptx(small.first_values, places, places, types.int64, types.int64, x)


def test_small_domains_with_tails_compile_for_a_gpu():
    graph = mg.models.potts_rbf(side=4, states=6, beta=1.0, implicit=False)
    data = color_data(mg.PoissonGibbs(heavy=4), graph)
    arrays = [device_type(getattr(data, name)) for name in small.SmallTails._fields]
    x, counts = matrix(types.uint8), row(types.int64)
    flat, words = row(types.uint8), row(types.uint32)
    for alike in (False, True):
        kernel = small.walk_with_tails(6, alike, alike)
        ptx(kernel, *arrays, *NUMBERS, types.int64, x, flat, words, counts, counts)


def test_turning_compiles_for_a_gpu():
    for kind in (types.uint8, types.uint64, types.float64):
        ptx(backend.turn, matrix(kind), types.int64, matrix(kind), types.boolean)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_points_compile_for_a_gpu(kernel):
    """Points and homes are loaded four words at a time, table entries two."""
    places = np.random.default_rng(0).uniform(0, 1, (6, 5))
    graph = mg.FactorGraph([3] * 6, [mg.Points(places, kernel), mg.Points(places[:, :2])])
    data = color_data(mg.PoissonGibbs(), graph)
    arrays = device_type(data._replace(homes=data.homes.reshape(-1)))
    x, counts = matrix(types.uint8), row(types.int64)
    packed = device_type(pack_points(data, 5))
    plain, near = kernel == "gaussian", kernel == "laplace"
    sweep = points.sweep_points(2, 3, 5, plain, points.THREADS, points.CHUNK, near)
    text = ptx(sweep, arrays, packed, *NUMBERS, types.int64, x, counts, counts, row(types.uint32))
    assert text.count("ld.global.v4") >= 4
    assert text.count("ld.global.v2") >= 2
    assert text.count("ld.shared.v4") >= 3
    numbers = row(types.int32)
    ptx(points.first_places, numbers, numbers, numbers, types.int64, types.int64, x)
    ptx(points.to_variables, x, numbers, x)
    ptx(points.to_places, x, numbers, x)


def test_counting_values_compiles_for_a_gpu():
    x, marks, places = matrix(types.uint8), matrix(types.uint32), row(types.int32)
    ptx(counts_of.mark_values, x, places, places, marks)
    for word in (types.uint8, types.uint32):
        ptx(counts_of.mark_bits, matrix(word), places, places, types.int64, marks)
    assert "popc" in ptx(counts_of.count_marks, marks, places, places, places)


class Roomy:
    """A device that only reports its free memory."""

    def __init__(self, free):
        self.free = free

    def get_memory_info(self):
        return self


@pytest.fixture
def planned(monkeypatch):
    """Return a function that plans, but does not allocate, a run's memory on a device."""

    def plan_run(free, chains, kept, record, variables=None):
        monkeypatch.setattr(device, "load", lambda name: backend)
        monkeypatch.setattr(cuda, "current_context", lambda: Roomy(free))
        graph, chosen = mg.models.ising_lattice(side=20, beta=0.2), mg.Gibbs(fields=False)
        kept_of = mg.Record(*record, variables=variables, chains=kept)
        options = Options(sampler=chosen, chains=chains, seed=0, record=kept_of, backend="cuda")
        plan = options.plan(graph, 1000, 400)
        return device.CudaGroup(plan, chosen.prepare(graph, device.WARP))

    return plan_run


MILLION, STREAMS = 10**6, 8 * (4 + 5) * 10**6
STATES = 400 * 10**6 + device._SPARE_BYTES


def test_a_million_chains_of_two_variables_need_little(planned):
    """In addition to the chains, memory has the buffer, recorded chains, model and path."""
    free = STATES + STREAMS + (1 << 28) + 8 * MILLION + (1 << 20)
    run = planned(free, MILLION, MILLION, ["draws"], [3, 7])
    assert [held.tolist() for held in run.held] == [[3, 7]]
    assert run.room == (1 << 28) // (2 * MILLION)
    with pytest.raises(mg.TooLargeError, match=r"for records.*Record\(chains=.*Record\(variables="):
        planned(free, MILLION, MILLION, ["draws"])  # a whole state does not fit into the buffer
    with pytest.raises(mg.TooLargeError, match="for records"):
        planned(free, MILLION, MILLION, ["draws", "marginals"], [3, 7])
    with pytest.raises(mg.TooLargeError, match=r"; [\d,]+ chains would fit"):
        planned(STATES, MILLION, MILLION, ["draws"], [3, 7])


def test_energies_need_whole_states_of_the_kept_chains(planned):
    run = planned(STATES + STREAMS + (1 << 29), MILLION, 64, ["draws", "energy"], [3, 7])
    assert [len(held) for held in run.held] == [400, 2]
    assert run.room == 1000  # all records
    run = planned(STATES + STREAMS + (1 << 29), MILLION, 64, ["draws", "energy"])
    assert [len(held) for held in run.held] == [400]  # contains the draws as well
    large = STATES + STREAMS + (1 << 20) + (400 + 2 + 3 * 8) * MILLION  # one record at a time
    assert planned(large, MILLION, MILLION, ["draws", "energy"], [3, 7]).room == 1
    with pytest.raises(mg.TooLargeError, match="for records"):
        planned(large - 2 * MILLION, MILLION, MILLION, ["draws", "energy"], [3, 7])


def test_millions_of_recorded_chains_ask_for_what_they_take(monkeypatch):
    """A record per chain takes a few bytes on the host, because the device stores the states."""
    asked = []
    monkeypatch.setattr(device, "load", lambda name: backend)
    monkeypatch.setattr(memory, "require", lambda size, *what: asked.append(size))
    graph, chains = mg.FactorGraph([5] * 3, [mg.Potts([0, 1, 2], [1, 2, 0], 1.0)]), 2_200_000
    record = mg.Record("draws", thin=1, chains=chains)
    options = Options(sampler=mg.Gibbs(), chains=chains, seed=0, record=record, backend="cuda")
    plan = options.plan(graph, 1, 3)
    asked.clear()
    BACKENDS["cuda"].check_memory(plan)
    assert asked == [2 * chains * (3 + 16)]  # in buffers, and in the run


@pytest.mark.parametrize(("n", "sweeps"), [(8, 16), (100, 11), (2000, 1)])
def test_marginals_are_counted_every_sweep_or_nearly(n, sweeps, monkeypatch):
    """Kernels of one thread per chain count every sweep, others about every 1,024 updates."""

    def load(name):
        return import_module(f"minigibbs.running.backends.{name}")

    for module in (device, cuda_colors):
        monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(cuda, "current_context", lambda: Roomy(1 << 33))
    i = np.arange(n)
    graph = mg.FactorGraph([3] * n, [mg.Potts(i, (i + 1) % n, 0.5)])
    plans = [
        Options(sampler=mg.Gibbs(), chains=64, seed=0, scan=scan, backend="cuda").plan(graph, 5, n)
        for scan in ("shared", "chromatic")
    ]
    alone = device.CudaGroup(plans[0], mg.Gibbs().prepare(graph, device.WARP))
    assert (alone.every, alone.within) == (n, n < device.COUNT_EVERY)
    together = CudaSmall(plans[1], small_colors(graph))
    assert (together.every, together.within) == (sweeps * n, False)


def test_without_a_device_the_error_says_what_is_missing():
    if cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(mg.SampleError, match="NVIDIA GPU"):
        mg.sample(ZOO["potts"], backend="cuda", progress=False)


def test_functions_of_a_user_are_refused():
    @numba.njit
    def zero(model, x, stream, parameters):
        return 0.0

    data = mg.MinGibbs(estimator=mg.CustomEstimator(zero)).prepare(ZOO["potts"])
    with pytest.raises(mg.SampleError, match="CustomEstimator"):
        device.check_data(data)
    device.check_data(mg.MinGibbs(batch=5).prepare(ZOO["potts"]))


def test_what_only_the_other_backend_offers_is_refused(monkeypatch):
    monkeypatch.setattr(device, "load", lambda name: backend)
    with pytest.raises(mg.SampleError, match='threads is for backend="cpu"'):
        mg.sample(ZOO["potts"], backend="cuda", threads=2)
    with pytest.raises(mg.SampleError, match=r'Record\(chains=...\) is for backend="cuda"'):
        mg.sample(ZOO["potts"], record=mg.Record(chains=2))


def test_unknown_backends_are_refused():
    with pytest.raises(mg.SampleError, match="backend must be one of cpu, cuda, mpi; got 'gpu'"):
        mg.sample(ZOO["potts"], backend="gpu")
