"""Other samplers on the same models, timed the same way; each is optional."""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg
from benchmarks.report import best_of


def dwave(graph: mg.FactorGraph, zeros: bool = False, repeats: int = 3) -> float | None:
    """Return nanoseconds per update of dwave-samplers' Gibbs at constant temperature."""
    try:
        import dimod
        from dwave.samplers import SimulatedAnnealingSampler
    except ImportError:
        return None
    (group,) = graph.factors
    kept = slice(None) if zeros else group.coupling != 0
    i, j = group.scope[kept].T
    model = dimod.BinaryQuadraticModel.from_numpy_vectors(
        np.zeros(len(graph)), (i, j, -group.coupling[kept]), 0.0, "SPIN"
    )
    sampler = SimulatedAnnealingSampler()

    def run(sweeps: int) -> None:
        sampler.sample(
            model,
            num_reads=1,
            num_sweeps=sweeps,
            beta_range=(1.0, 1.0),
            proposal_acceptance_criteria="Gibbs",
            randomize_order=True,
            seed=1,
        )

    return _slope(run, len(graph), repeats)


def openjij(graph: mg.FactorGraph, repeats: int = 3, sparse: bool = False) -> float | None:
    """Return nanoseconds per update of OpenJij's spin flips at constant temperature."""
    try:
        import openjij as oj
    except ImportError:
        return None
    (group,) = graph.factors
    pairs = zip(group.scope.tolist(), group.coupling.tolist(), strict=True)
    couplings = {tuple(pair): -coupling for pair, coupling in pairs}
    model = oj.BinaryQuadraticModel({}, couplings, 0.0, "SPIN", sparse=sparse)

    def run(sweeps: int) -> None:
        oj.SASampler().sample(
            model, beta_min=1, beta_max=1, num_sweeps=sweeps, num_reads=1, sparse=sparse
        )

    return _slope(run, len(graph), repeats)


def numbskull(graph: mg.FactorGraph, repeats: int = 15) -> float | None:
    """Return nanoseconds per update of numbskull's systematic-scan Gibbs."""
    try:
        import numbskull
    except ImportError:
        return None
    sampler = numbskull.NumbSkull(nthreads=1, quiet=True)
    sampler.loadFactorGraph(*numbskull_arrays(graph))
    chain = sampler.getFactorGraph()
    chain.burnIn(20, False)  # compiles, and moves away from the start state
    sweeps = 5
    taken = best_of(repeats, lambda: chain.inference(0, sweeps))
    return taken / (sweeps * len(graph)) * 1e9


def numbskull_arrays(graph: mg.FactorGraph) -> tuple:
    """Build a Potts model as numbskull loads it: one factor for each pair with nonzero weight.

    Its EQUAL is 1 if a pair agrees and -1 otherwise, hence half the weight. Other functions of
    pairs take the same time; its categorical variables, with one factor per value, almost twice
    that.
    """
    from numbskull import numbskulltypes as types
    from numbskull.inference import FACTORS

    (group,) = graph.factors
    kept = group.weight != 0
    pairs = np.count_nonzero(kept)
    weights = np.zeros(pairs, types.Weight)
    weights["isFixed"] = True
    weights["initialValue"] = group.weight[kept] / 2
    variables = np.zeros(len(graph), types.Variable)
    variables["cardinality"] = graph.sizes
    factors = np.zeros(pairs, types.Factor)
    factors["factorFunction"] = FACTORS["EQUAL"]
    factors["weightId"] = np.arange(pairs)
    factors["featureValue"] = 1
    factors["arity"] = 2
    factors["ftv_offset"] = 2 * np.arange(pairs)
    scopes = np.zeros(2 * pairs, types.FactorToVar)
    scopes["vid"] = group.scope[kept].ravel()
    return weights, variables, factors, scopes, np.zeros(len(graph), bool), len(scopes)


def _slope(run, variables: int, repeats: int) -> float:
    """Return the time per update of the extra sweeps of a longer run: set-up cancels out."""
    extra = int(2e6 / variables)
    best = {}
    for _ in range(repeats):
        for sweeps in (10, 10 + extra):
            begun = time.process_time()  # one thread, on a machine that may be shared
            run(sweeps)
            best[sweeps] = min(best.get(sweeps, np.inf), time.process_time() - begun)
    return (best[10 + extra] - best[10]) / (extra * variables) * 1e9


HAMON_ROUNDS = 2000  # rounds of exchanges between two checks of the clock


def hamon(graph: mg.FactorGraph, seconds: float) -> np.ndarray | None:
    """Return probabilities of the second value by hamon's non-reversible parallel tempering.

    It runs its own search for the number of levels and its own tuning, then rounds until the time
    is up, compilation included; the second half of the rounds counts. It supports spins with pairs
    and fields: None for other models, and if it is not installed.
    """
    from minigibbs.graph.simple import simplified

    simple = simplified(graph)
    spins = (graph.sizes == 2).all() and (graph.evidence < 0).all()
    if not spins or graph.implicits or len(simple.rest) or not np.isfinite(simple.unary).all():
        return None
    try:
        import hamon as peer
        import jax
    except ImportError:
        return None
    import networkx as nx
    from hamon.models.ising import IsingEBM, IsingSamplingProgram, hinton_init

    begun = time.perf_counter()
    field = np.diff(simple.unary.reshape(-1, 2), axis=1)[:, 0] / 2
    colored = nx.Graph(simple.pair.tolist())
    colored.add_nodes_from(range(len(graph)))
    colors = nx.coloring.greedy_color(colored, strategy="DSATUR")
    nodes = [peer.SpinNode() for _ in range(len(graph))]
    blocks = [
        peer.Block([nodes[i] for i, own in colors.items() if own == color])
        for color in range(max(colors.values()) + 1)
    ]
    edges = [(nodes[i], nodes[j]) for i, j in simple.pair.tolist()]
    numbers = [jax.numpy.asarray(a, dtype="float32") for a in (field, simple.pair_weight / 2)]
    model = IsingEBM(nodes, edges, *numbers, jax.numpy.array(1.0))
    program = IsingSamplingProgram(model, blocks, [])
    keys = jax.random.split(jax.random.key(1), 4)

    def first(count: int, models: list, programs: list) -> list:
        own = jax.random.split(keys[0], count)
        return [hinton_init(key, model, program.gibbs_spec.free_blocks, ()) for key in own]

    shared = {"gibbs_steps_per_round": 1, "ebm": model, "program": program}
    found = peer.discover_chain_count(keys[1], init_factory=first, **shared)
    states, stats = peer.nrpt_adaptive(
        keys[2], init_states=first(len(found["betas"]), [], []), n_rounds=HAMON_ROUNDS,
        initial_betas=found["betas"], **shared
    )  # fmt: skip
    observer, key, rows = peer.NRPTStateObserver(), keys[3], []
    while time.perf_counter() - begun < seconds or len(rows) < 2:
        key, own = jax.random.split(key)
        states, made = peer.nrpt(
            own, model, program, states, [], HAMON_ROUNDS, 1, betas=stats["betas"],
            observer=observer,
        )  # fmt: skip
        samples = peer.nrpt_node_samples(made["observations"], program, nodes)
        rows.append(np.asarray(samples).mean(axis=0))
    return np.mean(rows[len(rows) // 2 :], axis=0)
