"""First states of chromatic runs: a value is a function of the seed, the chain and the variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.philox import key_of, site_bits

START_DRAW = np.uint32(0xFFFFFFFF)  # draw number of first states, in sweep 0
_S32 = np.uint64(32)
_PIECE = 1 << 20  # variables whose states are drawn together


@literal
def value_of(bits, size):
    """Map 32 bits to one of `size` values, equally likely within 2**-32."""
    return (np.uint64(bits) * np.uint64(size)) >> _S32


def first_states(graph: FactorGraph, chains: int, seed: int) -> NDArray[Any]:
    """Draw random states that agree with the evidence: [chain, variable]."""
    states = np.empty((chains, len(graph)), graph.state_type)
    key = key_of(seed)
    for first in range(0, len(graph), _PIECE):  # a copy of all sizes may not fit into memory
        _fill(key, first, np.ascontiguousarray(graph.sizes[first : first + _PIECE]), states)
    if graph.free < len(graph):
        clamped = graph.evidence >= 0
        states[:, clamped] = graph.evidence[clamped]
    return states


@literal_entry
def _fill(key, first, sizes, states):
    """Draw the states of some variables; four chains share random words."""
    for begin in range(0, len(states), 4):
        quad, count = np.uint32(begin // 4), min(len(states) - begin, 4)
        for i in range(len(sizes)):
            words = site_bits(key[0], key[1], quad, np.int64(first + i), 0, START_DRAW)
            for k in range(count):
                states[begin + k, first + i] = value_of(words[k], sizes[i])
