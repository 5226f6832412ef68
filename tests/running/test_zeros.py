"""Runs on graphs with hard constraints: initial states, refusals, messages, files."""

import json

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.request import start_states
from tests.hard import HARD, NOT_BOTH, ZERO, differ

SAME = [[0.0, ZERO], [ZERO, 0.0]]
QUIET = {"progress": False, "threads": 1}


def tied(n=12):
    """Return a ring of equal variables: two states that no single-site update connects."""
    ring = [[k, (k + 1) % n] for k in range(n)]
    return mg.FactorGraph([2] * n, [mg.Table(ring, SAME)], names=[f"s{k}" for k in range(n)])


@pytest.mark.parametrize("model", HARD)
def test_first_states_are_possible_differ_and_go_by_seed_and_chain(model):
    graph = HARD[model]
    states = start_states(graph, "random", 6, 3)
    assert (graph.log_potential(states) > ZERO).all()
    np.testing.assert_array_equal(states[:4], start_states(graph, "random", 4, 3))
    assert (states != start_states(graph, "random", 6, 4)).any()
    assert len(np.unique(states, axis=0)) > 1


def test_many_chains_begin_at_possible_states():
    graph = HARD["colors"]
    states = start_states(graph, "random", 5000, 1)
    assert (graph.log_potential(states) > ZERO).all()
    assert len(np.unique(states, axis=0)) == 4 * 3**3  # all possible states


def test_a_graph_without_a_possible_state_is_refused():
    graph = mg.FactorGraph([2, 2, 2], [mg.Table([[0, 1], [1, 2], [2, 0]], differ(2))])
    with pytest.raises(mg.SampleError, match="no state of this graph has positive probability"):
        mg.sample(graph, **QUIET)
    given = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], SAME)], names=["a", "b"])
    with pytest.raises(mg.SampleError, match=r"zeros and evidence.*leave no value to variable \d"):
        mg.sample(given.condition({0: 0, 1: 1}), **QUIET)


def test_a_first_state_of_probability_zero_is_refused_by_name():
    graph = tied(4)
    expected = r"table factor 1 of group 0 \(variables 1, 2\) forbids s1 = 0, s2 = 1"
    with pytest.raises(mg.SampleError, match=expected):
        mg.sample(graph, start=[0, 0, 1, 1], **QUIET)
    with pytest.raises(mg.SampleError, match="of chain 1 has probability 0"):
        mg.sample(graph, start=[[0, 0, 0, 0], [0, 1, 1, 1]], chains=2, **QUIET)
    run = mg.sample(graph, start=[1, 1, 1, 1], sweeps=5, **QUIET)
    assert (run.state == 1).all()
    assert (mg.sample(graph, start=run, sweeps=5, **QUIET).state == 1).all()


@pytest.mark.parametrize("model", HARD)
def test_marginals_of_a_graph_with_zeros_are_right(model):
    """Errors are within five standard deviations by the gap; false alarm: 1 in 1.7 million."""
    graph = HARD[model]
    run = mg.sample(graph, sweeps=20_000, seed=5, **QUIET)
    exact = mg.exact_marginals(graph)
    gap = mg.theory.transition(graph, mg.Gibbs()).spectral_gap()
    spread = np.sqrt(exact * (1 - exact) * 2 / (gap * run.info.updates))
    assert (np.abs(run.marginals - exact) <= 5 * spread + 1e-4).all()  # initial states count, too
    assert (run.marginals[exact == 0] == 0).all()
    assert run.model["reach"] == "connected"
    assert not any("zeros" in warning for warning in run.summary().warnings)


def test_what_single_moves_cannot_reach_is_said():
    run = mg.sample(tied(), sweeps=50, seed=1, **QUIET)
    assert run.model["zeros"] == 12
    assert run.model["reach"] == "split"
    assert "hard constraints: single-site moves cannot reach every state; use mg.infer" in (
        run.summary().warnings
    )
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 60, (90, 2))
    wide = mg.FactorGraph([3] * 60, [mg.Table(pairs[pairs[:, 0] != pairs[:, 1]], differ(3))])
    run = mg.sample(wide, sweeps=50, seed=1, **QUIET)
    assert run.model["reach"] == "unknown"
    assert "hard constraints: single-site moves may not reach every state; use mg.infer" in (
        run.summary().warnings
    )


