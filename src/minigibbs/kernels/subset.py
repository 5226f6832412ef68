"""Uniform subsets without replacement, in time and memory proportional to the subset.

Floyd's algorithm (Bentley and Floyd 1987, doi:10.1145/30401.315746) with a small hash set. The set
is stored in integer scratch: a stamp, then pairs (stamp, member). A new stamp empties it.
"""

from __future__ import annotations

from minigibbs.kernels.jit import kernel
from minigibbs.kernels.random import below


def subset_scratch(size: int) -> int:
    """Return the integers of scratch that subsets of this size need."""
    return 1 + 2 * (1 << (4 * max(size, 1) - 1).bit_length())


@kernel
def begin_subset(scratch):
    """Empty the set."""
    scratch[0] += 1


@kernel
def _enter(scratch, member):
    """Add a member to the set; return False if it was there."""
    mask = (len(scratch) - 1) // 2 - 1
    slot = (member * 2654435761) & mask
    while scratch[1 + 2 * slot] == scratch[0]:
        if scratch[2 + 2 * slot] == member:
            return False
        slot = (slot + 1) & mask
    scratch[1 + 2 * slot] = scratch[0]
    scratch[2 + 2 * slot] = member
    return True


@kernel
def next_member(scratch, last, stream):
    """Draw the next member of a subset of 0..count-1 of size B; `last` is count-B, ..., count-1."""
    member = below(stream, last + 1)
    if not _enter(scratch, member):
        member = last
        _enter(scratch, member)
    return member
