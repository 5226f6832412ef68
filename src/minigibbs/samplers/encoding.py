"""Samplers as plain data, for files: names and settings, never code."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from minigibbs.errors import SampleError
from minigibbs.samplers import (
    SAMPLERS,
    Estimator,
    ExactEstimator,
    PoissonEstimator,
    PoissonGibbs,
    Sampler,
    SubsetEstimator,
)

ESTIMATORS: dict[str, type[Estimator]] = {
    estimator.__name__: estimator
    for estimator in (PoissonEstimator, SubsetEstimator, ExactEstimator)
}


def describe_sampler(sampler: Sampler) -> dict[str, Any]:
    """Return a sampler's name and settings, for JSON."""
    if SAMPLERS.get(sampler.name) is not type(sampler):
        raise SampleError(
            f"{type(sampler).__name__} cannot be described in a file: a checkpoint takes the "
            f"library's own samplers only ({', '.join(SAMPLERS)})"
        )
    return {"name": sampler.name, **_settings(sampler)}


def _settings(thing: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(thing, field.name)) for field in fields(thing)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Sampler):
        return describe_sampler(value)
    if isinstance(value, Estimator) and ESTIMATORS.get(name) is type(value):
        return {"estimator": name, **_settings(value)}
    raise SampleError(
        f"{name} cannot be described in a file, since it may hold code: a checkpoint takes the "
        f"library's own estimators only ({', '.join(ESTIMATORS)})"
    )


def sampler_call(sampler: Sampler) -> str:
    """Return the Python expression that creates a sampler, with settings other than defaults.

    >>> import minigibbs as mg
    >>> sampler_call(mg.Tempering(mg.Gibbs(), levels=(0, 0.5, 1)))
    'mg.Tempering(sampler=mg.Gibbs(), levels=(0.0, 0.5, 1.0))'
    """
    return _expression(sampler)


def _expression(value: Any) -> str:
    if isinstance(value, np.generic):
        return repr(value.item())
    if not isinstance(value, Sampler) and ESTIMATORS.get(type(value).__name__) is not type(value):
        return repr(value)  # user-defined estimators contain code
    given = [
        f"{field.name}={_expression(getattr(value, field.name))}"
        for field in fields(value)  # type: ignore[arg-type]
        if getattr(value, field.name) != field.default
    ]
    return f"mg.{type(value).__name__}({', '.join(given)})"


def sampler_from(described: dict[str, Any]) -> Sampler:
    """Create the sampler that `describe_sampler` described; unknown names are an error."""
    settings = dict(described)
    name = settings.pop("name")
    if name not in SAMPLERS:
        raise SampleError(f"sampler: expected one of {', '.join(SAMPLERS)}, got {name!r}")
    if name == PoissonGibbs.name:
        settings.pop("tune", None)  # files of 0.2 have it; it is always false
    return SAMPLERS[name](**{key: _setting(value) for key, value in settings.items()})


def _setting(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if "name" in value:
        return sampler_from(value)
    inner = dict(value)
    return ESTIMATORS[inner.pop("estimator")](**inner)
