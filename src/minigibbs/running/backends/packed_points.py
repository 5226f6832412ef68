"""Points and their slots in few words, so that a GPU loads less for a proposal.

A point's features and its scale take 16 bits each, a slot's two boxes 48. That settles nearly all
proposals; what it leaves open is settled in double precision by `samplers.chromatic.points.settle`,
so that draws are the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.decay import LAPLACE
from minigibbs.samplers.chromatic.points import HEAD, QUAD, SLOT_WORDS, PointColours

HALVES = 2 * QUAD  # of the words that are loaded at a time
_MOST = 65535  # of a half
_ROUNDING = 3e-6  # what single precision may be off, of a value
_LOG2_E = math.log2(math.e)
_TINY = float(np.finfo(np.float32).tiny)


class PackedPoints(NamedTuple):
    """What a proposal reads; every number of a group is [group]."""

    slots: NDArray[np.uint32]  # [4 * slot]: cut, own box, other box, their two logarithms
    points: NDArray[np.uint32]  # [4 * quads * row]: place, scale and features in halves
    members: int  # points of a group
    shift: int  # a box is its first point, and from this bit on how many it has: 0 if too many
    least: float  # a half is a logarithm to base 2 of 1 / bound, from here on
    step: float  # in such steps
    unit: NDArray[np.float32]  # a step of scales
    power: NDArray[np.float32]  # of 2, for a squared distance in steps, or for a distance
    slack: NDArray[np.float32]  # what all of this may be off, of a value


def packed_quads(features: int) -> int:
    """Quads of words of a point with so many features, its place and its scale."""
    return -(-(3 + features) // HALVES)


def pack_points(data: PointColours, features: int) -> PackedPoints:
    """Pack points of so many features at the most, and their slots."""
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
    shift = max(count - 1, 1).bit_length()
    slots, least, step = _pack_slots(data, shift)
    laplace = data.codes == LAPLACE
    # Steps of both ends are off by a half each, in every direction.
    off = math.sqrt(features) * steps
    return PackedPoints(
        slots,
        halves.reshape(-1).view(np.uint32),
        count,
        shift,
        least,
        step,
        unit.astype(np.float32),
        np.where(laplace, -_LOG2_E * steps, -0.5 * _LOG2_E * steps**2).astype(np.float32),
        (1.1 * (np.where(laplace, off, 0.5 * off) + off**2 + 0.5 * step) + _ROUNDING).astype(
            np.float32
        ),
    )


def _pack_slots(data: PointColours, shift: int) -> tuple[NDArray[np.uint32], float, float]:
    """The slots, and how their logarithms are to be read."""
    old, count = data.slots.reshape(-1, SLOT_WORDS), len(data.variable)
    slots = np.empty((len(old), QUAD), np.uint32)
    slots[:, 0] = old[:, 0]
    bounds = []
    for word, begin in ((1, 1), (2, 4)):
        first, many = old[:, begin] % np.uint32(count), old[:, begin + 1]
        fits = many < np.uint64(1) << np.uint64(32 - shift)
        slots[:, word] = first | np.where(fits, many, 0).astype(np.uint32) << np.uint32(shift)
        bounds.append(np.ascontiguousarray(old[:, begin + 2]).view(np.float32))
    positive = [bound[bound > 0.0] for bound in bounds]  # others are never chosen
    least = -math.log2(max((float(bound.max()) for bound in positive if len(bound)), default=1.0))
    most = -math.log2(min((float(bound.min()) for bound in positive if len(bound)), default=1.0))
    step = max(most - least, 1e-6) / _MOST
    low, high = (_logs(bound, least, step) for bound in bounds)
    slots[:, 3] = low | high << np.uint32(16)
    return slots.reshape(-1), least, step


def _logs(bound: NDArray[np.float32], least: float, step: float) -> NDArray[np.uint32]:
    """Halves for the logarithms of 1 / bound."""
    with np.errstate(divide="ignore"):
        steps = (-np.log2(bound.astype(np.float64)) - least) / step
    return np.rint(np.clip(steps, 0, _MOST)).astype(np.uint32)
