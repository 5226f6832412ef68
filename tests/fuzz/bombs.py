"""Calls that request far more memory than there is, by name.

Most arguments are views made by `numpy.broadcast_to`. They are small, but a call would allocate
large arrays from them.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread
from typing import Any

import numpy as np

import minigibbs as mg

Bomb = Callable[[], Any]
BILLION = 10**9


def many(value: float, *shape: int, kind: Any = np.int64) -> np.ndarray:
    """Return an array of one value that takes no memory."""
    return np.broadcast_to(np.array(value, dtype=kind), shape)


def grid(side: int = 4) -> mg.FactorGraph:
    """Return a small lattice."""
    return mg.models.ising_lattice(side, 0.3)


def learnable() -> mg.FactorGraph:
    """Return a chain of spins with one parameter."""
    return mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2], [1, 2, 3], 0.3, name="J", tied=0)])


def points(count: int) -> mg.FactorGraph:
    """Return random points in a square, a few within the kernel's width of each."""
    places = np.random.default_rng(0).uniform(0, count**0.5, (count, 2))
    return mg.FactorGraph(np.full(count, 3), [mg.Points(places, weight=0.01)])


def wide_logical(literals: int, op: str = "or") -> mg.FactorGraph:
    """Return one formula over many spins."""
    return mg.FactorGraph([2] * literals, [mg.Logical(op, [range(literals)], 1.0)])


def large_potts(values: int) -> mg.FactorGraph:
    """Return a chain of three variables with very many values."""
    return mg.FactorGraph([values] * 3, [mg.Potts([0, 1], [1, 2], 1.0)])


def sample(graph: mg.FactorGraph, sampler: Any = None, **options: Any) -> mg.Run:
    """Call `mg.sample`, quietly and with few sweeps by default."""
    length = {} if "updates" in options else {"sweeps": 5}
    return mg.sample(graph, sampler, **({"seed": 1, "progress": False} | length | options))


def stopped_by_memory() -> int:
    """Sample until a goal that only memory can end: the run returns the draws so far."""
    goal: dict[str, Any] = {"rhat": None, "ess": None, "standard_error": 1e-9}
    kept = ["marginals", "draws"]
    try:
        mg.sample_until(grid(100), **goal, record=kept, scan="chromatic", seed=1, progress=False)
    except mg.StoppedError as error:
        return len(error.run.draws)
    raise AssertionError("an error of 1e-9 was reached")


def concurrent_exact() -> None:
    """Compute several exact answers at once, each of which would fit alone."""
    graph = mg.models.ising_lattice(19, 0.3, periodic=False)
    found: list[BaseException] = []

    def answer() -> None:
        try:
            mg.log_partition(graph, memory=2 * 2**30)
        except mg.MinigibbsError:
            pass
        except BaseException as error:
            found.append(error)

    threads = [Thread(target=answer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in found:
        raise error


def framed(categories: int) -> Any:
    """Return a frame of variables with very many values."""
    names = [f"v{k}" for k in range(categories)]
    rule = mg.Rule({"a": names[:-1], "b": names[1:]}, ["a", "b"], start=1.0)
    return mg.from_frames({"name": names, "value": [f"c{k}" for k in range(categories)]}, [rule])


def same_values(values: int) -> Any:
    """Return variables with very many values each, all of which a rule compares."""
    each = [f"c{k}" for k in range(values)]
    frame = {"name": ["a"] * values + ["b"] * values, "value": each * 2}
    rule = mg.Rule({"x": ["a"], "y": ["b"]}, ["x", "y"], start=1.0, same=True)
    return mg.infer(mg.from_frames(frame, [rule]).graph, "1s", progress=False)


def infer(graph: mg.FactorGraph, time: str = "2s", **options: Any) -> mg.Answer:
    """Call `mg.infer`, quietly."""
    return mg.infer(graph, time, **({"seed": 1, "progress": False} | options))


def maximize(graph: mg.FactorGraph, **options: Any) -> mg.Maximum:
    """Call `mg.maximize`, quietly."""
    return mg.maximize(graph, "1s", seed=1, progress=False, **options)


def learn(graph: mg.FactorGraph, data: Any = None, **options: Any) -> mg.Fit:
    """Call `mg.learn` on a few rows, quietly."""
    rows = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1]]) if data is None else data
    return mg.learn(graph, rows, **({"seed": 1, "progress": False, "steps": 2} | options))


