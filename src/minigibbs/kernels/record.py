"""What a chain keeps as it goes: time-weighted counts, draws, energies, errors."""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.energy import general_energy, pair_energy, row_energy
from minigibbs.kernels.jit import inlined


@inlined
def note_time(recorder, model, clock, i, old, new):
    """Count the time that variable `i` has spent in the value it had: O(1).

    For a spin that is one number: when it left the value 1, less when it came to it.
    """
    if recorder.spins:
        recorder.since[i] += clock * (np.int64(old) - np.int64(new))
    else:
        recorder.counts[model.first[i] + old] += clock - recorder.since[i]
        recorder.since[i] = clock


def settle_counts(recorder, model, clock, x):
    """Bring the counts up to the clock, from Python and without compiling anything."""
    if recorder.spins:
        recorder.counts[1::2] = recorder.since + clock * x.astype(np.int64)
        recorder.counts[::2] = clock - recorder.counts[1::2]
    elif len(recorder.since):
        recorder.counts[model.first + x] += clock - recorder.since
        recorder.since[:] = clock


def go_on_counting(recorder, clock, x):
    """Take up counts that were brought up to the clock."""
    if recorder.spins:
        recorder.since[:] = recorder.counts[1::2] - clock * x.astype(np.int64)
    else:
        recorder.since[:] = clock


@inlined
def keep(recorder, model, clock, x):
    """Keep what is recorded; records are `thin` updates apart."""
    record = clock // recorder.thin - 1
    if record < len(recorder.draws):
        every = len(recorder.drawn) == 0
        for k in range(recorder.draws.shape[1]):
            recorder.draws[record, k] = x[k if every else recorder.drawn[k]]
    if record < len(recorder.energy) and (record + 1) % recorder.energy_every == 0:
        if len(recorder.rows):
            energy = row_energy(recorder.rows, recorder.second, recorder.pair_weight, x)
        else:
            energy = pair_energy(recorder.pair, recorder.pair_weight, x)
        recorder.energy[record] = energy + general_energy(model, x)
    if len(recorder.held):
        place = record % len(recorder.held)
        for k in range(len(x)):
            recorder.held[place, k] = x[k]
