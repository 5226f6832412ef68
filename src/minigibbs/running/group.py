"""One chain at work: it runs segment by segment, and can be put down and taken up anywhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.energy import energies
from minigibbs.kernels.layout import SHARED, SHUFFLED, Chain, Recorder, Scan
from minigibbs.kernels.record import mean_error, settle_counts
from minigibbs.running.backends.cpu import advance, start_chain
from minigibbs.samplers.base import carries

SEGMENT_SECONDS = 0.2  # between two looks at Ctrl-C and the progress bar
FIRST_SEGMENT = 16  # updates
_GROWTH = 8.0  # of a segment over the one before, at the most
RECORDED = ("draws", "energy", "error")  # the recorder's arrays with a row per record


class State(NamedTuple):
    """Everything that a chain needs to go on, but for its past records."""

    x: NDArray[np.unsignedinteger]  # [n]
    stream: NDArray[np.uint64]  # [4]
    carried: NDArray[np.float64]
    tally: NDArray[np.int64]
    order: NDArray[np.int32]  # of a shuffled scan; else empty
    position: NDArray[np.int64]  # [1]
    path: NDArray[np.uint64]  # [4] the generator of a shared scan
    counts: NDArray[np.int64]  # up to the clock
    clock: NDArray[np.int64]  # [1] recorded updates so far
    warmed: NDArray[np.int64]  # [1] updates of the warm-up so far


@dataclass(eq=False)
class Job:
    """One chain, which runs segment by segment."""

    data: Any
    model: Any
    chain: Chain
    scan: Scan
    recorder: Recorder
    warmup_left: int
    left: int
    number: int = 0
    segment: int = FIRST_SEGMENT
    warmed: int = 0

    def prepare(self) -> None:
        """Compile, and let the sampler set what it carries."""
        self.begin()
        self.compile()

    def compile(self) -> None:
        """Compile, or load compiled code, so that no segment has to."""
        self._advance(0, True)

    def begin(self) -> None:
        """Let the sampler set what it carries."""
        if carries(self.data):
            start_chain(self.data, self.model, self.chain)
        if not self.scan.variables:
            self._record_all()

    def _record_all(self) -> None:
        """Everything is clamped: all records are the same, and known before time passes."""
        state, energy = self.chain.x, np.empty(1)
        energies(self.model, state[None], energy)
        drawn = self.recorder.drawn
        self.recorder.draws[:] = state[drawn] if len(drawn) else state
        self.recorder.energy[:] = energy
        if len(self.recorder.error):
            visits = np.zeros_like(self.recorder.counts)
            visits[self.model.first + state] = 1
            self.recorder.error[:] = self._error(visits)

    def _error(self, counts: NDArray[np.int64]) -> float:
        return float(mean_error(counts, self.recorder.reference, self.model.first))

    def next_segment(self) -> tuple[int, bool]:
        """How many updates the next segment makes, and whether they are recorded."""
        recording = self.warmup_left == 0
        return min(self.segment, self.left if recording else self.warmup_left), recording

    def run_segment(self) -> int:
        """Make some updates; returns how many. The segment's length follows the clock."""
        updates, recording = self.next_segment()
        before = time.perf_counter()
        self.advance(updates, recording)
        self.made(updates, recording, time.perf_counter() - before, SEGMENT_SECONDS)
        return updates

    def advance(self, updates: int, recording: bool) -> None:
        """Make so many updates."""
        if not self.scan.variables:  # everything is clamped: time passes, nothing changes
            self.recorder.clock[0] += updates if recording else 0
        elif recording and len(self.recorder.error):
            self._advance_with_errors(updates)
        else:
            self._advance(updates, recording)

    def _advance(self, updates: int, recording: bool) -> None:
        advance(self.data, self.model, self.chain, self.scan, self.recorder, updates, recording)

    def _advance_with_errors(self, updates: int) -> None:
        """From record to record, since the error is taken here: compiling it would cost more."""
        clock, thin = self.recorder.clock, self.recorder.thin
        while updates:
            step = min(updates, thin - int(clock[0]) % thin)
            self._advance(step, True)
            updates -= step
            if clock[0] % thin == 0 and clock[0] // thin <= len(self.recorder.error):
                settle_counts(self.recorder, self.model, clock[0], self.chain.x)
                self.recorder.error[clock[0] // thin - 1] = self._error(self.recorder.counts)

    def made(self, updates: int, recording: bool, took: float, wanted: float) -> None:
        """Note that a segment took so many seconds; the next one should take `wanted`."""
        if recording:
            self.left -= updates
        else:
            self.warmup_left -= updates
            self.warmed += updates
        growth = wanted / max(took, 1e-9)
        self.segment = max(1, int(self.segment * min(growth, _GROWTH)))

    @property
    def done(self) -> bool:
        """Whether the chain has made all its updates."""
        return self.warmup_left == 0 and self.left == 0

    @property
    def records(self) -> int:
        """How many records the chain has made."""
        return int(self.recorder.clock[0]) // self.recorder.thin

    def state(self) -> State:
        """What the chain needs to go on: its own arrays, not copies."""
        chain, scan, recorder = self.chain, self.scan, self.recorder
        settle_counts(recorder, self.model, recorder.clock[0], chain.x)
        return State(
            x=chain.x,
            stream=chain.stream,
            carried=chain.carried,
            tally=chain.tally,
            order=scan.order if scan.kind == SHUFFLED else scan.order[:0],
            position=scan.position,
            path=scan.stream,
            counts=recorder.counts,
            clock=recorder.clock,
            warmed=np.array([self.warmed]),
        )

    def restore(self, state: State) -> None:
        """Take up a state: arrays that `state` gave, here or elsewhere, now or long ago."""
        chain, recorder = self.chain, self.recorder
        chain.x[:], chain.stream[:], chain.carried[:] = state.x, state.stream, state.carried
        chain.tally[:] = state.tally
        if len(state.order):
            self.scan.order[:] = state.order
        self.scan.position[:] = state.position
        if self.scan.kind == SHARED:
            self.scan.stream[:] = state.path
        recorder.counts[:], recorder.clock[:] = state.counts, state.clock
        recorder.since[:] = state.clock
        self.warmed = int(state.warmed[0])

    def rows(self, first: int) -> dict[str, NDArray[Any]]:
        """The records from number `first` on, by name."""
        return {name: getattr(self.recorder, name)[first : self.records] for name in RECORDED}

    def put_rows(self, first: int, rows: dict[str, NDArray[Any]]) -> None:
        """Put records made elsewhere in their place."""
        for name, array in rows.items():
            getattr(self.recorder, name)[first : first + len(array)] = array

    def grow(self, updates: int, recorder: Recorder) -> None:
        """Run so many updates longer, with a larger recorder; the records so far are kept."""
        self.left += updates
        for name in RECORDED:
            old = getattr(self.recorder, name)
            getattr(recorder, name)[: len(old)] = old
        for name in ("clock", "counts", "since"):
            getattr(recorder, name)[:] = getattr(self.recorder, name)
        self.recorder = recorder
        if not self.scan.variables:
            self._record_all()
