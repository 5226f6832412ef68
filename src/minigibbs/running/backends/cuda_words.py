"""Chromatic scans of spins on a GPU, stored as bits of words: base class of two layouts.

A word of `cuda_colors_bits` has 32 chains, a word of `cuda_colors_stencil` 32 sites.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.running.backends.cuda_colors import CudaColors
from minigibbs.running.backends.device.access import load
from minigibbs.running.backends.device.launch import Again
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.plan import Plan

_NOTING = 8448  # most blocks of threads that count changes
NOTED = 8  # one of this number of sweeps is compared with the sweep before it
_MOST_RECORDS = 4096  # most records that the device buffers
_BUFFER_BYTES = 1 << 28


class CudaWords(CudaColors):
    """Spins as bits: flips are counted in some sweeps, energies when a record is made."""

    keep_energies: Callable[[int], None]  # computes the kept chains' energies of a record
    device_energy: Any  # [record, kept chain]

    def __init__(self, plan: Plan, data: Any) -> None:
        super().__init__(plan, data)
        self.every = self.unit  # updates between two counts: a sweep

    @abstractmethod
    def _energy_bytes(self) -> int:
        """Return the bytes of the partial sums of the kept chains' energies."""

    def _plan_records(self) -> int:
        """Choose the buffers of the kept chains; return the bytes of all records."""
        self.held = [self.plan.drawn] if self.draws else []
        record = 8 * self.kept + self.kind.itemsize * self.kept * len(self.plan.drawn)
        room = max(min(_BUFFER_BYTES // record, self.plan.records, _MOST_RECORDS), 1)
        self.room = room if self.draws or self.energy else 0
        values = self.plan.values if self.marginals else 0
        more = self._energy_bytes() + self._plan_measures()
        return int(self.room * record + more + 8 * self.kept * (values + 1))

    def _observed_parts(self) -> int:
        """Return 2: many threads compute each energy."""
        return 2

    def _place_changes(self, flat: Any, words: int, last: int) -> None:
        """Prepare comparison with an earlier copy; `last` masks every `words`-th word."""
        self.flat, self.before = flat, self.cuda.device_array(flat.shape, flat.dtype)
        own, threads = load("cuda_bits"), self.own.THREADS
        note = configure(own.count_changes, min(flat.size, _NOTING * threads), threads)
        self.note = Again(note, (flat, self.before, words, last), (self.changed,))

    def _sweep_once(self) -> None:
        """Sweep; compare each of the first eight sweeps and every eighth with the one before."""
        early = self._sweep < NOTED
        compare = early or self._sweep % NOTED == NOTED - 1
        if compare:
            self.before.copy_to_device(self.flat)
        super()._launch(self.unit)
        if compare:
            self.note(1 if early else NOTED)

    def _changes(self, noted: int) -> int:
        """Extrapolate the number of flips from those of the compared sweeps."""
        covered = min(self._sweep, NOTED) + max(self._sweep // NOTED - 1, 0) * NOTED
        return round(noted * self._sweep / max(covered, 1))

    def _keep_energies(self) -> None:
        if self.energy and self.records % self.plan.energy_every == 0:
            self.keep_energies(self.filled)

    def _kept_energies(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.device_energy[: self.filled].copy_to_host()
        return found
