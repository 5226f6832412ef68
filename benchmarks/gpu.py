"""Many chains on one GPU: updates per second, also of one CPU core and of JAX on the same GPU."""

from __future__ import annotations

import importlib.metadata
import time

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.timing import Timed

CHAINS = (65_536, 131_072, 262_144, 524_288, 1_048_576)
REPEATS = 5


def main() -> None:
    from numba import cuda

    report = Report("gpu", "Many chains on one GPU", column="time over the floor")
    device = cuda.get_current_device().name
    device = device.decode() if isinstance(device, bytes) else device
    bandwidth = copy_bandwidth()
    report.notes.append(
        f"{device}, numba-cuda {importlib.metadata.version('numba-cuda')}, double precision, "
        f"median of {REPEATS} launches of about 50 ms. A device-to-device copy moves "
        f"{bandwidth / 1e12:.2f} TB/s, read and written bytes together. The floor is the time that "
        "the least bytes an update must move would take at that rate: one of the state for each "
        "neighbor looked at, one for the old value and one for the new."
    )
    ising, potts = mg.models.ising_rbf(), mg.models.potts_rbf()
    for name, graph, bar in (("Potts", potts, 2.5e10), ("Ising", ising, 6e10)):
        compare(report, name, graph, bar, bandwidth)
    lattice(report, bandwidth)
    layouts(report, potts)
    whole_run(report, potts)
    report.write()


def copy_bandwidth() -> float:
    """Return bytes per second, read and written together, of a copy within the device."""
    from numba import cuda

    source = cuda.device_array(1 << 31, np.uint8)
    target = cuda.device_array(1 << 31, np.uint8)
    seconds = median_seconds(lambda: target.copy_to_device(source))
    return 2 * source.nbytes / seconds


def median_seconds(work) -> float:
    from numba import cuda

    times = []
    for _ in range(REPEATS + 1):
        begun, ended = cuda.event(), cuda.event()
        begun.record()
        work()
        ended.record()
        ended.synchronize()
        times.append(cuda.event_elapsed_time(begun, ended) / 1e3)
    return float(np.median(times[1:]))


def device_run(graph, sampler, chains, scan="shared"):
    """Create chains on the device, from a random start, without records."""
    from minigibbs.kernels.random import streams
    from minigibbs.running.backends.cuda_group import WARP, CudaGroup
    from minigibbs.running.request import Options

    options = Options(sampler=sampler, chains=chains, seed=0, scan=scan, record=(), backend="cuda")
    plan = options.plan(graph, 0, 1)
    rng = np.random.default_rng(0)
    states = rng.integers(0, graph.sizes.min(), (chains, len(graph)), dtype=graph.state_type)
    run = CudaGroup(plan, sampler.prepare(graph, WARP))
    run.place(states, streams(0, chains))
    return run


def launch(run, updates) -> None:
    """Launch a number of updates of every chain, without waiting for them."""
    run._launch(updates)


def rate(graph, sampler, chains, scan="shared") -> float:
    """Return updates per second."""
    run = device_run(graph, sampler, chains, scan)
    launch(run, 20 * len(graph) if len(graph) < 1000 else 2000)
    run.cuda.synchronize()
    updates, taken = 16, 0.0
    while taken < 0.02 and updates < 60_000:
        updates = min(updates * 4, 60_000)
        begun = time.perf_counter()
        launch(run, updates)
        run.cuda.synchronize()
        taken = time.perf_counter() - begun
    updates = max(16, min(60_000, int(updates * 0.05 / taken)))
    return chains * updates / median_seconds(lambda: launch(run, updates))


def neighbors(graph, sampler) -> float:
    """Return the mean number of neighbors that an update reads."""
    from minigibbs.running.backends.cuda_group import WARP

    data = sampler.prepare(graph, WARP)
    if hasattr(data, "parts"):
        return float(data.parts["heavy"].mean() + data.parts["rate"].mean())
    return len(graph.packed.target) / len(graph)


def floor_ratio(graph, sampler, updates_per_second, bandwidth) -> str:
    """Format the time over the lower bound; see the report's notes."""
    size = graph.state_type.itemsize
    least = size * (neighbors(graph, sampler) + 2) / bandwidth
    return f"{1 / updates_per_second / least:.1f}x"


