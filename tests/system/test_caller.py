"""Warnings point to the user's line, however a call came to the place that warns."""

import warnings

import numpy as np
import pytest

import minigibbs as mg

SURE = [[[0.5, 0.0], [0.0, 0.5]]]
CASES = {
    "a public function": lambda: mg.models.dense_crf(
        np.linspace(0, 1, 36).reshape(3, 4, 3), costs=np.zeros((2, 12))
    ),
    "a constructor": lambda: mg.Table.from_probabilities([[0, 1]], SURE, floor=1e-9),
    "a call with phases": lambda: mg.learn_structure(
        {"a": [1, 1, 1, 1], "b": [0, 1, 0, 1]}, progress=False
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_warning_points_here(case):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        CASES[case]()
    assert seen
    assert {one.filename for one in seen} == {__file__}
