"""The paper's estimator (2) for models of pairs, fast even for lambda = 4 * Psi^2.

A pair is either at its minimum, where it adds nothing, or at its maximum, where each of its draws
adds log(1 + Psi / lambda). So only the number of draws at maxima counts. Sums of independent
Poisson variates are Poisson variates. It therefore suffices to sum the rates of the strong pairs at
their maximum, and to draw one Poisson variate for all of them. The estimate has the same
distribution as that of `mg.PoissonEstimator`, which draws one variate per factor.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import factor_spans
from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.jit import FAST_MATH
from minigibbs.kernels.poisson import poisson, poisson_vector
from minigibbs.samplers import CustomEstimator

_STRONG = 0.05  # expected draws from which on evaluating a pair is cheaper than drawing it


def pair_estimator(graph: FactorGraph, batch: float) -> CustomEstimator:
    """Build the estimator (2) with `batch` = lambda expected draws, for attractive pairs."""
    model = graph.packed
    if len(model.factors) or (model.pair_weight < 0).any():
        raise SampleError("pair_estimator: every factor must be a pair that attracts")
    spans = factor_spans(model, graph.evidence)
    ratio = float(spans.sum()) / batch
    rates = spans / ratio
    strong = rates >= _STRONG
    ends = np.array([0]), np.array([len(rates)])
    vector = poisson_vector(*ends, np.where(strong, 0.0, rates))
    first, second = np.ascontiguousarray(model.pair[strong].T)
    parameters = (first, second, rates[strong], vector.rows, vector.weak, math.log1p(ratio))
    return CustomEstimator(_compiled(), parameters)


@cache
def _compiled() -> Any:
    import numba

    return numba.njit(nogil=True, error_model="numpy", fastmath=set(FAST_MATH))(_estimate)


def _estimate(model, x, stream, parameters):  # type: ignore[no-untyped-def]
    """Return the number of draws at their maximum, times log(1 + Psi / lambda)."""
    first, second, rate, rows, weak, gain = parameters
    total = 0.0
    for k in range(len(rate)):
        total += rate[k] * (x[first[k]] == x[second[k]])
    on = poisson(total, math.exp(-total), stream)
    row = rows[0]
    for _ in range(poisson(row.weak_total, row.none, stream)):
        k = draw_alias(weak, row.weak_start, row.weak_end, stream)
        on += x[model.pair[k, 0]] == x[model.pair[k, 1]]
    return gain * on
