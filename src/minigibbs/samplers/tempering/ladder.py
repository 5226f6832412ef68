"""Exchanges, Houdayer moves and running sums of all layouts of a temperature ladder.

Non-reversible parallel tempering (Syed, Bouchard-Cote, Deligiannidis and Doucet 2019): level k has
a state of the model with all energies times beta_k. Neighboring levels exchange their states, the
even pairs in one round and the odd ones in the next.

A chain has one ladder of K levels, or two (`twins`) with Houdayer moves between them. Level k of
ladder t is slot t * K + k. A layout stores the states of all slots in `replicas`, and registers the
functions that exchange them (`register_layout`). Sums are stored in `chain.carried`, after the
numbers of the layout itself.

Random numbers of exchanges and Houdayer moves are counter-based: a function of the chain's key, the
round and the slot, so that every layout and device makes the same decisions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from minigibbs.kernels.choice import TAIL
from minigibbs.kernels.jit import chosen_by_type, inlined, kernel
from minigibbs.kernels.philox import chain_bits
from minigibbs.kernels.random import next_word

BLOCKS = 64  # parts of a run with sums of their own, for the error of log Z
EMPTY = -1e300  # the logarithm of an empty sum

# Indices of the first statistics of a ladder in `carried`.
ROUNDS, TRIPS, LENGTH, KEY_0, KEY_1, SWAPS = range(6)

EXCHANGE, FURTHER, SEED = TAIL, TAIL + 1, TAIL + 2  # draw numbers that differ from those of updates

_LOWER = np.uint64(0xFFFFFFFF)
_HALF_WORD = 2.0**-32


class _Operations(NamedTuple):
    """The compiled functions of a layout."""

    swap: Any
    read: Any
    copy: Any


_BY_TYPE: dict[type, _Operations] = {}


def register_layout(data: type, swap: Any, read: Any, copy: Any) -> None:
    """Associate the compiled functions of a layout with the type of its data.

    Parameters
    ----------
    data : type
        The NamedTuple that the layout prepares.
    swap : compiled function
        `swap(data, chain, replicas)` exchanges the states of slots s and s + 1 wherever
        `chain.carried[swapped_at(data) + s]` is 1. No two such pairs overlap.
    read : compiled function
        `read(data, replicas, slot, x)` writes the free variables of a slot's state to `x`.
    copy : compiled function
        `copy(data, replicas, source, target)` copies the state of one slot to another.
    """
    _BY_TYPE[data] = _Operations(swap, read, copy)


def swap_slots(data: Any, chain: Any, replicas: Any) -> None:
    """Exchange states as described in `register_layout`; compiled code only."""
    _BY_TYPE[type(data)].swap(data, chain, replicas)


def read_slot(data: Any, replicas: Any, slot: int, x: Any) -> None:
    """Write the state of a slot to `x`; compiled code only."""
    _BY_TYPE[type(data)].read(data, replicas, slot, x)


def copy_slot(data: Any, replicas: Any, source: int, target: int) -> None:
    """Copy the state of a slot to another; compiled code only."""
    _BY_TYPE[type(data)].copy(data, replicas, source, target)


@chosen_by_type(swap_slots)
def _swap_for_type(data, chain, replicas):  # type: ignore[no-untyped-def]
    return _BY_TYPE[data.instance_class].swap.py_func


@chosen_by_type(read_slot)
def _read_for_type(data, replicas, slot, x):  # type: ignore[no-untyped-def]
    return _BY_TYPE[data.instance_class].read.py_func


@chosen_by_type(copy_slot)
def _copy_for_type(data, replicas, source, target):  # type: ignore[no-untyped-def]
    return _BY_TYPE[data.instance_class].copy.py_func


def noted(levels: int, twins: int) -> int:
    """Return the length of a ladder's part of the `carried` array."""
    return SWAPS + levels - 1 + 3 * levels * twins + twins + BLOCKS * (levels - 1) * 2


@inlined
def accepted_at(data):
    """Return the index of the sums of acceptance probabilities: one per pair of levels."""
    return data.own + SWAPS


@inlined
def swapped_at(data):
    """Return the index of the slots' flags: 1 if a slot exchanges its state with the next."""
    return accepted_at(data) + len(data.beta) - 1


@inlined
def label_at(data):
    """Return the index of the labels of the slots' replicas: last end was 1 (hot) or 2 (cold)."""
    return swapped_at(data) + len(data.beta) * data.twins


@inlined
def energy_at(data):
    """Return the index of the energies of the slots."""
    return label_at(data) + len(data.beta) * data.twins


@inlined
def broken_at(data):
    """Return the index of the numbers of zeros that the last soft levels violate, per ladder."""
    return energy_at(data) + len(data.beta) * data.twins


@inlined
def blocks_at(data):
    """Return the index of the sums for log Z: [block][pair of levels][up, down], logarithms."""
    return broken_at(data) + data.twins


@kernel
def begin_ladder(data, chain):
    """Reset the sums, and draw the key of all counter-based numbers."""
    for k in range(data.own, len(chain.carried)):
        chain.carried[k] = 0.0
    chain.carried[data.own + LENGTH] = 1.0
    word = next_word(chain.stream)
    chain.carried[data.own + KEY_0] = np.float64(np.int64(word & _LOWER))
    chain.carried[data.own + KEY_1] = np.float64(np.int64(word >> np.uint64(32)))
    for k in range(blocks_at(data), len(chain.carried)):
        chain.carried[k] = EMPTY


@kernel
def ladder_keys(data, chain):
    """Return the key of the chain's counter-based numbers: two `uint32`."""
    key0 = np.uint32(np.int64(chain.carried[data.own + KEY_0]))
    return key0, np.uint32(np.int64(chain.carried[data.own + KEY_1]))


