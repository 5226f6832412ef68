"""Points packed into few words, so that a GPU loads less per proposal.

A point's features and its scale take 16 bits each. They decide nearly all proposals. The others are
decided in double precision by `samplers.chromatic.points.settle`, so draws are the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.decay import LAPLACE
from minigibbs.samplers.chromatic.points import HEAD, QUAD, PointColors

HALVES = 2 * QUAD  # half words that are loaded at a time
_MOST = 65535  # largest half word
_ROUNDING = 3e-6  # relative error bound of single precision
_LOG2_E = math.log2(math.e)
_TINY = float(np.finfo(np.float32).tiny)


class PackedPoints(NamedTuple):
    """Arrays and constants that a proposal reads; each constant of a group is [group]."""

    points: NDArray[np.uint32]  # [4 * quads * row] place, scale and features in half words
    members: int  # points per group
    unit: NDArray[np.float32]  # step of scales
    power: NDArray[np.float32]  # log2 of the kernel per squared distance, or distance, in steps
    slack: NDArray[np.float32]  # relative error bound of a value


def packed_quads(features: int) -> int:
    """Return the quads of words of a point: its features, place and scale."""
    return -(-(3 + features) // HALVES)


def pack_points(data: PointColors, features: int) -> PackedPoints:
    """Pack points of at most `features` features."""
    groups, count = len(data.codes), len(data.variable)
    rows = data.points.reshape(groups, count, QUAD * data.quads)
    halves = np.zeros((groups, count, HALVES * packed_quads(features)), np.uint16)
    places = np.ascontiguousarray(rows[:, :, 1])
    halves[:, :, :2] = places.view(np.uint16).reshape(groups, count, 2)
    floats = rows.view(np.float32)
    unit, steps = np.ones(groups), np.ones(groups)
    for g in range(groups):
        scale, feature = floats[g, :, 0], floats[g, :, HEAD : HEAD + features].astype(np.float64)
        low = feature.min(axis=0, initial=np.inf)
        unit[g] = max(float(scale.max()), _TINY) / _MOST
        steps[g] = max(float((feature - low).max(initial=0.0)), 1e-30) / _MOST
        halves[g, :, 2] = np.rint(scale / unit[g])
        halves[g, :, 3 : 3 + features] = np.rint((feature - low) / steps[g])
    laplace = data.codes == LAPLACE
    # Both ends are rounded by up to half a step in every direction.
    off = math.sqrt(features) * steps
    return PackedPoints(
        halves.reshape(-1).view(np.uint32),
        count,
        unit.astype(np.float32),
        np.where(laplace, -_LOG2_E * steps, -0.5 * _LOG2_E * steps**2).astype(np.float32),
        (1.1 * (np.where(laplace, off, 0.5 * off) + off**2) + _ROUNDING).astype(np.float32),
    )
