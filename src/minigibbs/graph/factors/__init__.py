"""The kinds of factors: one file per kind, and the registry of kinds."""

from minigibbs.graph.factors.base import Factors
from minigibbs.graph.factors.implicit.complete import Complete
from minigibbs.graph.factors.implicit.kernel import Kernel
from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.graph.factors.implicit.points import PointKernel, Points
from minigibbs.graph.factors.ising import Ising
from minigibbs.graph.factors.logical import Logical
from minigibbs.graph.factors.potts import Potts
from minigibbs.graph.factors.stencil import Stencil
from minigibbs.graph.factors.table import Table
from minigibbs.graph.factors.unary import Unary

KINDS: dict[str, type[Factors]] = {
    kind.kind: kind
    for kind in (Unary, Potts, Ising, Table, Logical, Kernel, Complete, LowRank, Points, Stencil)
}

__all__ = [
    "KINDS",
    "Complete",
    "Factors",
    "Ising",
    "Kernel",
    "Logical",
    "LowRank",
    "PointKernel",
    "Points",
    "Potts",
    "Stencil",
    "Table",
    "Unary",
]
