"""What a user writes: one file per kind of factor, and the registry of kinds."""

from minigibbs.factors.base import Factors
from minigibbs.factors.ising import Ising
from minigibbs.factors.logical import Logical
from minigibbs.factors.potts import Potts
from minigibbs.factors.table import Table
from minigibbs.factors.unary import Unary

KINDS: dict[str, type[Factors]] = {
    kind.kind: kind for kind in (Unary, Potts, Ising, Table, Logical)
}

__all__ = ["KINDS", "Factors", "Ising", "Logical", "Potts", "Table", "Unary"]
