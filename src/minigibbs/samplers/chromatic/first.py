"""First states of chromatic runs: a value is a function of the seed, the chain and the variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.philox import key_of, quad_bits

START_DRAW = np.uint32(0xFFFFFFFF)  # draw number of first states, in sweep 0
_S32 = np.uint64(32)


@literal
def value_of(bits, size):
    """Map 32 bits to one of `size` values, equally likely within 2**-32."""
    return (np.uint64(bits) * np.uint64(size)) >> _S32


def first_states(graph: FactorGraph, chains: int, seed: int) -> NDArray[Any]:
    """Draw random states that agree with the evidence: [chain, variable]."""
    states = np.empty((4 * -(-chains // 4), len(graph)), graph.state_type)
    _fill(key_of(seed), np.ascontiguousarray(graph.sizes), states)
    clamped = graph.evidence >= 0
    states[:, clamped] = graph.evidence[clamped]
    return states[:chains]


@literal_entry
def _fill(key, sizes, states):
    for quad in range(len(states) // 4):
        for i in range(len(sizes)):
            a, b, c, d = quad_bits(key[0], key[1], np.uint32(quad), np.uint32(i), 0, START_DRAW)
            states[4 * quad, i] = value_of(a, sizes[i])
            states[4 * quad + 1, i] = value_of(b, sizes[i])
            states[4 * quad + 2, i] = value_of(c, sizes[i])
            states[4 * quad + 3, i] = value_of(d, sizes[i])
