"""Compiled loop over many chains that each visit their own variables, for learning."""

from __future__ import annotations

from minigibbs.engine.dispatch import update
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import Chain


@entry
def advance_many(data, model, x, streams, carried, weights, scratch, tally, order, ends, sweeps):
    """Sweep chains x[chain, variable] in order through order[ends[chain, 0] : ends[chain, 1]]."""
    for c in range(len(x)):
        chain = Chain(x[c], streams[c], carried, weights, scratch, tally)
        for _ in range(sweeps):
            for place in range(ends[c, 0], ends[c, 1]):
                i = order[place]
                x[c, i] = update(data, model, chain, i)
