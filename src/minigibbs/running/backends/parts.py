"""Parts of a graph: which variables each rank updates, so that few values travel.

Equal parts in the order of the variables suffice if neighbors have close numbers. Otherwise the
graph is cut in the reverse Cuthill-McKee order, or by METIS if `pymetis` is installed and messages
still take long. The variables of a part are then moved next to each other within each color. Draws
do not depend on places, because random bits are functions of the variable.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.samplers.chromatic.places import blocks_of
from minigibbs.samplers.chromatic.small import SmallColors
from minigibbs.samplers.chromatic.spins import SpinColors
from minigibbs.system.optional import optional

LATENCY, BANDWIDTH = 2e-6, 1e10  # seconds per message and bytes per second of a usual network
_FEW = 1.5  # bytes per variable of a rank: about a twentieth of the time of its updates
_GAIN = 0.8  # largest share of the bytes of equal parts that better parts send
_MOST_WORK = 1.3  # largest work of a rank, color by color, relative to equal parts
_SAMPLE = 4096  # blocks of a large graph that are looked at first
_SEED = 1  # of METIS: all ranks compute the same parts

NUMBERS, METIS, LEVELS = "in the order of the variables", "METIS", "reverse Cuthill-McKee order"


class Parts(NamedTuple):
    """The layout of a graph whose parts are ranges of blocks."""

    data: Any
    original: Any  # that of a single machine, if the places differ
    cuts: list[list[int]] | None  # [color][rank] first block, and the end; None for equal parts
    order: NDArray[np.int64] | None  # [place of the original] its place in `data`, if that differs
    how: str  # NUMBERS, METIS or LEVELS


class _Neighbors(NamedTuple):
    """The entries of a layout by place: entry k of a place has index first + k * step."""

    first: NDArray[np.int64]  # [m]
    step: NDArray[np.int64]  # [m]
    degree: NDArray[np.int64]  # [m]

    @classmethod
    def of(cls, blocks: NDArray[np.void]) -> _Neighbors:
        """Locate the entries of the places of all blocks."""
        count = blocks["count"].astype(np.int64)
        lane = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        first = np.repeat(blocks["entry"], count) + lane
        return cls(
            first, np.repeat(count, count), np.repeat(blocks["degree"].astype(np.int64), count)
        )

    def entries(self, order: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the entries of all places, place by place, in this order of places."""
        first, step, degree = (one if order is None else one[order] for one in self)
        end = np.cumsum(degree)
        k = np.arange(end[-1] if len(end) else 0) - np.repeat(end - degree, degree)
        entries: NDArray[np.int64] = np.repeat(first, degree) + k * np.repeat(step, degree)
        return entries


def parts_of(data: SpinColors | SmallColors, ranks: int) -> Parts:
    """Return parts of a layout for this number of ranks.

    Parameters
    ----------
    data : SpinColors or SmallColors
        The layout of a single machine.
    ranks : int
        Number of ranks.

    Returns
    -------
    Parts
        The same layout if equal parts are good enough, else one with other places.
    """
    plain, places = Parts(data, None, None, None, NUMBERS), len(data.variable)
    if ranks == 1 or not places or _are_close(data, ranks):
        return plain
    near = _Neighbors.of(data.blocks)
    owner = np.repeat(np.arange(places), near.degree)
    target = data.target[near.entries()].astype(np.int64)
    color = np.repeat(np.arange(len(data.ends) - 1), np.diff(data.ends))
    inside = np.arange(places) - data.ends[color]
    equal = inside * ranks // np.diff(data.ends)[color]
    least = _travel(equal, owner, target, color, ranks)
    if least <= _FEW * places / ranks:
        return plain
    from scipy.sparse import csr_array

    graph = csr_array((np.ones(len(owner), np.int8), (owner, target)), (places, places))
    chosen, least = None, _GAIN * least
    for how, find in ((LEVELS, _by_levels), (METIS, _by_metis)):  # the second takes far longer
        if least <= _FEW * places / ranks:
            break
        part = find(graph, near.degree + 1, ranks)
        if part is None:
            continue
        work = np.bincount(color * ranks + part, near.degree + 1.0, ranks * (len(data.ends) - 1))
        slowest = work.reshape(-1, ranks).max(axis=1).sum() * ranks / work.sum()
        travel = _travel(part, owner, target, color, ranks)
        if travel < least and slowest < _MOST_WORK:
            chosen, least = (how, part), travel
    if chosen is None:
        return plain
    return _moved(data, near, color, chosen[1], ranks)._replace(how=chosen[0])


