"""The layouts of Poisson-Gibbs, in the order in which they are tried: the last one takes all."""

from __future__ import annotations

from typing import Any

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import Layout
from minigibbs.samplers.poisson_gibbs.updates.carrying import CARRYING, STRONG_CARRYING
from minigibbs.samplers.poisson_gibbs.updates.general import GENERAL
from minigibbs.samplers.poisson_gibbs.updates.large import LARGE
from minigibbs.samplers.poisson_gibbs.updates.plain import FIELDS, GIBBS, SPIN_FIELDS
from minigibbs.samplers.poisson_gibbs.updates.small import SMALL
from minigibbs.samplers.poisson_gibbs.updates.spins import SPINS
from minigibbs.samplers.poisson_gibbs.updates.strong import STRONG

LAYOUTS = (
    FIELDS,
    SPIN_FIELDS,
    GIBBS,
    SPINS,
    SMALL,
    LARGE,
    CARRYING,
    STRONG_CARRYING,
    GENERAL,
    STRONG,
)


def choose_layout(graph: FactorGraph, split: Split) -> Layout:
    """The first layout that fits."""
    return next(layout for layout in LAYOUTS if layout.fits(graph, split))


def layout_of(data: Any) -> Layout:
    """The layout that prepared `data`."""
    return next(layout for layout in LAYOUTS if layout.data is type(data))


__all__ = ["LAYOUTS", "Layout", "choose_layout", "layout_of"]
