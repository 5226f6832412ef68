"""Couplings that depend on displacement: a kernel over a grid, implicit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array, call_own
from minigibbs.graph.factors.implicit.base import CHUNK, Implicit, agreement, read_form
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_LIMIT = 1e100


@checked(GraphError)
class Kernel(Implicit):
    """Variables on a 1-, 2- or 3-D grid, every pair weighted by a function of displacement.

    Parameters
    ----------
    shape : sequence of int
        The sides of the grid. Variables are numbered in C order: the last axis is the fastest.
    weight : callable or array-like
        A function of the displacement, with one array per axis: `lambda r, c: 4.6 * np.exp(-1.5 *
        (r**2 + c**2))`. It must be even: the same for d and -d. Or a table: centered and of odd
        sides, or, if periodic, of the shape of the grid.
    kind : str, default "potts"
        "potts" (phi = weight * [x_i == x_j]) or "ising" (phi = weight * s_i * s_j).
    periodic : bool, default False
        Whether displacements wrap around. The function then gets the shortest displacement.

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> near = mg.Kernel((20, 20), lambda r, c: 4.6 * np.exp(-1.5 * (r**2 + c**2)))
    >>> stats = mg.FactorGraph(np.full(400, 10), [near]).stats
    >>> round(stats.local_energy, 2), round(stats.total_energy, 1)
    (5.09, 957.1)
    """

    kind = "kernel"
    shape: tuple[int, ...]
    half: NDArray[np.float64]  # weights at indices after the table's center, see `sides`
    sides: tuple[
        int, ...
    ]  # of the table of displacements; 2 * reach + 1, or the grid's if periodic
    periodic: bool

    def __init__(
        self,
        shape: Sequence[int],
        weight: Callable[..., ArrayLike] | ArrayLike,
        kind: str = "potts",
        periodic: bool = False,
    ) -> None:
        grid = _read_shape(shape)
        sides = grid if periodic else tuple(2 * side - 1 for side in grid)
        _require_room(sides, periodic)
        rows = _evaluated(weight, sides, periodic) if callable(weight) else None
        if rows is None:
            table = _read_weights(weight)
            sides = _check_table(table, grid, periodic)
            rows = table.reshape(_by_rows(sides)[0], -1).__getitem__
        half = _read_half(rows, sides, periodic)
        if not periodic:
            half, sides = _crop(half, sides)
        half.flags.writeable = False
        vars(self).update(
            shape=grid,
            half=half,
            sides=sides,
            periodic=bool(periodic),
            form=read_form("kernel", kind),
            variables=math.prod(grid),
        )

    @property
    def center(self) -> int:
        """The index of displacement 0 in the flat table."""
        return 0 if self.periodic else math.prod(self.sides) // 2

    @property
    def reach(self) -> tuple[int, ...]:
        """The coordinates of the center."""
        return tuple(0 if self.periodic else side // 2 for side in self.sides)

    def table(self) -> NDArray[np.float64]:
        """Return weights by displacement: centered, or starting at 0 if periodic."""
        if self.periodic:
            flat = np.concatenate([[0.0], self.half])
        else:
            flat = np.concatenate([self.half[::-1], [0.0], self.half])
        return flat.reshape(self.sides)

    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """Look up weights by displacement."""
        table, inside, index = self.table(), np.ones(len(i), dtype=bool), []
        here, there = np.unravel_index(i, self.shape), np.unravel_index(j, self.shape)
        for a, b, side, reach in zip(here, there, self.sides, self.reach, strict=True):
            step = (b - a) % side if self.periodic else b - a + reach
            inside &= (step >= 0) & (step < side)
            index.append(np.clip(step, 0, side - 1))
        return np.where(inside, table[tuple(index)], 0.0)

    def local_weights(self) -> NDArray[np.float64]:
        """Compute window sums of the table of |weight|."""
        return self._windows(np.abs(self.table()))

    def degrees(self) -> NDArray[np.int64]:
        """Compute window sums of the indicator of nonzero weights."""
        return np.rint(self._windows((self.table() != 0).astype(np.float64))).astype(np.int64)

    def _windows(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the table for each variable over displacements that stay on the grid."""
        if self.periodic:
            return np.full(self.variables, table.sum())
        total = np.pad(table, [(1, 0)] * table.ndim)
        for axis in range(table.ndim):
            np.cumsum(total, axis=axis, out=total)
        result = np.zeros(self.shape)
        edges = []
        for side, reach in zip(self.shape, self.reach, strict=True):
            at = np.arange(side)
            low, high = np.maximum(reach - at, 0), np.minimum(side - at + reach, 2 * reach + 1)
            edges.append((low, high))
        for corner in itertools.product((0, 1), repeat=table.ndim):
            index = np.ix_(*(edge[c] for edge, c in zip(edges, corner, strict=True)))
            result += (-1.0) ** (table.ndim - sum(corner)) * total[index]
        return result.ravel()

    def energy_cost(self, values: int) -> float:
        """Predict nanoseconds of a fast Fourier transform for each value."""
        padded = math.prod(n + r for n, r in zip(self.shape, self.reach, strict=True))
        return (10.0 + 1.0 * math.log2(padded)) * padded * self._vectors(values)

    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Compute energies by Fourier transforms, O(n log n) per value, and Parseval's identity."""
        from scipy.fft import rfftn

        spectrum, sides = self._spectrum
        axes, total = tuple(range(1, len(sides) + 1)), np.zeros(len(states))
        for row, v in agreement(states, self.form, max(1, CHUNK // math.prod(sides))):
            waves = rfftn(v.reshape(-1, *self.shape), sides, axes)
            power = waves.real**2
            power += waves.imag**2
            squares = power.reshape(len(v), -1) @ spectrum
            total += np.bincount(row, squares, minlength=len(states))
        return total

    @cached_property
    def _spectrum(self) -> tuple[NDArray[np.float64], tuple[int, ...]]:
        """S with sum over w of S_w * |V_w|^2 = half the sum over i, j of weight_ij * v_i * v_j.

        V is the real transform of v on a grid with the sides in the second entry, which are so
        large that no displacement wraps around, unless the kernel is periodic.
        """
        from scipy.fft import next_fast_len, rfftn

        padded = [n + r for n, r in zip(self.shape, self.reach, strict=True)]
        sides = tuple(n if self.periodic else next_fast_len(n, real=True) for n in padded)
        memory.require(40.0 * math.prod(sides), "the energy of a kernel", "use a smaller grid")
        around = self.table()
        if not self.periodic:
            places = [np.arange(-r, r + 1) % n for n, r in zip(sides, self.reach, strict=True)]
            around = np.zeros(sides)
            around[np.ix_(*places)] = self.table()
        spectrum = rfftn(around).real  # an even function has a real transform
        spectrum[..., 1 : (sides[-1] + 1) // 2] *= 2.0  # for the mirror images of these waves
        return 0.5 / math.prod(sides) * spectrum.ravel(), sides

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "shape": np.array(self.shape),
            "weight": self.table(),
            "kind": self.form,
            "periodic": self.periodic,
        }


def _read_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sides = as_array(shape, "iu", "kernel: shape must hold 1, 2 or 3 integers")
    grid = tuple(int(side) for side in np.atleast_1d(sides).ravel())
    if not 1 <= len(grid) <= 3 or min(grid) < 1 or math.prod(grid) < 2:
        raise GraphError(
            f"kernel: shape must be 1, 2 or 3 positive sides with 2 variables or more, got {shape}"
        )
    if math.prod(grid) * 2 ** len(grid) >= 2**31:
        raise GraphError(f"kernel: a grid of shape {grid} has too many displacements to count")
    return grid


def _read_weights(given: Any) -> NDArray[np.float64]:
    return as_array(given, "iufb", "kernel: weights must be real numbers").astype(np.float64)


def _check_table(
    table: NDArray[np.float64], grid: tuple[int, ...], periodic: bool
) -> tuple[int, ...]:
    fits = table.shape == grid
    if not periodic:
        fits = len(table.shape) == len(grid) and all(
            side % 2 == 1 and side <= 2 * n - 1 for side, n in zip(table.shape, grid, strict=True)
        )
    if not fits:
        expected = f"shape {grid}" if periodic else "odd sides of at most twice the grid's, less 1"
        raise GraphError(f"kernel: a table of weights must have {expected}; got {table.shape}")
    return table.shape


def _evaluated(
    weight: Callable[..., ArrayLike], sides: tuple[int, ...], periodic: bool
) -> Callable[[int], NDArray[np.float64]]:
    """Return a function of a row: values at one displacement of the first axis and all others."""
    axes = [np.arange(side) - (0 if periodic else side // 2) for side in _by_rows(sides)]
    if periodic:  # the shortest displacement
        axes = [np.where(2 * axis > len(axis), axis - len(axis), axis) for axis in axes]
    others = np.meshgrid(*axes[1:], indexing="ij")

    def row(first: int) -> NDArray[np.float64]:
        steps = [np.full(others[0].shape, axes[0][first]), *others][-len(sides) :]
        with np.errstate(all="ignore"):
            arguments = [step.astype(np.float64) for step in steps]
            values = _read_weights(call_own(weight, arguments, "kernel: the function"))
        return np.array(np.broadcast_to(values, others[0].shape)).ravel()

    return row


def _by_rows(sides: tuple[int, ...]) -> tuple[int, ...]:
    """Return sides of the table with an axis of rows; a one-dimensional table is one row."""
    return sides if len(sides) > 1 else (1, *sides)


def _require_room(sides: tuple[int, ...], periodic: bool) -> None:
    """Refuse a table of displacements that exceeds memory, before the function is evaluated."""
    total = math.prod(sides)
    width, half = total // _by_rows(sides)[0], total if periodic else total // 2
    what = f"kernel: a table of {total:,} displacements"
    memory.require(8.0 * (3 * half + 6 * width), what, "use a smaller shape")


def _read_half(
    rows: Callable[[int], NDArray[np.float64]], sides: tuple[int, ...], periodic: bool
) -> NDArray[np.float64]:
    """Read the weights after the center of the flat table; check that they are finite and even."""
    grid, total = _by_rows(sides), math.prod(sides)
    width, center = total // grid[0], 0 if periodic else total // 2
    half = np.empty(total - center - 1)
    for first in range(center // width, grid[0]):
        values, skipped = rows(first), max(center + 1 - first * width, 0)
        own, begin = values[skipped:], first * width + skipped
        bad = np.flatnonzero(~(np.abs(own) <= _LIMIT))
        if len(bad):
            steps = np.unravel_index(begin + bad[0], sides)
            middle = [0 if periodic else side // 2 for side in sides]
            raise GraphError(
                f"kernel: weights must be finite; got {own[bad[0]]} at displacement "
                f"{[int(step) - m for step, m in zip(steps, middle, strict=True)]}"
            )
        half[begin - center - 1 :][: len(own)] = own
        _check_even(values, rows, grid, first, periodic)
    return half


def _check_even(
    values: NDArray[np.float64],
    rows: Callable[[int], NDArray[np.float64]],
    sides: tuple[int, ...],
    first: int,
    periodic: bool,
) -> None:
    """Check that the weight of d is that of -d, since a pair has one weight."""
    mirror = (sides[0] - first) % sides[0] if periodic else sides[0] - 1 - first
    other = rows(mirror).reshape(sides[1:])[(slice(None, None, -1),) * (len(sides) - 1)]
    if periodic:
        other = np.roll(other, 1, axis=tuple(range(other.ndim)))
    same = np.isclose(values, other.ravel(), rtol=1e-9, atol=1e-300)
    same |= ~np.isfinite(values)  # displacement 0 is never used
    if not same.all():
        place = int(np.flatnonzero(~same)[0])
        raise GraphError(
            "kernel: the weight must be the same for a displacement and its opposite, got "
            f"{values[place]} and {other.ravel()[place]}"
        )


def _crop(
    half: NDArray[np.float64], sides: tuple[int, ...]
) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Crop the border of the table if all of its weights are 0."""
    if len(half) and half[-1] != 0:  # the far corner is nonzero
        return half, sides
    used = np.flatnonzero(half) + math.prod(sides) // 2 + 1
    if not len(used):
        return np.empty(0), (1,) * len(sides)
    middle = [side // 2 for side in sides]
    steps = np.unravel_index(used, sides)
    reach = [int(np.abs(s - m).max()) for s, m in zip(steps, middle, strict=True)]
    if all(r == m for r, m in zip(reach, middle, strict=True)):
        return half, sides
    small = tuple(2 * r + 1 for r in reach)
    table = np.zeros(small)
    index = tuple(s - m + r for s, m, r in zip(steps, middle, reach, strict=True))
    table[index] = half[used - math.prod(sides) // 2 - 1]
    return table.ravel()[table.size // 2 + 1 :].copy(), small
