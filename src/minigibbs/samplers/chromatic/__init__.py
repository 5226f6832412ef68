"""Chromatic scans: all variables of a colour at a time, several chains side by side.

`colour_data` lays a graph out; `make_tile` places chains on it.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.general_tiles import GENERAL_LANES, GeneralTile, general_colours
from minigibbs.samplers.chromatic.point_tiles import PointTile
from minigibbs.samplers.chromatic.points import PointColours, point_colours, points_fit
from minigibbs.samplers.chromatic.small import SmallColours, small_colours, small_fit
from minigibbs.samplers.chromatic.small_tails import (
    SmallTailColours,
    SmallTailLanes,
    SmallTailRow,
    small_tail_colours,
    small_tails_fit,
)
from minigibbs.samplers.chromatic.small_tiles import SmallLanes, SmallRow
from minigibbs.samplers.chromatic.spin_tails import (
    SpinTailColours,
    SpinTailLanes,
    SpinTailRow,
    spin_tail_colours,
    tails_fit,
)
from minigibbs.samplers.chromatic.spin_tiles import SpinLanes, SpinRow
from minigibbs.samplers.chromatic.spins import SpinColours, spin_colours, spins_fit
from minigibbs.samplers.chromatic.stencil_bits import StencilBits, stencil_bits
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile
from minigibbs.samplers.chromatic.tile import LANES, Tile
from minigibbs.samplers.gibbs.sampler import Gibbs
from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs

__all__ = [
    "LANES",
    "Tile",
    "check_colours",
    "colour_data",
    "has_layout",
    "make_tile",
    "split_lanes",
]


def check_colours(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse a sampler or a graph that has no chromatic scan."""
    name = type(sampler).__name__
    if not isinstance(sampler, Gibbs | PoissonGibbs):
        raise SampleError(
            f'scan="chromatic" is for Gibbs and PoissonGibbs; {name} has "random", "systematic" '
            'and "shuffled"'
        )
    if isinstance(sampler, Gibbs) and (sampler.textbook or sampler.fields):
        raise SampleError(
            f'scan="chromatic" is for mg.Gibbs() without settings; got {sampler}, which updates '
            "one variable after another"
        )
    if graph.implicits and not points_fit(sampler, graph):
        raise SampleError(
            'scan="chromatic" needs stored factors, or mg.Points and unary ones alone, but this '
            'graph has other implicit ones, which join all variables; use scan="random" or '
            "graph.stored()"
        )


def draws_nothing(sampler: Sampler, graph: FactorGraph) -> bool:
    """Whether every factor is evaluated, so that the update is plain Gibbs's."""
    if not isinstance(sampler, PoissonGibbs) or sampler.evaluates_all(graph):
        return True
    return not sampler.split(graph, LANES).tail.any()


def has_layout(sampler: Sampler, graph: FactorGraph) -> bool:
    """Whether sweeps have arrays of their own, which a GPU can read too."""
    if draws_nothing(sampler, graph):
        return spins_fit(graph) or small_fit(graph)
    if not isinstance(sampler, PoissonGibbs):
        return False
    split = sampler.split(graph, LANES)
    return tails_fit(graph, split) or small_tails_fit(graph, split)


def split_lanes(sampler: Sampler, graph: FactorGraph) -> int:
    """The number of lanes for which chromatic scans split the factors, as `colour_data` does."""
    return LANES if graph.implicits or has_layout(sampler, graph) else GENERAL_LANES


def colour_data(sampler: Sampler, graph: FactorGraph, space: bool = True) -> Any:
    """What chromatic sweeps of a graph read; `space` allows bits in space for stencils."""
    if graph.implicits:
        assert isinstance(sampler, PoissonGibbs)
        return point_colours(graph, sampler.split(graph, LANES))
    bits = stencil_bits(graph) if space and draws_nothing(sampler, graph) else None
    if bits is not None:
        return bits
    if spins_fit(graph) and draws_nothing(sampler, graph):
        return spin_colours(graph)
    if small_fit(graph) and draws_nothing(sampler, graph):
        return small_colours(graph)
    if isinstance(sampler, PoissonGibbs):
        split = sampler.split(graph, LANES)
        if split.tail.any() and tails_fit(graph, split):
            return spin_tail_colours(graph, split)
        if split.tail.any() and small_tails_fit(graph, split):
            return small_tail_colours(graph, split)
    return general_colours(sampler, graph)


def make_tile(
    sampler: Sampler, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
) -> Tile:
    """Chains from number `first` on, a multiple of 8 where there are several."""
    if isinstance(data, PointColours):
        return PointTile(graph, data, first, states, seed)
    row, lanes = _TILES.get(type(data), (None, None))
    if row is None:
        return GeneralTile(graph, data, first, states, seed, sampler)
    tile: Tile = (row if len(states) == 1 else lanes)(graph, data, first, states, seed)
    return tile


_TILES: dict[type, tuple[Any, Any]] = {  # for one chain, and for several
    SpinColours: (SpinRow, SpinLanes),
    SpinTailColours: (SpinTailRow, SpinTailLanes),
    SmallColours: (SmallRow, SmallLanes),
    SmallTailColours: (SmallTailRow, SmallTailLanes),
    StencilBits: (StencilTile, StencilTile),
}
