"""Functions of two points that decay with their distance, and bounds for points in two boxes.

A rule is a NamedTuple, and compiled code is selected by its type. A point is a row in single
precision. It has pieces of 8 numbers: 7 features, padded by 0, and one more number, which in the
first piece is the point's scale. So the loop over a piece has a constant length. Arithmetic is in
double precision.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import chosen_by_type, kernel
from minigibbs.kernels.lanes import as_double, squared_steps, word_of
from minigibbs.kernels.lines import empty_lines

GAUSSIAN, LAPLACE, POWER = range(3)
PIECE, FEATURES = 8, 7  # numbers per piece of a row, and features among them
_UP = 1.0 + 1e-6  # bounds are rounded up to single precision


class Decay(NamedTuple):
    """exp(-r^2 / 2), exp(-r), or (1 + r^2)^(-exponent / 2), of the distance r."""

    code: int
    exponent: float


def point_rows(features: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Build rows for `decay_value`: features in pieces, and scales."""
    n, dims = features.shape
    rows = empty_lines((n, -(-dims // FEATURES), PIECE), np.float32)
    rows[:] = 0.0
    for piece in range(rows.shape[1]):
        own = features[:, piece * FEATURES : (piece + 1) * FEATURES]
        rows[:, piece, : own.shape[1]] = own
    rows[:, 0, FEATURES] = scale
    return rows.reshape(n, -1)


class OwnDecay(NamedTuple):
    """User-defined compiled functions: value(a, b), and bound(low_a, high_a, low_b, high_b)."""

    value: Any
    bound: Any


@kernel
def decay_at(rule, square):
    """Compute the value at a squared distance."""
    if rule.code == GAUSSIAN:
        return math.exp(-0.5 * square)
    if rule.code == LAPLACE:
        return math.exp(-math.sqrt(square))
    return math.exp(-0.5 * rule.exponent * math.log1p(square))


_STEP = 1.0 / 1024.0


@kernel
def _exp_minus(t):
    """Compute exp(-t) for t >= 0, with an absolute error of 1e-12, in vectorizable operations.

    It is a series at t / 1024, squared ten times; its relative error is large only for negligible
    values.
    """
    y = -min(t, 700.0) * _STEP
    s = 1.0 + y * (1.0 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120 + y / 720)))))
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    return s


@kernel
def _square(points, i, j):
    """Compute the squared distance of two points."""
    here, there = np.uint64(i), np.uint64(j)
    square, piece = squared_steps(points, here, there, np.uint64(0)), PIECE
    while piece < points.shape[1]:
        square += squared_steps(points, here, there, np.uint64(piece))
        piece += PIECE
    return square


@kernel
def _decay_value(rule, features, points, i, j):
    return decay_at(rule, _square(points, i, j))


@kernel
def _own_value(rule, features, points, i, j):
    return rule.value(features[i], features[j])


@kernel
def _decay_measure(rule, features, points, i, j):
    return _square(points, i, j)


@kernel
def _own_measure(rule, features, points, i, j):
    return rule.value(features[i], features[j])


@kernel
def _decay_finish(rule, scratch, first, count):
    k = first
    if rule.code == GAUSSIAN:
        while k < first + count:
            square = as_double(np.uint64(scratch[np.uint64(k)]))
            scratch[np.uint64(k)] = word_of(_exp_minus(0.5 * square))
            k += 1
    else:
        while k < first + count:
            square = as_double(np.uint64(scratch[np.uint64(k)]))
            scratch[np.uint64(k)] = word_of(decay_at(rule, square))
            k += 1


@kernel
def _own_finish(rule, scratch, first, count):
    """Do nothing: the measures are values."""


@kernel
def _decay_bounds(rule, low, high, a, b):
    near, far = 0.0, 0.0
    for k in range(low.shape[1]):
        right = np.float64(low[b, k]) - np.float64(high[a, k])
        left = np.float64(low[a, k]) - np.float64(high[b, k])
        gap = max(max(left, right), 0.0)
        reach = max(
            np.float64(high[b, k]) - np.float64(low[a, k]),
            np.float64(high[a, k]) - np.float64(low[b, k]),
        )
        near += gap * gap
        far += reach * reach
    return decay_at(rule, far), decay_at(rule, near)


