"""The dense conditional random field: weights, exact marginals, and stored reference marginals."""

import numpy as np
import pytest

import minigibbs as mg
from tests.harness import advance_each, sample
from tests.paths import DATA

FOLDER = DATA / "densecrf"
needs_data = pytest.mark.skipif(
    not (FOLDER / "im1.png").exists(), reason="the image with its stored models is not at hand"
)


def coarse(side):
    """Return the image as means over blocks, its stored model, and the widths in blocks."""
    image = pytest.importorskip("PIL.Image", reason="reading a picture needs Pillow")
    pixels = np.asarray(image.open(FOLDER / "im1.png").convert("RGB")).astype(float)
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    pixels = pixels[: rows * side, : columns * side]
    blocks = pixels.reshape(rows, side, columns, side, 3).mean(axis=(1, 3))
    known = np.load(FOLDER / f"densecrf_im1_stride{side}.npz")
    scale = {"sxy": 3.0 / side, "bilateral_sxy": 80.0 / side}
    return blocks, known, scale


@needs_data
@pytest.mark.parametrize("side", [8, 60])
def test_weights_are_those_of_the_stored_model(side):
    image, known, widths = coarse(side)
    graph = mg.models.dense_crf(image, costs=-known["log_unary"].T, **widths)
    i, j = np.triu_indices(len(graph), 1)
    weights = sum(group.pair_weights(i, j) for group in graph.implicits)
    # features and norms have single precision, like the stored weights
    np.testing.assert_allclose(weights, known["pair_weight"], atol=1e-5, rtol=1e-5)
    assert graph.stats.local_energy > 5


@needs_data
def test_exact_start_keeps_the_marginals():
    """Chains of these 20 blocks mix poorly, so they start from exact draws of all 2^20 states."""
    image, known, widths = coarse(60)
    graph = mg.models.dense_crf(image, costs=-known["log_unary"].T, **widths)
    states = (np.arange(2**20)[:, None] >> np.arange(20) & 1).astype(np.uint8)
    energy = graph.stored().log_potential(states)
    distribution = np.exp(energy - energy.max())
    distribution /= distribution.sum()
    np.testing.assert_allclose(distribution @ states, known["exact_p1"], atol=1e-5)
    starts = states[np.random.default_rng(5).choice(2**20, size=40_000, p=distribution)]
    after, _, _ = advance_each(graph, mg.PoissonGibbs(), starts, 60, seed=6)
    chance = known["exact_p1"]
    z = (after.mean(axis=0) - chance) / np.sqrt(chance * (1 - chance) / len(starts))
    # one of 20 normal variables exceeds 5 once in 87,000 runs
    assert np.abs(z).max() < 5
    assert (after != starts).mean() > 0.01


@needs_data
@pytest.mark.parametrize("scale", [0.1, 0.3])
def test_marginals_against_the_stored_models(scale):
    """1,200 blocks at strengths with good mixing; the data include marginals and their errors."""
    image, known, widths = coarse(8)
    name = f"{scale:.1f}".replace(".", "p")
    graph = mg.models.dense_crf(
        image, costs=-known["log_unary"].T, compat=3 * scale, bilateral_compat=10 * scale, **widths
    )
    chains = 8
    run = sample(
        graph, sweeps=400, warmup=100, chains=chains, seed=4, record="marginals", progress=False
    )
    rows = run.counts.reshape(chains, 1200, 2)[:, :, 1] / run.visits[:, None]
    error = np.hypot(rows.std(axis=0, ddof=1) / np.sqrt(chains), known[f"mc_se_{name}"][:, 1])
    z = (rows.mean(axis=0) - known[f"mc_marg_{name}"][:, 1]) / error
    # These are approximately t-variables with 7 degrees of freedom, whose mean square is 7 / 5. The
    # 1,200 variables are dependent, so the bound is wide. A wrong weight of 10% gives 4 and more.
    assert 0.4 < np.mean(z**2) < 2.5


