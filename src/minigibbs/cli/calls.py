"""Function calls as text on the command line: `potts-rbf:side=20,states=10`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from minigibbs.errors import SampleError

T = TypeVar("T")
_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": {"true": True, "false": False}.__getitem__,
    "str": str,
}


def call(text: str, known: dict[str, Callable[..., T]], what: str) -> T:
    """Call a known function by name with the arguments that follow it, if any.

    >>> def pair(a: int, b: bool = False) -> tuple[int, bool]:
    ...     return a, b
    >>> call("pair:a=2,b=true", {"pair": pair}, "call")
    (2, True)
    """
    name, _, arguments = text.partition(":")
    if name not in known:
        raise SampleError(f"no such {what}: {name!r} is none of {', '.join(known)}")
    parameters = inspect.signature(known[name]).parameters
    kinds = {key: str(p.annotation).removesuffix(" | None") for key, p in parameters.items()}
    kinds = {key: kind for key, kind in kinds.items() if kind in _READERS}
    values: dict[str, Any] = {}
    for part in filter(None, arguments.split(",")):
        key, equals, value = part.partition("=")
        if key not in kinds or not equals:
            takes = ", ".join(f"{key}=..." for key in kinds) or "no arguments"
            raise SampleError(f"{name} takes {takes}; got {part!r}")
        values[key] = read_value(name, key, value, kinds[key])
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in values]
    if missing:
        raise SampleError(f"{name} needs {', '.join(missing)}: {name}:{missing[0]}=...")
    return known[name](**values)


def read_value(name: str, key: str, text: str, kind: str) -> Any:
    """Read one value; the error names the expected type."""
    try:
        return _READERS[kind](text.lower())
    except (ValueError, KeyError):
        raise SampleError(f"{name}: {key} must be of type {kind}, got {text!r}") from None
