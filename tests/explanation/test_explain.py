"""Text and predictions of `explain`."""

import json

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.explanation import costs, trials
from minigibbs.samplers import SINGLE_SITE
from minigibbs.samplers.costs import COSTS as SHIPPED
from minigibbs.system.watch import Compiling, StopError
from tests.harness import sample
from tests.zoo import IMPLICIT, ZOO

KINDS = list(SHIPPED)
COSTS = dict.fromkeys(KINDS, 10.0)


def test_solve_finds_costs_that_explain_the_times():
    true = {"read": 2.0, "draw": 30.0, "update": 25.0}
    counts = [{"update": 1.0, "read": r, "draw": d} for r in (0, 5, 400) for d in (0.1, 3.0)]
    rows = [(c, costs.predict(true, c)) for c in counts]
    assert costs.solve(rows) == pytest.approx(true)


def test_solve_never_gives_negative_costs():
    rows = [({"update": 1.0, "read": 10.0}, 50.0), ({"update": 1.0, "read": 20.0}, 40.0)]
    assert min(costs.solve(rows).values()) >= 0


def test_solve_leans_on_typical_costs_where_kinds_cannot_be_told_apart():
    """Two kinds that always occur together, on a machine half as fast as the typical one."""
    rows = [({"update": 1.0, "read": r, "slot": r}, 20.0 + 12.0 * r) for r in (1.0, 10.0, 100.0)]
    found = costs.solve(rows, {"update": 10.0, "read": 2.0, "slot": 4.0})
    assert found == pytest.approx({"update": 20.0, "read": 4.0, "slot": 8.0}, rel=0.01)


@pytest.mark.parametrize("name", SINGLE_SITE)
@pytest.mark.parametrize("model", ZOO)
def test_operations_are_of_known_kinds_and_finite(name, model):
    sampler = SINGLE_SITE[name](batch=2) if name == "local" else SINGLE_SITE[name]()
    operations = sampler.operations(ZOO[model])
    assert operations["update"] == 1.0
    assert set(operations) <= set(KINDS)
    assert all(np.isfinite(v) and v >= 0 for v in operations.values())


@pytest.mark.parametrize(
    ("sampler", "kinds", "field"),
    [
        (mg.Gibbs(fields=False), ["read"], "factor_evaluations"),
        (mg.PoissonGibbs(), ["touch", "odds", "heavy"], "factor_evaluations"),
        (mg.PoissonGibbs(), ["draw"], "minibatch_draws"),
        (mg.MGPMH(batch=8.0), ["strong", "draw"], "minibatch_draws"),
        (mg.MinGibbs(batch=40.0), ["strong", "draw"], "minibatch_draws"),
        (mg.LocalMinibatchGibbs(7), ["member"], "minibatch_draws"),
        (mg.PoissonMH(batch=8.0), ["draw"], "minibatch_draws"),
        (mg.TunaMH(chi=0.3), ["draw"], "minibatch_draws"),
    ],
)
def test_operations_agree_with_the_counters(sampler, kinds, field):
    graph, updates = mg.models.potts_rbf(side=8), 40_000
    run = sample(graph, sampler, updates=updates, chains=1, seed=1, record=(), progress=False)
    counted = getattr(run.info, field) / updates
    expected = sum(sampler.operations(graph).get(kind, 0.0) for kind in kinds)
    # Means of 40,000 counts with variance below 50: standard error at most 0.035.
    assert counted == pytest.approx(expected, rel=0.02, abs=0.15)


def test_recommendation_and_reason():
    dense = mg.explain(mg.models.potts_rbf(side=10), COSTS)
    assert dense.recommended == "poisson-gibbs"
    assert "evaluates" in dense.why
    assert "plain Gibbs" in mg.explain(mg.models.ising_lattice(8, 0.3), COSTS).why
    strong = mg.models.curie_weiss(60, 60.0)
    assert "strong for their number" in mg.explain(strong, COSTS).why
    assert "implicit" in mg.explain(IMPLICIT["complete"], COSTS).why


