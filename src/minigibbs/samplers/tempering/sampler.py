"""Parallel tempering: settings, construction of the ladder, and its results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Carried, Workspace, pilot_state
from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.prepared import prepared
from minigibbs.graph.simple import Simple, neighbors, open_slots, simplified
from minigibbs.kernels.layout import Chain
from minigibbs.samplers.base import Sampler, SweepSampler, check_stored
from minigibbs.samplers.bounds import guarantee
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.costs import COSTS
from minigibbs.samplers.poisson_gibbs.groups import energy_cost, prepare_energies
from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs
from minigibbs.samplers.registry import ladder_in_bits, ladder_in_lanes
from minigibbs.samplers.tempering.account import Ladder, account
from minigibbs.samplers.tempering.copies import Copies, CopyLadder, check_inner
from minigibbs.samplers.tempering.ladder import ROUNDS, SWAPS, noted
from minigibbs.samplers.tempering.levels import find_levels
from minigibbs.samplers.tempering.small import SmallLadder, small_ladder
from minigibbs.samplers.tempering.soft import softened
from minigibbs.samplers.tempering.spins import (
    SpinLadder,
    put_spin_states,
    spin_ladder,
    spin_states,
)
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.watch import current

_SPARSE = 5.0  # largest mean number of neighbors for which Houdayer moves are beneficial
_SWAPS = 6.0  # least ratio of the time of sweeps to that of energies
_WARP = 32  # lanes from which on each chain is a thread of a GPU
_MOST_SWEEPS = 2000  # between two rounds of exchanges: more would leave few exchanges
_MOST_LEVELS = 10_000  # longer ladders take minutes to space, and no replica crosses them


@checked(SampleError)
@dataclass(frozen=True)
class Tempering(SweepSampler):
    """Non-reversible parallel tempering: for models on which single chains stay in one mode.

    Each chain is a temperature ladder: replicas of the model at inverse temperatures from 0 to 1.
    Neighboring replicas exchange states, so that states found at high temperatures reach the
    target. Records are those of the target. A sweep is a sweep of every replica and a round of
    exchanges.

    Parameters
    ----------
    sampler : Sampler, optional
        The sampler that updates every replica: any sampler of single variables without auxiliary
        state. By default, spins with pairs are updated at 64 temperatures together, and other
        models, implicit groups included, by `mg.PoissonGibbs()`. `mg.MinGibbs` and
        `mg.DoubleMinGibbs` store an energy estimate whose distribution depends on the temperature,
        so their states cannot be exchanged.
    levels : tuple of float or int, optional
        Inverse temperatures from 0 to 1, or their number. By default found by short runs such that
        all neighbors have the same rejection rate.
    houdayer : bool, optional
        Whether to run two ladders per chain that exchange clusters of variables in which they
        differ. By default on sparse graphs.

    Raises
    ------
    SampleError
        If the temperatures are invalid or the sampler cannot be tempered.

    Examples
    --------
    >>> import minigibbs as mg
    >>> glass = mg.FactorGraph([2] * 9, [mg.Ising(range(8), range(1, 9), [3.0, -3.0] * 4)])
    >>> run = mg.sample(glass, mg.Tempering(), sweeps=2000, seed=1, progress=False)
    >>> bool(abs(run.marginals[:, 1] - 0.5).max() < 0.1)
    True
    >>> round(run.ladder.log_z, 1) == round(mg.log_partition(glass), 1)
    True
    """

    sampler: Sampler | None = None
    levels: tuple[float, ...] | int | None = None
    houdayer: bool | None = None
    name = "tempering"
    draws_implicit = True
    takes_zeros = True
    on_gpu = True
    lanes = 2

    def __post_init__(self) -> None:
        if isinstance(self.sampler, str) or not isinstance(self.sampler, Sampler | None):
            raise SampleError(f"Tempering: sampler must be a sampler, got {self.sampler!r}")
        if self.levels is None or isinstance(self.levels, bool):
            if self.levels is not None:
                raise SampleError(f"Tempering: levels must be numbers, got {self.levels!r}")
        elif isinstance(self.levels, int | np.integer):
            if self.levels < 2:
                raise SampleError(f"Tempering: levels must be at least 2, got {self.levels}")
            if self.levels > _MOST_LEVELS:
                raise SampleError(
                    f"Tempering: levels must be at most {_MOST_LEVELS:,}, got {self.levels:,}: a "
                    "replica needs about the square of their number of sweeps to visit them all"
                )
        else:
            object.__setattr__(self, "levels", _read_levels(self.levels))

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether its stationary distribution is the model's, as that of the inner sampler."""
        return self.sampler is None or self.sampler.exact

    def __str__(self) -> str:
        given = [] if self.sampler is None else [str(self.sampler)]
        if isinstance(self.levels, tuple):
            given.append(f"levels={len(self.levels)}")
        elif self.levels is not None:
            given.append(f"levels={self.levels}")
        if self.houdayer is not None:
            given.append(f"houdayer={self.houdayer}")
        return f"Tempering({', '.join(given)})"

    def settled(self, graph: FactorGraph) -> Tempering:
        """Return the sampler with its levels determined."""
        if isinstance(self.levels, int | np.integer):
            _require_room(graph, int(self.levels), 2 if self.houdayer else 1)
        if graph.implicits:
            self._check_implicit(graph)
        paired = self.houdayer if self.houdayer is not None else is_sparse(graph)
        inner = self.sampler
        if inner is not None and not inner.sweeps:
            inner = inner.settled(graph)
        chosen = replace(self, sampler=inner, houdayer=paired)
        if isinstance(self.levels, tuple) or not len(free_variables(graph.evidence)):
            return replace(chosen, levels=self.levels if isinstance(self.levels, tuple) else (0, 1))

        def prepare(beta: NDArray[np.float64]) -> tuple[Any, Workspace]:
            data = chosen.ladder(graph, beta, soft=True)
            return data, chosen.workspace(graph, data)

        beta = find_levels(graph, pilot_state(graph), prepare, self.levels)
        return replace(chosen, levels=tuple(beta.tolist()))

    def _check_implicit(self, graph: FactorGraph) -> None:
        """Refuse settings that need explicit factors."""
        if self.sampler is not None:
            check_stored(self.sampler, graph)
        if self.houdayer:
            raise SampleError(
                "Tempering: Houdayer moves follow stored factors, but this graph has implicit "
                "ones, between all variables; leave houdayer out"
            )

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Lay out the ladder."""
        if not isinstance(self.levels, tuple) or self.houdayer is None:
            return self.settled(graph).prepare(graph, lanes)
        serial = lanes >= _WARP
        return self.ladder(graph, np.array(self.levels, dtype=np.float64), serial=serial)

    def ladder(
        self,
        graph: FactorGraph,
        beta: NDArray[np.float64],
        soft: bool = False,
        depth: float | None = None,
        serial: bool = False,
    ) -> Any:
        """Build the ladder of ascending levels from 0, plus one with hard zeros unless `soft`.

        The additional level depends only on the graph, so that `account` can reproduce it. `depth`
        is the difference between other energies and a soft zero; see `softened`. A `serial` ladder
        updates levels one by one, for a thread of a GPU. The latest ladder is cached with the
        graph, because that of a large graph takes seconds.
        """
        soft = soft and len(graph.hard) > 0
        key = (str(self.sampler), self.houdayer, beta.tobytes(), soft, depth, serial)
        make = partial(self._ladder, graph, beta, soft, depth, serial)
        return prepared(graph, "ladder", key, make, most=1)

    def _ladder(
        self,
        graph: FactorGraph,
        beta: NDArray[np.float64],
        soft: bool,
        depth: float | None,
        serial: bool,
    ) -> Any:
        """Build the ladder that `ladder` returns."""
        twins = 2 if self.houdayer else 1
        _require_room(graph, len(beta), twins)
        simple, drawing = simplified(graph), None
        if self.sampler is None:
            drawing = _cost_of_drawing(graph, simple)
        if drawing is not None and ladder_in_bits(graph, simple, drawing):
            return spin_ladder(graph, simple, beta, twins)
        hard = bool(len(graph.hard)) and not soft
        beta = np.append(beta, beta[-1]) if hard else beta
        without = softened(graph, simple, depth)
        if drawing is not None and ladder_in_lanes(
            graph, simple, without.unary, without.span, drawing
        ):
            return small_ladder(graph, simple, without, beta, twins, depth, hard, serial)
        start, target = np.zeros(len(graph) + 1, np.int64), np.empty(0, np.int32)
        if twins == 2:  # clusters grow along shared factors
            start, target = neighbors(graph, simple)
        inner = self.sampler or PoissonGibbs()
        last = np.arange(len(beta)) == len(beta) - 1
        copies = Copies(graph, simple, without, np.tile(beta, twins), np.tile(hard & last, twins))
        data = inner.prepare(copies, self.lanes)  # several lanes disable caching between updates
        check_inner(inner, data)
        space = inner.workspace(copies, data)
        order = free_variables(graph.evidence)
        return CopyLadder(
            beta=beta,
            twins=twins,
            sweeps=_sweeps_between(inner, graph, copies, simple),
            hard=hard,
            stack=space.scratch,
            own=space.carried,
            order=order[graph.sizes[order] > 1],
            place=np.arange(len(beta) * twins),
            stride=len(beta) * twins,
            start=start,
            target=target,
            inner=data,
            copies=copies.packed,
            table=without.table,
            unary=without.unary,
            pair=simple.pair,
            pair_weight=simple.pair_weight,
            rest=simple.rest,
            hard_rest=without.hard,
            forbidden=without.forbidden,
            constant=simple.constant,
            implicit=prepare_energies(graph.implicits),
        )

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes: all replicas, the statistics, and space for clusters."""
        levels, twice = len(data.beta), data.twins == 2
        carried = data.own + noted(levels, data.twins)
        if isinstance(data, SpinLadder):
            places = len(data.order)
            scratch = 2 * places if twice else 0
            return Workspace(carried=carried, scratch=scratch, words=max(data.words * places, 1))
        stack = len(data.order) + len(graph) if twice else 0
        rows = LANES * data.words if isinstance(data, SmallLadder) else levels * data.twins
        return Workspace(carried=carried, scratch=data.stack + stack, replicas=rows)

    def carry_over(self, before: Carried, after: Carried) -> None:
        """Every temperature keeps its state, and a new one starts from the nearest old one.

        Exchanges alternate between even and odd pairs, so the parity of the rounds persists, too.
        """
        old, new = before.data, after.data
        slots = nearest_slots(old, new)
        put_states(new, after.replicas, ladder_states(old, before.replicas)[:, slots])
        after.carried[new.own + ROUNDS] = before.carried[old.own + ROUNDS] % 2

    def account(
        self, graph: FactorGraph, carried: NDArray[np.float64], warmup: int
    ) -> Ladder | None:
        """Summarize the chains' statistics; `warmup` counts rounds."""
        if not len(free_variables(graph.evidence)) or not isinstance(self.levels, tuple):
            return None
        beta, twins = np.array(self.levels, dtype=np.float64), 2 if self.houdayer else 1
        if len(graph.hard):  # `ladder` adds the same level
            beta = np.append(beta, 1.0)
        own = carried.shape[1] - noted(len(beta), twins)
        sizes = graph.sizes[graph.evidence < 0]
        first = float(np.log(sizes).sum()) + graph.offset
        return account(carried, beta, twins, own, first, warmup)

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the number of levels."""
        settled = self.settled(graph)
        count = len(settled.levels) if isinstance(settled.levels, tuple) else 0
        pairs = ", two ladders with Houdayer moves" if settled.houdayer else ""
        return (
            f"Tempering: exact; {count} levels{pairs}; a sweep is one of every level. "
            f"{guarantee(None)}"
        )


def nearest_slots(old: Any, new: Any) -> NDArray[np.int64]:
    """Find the slot of a ladder from which each slot of another one starts.

    Parameters
    ----------
    old, new : SpinLadder or CopyLadder
        Slots are numbered by twin and level.

    Returns
    -------
    array [slot of the new ladder]
        The slot of the old ladder with the nearest inverse temperature.
    """
    levels = len(old.beta)
    nearest = np.abs(old.beta - new.beta[:, None]).argmin(axis=1)
    nearest[-1] = levels - 1  # with hard constraints the last two levels have the same beta
    twin = np.arange(new.twins) % old.twins
    slots: NDArray[np.int64] = (twin[:, None] * levels + nearest).ravel()
    return slots


def ladder_states(data: Any, replicas: NDArray[Any]) -> NDArray[Any]:
    """Return the states [variable, slot] of the updated variables of a ladder, in any layout."""
    if isinstance(data, SpinLadder):
        return spin_states(data, replicas)
    states: NDArray[Any] = replicas[data.place + data.stride * data.order[:, None]]
    return states


def ladder_slots(
    data: Any, chain: Chain, replicas: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The states and log-potentials of all slots of a chain after a round.

    Parameters
    ----------
    data : SpinLadder or CopyLadder
        The ladder.
    chain : Chain
        Its state has the values of the variables that are not updated.
    replicas : array
        The states of all slots.

    Returns
    -------
    array [slot, variable], array [slot]
        Log-potentials are those of `graph.packed`, without the graph's offset.
    """
    found = ladder_states(data, replicas)
    slots = found.shape[1]
    states = np.repeat(chain.x[None], slots, axis=0)
    states[:, data.order] = found.T
    first = data.own + SWAPS + len(data.beta) - 1 + 2 * slots  # the index that `energy_at` returns
    return states, chain.carried[first : first + slots]


