"""Optional libraries, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

from minigibbs.errors import MissingDependencyError


def optional(module: str, extra: str) -> Any:
    """Import an optional library, or raise an error with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingDependencyError(
            f'{module} is not installed: pip install "minigibbs[{extra}]"'
        ) from None
