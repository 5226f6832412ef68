"""Chains on a GPU: checks of a run, and the choice of its group.

`cuda_group` has the group of all chains, `cuda_colors` those of chromatic scans, `cuda_ladders`
and `cuda_small_ladders` those of temperature ladders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.random import streams
from minigibbs.running.backends import cuda_group
from minigibbs.running.backends.base import (
    Backend,
    Start,
    check_common,
    check_replicas,
    count_size,
    require_records,
)
from minigibbs.running.backends.cuda_colors import CudaColors
from minigibbs.running.backends.cuda_colors_bits import CudaBits
from minigibbs.running.backends.cuda_colors_points import CudaPoints
from minigibbs.running.backends.cuda_colors_small import CudaSmall
from minigibbs.running.backends.cuda_colors_stencil import CudaStencil
from minigibbs.running.backends.cuda_group import (
    WARP,
    CudaGroup,
    collect_rows,
    count_states,
    load_kernels,
    uncounted,
    without_size_warnings,
)
from minigibbs.running.backends.cuda_ladders import CudaLadders
from minigibbs.running.backends.cuda_small_ladders import CudaSmallLadders, in_parallel
from minigibbs.running.group import Collected, Group, State
from minigibbs.running.plan import CHROMATIC, Plan
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.points import PointColors
from minigibbs.samplers.chromatic.small import SmallColors
from minigibbs.samplers.chromatic.small_tails import SmallTailColors
from minigibbs.samplers.chromatic.spin_tails import SpinTailColors
from minigibbs.samplers.chromatic.spins import SpinColors
from minigibbs.samplers.chromatic.stencil_bits import StencilBits
from minigibbs.samplers.tempering.sampler import Tempering
from minigibbs.samplers.tempering.spins import SpinLadder
from minigibbs.system import memory

# Replica updates per sweep that keep a device busy, and a typical number of levels.
_REPLICA_UPDATES, _LEVELS = 1 << 27, 64
_MOST_LADDERS = 4096

# The group of each layout of chromatic scans, by the type of its arrays.
GROUPS: dict[type, type[CudaColors]] = {
    SpinColors: CudaBits,
    SpinTailColors: CudaBits,
    SmallColors: CudaSmall,
    SmallTailColors: CudaSmall,
    PointColors: CudaPoints,
    StencilBits: CudaStencil,
}


class CudaBackend(Backend):
    """Backend that runs many thousands of chains on one NVIDIA GPU."""

    name = "cuda"
    chains = 16384
    rows = 64
    lanes = WARP
    refused = ("threads", "executor")
    in_threads = False

    def default_chains(self, sampler: Sampler, graph: FactorGraph) -> int:
        """Return the default number; ladders need fewer, because their levels fill the device."""
        if not isinstance(sampler, Tempering):
            return self.chains
        ladders = _REPLICA_UPDATES // (_LEVELS * max(len(graph), 1))
        return int(min(max(32 * (ladders // 32), 32), _MOST_LADDERS))

    def records_temperatures(self, sampler: Sampler, graph: FactorGraph) -> bool:
        """Return whether a ladder's group records all levels: bits, or bytes without zeros."""
        data = sampler.prepare(graph, self.lanes)
        return isinstance(data, SpinLadder) or in_parallel(data)

    def check(self) -> None:
        """Raise an error if there is no GPU or no numba-cuda."""
        load_kernels()

    def groups(self, plan: Plan, data: Any, start: Start, counted: bool = False) -> list[Group]:
        """Create one group of all chains."""
        if plan.scan == CHROMATIC:
            return [self._colors(plan, data, None if counted else start)]
        if isinstance(data, SpinLadder):
            ladders = CudaLadders(plan, data)
            with without_size_warnings():
                ladders.place(start())
            return [ladders]
        kind = CudaSmallLadders if in_parallel(data) else CudaGroup
        group = kind(plan, data)  # refuses more than fits into the device's memory
        size = plan.chains * len(plan.graph) * plan.graph.state_type.itemsize
        what = f"the first states of {plan.chains:,} chains"
        memory.require(2 * size, what, "use fewer chains")
        with without_size_warnings():
            group.place(start(), streams(plan.seed, plan.chains))
        return [group]

    @staticmethod
    def _colors(plan: Plan, data: Any, start: Start | None) -> Group:
        """Create the group of a chromatic scan; without a start, it draws the initial states."""
        made: Any = GROUPS[type(data)](plan, data)
        with without_size_warnings():
            made.place(None if start is None else start())
        group: Group = made
        return group

    def check_memory(self, plan: Plan, snapshots: bool = False) -> None:
        """Refuse records that do not fit into host memory; groups plan the device's memory."""
        require_records(plan, count_size(plan), "mg.Record(chains=...) with fewer")

    def collect(self, plan: Plan, state: State, rows: dict[str, NDArray[Any]]) -> Collected:
        """Collect one row per recorded chain; the last states are counted here."""
        counts = state["counts"]
        if counts.shape[1] and uncounted(state):
            counts = counts + count_states(plan, state["x"])
        return collect_rows(plan, state, rows, counts)

    def check_state(self, plan: Plan, state: Mapping[str, NDArray[Any]]) -> None:
        """Check also the position on the scan's path and the number of counts."""
        check_common(plan, state)
        check_replicas(plan, state)
        bounds = {"walked": cuda_group.PATH, "counted": plan.length}
        if "noted" in state:
            bounds["noted"] = plan.chains * (plan.length + plan.warmup)
        for name, most in bounds.items():
            if not ((state[name] >= 0) & (state[name] <= most)).all():
                raise ValueError(f"{name} has entries outside its range")


BACKEND = CudaBackend()
