"""Results of learning: files, pages, plots, the command line."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import minigibbs as mg
from minigibbs.cli.main import app
from tests.learning.models import mixed, some_rows


@pytest.fixture(scope="module")
def fit():
    graph = mixed()
    return mg.learn(graph, some_rows(graph), seed=1, steps=40, l2=0.05, progress=False)


def test_a_fit_comes_back_from_its_file(fit, tmp_path):
    for name in ("fit.mg", "fit.anything"):
        fit.save(tmp_path / name)
        read = mg.load(tmp_path / name)
        assert isinstance(read, mg.Fit)
        assert str(read) == str(fit)
        assert read.to_dict() == fit.to_dict()
        assert read.seed == fit.seed
        for key, series in fit.history.items():
            np.testing.assert_array_equal(read.history[key], series)
        np.testing.assert_array_equal(read.errors["J"], fit.errors["J"])
        assert read.graph.log_potential([0, 1, 2, 0]) == fit.graph.log_potential([0, 1, 2, 0])


@pytest.mark.parametrize("change", ["history.error", "data_moments", "deviations"])
def test_a_damaged_fit_is_refused(fit, tmp_path, change):
    from minigibbs.system import files

    path = tmp_path / "fit.mg"
    fit.save(path)
    header, arrays = files.read_arrays(path, "minigibbs-fit-1")
    arrays = dict(arrays) | {change: np.zeros(2)}
    files.write_arrays(path, header, arrays)
    with pytest.raises(mg.FormatError, match="damaged"):
        mg.load(path)


def test_it_says_what_was_learned(fit):
    text = str(fit)
    assert "method      pcd" in text
    assert "40 steps" in text
    assert "±" in text
    json.dumps(fit.to_dict())


def test_many_parameters_have_no_errors_and_say_so():
    size = 32
    graph = mg.FactorGraph([size, size], [mg.Table([0, 1], np.zeros((size, size)), name="t")])
    rows = np.random.default_rng(0).integers(0, size, (50, 2))
    fit = mg.learn(graph, rows, seed=1, steps=3, l2=1.0, chains=50, progress=False)
    assert fit.errors is None
    assert "±" not in str(fit)


def test_the_page_opens_anywhere(fit, tmp_path):
    fit.report(tmp_path / "fit.html", "Learned <b>")
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Learned &lt;b&gt;" in page
    assert "&#x27;J&#x27;[1]" in page
    assert "http:" not in page
    assert "https:" not in page


@pytest.mark.parametrize("ending", [".json", ".csv", ".html"])
def test_files_of_other_kinds_are_refused(fit, ending, tmp_path):
    with pytest.raises(mg.LearnError, match=rf"save does not write \{ending} files; use"):
        fit.save(tmp_path / f"fit{ending}")
    assert list(tmp_path.iterdir()) == []


def test_the_end_is_told_in_words(fit):
    steps = f"{fit.steps:,} steps"
    for ended, shown in {
        "steps": f"after all {steps}",
        "converged": f"converged after {steps}",
        "time": f"time limit after {steps}",
    }.items():
        assert dict(replace(fit, ended=ended).summary_rows())["ended"] == shown


def test_moments_are_drawn(fit, tmp_path):
    pytest.importorskip("matplotlib")
    (axes,) = fit.plot_moments(tmp_path / "moments.png").axes
    assert (tmp_path / "moments.png").read_bytes().startswith(b"\x89PNG")
    assert fit.plot_moments(axes=axes) is axes.figure
    points = axes.lines[1].get_xydata()
    assert len(points) == np.count_nonzero(~fit.graph.frame.fixed)
    assert np.abs(points[:, 0] - points[:, 1]).max() == pytest.approx(fit.error)


def run(*arguments):
    return CliRunner().invoke(app, ["learn", *map(str, arguments)])


def test_the_command_line_learns(tmp_path):
    graph = mg.FactorGraph(
        [2, 2],
        [mg.Ising([0], [1], 0.0, name="J")],
        names=["rain", "wet"],
        labels=["no", "yes"],
    )
    mg.write(graph, tmp_path / "model.mg")
    cells = ["rain,wet", "no,no", "yes,yes", "yes,", "0,1", "no,no"]
    (tmp_path / "rows.csv").write_text("\n".join(cells) + "\n")
    files = {"--out": "fit.mg", "--learned": "learned.mg", "--report": "fit.html"}
    extra = [part for key, name in files.items() for part in (key, tmp_path / name)]
    result = run(
        tmp_path / "model.mg", tmp_path / "rows.csv", "--method", "exact", "--json", *extra
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    # Three of four full rows agree; the half row has no information: tanh(J) = 1/2.
    assert found["parameters"]["J"][0] == pytest.approx(np.arctanh(0.5), abs=1e-5)
    learned = mg.read(tmp_path / "learned.mg")
    assert learned.parameters["J"][0] == found["parameters"]["J"][0]
    assert mg.load(tmp_path / "fit.mg").rows == 5
    assert (tmp_path / "fit.html").exists()
    np.save(tmp_path / "rows.npy", np.array([[0, 0], [1, 1], [0, 1], [0, 0]]))
    told = run(tmp_path / "model.mg", tmp_path / "rows.npy", "--method", "pseudo")
    assert "J           0.549" in told.stdout


def test_the_command_line_resumes(tmp_path):
    mg.write(mixed(), tmp_path / "model.mg")
    np.save(tmp_path / "rows.npy", some_rows(mixed()))
    path = tmp_path / "half.mgl"
    common = ["--seed", 1, "--l2", 0.1, "--quiet"]
    model, rows = tmp_path / "model.mg", tmp_path / "rows.npy"
    assert run(model, rows, "--steps", 10, "--checkpoint", path, *common).exit_code == 0
    told = run(model, "--resume", "--checkpoint", path, "--steps", 5, "--json", "--quiet")
    assert json.loads(told.stdout)["steps"] == 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.mg", "rows.txt"], "data are a .csv or .npy file"),
        (["model.mg", "--resume"], "give --checkpoint"),
        (["model.mg", "bad.csv"], "row 0: expected 2 values, got 1"),
    ],
)
def test_the_command_line_refuses(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mg.write(mixed(), "model.mg")
    (tmp_path / "bad.csv").write_text("x0,x1\n1\n")
    result = CliRunner().invoke(app, ["learn", *arguments])
    assert message in str(result.exception)


RING = [mg.Ising(range(6), [1, 2, 3, 4, 5, 0], 0.0, name="J", tied=0)]
FIELD = mg.Unary(range(6), [0.0, 0.0], name="b")
RING_TRUTH = {"J": 0.5, "b": [0.0, 0.5]}


def ring():
    """Return a ring with redundant fields: a constant added to both values changes nothing."""
    return mg.FactorGraph([2] * 6, [*RING, FIELD])


@pytest.mark.parametrize("method", ["pcd", "exact", "pseudo"])
def test_a_fit_that_is_cut_short_says_so(method):
    """The gap of the moments exceeds their noise; a fit that has converged does not warn."""
    graph = ring()
    rows = mg.exact_draws(graph.with_parameters(RING_TRUTH), 2000, seed=1)
    steps = {"pcd": 10, "exact": 1, "pseudo": 1}[method]
    with pytest.warns(UserWarning, match="the steps ended too early"):
        cut = mg.learn(graph, rows, method=method, steps=steps, seed=1, progress=False)
    assert abs(cut.parameters["J"][0] - 0.5) > 5 * cut.errors["J"][0]
    whole = mg.learn(graph, rows, method=method, seed=1, progress=False)
    assert whole.warnings == ()


@pytest.mark.parametrize("method", ["pcd", "exact", "pseudo"])
def test_redundant_parameters_are_named_and_contrasts_have_errors(method, tmp_path):
    graph = ring()
    rows = mg.exact_draws(graph.with_parameters(RING_TRUTH), 2000, seed=2)
    fit = mg.learn(graph, rows, method=method, seed=1, progress=False)
    assert fit.not_determined == ["a constant added to b"]
    assert "a constant added to b" in str(fit)
    value, error = fit.contrast({"b": [-1.0, 1.0]})
    assert 0.01 < error < 0.03
    assert abs(value - 0.5) < 5 * error  # false alarm below 1e-6
    assert fit.contrast({"b": [0.0, 1.0]})[1] == np.inf
    assert fit.contrast({"J": 1.0})[1] == pytest.approx(fit.errors["J"][0])
    fit.save(tmp_path / "a.fit")
    again = mg.load(tmp_path / "a.fit")
    assert again.contrast({"b": [-1.0, 1.0]}) == (value, error)
    assert (again.not_determined, again.error_kind) == (fit.not_determined, fit.error_kind)


def test_errors_are_called_what_they_are():
    graph = ring()
    rows = mg.exact_draws(graph.with_parameters(RING_TRUTH), 200, seed=1)

    def kind(**options):
        return mg.learn(graph, rows, seed=1, progress=False, **options).error_kind

    assert "maximum likelihood" in kind(method="exact")
    assert "pseudo-likelihood" in kind(method="pseudo")
    assert "posterior" in kind(method="exact", prior={"J": 0.1})
    assert "penalized" in kind(method="exact", l2=0.1)


@pytest.mark.parametrize("method", ["exact", "pseudo"])
def test_intervals_of_contrasts_cover_the_truth(method):
    """Over 40 data sets, 95% of the intervals of a difference cover it, and intervals are not wide.

    The standard deviation of the share is 3.4%, and 5 of those are allowed (false alarm 1e-5).
    """
    graph = ring()
    truth = graph.with_parameters(RING_TRUTH)
    covered = []
    for seed in range(40):
        rows = mg.exact_draws(truth, 400, seed=seed)
        fit = mg.learn(graph, rows, method=method, seed=1, progress=False)
        value, error = fit.contrast({"b": [-1.0, 1.0]})
        covered.append(abs(value - 0.5) < 1.96 * error)
    assert np.mean(covered) > 0.78
