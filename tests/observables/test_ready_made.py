"""Ready-made observables against plain NumPy, and user functions."""

import itertools

import numba
import numpy as np
import pytest

import minigibbs as mg
from minigibbs.observables.own import Own

RNG = np.random.default_rng(1)
GRID = mg.models.ising_lattice(side=6, beta=0.3)
BOX = mg.FactorGraph([2] * 24, [mg.Ising(range(23), range(1, 24), 0.2)])
POTTS = mg.FactorGraph([3, 4, 3, 4, 2], [mg.Potts([0, 1, 2, 3], [1, 2, 3, 4], 0.7)])
SPINS = RNG.integers(0, 2, (7, 36)).astype(np.uint8)
VALUES = np.stack([RNG.integers(0, size, 9) for size in POTTS.sizes], axis=1).astype(np.uint8)


def measured(observable, graph, states):
    measure = observable.bind(graph)
    out = np.full((len(states), measure.width), np.nan)
    measure.evaluate(states, out)
    if measure.function is not None:  # a GPU runs the same function of one state
        function, alone = measure.function, np.full(measure.width, np.nan)

        @numba.njit
        def call(x, parameters, out):
            function(x, parameters, out)

        call(states[0].view(np.int8), measure.parameters or (0,), alone)
        np.testing.assert_allclose(alone, out[0], rtol=1e-12)
    check_sums(measure, graph, states, out)
    return out if measure.width > 1 else out[:, 0]


def check_sums(measure, graph, states, out):
    """Compare with the function of sums, in blocks and in compiled code."""
    if measure.sums is None:
        return
    if measure.sums.terms is None:
        sums = (graph.log_potential(states) - graph.offset)[:, None]
    else:
        terms = measure.sums.terms()
        match = states[:, terms.variables] == terms.wanted
        cuts = itertools.pairwise([0, *terms.ends.tolist()])
        sums = np.stack([match[:, a:b].sum(axis=1) for a, b in cuts], axis=1)
    of, again = measure.sums.of, np.full_like(out, np.nan)
    of.evaluate(sums, again)
    np.testing.assert_allclose(again, out, rtol=1e-12, atol=1e-12)
    function, alone = of.function, np.full(of.width, np.nan)

    @numba.njit
    def call(x, parameters, out):
        function(x, parameters, out)

    call(sums[0], of.parameters, alone)
    np.testing.assert_allclose(alone, again[0], rtol=1e-12, atol=1e-12)


def magnetization(states):
    return 2.0 * states.mean(axis=1) - 1.0


@pytest.mark.parametrize("power", [1, 2, 4])
@pytest.mark.parametrize("absolute", [False, True])
def test_magnetization(power, absolute):
    expected = magnetization(SPINS)
    expected = np.abs(expected) if absolute else expected
    found = measured(mg.observables.Magnetization(power, absolute), GRID, SPINS)
    np.testing.assert_allclose(found, expected**power)


def test_energy():
    found = measured(mg.observables.Energy(), POTTS, VALUES)
    np.testing.assert_allclose(found, POTTS.energy(VALUES))


def test_potts_order_goes_from_0_to_1():
    graph = mg.FactorGraph([3] * 6, [])
    states = np.array([[0] * 6, [0, 1, 2] * 2, [1, 1, 1, 2, 0, 1]], np.uint8)
    np.testing.assert_allclose(measured(mg.observables.PottsOrder(), graph, states), [1, 0, 0.5])


def test_counts_by_number_and_by_label():
    np.testing.assert_array_equal(
        measured(mg.observables.Count(3), POTTS, VALUES), (VALUES == 3).sum(axis=1)
    )
    named = mg.FactorGraph([2, 2], [], labels=[["no", "yes"], ["yes", "no"]])
    states = np.array([[0, 0], [1, 0], [1, 1]], np.uint8)
    np.testing.assert_array_equal(measured(mg.observables.Count("yes"), named, states), [1, 2, 1])
    with pytest.raises(mg.SampleError, match="no variable has a value 'maybe'"):
        mg.observables.Count("maybe").bind(named)


