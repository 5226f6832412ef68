"""Rates of draws that are the same for all variables."""

from __future__ import annotations

import math
from typing import NamedTuple

from minigibbs.samplers.poisson_gibbs.groups.base import ImplicitSplit


class Rates(NamedTuple):
    """The rate of draws, the probability to keep one, and the effect of a kept pair on a weight."""

    rate: float  # (1 + theta) * L_T, the expected number of draws per update
    none: float  # exp(-rate), the probability of no draw
    keep: float  # theta / (1 + theta)
    gain: float  # a weight's factor for an attractive pair: 1 / keep, or its logarithm
    loss: float  # the same for a repulsive pair: keep, or its logarithm


def rates_of(split: ImplicitSplit, logs: bool) -> Rates:
    """Compute the rates of a split, for weights or for their logarithms."""
    rate, keep = (1 + split.theta) * split.tail, split.theta / (1 + split.theta)
    gain = math.log1p(1 / split.theta)
    gain, loss = (gain, -gain) if logs else (1 + 1 / split.theta, keep)
    return Rates(rate, math.exp(-rate), keep, gain, loss)
