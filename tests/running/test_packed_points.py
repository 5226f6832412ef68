"""Points packed into few words: which values can be decoded, and with what error."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.decay import LAPLACE
from minigibbs.running.backends.packed_points import HALVES, pack_points, packed_quads
from minigibbs.samplers.chromatic.points import HEAD, QUAD
from minigibbs.samplers.registry import color_data


def both(n=300, width=5, kernel="gaussian", spread=3.0):
    places = np.random.default_rng(0).uniform(0, spread, (n, width))
    groups = [mg.Points(places, kernel, norms="sums"), mg.Points(places[:, :2], weight=-0.3)]
    data = color_data(mg.PoissonGibbs(), mg.FactorGraph([2] * n, groups))
    return data, pack_points(data, width)


def halves_of(packed, groups, n, width):
    words = packed.points.view(np.uint16)
    return words.reshape(groups, n, HALVES * packed_quads(width)).astype(np.float64)


@pytest.mark.parametrize("width", [1, 2, 5, 6, 13])
def test_points_are_off_by_half_a_step(width):
    data, packed = both(width=max(width, 2))
    width = max(width, 2)
    n = len(data.variable)
    rows = data.points.reshape(2, n, QUAD * data.quads)
    halves = halves_of(packed, 2, n, width)
    places = halves[:, :, 0] + 65536 * halves[:, :, 1]
    np.testing.assert_array_equal(places, rows[:, :, 1])
    floats = rows.view(np.float32).astype(np.float64)
    unit = packed.unit.astype(np.float64)[:, None]
    assert np.abs(halves[:, :, 2] * unit - floats[:, :, 0]).max() <= 0.501 * unit.max()
    for g in range(2):
        there = floats[g, :, HEAD : HEAD + width]
        step = np.sqrt(-2.0 * packed.power[g] / np.log2(np.e))
        found = step * halves[g, :, 3 : 3 + width] + there.min(axis=0)
        assert np.abs(found - there).max() <= 0.501 * step


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("spread", [0.5, 3.0, 60.0])
def test_values_are_off_by_no_more_than_the_slack(kernel, spread):
    """All pairs are compared by the packed words of both, except far pairs with too much slack."""
    data, packed = both(n=200, kernel=kernel, spread=spread)
    n, width = len(data.variable), 5
    for g in range(2):
        floats = data.points.view(np.float32).reshape(2, n, -1)[g, :, HEAD : HEAD + width]
        steps = halves_of(packed, 2, n, width)[g, :, 3 : 3 + width]
        true = ((floats[:, None].astype(np.float64) - floats[None]) ** 2).sum(axis=2)
        square = ((steps[:, None] - steps[None]) ** 2).sum(axis=2)
        laplace = data.codes[g] == LAPLACE
        power = packed.power[g] * (np.sqrt(square) if laplace else square)
        log = -np.sqrt(true) if laplace else -0.5 * true
        off = np.abs(np.expm1(np.log(2.0) * power - log))
        slack = packed.slack[g] * (1.0 - 1.4 * power)
        told = slack < 0.1
        assert told.any()
        assert (off[told] <= slack[told]).all()
