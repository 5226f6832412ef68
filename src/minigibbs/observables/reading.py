"""Reading of `observe=`, and encoding of observables for files, without code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.observables import OBSERVABLES, Observable, Own

# A mapping from names to observables, functions or kinds; or one or several of these.
Observe = Mapping[Any, Any] | Iterable[Any] | Observable | Callable[..., Any] | str | None
_RESERVED = ("x", "indicator")  # names that ArviZ uses in its posterior

_STORED = {"energy": "energy-2"}  # names in files of observables whose meaning has changed


def read_observe(given: Any) -> dict[str, Observable]:
    """Read observables by name, from a mapping, names of ready-made ones, or observables alone."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        single = isinstance(given, str | Observable) or not isinstance(given, Iterable)
        pairs = [(_own_name(one), one) for one in ([given] if single else given)]
    read: dict[str, Observable] = {}
    for name, one in pairs:
        if not isinstance(name, str) or not name or name in _RESERVED or not name.isprintable():
            raise SampleError(
                f"observe: an observable needs a name, such as 'm', but not one of "
                f"{', '.join(_RESERVED)}; got {name!r}"
            )
        if name in read:
            raise SampleError(f"observe: two observables are called {name!r}; give a mapping")
        read[name] = _read_one(name, one)
    return read


def _own_name(one: Any) -> Any:
    """Return the default name of an observable that was given without a name."""
    if isinstance(one, Observable):
        return one.name
    return one if isinstance(one, str) else getattr(one, "__name__", one)


def _read_one(name: str, one: Any) -> Observable:
    if isinstance(one, Observable):
        return one
    if isinstance(one, type) and issubclass(one, Observable):
        return one()
    if isinstance(one, str):
        if one in OBSERVABLES:
            return OBSERVABLES[one]()
        known = ", ".join(OBSERVABLES)
        raise SampleError(f"observe: {one!r} is not one of the ready-made observables: {known}")
    if callable(one):
        return Own(one, called=repr(name))
    raise SampleError(
        f"observe: {name} must be a function of the state, an observable such as "
        f"mg.observables.Magnetization(), or its name; got {one!r}"
    )


def encode(one: Observable, width: int, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Encode an observable for JSON; arrays are added to `arrays` under unique names.

    For a user's function only its width is stored; to continue, the function must be given again.
    """
    if isinstance(one, Own):
        return {"name": one.name, "width": width}
    if OBSERVABLES.get(one.name) is not type(one):
        raise SampleError(
            f"{type(one).__name__} cannot be described in a file: a checkpoint takes functions and "
            f"the library's own observables ({', '.join(OBSERVABLES)})"
        )
    settings = {
        field.name: _plain(getattr(one, field.name), arrays)
        for field in fields(one)  # type: ignore[arg-type]
    }
    return {"name": _STORED.get(one.name, one.name), **settings}


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Observable):
        if isinstance(value, Own):
            return {"name": value.name, "width": 1}
        return encode(value, 1, arrays)
    if isinstance(value, list | np.ndarray):
        key = f"observe.{len(arrays)}"
        arrays[key] = np.asarray(value)
        return {"array": key}
    return [_plain(part, arrays) for part in value] if isinstance(value, tuple) else value


def decode(described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Observable:
    """Decode the result of `encode`; raise `ValueError` for an impossible observable."""
    settings = dict(described)
    name = settings.pop("name")
    if name == Own.name:
        width = settings["width"]
        if type(width) is not int or width < 1:
            raise ValueError(f"observe: expected how many numbers a function gives, got {width!r}")
        return Own(None, width)
    if name in _STORED:
        raise ValueError(f"observe: {name!r} has had the opposite sign since 0.3; sample again")
    name = {stored: known for known, stored in _STORED.items()}.get(name, name)
    if name not in OBSERVABLES:
        raise ValueError(f"unknown observable {name!r}")
    known = {field.name for field in fields(OBSERVABLES[name])}  # type: ignore[arg-type]
    if set(settings) != known:
        raise ValueError(f"{name}: expected settings {sorted(known)}, got {sorted(settings)}")
    try:
        return OBSERVABLES[name](**{key: _setting(v, arrays) for key, v in settings.items()})
    except SampleError as error:
        raise ValueError(str(error)) from error


def _setting(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return tuple(_setting(part, arrays) for part in value)
    if not isinstance(value, dict):
        return value
    return arrays[value["array"]] if "array" in value else decode(value, arrays)


def unknown(one: Observable) -> bool:
    """Return whether an observable contains a user function without its code."""
    if isinstance(one, Own):
        return one.function is None
    inner = getattr(one, "of", None)
    return isinstance(inner, Observable) and unknown(inner)
