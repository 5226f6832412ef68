"""Partition of a chromatic scan over ranks: who updates what, and which values travel."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.running.backends.parts import BANDWIDTH, LATENCY, distinct, parts_of
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.lattice import BITS, Lattice
from minigibbs.samplers.chromatic.small import SmallColors
from minigibbs.samplers.chromatic.spins import SpinColors
from minigibbs.samplers.chromatic.stencil_bits import StencilBits
from minigibbs.samplers.chromatic.stencil_bytes import StencilBytes
from minigibbs.samplers.chromatic.tile import Tile
from minigibbs.samplers.registry import CPU, chromatic_layout
from minigibbs.system.memory import readable

Ranges = list[tuple[int, int]]


def cuts(begin: int, end: int, ranks: int, slab: int = 1) -> list[int]:
    """Return the bounds of the parts of all ranks; parts are whole slabs.

    >>> cuts(0, 10, 3)
    [0, 3, 6, 10]
    """
    slabs = -(-(end - begin) // slab)
    return [min(begin + slab * (slabs * rank // ranks), end) for rank in range(ranks + 1)]


class Partition:
    """Partition of the updates over ranks, and the values that they exchange, color by color.

    A lattice is cut into slabs along its first axis, and a rank needs the slabs next to its own.
    For any other graph, `routes` finds the values that a rank needs; minibatched factors need all.
    Its parts are equal, or those of `parts_of`.
    """

    def __init__(
        self,
        ends: NDArray[np.int64],
        ranks: int,
        lattice: Lattice | None,
        parts: list[list[int]] | None = None,
    ) -> None:
        self.ranks = ranks
        self.colors = [tuple(pair) for pair in pairwise(ends.tolist())]
        self.slab, self.reach, self.wraps = 1, 0, False
        if lattice is not None:
            self.slab, self.reach, self.wraps = _slabs(lattice)
        equal = [cuts(begin, end, ranks, self.slab) for begin, end in self.colors]
        self.cuts = equal if parts is None else parts  # [color][rank]
        self._lattice = lattice

    def own(self, color: int, rank: int) -> tuple[int, int]:
        """Return the range of a color that a rank updates."""
        return self.cuts[color][rank], self.cuts[color][rank + 1]

    def sent(self, color: int, source: int, target: int) -> Ranges:
        """Return the ranges of a color that one rank sends to another after updating them."""
        begin, end = self.own(color, source)
        if source == target or begin == end:
            return []
        if self._lattice is None:
            return [(begin, end)]
        first, last = self.own(color, target)
        if first == last:
            return []
        lowest, highest = self.colors[color]
        halo = self.reach * self.slab
        needed = [(first - halo, first), (last, last + halo)]
        length, found = highest - lowest, set()
        for low, high in needed:
            for shift in (-length, 0, length) if self.wraps else (0,):
                one, other = max(low + shift, begin), min(high + shift, end)
                if one < other:
                    found.add((one, other))
        return merged(sorted(found))


def merged(ranges: Ranges) -> Ranges:
    """Join sorted ranges that touch."""
    out: Ranges = []
    for low, high in ranges:
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out


def _slabs(lattice: Lattice) -> tuple[int, int, bool]:
    """Return units per slab, reach of neighbors in slabs, and whether the first axis wraps."""
    wraps = bool(lattice.wraps[0])
    steps = int(np.abs(lattice.offset[:, 0]).max(initial=0))
    if len(lattice.shape) > 1:
        return lattice.units // int(lattice.shape[0]), steps, wraps
    return 1, -(-steps // (lattice.colors * BITS)) + 1, wraps


class Routes(NamedTuple):
    """What a rank exchanges after its part of a color.

    A message has the values of a range of units, or of an array of places.
    """

    sent: list[tuple[int, Any]]  # target, and what it gets
    received: list[tuple[int, Any]]  # source, and what it sends
    early: Ranges  # units to update first, because others need them


def routes(tile: Tile, partition: Partition, me: int) -> list[Routes]:
    """Return the messages of a rank for every color.

    Parameters
    ----------
    tile : Tile
        Chains that all ranks share.
    partition : Partition
        Units of every rank.
    me : int
        The rank.

    Returns
    -------
    list of Routes
        Color by color. Ranks list their messages to each other in the same order.
    """
    data, others = tile.data, [rank for rank in range(partition.ranks) if rank != me]
    crossing = read_across(data, partition) if isinstance(data, SpinColors | SmallColors) else None
    found = []
    for color in range(len(partition.colors)):
        out: list[tuple[int, Any]]
        into: list[tuple[int, Any]]
        if crossing is None:
            out = [(rank, part) for rank in others for part in partition.sent(color, me, rank)]
            into = [(rank, part) for rank in others for part in partition.sent(color, rank, me)]
            units = [part for _, part in out]
        else:
            sent = ((rank, crossing.sent(color, me, rank)) for rank in others)
            received = ((rank, crossing.sent(color, rank, me)) for rank in others)
            out = [(rank, places) for rank, places in sent if len(places)]
            into = [(rank, places) for rank, places in received if len(places)]
            units = [crossing.units(places) for _, places in out]
        found.append(Routes(out, into, merged(sorted(set(units)))))
    return found


class Crossing(NamedTuple):
    """Places whose values a rank reads that does not update them."""

    place: NDArray[np.int64]  # in increasing order
    reader: NDArray[np.int64]  # a rank
    bounds: NDArray[np.int64]  # [color * ranks + rank] the first place of every part, and the end
    first: NDArray[np.int32]  # [block] its first place
    ranks: int
    entries: int  # neighbors on other ranks, over all variables

    def sent(self, color: int, source: int, target: int) -> NDArray[np.int64]:
        """Return the places of a color that one rank sends to another."""
        part = color * self.ranks + source
        begin, end = np.searchsorted(self.place, self.bounds[part : part + 2])
        places: NDArray[np.int64] = self.place[begin:end][self.reader[begin:end] == target]
        return places

    def units(self, places: NDArray[np.int64]) -> tuple[int, int]:
        """Return a range of blocks that contains these places."""
        low, high = np.searchsorted(self.first, places[[0, -1]], side="right").tolist()
        return low - 1, high


def read_across(data: SpinColors | SmallColors, partition: Partition) -> Crossing:
    """Find the places whose values must travel.

    Parameters
    ----------
    data : SpinColors or SmallColors
        Layout of a graph.
    partition : Partition
        Blocks of every rank.

    Returns
    -------
    Crossing
        One entry per place and rank that reads it.
    """
    ranks, blocks = partition.ranks, data.blocks
    cut = np.concatenate([own[:-1] for own in partition.cuts] + [[partition.colors[-1][1]]])
    owner = np.repeat(np.tile(np.arange(ranks), len(partition.colors)), np.diff(cut))  # [block]
    source = np.repeat(owner, blocks["count"])
    reader = np.repeat(owner, blocks["count"].astype(np.int64) * blocks["degree"])
    across = np.flatnonzero(source[data.target] != reader)
    key = distinct(data.target[across].astype(np.int64) * ranks + reader[across])
    bounds = np.append(blocks["first"], len(data.variable))[cut].astype(np.int64)
    return Crossing(key // ranks, key % ranks, bounds, blocks["first"], ranks, len(across))


def describe_ranks(sampler: Sampler, graph: FactorGraph, ranks: int) -> str:
    """Describe the work and messages of each of several ranks.

    Parameters
    ----------
    sampler : Sampler
        The sampler of the run.
    graph : FactorGraph
        The model.
    ranks : int
        Number of processes.

    Returns
    -------
    str
        A few sentences, with predicted times per sweep.
    """
    layout = chromatic_layout(sampler, graph, CPU)
    data = layout.lay_out(sampler, graph)
    if layout.data in (StencilBits, StencilBytes):
        lattice = data.lattice
        partition = Partition(np.arange(lattice.colors + 1) * lattice.units, ranks, lattice)
        load = Load.of_lattice(partition, *((BITS, 4) if layout.data is StencilBits else (1, 1)))
        how = "slabs along the first axis of the lattice"
    elif layout.data in (SpinColors, SmallColors):
        parts = parts_of(data, ranks)
        data = parts.data
        partition = Partition(data.block_ends, ranks, None, parts.cuts)
        load = Load.of_graph(data, partition)
        share = load.across / max(len(data.target), 1)
        how = f"parts by {parts.how}" if parts.cuts else f"equal parts {parts.how}"
        how += f", which cut {share:.2g} of the pairs and tables"
    else:
        return f"{ranks} ranks: {NO_PARTS}."
    cost = layout.cost(graph)
    text = (
        f"{ranks} ranks, {how}: each updates up to {load.updates:,} variables. A rank sends up to "
        f"{readable(load.sent)} in {load.messages} messages per chain and sweep"
    )
    if cost is not None:
        travel = LATENCY * load.messages + load.sent / BANDWIDTH
        text += (
            f": about {1e-3 * cost * load.updates:,.3g} us of updates and {1e6 * travel:,.3g} us "
            f"of messages ({1e6 * LATENCY:g} us each, {BANDWIDTH / 1e9:g} GB/s)"
        )
    return text + (f"; {load.idle} ranks have nothing to do." if load.idle else ".")


NO_PARTS = (
    "this model has no layout that ranks can share; they split graphs of spins or small domains "
    'whose factors are all evaluated; other scans, such as scan="systematic", spread chains'
)


class Load(NamedTuple):
    """The work of the busiest rank, per chain and sweep."""

    updates: int
    sent: int  # bytes
    messages: int
    idle: int  # ranks without work
    across: int = 0  # entries of neighbors on other ranks, of the whole graph

    @classmethod
    def of_lattice(cls, partition: Partition, sites: int, size: int) -> Load:
        """Return the load of slabs of a lattice, whose units have some sites and bytes."""
        colors, every = range(len(partition.colors)), range(partition.ranks)
        words = [sum(np.diff(partition.own(color, rank))[0] for color in colors) for rank in every]
        sent = [
            [
                high - low
                for color in colors
                for other in every
                for low, high in partition.sent(color, rank, other)
            ]
            for rank in every
        ]
        most = size * max(map(sum, sent))
        return cls(int(max(words)) * sites, most, max(map(len, sent)), words.count(0))

    @classmethod
    def of_graph(cls, data: SpinColors | SmallColors, partition: Partition) -> Load:
        """Return the load of parts of a graph."""
        ranks, crossing = partition.ranks, read_across(data, partition)
        part = np.searchsorted(crossing.bounds, crossing.place, side="right") - 1
        sizes = np.diff(crossing.bounds).reshape(-1, ranks).sum(axis=0)
        sent = np.bincount(part % ranks, minlength=ranks)
        message = np.unique(part * ranks + crossing.reader) // ranks % ranks  # its source
        messages = np.bincount(message, minlength=ranks)
        idle = int(np.count_nonzero(sizes == 0))
        most = int(sizes.max()), int(sent.max()), int(messages.max())
        return cls(*most, idle, crossing.entries)
