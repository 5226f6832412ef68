"""Examples of earlier systems: DimmWitted's folders, a Potts family, small images."""

import json
import warnings

import numpy as np
import pytest

import minigibbs as mg
from tests.formats.test_dimmwitted import written
from tests.paths import DATA

FOLDERS = DATA / "dimmwitted"
needs_folders = pytest.mark.skipif(not FOLDERS.is_dir(), reason="no DimmWitted files beside")


@needs_folders
@pytest.mark.parametrize("method", ["exact", "pcd"])
@pytest.mark.parametrize("folder", ["biased_coin", "biased_coin_continuous"])
def test_coins_give_the_marginals_that_learning_must_give(folder, method):
    """DimmWitted's own checks allow 0.1 for the weight and 0.03 for the marginals."""
    known = json.loads((FOLDERS / folder / "expected_exact.json").read_text())
    fit = mg.learn(mg.read(FOLDERS / folder), method=method, seed=1, progress=False)
    expected = known["weights_used"]["0"]
    limit = 1e-4 if method == "exact" else 0.02
    assert fit.parameters["weights"][0] == pytest.approx(expected, abs=limit)
    marginals = mg.exact_marginals(fit.graph)
    for variable, row in known["evidence_clamped"].items():
        assert marginals[int(variable), 1] == pytest.approx(row["1"], abs=limit)


@needs_folders
@pytest.mark.parametrize("method", ["exact", "pcd"])
def test_partial_observation_is_learned_and_its_separation_said(method):
    """All observations agree: DimmWitted requires weights above 0 and marginals above 0.9."""
    with pytest.warns(UserWarning, match=r"'weights'\[0\], 'weights'\[1\] may have no finite best"):
        fit = mg.learn(
            mg.read(FOLDERS / "partial_observation"), method=method, seed=1, progress=False
        )
    assert (fit.parameters["weights"] > 0).all()
    assert (mg.exact_marginals(fit.graph)[:, 1] > 0.9).all()


@needs_folders
def test_fixed_weights_are_no_parameters():
    graph = mg.read(FOLDERS / "sparse_multinomial2")
    assert graph.parameters == {}
    known = json.loads((FOLDERS / "sparse_multinomial2" / "expected_exact.json").read_text())
    marginals = mg.exact_marginals(graph)
    for variable, row in known["evidence_clamped"].items():
        assert marginals[int(variable), : len(row)].tolist() == pytest.approx(list(row.values()))
    with pytest.raises(mg.LearnError, match="no parameters"):
        mg.learn(graph)


def test_every_function_of_dimmwitted_learns(tmp_path):
    """Free and fixed weights give the same energies up to a constant."""
    functions = (0, 1, 2, 3, 7, 8, 9, 12, 13)
    rng, sizes = np.random.default_rng(0), [2, 2, 3, 4]
    variables = [(0, 0, int(size > 2), size) for size in sizes]
    factors = [
        (function, [(a, int(rng.integers(sizes[a]))), (b, int(rng.integers(sizes[b])))], k, 1.5)
        for k, function in enumerate(functions)
        for a, b in ((0, 1), (1, 2), (3, 2))
    ]
    factors += [(4, [(0, 1)], 0, 2.0), (12, [(3, 2)], 1, -1.0)]

    def read(name, weights, fixed):
        (tmp_path / name).mkdir()
        return mg.read(written(tmp_path / name, variables, factors, weights, fixed=fixed))

    weights, others = rng.normal(size=(2, len(functions)))
    free = read("free", weights, 0)
    np.testing.assert_array_equal(free.parameters["weights"], weights)
    states = np.array(np.meshgrid(*map(range, sizes), indexing="ij")).reshape(4, -1).T
    gap = free.log_potential(states) - read("plain", weights, 1).log_potential(states)
    assert np.ptp(gap) < 1e-12
    moved = free.with_parameters({"weights": others}).log_potential(states)
    assert np.ptp(moved - read("others", others, 1).log_potential(states)) < 1e-12


@pytest.mark.skipif(not (DATA / "potts").is_dir(), reason="no Potts models beside")
def test_a_potts_family_is_learned_back():
    """A known model of fifteen neurons is sampled, and learned from the samples alone."""
    known = np.load(DATA / "potts" / "neural15.npz")
    n = len(known["h"])
    i, j = np.triu_indices(n, 1)
    both = mg.Logical("and", np.stack([i, j], axis=1), np.zeros(len(i)), name="J")
    alone = mg.Logical("istrue", np.arange(n)[:, None], np.zeros(n), name="h")
    graph = mg.FactorGraph([2] * n, [both, alone])
    truth = graph.with_parameters({"J": known["J"][i, j], "h": known["h"]})
    rows = mg.exact_draws(truth, 20_000, seed=1)
    fit = mg.learn(graph, rows, l2=1e-5, start="pseudo", steps=300, seed=1, progress=False)
    assert fit.pearson > 0.99
    score = (fit.parameters["J"] - known["J"][i, j]) / fit.errors["J"]
    told = fit.errors["J"] < 0.5  # some pairs hardly ever fire together
    # For 100 normal numbers the root mean square is 1 within 0.3 (4 deviations).
    assert told.sum() > 50
    assert np.sqrt(np.mean(score[told] ** 2)) < 1.3


def test_a_boltzmann_machine_learns_small_images():
    """Images of 4 x 4 have uniform rows, dark or light; hidden units learn that."""
    rng = np.random.default_rng(1)
    images = np.repeat(rng.integers(0, 2, (400, 4)), 4, axis=1)
    visible, hidden = np.meshgrid(range(16), range(16, 24), indexing="ij")
    joined = mg.Logical(
        "and",
        np.stack([visible.ravel(), hidden.ravel()], axis=1),
        0.1 * rng.normal(size=128),
        name="W",
    )
    fields = mg.Logical("istrue", np.arange(24)[:, None], np.zeros(24), name="b")
    graph = mg.FactorGraph([2] * 24, [joined, fields])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = mg.learn(
            graph,
            images,
            columns=range(16),
            steps=600,
            chains=200,
            rate=0.1,
            decay=200,
            l2=1e-3,
            errors=False,
            seed=1,
            progress=False,
        )
    run = mg.sample(
        fit.graph,
        mg.Gibbs(),
        sweeps=400,
        warmup=100,
        chains=20,
        seed=2,
        record="draws",
        progress=False,
    )
    drawn = run.draws.reshape(-1, 24)[:, :16].reshape(-1, 4, 4)
    same = (drawn == drawn[:, :, :1]).all(axis=2).mean()
    assert same > 0.6  # a row of four fair coins is uniform in 1 of 8