def put_states(data: Any, replicas: NDArray[Any], states: NDArray[Any]) -> None:
    """Replace the states by those that `ladder_states` returned."""
    if isinstance(data, SpinLadder):
        put_spin_states(data, replicas, states)
    else:
        replicas[data.place + data.stride * data.order[:, None]] = states


def _require_room(graph: FactorGraph, levels: int, twins: int) -> None:
    """Refuse a ladder whose states and statistics do not fit into memory."""
    space = Workspace(carried=noted(levels, twins), replicas=levels * twins)
    memory.require(
        space.size(graph), f"Tempering: a ladder of {levels:,} levels", "use fewer levels"
    )


def _read_levels(levels: Any) -> tuple[float, ...]:
    rule = "Tempering: levels must be inverse temperatures that rise from 0 to 1"
    try:
        beta = np.array(levels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SampleError(f"{rule}, got {levels!r}") from error
    if beta.ndim != 1 or len(beta) < 2 or beta[0] != 0.0 or beta[-1] != 1.0:
        raise SampleError(f"{rule}, got {levels!r}")
    if not (np.diff(beta) > 0).all():
        raise SampleError(f"{rule}, got {levels!r}")
    return tuple(beta.tolist())


def is_sparse(graph: FactorGraph, most: float = _SPARSE) -> bool:
    """Return whether the graph is so sparse that two states differ in clusters of all sizes.

    Variables have at most `most` neighbors on average.
    """
    if graph.implicits:
        return False
    simple = simplified(graph)
    free = max(len(free_variables(graph.evidence)), 1)
    widest = int(open_slots(graph)[simple.rest].max(initial=0))
    if max(2 * len(simple.pair), widest * (widest - 1)) > most * free:
        return False
    return len(neighbors(graph, simple)[1]) <= most * free


def _cost_of_drawing(graph: FactorGraph, simple: Simple) -> Callable[[], float]:
    """Return a function that predicts the nanoseconds per update of the default sampler."""

    def cost() -> float:
        one = Copies(graph, simple, softened(graph, simple), np.ones(1), np.zeros(1, dtype=bool))
        return sum(COSTS[kind] * count for kind, count in PoissonGibbs().operations(one).items())

    return cost


def _sweeps_between(inner: Sampler, graph: FactorGraph, copies: Copies, simple: Simple) -> int:
    """Choose the sweeps between two rounds of exchanges.

    If a sweep evaluates few factors but energies need all of them, exchanges are rarer. The choice
    uses the table of costs, so that a seed determines the chain on every machine.
    """
    operations = inner.operations(copies)
    update = sum(COSTS[kind] * count for kind, count in operations.items())
    slots = graph.packed.factors[simple.rest]
    energy = COSTS["read"] * len(simple.pair) + COSTS["general"] * len(slots)
    energy += COSTS["slot"] * float((slots["scope_end"] - slots["scope_start"]).sum())
    energy += sum(energy_cost(group) for group in graph.implicits)
    sweep = update * max(len(free_variables(graph.evidence)), 1)
    sweeps = max(1, math.ceil(_SWAPS * energy / sweep))
    if sweeps > _MOST_SWEEPS:
        raise SampleError(
            f"Tempering: every exchange needs the energies of this graph's {len(graph):,} "
            f"variables with all others, which take as long as {sweeps // 6:,} sweeps; use fewer "
            "variables, a kernel of a shorter reach, or mg.PoissonGibbs() without levels"
        )
    round_seconds = 1e-9 * len(copies) / len(graph) * (sweeps * sweep + energy)
    what = f"Tempering: a round of exchanges between {len(copies) // len(graph)} temperatures"
    current().require(
        round_seconds, what, "give more time, or use mg.PoissonGibbs() without levels"
    )
    return sweeps
