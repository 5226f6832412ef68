"""Quantiles of standard distributions.

They replace `scipy.special`, whose import takes longer than a short run. Upper tails down to 1e-100
are accurate to nine digits. Lower tails below 1e-6 have fewer digits, and no code here uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TINY = 1e-300  # in place of 0 in a continued fraction
_EXACT = 1e-16  # relative change that ends a series or a fraction
_LONGEST = 100_000  # terms of a series or fraction; it has about the square root of its parameter
# Stirling's series of log Gamma: the coefficients of 1 / a, 1 / a^3, ...
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_LARGE = 15.0  # from here on, Stirling's series has all digits

# Wichura, 1988, algorithm AS 241: numerators and denominators, highest power first.
_CENTRAL = (
    (
        *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
        *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
        *(1.3314166789178437745e2, 3.3871328727963666080e0),
    ),
    (
        *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
        *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
        *(4.2313330701600911252e1, 1.0),
    ),
)
_MIDDLE = (
    (
        *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1),
        *(1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0),
        *(4.63033784615654529590e0, 1.42343711074968357734e0),
    ),
    (
        *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2),
        *(1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0),
        *(2.05319162663775882187e0, 1.0),
    ),
)
_OUTER = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3),
        *(2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0),
        *(5.46378491116411436990e0, 6.65790464350110377720e0),
    ),
    (
        *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5),
        *(7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1),
        *(5.99832206555887937690e-1, 1.0),
    ),
)


def normal(shares: ArrayLike) -> NDArray[np.float64]:
    """Return the quantiles of the standard normal distribution."""
    shares = np.asarray(shares, dtype=np.float64)
    q = shares - 0.5
    with np.errstate(all="ignore"):
        tail = np.sqrt(-np.log(np.minimum(shares, 1.0 - shares)))
        found = np.where(
            tail <= 5.0, _ratio(_MIDDLE, np.minimum(tail, 5.0) - 1.6), _ratio(_OUTER, tail - 5.0)
        )
        found = np.where(np.abs(q) <= 0.425, q * _ratio(_CENTRAL, 0.180625 - q * q), found)
        found = np.where(np.abs(q) <= 0.425, found, np.copysign(found, q))
    found = np.where((shares > 0) & (shares < 1), found, np.copysign(np.inf, q))
    return np.where((shares >= 0) & (shares <= 1), found, np.nan)


def _ratio(
    polynomials: tuple[tuple[float, ...], tuple[float, ...]], r: NDArray[np.float64]
) -> NDArray[np.float64]:
    above, below = polynomials
    found: NDArray[np.float64] = np.polyval(above, r) / np.polyval(below, r)
    return found


@lru_cache(1024)
def student(degrees: float, share: float) -> float:
    """Return a quantile of Student's t distribution; NaN without degrees of freedom."""
    if not (degrees > 0 and 0 <= share <= 1):
        return math.nan
    if math.isinf(degrees) or share in (0, 1):
        return float(normal(share))
    if share == 0.5:
        return 0.0
    tail = 2 * min(share, 1 - share)  # of both sides: I_x(degrees / 2, 1 / 2), x = d / (d + t^2)
    odds = _solve(
        lambda odds: _beta_odds(degrees / 2, 0.5, odds), math.log(degrees), math.log(tail)
    )
    return math.copysign(math.sqrt(degrees) * math.exp(-odds / 2), share - 0.5)


@lru_cache(1024)
def fisher(above: float, below: float, share: float) -> float:
    """Return a quantile of the F distribution with `above` and `below` degrees of freedom."""
    if not (above > 0 and below > 0 and 0 < share < 1):
        return math.nan
    # 1 - share = I_x(below / 2, above / 2) with x / (1 - x) = below / (above f)
    odds = _solve(
        lambda odds: _beta_odds(below / 2, above / 2, odds),
        math.log(below / above),
        math.log1p(-share),
    )
    return below / above * math.exp(-odds)


@lru_cache(1024)
def chi_square(degrees: float, tail: float) -> float:
    """Return the value that a chi-square variable exceeds with probability `tail`."""
    if not (degrees > 0 and 0 < tail < 1):
        return math.nan
    found = _solve(
        lambda x: _upper_gamma(degrees / 2, math.exp(-x)), -math.log(degrees / 2), math.log(tail)
    )
    return 2 * math.exp(-found)


