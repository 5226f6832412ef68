"""A drift that all chains share is detected, because every R-hat splits chains in half."""

import numpy as np

from minigibbs.results import diagnostics


def drifting(rng, slope):
    """Return four chains that agree with each other at every time and drift together."""
    return slope * np.linspace(0, 1, 1000) + rng.normal(0, 1, (4, 1000))


def test_a_drift_that_all_chains_share_shows():
    rng = np.random.default_rng(1)
    # The means of the halves differ by 1.5 standard deviations: R-hat near sqrt(1 + 1.5**2 / 4).
    assert diagnostics.rhat(drifting(rng, 3.0)) > 1.1
    assert diagnostics.rhat(drifting(rng, 0.0)) < 1.01
