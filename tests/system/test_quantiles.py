"""Quantiles agree with SciPy's."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import special

from minigibbs.system import quantiles

DEGREES = [0.6, 1, 2, 3, 3.7, 7, 15, 30, 31, 100, 1000, 1e4, 1e5, 1e6]
SHARES = [1e-6, 0.01, 0.2, 0.5, 0.75, 0.84134, 0.975, 0.9995, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12]


def test_normal():
    shares = np.concatenate(
        [np.geomspace(1e-300, 0.1), np.linspace(0.01, 0.99), 1 - np.geomspace(1e-15, 0.1)]
    )
    found = quantiles.normal(shares)
    np.testing.assert_allclose(found, special.ndtri(shares), rtol=1e-12, atol=1e-15)


def test_normal_at_the_ends():
    np.testing.assert_array_equal(
        quantiles.normal([0, 0.5, 1, -1, 2, math.nan]),
        [-math.inf, 0, math.inf, math.nan, math.nan, math.nan],
    )


@pytest.mark.parametrize("degrees", [*DEGREES, 1e8, math.inf])
def test_student(degrees):
    for share in SHARES:
        wanted = special.stdtrit(degrees, share)
        assert quantiles.student(degrees, share) == pytest.approx(wanted, rel=1e-8, abs=1e-12)
    assert quantiles.student(degrees, 1) == math.inf
    assert math.isnan(quantiles.student(0, 0.9))


@pytest.mark.parametrize("degrees", DEGREES)
def test_chi_square(degrees):
    for tail in [1e-100, 1e-12, *SHARES[:-2]]:
        wanted = special.chdtri(degrees, tail)
        assert quantiles.chi_square(degrees, tail) == pytest.approx(wanted, rel=1e-7)
    assert math.isnan(quantiles.chi_square(0, 0.1))


@pytest.mark.parametrize("above", DEGREES)
@pytest.mark.parametrize("below", DEGREES[1:])
def test_fisher(above, below):
    for share in [0.2, 0.5, 0.9, 0.999, 1 - 1e-6]:
        wanted = special.fdtri(above, below, share)
        assert quantiles.fisher(above, below, share) == pytest.approx(wanted, rel=1e-7)


def test_sampling_and_its_summary_do_not_import_scipy_special():
    """Its import takes 0.2 s of processor time, a third of a short run."""
    script = """
import sys
import minigibbs as mg
run = mg.sample(mg.models.ising_lattice(4, 0.2), progress=False)
str(run.summary())
print([name for name in sys.modules if name.startswith(("scipy.special", "scipy.sparse"))])
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr
