"""Draws of chosen variables equal those of a run that records all, in every output."""

from dataclasses import replace

import numba
import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.random import streams
from minigibbs.results import report
from minigibbs.results.report.beliefs import beliefs
from minigibbs.running.backends.cpu import CpuGroup
from minigibbs.running.request import Options
from minigibbs.system import files, memory
from tests.cli.test_cli import command, one_line  # noqa: F401
from tests.harness import sample, sample_until
from tests.results.test_run_files import EVERYTHING, described
from tests.running.test_checkpoint import CHECKPOINT, reseal
from tests.system.test_files import members, npy, rewrite
from tests.zoo import IMPLICIT, ZOO

CHOSEN = [5, 0, 3]
OPTIONS = {"updates": 600, "thin": 7, "seed": 7, "record": EVERYTHING, "progress": False}


def both(graph=ZOO["mixed"], chosen=CHOSEN, **options):
    """Make a run that records all draws, and one that records some."""
    options = {**OPTIONS, **options}
    return sample(graph, **options), sample(graph, record_variables=chosen, **options)


def same_but_for_draws(whole, some, chosen=CHOSEN):
    assert some.drawn.tolist() == chosen
    np.testing.assert_array_equal(some.draws, whole.draws[:, :, chosen])
    assert some.draws.dtype == whole.draws.dtype
    for name in ("clock", "counts", "energy", "error"):
        np.testing.assert_array_equal(getattr(some, name), getattr(whole, name))


