"""Sums over spins, counted as they lie: of one chain, a byte a place, or of 64, a bit each.

A term is the number of its place, or its complement where a 0 is wanted. Where there are fewer
terms than their end says, all places are counted.
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import entry
from minigibbs.kernels.lanes import count_where, lanes_of

_LANES, _BYTE, _FULL = 64, np.uint8(0), 255


@entry
def row_sums(x, terms, ends, out):
    """The sums of one chain, to out[sum]; all have terms."""
    begin = 0
    for which in range(len(ends)):
        total = 0
        for k in range(begin, ends[which]):
            place = terms[k]
            total += np.int64(x[place]) if place >= 0 else np.int64(1 - x[~place])
        out[which], begin = total, ends[which]


@entry
def lane_sums(x, terms, ends, out):
    """The sums of 64 chains, to out[sum, lane]."""
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
