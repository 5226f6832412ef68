"""`mg.infer`: exact if possible, else sampled; it states method, reason and warnings."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact.elimination import EliminationTree
from minigibbs.inference import infer as inference
from minigibbs.results import verdict
from minigibbs.running.api import time_updates
from minigibbs.system.memory import read_size
from minigibbs.system.watch import StopError, Watch, current
from tests.hard import HARD
from tests.paths import DATA
from tests.running.test_executors import Elsewhere
from tests.zoo import IMPLICIT, ZOO

QUIET = {"progress": False}
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="real models are not at hand")


@pytest.mark.parametrize("graph", [*ZOO.values(), *HARD.values()], ids=[*ZOO, *HARD])
def test_small_graphs_are_answered_exactly(graph):
    answer = mg.infer(graph)
    assert answer.exact
    assert answer.method == "exact"
    assert "treewidth" in answer.reason
    np.testing.assert_array_equal(answer.marginals, mg.exact_marginals(graph))
    assert answer.log_z == mg.log_partition(graph)
    assert answer.log_z_error == 0.0
    assert not answer.standard_errors.any()
    assert not answer.warnings
    assert answer.run is None


@pytest.mark.parametrize("name", [*ZOO, *HARD])
def test_the_same_by_sampling(name):
    """At most five standard errors from four chains; eight for log Z, from sixteen parts."""
    graph = (ZOO | HARD)[name]
    exact = mg.infer(graph)
    answer = mg.infer(graph, "20s", exact=False, standard_error=0.01, seed=1, **QUIET)
    weak = graph.influence < 1.0
    assert answer.method.startswith("PoissonGibbs(" if weak else "Tempering(")
    assert "not requested" in answer.reason
    off = np.abs(answer.marginals - exact.marginals)
    assert (off < 5 * np.maximum(answer.standard_errors, 0.004)).all()
    # The stopping rule uses parts of chains. The error from four chains exceeds 2.5 times the
    # error of the rule with a probability of at most 1e-3 per value.
    assert answer.shares.standard_errors.max() <= 0.025
    assert answer.run.info.ended == "converged"
    assert abs(answer.log_z - exact.log_z) < 8 * answer.log_z_error + 1e-9


def test_implicit_models_are_sampled_where_they_are_too_wide():
    graph = mg.FactorGraph(np.full(900, 2), [mg.Complete(900, 1e-3)])
    answer = mg.infer(graph, "3s", standard_error=0.02, seed=1, **QUIET)
    assert answer.method == "PoissonGibbs()"
    assert "would need" in answer.reason
    assert "implicit" in answer.reason
    assert answer.log_z is None
    short = any("too short" in text for text in answer.warnings)  # on a loaded machine
    assert short or abs(answer.marginals[:, 1] - 0.5).max() < 0.12
    assert mg.infer(IMPLICIT["complete"]).exact  # a small one is stored


@pytest.mark.parametrize(("shift", "warned"), [(0.0, False), (-50.0, True), (50.0, True)])
def test_log_z_outside_its_proven_bounds_is_warned_of(shift, warned):
    graph = mg.models.ising_lattice(side=5, beta=0.3)
    ladder = SimpleNamespace(log_z=mg.infer(graph).log_z + shift, log_z_error=0.1)
    with Watch(10.0) as watch:
        text = inference._beyond_bounds(graph, ladder, None, watch)
    assert (text is not None) == warned
    assert not warned or "proven bounds" in text


def test_weak_models_are_left_to_single_chains():
    """Dobrushin's condition holds; log Z still comes from a ladder."""
    grid = mg.models.ising_lattice(side=6, beta=0.05)
    assert grid.influence < 1.0
    answer = mg.infer(grid, "4s", exact=False, seed=1, standard_error=0.02, **QUIET)
    assert answer.method == "PoissonGibbs()"
    assert "Dobrushin" in answer.reason
    log_z = mg.log_partition(grid)
    assert abs(answer.log_z - log_z) < 8 * answer.log_z_error


def test_uncertain_log_z_of_the_ladder_is_warned_of(monkeypatch):
    """Marginals come from single chains and log Z from a ladder, which may fail alone."""
    grid = mg.models.ising_lattice(side=6, beta=0.05)
    options = {"exact": False, "seed": 1, "standard_error": 0.02, **QUIET}
    assert not any("round trips" in text for text in mg.infer(grid, "4s", **options).warnings)
    monkeypatch.setattr(verdict, "LEAST_TRIPS", 10**9)
    answer = mg.infer(grid, "4s", **options)
    assert answer.method == "PoissonGibbs()"
    assert any("round trips" in text for text in answer.warnings)


