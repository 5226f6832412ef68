"""Conditional tables of known networks are learned, and written to files."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.formats.networks import conditionals
from minigibbs.formats.pruning import TableFactor
from minigibbs.formats.tables import group_tables
from tests.paths import LAWN
from tests.structure.models import draw, network


def learn(graph, rows, **options):
    return mg.learn_tables(graph, rows, **{"progress": False, "seed": 1, **options})


@pytest.mark.quick
def test_complete_rows_are_counted():
    graph = mg.read(LAWN)
    rows = draw(conditionals(graph, LAWN), 500, 1)
    for one in conditionals(learn(graph, rows, pseudocount=0.0), LAWN):
        counts = np.zeros(one.table.shape)
        np.add.at(counts, tuple(rows[:, v] for v in (*one.parents, one.child)), 1)
        seen = counts.sum(axis=-1) > 0
        wanted = counts[seen] / counts[seen].sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(one.table[seen], wanted, atol=1e-12)


def test_missing_cells_are_summed_out():
    truth, _ = network(seed=4)
    factors = [TableFactor((*one.parents, one.child), one.table) for one in truth]
    graph = mg.FactorGraph([3] * 10, group_tables(factors))
    rows = draw(truth, 1000, 2)
    gone = np.random.default_rng(3).random(rows.shape) < 0.3
    learned = learn(graph, np.where(gone, -1, rows))
    complete = learn(graph, rows)
    a, b = (mg.infer(one, progress=False).marginals for one in (learned, complete))
    # Shares of 700 cells are compared with shares of 1,000 cells, within five standard errors of
    # the difference.
    np.testing.assert_allclose(a, b, atol=5 * 0.5 * np.sqrt(1 / 700 - 1 / 1000) + 0.005)


def test_learned_networks_are_written_back(tmp_path):
    graph = mg.read(LAWN)
    labels = {name: graph.domains.values(graph.domains.index(name)) for name in graph.domains.names}
    rows = draw(conditionals(graph, LAWN), 300, 1)
    frame = {
        name: [labels[name][code] for code in rows[:, k]]
        for k, name in enumerate(graph.domains.names)
    }
    learned = learn(graph, frame)
    mg.write(learned, tmp_path / "learned.bif")
    again = mg.read(tmp_path / "learned.bif")
    np.testing.assert_allclose(again.log_potential(rows), learned.log_potential(rows), atol=1e-4)


def test_learned_networks_go_to_pgmpy_and_back():
    pytest.importorskip("pgmpy")
    graph = mg.read(LAWN)
    rows = draw(conditionals(graph, LAWN), 300, 1)
    learned = learn(graph, rows)
    theirs = mg.to_pgmpy(learned, network=True)
    assert theirs.check_model()
    assert theirs.get_cpds(graph.domains.names[0]) is not None
    back = mg.from_pgmpy(theirs)
    order = [graph.domains.index(back.domains.name(v)) for v in range(len(back))]
    np.testing.assert_allclose(
        back.log_potential(rows[:, order]), learned.log_potential(rows), atol=1e-9
    )
    with pytest.raises(mg.GraphError, match="one table per variable"):
        mg.to_pgmpy(mg.models.ising_lattice(3, beta=0.1), network=True)


def test_other_graphs_are_refused():
    with pytest.raises(mg.LearnError, match="one table per variable"):
        learn(mg.models.ising_lattice(3, beta=0.1), np.zeros((4, 9), dtype=int))
    with pytest.raises(mg.LearnError, match="must not be negative"):
        learn(mg.read(LAWN), np.zeros((4, 4), dtype=int), pseudocount=-1.0)
