"""The layouts of Poisson-Gibbs, in the order in which they are tried: the last one takes all."""

from __future__ import annotations

from typing import Any

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.poisson_gibbs.layouts.base import Layout
from minigibbs.samplers.poisson_gibbs.layouts.carrying import CARRYING, STRONG_CARRYING
from minigibbs.samplers.poisson_gibbs.layouts.general import GENERAL
from minigibbs.samplers.poisson_gibbs.layouts.large import LARGE
from minigibbs.samplers.poisson_gibbs.layouts.plain import FIELDS, GIBBS, SPIN_FIELDS
from minigibbs.samplers.poisson_gibbs.layouts.small import SMALL
from minigibbs.samplers.poisson_gibbs.layouts.spins import SPINS
from minigibbs.samplers.poisson_gibbs.layouts.strong import STRONG
from minigibbs.samplers.poisson_gibbs.split import Split

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
