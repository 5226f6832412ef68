"""Fits end when moments agree within their noise, and warn if they cannot end."""

import warnings

import numpy as np
import pytest

import minigibbs as mg


def learn(*args, **options):
    return mg.learn(*args, **{"progress": False, "seed": 1, "threads": 1, **options})


def chain(coupling=0.5, rows=500):
    pairs = mg.Ising([0, 1, 2], [1, 2, 3], 0.0, name="J", tied=0)
    graph = mg.FactorGraph([2] * 4, [pairs])
    return graph, mg.exact_draws(graph.with_parameters({"J": coupling}), rows, seed=1)


def test_default_steps_end_when_moments_agree_within_noise():
    graph, rows = chain()
    fit = learn(graph, rows)
    assert fit.ended == "converged"
    assert fit.steps == 1000
    assert learn(graph, rows, steps=1000).ended == "steps"


@pytest.mark.parametrize("rate", [3e-4])
def test_steps_continue_while_moments_differ(rate):
    """With small steps a thousand do not suffice: the fit continues, and warns if it must end."""
    graph, rows = chain(coupling=1.5, rows=5000)
    options = {"rate": rate, "decay": 1e6, "chains": 100}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = learn(graph, rows, steps=1000, **options)
        longer = learn(graph, rows, **options)
    assert "the steps ended too early" in short.warnings[0]
    assert longer.steps > 1000
    best = learn(graph, rows, method="exact").parameters["J"][0]
    assert abs(longer.parameters["J"][0] - best) < abs(short.parameters["J"][0] - best)


def pairs_of_spins(count=60, rows=500):
    """All couplings of spins, of which every other one copies the one before it."""
    graph = mg.FactorGraph([2] * count, [mg.Ising(*np.triu_indices(count, 1), 0.0, name="J")])
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, (rows, count))
    data[:, 1::2] = data[:, ::2] ^ (rng.random((rows, count // 2)) < 0.05)
    return graph, data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 10}, "a moment of the model is at least .* standard errors from that of"),
        ({"max_time": 0.2}, "time was up after .* of them"),
        ({"steps": 2, "method": "pseudo"}, "the objective was still rising after 2 of them"),
    ],
    ids=["steps", "time", "climb"],
)
def test_fits_without_errors_that_are_cut_short_warn(options, message):
    """Of 1,770 parameters there are no standard errors. Noise alone warns of one fit in 1,000."""
    graph, rows = pairs_of_spins()
    with pytest.warns(UserWarning, match="the steps ended too early: " + message):
        learn(graph, rows, **options)


def test_fits_without_errors_end_when_moments_agree_within_noise():
    graph, rows = pairs_of_spins()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learn(graph, rows).ended == "converged"
        small, few = chain()
        assert learn(small, few, errors=False).ended == "converged"


def test_fits_that_held_out_rows_end_are_not_cut_short():
    graph, rows = pairs_of_spins(20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learn(graph, rows, held_out=0.5, chains=200, patience=1).ended == "held-out"


def star(share):
    """Return one hidden variable whose coupling cannot explain such a frequent visible value."""
    bias = mg.Unary([0], [[0.0, 0.0]], name="bias", fixed=[[True, False]])
    table = mg.Table([[0, 1]], [[0.0, 0.0], [0.0, 1.0]])
    graph = mg.FactorGraph([2, 2], [bias, table], names=["hidden", "seen"])
    rows = (np.arange(400) < share * 400).astype(int)
    return graph, {"seen": rows}


def test_a_hidden_field_on_its_way_to_infinity_warns_with_pcd():
    # Given the hidden value 1, the visible one has probability 0.73 at most.
    graph, rows = star(0.9)
    for method in ("exact", "pcd"):
        with pytest.warns(UserWarning, match="'bias'.*(infinity|no finite best)"):
            learn(graph, rows, method=method)
    finite, rows = star(0.65)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = learn(finite, rows)
    assert abs(fit.parameters["bias"][0, 1]) < 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learn(graph, star(0.9)[1], l2=0.01)


def machine(visible, hidden, seed):
    """Return a restricted Boltzmann machine with small random weights, and rows to learn."""
    rng = np.random.default_rng(seed)
    i, j = np.meshgrid(np.arange(visible), visible + np.arange(hidden), indexing="ij")
    weights = rng.normal(size=visible * hidden)
    count = visible + hidden
    graph = mg.FactorGraph(
        [2] * count,
        [
            mg.Ising(i.ravel(), j.ravel(), 0.1 * weights, name="W"),
            mg.Unary(np.arange(count), np.zeros((count, 2)), name="b"),
        ],
    )
    rows = mg.exact_draws(graph.with_parameters({"W": 0.5 * weights}), 500, seed=seed)
    rows = rows.astype(int)
    rows[:, visible:] = -1
    return graph, rows


def test_the_log_likelihood_along_training_is_that_of_the_parameters():
    graph, rows = machine(6, 3, 1)
    fit = learn(graph, rows, steps=200, log_likelihood=True, errors=False, chains=1000)
    series = fit.history["log_likelihood"]
    assert len(series) == len(fit.history["step"])
    assert series[-1] > series[0]
    # The average that the fit returns is close to the last parameters. The differences of six seeds
    # had a standard deviation of 0.035, so 0.2 is more than five of them.
    assert abs(series[-1] - fit.log_likelihood(rows).mean) < 0.2


def test_the_log_likelihood_is_followed_with_pcd_only():
    graph, rows = chain(rows=20)
    with pytest.raises(mg.LearnError, match='needs method="pcd"'):
        learn(graph, rows, method="cd", log_likelihood=True)
