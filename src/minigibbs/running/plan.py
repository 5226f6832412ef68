"""Everything about a run that its chains share, and how their records become a `Run`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs._version import __version__
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import (
    ACCEPTED,
    CHANGES,
    DRAWS,
    EVALUATIONS,
    PROPOSED,
    RANDOM,
    SHARED,
    Chain,
    Recorder,
    Scan,
)
from minigibbs.kernels.random import shared_stream, streams
from minigibbs.kernels.record import settle_counts
from minigibbs.results.run import Info, Run
from minigibbs.running.backends.device import DeviceRun, Records
from minigibbs.running.group import Job
from minigibbs.running.request import SCANS, flat_reference
from minigibbs.samplers import Sampler
from minigibbs.system import memory

# How a run can end.
LENGTH = "length"  # it made the updates that were asked for
STOPPED = "stopped"  # an error, such as a full disk
INTERRUPTED = "interrupted"  # Ctrl-C
CONVERGED = "converged"  # `sample_until`: the diagnostics are met
TIME = "time"  # `sample_until`: they were not, and time was up
FINISHED = (LENGTH, CONVERGED)


@dataclass(frozen=True)
class Plan:
    """Everything about a run that its chains share."""

    graph: FactorGraph
    sampler: Sampler
    order: NDArray[np.int32]
    length: int
    warmup: int
    scan: str
    kept: frozenset[str]
    thin: int
    reference: ArrayLike | None
    variables: NDArray[np.int32] | None = None  # chosen to have their draws kept; None for all
    flat_reference: NDArray[np.float64] | None = field(init=False)
    drawn: NDArray[np.int32] = field(init=False)  # whose draws are kept; empty without draws

    def __post_init__(self) -> None:
        flat = None if self.reference is None else flat_reference(self.graph, self.reference)
        object.__setattr__(self, "flat_reference", flat)
        every = len(self.graph) if "draws" in self.kept else 0
        drawn = np.arange(every, dtype=np.int32) if self.variables is None else self.variables
        object.__setattr__(self, "drawn", drawn)

    @property
    def values(self) -> int:
        """The sum of the domain sizes."""
        return int(self.graph.sizes.sum(dtype=np.int64))

    @property
    def records(self) -> int:
        """How many records a chain makes."""
        return self.length // self.thin

    def check_memory(self, chains: int, snapshots: bool = False) -> None:
        """Refuse a run whose records would not fit, before anything is sampled."""
        need = len(self.graph) * self.graph.state_type.itemsize
        need += 16 * int(self.graph.sizes.max())  # the chain's weights
        need += self._count_size
        if snapshots:  # a copy of every chain's state, to be written
            need *= 2
        self._require(chains, need + self._record_size, "fewer chains")

    def check_device_memory(self, kept: int) -> None:
        """The same for a run on a GPU, where the chains themselves are not here."""
        self._require(kept, self._count_size + self._record_size, "a smaller record_chains")

    @property
    def _count_size(self) -> int:
        """Bytes of a chain's counts."""
        return 8 * (self.values + len(self.graph)) if "marginals" in self.kept else 0

    @property
    def _record_size(self) -> int:
        """Bytes of a chain's records."""
        return self.records * (len(self.drawn) * self.graph.state_type.itemsize + 16)

    def _require(self, chains: int, size: int, fewer: str) -> None:
        less = "record less"
        if "draws" in self.kept:
            less = "record less, such as the draws of some variables (record_variables)"
        memory.require(
            chains * size,
            f"recording {', '.join(sorted(self.kept))} of {chains} chains, {self.records:,} times,",
            f"use a larger thin, {fewer}, or {less}",
        )

    def jobs(self, data: Any, states: NDArray[Any], entropy: int) -> list[Job]:
        """All chains, each with a stream of its own."""
        several = zip(states, streams(entropy, len(states)), strict=True)
        return [
            self.job(data, state, stream, number=number, entropy=entropy)
            for number, (state, stream) in enumerate(several)
        ]

    def job(
        self,
        data: Any,
        state: NDArray[Any],
        stream: NDArray[np.uint64],
        length: int | None = None,
        number: int = 0,
        entropy: int = 0,
    ) -> Job:
        """One chain, ready to run; with room for the records of `length` updates."""
        length = self.length if length is None else length
        space = self.sampler.workspace(self.graph, data)
        chain = Chain(
            x=state.copy(),  # lines of memory that no other chain writes to
            stream=stream.copy(),
            carried=np.zeros(space.carried),
            weights=np.zeros(2 * int(self.graph.sizes.max())),
            scratch=np.zeros(space.scratch, dtype=np.int64),
            tally=np.zeros(CHANGES + 1, dtype=np.int64),
        )
        scan, recorder, model = self.make_scan(entropy), self.recorder(length), self.graph.packed
        if scan.kind != SHARED:
            scan = scan._replace(stream=chain.stream)
        return Job(data, model, chain, scan, recorder, self.warmup, length, number)

    def make_scan(self, entropy: int) -> Scan:
        """The scan of one chain, at its beginning."""
        kind, everything = SCANS[self.scan], len(self.order) == len(self.graph)
        at_random = kind in (RANDOM, SHARED)
        order = self.order[:0] if at_random and everything else self.order.copy()
        position = np.zeros(1, dtype=np.int64)
        return Scan(kind, len(self.order), order, position, shared_stream(entropy))

    def recorder(self, length: int) -> Recorder:
        """Room for what so many updates record."""
        records = length // self.thin
        values = self.values if "marginals" in self.kept else 0
        variables, none = len(self.graph), np.empty(0)
        return Recorder(
            clock=np.zeros(1, dtype=np.int64),
            thin=self.thin,
            counts=np.zeros(values, dtype=np.int64),
            since=np.zeros(variables if values else 0, dtype=np.int64),
            draws=np.zeros(
                (records if "draws" in self.kept else 0, len(self.drawn) or variables),
                self.graph.state_type,
            ),
            drawn=np.array([] if self.variables is None else self.variables, dtype=np.int32),
            energy=np.zeros(records if "energy" in self.kept else 0),
            reference=none if self.flat_reference is None else self.flat_reference,
            error=none if self.flat_reference is None else np.zeros(records),
        )

    def result(self, jobs: list[Job], entropy: int, seconds: float, ended: str) -> Run:
        """Put the chains' records together."""
        clock = np.array([job.recorder.clock[0] for job in jobs])
        for job in jobs:
            settle_counts(job.recorder, job.model, job.recorder.clock[0], job.chain.x)
        records = int(clock.min()) // self.thin  # that every chain has reached
        tally = np.sum([job.chain.tally for job in jobs], axis=0)
        warmup = sum(job.warmed for job in jobs)
        return Run(
            domains=self.graph.domains,
            info=self.info(tally, len(jobs), int(clock.sum()), warmup, entropy, seconds, ended),
            clock=clock,
            counts=_gather(jobs, "counts", None, "marginals" in self.kept),
            draws=_gather(jobs, "draws", records, "draws" in self.kept),
            energy=_gather(jobs, "energy", records, "energy" in self.kept, self.graph.offset),
            error=_gather(jobs, "error", records, self.flat_reference is not None),
            reference=self.flat_reference,
            model=self.graph.describe(),
            drawn=self.drawn,
        )

    def device_run(self, data: Any, chains: int, entropy: int, kept: int = 1) -> DeviceRun:
        """All chains on a GPU, yet to be placed; `kept` of them are recorded one by one."""
        space = self.sampler.workspace(self.graph, data)
        return DeviceRun(
            model=self.graph.packed,
            data=data,
            chains=chains,
            kind=np.dtype(self.graph.state_type),
            scan=self.make_scan(entropy),
            carried=space.carried,
            scratch=space.scratch,
            weights=space.weights,
            thin=self.thin,
            records=self.records,
            kept=kept,
            marginals="marginals" in self.kept,
            draws="draws" in self.kept,
            energy="energy" in self.kept,
            reference=self.flat_reference,
            variables=self.variables,
        )

    def device_result(self, records: Records, chains: int, entropy: int) -> Run:
        """What the device recorded."""
        ended = INTERRUPTED if records.interrupted else LENGTH
        updates, warmup = chains * int(records.clock[0]), chains * records.warmup
        seconds = records.seconds
        info = self.info(records.tally, chains, updates, warmup, entropy, seconds, ended)
        return Run(
            domains=self.graph.domains,
            info=replace(info, backend="cuda"),
            clock=records.clock,
            counts=records.counts,
            draws=records.draws,
            energy=None if records.energy is None else records.energy + self.graph.offset,
            error=records.error,
            reference=self.flat_reference,
            model=self.graph.describe(),
            drawn=self.drawn,
        )

    def info(
        self,
        tally: NDArray[np.int64],
        chains: int,
        updates: int,
        warmup: int,
        entropy: int,
        seconds: float,
        ended: str,
    ) -> Info:
        """How a run went; all counts over all chains."""
        made = updates + warmup
        return Info(
            sampler=str(self.sampler),
            chains=chains,
            updates=updates,
            warmup=warmup,
            scan=self.scan,
            thin=self.thin,
            seed=entropy,
            seconds=seconds,
            updates_per_second=made / max(seconds, 1e-9),
            factor_evaluations=int(tally[EVALUATIONS]),
            minibatch_draws=int(tally[DRAWS]),
            acceptance=float(tally[ACCEPTED] / tally[PROPOSED]) if tally[PROPOSED] else 1.0,
            changed=float(tally[CHANGES] / max(made, 1)),
            interrupted=ended == INTERRUPTED,
            version=__version__,
            ended=ended,
        )


def _gather(
    jobs: list[Job], name: str, records: int | None, wanted: bool, shift: float | None = None
) -> Any:
    if not wanted:
        return None
    whole = np.stack([getattr(job.recorder, name)[:records] for job in jobs])
    return whole if shift is None else whole + shift
