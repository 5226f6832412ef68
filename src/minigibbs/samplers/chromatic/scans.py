"""Which scan is the default: the one with the least time per effective sample, by measurement.

The choice depends on the sampler and the graph alone, so that a seed fixes the draws whatever the
number of chains and threads.
"""

from __future__ import annotations

from typing import NamedTuple

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.small import small_fit
from minigibbs.samplers.chromatic.spins import spins_fit
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs

LEAST = 64  # variables of a colour, on average: a vector's worth


class ScanChoice(NamedTuple):
    """A scan, and why it is the default."""

    scan: str
    why: str


def default_scan(sampler: Sampler, graph: FactorGraph) -> ScanChoice:
    """The scan of a run on the CPU whose length is given in sweeps, where none is asked for."""
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
    free = int((graph.evidence < 0).sum())
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
