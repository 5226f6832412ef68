"""The CPU's run loop."""

from __future__ import annotations

from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import CHANGES
from minigibbs.kernels.record import keep, note_change
from minigibbs.kernels.scan import next_variable
from minigibbs.samplers.base import begin, update


@entry
def advance(data, model, chain, scan, recorder, updates, recording):
    """Run one chain `updates` further; everything it needs to go on is in its arrays.

    So a run may be cut anywhere, into any number of calls, and gives the same draws.
    """
    x, counting = chain.x, recording and len(recorder.counts) > 0
    clock, left = recorder.clock[0], updates
    while left > 0:
        stretch = left
        if recording and recorder.thin - clock % recorder.thin < left:
            stretch = recorder.thin - clock % recorder.thin
        for step in range(clock, clock + stretch):
            i = next_variable(scan, scan.stream)
            value, old = update(data, model, chain, i), x[i]
            x[i] = value  # even if it is the old one: nobody can predict that branch
            chain.tally[CHANGES] += value != old
            if counting and value != old:
                note_change(recorder, model, step, i, old)
        left -= stretch
        if recording:
            clock += stretch
            if clock % recorder.thin == 0:
                keep(recorder, model, clock, x)
    recorder.clock[0] = clock


@entry
def start_chain(data, model, chain):
    """Let the sampler set what it carries, for the chain's first state."""
    begin(data, model, chain)
