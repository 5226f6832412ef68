"""What a chain keeps as it goes: time-weighted counts, draws, energies, errors."""

from __future__ import annotations

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