def test_kernels_can_be_left_out_and_are_normalized_or_not():
    rng = np.random.default_rng(0)
    image, unary = rng.integers(0, 255, (5, 4)), rng.random((3, 20))
    bare = mg.models.dense_crf(
        image, costs=unary, bilateral_compat=0.0, normalize=False, sxy=(2.0, 1.0)
    )
    assert len(bare.implicits) == 1
    i, j = np.triu_indices(20, 1)
    dx, dy = (i % 4 - j % 4) / 2.0, i // 4 - j // 4
    want = 3.0 * np.exp(-(dx**2 + dy**2) / 2)
    np.testing.assert_allclose(bare.implicits[0].pair_weights(i, j), want, rtol=1e-6)
    assert mg.models.dense_crf(image, costs=unary).sizes.tolist() == [3] * 20
    x = rng.integers(0, 3, 20)
    assert bare.log_potential(x) == pytest.approx(
        -unary[x, np.arange(20)].sum() + want[x[i] == x[j]].sum(), rel=1e-6
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros(5)}, "height, width, channels"),
        ({"costs": np.zeros((2, 5))}, r"\[labels, 12\].*got shape \(2, 5\)$"),
        ({"costs": np.zeros((2, 4, 3))}, r"\[labels, 3, 4\].*got shape \(2, 4, 3\)"),
        ({"costs": np.zeros((3, 4, 2))}, r"give costs.transpose\(2, 0, 1\)"),
        ({"image": np.zeros((3, 5, 4)), "costs": np.zeros((2, 5, 4))}, r"image.transpose\(1, 2, 0"),
        ({"image": np.zeros((3, 5, 4)), "costs": np.zeros((2, 20))}, r"image.transpose\(1, 2, 0"),
        ({"costs": np.full((2, 12), 0.5)}, "costs hold probabilities"),
        ({"costs": np.log(np.full((2, 12), 0.5))}, "costs hold log-probabilities"),
        ({"costs": None}, "either probabilities= or costs="),
        ({"probabilities": np.full((2, 12), 0.5)}, "either probabilities= or costs="),
        ({"costs": None, "probabilities": np.full((2, 12), 0.4)}, "sum to 1"),
        ({"costs": None, "probabilities": np.zeros((2, 5))}, r"probabilities must be \[labels"),
        ({"sxy": 0.0}, "sxy must be a positive number"),
        ({"srgb": (1.0, 2.0)}, "or 3 of them"),
        ({"image": np.full((3, 4, 3), np.nan)}, "finite"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"image": np.zeros((3, 4, 3)), "costs": np.zeros((2, 12))}
    with pytest.raises(mg.GraphError, match=message):
        mg.models.dense_crf(**good | change)


def test_probabilities_are_costs_of_their_logarithms():
    rng = np.random.default_rng(0)
    image, chance = rng.integers(0, 255, (5, 4, 3)), rng.dirichlet([1.0, 1.0, 1.0], 20).T
    one = mg.models.dense_crf(image, probabilities=chance)
    other = mg.models.dense_crf(image, costs=-np.log(chance).reshape(3, 5, 4))
    np.testing.assert_array_equal(one.factors[0].log_potential, other.factors[0].log_potential)
    np.testing.assert_allclose(one.factors[0].log_potential, np.log(chance).T)


def test_an_image_scaled_to_one_is_reported():
    image = np.random.default_rng(0).random((3, 4, 3))
    costs = np.zeros((2, 12))
    with pytest.warns(UserWarning, match="are between 0 and 1, so that srgb=13.0 ignores them"):
        mg.models.dense_crf(image, costs=costs)
    mg.models.dense_crf(255 * image, costs=costs)  # warnings are errors here
    mg.models.dense_crf(image, costs=costs, srgb=13 / 255)
    mg.models.dense_crf(image, costs=costs, bilateral_compat=0.0)


def test_as_many_labels_as_channels():
    """Labels and channels then have axes of one length, and the sizes of the image decide."""
    labels_last, channels_first = np.full((6, 8, 3), 1 / 3), np.zeros((3, 6, 8))
    with pytest.raises(mg.GraphError, match="labels seem to come last"):
        mg.models.dense_crf(np.zeros((6, 8, 3)), probabilities=labels_last)
    with pytest.raises(mg.GraphError, match="channels first"):
        mg.models.dense_crf(channels_first, probabilities=channels_first + 1 / 3)
