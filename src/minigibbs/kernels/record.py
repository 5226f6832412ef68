"""What a chain keeps as it goes: time-weighted counts, draws, energies, errors."""

from __future__ import annotations

import math

from minigibbs.kernels.energy import total_energy
from minigibbs.kernels.jit import entry, inlined, kernel


@inlined
def note_change(recorder, model, clock, i, old):
    """Count the time variable `i` spent in the value it leaves: O(1), and only on a change."""
    recorder.counts[model.first[i] + old] += clock - recorder.since[i]
    recorder.since[i] = clock


@kernel
def settle(recorder, model, clock, x):
    """Bring the counts up to the clock; returns the mean l2 distance to the reference, if any.

    This is the error that the paper plots: how far the running marginals are off, averaged over
    the variables.
    """
    total = 0.0
    for i in range(len(recorder.since)):
        note_change(recorder, model, clock, i, x[i])
        if len(recorder.reference):
            square = 0.0
            for k in range(model.first[i], model.first[i] + model.rows[i].domain):
                square += (recorder.counts[k] / clock - recorder.reference[k]) ** 2
            total += math.sqrt(square)
    return total / len(model.rows)


@entry
def settle_now(recorder, model, clock, x):
    """`settle`, for Python."""
    return settle(recorder, model, clock, x)


def settle_counts(recorder, model, clock, x):
    """Bring the counts up to the clock, from Python and without compiling anything."""
    if len(recorder.since):
        recorder.counts[model.first + x] += clock - recorder.since
        recorder.since[:] = clock


@inlined
def keep(recorder, model, clock, x):
    """Keep what was asked for at a record; records are `thin` updates apart."""
    record = clock // recorder.thin - 1
    if record < len(recorder.draws):
        for k in range(len(recorder.drawn)):
            recorder.draws[record, k] = x[recorder.drawn[k]]
        for i in range(len(x) if len(recorder.drawn) == 0 else 0):
            recorder.draws[record, i] = x[i]
    if record < len(recorder.energy):
        recorder.energy[record] = total_energy(model, x)
    if record < len(recorder.error):
        recorder.error[record] = settle(recorder, model, clock, x)
