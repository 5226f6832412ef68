"""`minigibbs reproduce`: the paper's settings, resuming, bad input, and the table's exponents."""

import csv
import json
import sys

import numba
import numpy as np
import pytest
from scipy.stats import chisquare

import minigibbs as mg
from minigibbs import theory
from minigibbs.cli import main as cli
from minigibbs.paper import curves, estimator, figures, reproduce, table, theorems
from minigibbs.paper.curves import FIGURES, Settings
from tests.harness import FALSE_ALARM

SMALL = Settings(updates=500, seeds=2)


@pytest.fixture
def short(monkeypatch):
    """Shorten curves to a few updates, without time measurements."""
    monkeypatch.setattr(reproduce, "QUICK_UPDATES", SMALL.updates)
    monkeypatch.setattr(curves, "time_updates", lambda graph, sampler, clock: 1e-6)


@pytest.fixture
def undrawn(monkeypatch):
    """Plot nothing."""
    monkeypatch.setattr(figures, "draw", lambda name, results, folder: [])


@pytest.fixture
def counted(monkeypatch):
    """Return the names of curves as they are computed."""
    names, compute = [], curves.compute

    def count(curve, settings, progress):
        names.append(curve.name)
        return compute(curve, settings, progress)

    monkeypatch.setattr(curves, "compute", count)
    return names


def every_curve():
    return {curve.name: curve for figure in FIGURES.values() for curve in figure}


# The estimator


@numba.njit
def _many(function, model, x, stream, parameters, out):
    for k in range(len(out)):
        out[k] = function(model, x, stream, parameters)


@pytest.mark.parametrize("batch", [0.4, 6.0])  # weak and strong pairs, and only strong ones
def test_the_fast_estimator_has_the_distribution_of_the_papers(batch):
    graph = mg.FactorGraph([2] * 3, [mg.Potts([0, 1, 2], [1, 2, 0], [0.9, 0.05, 0.6])])
    chosen = estimator.pair_estimator(graph, batch)
    x, stream = np.array([1, 1, 1], dtype=np.uint8), np.array([1, 2, 3, 4], dtype=np.uint64)
    drawn = np.empty(200_000)
    _many(chosen.function, graph.packed, x, stream, chosen.parameters, drawn)
    points, chances = theory.estimate_distribution(
        theory.Enumeration(graph), mg.PoissonEstimator(batch), 7
    )
    places = np.abs(drawn[:, None] - points).argmin(axis=1)
    np.testing.assert_allclose(points[places], drawn, atol=1e-9)
    seen = np.bincount(places, minlength=len(points))
    likely = chances * len(drawn) > 10
    observed = [*seen[likely], seen[~likely].sum()]
    expected = [*chances[likely], chances[~likely].sum()]
    assert chisquare(observed, np.array(expected) * len(drawn)).pvalue > FALSE_ALARM


def test_the_fast_estimator_refuses_what_it_cannot_do():
    for factors in ([mg.Potts([0], [1], -1.0)], [mg.Unary([0], [[0.0, 1.0]])]):
        with pytest.raises(mg.SampleError, match="pair that attracts"):
            estimator.pair_estimator(mg.FactorGraph([2, 2], factors), 1.0)


# The figures


def test_settings_are_those_of_the_paper():
    ising, potts = curves.paper_model("ising"), curves.paper_model("potts")
    assert (len(ising), len(potts), potts.stats.max_domain) == (400, 400, 10)
    assert round(ising.stats.local_energy, 2) == 2.21
    assert round(potts.stats.total_energy, 1) == 957.1
    assert (Settings().updates, Settings().seeds) == (1_000_000, 5)
    made = {
        name: curve.sampler(curves.paper_model(curve.model))
        for name, curve in every_curve().items()
    }
    batches = [made[f"potts-mgpmh-{share}"].batch for share in ("0.5", "1", "2", "4")]
    np.testing.assert_allclose(batches, potts.stats.local_energy**2 * np.array([0.5, 1, 2, 4]))
    assert [made[f"ising-local-{b}"].batch for b in (20, 40, 80, 160)] == [20, 40, 80, 160]
    for model, name in ((ising, "ising-min-gibbs"), (potts, "potts-double-min")):
        for share in (0.25, 1, 4):
            gain = made[f"{name}-{share:g}"].estimator.parameters[-1]
            ratio = 1 / (share * model.stats.total_energy)  # Psi / lambda
            assert gain == pytest.approx(np.log1p(ratio))
    assert made["potts-double-min-1"].batch == pytest.approx(potts.stats.local_energy**2)
    assert made["potts-poisson-gibbs-1"].theta == pytest.approx(potts.stats.local_energy)


