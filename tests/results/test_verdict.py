"""The verdict: worse runs get worse verdicts, and report and summary agree."""

import dataclasses
import html
import itertools
import json
import math
import re

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.results import report
from minigibbs.results.run import Info, Run
from minigibbs.results.verdict import LEVELS, findings, warnings_within_infer
from tests.harness import sample
from tests.zoo import ZOO

RECORDS = 500


def synthetic(energy=None, value=None, chains=4, ended="length", records=RECORDS, **changes):
    """Create a run of two spins with these R-hats, or None for quantities that were not recorded.

    Chains differ in pairs. For an R-hat of r, the variance of their means is r^2 - 1 times the
    variance within a chain.
    """
    sign = np.where(np.arange(chains) % 2, 1.0, -1.0)[:, None]
    domains = mg.FactorGraph([2, 2], [], names=["a", "b"]).domains
    counts = series = None
    if value is not None:
        gain = value**2 - 1
        off = 0.5 if math.isinf(gain) else math.sqrt(0.25 * gain / (4 / 3 + gain))
        ones = np.rint(10**6 * (0.5 + off * sign)).astype(np.int64)
        counts = np.hstack([10**6 - ones, ones, np.full((chains, 2), 500_000)])
    if energy is not None:
        noise = np.random.default_rng(1).normal(size=(chains, records))
        noise -= noise.mean(axis=1, keepdims=True)
        series = noise + sign * math.sqrt(0.75 * (energy**2 - 1))
    clock = np.full(chains, 10**6)
    info = Info(
        sampler="Gibbs()",
        chains=chains,
        updates=int(clock.sum()),
        warmup=0,
        scan="random",
        thin=10**6 // records,
        seed=1,
        seconds=1.0,
        updates_per_second=1e6,
        factor_evaluations=0,
        minibatch_draws=0,
        acceptance=1.0,
        changed=0.5,
        interrupted=ended in ("interrupted", "terminated"),
        version="test",
        ended=ended,
    )
    return Run(domains, info, clock, counts, None, series, None, **changes)


def boxes(run):
    """Return the levels and headlines of the report's findings, from the top."""
    return re.findall(r'class="finding (\w+)".*?<h2>(.*?)</h2>', report.render(run))


@pytest.mark.parametrize("energy", [1.05, 1.3])
@pytest.mark.parametrize("value", [1.05, 1.5, math.inf])
def test_synthetic_runs_are_what_they_are_said_to_be(energy, value):
    """Guard of the tests below: the R-hat of ranks is close to the R-hat of numbers."""
    summary = synthetic(energy, value).summary()
    assert summary.energy_rhat == pytest.approx(energy, abs=0.05)
    assert summary.value_rhat == pytest.approx(value, rel=1e-3)
    assert summary.worst_variable == "a"


def test_the_worse_of_two_findings_is_told_first():
    """Version 0.1 reported that this run had not quite converged, based on its energy."""
    run = synthetic(energy=1.05, value=1.5)
    assert [level for level, _ in boxes(run)] == ["bad", "warning"]
    first, second = run.summary().warnings
    assert "disagree on a (R-hat 1.500 > 1.04)" in first
    assert "not to be trusted" in first
    assert "disagree on the energy" in second


def test_chains_in_different_modes_are_not_sent_to_longer_runs():
    """Energies that agree beside marginals that do not: below a critical point, for example."""
    (warning,) = synthetic(energy=1.0, value=5.0).summary().warnings
    assert "probably in different modes, and longer runs hardly help; use mg.infer or" in warning
    for run in (synthetic(energy=1.3, value=5.0), synthetic(energy=1.0, value=1.5)):
        assert not any("different modes" in one for one in run.summary().warnings)


ENERGIES = (None, 1.0, 1.05, 1.3)
VALUES = (None, 1.0, 1.05, 1.15, 1.5, math.inf)
ENDS = ("length", "converged", "time", "interrupted", "terminated", "stopped", "running")


@pytest.mark.parametrize("records", [2, 20, RECORDS])
@pytest.mark.parametrize("chains", [1, 4])
def test_report_and_summary_never_differ_in_level(chains, records):
    for energy, value, ended in itertools.product(ENERGIES, VALUES, ENDS):
        run = synthetic(energy, value, chains, ended, records)
        summary, shown = run.summary(), boxes(run)
        found = findings(run, summary)
        assert [level for level, _ in shown] == [finding.level for finding in found]
        assert [one.warning for one in found if one.level not in ("good", "fair")] == list(
            summary.warnings
        )
        assert all(summary.warnings), "a finding without words for the terminal"
        assert (shown[0][0] in ("good", "fair")) == (summary.warnings == ())
        assert [LEVELS.index(level) for level, _ in shown] == sorted(
            LEVELS.index(level) for level, _ in shown
        )
        assert summary.warnings == tuple(json.loads(json.dumps(summary.to_dict()))["warnings"])


