"""What a user writes: one file per kind of factor, and the registry of kinds."""

from minigibbs.factors.base import Factors
from minigibbs.factors.complete import Complete
from minigibbs.factors.ising import Ising
from minigibbs.factors.kernel import Kernel
from minigibbs.factors.logical import Logical
from minigibbs.factors.low_rank import LowRank
from minigibbs.factors.potts import Potts
from minigibbs.factors.table import Table
from minigibbs.factors.unary import Unary

KINDS: dict[str, type[Factors]] = {
    kind.kind: kind for kind in (Unary, Potts, Ising, Table, Logical, Kernel, Complete, LowRank)
}

__all__ = [
    "KINDS",
    "Complete",
    "Factors",
    "Ising",
    "Kernel",
    "Logical",
    "LowRank",
    "Potts",
    "Table",
    "Unary",
]