def test_figures_show_what_the_paper_compares_with():
    """DoubleMIN approaches MGPMH at L^2; the paper's Gibbs costs O(D Delta)."""
    names = {figure: [curve.name for curve in curves] for figure, curves in FIGURES.items()}
    assert "potts-mgpmh-1" in names["fig2c"]
    assert "potts-gibbs-textbook" in names["fig2b"]


def test_a_curve_is_the_error_of_the_running_marginals():
    curve = every_curve()["potts-gibbs"]
    result = curves.compute(curve, SMALL, progress=False)
    run = mg.sample(
        curves.paper_model("potts"),
        mg.Gibbs(),
        updates=500,
        chains=2,
        seed=curves.SEED,
        start=np.zeros(400, dtype=int),
        warmup=0,
        progress=False,
    )
    by_hand = np.sqrt(((run.chain_marginals - 0.1) ** 2).sum(axis=2)).mean(axis=1)
    np.testing.assert_allclose(result.error[:, -1], by_hand)
    assert result.error[0, 0] == pytest.approx(np.sqrt(0.9), abs=0.01)  # all in one state
    assert result.seconds_per_update > 0


def test_figures_are_drawn_and_every_curve_is_in_the_csv(short, tmp_path):
    made = reproduce.reproduce("fig2b", tmp_path, quick=True, progress=False)
    names = {path.name for path in made.files}
    assert names == {
        "fig2b.png",
        "fig2b.svg",
        "fig2b-seconds.png",
        "fig2b-seconds.svg",
        "fig2b.csv",
    }
    assert (tmp_path / "fig2b.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "fig2b-seconds.svg").read_bytes()
    rows = list(csv.DictReader((tmp_path / "fig2b.csv").read_text().splitlines()))
    assert {row["curve"] for row in rows} == {curve.name for curve in FIGURES["fig2b"]}
    assert len(rows) == 7 * 500
    for row in rows[::97]:
        seeds = [float(row["seed_0"]), float(row["seed_1"])]
        assert float(row["mean"]) == pytest.approx(np.mean(seeds), rel=1e-4)
        assert (float(row["low"]), float(row["high"])) == (min(seeds), max(seeds))


def test_a_second_call_runs_nothing_again(short, undrawn, counted, tmp_path):
    first = reproduce.reproduce("fig2a", tmp_path, quick=True, progress=False)
    assert len(counted) == 6
    again = reproduce.reproduce("fig2a", tmp_path, quick=True, progress=False)
    assert len(counted) == 6
    assert again.figures == first.figures
    reproduce.reproduce("fig2a", tmp_path, quick=True, seeds=1, progress=False)
    assert len(counted) == 12  # other settings
    reproduce.reproduce("fig2a", tmp_path, quick=True, fresh=True, progress=False)
    assert len(counted) == 18


def test_damaged_curves_are_run_again(short, undrawn, counted, tmp_path):
    first = reproduce.reproduce("fig2a", tmp_path, quick=True, progress=False)
    kept = sorted((tmp_path / "curves").iterdir())
    kept[0].write_bytes(b"nonsense")
    kept[1].write_bytes(kept[1].read_bytes()[:-100])
    kept[2].write_bytes(kept[3].read_bytes())  # another curve's file
    del counted[:]
    again = reproduce.reproduce("fig2a", tmp_path, quick=True, progress=False)
    assert sorted(counted) == sorted(path.name.rsplit("-", 1)[0] for path in kept[:3])
    for one, other in zip(first.figures["fig2a"], again.figures["fig2a"], strict=True):
        assert one["error"] == other["error"]


def interrupt_at(monkeypatch, number):
    compute, made = curves.compute, []

    def interrupted(*arguments):
        if len(made) == number:
            raise KeyboardInterrupt
        made.append(None)
        return compute(*arguments)

    monkeypatch.setattr(curves, "compute", interrupted)


def test_an_interrupted_call_resumes_at_its_curve(short, undrawn, counted, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            reproduce.reproduce("fig2a", tmp_path, quick=True, progress=False)
    done = list(counted)
    assert len(done) == 4
    reproduce.reproduce("fig2a", tmp_path, quick=True, progress=False)
    assert sorted(counted) == sorted(curve.name for curve in FIGURES["fig2a"])


# The table


@pytest.mark.parametrize(
    ("row", "family"),
    table.cells(),
    ids=lambda part: getattr(part, "name", getattr(part, "grows", "")),
)
def test_counts_grow_as_claimed(row, family):
    """Exponents are within 0.1; counts vary by a percent between seeds, and slopes by 0.01."""
    cell = table.measure(row, family, stretch=0)
    assert cell.exponent == pytest.approx(cell.claimed, abs=0.1)


@pytest.mark.parametrize("family", table.STANDARD.values(), ids=lambda family: family.grows)
def test_one_quantity_grows_and_the_others_stay(family):
    for member, value in zip(family.members(), family.values, strict=True):
        stats = member.graph().stats
        assert stats.max_degree == member.Delta
        assert stats.max_domain == member.D
        assert stats.local_energy == pytest.approx(member.L)
        assert stats.total_energy == pytest.approx(member.Psi)
        assert getattr(member, family.grows) == value
        assert member.Psi * member.L / member.Delta < 1  # rates below 1, for MIN-Gibbs as well


def test_a_wrong_claim_would_be_seen():
    cell = table.measure(table.ROWS[0], table.STANDARD["Delta"], stretch=0)
    assert abs(cell.exponent - 2) > 0.1


# The command


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigibbs", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return (caught.value.code or 0, *capsys.readouterr())

    return call


def test_everything_at_once(short, command, monkeypatch, tmp_path):
    """The test uses fewer curves, rows and graphs than the command, to be fast."""
    for name in ("fig1", "fig2a", "fig2b", "neighbors"):
        monkeypatch.delitem(FIGURES, name)
    monkeypatch.setitem(FIGURES, "fig2c", FIGURES["fig2c"][2:])
    monkeypatch.setattr(table, "ROWS", table.ROWS[:1])
    monkeypatch.setattr(table, "QUICK_STRETCH", 1e-4)
    monkeypatch.setattr(theorems, "QUICK_GRAPHS", 4)
    code, out, err = command("all", "--quick", "-o", "out", "--json")
    assert code == 0

    def refuse(name):
        raise AssertionError(f"{name} in the output")

    got = json.loads(out, parse_constant=refuse)
    assert [row["curve"] for row in got["figures"]["fig2c"]] == [c.name for c in FIGURES["fig2c"]]
    assert [cell["grows"] for cell in got["table1"]] == list(table.QUANTITIES)
    ours = got["theorems"]["poisson-gibbs"]
    assert (ours["graphs"], ours["failures"], ours["holds"]) == (4, 0, True)
    assert "PoissonGibbs(theta=" in ours["worst_case"]
    assert all((tmp_path / path).is_file() for path in got["files"])
    assert "[4/4] potts-default" in err
    code, out, err = command("fig2c", "--quick", "-o", "out", "-q")
    assert (code, err) == (0, "")
    assert "| potts-double-min-4 |" in out


def test_unknown_names_are_refused(command, tmp_path):
    code, out, err = command("fig3")
    assert (code, out) == (2, "")
    assert "'fig3'" in err
    assert "fig2c, neighbors, table1, theorems, all" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["taken", "taken/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    command, tmp_path, monkeypatch, where
):
    def refuse(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr(curves, "compute", refuse)
    (tmp_path / "taken").write_text("a file")
    code, out, err = command("fig1", "--quick", "-o", where)
    assert (code, out) == (2, "")
    assert where in err
    assert "--out" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("seeds", [0, -3])
def test_seeds_must_be_positive(command, seeds):
    code, _, err = command("fig1", "--quick", "--seeds", seeds)
    assert code == 2
    assert "seeds must be an integer of at least 1" in err


def test_matplotlib_is_asked_for_before_any_work(command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = command("fig1", "--quick")
    assert code == 2
    assert 'pip install "minigibbs[plot]"' in err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_how_to_go_on(short, command, monkeypatch):
    interrupt_at(monkeypatch, 1)
    code, out, err = command("fig2a", "--quick")
    assert (code, out) == (130, "")
    assert "interrupted: call again to continue" in err