def test_chains_answer_where_a_ladder_does_not_fit_into_the_time(monkeypatch):
    glass = mg.models.spin_glass(side=4, couplings="signs", beta=1.0, seed=1)

    def timed(graph, sampler, *args, **options):
        if isinstance(sampler, mg.Tempering):
            raise mg.TooLargeError("a round of exchanges takes too long")
        return time_updates(graph, sampler, *args, **options)

    monkeypatch.setattr(inference, "time_updates", timed)
    answer = mg.infer(glass, "1s", exact=False, seed=1, **QUIET)
    assert answer.method == "PoissonGibbs()"
    with pytest.raises(mg.TooLargeError):
        mg.infer(glass, "1s", exact=False, sampler=mg.Tempering(), seed=1, **QUIET)


def test_an_exact_answer_that_takes_too_long_is_given_up(monkeypatch):
    grid = mg.models.ising_lattice(side=6, beta=0.3, periodic=False)
    monkeypatch.setattr(EliminationTree, "seconds", 0.0)
    monkeypatch.setattr(inference, "_EXACT", 0.0)  # elimination gets no time
    answer = mg.infer(grid, "1s", standard_error=0.1, seed=1, **QUIET)
    assert not answer.exact
    assert "took longer than" in answer.reason


def test_time_and_memory_decide(monkeypatch):
    grid = mg.models.ising_lattice(side=12, beta=0.3, periodic=False)
    tree = EliminationTree.of(grid)
    assert 0.0001 < tree.seconds < 10

    def exact(seconds, memory=None):
        with Watch(seconds) as watch:
            return inference._exact(grid, memory, watch)

    with monkeypatch.context() as patched:
        patched.setattr(EliminationTree, "seconds", 50.0)
        found, why = exact(60.0)
        assert found is None
        assert "would take about 50 s" in why
        found, why = exact(100.0)
        assert found is not None
    found, why = exact(100.0, 1000.0)
    assert found is None
    assert "numbers" in why
    answer = mg.infer(grid, "1s", memory="1K", standard_error=0.1, seed=1, **QUIET)
    assert not answer.exact
    assert mg.infer(grid, memory="1G").exact


def test_seconds_grow_with_the_work():
    def predicted(side):
        return EliminationTree.of(mg.models.ising_lattice(side, 0.3, periodic=False)).seconds

    assert predicted(6) < predicted(10) < predicted(14)


def test_a_given_sampler():
    grid = mg.models.ising_lattice(side=5, beta=0.2)
    answer = mg.infer(
        grid, "5s", exact=False, sampler=mg.Gibbs(), standard_error=0.05, seed=1, **QUIET
    )
    assert answer.method == "Gibbs()"
    assert "given" in answer.reason


def test_evidence_that_cannot_be():
    same = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], [[0.0, -np.inf], [-np.inf, 0.0]])])
    with pytest.raises(mg.GraphError, match="probability 0"):
        mg.infer(same.condition({0: 0, 1: 1}))


def test_everything_clamped_and_one_variable():
    one = mg.FactorGraph([3], [mg.Unary([0], [0.0, 1.0, 2.0])])
    for exact in (True, False):
        fixed = mg.infer(one.condition({0: 2}), "1s", exact=exact, **QUIET)
        np.testing.assert_array_equal(fixed.marginals, [[0.0, 0.0, 1.0]])
    assert mg.infer(one).log_z == pytest.approx(np.log(np.exp([0.0, 1.0, 2.0]).sum()))


def test_too_few_round_trips_are_said():
    """Two distant levels never exchange states; the levels chosen for a magnet do."""
    i, j = np.triu_indices(30, 1)
    weights = np.random.default_rng(1).normal(0, 3.0, len(i))
    glass = mg.FactorGraph([2] * 30, [mg.Ising(i, j, weights)])
    apart = mg.Tempering(levels=(0.0, 1.0))
    answer = mg.infer(glass, 0.2, exact=False, sampler=apart, seed=1, **QUIET)
    assert answer.run.ladder.round_trips < 40
    assert any("round trips" in text for text in answer.warnings)
    magnet = mg.FactorGraph([2] * 9, [mg.Ising(range(8), range(1, 9), 0.5)])
    fine = mg.infer(magnet, "10s", exact=False, standard_error=0.02, seed=1, **QUIET)
    assert fine.run.ladder.round_trips >= 40
    assert not any("round trips" in text for text in fine.warnings)


