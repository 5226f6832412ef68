"""A user's function of the state as an observable: compiled here, never written to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import kernel
from minigibbs.observables.base import Measure, Observable
from minigibbs.system.boundary import checked

_MOST = 4096  # numbers that a function may give


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class Own(Observable):
    """A function of the state, `x[i]` being the number of variable i's value.

    It is compiled by Numba. It gives a number, a tuple of numbers, or, on the CPU, an array.
    """

    name = "own"
    function: Callable[..., Any] | None = None  # None: it comes from a file, and is not known
    width: int = 0  # as the file said, where the function is not known

    def bind(self, graph: FactorGraph) -> Measure:
        """Compile it, and try it on one state."""
        if self.function is None:
            labels = tuple(str(k) for k in range(self.width)) if self.width > 1 else ("",)
            return Measure(labels, _unknown)
        known: dict[Any, Measure] = vars(self).setdefault("_bound", {})
        key = (str(graph.state_type), len(graph))
        if key not in known:
            known[key] = _compiled(self.function, graph)
        return known[key]

    def __getstate__(self) -> dict[str, Any]:
        """For workers: functions travel in memory, those of notebooks and lambdas included."""
        return {"function": numba.cloudpickle.dumps(self.function), "width": self.width}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "function", numba.cloudpickle.loads(state["function"]))
        object.__setattr__(self, "width", state["width"])


def as_observable(given: Any) -> Observable:
    """An observable as it is, or a function as one."""
    if isinstance(given, Observable):
        return given
    if not callable(given):
        raise SampleError(f"expected an observable or a function of the state, got {given!r}")
    return Own(given)


def _unknown(states: NDArray[Any], out: NDArray[np.float64]) -> None:
    raise SampleError("the function behind this observable is not known here")


def _compiled(function: Callable[..., Any], graph: FactorGraph) -> Measure:
    called = getattr(function, "__name__", repr(function))
    plain = getattr(function, "py_func", function)  # of one that is compiled already
    state = types.Array(numba.from_dtype(graph.state_type), 1, "C")
    try:
        user: Any = numba.njit(nogil=True, error_model="numpy")(plain)
        if hasattr(user, "compile"):
            user.compile((state,))
            given = user.overloads[(state,)].signature.return_type
        else:  # Numba is told to compile nothing
            given = numba.typeof(user(_some_state(graph)))
    except (NumbaError, TypeError) as error:
        reason = " ".join(str(error).split())[:400]
        raise SampleError(
            f"observe: {called} cannot be compiled; it must be a function of one state that Numba "
            f"takes, such as `def m(x): return (x == 1).mean()`. Numba says: {reason}"
        ) from None
    return _measure(user, given, called, graph)


def _measure(user: Any, given: Any, called: str, graph: FactorGraph) -> Measure:
    """The measure of a compiled function that gives a value of a known type."""
    if isinstance(given, types.Number | types.Boolean):
        return Measure(("",), _numbers(user), _number_of(user))
    several = isinstance(given, types.BaseTuple) and all(
        isinstance(one, types.Number | types.Boolean)
        for one in given  # type: ignore[attr-defined]
    )
    if several and len(given):
        width = len(given)
        alike = isinstance(given, types.UniTuple)
        function = _tuple_of(user) if alike else _mixed_of(user, width)
    elif isinstance(given, types.Array) and given.ndim == 1:
        width, function = len(user(_some_state(graph))), None
    else:
        raise SampleError(
            f"observe: {called} must give a number, a tuple of numbers or an array of one axis; "
            f"got {given}"
        )
    if not 1 <= width <= _MOST:
        raise SampleError(f"observe: {called} must give 1 to {_MOST} numbers, got {width}")
    labels = tuple(map(str, range(width)))
    mixed = not isinstance(given, types.UniTuple | types.Array)
    evaluate = _mixed(user, width) if mixed else _vectors(user, width, called)
    return Measure(labels, evaluate, function)


def _some_state(graph: FactorGraph) -> NDArray[Any]:
    return np.where(graph.evidence >= 0, graph.evidence, 0).astype(graph.state_type)


def _numbers(user: Any) -> Any:
    @numba.njit(nogil=True)
    def numbers(states, out):  # type: ignore[no-untyped-def]
        for k in range(len(states)):
            out[k, 0] = user(states[k])

    return numbers


def _vectors(user: Any, width: int, called: str) -> Any:
    @numba.njit(nogil=True)
    def vectors(states, out):  # type: ignore[no-untyped-def]
        for k in range(len(states)):
            values = user(states[k])
            if len(values) != width:
                return k
            for place in range(width):
                out[k, place] = values[place]
        return -1

    def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
        if vectors(states, out) >= 0:
            raise SampleError(f"observe: {called} must give {width} numbers for every state")

    return evaluate


def _mixed(user: Any, width: int) -> Any:
    spread = _spread(width)

    @numba.njit(nogil=True)
    def mixed(states, out):  # type: ignore[no-untyped-def]
        for k in range(len(states)):
            spread(user(states[k]), out[k])

    return mixed


def _spread(width: int) -> Any:
    """A function that writes a tuple of several types to an array, place by place.

    Compiled code must know each place of such a tuple beforehand, so that it has no loop.
    """
    lines = [f"    out[{place}] = values[{place}]" for place in range(width)]
    made: dict[str, Any] = {}
    exec("def spread(values, out):\n" + "\n".join(lines), made)
    return kernel(made["spread"])


def _number_of(user: Any) -> Any:
    @kernel
    def number(x, parameters, out):  # type: ignore[no-untyped-def]
        out[0] = user(x)

    return number


def _tuple_of(user: Any) -> Any:
    @kernel
    def several(x, parameters, out):  # type: ignore[no-untyped-def]
        values = user(x)
        for place in range(len(out)):
            out[place] = values[place]

    return several


def _mixed_of(user: Any, width: int) -> Any:
    spread = _spread(width)

    @kernel
    def several(x, parameters, out):  # type: ignore[no-untyped-def]
        spread(user(x), out)

    return several
