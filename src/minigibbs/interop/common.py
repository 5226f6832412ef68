"""What the bridges share: names, inverse temperatures, counts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from minigibbs.errors import GraphError


def read_beta(beta: Any) -> float:
    """Validate an inverse temperature: finite and not negative."""
    number = isinstance(beta, Real) and not isinstance(beta, bool)
    if not number or not 0 <= beta < math.inf:
        raise GraphError(f"beta must be a finite number of at least 0, got {beta!r}")
    return float(beta)


def require_positive(**counts: Any) -> None:
    """Raise for a count that is no integer of at least 1."""
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise GraphError(f"{name} must be an integer of at least 1, got {count!r}")


def unique_names(labels: Iterable[Any]) -> list[str]:
    """Return unique names for labels of any kind: strings as they are, other labels as printed.

    >>> unique_names(["a", (0, 1), 1, "1", "a"])
    ['a', '(0, 1)', '1 (int)', '1', 'a 2']
    """
    labels = list(labels)
    taken = {label for label in labels if isinstance(label, str)}
    names, seen = [], set()
    for label in labels:
        name = str(label)
        if not isinstance(label, str) and name in taken:
            name = f"{name} ({type(label).__name__})"
        if not isinstance(label, str) or name in seen:
            count, plain = 2, name
            while name in taken:
                name, count = f"{plain} {count}", count + 1
            taken.add(name)
        seen.add(name)
        names.append(name)
    return names
