"""Weights so large that smaller ones are lost when they are added in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minigibbs.kernels.layout import Model
from minigibbs.system.caller import warn

if TYPE_CHECKING:
    from minigibbs.graph.graph import FactorGraph

TOLERANCE = 1e-3  # of log-odds, which is an error of probabilities of at most 0.00025


def rounding_error(model: Model, implicit: float) -> float:
    """Estimate the rounding error of log-odds: the machine epsilon times the sum of all weights.

    It is 0 if a single factor has a weight, since nothing is added. `implicit` is the sum of the
    weights of implicit factors.
    """
    factors = model.factors
    sizes = np.abs(factors["low"]) + np.where(np.isinf(factors["span"]), 0.0, factors["span"])
    hard = np.isinf(factors["span"])
    if hard.any():  # their span is infinite
        finite = np.abs(model.table[np.isfinite(model.table)]).max(initial=0.0)
        sizes[hard] = np.abs(factors["weight"][hard]) * finite
    pairs = np.abs(model.pair_weight)
    if np.count_nonzero(sizes) + np.count_nonzero(pairs) + (implicit > 0.0) < 2:
        return 0.0
    return float(np.finfo(np.float64).eps * (sizes.sum() + pairs.sum() + implicit))


def rounding_warning(error: float) -> str | None:
    """Return the warning for a graph with this rounding error, or None if it is harmless."""
    if error <= TOLERANCE:
        return None
    total = error / np.finfo(np.float64).eps
    return (
        f"weights of {total:.1e} together: rounding changes log-odds by about {error:.1g}, and "
        "smaller factors are lost. Make the largest weights smaller, such as 50 (a probability of "
        "e^-50 = 2e-22), or use log-potentials of -inf in mg.Table or mg.Unary for what is "
        "impossible"
    )


def warn_of_rounding(graph: FactorGraph, log_z: float = 0.0) -> None:
    """Warn about too large weights, for results that cannot contain warnings.

    Probabilities that are differences of log Z also have the rounding error of `log_z`, to which a
    single factor with a large constant is enough.
    """
    error = abs(log_z) * float(np.finfo(np.float64).eps) if np.isfinite(log_z) else 0.0
    text = rounding_warning(max(graph.rounding_error, error))
    if text is not None:
        warn(text)
