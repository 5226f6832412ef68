"""User functions of the state as observables: compiled here, never written to a file.

The function gets the state as signed 64-bit integers, in Python and in compiled code, so that
differences of values do not wrap. It is first tried in Python on states of the graph, because
Python's error messages are clearest. On the CPU it is compiled with bounds checks, because an index
may depend on the state. Numba has no bounds checks for CUDA, where only the trial detects indices
out of range.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from minigibbs.errors import SampleError, StoppedError
from minigibbs.exact.support import Support
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import kernel
from minigibbs.observables.base import Measure, Observable
from minigibbs.system.boundary import checked
from minigibbs.system.text import printable, without_colors

_MOST = 4096  # most numbers that a function may return
_TRIALS = 6  # states that a function is tried on in Python
_TRIAL_SECONDS = 1.0  # no further trial begins after this time
_MOST_KNOWN = 64  # most compiled functions in the cache
_PLAIN = (bool, int, float, complex, str, type(None))  # values that Numba compiles as constants
_KNOWN: dict[Hashable, tuple[Any, Any]] = {}
_HINT = "such as `def m(x): return (x == 1).mean()`"


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class Own(Observable):
    """User function of the state; `x[i]` is the index of variable i's value, a signed integer.

    Numba compiles the function. `observe={"name": function}` makes an `Own` automatically.

    Parameters
    ----------
    function : callable, optional
        A function of the state that returns a number, a tuple of numbers, or, on the CPU, an array.
    width : int, default 0
        Number of numbers; 0 to find it by a trial.
    called : str, default ""
        Name of the function in errors.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.observables.Own(lambda x: x.mean()).name
    'own'
    """

    name = "own"
    function: Callable[..., Any] | None = None  # None: decoded from a file, without its code
    width: int = 0  # as stored in the file, if the function is None
    called: str = ""  # name in error messages; by default the function's name

    def bind(self, graph: FactorGraph) -> Measure:
        """Try the function on states of the graph, and compile it."""
        if self.function is None:
            labels = tuple(str(k) for k in range(self.width)) if self.width > 1 else ("",)
            return Measure(labels, _unknown)
        known: dict[Any, Measure] = vars(self).setdefault("_bound", {})
        key = (str(graph.state_type), len(graph), int(graph.sizes.max()))
        if key not in known:
            called = self.called or getattr(self.function, "__name__", repr(self.function))
            known[key] = _compiled(self.function, printable(called), graph)
        return known[key]

    def __getstate__(self) -> dict[str, Any]:
        """Serialize for workers, including functions of notebooks and lambdas."""
        function = numba.cloudpickle.dumps(self.function)
        return {"function": function, "width": self.width, "called": self.called}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            value = numba.cloudpickle.loads(value) if name == "function" else value
            object.__setattr__(self, name, value)


def as_observable(given: Any) -> Observable:
    """Return an observable unchanged, or a function as an observable."""
    if isinstance(given, Observable):
        return given
    if not callable(given):
        raise SampleError(f"expected an observable or a function of the state, got {given!r}")
    return Own(given)


def _unknown(states: NDArray[Any], out: NDArray[np.float64]) -> None:
    raise SampleError("the function behind this observable is not known here")


class ObservableError(StoppedError):
    """A user's function failed during a run; `run` has the results so far.

    That run has no observables, because records are missing in all of them.
    """


def _compiled(function: Callable[..., Any], called: str, graph: FactorGraph) -> Measure:
    plain = getattr(function, "py_func", function)  # if it is compiled already
    if not isinstance(plain, FunctionType):  # such as np.mean, which Numba knows inside a function
        plain = _calling(plain)
    _refuse_flat(plain, called)
    _try(plain, called, _trial_states(graph))
    some = next(_trial_states(graph))
    state = types.Array(types.int64, 1, "C")
    user, on_gpu = _dispatchers(plain)
    try:
        if hasattr(user, "compile"):
            user.compile((state,))
            given = user.overloads[(state,)].signature.return_type
        else:  # Numba is configured not to compile
            given = numba.typeof(user(some.copy()))
    except (NumbaError, TypeError) as error:
        reason = " ".join(without_colors(str(error)).split())[:400]
        raise SampleError(
            f"observe: {called} cannot be compiled; it must be a function of one state that Numba "
            f"takes, {_HINT}. Numba says: {printable(reason)}"
        ) from None
    measure = _measure(user, given, called, some)
    evaluate = _reporting(measure.evaluate, plain, called)
    return Measure(measure.labels, evaluate, _on_gpu(on_gpu, given, graph))


def _dispatchers(plain: FunctionType) -> tuple[Any, Any]:
    """Return the function compiled for the CPU and for CUDA kernels, once for equal functions.

    A rewritten lambda or a repeated notebook cell makes an equal function. Numba compiles the
    values of global names and closures as constants, so these must be equal, too.
    """
    key = _meaning(plain)
    if key in _KNOWN:
        return _KNOWN[key]
    options: Any = {"nogil": True, "error_model": "numpy", "boundscheck": True}
    made = numba.njit(**options)(plain), numba.njit(**options)(plain)
    if key is not None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)), None)
        _KNOWN[key] = made
    return made


def _meaning(plain: FunctionType) -> Hashable:
    """Return everything that the compiled code depends on; None if it uses non-constants."""
    closure = inspect.getclosurevars(plain)
    values = {**closure.nonlocals, **closure.globals}
    nested = any(isinstance(one, CodeType) for one in plain.__code__.co_consts)
    if nested or not all(type(one) in _PLAIN or one in (np, math) for one in values.values()):
        return None
    named = sorted((name, type(one).__name__, repr(one)) for name, one in values.items())
    return plain.__code__, repr(plain.__defaults__), tuple(named)


def _refuse_flat(plain: FunctionType, called: str) -> None:
    """Raise an error for `x.flat`, the only access that Numba compiles without bounds checks."""
    if "flat" in plain.__code__.co_names:
        raise SampleError(
            f"observe: {called} uses `.flat`, which compiled code does not check for indices "
            "out of range; use x[i]"
        )


def _calling(function: Any) -> Any:
    """Return a Python function that calls another callable."""

    def call(x):  # type: ignore[no-untyped-def]
        return function(x)

    return call


def _trial_states(graph: FactorGraph) -> Iterator[NDArray[np.int64]]:
    """Generate states that match evidence and constraints: lowest, highest and random values."""
    rng, clamped = np.random.default_rng(0), graph.evidence >= 0
    support = Support(graph) if len(graph.hard) else None
    for number in range(_TRIALS):
        extremes = [0.0, np.nextafter(1.0, 0.0)][number : number + 1]
        marks = np.full(len(graph), extremes[0]) if extremes else rng.random(len(graph))
        state = (marks * graph.sizes).astype(np.int64)
        if support is not None:
            support.fill(state[None], marks[None])
        state[clamped] = graph.evidence[clamped]
        yield state


def _try(plain: Callable[..., Any], called: str, states: Iterable[NDArray[np.int64]]) -> None:
    """Raise `SampleError` if a function fails in Python.

    Divisions by zero pass, because compiled code returns infinity. Functions that only compiled
    code can call pass, too. States are read-only: on a GPU, writes would change the chain's state.
    """
    begun = time.monotonic()
    for state in states:
        state.flags.writeable = False
        with np.errstate(all="ignore"):
            try:
                plain(state)
            except (ZeroDivisionError, NotImplementedError):
                pass
            except Exception as error:
                raise _failure(called, error, len(state)) from error
        if time.monotonic() - begun > _TRIAL_SECONDS:
            return


def _failure(called: str, error: Exception, variables: int) -> SampleError:
    reason = printable(f"{type(error).__name__}: {error}"[:400])
    hint = f"it gets one state, an array of integers, {_HINT}"
    if isinstance(error, IndexError):
        hint = f"the graph has {variables} variables, x[0] to x[{variables - 1}]"
    return SampleError(f"observe: {called} fails on a state of this graph ({reason}); {hint}")


def _reporting(evaluate: Any, plain: Callable[..., Any], called: str) -> Any:
    """Wrap `evaluate` to raise our errors; Python reports which index was out of range."""

    def reporting(states: NDArray[Any], out: NDArray[np.float64]) -> None:
        try:
            try:
                evaluate(states, out)
            except SampleError:
                raise
            except Exception as error:
                _try(plain, called, (state.astype(np.int64) for state in states))
                raise _failure(called, error, states.shape[1]) from error
        except SampleError as error:
            raise ObservableError(str(error)) from error

    return reporting


def _measure(user: Any, given: Any, called: str, state: NDArray[np.int64]) -> Measure:
    """Return the measure of a compiled function with a known return type, tried on `state`."""
    if isinstance(given, types.Number | types.Boolean):
        return Measure(("",), _numbers(user))
    if _several(given):
        width = len(given)
    elif isinstance(given, types.Array) and given.ndim == 1:
        width = len(user(state.copy()))
    else:
        raise SampleError(
            f"observe: {called} must give a number, a tuple of numbers or an array of one axis; "
            f"got {given}"
        )
    if not 1 <= width <= _MOST:
        raise SampleError(f"observe: {called} must give 1 to {_MOST} numbers, got {width}")
    mixed = not isinstance(given, types.UniTuple | types.Array)
    evaluate = _mixed(user, width) if mixed else _vectors(user, width, called)
    return Measure(tuple(map(str, range(width))), evaluate)


def _several(given: Any) -> bool:
    """Return whether a type is a tuple of numbers."""
    if not isinstance(given, types.BaseTuple):
        return False
    kinds: Any = given
    return all(isinstance(one, types.Number | types.Boolean) for one in kinds)


def _on_gpu(user: Any, given: Any, graph: FactorGraph) -> Any:
    """Return the function for CUDA kernels, without bounds checks; None if it cannot run there.

    Kernels pass the state as signed integers of the same width, so all values must fit.
    """
    if graph.sizes.max() - 1 > np.iinfo(f"i{graph.state_type.itemsize}").max:
        return None
    if isinstance(given, types.Number | types.Boolean):
        return _number_of(user)
    if isinstance(given, types.UniTuple):
        return _tuple_of(user)
    return _mixed_of(user, len(given)) if _several(given) else None


@lru_cache(maxsize=_MOST_KNOWN)
def _numbers(user: Any) -> Any:
    @numba.njit(nogil=True)
    def numbers(states, out):  # type: ignore[no-untyped-def]
        x = np.empty(states.shape[1], np.int64)
        for k in range(len(states)):
            x[:] = states[k]
            out[k, 0] = user(x)

    return numbers


@lru_cache(maxsize=_MOST_KNOWN)
def _rows(user: Any, width: int) -> Any:
    @numba.njit(nogil=True)
    def vectors(states, out):  # type: ignore[no-untyped-def]
        x = np.empty(states.shape[1], np.int64)
        for k in range(len(states)):
            x[:] = states[k]
            values = user(x)
            if len(values) != width:
                return k
            for place in range(width):
                out[k, place] = values[place]
        return -1

    return vectors


def _vectors(user: Any, width: int, called: str) -> Any:
    vectors = _rows(user, width)

    def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
        if vectors(states, out) >= 0:
            raise SampleError(f"observe: {called} must give {width} numbers for every state")

    return evaluate


@lru_cache(maxsize=_MOST_KNOWN)
def _mixed(user: Any, width: int) -> Any:
    spread = _spread(width)

    @numba.njit(nogil=True)
    def mixed(states, out):  # type: ignore[no-untyped-def]
        x = np.empty(states.shape[1], np.int64)
        for k in range(len(states)):
            x[:] = states[k]
            spread(user(x), out[k])

    return mixed


def _spread(width: int) -> Any:
    """Return a function that copies a tuple of several types to an array, without a loop.

    Compiled code must know each index into such a tuple at compile time.
    """
    lines = [f"    out[{place}] = values[{place}]" for place in range(width)]
    made: dict[str, Any] = {}
    exec("def spread(values, out):\n" + "\n".join(lines), made)
    return kernel(made["spread"])


@lru_cache(maxsize=_MOST_KNOWN)
def _number_of(user: Any) -> Any:
    @kernel
    def number(x, parameters, out):  # type: ignore[no-untyped-def]
        out[0] = user(x)

    return number


@lru_cache(maxsize=_MOST_KNOWN)
def _tuple_of(user: Any) -> Any:
    @kernel
    def several(x, parameters, out):  # type: ignore[no-untyped-def]
        values = user(x)
        for place in range(len(out)):
            out[place] = values[place]

    return several


@lru_cache(maxsize=_MOST_KNOWN)
def _mixed_of(user: Any, width: int) -> Any:
    spread = _spread(width)

    @kernel
    def several(x, parameters, out):  # type: ignore[no-untyped-def]
        spread(user(x), out)

    return several
