"""Poisson variates, and sparse vectors of them.

A minibatch is a vector of independent Poisson variates, one per factor, most of them 0. It is drawn
in expected time sum(min(1, rate)). Strong rates, of at least 1, are drawn one by one. For the weak
ones, the total is drawn first, and then the entry of each draw through an alias table. The total of
independent Poisson variates is Poisson, and its division is multinomial; the paper's Section 4
derives sum(rate) from this.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.alias import build_alias
from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.kernels.layout import ALIAS, POISSON_ROW, STRONG, PoissonVector
from minigibbs.kernels.random import counted_uniform, positive_uniform, uniform

_INVERSION = 10.0  # larger means are drawn by rejection
FEW_DRAWS = 6.9  # largest mean with exp(-mean) above 1/1000
STRONG_RATE = 1.0
_LEAST = 2.0**-53  # keeps a uniform number away from 0


@kernel
def poisson(mean, none, stream):
    """Draw a Poisson variate; `none` is exp(-mean)."""
    if mean >= _INVERSION:
        return _poisson_by_rejection(mean, stream)
    u = uniform(stream)
    return poisson_by_inversion(u, mean, none)


@inlined
def poisson_beyond(u, mean, none, stream):
    """Draw a positive Poisson variate by a uniform number `u` >= `none`, the probability of 0.

    The time is of the order of the mean, which callers spend on these draws anyway. A large mean is
    divided into small ones, and a sum of 0 is redrawn, because `u` excludes it.
    """
    pieces, left, count = 1, 1, 0
    if mean >= _INVERSION:
        pieces = left = np.int64(mean / _INVERSION) + 1
        none, u = math.exp(-mean / pieces), uniform(stream)
    while left > 0:
        count += poisson_by_inversion(u, mean / pieces, none)
        left -= 1
        if left == 0 and count == 0:
            left = pieces
        if left > 0:
            u = uniform(stream)
    return count


@inlined
def poisson_by_inversion(u, mean, none):
    """Draw a Poisson variate of a small mean by a uniform number; `none` is exp(-mean)."""
    if u < none:
        return 0
    u, chance, count = u - none, none * mean, 1  # the first step needs no division
    while u >= chance and count < 200:
        u -= chance
        count += 1
        chance *= mean / count
    return count


@kernel
def counted_poisson(mean, none, key):
    """Draw a Poisson variate by counter-based numbers of a key, with counters from -1 downwards."""
    if mean < _INVERSION:
        u = counted_uniform(key, np.int64(-1))
        return poisson_by_inversion(u, mean, none)
    count, number = -1, np.int64(-1)
    while count < 0:
        u, v = counted_uniform(key, number), counted_uniform(key, number - 1)
        count = _accept(mean, u - 0.5, v + _LEAST)
        number -= 2
    return count


@kernel
def _poisson_by_rejection(mean, stream):
    """Draw a Poisson variate for means of at least 10."""
    count = -1
    while count < 0:
        u, v = uniform(stream) - 0.5, positive_uniform(stream)
        count = _accept(mean, u, v)
    return count


@kernel
def _accept(mean, u, v):
    """Make one try of transformed rejection with squeeze: return a count, or -1 if rejected.

    Hormann 1993, doi:10.1016/0167-6687(93)90997-4, algorithm PTRS.
    """
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    us = 0.5 - abs(u)
    if us < 1e-12:
        return -1
    count = math.floor((2.0 * a / us + b) * u + mean + 0.43)
    if us >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2.0):
        return int(count)
    if count < 0.0 or (us < 0.013 and v > us):
        return -1
    scale = math.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
    if scale <= count * math.log(mean) - mean - math.lgamma(count + 1.0):
        return int(count)
    return -1


def poisson_vector(
    start: NDArray[np.int64], end: NDArray[np.int64], rates: NDArray[np.float64]
) -> PoissonVector:
    """Prepare rows of Poisson variates: indices [start, end) of each row, with these rates.

    Rates of 0 are dropped. Preparation takes time and memory linear in the number of indices.
    """
    rows = np.zeros(len(start), dtype=POISSON_ROW)
    strong = np.empty(int(np.count_nonzero(rates >= STRONG_RATE)), dtype=STRONG)
    weak = np.empty(int(np.count_nonzero((rates > 0) & (rates < STRONG_RATE))), dtype=ALIAS)
    largest = int((end - start).max(initial=0))
    _split(start, end, rates, rows, strong, weak, np.empty(largest, np.int32))
    return PoissonVector(rows, strong, weak)


@entry
def _split(start, end, rates, rows, strong, weak, scratch):
    strongs = weaks = 0
    for i in range(len(start)):
        row = rows[i]
        row.strong_start, row.weak_start = strongs, weaks
        total = 0.0
        for place in range(start[i], end[i]):
            rate = rates[place]
            if rate >= STRONG_RATE:
                strong[strongs].place = place
                strong[strongs].rate = rate
                strong[strongs].none = math.exp(-rate)
                strongs += 1
            elif rate > 0.0:
                weak[weaks].place = place
                weak[weaks].accept = rate
                total += rate
                weaks += 1
        row.strong_end, row.weak_end = strongs, weaks
        row.weak_total, row.none = total, math.exp(-total)
        if total > 0.0:
            build_alias(weak, row.weak_start, weaks, scratch)


def expected_draws(rows: NDArray[np.void]) -> NDArray[np.float64]:
    """Return the expected work of each row, sum(min(1, rate)): strong variates and weak draws."""
    work: NDArray[np.float64] = rows["strong_end"] - rows["strong_start"] + rows["weak_total"]
    return work