@kernel
def slot_bits(data, chain, slot, draw):
    """Return 32 random bits of a slot in this round."""
    key0, key1 = ladder_keys(data, chain)
    rounds = np.int64(chain.carried[data.own + ROUNDS])
    return chain_bits(key0, key1, np.int64(slot), np.uint32(0), rounds, draw)


@kernel
def _add_log(chain, place, value):
    """Add exp(value) to the sum whose logarithm is at index `place`."""
    before = chain.carried[place]
    high, low = max(before, value), min(before, value)
    chain.carried[place] = high + math.log1p(math.exp(low - high))


@kernel
def _halve_blocks(data, chain):
    """Merge pairs of consecutive blocks to make space for as many new ones."""
    width, first = 2 * (len(data.beta) - 1), blocks_at(data)
    for block in range(BLOCKS // 2):
        for k in range(width):
            one = chain.carried[first + 2 * block * width + k]
            chain.carried[first + block * width + k] = one
            _add_log(
                chain, first + block * width + k, chain.carried[first + (2 * block + 1) * width + k]
            )
    for k in range(first + BLOCKS // 2 * width, first + BLOCKS * width):
        chain.carried[k] = EMPTY
    chain.carried[data.own + LENGTH] *= 2.0


@kernel
def seed_place(data, chain, slot, places):
    """Draw the first variable of a Houdayer cluster, nearly uniformly below `places`.

    The move has the same probability as its reverse for any distribution of this variable.
    """
    bits = np.uint64(slot_bits(data, chain, slot, SEED))
    return np.int64((bits * np.uint64(places)) >> np.uint64(32))


@kernel
def energy_of(data, chain, twin, level):
    """Return the energy of a level's state."""
    return chain.carried[energy_at(data) + twin * len(data.beta) + level]


@kernel
def _gap(data, chain, twin, k):
    """Compute the log acceptance ratio of an exchange between levels k and k + 1."""
    if data.hard and k == len(data.beta) - 2:
        return 0.0 if chain.carried[broken_at(data) + twin] == 0.0 else -math.inf
    step = data.beta[k + 1] - data.beta[k]
    return step * (energy_of(data, chain, twin, k) - energy_of(data, chain, twin, k + 1))


@kernel
def _note_pairs(data, chain):
    """Record acceptance probabilities of all neighboring levels, and the terms of log Z."""
    levels, rounds = len(data.beta), chain.carried[data.own + ROUNDS]
    if rounds == BLOCKS * chain.carried[data.own + LENGTH]:
        _halve_blocks(data, chain)
    block = int(rounds / chain.carried[data.own + LENGTH])
    first = blocks_at(data) + block * 2 * (levels - 1)
    for twin in range(data.twins):
        for k in range(levels - 1):
            gap = _gap(data, chain, twin, k)
            chain.carried[accepted_at(data) + k] += math.exp(min(0.0, gap))
            if data.hard and k == levels - 2:  # the share of states that violate no zero
                if gap == 0.0:
                    _add_log(chain, first + 2 * k, 0.0)
                _add_log(chain, first + 2 * k + 1, 0.0)
            else:
                step = data.beta[k + 1] - data.beta[k]
                low, high = energy_of(data, chain, twin, k), energy_of(data, chain, twin, k + 1)
                _add_log(chain, first + 2 * k, 0.5 * step * low)
                _add_log(chain, first + 2 * k + 1, -0.5 * step * high)


@kernel
def _swap_carried(chain, a, b):
    chain.carried[a], chain.carried[b] = chain.carried[b], chain.carried[a]


@kernel
def _label_ends(data, chain, twin):
    """Label the replicas at both ends; count a round trip at each return to the hot end."""
    first, levels = label_at(data) + twin * len(data.beta), len(data.beta)
    if chain.carried[first] == 2.0:
        chain.carried[data.own + TRIPS] += 1.0
    chain.carried[first] = 1.0
    if chain.carried[first + levels - 1] == 1.0:
        chain.carried[first + levels - 1] = 2.0


@kernel
def _uniform(data, chain, slot):
    """Return a number uniform on (0, 1), with 64 bits."""
    high = np.float64(slot_bits(data, chain, slot, EXCHANGE))
    low = np.float64(slot_bits(data, chain, slot, FURTHER)) + 0.5
    return (high + low * _HALF_WORD) * _HALF_WORD


@kernel
def decide_exchanges(data, chain):
    """Update the statistics of a round, and mark the slots that exchange their states."""
    _note_pairs(data, chain)
    rounds, levels = int(chain.carried[data.own + ROUNDS]), len(data.beta)
    for slot in range(levels * data.twins):
        chain.carried[swapped_at(data) + slot] = 0.0
    for twin in range(data.twins):
        for k in range(rounds % 2, levels - 1, 2):
            gap, slot = _gap(data, chain, twin, k), twin * levels + k
            if gap >= 0.0 or math.log(_uniform(data, chain, slot)) < gap:
                chain.carried[swapped_at(data) + slot] = 1.0
                _swap_carried(chain, energy_at(data) + slot, energy_at(data) + slot + 1)
                _swap_carried(chain, label_at(data) + slot, label_at(data) + slot + 1)
        _label_ends(data, chain, twin)
    chain.carried[data.own + ROUNDS] += 1.0


@kernel
def exchange(data, chain, replicas):
    """Make one round of exchanges, given the energies of all slots."""
    decide_exchanges(data, chain)
    swap_slots(data, chain, replicas)


@kernel
def shown_slot(data, chain):
    """Return the slot of the recorded target state, from both ladders in turn."""
    twin = int(chain.carried[data.own + ROUNDS]) % data.twins
    return twin * len(data.beta) + len(data.beta) - 1
