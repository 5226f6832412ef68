"""Check of arguments at the public boundary, by their annotations.

`checked` wraps a public function, or the constructor and public methods of a public class. Before
each call it compares the arguments with their annotations. A mismatch raises an error of this
package that names the argument, the expected type and the received value. Annotations are resolved
at the first call. Classes that a module imports only for type checkers are recognized by their
name, so a check imports nothing.
"""

from __future__ import annotations

import builtins
import difflib
import inspect
import math
import os
import reprlib
import sys
import types
import typing
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from functools import update_wrapper
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minigibbs.errors import MinigibbsError, SampleError, TooLargeError
from minigibbs.system.arrays import is_foreign, to_numpy
from minigibbs.system.text import printable

T = TypeVar("T")
# Tuples, because `a | b` would build a type at every call.
_INTEGERS = (int, np.integer)
_BOOLEANS = (bool, np.bool_)
_ARRAYS = (np.ndarray, np.generic, str, list, tuple)
_SERIES = (list, tuple, np.ndarray, Sequence, KeysView, ValuesView)  # ordered containers
_UNORDERED = (str, bytes, bytearray, Mapping)
_BRIEF = (int, float, str, bytes, list, tuple, dict, set, np.generic)  # with a short repr
_NO_THREAD = "can't start new thread"  # Python's text if the system has no memory for its stack
_REMEDIES = {
    "FactorGraph": "build one with mg.FactorGraph, mg.models or mg.read",
    "Run": "mg.sample and mg.sample_until return one",
    "Sampler": "create one, such as mg.Gibbs()",
    "Estimator": "create one, such as mg.PoissonEstimator(batch=10.0)",
    "Observable": "create one, such as mg.observables.Energy()",
    "Factors": "create a group, such as mg.Potts([0], [1], 0.5)",
    "Grid": "create one, such as mg.Grid(0.0, 1.0, 11)",
    "Rule": "create one with mg.Rule",
    "Enumeration": "create one with mg.theory.Enumeration(graph)",
}


class Expected(NamedTuple):
    """Condition of an annotation: a test, and its description in the singular and the plural."""

    accepts: Callable[[Any], bool]
    one: str
    many: str
    remedy: str = ""
    inside: Callable[[Any], bool] | None = None  # test of each element of a list
    listed: bool = False  # whether an iterator is read into a list, whose elements are tested


ANYTHING = Expected(lambda value: True, "anything", "values")


class ArrayLike:
    """Placeholder for `numpy.typing.ArrayLike`, a union that would merge into other unions."""


class NDArray:
    """Placeholder for `numpy.typing.NDArray` of any type."""

    def __class_getitem__(cls, item: Any) -> type:
        return NDArray if item is Any else Numbers


class Numbers:
    """Placeholder for an `NDArray` of numbers."""


def checked(error: type[MinigibbsError], *, init: bool = True) -> Callable[[T], T]:
    """Check the arguments of a public function or class; raise `error` for a wrong type.

    Parameters
    ----------
    error
        Class of the error, which the callee uses for wrong values.
    init
        Whether the constructor of a class is checked. Only the library constructs results.

    Examples
    --------
    >>> from minigibbs.errors import SampleError
    >>> @checked(SampleError)
    ... def wait(seconds: float, quiet: bool = False) -> None: ...
    >>> wait("long")
    Traceback (most recent call last):
    minigibbs.errors.SampleError: wait: seconds must be a number, got 'long' (str)
    """

    def decorate(public: T) -> T:
        if not inspect.isclass(public):
            return typing.cast(T, _wrapped(public, error, public.__name__))  # type: ignore[attr-defined]
        for name, member in list(vars(public).items()):
            if name.startswith("_") and not (init and name == "__init__"):
                continue
            title = public.__name__ if name == "__init__" else f"{public.__name__}.{name}"
            if isinstance(member, classmethod | staticmethod):
                setattr(public, name, type(member)(_wrapped(member.__func__, error, title)))
            elif isinstance(member, types.FunctionType):
                setattr(public, name, _wrapped(member, error, title))
        return public

    return decorate


def check_level(level: float) -> None:
    """Raise an error unless `level` is a probability between 0 and 1."""
    real = isinstance(level, Real) and not isinstance(level, bool)
    if not (real and 0 < level < 1):
        raise SampleError(f"level must be between 0 and 1, such as 0.95 for 95%, got {level!r}")


