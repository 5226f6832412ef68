"""Plan of a run: everything that is fixed before it begins, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.checks import total_of
from minigibbs.graph.domains import require_numbers
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.layout import RANDOM, SHARED, SHUFFLED, SYSTEMATIC
from minigibbs.observables import Measure, Observable
from minigibbs.observables.reading import decode, encode
from minigibbs.results import result as words
from minigibbs.results.result import CHROMATIC_SCAN, OWN_SCAN
from minigibbs.results.run import check_drawn
from minigibbs.running.sums import Summed, summed
from minigibbs.samplers import Sampler, Tempering
from minigibbs.samplers.encoding import describe_sampler, sampler_from
from minigibbs.samplers.registry import check_colors
from minigibbs.system.watch import INTERRUPTED, TERMINATED, TIME

CHROMATIC = CHROMATIC_SCAN
SCANS = {
    "random": RANDOM,
    "systematic": SYSTEMATIC,
    "shuffled": SHUFFLED,
    "shared": SHARED,
    CHROMATIC: SYSTEMATIC,
}
RECORDS = ("marginals", "draws", "energy")

# Initial states of chains.
DISPERSED = "dispersed"  # overdispersed
RANDOM_START = "random"
GIVEN = "given"  # states of the user
ONE_STATE = words.ONE_STATE  # one state of the user for all chains
CONTINUED = "continued"  # the last states of another run
STARTS = (DISPERSED, RANDOM_START, GIVEN, ONE_STATE, CONTINUED)

# Endings of a run.
RUNNING = "running"  # it has not ended: its checkpoint was read
LENGTH = "length"  # the requested updates are made
STOPPED = "stopped"  # an error, such as a full disk
CONVERGED = "converged"  # `sample_until`: the diagnostics are met
# or as `system.watch` reports: INTERRUPTED (Ctrl-C), TERMINATED (SIGTERM), TIME
FINISHED = (LENGTH, CONVERGED)
ENDINGS = (*FINISHED, STOPPED, INTERRUPTED, TERMINATED, TIME)

MOST_UPDATES = 2**62  # per chain; clocks are 64-bit integers


@dataclass(frozen=True, eq=False)
class Plan:
    """Settings and records of a run. Lengths count updates of each chain."""

    graph: FactorGraph
    sampler: Sampler
    backend: str
    chains: int
    seed: int
    length: int
    warmup: int
    scan: str
    kept: frozenset[str]
    thin: int  # updates between two records
    rows: int  # chains that are recorded individually
    variables: NDArray[np.int32] | None = None  # variables whose draws are recorded; None for all
    reference: NDArray[np.float64] | None = None  # [sum of sizes]
    observe: Mapping[str, Observable] = field(default_factory=dict)  # observables by name
    series: bool = True  # whether every record of observables is stored, or only running moments
    energy_every: int = 1  # records between two energies
    start: str = RANDOM_START  # one of STARTS
    temperatures: bool = False  # whether all temperatures of a ladder are recorded

    @cached_property
    def order(self) -> NDArray[np.int32]:
        """The variables to update."""
        return free_variables(self.graph.evidence)

    @cached_property
    def drawn(self) -> NDArray[np.int32]:
        """The variables whose draws are recorded; empty without draws."""
        every = len(self.graph) if "draws" in self.kept else 0
        if self.variables is None:
            require_numbers(every)
        return np.arange(every, dtype=np.int32) if self.variables is None else self.variables

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The observables, bound to the graph."""
        return tuple(one.bind(self.graph) for one in self.observe.values())

    @cached_property
    def summed(self) -> Summed:
        """The sums over variables of which observables are functions."""
        return summed(self.graph, self.measures)

    @property
    def width(self) -> int:
        """Number of values of all observables together."""
        return sum(measure.width for measure in self.measures)

    @property
    def level_numbers(self) -> int:
        """Number of values in a record of all temperatures; see `running.tempered`."""
        if not self.temperatures or not isinstance(self.sampler, Tempering):
            return 0
        levels = len(self.sampler.levels) if isinstance(self.sampler.levels, tuple) else 0
        twins = 2 if self.sampler.houdayer else 1
        return twins * levels * (1 + self.width) + (twins - 1) * levels

    @property
    def unit(self) -> int:
        """Number of updates that are made together: 1, or those of a sweep."""
        return max(self.graph.free, 1) if self.sweeps else 1

    @property
    def sweeps(self) -> bool:
        """Whether a run consists of whole sweeps."""
        return self.sampler.sweeps or self.scan == CHROMATIC

    @property
    def values(self) -> int:
        """The sum of the domain sizes."""
        return total_of(self.graph.sizes)

    @property
    def records(self) -> int:
        """Number of records per chain."""
        return self.length // self.thin

    def small(self) -> dict[str, Any]:
        """Return all fields but the large ones, graph and reference; workers get them."""
        large = ("graph", "reference")
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in large}

    def encode(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Encode the plan as JSON and arrays, for files; the graph is stored separately."""
        header = self.small() | {
            "sampler": describe_sampler(self.sampler),
            "kept": sorted(self.kept),
            "seed": str(self.seed),
        }
        del header["variables"]
        given = {"variables": self.variables, "reference": self.reference}
        arrays = {name: array for name, array in given.items() if array is not None}
        header["observe"] = {
            name: encode(one, measure.width, arrays)
            for (name, one), measure in zip(self.observe.items(), self.measures, strict=True)
        }
        return header, arrays

    @classmethod
    def decode(
        cls, graph: FactorGraph, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> Plan:
        """Decode the result of `encode`; raise `ValueError` for an impossible plan."""
        counts = {"chains": 1, "seed": 0, "length": 0, "warmup": 0, "thin": 1, "rows": 1}
        numbers = {name: int(header[name]) for name in counts}
        for name, least in counts.items():
            most = math.inf if name == "seed" else MOST_UPDATES
            if not least <= numbers[name] <= most or isinstance(header[name], bool | float):
                raise ValueError(f"{name} must be at least {least}, got {header[name]!r}")
        if header["scan"] not in (*SCANS, OWN_SCAN) or not set(header["kept"]) <= set(RECORDS):
            raise ValueError("unknown scan or record")
        variables, reference = arrays.get("variables"), arrays.get("reference")
        if variables is not None:
            check_drawn(variables, len(graph))
            if "draws" not in header["kept"]:
                raise ValueError("variables are chosen whose draws are not recorded")
        values = total_of(graph.sizes)
        if reference is not None and (
            reference.shape != (values,) or reference.dtype != np.float64
        ):
            raise ValueError(f"reference must have shape ({values},), got {reference.shape}")
        sampler = sampler_from(header["sampler"])
        if sampler.sweeps != (header["scan"] == OWN_SCAN):
            raise ValueError(f"scan: {header['scan']} is not one of {sampler}")
        if header["scan"] == CHROMATIC:
            try:
                check_colors(sampler, graph)
            except SampleError as error:
                raise ValueError(f"scan: {error}") from error
        every, series = header.get("energy_every", 1), header.get("series", True)
        if type(every) is not int or not 1 <= every <= MOST_UPDATES or type(series) is not bool:
            raise ValueError(f"energy_every and series: got {every!r} and {series!r}")
        start = header.get("start", RANDOM_START)  # missing in checkpoints before 0.3
        if start not in STARTS:
            raise ValueError(f"start: expected one of {', '.join(STARTS)}, got {start!r}")
        temperatures = header.get("temperatures", False)  # missing in checkpoints before 0.3
        if temperatures is True:
            try:
                check_temperatures(sampler, graph)
            except SampleError as error:
                raise ValueError(f"temperatures: {error}") from error
        elif temperatures is not False:
            raise ValueError(f"temperatures: expected true or false, got {temperatures!r}")
        plan = cls(
            graph,
            sampler,
            str(header["backend"]),
            scan=header["scan"],
            kept=frozenset(header["kept"]),
            variables=None if variables is None else variables.astype(np.int32),
            reference=reference,
            observe={
                str(name): decode(one, arrays) for name, one in header.get("observe", {}).items()
            },
            series=series,
            energy_every=every,
            start=start,
            temperatures=temperatures,
            **numbers,
        )
        if any(numbers[name] % plan.unit for name in ("length", "warmup", "thin")):
            raise ValueError("length, warmup and thin must hold whole sweeps")
        return plan


def check_temperatures(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse to record all temperatures without a ladder, or if they differ in more than beta.

    Parameters
    ----------
    sampler : Sampler
        The sampler of the run.
    graph : FactorGraph
        The model.

    Raises
    ------
    SampleError
        Without a temperature ladder, and with hard constraints.
    """
    if not isinstance(sampler, Tempering):
        raise SampleError(
            "mg.Record(temperatures=True) records the temperatures of mg.Tempering(); "
            f"{type(sampler).__name__} has none"
        )
    if len(graph.hard):
        raise SampleError(
            "mg.Record(temperatures=True) needs a model without hard constraints: the ladder "
            "softens them at all temperatures but the target"
        )
