"""The check that two-valued factors share."""

from __future__ import annotations

import numpy as np

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import Factors


def require_two_valued(group: Factors, domains: Domains, number: int) -> None:
    """Raise if a factor of the group touches a variable that has not exactly two values."""
    wrong = (domains.sizes != 2)[group.scope]
    if wrong.any():
        factor, slot = np.argwhere(wrong)[0]
        variable = int(group.scope[factor, slot])
        raise GraphError(
            f"{group.where(int(factor), number)}: {group.kind} factors need variables with 2 "
            f"values, but {domains.describe(variable)} has {domains.sizes[variable]}"
        )
