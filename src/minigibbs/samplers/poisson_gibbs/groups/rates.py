"""Draws whose rate is the same for all variables."""

from __future__ import annotations

import math
from typing import NamedTuple

from minigibbs.samplers.poisson_gibbs.groups.base import ImplicitSplit


class Rates(NamedTuple):
    """How often pairs are drawn and kept, and what a kept pair does to a weight."""

    rate: float  # (1 + theta) * L_T
    none: float  # exp(-rate)
    keep: float  # theta / (1 + theta)
    gain: float  # factor of a value that a kept pair attracts to: 1 / keep, or its logarithm
    loss: float  # factor of a value that a kept pair repels from: keep, or its logarithm


def rates_of(split: ImplicitSplit, logs: bool) -> Rates:
    """Return the rates of a split, for weights or for their logarithms."""
    rate, keep = (1 + split.theta) * split.tail, split.theta / (1 + split.theta)
    gain = math.log1p(1 / split.theta)
    gain, loss = (gain, -gain) if logs else (1 + 1 / split.theta, keep)
    return Rates(rate, math.exp(-rate), keep, gain, loss)