def test_all_hold_is_an_indicator():
    found = measured(mg.observables.JointEvent({0: 1, 3: 2}), POTTS, VALUES)
    np.testing.assert_array_equal(found, (VALUES[:, 0] == 1) & (VALUES[:, 3] == 2))
    for wrong in ({}, 3, [1, 2]):
        with pytest.raises(mg.SampleError, match="all-hold takes"):
            mg.observables.JointEvent(wrong)


def test_agreement():
    reference = VALUES[3]
    found = measured(mg.observables.Agreement(reference), POTTS, VALUES)
    np.testing.assert_allclose(found, (reference == VALUES).mean(axis=1))
    assert found[3] == 1.0


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", [(24,), (4, 6), (2, 3, 4)], ids=str)
def test_correlations_over_all_pairs_along_axes(shape, periodic):
    states = RNG.integers(0, 2, (3, 24)).astype(np.uint8)
    one = mg.observables.Correlations(shape, largest=max(shape) - 1, periodic=periodic)
    found = measured(one, BOX, states)
    for k, r in itertools.product(range(len(states)), range(1, max(shape))):
        spins, products = 2.0 * states[k].reshape(shape) - 1.0, []
        for axis, side in enumerate(shape):
            if r < side:
                other = np.roll(spins, -r, axis)
                both = spins * other
                keep = side if periodic else side - r
                products.append(np.moveaxis(both, axis, 0)[:keep].ravel())
        np.testing.assert_allclose(found[k, r - 1], np.concatenate(products).mean())


def test_correlations_of_other_values_are_shares_of_equal_pairs():
    graph = mg.FactorGraph([3] * 9, [])
    states = RNG.integers(0, 3, (4, 9)).astype(np.uint8)
    found = measured(mg.observables.Correlations((9,), largest=2), graph, states)
    expected = [(states == np.roll(states, -r, axis=1)).mean(axis=1) for r in (1, 2)]
    np.testing.assert_allclose(found, np.transpose(expected))


def test_structure_factor_is_a_fourier_transform():
    found = measured(mg.observables.StructureFactor((6, 6), largest=3), GRID, SPINS)
    spins = 2.0 * SPINS.reshape(-1, 6, 6) - 1.0
    power = np.abs(np.fft.fftn(spins, axes=(1, 2))) ** 2 / 36
    np.testing.assert_allclose(found, (power[:, 0, :4] + power[:, :4, 0]) / 2, atol=1e-12)


def test_moments_and_histogram_of_another():
    m = magnetization(SPINS)
    found = measured(mg.observables.Moments(), GRID, SPINS)
    np.testing.assert_allclose(found, np.stack([m, np.abs(m), m**2, m**4], axis=1))
    edges = np.linspace(-0.5, 0.5, 6)
    distribution = measured(
        mg.observables.Histogram(mg.observables.Magnetization(), -0.5, 0.5, 5), GRID, SPINS
    )
    expected = [np.histogram([value], edges)[0] for value in m]
    np.testing.assert_array_equal(distribution, expected)
    ends = np.stack([np.zeros(36), np.ones(36)]).astype(np.uint8)
    whole = measured(mg.observables.Histogram(bins=4), GRID, ends)
    np.testing.assert_array_equal(whole, [[1, 0, 0, 0], [0, 0, 0, 1]])


OWN = {
    "number": (lambda x: x.mean(), lambda s: s.mean(axis=1)),
    "truth": (lambda x: x[0] == x[1], lambda s: s[:, 0] == s[:, 1]),
    "integer": (lambda x: x[0] + 1, lambda s: s[:, 0] + 1.0),
    "tuple": (lambda x: (x[0] * 1.0, x[1] * 2.0), lambda s: s[:, :2] * [1.0, 2.0]),
    "mixed": (lambda x: (x[0], x.mean()), lambda s: np.stack([s[:, 0], s.mean(axis=1)], 1)),
    "array": (lambda x: np.bincount(x, minlength=4), lambda s: (s[:, :, None] == range(4)).sum(1)),
}