def test_table_has_a_row_per_sampler_and_says_what_cannot_run():
    text = str(mg.explain(IMPLICIT["kernel"], COSTS))
    for name in SINGLE_SITE:
        assert name in text
    assert "reads stored factors" in text
    rows = {row.sampler: row for row in mg.explain(mg.models.potts_rbf(side=6), COSTS).rows}
    assert rows["mgpmh"].slowdown == pytest.approx(1.5)
    assert rows["min-gibbs"].slowdown is None
    assert rows["min-gibbs"].note.startswith("spectral gap 0; slowdown 1.53 until variances fall")
    assert not rows["local"].exact
    assert rows["gibbs"].nanoseconds > rows["poisson-gibbs"].nanoseconds


def test_trials_rank_samplers_that_move_many_variables():
    """At the critical temperature, single-variable updates mix slowly and cluster updates fast."""
    explanation = mg.explain(mg.models.ising_lattice(32, 0.4407), COSTS, trials=1.0)
    assert explanation.recommended == "swendsen-wang"
    assert "effective sample took" in explanation.why
    names = [trial.sampler for trial in explanation.trials]
    assert {"poisson-gibbs", "tempering", "block-gibbs", "swendsen-wang", "exact"} <= set(names)
    seconds = [trial.seconds for trial in explanation.trials if trial.seconds is not None]
    assert seconds == sorted(seconds)
    refused = {trial.sampler: trial for trial in explanation.trials}["exact"]
    assert refused.seconds is None
    assert "exact answers" in refused.note or "not ready" in refused.note
    assert "per effective sample: processor time per independent sample" in str(explanation)
    assert json.loads(json.dumps(explanation.to_dict()))["trials"][0]["sampler"] == names[0]


def test_chains_that_are_stuck_are_not_called_fast():
    """All spins agree: each chain stays in one of two modes."""
    pairs = [(i, j) for i in range(20) for j in range(i)]
    graph = mg.FactorGraph([2] * 20, [mg.Ising(*np.array(pairs).T, 1.0)])
    found = {one.sampler: one for one in mg.explain(graph, COSTS, trials=1.0).trials}
    assert "disagree" in found["gibbs"].note
    assert found["gibbs"].effective < 0.1
    assert not found["exact"].note
    assert found["exact"].effective > 0.5  # independent draws give 1, up to its own error


