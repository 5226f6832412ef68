"""Durations as numbers of seconds or texts such as "5min"."""

from __future__ import annotations

import math
import re

from minigibbs.errors import SampleError

_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(duration: str | float, name: str) -> float:
    """Read a duration: a number of seconds, or a text such as "30s", "5min" or "1h".

    >>> seconds("5min", "every")
    300.0
    """
    if isinstance(duration, str):
        found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?\d+)?)\s*(ms|s|min|h|d|)\s*", duration)
        try:
            value = float(found[1]) * _UNITS[found[2]] if found else math.nan
        except ValueError:  # such as 1.2.3
            value = math.nan
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        value = float(duration)
    else:
        value = math.nan
    if not value >= 0:
        raise SampleError(
            f'{name} must be seconds, or a text such as "30s", "5min" or "1h"; got {duration!r}'
        )
    return value
