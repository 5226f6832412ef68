"""Which scan is the default: the one with the least time per effective sample, by measurement.

On a CPU the choice depends on the sampler and the graph alone, so that a seed fixes the draws
whatever the number of chains and threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic import has_layout
from minigibbs.samplers.chromatic.small import small_fit
from minigibbs.samplers.chromatic.spins import spins_fit
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs

LEAST = 64  # variables of a colour, on average: a vector's worth


class ScanChoice(NamedTuple):
    """A scan, and why it is the default."""

    scan: str
    why: str


def default_scan(sampler: Sampler, graph: FactorGraph, crowd: bool = False) -> ScanChoice:
    """The scan of a run whose length is given in sweeps, where none is asked for.

    `crowd` says that the chains fill a device by themselves, so that colours may be small. The
    choice is kept with the graph.
    """
    kept: dict[Any, ScanChoice] = vars(graph).setdefault("_scans", {})
    key = (str(sampler), crowd)
    if key not in kept:
        kept[key] = _choose(sampler, graph, crowd)
    return kept[key]


def _choose(sampler: Sampler, graph: FactorGraph, crowd: bool) -> ScanChoice:
    if not isinstance(sampler, PoissonGibbs):
        return ScanChoice("random", "as the sampler was published")
    if graph.implicits:
        return ScanChoice(
            "random", "implicit factors couple all variables, so no two can be updated at once"
        )
    if not spins_fit(graph) and not small_fit(graph):
        return ScanChoice(
            "random", "colours have no layout for zeros, large domains or factors of three and more"
        )
    if crowd and has_layout(sampler, graph):
        return ScanChoice("chromatic", "so many chains are updated together")
    free = int((graph.evidence < 0).sum())
    if not free:
        return ScanChoice("random", "evidence clamps every variable")
    entries = len(graph.packed.weight)  # at more than half of all pairs, colours are small
    if 2 * entries > free * free or free < LEAST * graph.colours.count:
        return ScanChoice("random", f"its colours have fewer than {LEAST} variables each")
    if sampler.split(graph, LANES).tail.any():
        return ScanChoice("random", "factors are drawn, chain by chain")
    return ScanChoice(
        "chromatic",
        f"its {graph.colours.count} colours have {free // graph.colours.count:,} variables each, "
        "which are updated together",
    )
