"""Protocol of a backend: it creates the groups of chains of a plan and checks their states."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import forget, prepared
from minigibbs.kernels.observe import BATCHES
from minigibbs.results.run import Run
from minigibbs.running.group import Collected, Group, State
from minigibbs.running.observed import check_observed_state
from minigibbs.running.plan import CHROMATIC, MOST_UPDATES, Plan
from minigibbs.samplers.base import Sampler, SweepSampler
from minigibbs.samplers.bounds import guarantee
from minigibbs.samplers.poisson_gibbs.sampler import SPLIT
from minigibbs.samplers.registry import ScanChoice, choose_scan, chromatic_layout
from minigibbs.system import memory

_TYPES = {  # dtypes of a state's arrays
    "stream": np.uint64,
    "carried": np.float64,
    "tally": np.int64,
    "order": np.int32,
    "position": np.int64,
    "path": np.uint64,
    "counts": np.int64,
    "clock": np.int64,
    "warmed": np.int64,
    "observed_count": np.int64,
    "observed_moments": np.float64,
    "observed_sums": np.float64,
}

Start = Callable[[], NDArray[Any]]  # makes initial states: [chain, variable]


class Promise(NamedTuple):
    """Proven guarantee of a run's chains, and the lanes for which their factors were split."""

    lanes: int
    guarantee: str