@pytest.mark.parametrize("beta", [0.1, 0.6])
def test_an_answer_has_marginals_however_short_the_time(beta, monkeypatch):
    """A warm-up of 5,000 sweeps takes longer than a microsecond, on any machine."""
    monkeypatch.setattr(inference, "time_updates", lambda *args, **options: 1e-12)
    graph = mg.models.ising_lattice(side=30, beta=beta)
    answer = mg.infer(graph, 1e-6, exact=False, seed=1, **QUIET)
    assert any("too short" in text for text in answer.warnings)
    np.testing.assert_array_equal(answer.run.clock, np.full(4, 4 * 900))
    np.testing.assert_allclose(answer.marginals.sum(axis=1), 1.0)
    assert (answer.standard_errors > 0.05).all()  # from four sweeps of four chains
    assert answer.log_z is None
    assert answer.run.info.seed != 1  # that seed led to the initial states


def test_a_short_time_that_is_enough_is_not_complained_of():
    answer = mg.infer(ZOO["ising"], "10s", exact=False, standard_error=0.1, seed=1, **QUIET)
    assert not any("too short" in text for text in answer.warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_time": "soon"}, "max_time must be seconds"),
        ({"memory": "much"}, "memory must be bytes"),
        ({"memory": True}, "memory must be bytes"),
        ({"standard_error": -1.0, "exact": False}, "standard_error must be a number above 0"),
        ({"chains": 0, "exact": False}, "chains must be"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.infer(ZOO["ising"], **options, **QUIET)
    with pytest.raises(mg.SampleError, match="graph must be a FactorGraph"):
        mg.infer("model.uai")


@pytest.mark.parametrize(
    ("text", "size"), [("4G", 2**32), ("500 MB", 500 * 2**20), (1e6, 1e6), ("2KiB", 2048)]
)
def test_sizes_as_people_write_them(text, size):
    assert read_size(text, "memory") == size


@needs_data
@pytest.mark.parametrize(
    "name",
    [
        "pgmpy/grid4x4.uai",
        "uai2014/Grids_11.uai",
        "uai2014/Segmentation_11.uai",
        "uai2014/CSP_12.uai",
        "uai2006/BN_101.uai.gz",
        "uai2014_zeros/Pedigree_11.uai",
        "uai2014_zeros/Promedus_24.uai",
    ],
)
def test_real_models_on_which_gibbs_does_not_mix(name):
    from benchmarks.answers import largest_error, uai_model

    graph, truth, log_z = uai_model(name)
    answer = mg.infer(graph, "60s")
    assert answer.exact
    assert largest_error(answer, truth) < 1e-6
    assert answer.log_z == pytest.approx(log_z, abs=1e-5)


@needs_data
def test_networks_with_zeros_and_evidence():
    from benchmarks.answers import largest_error, network

    for name in ("asia", "insurance", "water"):
        for what in ("prior", "posterior"):
            graph, truth, log_z = network(name, what)
            answer = mg.infer(graph, "60s")
            assert answer.exact
            assert largest_error(answer, truth) < 1e-6
            assert answer.log_z == pytest.approx(log_z, abs=1e-5)


def test_an_answer_is_written_reported_and_framed(tmp_path):
    graph = mg.FactorGraph(
        [2, 3],
        [mg.Table([[0, 1]], [[0.0, 1.0, -np.inf], [0.5, 0.0, 0.2]])],
        names=["rain", "sky"],
        labels={"rain": ["no", "yes"]},
    )
    for exact in (True, False):
        answer = mg.infer(graph, "5s", exact=exact, seed=1, standard_error=0.02, **QUIET)
        path = tmp_path / f"{exact}.mga"
        answer.save(path)
        again = mg.load(path)
        assert isinstance(again, mg.Answer)
        np.testing.assert_array_equal(again.marginals, answer.marginals)
        np.testing.assert_array_equal(again.standard_errors, answer.standard_errors)
        np.testing.assert_allclose(again.interval("sky"), answer.interval("sky"))
        assert again.to_dict() == answer.to_dict()
        assert again.model == json.loads(json.dumps(answer.model))
        frame = again.to_pandas()
        assert list(frame["variable"].unique()) == ["rain", "sky"]
        assert frame["probability"].sum() == pytest.approx(2.0)
        assert (frame["standard_error"] == 0).all() == exact
        page = tmp_path / "page.html"
        for one in (answer, again):
            one.report(page, title="Will it rain?")
            html = page.read_text()
            assert "Will it rain?" in html
            assert "log Z" in html
            assert ("The answer is exact" in html) == exact
        assert "method" in str(answer)
        assert "log Z" in str(answer)


@pytest.mark.parametrize("damage", ["probability", "clamped", "log_z", "freedom"])
def test_a_damaged_answer_is_refused(tmp_path, damage):
    from minigibbs.system import files

    path = tmp_path / "answer"
    mg.infer(ZOO["ising"]).save(path)
    header, arrays = files.read_arrays(path, "minigibbs-answer-1")
    if damage == "probability":
        arrays["probability"] = arrays["probability"] + 2.0
    elif damage == "clamped":
        arrays["clamped"] = arrays["clamped"][:-1]
    else:
        header[damage] = "many" if damage == "log_z" else -1.0
    files.write_arrays(path, header, arrays)
    with pytest.raises(mg.FormatError):
        mg.load(path)


@pytest.mark.parametrize(
    "options", [{}, {"exact": False}, {"exact": False, "sampler": mg.BlockGibbs()}]
)
def test_weights_that_hide_others_in_rounding_are_warned_of(options):
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1e16), mg.Unary([0], [[0.0, 0.3]])])
    answer = mg.infer(graph, "1s", seed=1, **options, **QUIET)
    assert any("rounding changes log-odds" in text for text in answer.warnings)


