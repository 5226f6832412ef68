"""Masked values are refused in all inputs, since NumPy would use the values behind the mask."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.formats import uai

PAIR = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5, name="J")])
QUIET = {"progress": False, "seed": 1}


def masked(*values):
    """Return an array whose last entry is masked."""
    array = np.ma.array(values)
    array[(-1,) * array.ndim] = np.ma.masked
    return array


def ones(*shape):
    return masked(*np.ones(shape))


ENTRIES = {
    "ising": lambda: mg.Ising([0], [1], masked(9.0)),
    "a list of masked arrays": lambda: mg.Unary([0], [masked(0.0, 9.0)]),
    "potts": lambda: mg.Potts([0, 1], [1, 2], masked(1.0, 9.0)),
    "variables": lambda: mg.Potts(masked(0, 1), [1, 2], 1.0),
    "scope": lambda: mg.Table(masked([0, 1], [1, 2]), np.zeros((2, 2))),
    "table": lambda: mg.Table([0, 1], ones(2, 2)),
    "table weights": lambda: mg.Table([0, 1], np.zeros((2, 2)), masked(2.0)),
    "table of a function": lambda: mg.Table.from_function([0], lambda a: ones(3), [3]),
    "probabilities": lambda: mg.Unary.from_probabilities([0], masked(0.5, 0.5)),
    "unary": lambda: mg.Unary([0], masked(0.0, 9.0)),
    "logical": lambda: mg.Logical("or", [0, 1], masked(1.0)),
    "negated": lambda: mg.Logical("or", [0, 1], 1.0, negated=masked(True, False)),
    "tied": lambda: mg.Potts([0, 1], [1, 2], 1.0, name="J", tied=masked(0, 0)),
    "scale": lambda: mg.Potts([0, 1], [1, 2], 1.0, name="J", scale=masked(1.0, 2.0)),
    "sizes": lambda: mg.FactorGraph(masked(2, 3), []),
    "evidence": lambda: mg.FactorGraph([2, 2], [], evidence=masked(0, 1)),
    "condition": lambda: PAIR.condition({0: masked(1)[0]}),
    "energy": lambda: PAIR.log_potential(masked(0, 1)),
    "parameters": lambda: PAIR.with_parameters({"J": masked(1.0)}),
    "kernel": lambda: mg.Kernel((3,), masked(1.0, 0.0, 1.0)),
    "kernel of a function": lambda: mg.Kernel((3,), lambda d: np.ma.array(d, mask=d > 1)),
    "points": lambda: mg.Points(ones(4, 2)),
    "norms": lambda: mg.Points(np.eye(4), norms=ones(4)),
    "low rank": lambda: mg.LowRank(ones(4, 2)),
    "matrix": lambda: mg.ising_from_matrix(masked([0.0, 1.0], [1.0, 0.0])),
    "field": lambda: mg.ising_from_matrix(np.zeros((2, 2)), masked(0.0, 1.0)),
    "image": lambda: mg.models.dense_crf(ones(3, 4), costs=np.zeros((2, 12))),
    "start": lambda: mg.sample(PAIR, sweeps=1, start=masked(0, 1), **QUIET),
    "reference": lambda: mg.sample(PAIR, sweeps=1, reference=ones(2, 2), **QUIET),
    "row weights": lambda: mg.learn(PAIR, [[0, 1], [1, 1]], "exact", weights=masked(1.0, 9.0)),
    "likelihoods": lambda: PAIR.with_likelihoods({0: masked(0.5, 0.5)}),
    "soft evidence": lambda: mg.infer(PAIR).likelihood({0: masked(0.5, 0.5)}),
    "a distribution": lambda: mg.theory.transition(PAIR, mg.Gibbs()).marginal(ones(4)),
    "leak": lambda: mg.add_noisy_max(PAIR, [mg.NoisyMax(1, {0: 0.5}, masked(0.1, 0.9))]),
    "marginals": lambda: uai.write_marginals([masked(0.5, 0.5)], "never-written.MAR"),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_masked_values_are_refused(entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mg.MinigibbsError, match="masked"):
        ENTRIES[entry]()
    assert not list(tmp_path.iterdir())


def test_a_masked_cell_of_evidence_is_unobserved():
    rows = np.ma.array([[1, 1], [0, 0]], mask=[[False, True], [False, False]])
    found = mg.infer_many(PAIR, rows, progress=False)
    expected = mg.infer_many(PAIR, {0: [1, 0], 1: [None, 0]}, progress=False)
    assert np.array_equal(found.marginal(1), expected.marginal(1))
    assert np.array_equal(found.log_probability, expected.log_probability)


def test_a_mask_that_hides_nothing_is_no_obstacle():
    weight = np.ma.array([9.0], mask=[False])
    graph = mg.FactorGraph(np.ma.array([2, 2]), [mg.Ising([0], [1], weight)])
    assert graph.log_potential(np.ma.array([1, 1])) == 9.0
