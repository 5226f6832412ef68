"""Which scan is the default: the one with the most effective samples per second, as measured.

`benchmarks/results/defaults.md` has the measurements. The choice depends on the sampler, the graph
and the number of chains, so that a seed fixes the draws whatever the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic import has_layout
from minigibbs.samplers.chromatic.small import small_fit
from minigibbs.samplers.chromatic.spins import spins_fit
from minigibbs.samplers.chromatic.stencil_bits import stencil_bits
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs

LEAST = 64  # variables of a colour, on average: a vector's worth


class ScanChoice(NamedTuple):
    """A scan, and why it is the default."""

    scan: str
    why: str


def default_scan(sampler: Sampler, graph: FactorGraph, crowd: bool = False) -> ScanChoice:
    """The scan of a run whose length is given in sweeps, where none is asked for.

    Parameters
    ----------
    sampler : Sampler
        What updates the variables.
    graph : FactorGraph
        The model; the choice is kept with it.
    crowd : bool, default False
        Whether there are so many chains that they fill vectors, or a device, by themselves.

    Returns
    -------
    ScanChoice
        The scan, and why.
    """
    key = (str(sampler), crowd)
    return prepared(graph, "scan", key, lambda: _choose(sampler, graph, crowd), most=16)


def one_by_one(sampler: Sampler, why: str) -> ScanChoice:
    """The scan of a run that updates one variable after another, and why it does that.

    A fixed order reads memory in order and mixes in about half the sweeps. It is not used where it
    would break a promise: published samplers visit variables at random, and so does the chain that
    a guaranteed slowdown is about.
    """
    if not isinstance(sampler, PoissonGibbs):
        return ScanChoice("random", "as the sampler was published")
    if sampler.slowdown is not None:
        return ScanChoice("random", "the guaranteed slowdown is that of a random order")
    return ScanChoice("systematic", why)


def _choose(sampler: Sampler, graph: FactorGraph, crowd: bool) -> ScanChoice:
    if not isinstance(sampler, PoissonGibbs) or sampler.slowdown is not None:
        return one_by_one(sampler, "")
    if graph.implicits:
        why = "implicit factors couple all variables, so no two can be updated at once"
        return one_by_one(sampler, why)
    if not spins_fit(graph) and not small_fit(graph):
        why = "chromatic scans have no layout for hard constraints, large domains or large scopes"
        return one_by_one(sampler, why)
    if crowd and has_layout(sampler, graph):
        return ScanChoice("chromatic", "this many chains are updated together")
    free = int((graph.evidence < 0).sum())
    if not free:
        return one_by_one(sampler, "evidence clamps every variable")
    bits = stencil_bits(graph) if sampler.evaluates_all(graph) else None
    if bits is not None and free >= LEAST * bits.lattice.colors:
        colors = bits.lattice.colors
        return ScanChoice(
            "chromatic",
            f"its {colors} colors have {free // colors:,} variables each, which are stored as bits "
            "and updated together",
        )
    entries = len(graph.packed.weight)  # at more than half of all pairs, colors are small
    if 2 * entries > free * free or free < LEAST * graph.colours.count:
        return one_by_one(sampler, f"its colors have fewer than {LEAST} variables each")
    if sampler.split(graph, LANES).tail.any():
        return one_by_one(sampler, "factors are drawn, chain by chain")
    return ScanChoice(
        "chromatic",
        f"its {graph.colours.count} colors have {free // graph.colours.count:,} variables each, "
        "which are updated together",
    )