class Backend(ABC):
    """A device that runs chains. Groups advance, save, restore and collect their chains."""

    name: ClassVar[str]
    chains: ClassVar[int]  # default number
    rows: ClassVar[int | None]  # default number of chains recorded individually; None for all
    lanes: ClassVar[int]  # chains that wait for each other
    refused: ClassVar[tuple[str, ...]]  # options of a run that this backend rejects
    in_threads: ClassVar[bool]  # whether groups run on threads and executors

    @property
    def device(self) -> str:
        """Name of the device in `samplers.registry`, where the chains are stored."""
        return self.name

    def default_chains(self, sampler: Sampler, graph: FactorGraph) -> int:
        """Return the number of chains of a run if the user gives none."""
        return self.chains

    @abstractmethod
    def check(self) -> None:
        """Raise an error that says what is missing if the backend is unavailable."""

    @abstractmethod
    def check_state(self, plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
        """Raise `ValueError` for stacked states of groups that no run of this plan can reach.

        Compiled code trusts its arrays, so every array must be checked.
        """

    def prepare(self, plan: Plan) -> Any:
        """Return the sampler's prepared data, or the layout of a chromatic scan."""
        sampler, graph = plan.sampler, plan.graph
        chosen = chromatic_layout(sampler, graph, self.device) if plan.scan == CHROMATIC else None

        def make() -> Any:
            if chosen is not None:
                data = chosen.lay_out(sampler, graph)
            else:
                data = sampler.prepare(graph, self.lanes)
            self.promise(plan)
            forget(graph, SPLIT)  # costs and data were both computed from it
            return data

        how = self.lanes if chosen is None else chosen.name
        key = (sampler, str(sampler), how)  # the text distinguishes settings such as 1 and True
        return prepared(graph, "data", key, make)

    def split_lanes(self, sampler: Sampler, graph: FactorGraph, scan: str) -> int:
        """Return the number of lanes for which a run splits factors.

        Parameters
        ----------
        sampler : Sampler
            The sampler of the run.
        graph : FactorGraph
            The model.
        scan : str
            The run's scan.

        Returns
        -------
        int
            See `Sampler.describe`.
        """
        if isinstance(sampler, SweepSampler):
            return sampler.lanes
        if scan == CHROMATIC:
            return chromatic_layout(sampler, graph, self.device).lanes
        return self.lanes

    def promise(self, plan: Plan) -> Promise:
        """Return the guarantee for the chains of a plan, given the split that they use."""

        def make() -> Promise:
            lanes = self.split_lanes(plan.sampler, plan.graph, plan.scan)
            slowdown = plan.sampler.guaranteed_slowdown(plan.graph, lanes)
            return Promise(lanes, guarantee(slowdown, plan.scan))

        key = (str(plan.sampler), plan.scan, self.lanes)
        return prepared(plan.graph, "promise", key, make)

    def choose_scan(
        self, sampler: Sampler, graph: FactorGraph, chains: int, sweeps: bool
    ) -> ScanChoice:
        """Choose the scan of a run if the user gives none.

        Parameters
        ----------
        sampler : Sampler
            The sampler of the run.
        graph : FactorGraph
            The model.
        chains : int
            Number of chains.
        sweeps : bool
            Whether the run's length is given in sweeps, as chromatic scans require.

        Returns
        -------
        ScanChoice
            One of `running.plan.SCANS`, and the reason.
        """
        return choose_scan(sampler, graph, chains, sweeps, self.device)

    def records_temperatures(self, sampler: Sampler, graph: FactorGraph) -> bool:
        """Return whether all temperatures of a ladder can be recorded."""
        return True

    @abstractmethod
    def groups(self, plan: Plan, data: Any, start: Start, counted: bool = False) -> list[Group]:
        """Create the groups of all chains at their initial states, each with its own stream.

        If the initial states are `counted` (from `samplers.chromatic.first`), a backend may
        generate them on its device.
        """

    def together(self, groups: list[Group], run: Callable[[], Run]) -> Run:
        """Run existing groups. If several processes share them, all return the run.

        Parameters
        ----------
        groups : list of Group
            The groups of this process.
        run : callable
            Advances the groups to their end and returns the run.

        Returns
        -------
        Run
            The same run in all processes.
        """
        return run()

    def spreads(self, scan: str) -> bool:
        """Return whether chains of a scan run independently, on threads or in other processes."""
        return self.in_threads

    def shared_seed(self, seed: int) -> int:
        """Return the default seed of a run, which is the same in all processes."""
        return seed

    @abstractmethod
    def collect(self, plan: Plan, state: State, rows: dict[str, NDArray[Any]]) -> Collected:
        """Collect a group's results from its saved state and records alone."""

    @abstractmethod
    def check_memory(self, plan: Plan, snapshots: bool = False) -> None:
        """Refuse a run that does not fit into memory, before sampling begins."""


def require_records(plan: Plan, size: int, fewer: str) -> None:
    """Refuse `size` bytes per recorded chain if they exceed the available memory."""
    size *= 2  # the group's copy and the run's
    record = 2 * (len(plan.drawn) * plan.graph.state_type.itemsize + 16)
    record += 16 * (plan.width if plan.series else 0) + 16 * plan.level_numbers
    size += 16 * plan.width * (2 + BATCHES)
    less = "record less"
    if "draws" in plan.kept:
        less = "record less, such as the draws of some variables (mg.Record(variables=...))"
    memory.require(
        plan.rows * (size + plan.records * record),
        f"recording {', '.join(sorted(plan.kept))} of {plan.rows} chains, {plan.records:,} times,",
        f"use a larger thin, {fewer}, or {less}",
    )


def count_size(plan: Plan) -> int:
    """Return the bytes of a row's counts, including those of its first half."""
    return 8 * (2 * plan.values + len(plan.graph)) if "marginals" in plan.kept else 0


def check_common(plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
    """Check the arrays that the states of all backends contain."""
    graph, clamped = plan.graph, plan.graph.evidence >= 0
    for name, kind in (_TYPES | {"x": graph.state_type}).items():
        if state[name].dtype != kind:
            raise ValueError(f"{name}: expected {np.dtype(kind)}, got {state[name].dtype}")
    x = state["x"].reshape(-1, len(graph))
    order, position = state["order"], state["position"]
    checks = {
        "x": (x < graph.sizes).all() and (x[:, clamped] == graph.evidence[clamped]).all(),
        "order": order.shape[-1] == 0 or (np.sort(order) == plan.order).all(),
        "position": ((position >= 0) & (position < max(len(plan.order), 1))).all(),
        "clock": ((state["clock"] >= 0) & (state["clock"] <= plan.length)).all(),
        "warmed": ((state["warmed"] >= 0) & (state["warmed"] <= plan.warmup)).all(),
        "carried": np.isfinite(state["carried"]).all(),
        "counts": _are_counts(state["counts"], plan.chains * plan.length),
        "tally": _are_counts(state["tally"], MOST_UPDATES),
        "stream": _streams_move(state["stream"]),
        "path": _streams_move(state["path"]),
    }
    for name, right in checks.items():
        if not right:
            raise ValueError(f"{name} has entries outside its range")
    check_observed_state(plan, state)


def check_replicas(plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
    """Check the auxiliary states of chains: [.., variable, replica] within each chain."""
    graph, clamped, flat = plan.graph, plan.graph.evidence >= 0, state["replicas"]
    if flat.dtype != np.uint64:  # words of bits of free variables: all values are valid
        shape = (*flat.shape[:-1], len(graph), flat.shape[-1] // len(graph))  # also for none
        replicas = flat.reshape(shape).reshape(math.prod(shape[:-2]), *shape[-2:])
        right = flat.dtype == graph.state_type and (replicas < graph.sizes[:, None]).all()
        if not right or (replicas[:, clamped] != graph.evidence[clamped][:, None]).any():
            raise ValueError("replicas has entries outside its range")
    if isinstance(plan.sampler, SweepSampler):
        carried = state["carried"]
        chains = math.prod(carried.shape[:-1])
        plan.sampler.account(plan.graph, carried.reshape(chains, carried.shape[-1]), 0)


def _are_counts(array: NDArray[np.int64], most: int) -> bool:
    """Return whether these can be counts and can grow without overflow."""
    return bool(((array >= 0) & (array <= min(most, MOST_UPDATES))).all())


def _streams_move(words: NDArray[Any]) -> bool:
    """Return whether no generator is all zeros, from which it would never change."""
    return bool(words.any(axis=-1).all())