@pytest.mark.parametrize("name", OWN)
def test_functions_of_ones_own(name):
    function, expected = OWN[name]
    np.testing.assert_allclose(measured(Own(function), POTTS, VALUES), expected(VALUES))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: "text", "must give a number"),
        (lambda x: (), "must give a number|1 to"),
        (lambda x, y: x, "fails on a state .* missing 1 required positional argument"),
        (lambda x: print(open), "cannot be compiled"),
        (lambda x: np.ones((2, 2)), "must give a number"),
    ],
    ids=["text", "nothing", "two arguments", "a file", "a matrix"],
)
def test_functions_that_cannot_be_measured_say_why(function, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.sample(POTTS, sweeps=1, observe={"f": function}, progress=False)


def out_of_range_at_times(x):
    """Index out of range in few states, and in no state of the trial."""
    return x[5 * (x[0] == 1) * (x[1] == 0) * (x[2] == 1) * (x[3] == 2) * (x[4] == 1)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 1.0 * x[5],
        lambda x: x[10**8],
        lambda x: x[-6],
        lambda x: x[np.array([0, 300])].sum(),
        lambda x: (x[0], x.mean(), x[5]),
        lambda x: np.array([x[0], x[7]]),
        out_of_range_at_times,
    ],
    ids=["next", "far", "negative", "several", "tuple", "array", "at times"],
)
def test_indices_out_of_range_are_refused(function):
    """Earlier versions read unrelated memory, or crashed."""
    with pytest.raises(
        mg.SampleError, match=r"observe: 'f' .*IndexError.*5 variables, x\[0\] to x\[4\]"
    ):
        mg.sample(POTTS, sweeps=2000, seed=1, observe={"f": function}, progress=False)


def test_indices_out_of_range_are_found_by_compiled_code_and_named_by_python():
    measure = Own(out_of_range_at_times).bind(POTTS)
    states = np.array([[0, 0, 0, 0, 0], [1, 0, 1, 2, 1]], np.uint8)
    with pytest.raises(mg.SampleError, match="index 5 is out of bounds"):
        measure.evaluate(states, np.empty((2, 1)))


def test_flat_iterators_are_refused():
    """Numba compiles them without bounds checks."""
    with pytest.raises(mg.SampleError, match=r"`\.flat`.*use x\[i\]"):
        Own(lambda x: x.flat[300]).bind(POTTS)


def test_functions_get_signed_integers():
    states = np.array([[0, 2, 0, 0, 0], [2, 0, 0, 0, 0]], np.uint8)
    found = measured(Own(lambda x: x[0] - x[1]), POTTS, states)
    np.testing.assert_array_equal(found.ravel(), [-2, 2])
    wide = mg.FactorGraph([200, 200], [])
    extremes = np.array([[0, 199], [199, 0]], np.uint8)
    function = Own(lambda x: (x[0] - x[1], x[0] * x[1] - 1))
    np.testing.assert_array_equal(measured(function, wide, extremes), [[-199, -1], [199, -1]])
    assert function.bind(wide).function is None  # 199 would not fit on a GPU


def test_functions_that_change_the_state_are_refused():
    def difference(x):
        x[0] -= x[1]
        return x[0]

    with pytest.raises(mg.SampleError, match=r"'f' fails on a state .*read-only"):
        mg.sample(POTTS, sweeps=1, observe={"f": difference}, progress=False)