def test_other_samplers_do_not_hear_of_single_moves():
    run = mg.sample(tied(), mg.ExactSampler(), sweeps=20, seed=1, **QUIET)
    assert "reach" not in run.model
    assert not any("single-site" in warning for warning in run.summary().warnings)


def test_a_graph_without_zeros_says_nothing_of_them():
    run = mg.sample(mg.models.ising_lattice(side=4, beta=0.2), sweeps=50, seed=1, **QUIET)
    assert run.model["zeros"] == 0
    assert "reach" not in run.model


def test_files_reports_and_checkpoints(tmp_path):
    graph = tied(5)
    mg.write(graph, tmp_path / "tied.mg")
    again = mg.read(tmp_path / "tied.mg")
    np.testing.assert_array_equal(again.factors[0].log_potential, graph.factors[0].log_potential)
    folder = tmp_path / "run.zarr"
    run = mg.sample(again, sweeps=30, seed=2, checkpoint=folder, **QUIET)
    longer = mg.resume(folder, sweeps=30, **QUIET)
    whole = mg.sample(graph, sweeps=60, seed=2, **QUIET)
    np.testing.assert_array_equal(longer.state, whole.state)
    assert mg.load(folder).model == run.model
    run.save(tmp_path / "run.mgr")
    loaded = mg.load(tmp_path / "run.mgr")
    assert loaded.model == run.model
    assert loaded.model["local_energy"] is None
    json.dumps(loaded.model, allow_nan=False)
    json.dumps(loaded.summary().to_dict(), allow_nan=False)
    assert loaded.summary().warnings == run.summary().warnings
    run.report(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    assert "factors with hard constraints" in page
    assert "infinite" in page
    assert "Single-site updates cannot reach every state" in page


def test_a_run_file_with_an_unknown_reach_is_refused(tmp_path):
    run = mg.sample(tied(5), sweeps=10, seed=2, **QUIET)
    run.model["reach"] = "far"
    run.save(tmp_path / "run.mgr")
    with pytest.raises(mg.FormatError, match="damaged"):
        mg.load(tmp_path / "run.mgr")


def test_explain_with_zeros():
    shown = mg.explain(HARD["apart"], costs={"read": 1.0, "draw": 10.0})
    plain = json.loads(json.dumps(shown.to_dict(), allow_nan=False))
    assert plain["stats"]["local_energy"] == "inf"
    rows = {row.sampler: row for row in shown.rows}
    assert rows["gibbs"].nanoseconds > 0
    assert rows["poisson-gibbs"].nanoseconds > 0
    assert rows["mgpmh"].nanoseconds is None
    assert "has a hard constraint" in rows["mgpmh"].note
    assert "inf" in str(shown)
    for sampler in (mg.Gibbs(), mg.PoissonGibbs(), mg.PoissonGibbs(heavy=0, theta=1.0)):
        assert "nan" not in sampler.describe(HARD["apart"])


def test_one_variable_all_clamped_and_nothing_to_vary():
    one = mg.FactorGraph([3], [mg.Unary([0], [[ZERO, 0.0, ZERO]])])
    run = mg.sample(one, sweeps=10, seed=1, **QUIET)
    assert (run.state == 1).all()
    clamped = tied(4).condition(dict.fromkeys(range(4), 1))
    run = mg.sample(clamped, sweeps=10, seed=1, **QUIET)
    assert (run.state == 1).all()
    assert not any("zeros" in warning for warning in run.summary().warnings)
    settled = tied(4).condition({2: 0})  # the others follow
    run = mg.sample(settled, sweeps=10, seed=1, **QUIET)
    assert (run.state == 0).all()
    assert run.model["reach"] == "connected"


def test_until_with_zeros():
    rule = mg.Table([[0, 1], [1, 2]], NOT_BOTH)
    graph = mg.FactorGraph([2] * 3, [rule])
    run = mg.sample_until(graph, ess=200, seed=1, progress=False)
    assert run.info.ended == "converged"
    assert np.abs(run.marginals - mg.exact_marginals(graph)).max() < 0.1
