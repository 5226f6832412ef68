"""Log-likelihoods of rows: exact, with hidden variables, and by annealed importance sampling."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.results.annealed import annealed_log_z
from minigibbs.results.fit import Fit
from minigibbs.system.watch import StopError, Watch


def fit_of(graph):
    """Return a fit with a given graph."""
    nothing = np.zeros(graph.frame.size)
    return Fit(graph, "exact", "converged", 0, 0.0, 0, 1, {}, nothing, nothing)


def machine(visible, hidden, scale, seed):
    """Return a restricted Boltzmann machine with random parameters."""
    rng = np.random.default_rng(seed)
    i, j = np.meshgrid(np.arange(visible), visible + np.arange(hidden), indexing="ij")
    energy = np.zeros((visible * hidden, 2, 2))
    energy[:, 1, 1] = scale * rng.normal(size=len(energy))
    field = np.zeros((visible + hidden, 2))
    field[:, 1] = rng.normal(size=len(field))
    scope = np.column_stack([i.ravel(), j.ravel()])
    groups = [
        mg.Unary(np.arange(visible + hidden), field, name="bias"),
        mg.Table(scope, energy, name="weight"),
    ]
    return mg.FactorGraph([2] * (visible + hidden), groups)


def by_hand(graph, rows):
    """Return log-likelihoods by enumeration; -1 marks missing values."""
    states, probability = mg.exact_distribution(graph)
    found = []
    for row in rows:
        agree = ((states == row) | (np.asarray(row) < 0)).all(axis=1)
        found.append(np.log(probability[agree].sum()))
    return np.array(found)


@pytest.mark.quick
def test_complete_and_hidden_rows_agree_with_enumeration():
    graph = machine(4, 3, 1.0, 1)
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 2, (20, 7))
    rows[5:10, 4:] = -1  # hidden units, which are independent given the others
    rows[10:, 0] = -1
    rows[10:, 5] = -1  # variables that share a factor
    found = fit_of(graph).log_likelihood(rows, weights=np.arange(20.0))
    assert found.method == "exact"
    assert found.error == 0.0
    np.testing.assert_allclose(found.rows, by_hand(graph, rows), atol=1e-9)
    assert np.isclose(found.mean, np.arange(20) @ found.rows / 190)


@pytest.mark.parametrize("seed", [1, 2])
def test_annealing_agrees_with_elimination_within_its_error(seed):
    grid = mg.models.ising_lattice(6, beta=0.3, periodic=False)
    field = mg.Unary(np.arange(36), np.random.default_rng(seed).normal(size=(36, 3))[:, :2])
    graph = mg.FactorGraph([2] * 36, [*grid.factors, field]).condition({0: 1, 7: 0})
    found = annealed_log_z(graph, 0.05, seed, 2, Watch())
    assert found.error <= 0.05
    # Five standard errors: a false alarm in fewer than 1e-6 of all runs.
    assert abs(found.value - mg.infer(graph, exact=True).log_z) < 5 * found.error


def test_fits_too_wide_for_elimination_are_annealed():
    graph = machine(40, 40, 0.1, 3)
    rows = np.full((50, 80), -1)
    rows[:, :40] = np.random.default_rng(1).integers(0, 2, (50, 40))
    found = fit_of(graph).log_likelihood(rows, standard_error=0.05)
    assert found.method == "annealing"
    assert 0 < found.error <= 0.05
    again = fit_of(graph).log_likelihood(rows, standard_error=0.05, seed=5)
    # Five standard errors of the difference.
    assert abs(found.mean - again.mean) < 5 * np.hypot(found.error, again.error)
    uniform = -40 * np.log(2)
    assert -60 < found.mean < uniform + 5


class Ending(Watch):
    """A watch whose time is up after some checks."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    @property
    def ended(self):
        self.looks -= 1
        return "time" if self.looks < 0 else ""


def test_annealing_looks_at_the_clock_within_a_round():
    graph = machine(40, 40, 0.1, 3)
    watch = Ending(300)
    found = annealed_log_z(graph, 1e-9, 1, 1, watch)
    assert found.sweeps >= 128
    assert watch.looks == -2  # the driver reads it twice, and drops the present round immediately
    with pytest.raises(StopError):
        annealed_log_z(graph, 1e-9, 1, 1, Ending(0))


def test_annealing_refuses_what_it_cannot_do():
    hard = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], [[0.0, -np.inf], [0.0, 0.0]])])
    with pytest.raises(mg.LearnError, match="without hard constraints"):
        annealed_log_z(hard, 0.1, 1, 1, Watch())
    dense = mg.FactorGraph([2] * 4, [mg.Complete(4, 0.1)])
    with pytest.raises(mg.LearnError, match="explicit factors"):
        annealed_log_z(dense, 0.1, 1, 1, Watch())
    with pytest.raises(mg.LearnError, match="standard_error must be positive"):
        fit_of(machine(2, 2, 1.0, 1)).log_likelihood([[0, 0, 0, 0]], standard_error=0.0)


def test_labels_and_hard_constraints_are_read():
    table = [[0.0, -np.inf], [0.0, 1.0]]
    graph = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], table)], ["a", "b"], [["no", "yes"]] * 2)
    found = fit_of(graph).log_likelihood({"a": ["yes", "no"]})
    np.testing.assert_allclose(np.exp(found.rows), [(1 + np.e) / (2 + np.e), 1 / (2 + np.e)])
