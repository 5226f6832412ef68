"""Compiled updates and sweeps of samplers, chosen by the type of their prepared data.

`samplers.base` describes the two functions of a sampler. Compiled loops call them through `update`,
`sweep`, `begin` and `begin_sweeps` below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from minigibbs.kernels.jit import chosen_by_type


class _Compiled(NamedTuple):
    update: Any
    begin: Any


_COMPILED: dict[type, _Compiled] = {}
_SWEEPS: dict[type, _Compiled] = {}


def register(data: type, update: Any, begin: Any = None) -> None:
    """Associate a sampler's compiled functions with the type of its data.

    `begin(data, model, chain)` initializes what the sampler keeps between updates, if anything.
    """
    _COMPILED[data] = _Compiled(update, begin)


def register_sweep(data: type, sweep: Any, begin: Any) -> None:
    """Associate the compiled functions of a sweeping sampler with the type of its data.

    `begin(data, model, chain, replicas)` initializes the chain's arrays from its first state.
    """
    _SWEEPS[data] = _Compiled(sweep, begin)


def compiled_for(kind: type) -> _Compiled:
    """Return the compiled functions for a type of prepared data."""
    return _COMPILED[kind]


def carries(data: Any) -> bool:
    """Return whether the sampler has arrays that must be initialized before its first update."""
    return compiled_for(type(data)).begin is not None


def update(data: Any, model: Any, chain: Any, i: int) -> int:
    """Draw a new value for variable `i`; compiled code only."""
    return compiled_for(type(data)).update(data, model, chain, i)  # type: ignore[no-any-return]


def begin(data: Any, model: Any, chain: Any) -> None:
    """Initialize what the sampler keeps between updates, for a new state; compiled code only."""
    compiled_for(type(data)).begin(data, model, chain)


def sweep(data: Any, model: Any, chain: Any, replicas: Any) -> None:
    """Update all variables; compiled code only."""
    _SWEEPS[type(data)].update(data, model, chain, replicas)


def begin_sweeps(data: Any, model: Any, chain: Any, replicas: Any) -> None:
    """Initialize the arrays of a sweeping sampler, for a new state; compiled code only."""
    _SWEEPS[type(data)].begin(data, model, chain, replicas)


# Numba requires exactly these signatures without annotations. It compiles the source of the
# returned function in place of this one; a wrapper that calls it would be one more function to
# compile.
@chosen_by_type(update)
def _update_for_type(data, model, chain, i):  # type: ignore[no-untyped-def]
    return _COMPILED[data.instance_class].update.py_func


@chosen_by_type(begin)
def _begin_for_type(data, model, chain):  # type: ignore[no-untyped-def]
    return _COMPILED[data.instance_class].begin.py_func


@chosen_by_type(sweep)
def _sweep_for_type(data, model, chain, replicas):  # type: ignore[no-untyped-def]
    return _SWEEPS[data.instance_class].update.py_func


@chosen_by_type(begin_sweeps)
def _begin_sweeps_for_type(data, model, chain, replicas):  # type: ignore[no-untyped-def]
    return _SWEEPS[data.instance_class].begin.py_func
