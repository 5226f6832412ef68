"""Chains of learning on a GPU, in Numba's simulator: new weights are used in every layout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.philox import key_of
from minigibbs.learning.chains import MODEL, Threads
from minigibbs.learning.lockstep import LearnedLayout, LockstepChains
from minigibbs.samplers.encoding import describe_sampler
from minigibbs.samplers.registry import color_data, learned_layout
from tests.running.simulate_cuda import flatten

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

SEED, MANY, ALL = (4, MODEL), 1000, 1  # last two: chains from which on threads iterate over colors


def rows_of(graph, chains, seed):
    draws = np.random.default_rng(seed).random((chains, len(graph))) * graph.sizes
    return draws.astype(graph.state_type)


def fields(n, q):
    return mg.Unary(range(n), np.zeros((n, q)), name="h")


def chain_of_spins(n=6):
    """Return spins with few neighbors, for tables of thresholds; ties, and an unlearned pair."""
    i = np.arange(n - 1)
    pairs = mg.Ising(i, i + 1, [0.0, 0.0], name="J", tied=i % 2)
    return mg.FactorGraph([2] * n, [pairs, mg.Potts([0], [n - 1], 0.7), fields(n, 2)])


def all_spins(n=7):
    """Return spins with too many neighbors for tables of thresholds."""
    i, j = np.triu_indices(n, 1)
    return mg.FactorGraph([2] * n, [mg.Ising(i, j, 0.0, name="J"), fields(n, 2)])


def ring(n=6, q=3):
    i = np.arange(n)
    pairs = mg.Table(np.stack([i, (i + 1) % n], 1), np.zeros((n, q, q)), name="J")
    return mg.FactorGraph([q] * n, [pairs, fields(n, q)])


def template(n=6, q=3):
    """Return one table for all pairs, times weights, and Potts factors."""
    i = np.arange(n - 1)
    one = mg.Table(np.stack([i, i + 1], 1), np.zeros((q, q)), 1.0 + 0.2 * i, name="T")
    return mg.FactorGraph([q] * n, [one, mg.Potts([0, 1], [2, 3], 0.0, name="J"), fields(n, q)])


def uneven():
    """Return a graph with domains of several sizes."""
    tables = mg.Table([[0, 1], [2, 1]], np.zeros((2, 2, 4)), name="T")
    return mg.FactorGraph([2, 4, 2], [tables, mg.Unary([1], np.zeros(4), name="h")])


def sites(n=5, q=3):
    """Return sites that are all coupled by tables, which have a separate kernel."""
    i, j = np.triu_indices(n, 1)
    pairs = mg.Table(np.stack([i, j], 1), np.zeros((len(i), q, q)), name="J")
    return mg.FactorGraph([q] * n, [pairs, fields(n, q)])


CASES = {  # graph, chains, chains from which on threads iterate over colors
    "bits-one": (chain_of_spins(), 1, MANY),
    "bits-few": (chain_of_spins(), 7, MANY),
    "bits-looked-up": (chain_of_spins(), 37, MANY),
    "bits-joined": (all_spins(), 37, MANY),
    "bits-walking": (all_spins(), 20, ALL),
    "small": (ring(), 6, MANY),
    "small-template": (template(), 6, MANY),
    "small-uneven": (uneven(), 9, MANY),
    "sites": (sites(), 6, MANY),
}
STEPS = [  # weights change; states are loaded, as CD does; weights change twice before a sweep
    ("take", 0),
    ("advance", 2),
    ("take", 1),
    ("advance", 2),
    ("put", 1),
    ("take", 2),
    ("advance", 1),
    ("take", 1),
    ("take", 0),
    ("advance", 2),
]
UNMOVED = [step for step in STEPS if step != ("take", 1)]  # negative control


def weights_of(graph):
    draws = np.random.default_rng(3)
    return [draws.normal(0, 0.8, graph.frame.size) for _ in range(3)]


def write_case(folder, name, graph, laid, states, walkers, seed, sampler=None, steps=STEPS):
    arrays = []
    case = {
        "model": flatten(graph.packed, arrays),
        "laid": [flatten(one, arrays) for one in laid],
        "states": [flatten(one, arrays) for one in states],
        "counted": flatten(graph.frame.counted, arrays) if sampler is None else {"value": None},
        "offset": graph.offset,
        "walkers": walkers,
        "seed": seed,
        "sampler": sampler,
        "steps": steps,
    }
    (folder / f"{name}.json").write_text(json.dumps(case))
    np.savez(folder / f"{name}.npz", *arrays)
    mg.write(graph, folder / f"{name}.mg")


def tailed(name, beta):
    """Return models with minibatched factors, whose weights can be replaced on a GPU, too."""
    if name == "bits-tails":
        graph = mg.models.ising_rbf(side=3, beta=beta, implicit=False)
    else:
        graph = mg.models.potts_rbf(side=3, states=4, beta=beta, implicit=False)
    return graph, color_data(mg.PoissonGibbs(heavy=2), graph)


TAILS = ["bits-tails", "small-tails"]
PATHS = {  # of such chains: new weights are set, or chains are created with them, or neither
    "taken": [("take", 0), ("advance", 1), ("take", 1), ("advance", 3)],
    "anew": [("take", 0), ("advance", 1), ("anew", 1), ("advance", 3)],
    "unmoved": [("take", 0), ("advance", 1), ("advance", 3)],
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    for name, (graph, chains, walkers) in CASES.items():
        layout = LearnedLayout(graph)
        laid = [layout.at(values) for values in weights_of(graph)]
        states = [rows_of(graph, chains, seed) for seed in (1, 2)]
        write_case(folder, name, graph, laid, states, walkers, SEED)
    key = [int(word) for word in key_of(5)]
    for name in TAILS:
        (graph, first), (_, second) = tailed(name, 1.0), tailed(name, 0.4)
        states = [rows_of(graph, 7, 1)]
        sampler = describe_sampler(mg.PoissonGibbs(heavy=2))
        for path, steps in PATHS.items():
            case = (f"{name}-{path}", graph, [first, second], states, ALL, key, sampler, steps)
            write_case(folder, *case)
    script = Path(__file__).with_name("simulate_device.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(folder)],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {
        path.name[: -len(".npz")]: list(np.load(path).values()) for path in folder.glob("*.*.npz")
    }


def on_the_cpu(graph, chains, steps):
    """Return the states of vectorized chains after each advance."""
    values, states = weights_of(graph), [rows_of(graph, chains, seed) for seed in (1, 2)]
    made, seen = LockstepChains(graph, states[0].copy(), SEED, Threads(1)), []
    for name, value in steps:
        if name == "take":
            made.set_weights(values[value])
        elif name == "put":
            made.load(states[value])
        else:
            made.sweep(value)
            seen.append(made.states().copy())
    return seen


@pytest.mark.parametrize("name", CASES)
def test_chains_are_those_of_the_cpu_while_weights_move(name, simulated):
    graph, chains, _ = CASES[name]
    assert learned_layout(graph) is not None
    expected = on_the_cpu(graph, chains, STEPS)
    for found, states in zip(simulated[f"{name}.out"], expected, strict=True):
        np.testing.assert_array_equal(found, states)
    for counts, states in zip(simulated[f"{name}.counts"], expected, strict=True):
        found = graph.frame.from_counts(counts, chains)
        np.testing.assert_allclose(found, graph.frame.summed(states), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_weights_that_stay_would_be_noticed(name):
    graph, chains, _ = CASES[name]
    moved, unmoved = (on_the_cpu(graph, chains, steps) for steps in (STEPS, UNMOVED))
    np.testing.assert_array_equal(moved[0], unmoved[0])
    assert (moved[1] != unmoved[1]).any()


@pytest.mark.parametrize("name", TAILS)
def test_chains_with_a_tail_take_other_weights(name, simulated):
    """They equal chains created with the new weights, and differ from those with the first."""
    taken, anew, unmoved = (simulated[f"{name}-{path}.out"] for path in PATHS)
    np.testing.assert_array_equal(taken, anew)
    np.testing.assert_array_equal(taken[0], unmoved[0])
    assert (taken[1] != unmoved[1]).any()
