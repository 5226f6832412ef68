"""Conversions of models of other libraries: one module per library, imported when it is used."""

from __future__ import annotations

import importlib
from typing import Any

LIBRARIES = ("dimod", "frames", "matrices", "networkx", "pgmpy", "pyagrum")


def __getattr__(name: str) -> Any:
    if name not in LIBRARIES:
        raise AttributeError(f"module 'minigibbs.interop' has no attribute {name!r}")
    return importlib.import_module(f"minigibbs.interop.{name}")


def __dir__() -> list[str]:
    return list(LIBRARIES)