def _wrapped(function: Any, error: type[MinigibbsError], title: str) -> Any:
    """Wrap a function with a check; return it unchanged if no parameter has an annotation."""
    if not set(function.__annotations__) - {"return"}:
        return function
    check = Check(function, error, title)

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = check(args, kwargs)
        try:
            return function(*args, **kwargs)
        except (MemoryError, RuntimeError) as failure:
            exhausted = check.exhausted(failure)
            if exhausted is None:
                raise
            raise exhausted from failure

    # doctest finds only functions with the globals of their module.
    copy = types.FunctionType(
        call.__code__, function.__globals__, function.__name__, None, call.__closure__
    )
    return update_wrapper(copy, function)


class Check:
    """Check of one function's arguments."""

    def __init__(self, function: Any, error: type[MinigibbsError], title: str) -> None:
        self.function, self.error, self.title = function, error, title
        self.expected: dict[str, Expected] | None = None

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Raise an error for the first argument that does not match its annotation.

        Return the arguments. Arrays of other libraries are converted to NumPy's, NumPy numbers to
        Python's, and iterators to lists, unless any value is allowed.
        """
        expected = self.expected
        if expected is None:
            expected = self._read()
        if any(_is_converted(type(value)) for value in args) or any(
            _is_converted(type(value)) for value in kwargs.values()
        ):
            args, kwargs = self._own(args, kwargs)
        for name, value in zip(self.names, args, strict=False):
            if name in expected and not _accepts(expected[name], value):
                self._refuse(name, value)
        for value in args[len(self.names) :]:
            if not self.rest.accepts(value):
                self._refuse(self.rest_name, value)
        for name, value in kwargs.items():
            if name not in self.known and not self.open:
                raise TypeError(self._unknown(name))
            if not _accepts(expected.get(name, self.options), value):
                self._refuse(name, value)
        return args, kwargs

    def exhausted(self, failure: Exception) -> TooLargeError | None:
        """Return our error for memory that ran out during the call; None for other failures."""
        if isinstance(failure, MinigibbsError):
            return None
        if not isinstance(failure, MemoryError) and _NO_THREAD not in str(failure):
            return None
        reason = f" ({failure})" if str(failure) else ""
        return TooLargeError(
            f"{self.title}: the memory of this process ran out{reason}; ask for less, raise its "
            "limit, or use a machine with more memory"
        )

    def _own(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with arrays of other libraries, numbers and iterators converted."""
        names = [*self.names, *[""] * len(args)]
        given = [self._converted(name, one) for name, one in zip(names, args, strict=False)]
        return tuple(given), {name: self._converted(name, one) for name, one in kwargs.items()}

    def _converted(self, name: str, value: Any) -> Any:
        if name not in (self.expected or {}):
            return value
        if _is_scalar(type(value)):
            return value.item()
        if isinstance(value, Iterator):
            return list(value) if self.expected[name].listed else value  # type: ignore[index]
        try:
            return to_numpy(value)
        except Exception as error:  # any exception of the other library
            kind = f"{type(value).__module__}.{type(value).__name__}"
            raise self.error(
                f"{self.title}: {name} must be an array that NumPy can read, got {kind}: {error}"
            ) from None

    def _read(self) -> dict[str, Expected]:
        """Resolve the annotations, once."""
        signature, known = inspect.signature(self.function), Names(self.function.__globals__)
        self.names: list[str] = []
        self.rest, self.rest_name, self.options = ANYTHING, "", ANYTHING
        self.known, self.open = frozenset(signature.parameters), False  # open: accepts any keyword
        found = {}
        for name, parameter in signature.parameters.items():
            one = ANYTHING
            if parameter.annotation is not parameter.empty:
                one = expect(known.resolve(parameter.annotation))
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.rest, self.rest_name = one, name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self.options, self.open = one, True
            else:
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    self.names.append(name)
                if one is not ANYTHING:
                    found[name] = _or_default(one, parameter.default)
        self.expected = found
        return found

    def _unknown(self, name: str) -> str:
        takes = [one for one in inspect.signature(self.function).parameters if one != "self"]
        close = difflib.get_close_matches(name, takes, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return f"{self.title} has no argument {name!r}{hint} It takes {', '.join(takes)}"

    def _refuse(self, name: str, value: Any) -> None:
        one = (self.expected or {}).get(name)
        if one is None:
            one = self.rest if name == self.rest_name else self.options
        remedy = one.remedy
        if one.inside is not None and one.inside(value):
            remedy = f"write [{shown(value, kind=False)}] for a list of one"
        if one.many == "mappings" and isinstance(value, list | tuple | np.ndarray):
            remedy = "write dict(enumerate(values)) for values in order"
        if _is_masked(value):
            remedy = "replace masked values with array.filled(value), or drop their rows"
        remedy = f"; {remedy}" if remedy else ""
        raise self.error(f"{self.title}: {name} must be {one.one}, got {_at(one, value)}{remedy}")


def _accepts(one: Expected, value: Any) -> bool:
    """Return whether a value matches; masked values are refused, except in data of any type."""
    return one.accepts(value) and (one is ANYTHING or not _is_masked(value))


def _is_masked(value: Any) -> bool:
    """Return whether an array has masked entries, of which NumPy would use the numbers behind."""
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def _is_scalar(kind: type) -> bool:
    """Return whether this is a NumPy number; 16-bit ones would reduce precision later."""
    return issubclass(kind, (np.floating, np.integer)) and not issubclass(kind, np.timedelta64)


def _is_converted(kind: type) -> bool:
    return is_foreign(kind) or _is_scalar(kind) or issubclass(kind, Iterator)


def _at(one: Expected, value: Any) -> str:
    """Describe the received value: for a list, the first wrong element and its position."""
    if one.inside is not None and _is_series(value):
        for position, element in enumerate(value):
            if not one.inside(element):
                return f"{shown(element)} at position {position}"
    return shown(value)


def _or_default(one: Expected, default: Any) -> Expected:
    """Also accept the default itself; omit "or None" if the default is None."""
    if default is inspect.Parameter.empty or one.accepts(default):
        shorter = one.one.removesuffix(" or None") if default is None else one.one
        return one._replace(one=shorter)
    return one._replace(accepts=lambda value: value is default or one.accepts(value))


class Names(dict[str, Any]):
    """Namespace of the names in a module's annotations."""

    def __init__(self, module: dict[str, Any]) -> None:
        super().__init__(ArrayLike=ArrayLike, NDArray=NDArray)
        self.module = module

    def __missing__(self, name: str) -> Any:
        for known in (self.module, vars(builtins), vars(typing)):
            if name in known:
                return known[name]
        return ByName(name, (), {})

    def resolve(self, annotation: Any) -> Any:
        """Evaluate an annotation to an object if it is text."""
        return eval(annotation, {}, self) if isinstance(annotation, str) else annotation


class ByName(type):
    """A class known by name only: instances are recognized by the names of their classes."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(instance).__mro__)


def expect(hint: Any) -> Expected:
    """Return the condition of an annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is types.NoneType:
        return Expected(lambda value: value is None, "None", "None")
    if origin is typing.Union or origin is types.UnionType:
        if any(typing.get_origin(one) is os.PathLike for one in arguments):  # which includes str
            arguments = tuple(one for one in arguments if one is not str)
        return _union([expect(one) for one in arguments])
    if origin is typing.Literal:
        texts = " or ".join(map(repr, arguments))
        return Expected(
            lambda value: isinstance(value, Hashable) and value in arguments, texts, texts
        )
    kind = origin or hint
    if kind in _SCALARS:
        return _SCALARS[kind]
    if not isinstance(kind, type) or (getattr(kind, "_is_protocol", False) and kind not in _GROUPS):
        return ANYTHING  # Any, type variables, protocols
    return _GROUPS[kind](arguments) if kind in _GROUPS else _class(kind)


def _class(kind: type) -> Expected:
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return Expected(
        lambda value: isinstance(value, kind),
        f"{article} {kind.__name__}",
        f"{kind.__name__} objects",
        _REMEDIES.get(kind.__name__, ""),
    )


def _union(parts: list[Expected]) -> Expected:
    if ANYTHING in parts:
        return ANYTHING
    parts.sort(key=lambda one: one.one == "None")  # comes last
    tests = [one.accepts for one in parts]

    return Expected(
        lambda value: any(test(value) for test in tests),
        " or ".join(dict.fromkeys(one.one for one in parts)),
        " or ".join(dict.fromkeys(one.many for one in parts)),
        next((one.remedy for one in parts if one.remedy), ""),
        next((one.inside for one in parts if one.inside), None),
        any(one.listed for one in parts),
    )


def _is_integer(value: Any) -> bool:
    """Return whether this is an integer: no truth value, no time span, nothing beyond a float."""
    if isinstance(value, (bool, np.timedelta64)):
        return False
    return isinstance(value, _INTEGERS) and bool(abs(int(value)) <= sys.float_info.max)


def _is_number(value: Any) -> bool:
    """Return whether a float can represent this; NaN is no number."""
    if isinstance(value, (float, np.floating)):
        return not math.isnan(value)
    return _is_integer(value) or isinstance(value, bool)


def _is_path(value: Any) -> bool:
    """Return whether the system accepts this as the name of a file."""
    if not isinstance(value, (str, os.PathLike)):
        return False
    try:
        name = os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return bool(name) and b"\0" not in name


def _is_array_like(value: Any) -> bool:
    """Return whether NumPy can convert this to an array; the callee checks the content."""
    if isinstance(value, _ARRAYS):
        return True
    if isinstance(value, _UNORDERED):
        return False
    if isinstance(value, (Real, Sequence, memoryview)):
        return True
    kind = type(value)
    return hasattr(kind, "__array__") or hasattr(kind, "__array_interface__") or is_foreign(kind)


def _is_series(value: Any) -> bool:
    """Return whether this is an ordered container, other than text and mappings."""
    if isinstance(value, _UNORDERED) or (isinstance(value, np.ndarray) and not value.ndim):
        return False
    return isinstance(value, _SERIES) or (hasattr(type(value), "__array__") and np.ndim(value) > 0)


_SCALARS = {
    int: Expected(_is_integer, "an integer", "integers"),
    float: Expected(_is_number, "a number", "numbers"),
    bool: Expected(lambda value: isinstance(value, _BOOLEANS), "True or False", "True or False"),
    str: Expected(lambda value: isinstance(value, str), "a string", "strings"),
    os.PathLike: Expected(_is_path, "the path of a file (a string or a pathlib.Path)", "paths"),
    Callable: Expected(callable, "a function", "functions"),
    object: ANYTHING,
    Any: ANYTHING,
    ArrayLike: Expected(_is_array_like, "numbers (an array, a list or one number)", "numbers"),
    NDArray: Expected(lambda value: isinstance(value, np.ndarray), "a NumPy array", "NumPy arrays"),
    Numbers: Expected(
        lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "biuf",
        "a NumPy array of numbers",
        "NumPy arrays of numbers",
    ),
}


def _sequence(arguments: tuple[Any, ...]) -> Expected:
    one = expect(arguments[0]) if arguments else ANYTHING
    test = one.accepts
    return Expected(
        lambda value: _is_series(value) and all(map(test, value)),
        f"a list of {one.many}" if one is not ANYTHING else "a list",
        "lists",
        one.remedy,
        test,
    )


def _tuple(arguments: tuple[Any, ...]) -> Expected:
    if not arguments or Ellipsis in arguments:
        return _sequence(arguments[:1])
    parts = [expect(one) for one in arguments]
    text = f"a tuple ({', '.join(one.one for one in parts)})"

    def accepts(value: Any) -> bool:
        right = _is_series(value) and len(value) == len(parts)
        return right and all(part.accepts(v) for part, v in zip(parts, value, strict=True))

    return Expected(accepts, text, "tuples")


def _iterable(arguments: tuple[Any, ...]) -> Expected:
    one = expect(arguments[0]) if arguments else ANYTHING
    test = one.accepts

    def accepts(value: Any) -> bool:
        if isinstance(value, _UNORDERED) or not isinstance(value, Iterable):
            return False
        if isinstance(value, np.ndarray) and not value.ndim:
            return False
        return not isinstance(value, Collection) or all(map(test, value))

    text = f"a list of {one.many}" if one is not ANYTHING else "a list"
    return Expected(accepts, text, "lists", one.remedy, test, listed=True)


def _mapping(arguments: tuple[Any, ...]) -> Expected:
    keys, values = (expect(one) for one in arguments or (Any, Any))

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and all(map(keys.accepts, value))
            and all(map(values.accepts, value.values()))
        )

    text = f"a mapping from {keys.many} to {values.many}"
    return Expected(accepts, text, "mappings", values.remedy)


_GROUPS: dict[Any, Callable[[tuple[Any, ...]], Expected]] = {
    Sequence: _sequence,
    list: _sequence,
    tuple: _tuple,
    Iterable: _iterable,
    Mapping: _mapping,
    dict: _mapping,
}


def shown(value: Any, kind: bool = True) -> str:
    """Return a value on a short line, with its type; arrays by shape and type."""
    if value is None or isinstance(value, bool):
        return repr(value)
    own = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if not isinstance(value, _BRIEF):
        named = isinstance(value, type)
        return f"the class {value.__name__}" if named else f"an object of type {own}"
    try:
        text = reprlib.repr(value)
    except Exception:  # from an element of any class
        return f"an object of type {own}"
    return f"{printable(text)} ({own})" if kind else printable(text)
