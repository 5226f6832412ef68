"""What a chain keeps as it goes: time-weighted counts, draws, energies, errors."""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.energy import total_energy
from minigibbs.kernels.jit import inlined


@inlined
def note_change(recorder, model, clock, i, old):
    """Count the time variable `i` spent in the value it leaves: O(1), and only on a change."""
    recorder.counts[model.first[i] + old] += clock - recorder.since[i]
    recorder.since[i] = clock


def settle_counts(recorder, model, clock, x):
    """Bring the counts up to the clock, from Python and without compiling anything."""
    if len(recorder.since):
        recorder.counts[model.first + x] += clock - recorder.since
        recorder.since[:] = clock


def mean_error(counts, reference, first):
    """How far marginals are off: the mean l2 distance to the reference over the variables.

    This is the error that the paper plots. `counts` [..., sum of sizes] count the visits to each
    value; a variable's values begin at `first`.
    """
    end = first[1] if len(first) > 1 else counts.shape[-1]
    visits = np.maximum(counts[..., :end].sum(axis=-1, keepdims=True), 1)
    off = counts * (1.0 / visits)  # in place from here on: this may run at every sweep
    off -= reference
    off *= off
    return np.sqrt(np.add.reduceat(off, first, axis=-1)).mean(axis=-1)


@inlined
def keep(recorder, model, clock, x):
    """Keep what was asked for at a record; records are `thin` updates apart."""
    record = clock // recorder.thin - 1
    if record < len(recorder.draws):
        every = len(recorder.drawn) == 0
        for k in range(recorder.draws.shape[1]):
            recorder.draws[record, k] = x[k if every else recorder.drawn[k]]
    if record < len(recorder.energy):
        recorder.energy[record] = total_energy(model, x)
