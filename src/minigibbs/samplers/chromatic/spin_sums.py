"""Sums over spins in the layout of the tiles: one chain in bytes, or 64 chains in bits.

A term is the index of its place, or the complement of the index if zeros are counted. If there are
fewer terms than the last end, all places are counted.
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import entry
from minigibbs.kernels.lanes import count_where, lanes_of

_LANES, _BYTE, _FULL = 64, np.uint8(0), 255


@entry
def row_sums(x, terms, ends, out):
    """Compute the sums of one chain into out[sum]; every sum must have terms."""
    begin = 0
    for which in range(len(ends)):
        total = 0
        for k in range(begin, ends[which]):
            place = terms[k]
            total += np.int64(x[place]) if place >= 0 else np.int64(1 - x[~place])
        out[which], begin = total, ends[which]


@entry
def lane_sums(x, terms, ends, out):
    """Compute the sums of 64 chains into out[sum, lane]."""
    few, begin = lanes_of(_LANES, _BYTE), 0
    everywhere = len(ends) > 0 and len(terms) < ends[-1]
    for which in range(len(ends)):
        for lane in range(_LANES):
            out[which, lane] = 0
        while begin < ends[which]:
            end = min(begin + _FULL, ends[which])
            for lane in range(_LANES + np.int64(len(x) < 0)):
                few[lane] = _BYTE
            for k in range(begin, end):
                place = k if everywhere else np.int64(terms[k])
                count_where(x[place] if place >= 0 else ~x[~place], few)
            for lane in range(_LANES):
                out[which, lane] += few[lane]
            begin = end
