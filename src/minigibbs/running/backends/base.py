"""What a backend provides: it places the chains of a plan, as groups that advance."""

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

_TYPES = {  # of a state's arrays
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

Start = Callable[[], NDArray[Any]]  # makes first states: [chain, variable]


class Promise(NamedTuple):
    """What is proven of a run's chains, and for how many lanes their factors were split."""

    lanes: int
    guarantee: str


class Backend(ABC):
    """Where chains run. Advance, snapshot, restore and collect are the group's own business."""

    name: ClassVar[str]
    chains: ClassVar[int]  # by default
    rows: ClassVar[int | None]  # chains recorded one by one, by default; None for all
    lanes: ClassVar[int]  # chains that wait for each other
    refused: ClassVar[tuple[str, ...]]  # options of a run that it does not take
    in_threads: ClassVar[bool]  # whether groups run on threads and executors

    @property
    def device(self) -> str:
        """What `samplers.registry` calls it: where the chains are stored."""
        return self.name

    def default_chains(self, sampler: Sampler, graph: FactorGraph) -> int:
        """How many chains a run has where the user asks for no number."""
        return self.chains

    @abstractmethod
    def check(self) -> None:
        """Raise if it is not there, with what is missing."""

    @abstractmethod
    def check_state(self, plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
        """Raise `ValueError` for the stacked states of groups that no run of this plan can reach.

        Compiled code trusts its arrays, so that nothing may be left out.
        """

    def prepare(self, plan: Plan) -> Any:
        """What the sampler prepares for a plan, or what chromatic sweeps read."""
        sampler, graph = plan.sampler, plan.graph
        chosen = chromatic_layout(sampler, graph, self.device) if plan.scan == CHROMATIC else None

        def make() -> Any:
            if chosen is not None:
                data = chosen.lay_out(sampler, graph)
            else:
                data = sampler.prepare(graph, self.lanes)
            self.promise(plan)
            forget(graph, SPLIT)  # which costs and data were both made from
            return data

        how = self.lanes if chosen is None else chosen.name
        key = (sampler, str(sampler), how)  # as text, too: 1 and True are different settings
        return prepared(graph, "data", key, make)

    def split_lanes(self, sampler: Sampler, graph: FactorGraph, scan: str) -> int:
        """The number of lanes for which a run splits factors.

        Parameters
        ----------
        sampler : Sampler
            What updates the variables.
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
        """What is proven of the chains of a plan, from the split that they use."""

        def make() -> Promise:
            lanes = self.split_lanes(plan.sampler, plan.graph, plan.scan)
            slowdown = plan.sampler.guaranteed_slowdown(plan.graph, lanes)
            return Promise(lanes, guarantee(slowdown, plan.scan))

        key = (str(plan.sampler), plan.scan, self.lanes)
        return prepared(plan.graph, "promise", key, make)

    def choose_scan(
        self, sampler: Sampler, graph: FactorGraph, chains: int, sweeps: bool
    ) -> ScanChoice:
        """The scan of a run if none is given.

        Parameters
        ----------
        sampler : Sampler
            What updates the variables.
        graph : FactorGraph
            The model.
        chains : int
            How many chains the run has.
        sweeps : bool
            Whether its length is given in sweeps, as chromatic scans need it.

        Returns
        -------
        ScanChoice
            One of `running.plan.SCANS`, and why.
        """
        return choose_scan(sampler, graph, chains, sweeps, self.device)

    def records_temperatures(self, sampler: Sampler, graph: FactorGraph) -> bool:
        """Whether all temperatures of a ladder can be recorded."""
        return True

    @abstractmethod
    def groups(self, plan: Plan, data: Any, start: Start, counted: bool = False) -> list[Group]:
        """All chains, at their first states, with streams of their own.

        Where these states are `counted`, that is `samplers.chromatic.first`'s, a backend may make
        them where they are needed.
        """

    def together(self, groups: list[Group], run: Callable[[], Run]) -> Run:
        """Run groups that are placed; where several processes share them, all return the run.

        Parameters
        ----------
        groups : list of Group
            What `groups` returned.
        run : callable
            Advances the groups to their end, and returns the run.

        Returns
        -------
        Run
            The same in all processes.
        """
        return run()

    def shared_seed(self, seed: int) -> int:
        """The seed of a run for which none was given, the same in all processes."""
        return seed

    @abstractmethod
    def collect(self, plan: Plan, state: State, rows: dict[str, NDArray[Any]]) -> Collected:
        """What a group had recorded, from its saved state and records alone."""

    @abstractmethod
    def check_memory(self, plan: Plan, snapshots: bool = False) -> None:
        """Refuse a run that would not fit, before anything is sampled."""


def require_records(plan: Plan, size: int, fewer: str) -> None:
    """Refuse `size` bytes for each chain that is recorded, if that is more than there is."""
    size *= 2  # the chains' own and the run's
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
    """Bytes of a row's counts, and of those of its first half."""
    return 8 * (2 * plan.values + len(plan.graph)) if "marginals" in plan.kept else 0


def check_common(plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
    """Check what the states of all backends hold."""
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
            raise ValueError(f"{name} holds what it cannot")
    check_observed_state(plan, state)


def check_replicas(plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
    """Check the further states that chains carry: [.., variable, replica] within each chain."""
    graph, clamped, flat = plan.graph, plan.graph.evidence >= 0, state["replicas"]
    if flat.dtype != np.uint64:  # words are bits of free variables: all of them are states
        shape = (*flat.shape[:-1], len(graph), flat.shape[-1] // len(graph))  # of none as well
        replicas = flat.reshape(shape).reshape(math.prod(shape[:-2]), *shape[-2:])
        right = flat.dtype == graph.state_type and (replicas < graph.sizes[:, None]).all()
        if not right or (replicas[:, clamped] != graph.evidence[clamped][:, None]).any():
            raise ValueError("replicas holds what it cannot")
    if isinstance(plan.sampler, SweepSampler):
        carried = state["carried"]
        chains = math.prod(carried.shape[:-1])
        plan.sampler.account(plan.graph, carried.reshape(chains, carried.shape[-1]), 0)


def _are_counts(array: NDArray[np.int64], most: int) -> bool:
    """Whether they can be counts, and go on growing without running over."""
    return bool(((array >= 0) & (array <= min(most, MOST_UPDATES))).all())


def _streams_move(words: NDArray[Any]) -> bool:
    """Whether no generator is all zeros: its state would never change."""
    return bool(words.any(axis=-1).all())