def _solve(function: Callable[[float], tuple[float, float]], start: float, wanted: float) -> float:
    """Solve function(x) = wanted for an increasing function that returns its value and slope.

    Values are logarithms of probabilities, so that Newton's steps are of the right size in tails.
    Where a step leaves the bracket, the bracket is halved.
    """
    low, high, x = -math.inf, math.inf, start
    for _ in range(200):
        value, slope = function(x)
        if value < wanted:
            low = x
        else:
            high = x
        step = (wanted - value) / slope if slope > 0 else math.copysign(1.0, wanted - value)
        step = max(-4.0, min(4.0, step))
        new = x + step
        if not low < new < high and math.isfinite(low + high):
            new = (low + high) / 2
        if abs(new - x) <= 1e-14 * max(1.0, abs(x)):
            return new
        x = new
    return x


def _beta_odds(a: float, b: float, odds: float) -> tuple[float, float]:
    """The log of I_x(a, b) with odds = log(x / (1 - x)), and its derivative by the odds."""
    x, y = _logistic(odds), _logistic(-odds)
    front = _beta_front(a, b, x, y)  # x^a y^b / B(a, b)
    if front == 0.0:  # far outside: only the direction counts
        return (0.0, 0.0) if x > a / (a + b) else (-math.inf, 0.0)
    if x <= (a + 1) / (a + b + 2):
        value = front * _beta_fraction(a, b, x) / a
    else:
        value = 1.0 - front * _beta_fraction(b, a, y) / b
    return math.log(max(value, _TINY)), front / max(value, _TINY)


def _logistic(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def _beta_front(a: float, b: float, x: float, y: float) -> float:
    """x^a y^b / B(a, b), by deviations from the mean: logs of large numbers would cancel."""
    if x <= 0 or y <= 0:
        return 0.0
    mean, other = a / (a + b), b / (a + b)
    if x < 0.5:
        deviance = a * _log_ratio(mean, x, mean - x) + b * _log_ratio(other, y, x - mean)
    else:
        deviance = a * _log_ratio(mean, x, y - other) + b * _log_ratio(other, y, other - y)
    log = _remainder(a + b) - _remainder(a) - _remainder(b) - deviance
    return math.sqrt(a * other / (2 * math.pi)) * math.exp(log)


def _log_ratio(mean: float, x: float, excess: float) -> float:
    """log(mean / x), where mean - x = excess."""
    return math.log1p(excess / x) if abs(excess) < 0.5 * x else math.log(mean / x)


def _remainder(a: float) -> float:
    """What Stirling's formula (a - 1/2) log a - a + log(2 pi) / 2 leaves out of log Gamma(a)."""
    if a < _LARGE:
        return math.lgamma(a) - (a - 0.5) * math.log(a) + a - 0.5 * math.log(2 * math.pi)
    return math.fsum(c / a ** (2 * k + 1) for k, c in enumerate(_STIRLING))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by the method of Lentz."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    found = d
    for m in range(1, _LONGEST):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            found *= c * d
        if abs(c * d - 1.0) < _EXACT:
            break
    return found


def _upper_gamma(a: float, x: float) -> tuple[float, float]:
    """The log of the regularized upper incomplete gamma function, and minus its slope in log x."""
    if x <= 0 or math.isinf(x):
        return (0.0, 0.0) if x <= 0 else (-math.inf, 0.0)
    log = -_remainder(a) - a * _log_ratio(a, x, a - x) + a - x
    front = math.sqrt(a / (2 * math.pi)) * math.exp(log)  # x^a e^-x / Gamma(a)
    value = front * _gamma_fraction(a, x) if x > a + 1 else 1.0 - front * _gamma_series(a, x)
    return math.log(max(value, _TINY)), front / max(value, _TINY)


def _gamma_series(a: float, x: float) -> float:
    term = found = 1.0 / a
    for k in range(1, _LONGEST):
        term *= x / (a + k)
        found += term
        if term < _EXACT * found:
            break
    return found


def _gamma_fraction(a: float, x: float) -> float:
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / b
    found = d
    for k in range(1, _LONGEST):
        term = -k * (k - a)
        b += 2.0
        d = 1.0 / (term * d + b)
        c = b + term / c
        found *= c * d
        if abs(c * d - 1.0) < _EXACT:
            break
    return found