def test_a_first_call_compiles_little(monkeypatch, tmp_path):
    """Costs are not measured, and samplers are left out once compiling has taken its time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(costs, "measure", None)
    monkeypatch.setattr(trials, "_try", slow_to_compile)
    graph = mg.models.ising_lattice(8, 0.3)
    explanation = mg.explain(graph)
    left = [one for one in explanation.trials if "compiling" in one.note]
    assert [one.sampler for one in left] == ["swendsen-wang", "tempering", "block-gibbs"]
    assert "the next call tries it" in str(explanation)
    assert "scaled by a trial" in " ".join(str(explanation).split())
    rows = {row.sampler: row for row in explanation.rows}
    assert rows["gibbs"].nanoseconds == pytest.approx(1e9 * 2e-3 / 64)
    assert not any("compiling" in one.note for one in mg.explain(graph, trials="1s").trials)
    assert "typical costs. Run" in " ".join(str(mg.explain(graph, trials=0)).split())


def slow_to_compile(graph, sampler, share):
    Compiling.seconds += 2.5
    return trials.Trial(sampler.name, 1e-3, 2e-3, 0.1, "")


def test_samplers_that_cannot_pay_are_not_tried(monkeypatch):
    """A sweep of blocks or levels reads what a sweep of plain Gibbs reads, or more."""
    tried = []

    def noted(graph, sampler, share):
        tried.append(sampler.name)
        sweep = {"poisson-gibbs": 1e-4, "gibbs": 1e-2}.get(sampler.name, 1.0)
        return trials.Trial(sampler.name, 2 * sweep, sweep, 0.5, "")

    monkeypatch.setattr(trials, "_try", noted)
    found = {one.sampler: one for one in trials.try_samplers(ZOO["potts"], 1.0)}
    assert tried == ["poisson-gibbs", "gibbs", "exact", "swendsen-wang"]
    assert "longer than an effective sample with poisson-gibbs" in found["block-gibbs"].note


def test_no_trials_where_costs_are_given():
    assert mg.explain(mg.models.ising_lattice(8, 0.3), COSTS).trials == ()


def test_log_z_is_not_promised_for_implicit_factors():
    text = str(mg.explain(IMPLICIT["kernel"], COSTS))
    assert "marginals and log Z" not in text
    assert "mg.infer(graph)" in text
    assert "marginals and log Z" in str(mg.explain(mg.models.ising_lattice(8, 0.3), COSTS))


def test_explanation_is_json():
    again = json.loads(json.dumps(mg.explain(ZOO["mixed"], COSTS).to_dict()))
    assert again["recommended"] == "poisson-gibbs"


def test_costs_are_measured_once_and_remembered(monkeypatch, tmp_path, capsys):
    calls = []

    def measured(tell):
        calls.append(tell("measuring"))
        return COSTS

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(costs, "measure", measured)
    assert costs.machine_costs() == costs.machine_costs() == COSTS
    assert len(calls) == 1
    assert "measuring" in capsys.readouterr().err
    (tmp_path / "minigibbs" / "costs.json").write_text("torn {")
    assert costs.machine_costs() == COSTS
    assert len(calls) == 2


def test_calibration_uses_every_kind_of_operation():
    used = set()
    for graph, sampler in costs.calibration():
        used |= {kind for kind, count in sampler.operations(graph).items() if count}
    assert used == set(KINDS)


def test_the_last_line_names_infer():
    last = str(mg.explain(ZOO["potts"], COSTS)).splitlines()[-1]
    assert last == "For marginals and log Z with errors: mg.infer(graph), or minigibbs infer."


def test_the_footnote_says_which_scan_the_slowdown_is_about():
    text = str(mg.explain(ZOO["potts"], COSTS))
    assert "the spectral gap of the random\nscan" in text
    assert "mg.theory.systematic_slowdown" in text


def test_a_bound_of_no_use_is_not_called_a_guarantee():
    """A minibatched part with L = 40 and a small theta: the bound is astronomically large."""
    graph = mg.FactorGraph([2] * 400, [mg.Complete(400, 0.1, kind="ising")])
    loose = mg.PoissonGibbs(theta=0.01)
    assert loose.guaranteed_slowdown(graph) > 1e6
    assert "No guarantee of use" in loose.describe(graph)
    assert "Guaranteed" not in loose.describe(graph)
    assert "Guaranteed: at most 1.5 times" in mg.PoissonGibbs(slowdown=1.5).describe(graph)
    for row in mg.explain(mg.models.potts_rbf(), COSTS).rows:
        assert row.slowdown is None or row.slowdown <= 100


def test_a_condition_does_not_make_a_loose_bound_a_guarantee():
    """Strong fields fix the spins: MIN-Gibbs almost never redraws its estimates."""
    graph = mg.FactorGraph([2] * 2, [mg.Unary([0, 1], [0.0, 30.0])])
    sampler = mg.MinGibbs()
    assert sampler.proviso(graph).startswith("no guarantee of use")
    assert sampler.describe(graph).endswith("the bound on the slowdown is above 100.")
    mild = mg.FactorGraph([2] * 2, [mg.Ising([0], [1], 0.1)])
    assert "Spectral gap 0; slowdown" in sampler.describe(mild)


def test_nothing_is_left_to_explain():
    """Evidence on every variable, or a single value per variable."""
    pair = [mg.Potts([0], [1], 0.5)]
    clamped = mg.FactorGraph([2, 2], pair).condition({0: 1, 1: 0})
    for graph in (clamped, mg.FactorGraph([1, 1], pair)):
        explanation = mg.explain(graph, costs={"read": 1.0})
        assert explanation.recommended == "poisson-gibbs"
        assert "a fixed order" in str(explanation)
    assert "clamps every variable" in mg.explain(clamped, costs={"read": 1.0}).scan


def test_promises_are_those_of_the_split_that_runs():
    """Synchronized chains minibatch factors that a single chain evaluates."""
    for graph, bound in (
        (mg.models.curie_weiss(600, 2.0), 2.457),
        (mg.models.curie_weiss(1500, 5.0), 4.555),
    ):
        sampler = mg.PoissonGibbs()
        assert sampler.guaranteed_slowdown(graph) == 1
        assert sampler.guaranteed_slowdown(graph, lanes=64) == pytest.approx(bound, abs=1e-3)
        assert "plain Gibbs, with" in sampler.describe(graph)
        assert f"at most {bound:.3g} times slower" in sampler.describe(graph, lanes=64)
        assert mg.explain(graph, COSTS).guarantee.startswith("Guaranteed: every update is that of")
        for told in (
            mg.explain(graph, COSTS, scan="chromatic"),
            mg.explain(graph, COSTS, backend="cuda"),
        ):
            assert told.lanes > 1
            assert f"{bound:.3g} times s" in told.guarantee
            own = next(row for row in told.rows if row.sampler == "poisson-gibbs")
            assert own.slowdown == pytest.approx(bound, abs=1e-3)


def test_a_run_states_its_scan_its_lanes_and_what_is_proven():
    graph = mg.models.curie_weiss(600, 2.0)
    info = sample(graph, scan="chromatic", sweeps=20, chains=2, seed=1, progress=False).info
    assert (info.scan, info.lanes) == ("chromatic", 64)
    assert "at most 3.91 times smaller than for plain Gibbs (chromatic scan)" in info.guarantee
    assert "the spectral gap of a random scan would be at most 2.46" in info.guarantee
    # Mean of 24,000 Poisson counts: an error of 0.1 has a probability below 1e-8.
    assert info.minibatch_draws / info.updates == pytest.approx(6.656, abs=0.1)
    for scan, said in (
        ("random", "plain Gibbs, with the same spectral gap"),
        ("systematic", "plain Gibbs, with the same spectral gap"),
    ):
        info = sample(graph, scan=scan, sweeps=1, chains=1, progress=False).info
        assert (info.scan, info.lanes) == (scan, 1)
        assert said in info.guarantee
    drawn = mg.PoissonGibbs(theta=1.0, heavy=0)
    info = sample(graph, drawn, scan="random", sweeps=1, chains=1, progress=False).info
    assert info.guarantee.endswith("(spectral gap, random scan).")
    info = sample(graph, drawn, scan="shuffled", sweeps=1, chains=1, progress=False).info
    assert info.guarantee.startswith("No guarantee for the shuffled scan")


def test_tempering_states_its_lanes_and_that_it_has_no_guarantee():
    run = sample(mg.models.ising_lattice(4, 0.3), mg.Tempering(), sweeps=3, progress=False)
    assert (run.info.scan, run.info.lanes, run.info.guarantee) == ("own", 2, "No guarantee.")


@pytest.mark.parametrize(
    "wrong", [{"scan": "sideways"}, {"backend": "abacus"}, {"backend": "cuda", "scan": "own"}]
)
def test_explain_refuses_what_no_run_can_do(wrong):
    with pytest.raises(mg.SampleError, match="must be one of"):
        mg.explain(mg.models.ising_lattice(4, 0.3), COSTS, **wrong)


def test_updates_are_timed_for_half_a_second_at_most(monkeypatch):
    """A trial of a day would otherwise time updates for hours."""
    asked = []

    def refuse(*args, **options):
        raise StopError

    monkeypatch.setattr(trials, "time_updates", lambda *_, seconds: asked.append(seconds) or 1e-6)
    monkeypatch.setattr(trials, "sample", refuse)
    trials.try_samplers(ZOO["potts"], 86_400.0)
    assert asked
    assert max(asked) <= 0.5