def _are_close(data: SpinColors | SmallColors, ranks: int) -> bool:
    """Return whether equal parts of a large graph send little, judged by some of its blocks.

    The arrays of a search would be larger than the layout.
    """
    step = len(data.blocks) // _SAMPLE
    if step < 2:
        return False
    blocks = data.blocks[::step]
    near, count = _Neighbors.of(blocks), blocks["count"]
    lane = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    owner = np.repeat(np.repeat(blocks["first"], count) + lane, near.degree)

    def part(place: NDArray[Any]) -> NDArray[np.int64]:
        color = np.searchsorted(data.ends, place, side="right") - 1
        inside: NDArray[np.int64] = place - data.ends[color]
        return inside * ranks // np.diff(data.ends)[color]

    across = part(owner) != part(data.target[near.entries()].astype(np.int64))
    sent = step * np.count_nonzero(across) + 2 * LATENCY * BANDWIDTH * ranks * len(data.ends)
    return bool(sent <= _FEW * len(data.variable))


def _travel(
    part: NDArray[np.int64],
    owner: NDArray[np.int64],
    target: NDArray[np.int64],
    color: NDArray[np.int64],
    ranks: int,
) -> float:
    """Return the bytes that the busiest rank sends, and its messages as bytes of the same time."""
    reader = part[owner]
    across = part[target] != reader
    place, reader = np.divmod(distinct(target[across] * ranks + reader[across]), ranks)
    source = part[place]
    sent = np.bincount(source, minlength=ranks)
    message = np.bincount((color[place] * ranks + source) * ranks + reader) > 0
    messages = np.bincount(np.flatnonzero(message) // ranks % ranks, minlength=ranks)
    return float((sent + LATENCY * BANDWIDTH * messages).max())


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort values in place, and return each of them once; `np.unique` is ten times slower."""
    values.sort()
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


def _by_metis(graph: Any, work: NDArray[np.int64], ranks: int) -> NDArray[np.int64] | None:
    """Return the parts that METIS finds; None if it is not installed."""
    if find_spec("pymetis") is None:
        return None
    pymetis = optional("pymetis", "metis")
    lists = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    options = pymetis.Options(seed=_SEED)
    _, part = pymetis.part_graph(ranks, lists, vweights=work.tolist(), options=options)
    return np.asarray(part, np.int64)


def _by_levels(graph: Any, work: NDArray[np.int64], ranks: int) -> NDArray[np.int64]:
    """Return parts of equal work in an order in which neighbors are close."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    before = np.cumsum(work[order]) - work[order]
    part = np.empty(len(order), np.int64)
    part[order] = before * ranks // work.sum()
    return part


def _moved(
    data: SpinColors | SmallColors,
    near: _Neighbors,
    color: NDArray[np.int64],
    part: NDArray[np.int64],
    ranks: int,
) -> Parts:
    """Move the variables of a part next to each other within each color."""
    size = np.repeat(data.blocks["size"], data.blocks["count"])
    key = color * ranks + part
    order = np.lexsort((near.degree, size, key))  # stable
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    key = key[order]
    blocks = blocks_of(key, near.degree[order], size[order])
    own = key[blocks["first"]]
    ends = np.searchsorted(own, np.arange(len(data.ends) - 1) * ranks)
    cuts = np.searchsorted(own, np.arange((len(data.ends) - 1) * ranks)).reshape(-1, ranks)
    block_ends = np.append(ends, len(blocks))
    there, here = _Neighbors.of(blocks).entries(), near.entries(order)
    changed: dict[str, Any] = {
        "blocks": blocks,
        "block_ends": block_ends,
        "variable": data.variable[order],
        "target": place[data.target].astype(np.uint32),
        "weight": data.weight,
    }
    if isinstance(data, SmallColors):
        changed["start"] = data.start
    for name in ("target", "weight", "start"):
        if name in changed:
            values = changed[name]
            changed[name] = np.empty_like(values)
            changed[name][there] = values[here]
    moved = data._replace(**changed, **_bases(data, order))
    for array in moved:
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    found = [[*row, end] for row, end in zip(cuts.tolist(), block_ends[1:].tolist(), strict=True)]
    return Parts(moved, data, found, place, "")


def _bases(data: SpinColors | SmallColors, order: NDArray[np.int64]) -> dict[str, Any]:
    """Return the fields of a layout with numbers per place or value, in another order."""
    if isinstance(data, SpinColors):
        return {"base": data.base[order]}
    sizes = np.diff(data.first)[order]
    first = np.concatenate([[0], np.cumsum(sizes)])
    own = np.repeat(data.first[order] - first[:-1], sizes) + np.arange(first[-1])
    return {"first": first, "base": data.base[own]}