def test_trials_use_states_that_are_possible():
    """They match the evidence, and no factor forbids them."""
    allowed = np.full((3, 3), -np.inf)
    allowed[[0, 1, 2], [1, 2, 0]] = 0.0
    graph = mg.FactorGraph([3] * 3, [mg.Table([[0, 1], [1, 2]], allowed)]).condition({0: 1})

    def watched(x):
        if len(x) != 3 or x[0] != 1 or x[1] != 2 or x[2] != 0:
            raise ValueError("impossible")
        return x[2]

    assert measured(Own(watched), graph, np.array([[1, 2, 0]], np.uint8)) == 0


@pytest.mark.parametrize("function", [np.mean, np.std, sum], ids=lambda f: f.__name__)
def test_functions_of_numpy_and_python_are_taken(function):
    expected = [[function(state)] for state in VALUES.astype(int)]
    np.testing.assert_allclose(measured(Own(function), POTTS, VALUES), np.ravel(expected))


def test_what_numba_says_has_no_terminal_codes(monkeypatch):
    from numba.core.errors import TypingError

    monkeypatch.setattr(TypingError, "__str__", lambda self: "\x1b[1mno\x1b[0m\n\x1b[2Jtype")
    with pytest.raises(
        mg.SampleError, match=r"'f' cannot be compiled.*Numba says: no \\x1b\[2Jtype$"
    ):
        mg.sample(POTTS, sweeps=1, observe={"f": lambda x: x.item(0)}, progress=False)


def test_an_array_that_changes_its_length_is_refused():
    def growing(x):
        return np.ones(1 + x[0])

    with pytest.raises(mg.SampleError, match="1 numbers for every state"):
        mg.sample(POTTS, sweeps=200, seed=1, observe={"f": growing}, progress=False)


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        ("magnetism", "not one of the ready-made"),
        ({"x": "energy"}, "needs a name"),
        ({3: "energy"}, "needs a name"),
        ({"m": 3}, "must be a function"),
        (["energy", "energy"], "two observables"),
        ("magnetization", "2 values, but variable 0 has 3"),
        (mg.observables.Correlations((2, 2)), "shape must be that of 5"),
        (mg.observables.Moments(mg.observables.Correlations((5,))), "one number"),
    ],
    ids=str,
)
def test_what_cannot_be_observed_is_refused(observe, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.sample(POTTS, sweeps=1, observe=observe, progress=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mg.observables.Magnetization(power=0),
        lambda: mg.observables.Magnetization(power=1001),
        lambda: mg.observables.Magnetization(power=10**30),
        lambda: mg.observables.Magnetization(power=True),
        lambda: mg.observables.Histogram(low=1.0, high=1.0),
        lambda: mg.observables.Histogram(bins=0),
        lambda: mg.observables.Histogram(of=3),
        lambda: mg.observables.StructureFactor((6, 6), 4).bind(GRID),
        lambda: mg.observables.StructureFactor((4, 9)).bind(GRID),
        lambda: mg.observables.Correlations((6, 6), 6).bind(GRID),
    ],
)
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(mg.SampleError):
        make()


def late_failure(x):
    """Fail on one state of 4,096, which the trial before a run does not reach."""
    place = 0
    for i in range(12):
        place += x[i] == i % 2
    return 1.0 * x[place]


@pytest.mark.parametrize("series", [True, False])
def test_a_function_that_fails_in_a_run_leaves_what_was_sampled(series):
    """The error has the run so far, without observables, whose records would be incomplete."""
    graph = mg.FactorGraph([2] * 12, [mg.Unary(range(12), [0.0, 0.3])])
    record = ("draws", "marginals", "energy") if series else "marginals"
    with pytest.raises(mg.StoppedError, match=r"fails on a state .* to x\[11\]") as caught:
        mg.sample(
            graph, sweeps=3000, seed=1, record=record, observe={"f": late_failure}, progress=False
        )
    run = caught.value.run
    assert run.info.ended == "stopped"
    assert run.clock.max() > 0
    assert run.observed is None
    assert not run.observables
    assert run.marginals.shape == (12, 2)