def compare(report, name, graph, bar, bandwidth) -> None:
    sampler = mg.PoissonGibbs()
    rates = {chains: rate(graph, sampler, chains) for chains in CHAINS}
    best = max(rates, key=rates.get)
    for chains, each in rates.items():
        report.add(
            f"{name}, default sampler, {chains:,} chains",
            f"{each:.3g} updates/s",
            *((f"at least {bar:.2g}", each >= bar) if chains == best else ("", None)),
            last=floor_ratio(graph, sampler, each, bandwidth),
        )
    core = Timed(graph, sampler)
    for _ in range(5):
        core.turn()
    report.add(
        f"{name}, over one CPU core in the same run ({core.best * 1e9:.0f} ns an update)",
        f"{rates[best] * core.best:,.0f}x",
    )
    for other, label in (
        (mg.Gibbs(), "plain Gibbs"),
        (mg.MGPMH(batch=graph.stats.local_energy**2), "MGPMH at L^2"),
    ):
        each = max(rate(graph, other, chains) for chains in (131_072, 524_288))
        over = floor_ratio(graph, other, each, bandwidth)
        report.add(f"{name}, {label}", f"{each:.3g} updates/s", last=over)
    jax = jax_rate(graph)
    report.add(f"{name}, plain Gibbs hand-written in JAX", f"{jax:.3g} updates/s")
    report.add(f"{name}, default sampler over JAX", f"{rates[best] / jax:.0f}x")


def jax_rate(graph) -> float:
    """Measure random-scan Gibbs on the dense model: one plain chain, vmapped, jitted."""
    import jax
    import jax.numpy as jnp

    model = graph.packed
    n, states, chains, steps = len(graph), int(graph.sizes[0]), 65_536, 400
    dense = np.zeros((n, n), np.float32)
    dense[model.pair[:, 0], model.pair[:, 1]] = model.pair_weight
    dense = jnp.asarray(dense + dense.T)

    def update(x, i, key):
        agree = (x[:, None] == jnp.arange(states)[None, :]).astype(jnp.float32)
        return x.at[i].set(jax.random.categorical(key, dense[i] @ agree).astype(x.dtype))

    @jax.jit
    def sweep(x, key):
        def step(x, inputs):
            i, key = inputs
            keys = jax.random.split(key, chains)
            return jax.vmap(update, in_axes=(0, None, 0))(x, i, keys), None

        where, keys = jax.random.split(key)
        order = jax.random.randint(where, (steps,), 0, n)
        return jax.lax.scan(step, x, (order, jax.random.split(keys, steps)))[0]

    x = jnp.zeros((chains, n), jnp.uint8)
    x = sweep(x, jax.random.key(0)).block_until_ready()
    times = []
    for repeat in range(3):
        begun = time.perf_counter()
        x = sweep(x, jax.random.key(repeat + 1)).block_until_ready()
        times.append(time.perf_counter() - begun)
    return chains * steps / float(np.median(times))


def lattice(report, bandwidth) -> None:
    graph, chains = mg.models.ising_lattice(side=1024, beta=0.4), 256
    each = rate(graph, mg.PoissonGibbs(), chains)
    over = floor_ratio(graph, mg.Gibbs(), each, bandwidth)
    report.add("Ising lattice 1024 x 1024 in 256 chains", f"{each:.3g} updates/s", last=over)


def layouts(report, graph) -> None:
    """Measure the gain from contiguous storage of chains and from the shared scan."""
    sampler, chains = mg.PoissonGibbs(), 131_072
    side_by_side = rate(graph, sampler, chains)
    apart = rate(graph, sampler, chains, scan="random")
    report.add("Potts, each chain with a scan of its own", f"{apart:.3g} updates/s")
    report.add("the shared scan brings", f"{side_by_side / apart:.1f}x")
    run = device_run(graph, sampler, chains)
    x = run.device_chains.x.copy_to_host()
    run.device_chains = run.device_chains._replace(x=run.cuda.to_device(np.asfortranarray(x)))
    launch(run, 400)
    updates = 2000
    one_by_one = chains * updates / median_seconds(lambda: launch(run, updates))
    report.add("Potts, state as `[chain][variable]`", f"{one_by_one:.3g} updates/s")
    report.add("lying side by side brings", f"{side_by_side / one_by_one:.1f}x")


def whole_run(report, graph) -> None:
    """Measure `mg.sample` as a user calls it, with marginals and energies of 64 chains."""
    options = {"backend": "cuda", "chains": 131_072, "progress": False, "seed": 0}
    mg.sample(graph, sweeps=2, **options)
    run = mg.sample(graph, sweeps=1000, warmup=100, **options)
    report.add(
        "Potts, mg.sample with marginals and energies, 131,072 chains",
        f"{run.info.updates_per_second:.3g} updates/s",
    )
    error = float(np.abs(run.marginals - 0.1).max())
    report.add("its marginals' largest error (truth: uniform)", f"{error:.1e}")