@pytest.mark.parametrize("energy", ENERGIES)
def test_a_larger_rhat_is_never_judged_milder(energy):
    levels = [LEVELS.index(boxes(synthetic(energy, value))[0][0]) for value in VALUES[1:]]
    assert levels == sorted(levels, reverse=True)
    assert LEVELS[levels[-1]] == "bad"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"records": 3, "energy": 1.0}, "3 records of each chain"),
        ({}, "kept nothing"),
        ({"chains": 1, "energy": 1.0, "value": 1.0}, "a single chain"),
        ({"ended": "time", "energy": 1.0, "value": 1.0}, "time was up"),
        ({"ended": "terminated", "energy": 1.0, "value": 1.0}, "terminated"),
        ({"records": 20, "energy": 1.0, "value": 1.0}, "few independent draws"),
    ],
    ids=lambda part: str(part),
)
def test_what_is_missing_is_said(changes, words):
    run = synthetic(**changes)
    assert any(words in warning for warning in run.summary().warnings)
    assert boxes(run)[0][0] in ("unknown", "warning")


def test_models_with_implicit_factors_get_other_advice():
    """mg.infer would use the same sampler on them."""
    image = np.zeros((6, 6), np.uint8)
    graph = mg.models.dense_crf(image, probabilities=np.full((2, 6, 6), 0.5), compat=40.0)
    warnings = sample(graph, sweeps=200, chains=4, seed=1).summary().warnings
    assert any("start=" in text for text in warnings), warnings
    assert not any("mg.infer" in text for text in warnings)
    run = sample(graph, sweeps=200, chains=4, seed=1)
    assert not any("mg.infer" in finding.words for finding in findings(run, run.summary()))


MISSED = {"variable": "a", "size": 2, "share": 0.4}
TROUBLES = {  # and the advice in runs of `sample`, of `infer`, and for implicit factors in both
    "stands": (
        {"energy": 1.0, "value": 1.0, "changed": 0.0},
        ("use mg.infer", "or another sampler", "begin at another state", "give more time"),
    ),
    "hardly moves": (
        {"energy": 1.0, "value": 1.0, "changed": 0.01},
        ("check with mg.infer", "other samplers and seeds", "from other starts", "other seeds"),
    ),
    "apart": (
        {"energy": 1.5, "value": 1.0},
        ("or use mg.infer: updates", "or another sampler: updates", "start closer", "more time: u"),
    ),
    "missed": (
        {"energy": 1.0, "value": 1.0, "model": {"missed": MISSED}},
        ("or mg.Tempering()", "sampler=mg.Tempering()", "from other starts", "other seeds"),
    ),
    "phase": (
        {"energy": 1.0, "value": 1.0, "model": {"phase": MISSED}},
        ("or mg.Tempering()", "sampler=mg.Tempering()", "from other starts", "other seeds"),
    ),
    "zeros": (
        {"energy": 1.0, "value": 1.0, "model": {"reach": "split"}},
        ("use mg.infer", "or another sampler", "begin at another state", "give more time"),
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_advice_depends_on_the_reader(trouble):
    changes, advice = TROUBLES[trouble]
    model, moved = changes.get("model", {}), changes.get("changed", 0.5)
    synthetic_changes = {name: changes[name] for name in ("energy", "value")}
    for implicit in (False, True):
        run = synthetic(**synthetic_changes, model={"clamped": 0} | model | {"implicit": implicit})
        run = dataclasses.replace(run, info=dataclasses.replace(run.info, changed=moved))
        usual, within = advice[2:] if implicit else advice[:2]
        summary = run.summary()
        assert usual in summary.warnings[0]
        (first, *_) = warnings_within_infer(run, summary)
        assert within in first
        assert not re.search("mg.infer|start=|run longer", first)


def test_the_summary_says_what_was_recorded():
    graph = ZOO["ising"]
    shown = str(sample(graph, sweeps=10, warmup=0, chains=2, seed=1).summary())
    assert re.search(r"records +10 per chain, one every \d+ updates", shown), shown


def test_an_error_that_stopped_a_run_leaves_its_mark():
    assert boxes(synthetic(1.0, 1.0, ended="length"))[0][0] == "fair"
    assert boxes(synthetic(1.0, 1.0, ended="stopped"))[0][0] == "warning"


def test_draws_of_some_variables_get_one_verdict():
    """The report displays only the drawn chains; its verdict is that of the whole run."""
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 30.0)], names=list("abc"))
    for sweeps, variables in itertools.product((3, 30, 300), (["b"], ["c", "a"])):
        run = sample(
            graph,
            sweeps=sweeps,
            start=[[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]],
            record="draws",
            record_variables=variables,
            seed=1,
            progress=False,
        )
        found = findings(run, run.summary())
        assert [level for level, _ in boxes(run)] == [finding.level for finding in found]
        page = html.unescape(re.sub(r"<[^>]+>", "", report.render(run)))
        assert all(finding.words.replace("{}", finding.name or "") in page for finding in found)
        assert found[0].level == "bad"  # nothing moves, and chains differ
        assert found[0].name in (None, *variables)