def written(graph: mg.FactorGraph, ending: str) -> None:
    """Write a graph to a file in a new folder."""
    mg.write(graph, Path(mkdtemp()) / f"model.{ending}")


def decay(*steps: np.ndarray) -> np.ndarray:
    """Return a kernel's weight."""
    return np.exp(-sum(step**2 for step in steps))


QUICK: dict[str, Bomb] = {  # refused before any compilation
    "variables": lambda: mg.FactorGraph(many(2, BILLION), []),
    "pairs": lambda: mg.Potts(many(0, BILLION), many(1, BILLION), 1.0),
    "spin pairs": lambda: mg.Ising(many(0, BILLION), many(1, BILLION), 1.0),
    "unary": lambda: mg.Unary(many(0, BILLION), many(0.0, BILLION, 2, kind=float)),
    "kernel line": lambda: mg.Kernel((BILLION,), decay),
    "kernel ring": lambda: mg.Kernel((BILLION,), decay, periodic=True),
    "kernel square": lambda: mg.Kernel((20_000, 20_000), decay),
    "kernel cube": lambda: mg.Kernel((600, 600, 600), decay),
    "point features": lambda: mg.Points(many(0.5, BILLION, 2, kind=float)),
    "low rank": lambda: mg.LowRank(many(0.5, BILLION, 4, kind=float)),
    "table of arity 32": lambda: mg.Table([range(32)], many(0.0, *(2,) * 32, kind=float)),
    "table of arity 40": lambda: mg.Table([range(40)], many(0.0, *(2,) * 40, kind=float)),
    "table of probabilities": lambda: mg.Table.from_probabilities(
        [range(32)], many(0.5, *(2,) * 32, kind=float)
    ),
    "table of a function": lambda: mg.Table.from_function(
        [0, 1], lambda a, b: a + b, [mg.Grid(0.0, 1.0, 10**6)] * 2
    ),
    "table of a line": lambda: mg.Table.from_function(
        [0], lambda a: a, [mg.Grid(0.0, 1.0, 2 * BILLION)]
    ),
    "table per factor": lambda: mg.Table(many(0, BILLION, 2), many(0.0, BILLION, 2, 2, kind=float)),
    "logical scope": lambda: mg.Logical("or", many(0, 10**8, 20), 1.0),
    "lattice": lambda: mg.models.ising_lattice(10**6, 0.3),
    "lattice of many values": lambda: mg.models.potts_lattice(10**5, 10**6, 0.3),
    "complete, stored": lambda: mg.models.curie_weiss(10**6, 0.5, implicit=False),
    "complete, implicit": lambda: mg.models.curie_weiss(2 * BILLION, 0.5),
    "long range": lambda: mg.models.long_range_ising(BILLION, 2.0, 0.1),
    "long range, stored": lambda: mg.models.long_range_ising(10**6, 2.0, 0.1, implicit=False),
    "radial spins": lambda: mg.models.ising_rbf(30_000),
    "radial spins, stored": lambda: mg.models.ising_rbf(1000, implicit=False),
    "radial values": lambda: mg.models.potts_rbf(30_000),
    "random tables": lambda: mg.models.random_tables(factors=10**8),
    "random tables of arity 32": lambda: mg.models.random_tables(arity=32),
    "dense crf": lambda: mg.models.dense_crf(
        many(0, 60_000, 60_000, 3, kind=np.uint8), costs=many(0.0, 60_000, 60_000, 2, kind=float)
    ),
    "dense matrix": lambda: mg.ising_from_matrix(many(0.1, 10**5, 10**5, kind=float)),
    "potts matrix": lambda: mg.potts_from_matrix(many(0.1, 10**5, 10**5, kind=float), 3),
    "potts fields": lambda: mg.potts_from_matrix(
        np.zeros((4, 4)), BILLION, h=many(0.1, 4, BILLION, kind=float)
    ),
    "stencil": lambda: mg.Stencil((10**6, 10**6), [(0, 1)], 0.2),
    "spin glass": lambda: mg.models.spin_glass(side=10**4, dimensions=3),
    "fully connected glass": lambda: mg.models.sherrington_kirkpatrick(10**6),
    "noisy max": lambda: mg.add_noisy_max(
        mg.FactorGraph([10**6, 10**6, 2], []),
        [mg.NoisyMax(0, {1: many(1e-6, 10**6, 10**6, kind=float)})],
    ),
    "likelihoods": lambda: large_potts(2**31 - 1).with_likelihoods(
        {0: many(1.0, 2**31 - 1, kind=float)}
    ),
    "structure of many rows": lambda: mg.learn_structure(many(0, BILLION, 4, kind=np.int8)),
    "structure of many columns": lambda: mg.learn_structure(many(0, 3, 10**7, kind=np.int8)),
    "repair of many rows": lambda: mg.repair({"a": many(0, BILLION), "b": many(1, BILLION)}),
    "many rows of evidence": lambda: mg.infer_many(grid(), many(-1.0, BILLION, 16, kind=float)),
    "many rows of marginals": lambda: mg.infer_many(large_potts(10**6), many(0, 10**6, 3)),
    "grid values": lambda: mg.Grid(0.0, 1.0, 2 * BILLION).values,
    "enumeration": lambda: mg.exact_distribution(grid(6)),
    "transition": lambda: mg.theory.transition(
        mg.models.ising_lattice(4, 0.3, periodic=False), mg.Gibbs()
    ),
}