def test_infer_does_not_send_its_users_to_infer():
    """Poor mixing on a dense model gives a warning with advice on other samplers."""
    pairs = [(i, j) for i in range(60) for j in range(i)]
    graph = mg.FactorGraph([2] * 60, [mg.Ising(*np.array(pairs).T, 0.2)])
    answer = mg.infer(graph, "1s", exact=False, sampler=mg.Gibbs(), seed=1, progress=False)
    assert answer.warnings
    assert not any("mg.infer" in text for text in answer.warnings)


def test_plain_chains_answer_where_no_sampler_was_ready(monkeypatch):
    def late(graph):
        time.sleep(0.3)
        current().check()

    monkeypatch.setattr(inference, "_choose", late)
    torus = mg.models.ising_lattice(6, 1.0)
    answer = mg.infer(torus, 0.2, exact=False, seed=1, progress=False)
    assert "time was up" in answer.reason
    assert np.isfinite(answer.marginals).all()


def test_a_part_of_the_time_is_left_to_sample_when_no_sampler_is_chosen(monkeypatch):
    """Finding temperatures took all of the time, and sampling came after the limit."""
    left = []

    def slow(graph):
        left.append(current().left)
        raise StopError("time")

    monkeypatch.setattr(inference, "_choose", slow)
    answer = mg.infer(ZOO["potts"], 2.0, exact=False, seed=1, progress=False)
    assert left[0] <= 1.2
    assert "before another sampler was ready" in answer.reason


def test_chains_run_on_an_executor():
    """The warm-up depends on the speed, so that draws differ; errors are 6 standard errors."""
    graph = mg.models.ising_lattice(side=4, beta=0.3).condition({0: 1})
    there, exact = Elsewhere(), mg.infer(graph)
    options = {"exact": False, "standard_error": 0.02, "chains": 2, "seed": 1, **QUIET}
    away = mg.infer(graph, executor=there, **options)
    assert there.turn > 2
    assert abs(away.log_z - exact.log_z) < 6 * away.log_z_error
    np.testing.assert_allclose(away.marginals, exact.marginals, atol=6 * 0.02)


def test_executors_that_cannot_be_used_are_refused():
    graph = mg.models.ising_lattice(side=3, beta=0.3)
    with pytest.raises(mg.SampleError, match=r"executor must be a concurrent\.futures\.Executor"):
        mg.infer(graph, executor="dask")
    with pytest.raises(mg.SampleError, match="PopulationAnnealing runs on threads"):
        mg.infer(graph, sampler=mg.PopulationAnnealing(), executor="processes")
    with pytest.raises(mg.SampleError, match='executor is for backend="cpu"'):
        mg.infer(graph, backend="cuda", executor="processes")
