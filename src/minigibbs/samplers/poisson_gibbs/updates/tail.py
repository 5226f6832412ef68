"""Steps 1 and 2 of an update: draw factors of the tail, keep or drop them (docs/flagship.md)."""

from __future__ import annotations

from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.random import uniform
from minigibbs.kernels.touched import touch


@inlined
def keep_pair(chain, i, value, attracts, keep):
    """Return whether a drawn pair is kept: always at its maximum, else with probability `keep`.

    `value` is the other variable's; `keep` is theta / (1 + theta).
    """
    return (value == chain.x[i]) == attracts or uniform(chain.stream) < keep


@inlined
def keep_share(chain, share, theta):
    """Return whether a drawn factor at `share` of its bound is kept."""
    return uniform(chain.stream) * (1.0 + theta) < theta + share


@inlined
def draw_pair(tail, part, chain, i):
    """Draw a pair from an alias table of signed variables (see `base.signed_tail`).

    Returns whether it is kept, the value it touches, and whether it attracts.
    """
    first = part.tail_start
    place = draw_alias(tail, first, first + part.tail, chain.stream)
    attracts, value = place > 0, chain.x[abs(place) - 1]
    return keep_pair(chain, i, value, attracts, part.keep), value, attracts


@kernel
def touch_kept(rates, chain, i, value, attracts, mode, size, touched):
    """Keep a drawn pair or drop it; if kept, multiply the weight of the value it touches.

    `rates` has `keep`, `gain` and `loss`. Returns the number of touched values.
    """
    if keep_pair(chain, i, value, attracts, rates.keep):
        factor = rates.gain if attracts else rates.loss
        touched = touch(chain, mode, size, value, factor, touched)
    return touched