def test_names_reach_the_terminal_escaped():
    graph = mg.FactorGraph(
        [2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 30.0)], names=["\x1b[31m", "b\nc", "\ud800"]
    )
    run = sample(graph, sweeps=50, seed=1, progress=False, start=[[0] * 3, [1] * 3], chains=2)
    assert run.summary().worst_variable == "\x1b[31m"
    text = str(run.summary())
    assert "\x1b" not in text
    assert r"disagree on \x1b[31m (R-hat infinite" in text
    assert r"infinite (\x1b[31m)" in text
    text.encode()


def test_the_call_that_makes_a_run_again_is_right():
    """The code on the page, run unchanged, gives the same draws."""
    graph = ZOO["potts"]
    for options in (
        {"sweeps": 30, "warmup": 2, "record": "draws", "thin": 2, "record_variables": [2, 0]},
        {"updates": 70, "record": ("marginals", "draws", "energy"), "scan": "shuffled"},
        {"sweeps": 10, "sampler": mg.MGPMH(batch=5.0), "record": "marginals"},
        {"sweeps": 10, "record": ()},
    ):
        run = sample(graph, seed=3, chains=2, progress=False, **options)
        page = report.render(run)
        code = re.search(r"<pre><code>(.*?)</code>", page, re.DOTALL)[1].replace("&quot;", '"')
        again = eval(code.replace("graph,", "graph, progress=False,"), {"mg": mg, "graph": graph})
        for name in ("clock", "counts", "kept_draws", "energy", "state", "drawn"):
            np.testing.assert_array_equal(getattr(run, name), getattr(again, name))
        assert dataclasses.replace(again.info, seconds=0, updates_per_second=0) == (
            dataclasses.replace(run.info, seconds=0, updates_per_second=0)
        )


@pytest.mark.parametrize("value", [1.15, 1.5, math.inf])
def test_a_short_run_is_not_said_to_mix_badly(value):
    """For every model, some R-hats of many variables are large after a few sweeps."""
    short = synthetic(value=value)
    short = dataclasses.replace(short, clock=np.full(4, 20))  # 10 sweeps of two variables
    (warning,) = short.summary().warnings
    assert "the run is short (10 sweeps per chain)" in warning
    assert "mix" not in warning
    assert boxes(short)[0] == ("bad", "The run is too short: do not use these numbers yet")
    assert "short" not in synthetic(value=value).summary().warnings[0]


def test_many_spins_for_ten_sweeps_are_merely_short():
    spins = mg.FactorGraph([2] * 4000, [mg.Ising(range(3999), range(1, 4000), 0.1)])
    run = mg.sample(spins, sweeps=10, seed=1, progress=False)
    assert run.summary().value_rhat > 1.2  # otherwise there is nothing to explain
    assert all("mix" not in warning for warning in run.summary().warnings)


@pytest.mark.parametrize("level", [2.0, 1.0, 0.0, -0.5, math.nan, math.inf, True, "0.9"])
def test_levels_of_intervals_are_probabilities(level):
    run = mg.sample(mg.FactorGraph([2], []), sweeps=20, seed=1, progress=False, observe="energy")
    with pytest.raises(mg.SampleError, match=r"level must (be between 0 and 1|be a number)"):
        run.interval(0, level)
    with pytest.raises(mg.SampleError, match=r"level must (be between 0 and 1|be a number)"):
        run.observables["energy"].interval(level)


def test_the_interval_of_a_single_chain_is_nan_with_a_warning():
    run = mg.sample(mg.FactorGraph([2], []), sweeps=20, chains=1, seed=1, progress=False)
    with pytest.warns(UserWarning, match="two chains or more"):
        assert np.isnan(run.interval(0)).all()


@pytest.mark.parametrize("scan", ["random", "chromatic"])
def test_weights_that_hide_others_in_rounding_are_warned_of(scan):
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1e16), mg.Unary([0], [[0.0, 0.3]])])
    run = mg.sample(graph, scan=scan, sweeps=50, seed=1, progress=False)
    assert any("rounding changes log-odds" in text for text in run.summary().warnings)


@pytest.mark.parametrize(
    ("sampler", "biased"),
    [
        (mg.LocalMinibatchGibbs(2), True),
        (mg.MinGibbs(estimator=mg.SubsetEstimator(3)), True),
        (mg.Tempering(mg.LocalMinibatchGibbs(2), levels=2), True),
        (mg.MinGibbs(batch=50), False),
        (mg.MinGibbs(estimator=mg.ExactEstimator()), False),
    ],
    ids=str,
)
def test_a_sampler_with_another_distribution_is_said_to_be_biased(sampler, biased, tmp_path):
    """No statistic of its chains shows that they do not have the distribution of the model."""
    run = mg.sample(ZOO["ising"], sampler, sweeps=50, chains=2, seed=1, progress=False)
    run.save(tmp_path / "run.npz")
    for one in (run, mg.load(tmp_path / "run.npz")):
        said = [text for text in one.summary().warnings if "biased" in text]
        assert len(said) == biased
        assert sampler.exact != biased