@kernel
def _own_bounds(rule, low, high, a, b):
    return 0.0, rule.bound(low[a], high[a], low[b], high[b])


def decay_value(rule: Any, features: Any, points: Any, i: int, j: int) -> float:
    """Compute the value for points `i` and `j`; compiled code only."""
    chosen = _own_value if isinstance(rule, OwnDecay) else _decay_value
    return chosen(rule, features, points, i, j)  # type: ignore[no-any-return]


@chosen_by_type(decay_value)
def _value_for_type(rule, features, points, i, j):
    return (_own_value if rule.instance_class is OwnDecay else _decay_value).py_func


def decay_measure(rule: Any, features: Any, points: Any, i: int, j: int) -> float:
    """Compute the measure from which the value for points `i` and `j` follows; compiled code only.

    This is their squared distance, or for a user-defined function the value itself.
    """
    chosen = _own_measure if isinstance(rule, OwnDecay) else _decay_measure
    return chosen(rule, features, points, i, j)  # type: ignore[no-any-return]


@chosen_by_type(decay_measure)
def _measure_for_type(rule, features, points, i, j):
    return (_own_measure if rule.instance_class is OwnDecay else _decay_measure).py_func


def decay_finish(rule: Any, scratch: Any, first: int, count: int) -> None:
    """Convert measures to values, vectorized; compiled code only.

    They are doubles, whose bits are in the scratch.
    """
    (_own_finish if isinstance(rule, OwnDecay) else _decay_finish)(rule, scratch, first, count)


@chosen_by_type(decay_finish)
def _finish_for_type(rule, scratch, first, count):
    return (_own_finish if rule.instance_class is OwnDecay else _decay_finish).py_func


def decay_bounds(rule: Any, low: Any, high: Any, a: int, b: int) -> tuple[float, float]:
    """Bound the value for any two points of boxes `a` and `b` from both sides; compiled only."""
    chosen = _own_bounds if isinstance(rule, OwnDecay) else _decay_bounds
    return chosen(rule, low, high, a, b)  # type: ignore[no-any-return]


@chosen_by_type(decay_bounds)
def _bounds_for_type(rule, low, high, a, b):
    return (_own_bounds if rule.instance_class is OwnDecay else _decay_bounds).py_func


@kernel
def _values(rule, squares):
    """Convert squared distances to values."""
    if rule.code == GAUSSIAN:
        for j in range(len(squares)):
            squares[j] = _exp_minus(0.5 * squares[j])
    else:
        for j in range(len(squares)):
            squares[j] = decay_at(rule, squares[j])


@kernel
def _decay_block(rule, features, columns, i, first, last, values):
    for j in range(len(values)):
        values[j] = 0.0
    for k in range(len(columns)):
        here, there = columns[k, i], columns[k, first:last]
        for j in range(len(values)):
            step = there[j] - here
            values[j] += step * step
    _values(rule, values)


@kernel
def _own_block(rule, features, columns, i, first, last, values):
    for j in range(len(values)):
        values[j] = rule.value(features[i], features[first + j])


def decay_block(
    rule: Any, features: Any, columns: Any, i: int, first: int, last: int, values: Any
) -> None:
    """Compute the values for position `i` and each of [first, last); compiled code only."""
    chosen = _own_block if isinstance(rule, OwnDecay) else _decay_block
    chosen(rule, features, columns, i, first, last, values)


@chosen_by_type(decay_block)
def _block_for_type(rule, features, columns, i, first, last, values):
    return (_own_block if rule.instance_class is OwnDecay else _decay_block).py_func


@kernel
def rounded_up(bound):
    """Round a bound up to single precision; it is positive, so that a share of it is defined."""
    return np.float32(max(bound * _UP, 1e-37))