SLOWER: dict[str, Bomb] = {
    "energies of states": lambda: grid(20).log_potential(many(0, 10**8, 400, kind=np.int8)),
    "statistics of states": lambda: learnable().statistics(many(0, BILLION, 4, kind=np.int8)),
    "stored form": lambda: points(200_000).stored(),
    "colors": lambda: mg.FactorGraph(np.full(10**6, 2), []).colors,
    "influence": lambda: large_potts(10**6).influence,
    "sizes": lambda: mg.FactorGraph([2**31 - 1] * 8, [mg.Potts([0], [1], 1.0)]),
    "chains": lambda: sample(grid(), chains=BILLION),
    "a few million chains": lambda: sample(grid(), chains=5 * 10**6),
    "chains, chromatic": lambda: sample(grid(), chains=BILLION, scan="chromatic"),
    "threads": lambda: sample(grid(), threads=BILLION),
    "draws": lambda: sample(grid(), sweeps=BILLION, record=mg.Record("draws", thin=1)),
    "draws of updates": lambda: sample(grid(), updates=10**13, record=mg.Record("draws", thin=1)),
    "large domains": lambda: sample(large_potts(2**31 - 1)),
    "large domains, no marginals": lambda: sample(large_potts(BILLION), record="energy"),
    "checkpoint": lambda: sample(grid(), chains=BILLION, checkpoint=Path(mkdtemp()) / "run"),
    "start": lambda: sample(grid(), chains=BILLION, start=many(0, BILLION, 16, kind=np.int8)),
    "ladder": lambda: sample(grid(), mg.Tempering(levels=10**7)),
    "ladder of 10,000": lambda: sample(grid(), mg.Tempering(levels=10**4)),
    "ladder of a large model": lambda: sample(grid(1000), mg.Tempering(levels=5000)),
    "min-gibbs": lambda: sample(grid(), mg.MinGibbs(batch=1e12), updates=1),
    "min-gibbs, subsets": lambda: sample(
        grid(), mg.MinGibbs(estimator=mg.SubsetEstimator(BILLION)), updates=1
    ),
    "double-min": lambda: sample(
        grid(), mg.DoubleMinGibbs(batch=1e12, second_batch=1e12), updates=1
    ),
    "local minibatch": lambda: sample(grid(), mg.LocalMinibatchGibbs(1e9), updates=1),
    "blocks": lambda: sample(mg.models.ising_lattice(40, 0.3), mg.BlockGibbs(width=60)),
    "one block": lambda: sample(grid(30), mg.BlockGibbs(blocks=[range(900)])),
    "exact sampler": lambda: sample(grid(40), mg.ExactSampler()),
    "exact sampler, own memory": lambda: sample(grid(40), mg.ExactSampler(memory=1e30)),
    "histogram": lambda: sample(grid(), observe={"h": mg.observables.Histogram(bins=BILLION)}),
    "histogram of a million bins": lambda: sample(
        grid(), sweeps=10**5, observe={"h": mg.observables.Histogram(bins=10**6)}
    ),
    "correlations": lambda: sample(
        grid(), observe={"c": mg.observables.Correlations(shape=(4, 4), largest=BILLION)}
    ),
    "structure factor": lambda: sample(
        grid(), observe={"s": mg.observables.StructureFactor(shape=(4, 4), largest=BILLION)}
    ),
    "wide function": lambda: sample(grid(), observe={"w": lambda x: (1.0,) * 2000}),
    "until memory ends": stopped_by_memory,
    "models in a series": lambda: mg.sample_many([grid(10)] * 10**6, seed=1, progress=False),
    "infer: chains": lambda: infer(grid(), exact=False, chains=BILLION),
    "infer: evidence on large domains": lambda: infer(
        large_potts(20_000).condition({0: 1}), memory="100M"
    ),
    "infer: large domains": lambda: infer(large_potts(10**6)),
    "infer: points": lambda: infer(points(100_000)),
    "infer: wide formula": lambda: infer(wide_logical(27), memory="100M"),
    "infer: wider formula": lambda: infer(wide_logical(28)),
    "infer: formula of 1,000 literals": lambda: infer(wide_logical(1000)),
    "infer: any memory": lambda: infer(grid(40), memory=1e30),
    "maximize: chains": lambda: maximize(grid(), chains=10**7),
    "maximize: implicit": lambda: maximize(mg.models.potts_rbf(60, 5, 2.0)),
    "maximize: points": lambda: maximize(points(20_000)),
    "maximize: large domains": lambda: maximize(large_potts(BILLION)),
    "learn: chains": lambda: learn(learnable(), chains=BILLION),
    "learn: a hundred million chains": lambda: learn(learnable(), chains=10**8, sampler=mg.Gibbs()),
    "learn: data": lambda: learn(learnable(), many(0, BILLION, 4, kind=np.int8)),
    "learn: pseudo-likelihood": lambda: learn(
        learnable(), many(0, BILLION, 4, kind=np.int8), method="pseudo"
    ),
    "learn: exact": lambda: learn(
        mg.FactorGraph(
            [2] * 900, [mg.Ising(range(900), (np.arange(900) * 7 + 1) % 900, 0.1, name="J")]
        ),
        np.zeros((3, 900), np.int8),
        method="exact",
    ),
    "learn: held out": lambda: learn(learnable(), held_out=many(0, BILLION, 4, kind=np.int8)),
    "exact draws": lambda: mg.exact_draws(grid(), 10**12),
    "exact draws of large domains": lambda: mg.exact_draws(large_potts(3000), 10**5),
    "exact marginals": lambda: mg.exact_marginals(grid(40)),
    "exact marginals, any memory": lambda: mg.exact_marginals(grid(40), memory=1e30),
    "exact marginals of uneven domains": lambda: mg.exact_marginals(
        mg.FactorGraph([10**6] + [2] * 10**4, [])
    ),
    "concurrent exact answers": concurrent_exact,
    "frames": lambda: framed(10**5),
    "frames that compare values": lambda: same_values(10**5),
    "explain": lambda: mg.explain(mg.models.curie_weiss(10**6, 0.5)),
    "to networkx": lambda: mg.to_networkx(points(50_000)),
    "to pgmpy": lambda: mg.to_pgmpy(wide_logical(40)),
    "to pgmpy, large domains": lambda: mg.to_pgmpy(large_potts(10**6)),
    "write uai": lambda: written(wide_logical(40), "uai"),
    "write uai, large domains": lambda: written(large_potts(10**6), "uai"),
    "run: dense marginals": lambda: (
        sample(mg.FactorGraph([10**6] + [2] * 10**4, []), updates=100).marginals
    ),
    "theory: estimate": lambda: mg.theory.theorem_1(grid(), mg.PoissonEstimator(1e9)),
}

BOMBS = QUICK | SLOWER