def test_the_draws_are_those_of_a_run_that_keeps_all():
    whole, some = both()
    same_but_for_draws(whole, some)
    assert some.draws.shape == (4, 600 // 7, 3)
    assert (some.draws != some.draws[:, :1]).any()  # guards the lines above: something changes
    assert whole.drawn.tolist() == list(range(6))


def test_a_variable_clamped_by_evidence_can_be_chosen():
    graph = ZOO["evidence"]
    clamped, free = np.argmax(graph.evidence >= 0), np.argmax(graph.evidence < 0)
    chosen = [int(clamped), int(free)]
    same_but_for_draws(*both(graph, chosen), chosen)


def test_a_graph_that_is_all_clamped():
    graph = ZOO["mixed"].condition({0: 1, 1: 0, 2: 2, 3: 4, 4: 0, 5: 1})
    whole, some = both(graph)
    same_but_for_draws(whole, some)
    assert (some.draws == [1, 1, 4]).all()


def test_a_model_that_is_never_stored():
    graph = IMPLICIT["kernel"]
    same_but_for_draws(*both(graph, [2, 1], record=("marginals", "draws")), [2, 1])


def test_by_name_and_by_number():
    chosen = ["wet", 0, np.int64(1)]
    whole, some = both(described(), chosen)
    same_but_for_draws(whole, some, [2, 0, 1])
    _, some = both(described(), np.array([2, 1]))
    np.testing.assert_array_equal(some.draws, whole.draws[:, :, [2, 1]])
    _, some = both(chosen=["x5", "x0"])  # the default names of variables
    assert some.drawn.tolist() == [5, 0]


def test_draws_of_a_variable():
    whole, some = both(described(), ["wet", "sky"])
    for run in (whole, some):
        np.testing.assert_array_equal(run.draws_of("sky"), whole.draws[:, :, 1])
        np.testing.assert_array_equal(run.draws_of(2), whole.draws[:, :, 2])
    with pytest.raises(mg.SampleError, match=r"no draws of variable 0 \('height'\).*Record"):
        some.draws_of("height")
    with pytest.raises(mg.GraphError, match="unknown variable 'rain'"):
        some.draws_of("rain")
    without = sample(described(), **{**OPTIONS, "record": "energy"})
    assert without.drawn.tolist() == []
    with pytest.raises(mg.SampleError, match="kept no draws"):
        without.draws_of("sky")
    assert "draws of 2," in repr(some)
    assert "draws," in repr(whole)


ERRORS = {
    "unknown name": (["sky", "rain"], mg.GraphError, "unknown variable 'rain': no such name"),
    "too large": ([3], mg.GraphError, "unknown variable 3: the graph has variables 0 to 2"),
    "negative": ([-1], mg.GraphError, "unknown variable -1"),
    "a number with a point": ([1.0], mg.SampleError, r"got 1\.0 \(float\) at position 0"),
    "a truth value": ([True], mg.SampleError, "got True at position 0"),
    "a list": ([[1]], mg.SampleError, r"got \[1\] \(list\) at position 0"),
    "twice": ([1, 0, "sky"], mg.SampleError, r"holds variable 1 \('sky'\) twice"),
    "none": ([], mg.SampleError, "at least one; by default all are kept"),
    "a bare name": ("sky", mg.SampleError, r"got 'sky' \(str\); write \['sky'\] for a list"),
    "a bare number": (1, mg.SampleError, r"got 1 \(int\); write \[1\] for a list"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_choices_that_will_not_do_are_refused_before_any_sampling(case):
    chosen, kind, message = ERRORS[case]
    options = {"record": "draws", "progress": False, "record_variables": chosen}
    with pytest.raises(kind, match=message):
        sample(described(), updates=10**15, thin=10**12, **options)
    with pytest.raises(kind, match=message):
        sample_until(described(), **options)


def test_a_choice_compiles_nothing_anew():
    graph, kinds, data = ZOO["mixed"], set(), mg.PoissonGibbs().prepare(ZOO["mixed"])
    frozen = np.array(CHOSEN, np.int32)  # like in some received messages
    frozen.flags.writeable = False
    for variables in (None, np.array(CHOSEN, np.int32), frozen):
        plan = replace(Options(record="draws").plan(graph, 60, 1), variables=variables)
        group = CpuGroup(plan, data, np.zeros(6, np.uint8), streams(0, 1)[0])
        kinds.add(numba.typeof(group.recorder))
    assert len(kinds) == 1


def test_a_choice_without_draws_is_refused():
    with pytest.raises(mg.SampleError, match='add "draws", or leave variables out'):
        sample(described(), record_variables=["sky"])
    with pytest.raises(mg.SampleError, match='add "draws"'):
        sample_until(described(), record_variables=["sky"])


def test_only_the_draws_that_are_kept_need_memory(monkeypatch):
    graph = mg.models.ising_lattice(side=100, beta=0.2)
    options = {"sweeps": 100, "chains": 2, "record": "draws", "progress": False}
    monkeypatch.setattr(memory, "available", lambda: 1_500_000)  # all draws need 2,000,000
    with pytest.raises(mg.TooLargeError, match=r"fewer chains.*variables"):
        sample(graph, **options)
    assert sample(graph, **options, record_variables=[7]).draws.shape == (2, 100, 1)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.mgr"
    both()[1].save(path)
    return path


def test_saved_and_loaded(saved):
    whole, some = both()
    again = mg.load(saved)
    same_but_for_draws(whole, again)
    assert again.summary().value_ess == some.summary().value_ess


def test_a_run_that_keeps_all_is_saved_as_ever(tmp_path):
    """Files of earlier versions, without a list of variables, are still loaded."""
    whole, shuffled = both(chosen=[1, 2, 3, 4, 5, 0])
    whole.save(tmp_path / "run.mgr")
    assert "drawn.npy" not in members(tmp_path / "run.mgr")
    assert mg.load(tmp_path / "run.mgr").drawn.tolist() == list(range(6))
    shuffled.save(tmp_path / "run.mgr")
    again = mg.load(tmp_path / "run.mgr")
    np.testing.assert_array_equal(again.draws_of(0), whole.draws[:, :, 0])


BAD = {
    "twice": np.array([5, 0, 5], np.int32),
    "too large": np.array([5, 0, 6], np.int32),
    "negative": np.array([5, 0, -1], np.int32),
    "too few": np.array([5, 0], np.int32),
    "of no type": np.array([5.0, 0.0, 3.0]),
    "of two axes": np.array([[5, 0, 3]], np.int32),
    "a number": np.array(5, np.int32),
    "out of a smaller domain": np.array([5, 3, 0], np.int32),  # 3 has 5 values, 0 has 2
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_runs_are_refused(saved, case):
    rewrite(saved, {"drawn.npy": npy(BAD[case])})
    with pytest.raises(mg.FormatError, match=r"run\.mgr"):
        mg.load(saved)


def test_a_file_with_a_choice_and_no_draws_is_refused(saved):
    rewrite(saved, {"draws.npy": None})
    with pytest.raises(mg.FormatError, match="no draws"):
        mg.load(saved)


def test_resumed_the_choice_stays(tmp_path):
    whole = sample(ZOO["mixed"], **OPTIONS)
    options = {**OPTIONS, "updates": 251, "checkpoint": tmp_path / "run"}
    sample(ZOO["mixed"], record_variables=CHOSEN, **options)
    same_but_for_draws(whole, mg.resume(tmp_path / "run", updates=349, progress=False))
    same_but_for_draws(whole, mg.resume(tmp_path / "run", progress=False))


@pytest.mark.parametrize(
    "case",
    ["twice", "too large", "negative", "of no type", "of two axes", "a number", "without draws"],
)
def test_tampered_checkpoints_are_refused(tmp_path, case):
    options = {**OPTIONS, "updates": 60, "checkpoint": tmp_path / "run"}
    sample(ZOO["mixed"], record_variables=CHOSEN, **options)
    path = tmp_path / "run" / "run.npz"
    plan = files.read_arrays(path, CHECKPOINT)[0]["plan"]
    change = {"variables": BAD.get(case)}
    if case == "without draws":
        change = {"plan": {**plan, "kept": ["energy"]}}
    reseal(path, CHECKPOINT, **change)
    with pytest.raises(mg.FormatError):
        mg.resume(tmp_path / "run", progress=False)


def test_on_processes_and_resumed_there(tmp_path):
    whole = sample(ZOO["mixed"], **OPTIONS)
    options = {**OPTIONS, "updates": 300, "executor": "processes", "checkpoint": tmp_path / "run"}
    sample(ZOO["mixed"], record_variables=CHOSEN, threads=1, **options)
    longer = mg.resume(tmp_path / "run", updates=300, executor="processes", progress=False)
    same_but_for_draws(whole, longer)


def test_arviz_names_the_variables_that_were_kept():
    whole, some = both(described(), ["wet", "sky"])
    tree = some.to_arviz(indicators=True)["posterior"]
    assert tree["x"].coords["node"].values.tolist() == ["wet", "sky"]
    np.testing.assert_array_equal(tree["x"].sel(node="sky"), whole.draws[:, :, 1])
    events = ["wet=10", "wet=20", "sky=blue", "sky=gray", "sky=black"]
    assert tree["indicator"].coords["event"].values.tolist() == events
    gray = tree["indicator"].sel(event="sky=gray")
    np.testing.assert_array_equal(gray, whole.draws[:, :, 1] == 1)


def stuck_pair():
    """Return a graph: variables 0 and 1 never change, and variable 2 is independent of them."""
    factors = [mg.Ising([0], [1], 30.0), mg.Unary([2], [0.0, 0.5])]
    return mg.FactorGraph([2] * 3, factors, names=["a", "b", "c"])


STARTS = [[0, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 0]]


def test_the_worst_variable_is_named_rightly():
    options = {"start": STARTS, "record": "draws", "updates": 900, "thin": 3}
    _, some = both(stuck_pair(), [2, 1], **options)
    assert (some.summary().worst_variable, some.summary().value_rhat) == ("b", np.inf)
    _, some = both(stuck_pair(), [2], **options)
    assert some.summary().worst_variable == "c"
    assert some.summary().value_rhat < 1.05


def test_sample_until_looks_at_the_variables_that_are_kept():
    options = {"start": STARTS, "seed": 1, "progress": False, "record": "draws"}
    run = sample_until(stuck_pair(), ess=100, record_variables=["c"], **options)
    assert run.info.ended == "converged"
    assert run.draws.shape[2] == 1
    whole = sample(stuck_pair(), updates=int(run.clock[0]), thin=run.info.thin, **options)
    np.testing.assert_array_equal(run.draws, whole.draws[:, :, [2]])
    run = sample_until(stuck_pair(), record_variables=["c", "a"], max_time=0.3, **options)
    assert run.info.ended == "time"


def test_a_report_of_draws_alone_tells_of_what_was_kept():
    whole, some = both(described(), ["wet", "height"], record="draws")
    known, full = beliefs(some)[1], beliefs(whole)[1]
    assert [known.domains.name(v) for v in range(2)] == ["wet", "height"]
    for place, variable in enumerate((2, 0)):
        np.testing.assert_array_equal(known.marginal(place), full.marginal(variable))
        np.testing.assert_array_equal(known.by_chain(place), full.by_chain(variable))
    html = report.render(some)
    assert "of the 2 of 3 variables whose draws were kept" in html
    assert "height" in html
    assert "sky" not in html
    assert "sky" in report.render(whole)  # guards the line above


def test_a_report_of_all_draws_in_another_order():
    whole, some = both(described(), ["wet", "height", "sky"], record="draws")
    np.testing.assert_array_equal(
        beliefs(some)[1].marginals.pooled, beliefs(whole)[1].marginals.pooled
    )
    assert report.render(some, shape=(1, 3)).count("<img") == report.render(
        whole, shape=(1, 3)
    ).count("<img")


def test_a_report_of_marginals_and_some_draws():
    """R-hat is of variables with draws; all variables are listed if chains disagree."""
    whole, some = both(chosen=[3, 0])
    found = {one.variable: one for one in some.judged}
    assert set(found) == {0, 3}
    wanted = {one.variable: one for one in whole.judged}
    assert all(found[variable] == wanted[variable] for variable in found)
    spread = beliefs(some)[1].marginals.spread
    by_spread = sorted((v for v in range(6) if spread[v] > 0), key=lambda v: -spread[v])
    assert beliefs(some)[1].least_agreed(6) == by_spread
    assert "draws, which were kept of 2 of 6 variables" in report.render(some)


def test_a_report_of_a_lattice_without_all_of_its_draws():
    graph = mg.models.ising_lattice(side=3, beta=0.1)
    whole, some = both(graph, [4, 8], record="draws")
    assert "Map of" in report.render(whole, shape=(3, 3))
    assert "Map of" not in report.render(some, shape=(3, 3))


def test_a_good_run_says_how_many_variables_were_checked():
    graph = mg.FactorGraph([2] * 3, [mg.Unary([0, 1, 2], np.zeros((3, 2)))])
    _, some = both(graph, [1], sweeps=2000, updates=None, thin=1, record="draws")
    assert "the 1 of 3 variables whose draws were kept" in report.render(some)


@pytest.mark.parametrize("until", [[], ["--until", "ess=50"]])
def test_command_line(command, tmp_path, until):  # noqa: F811
    mg.write(described(), tmp_path / "model.mg")
    length = until or ["--sweeps", 30]
    code, _, err = command(
        *["sample", "model.mg", "--record", "draws", "--variables", "wet, 0", *length],
        *["--seed", 3, "--out", "run.mgr", "-q"],
    )
    assert code == 0, err
    run = mg.load(tmp_path / "run.mgr")
    assert run.drawn.tolist() == [2, 0]


def test_command_line_errors(command, tmp_path):  # noqa: F811
    mg.write(described(), tmp_path / "model.mg")
    code, _, err = command("sample", "model.mg", "--variables", "sky")
    assert code == 2
    assert "add draws to --record" in one_line(err)
    code, _, err = command("sample", "model.mg", "--record", "draws", "--variables", "sky,rain")
    assert code == 2
    assert "unknown variable 'rain'" in one_line(err)
    code, _, err = command("sample", "model.mg", "--record", "draws", "--variables", ",")
    assert code == 2
    assert "at least one" in one_line(err)
