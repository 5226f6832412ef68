"""Phases that no chain visited are reported, and models with one phase get no such report."""

import numpy as np
import pytest

import minigibbs as mg
from benchmarks.verdicts import pattern
from minigibbs.results.phases import hidden_phase
from minigibbs.results.run import load


def sampled(strength, seed=0):
    graph, truth = pattern(np.random.default_rng(seed), strength)
    run = mg.sample(graph, sweeps=300, seed=seed, progress=False)
    off = max(np.abs(run.marginals[k] - row).max() for k, row in enumerate(truth))
    return run, off


def test_a_phase_that_every_chain_missed_is_warned_of(tmp_path):
    """All chains stay in the disordered phase; the hidden pattern holds in 57% of the states."""
    run, off = sampled(6.0)
    assert off > 0.4
    (text,) = (text for text in run.summary().warnings if "missed a phase" in text)
    assert run.model["phase"]["size"] == 60
    assert run.model["phase"]["share"] > 0.3
    run.save(tmp_path / "a.run")
    assert text in load(tmp_path / "a.run").summary().warnings


def test_a_pattern_of_little_weight_is_not_reported():
    run, off = sampled(5.0)
    assert off < 0.1
    assert "phase" not in run.model


@pytest.mark.parametrize(
    "graph",
    [
        mg.models.ising_lattice(side=8, beta=0.4),
        mg.models.curie_weiss(100, 1.0),
        mg.models.potts_lattice(side=6, states=3, beta=0.8),
    ],
    ids=["lattice", "Curie-Weiss", "Potts"],
)
def test_models_with_one_phase_are_not_accused(graph):
    for seed in range(5):
        run = mg.sample(graph, sweeps=300, seed=seed, progress=False)
        assert hidden_phase(graph, run) is None
