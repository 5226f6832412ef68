"""Couplings between points: every pair weighted by a function of two feature vectors, implicit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.graph.factors.implicit.base import CHUNK, Implicit, agreement, read_form
from minigibbs.system.boundary import checked

if TYPE_CHECKING:  # compiling tools are slow to import
    from minigibbs.kernels.box_tables import Tables
    from minigibbs.kernels.boxes import Tree
    from minigibbs.kernels.decay import Decay, OwnDecay

RULES = ("gaussian", "laplace", "power")
_SLOTS = (1_000_000, 4_000_000, 16_000_000)  # entries of all tables: up to 128 MB
_WORTH, _WORTHY = 2.0, 0.1  # pairs per update, and their share, that larger tables must save
_MOST_COUNTED = 10**9  # pairs that can be evaluated one by one in a few seconds
_MOST_LOOKED_UP = 512  # points whose pairs are all stored for energies
_LEAST_NORM = 1e-8  # smaller values are excluded from normalizations
_LEAST_ENERGY = 1e-14  # smaller values are excluded from energies
_ROWS, _LOOKED_AT = 256, 20_000_000  # points, and pairs, for measuring the acceptance of proposals
_SUMMED = 10_000_000  # pairs that are summed to find the largest sum
_TRIED = 2000  # pairs on which a user's bound is tested
_NOT_FINITE = (
    "points: the bound of the kernel is not finite, in single precision, for some two boxes; it "
    "must be for every two, also for a point and itself"
)
_LIMIT = 1e15  # larger features have no differences in single precision


@checked(GraphError)
@dataclass(frozen=True, eq=False)
class PointKernel:
    """A kernel of your own for `Points`.

    Parameters
    ----------
    value : callable
        A function compiled with `numba.njit`, of two feature vectors (`float32` arrays). It must be
        symmetric and nonnegative.
    bound : callable
        A compiled function of (low_a, high_a, low_b, high_b), the corners of two boxes. It must be
        at least `value` for any point of the first and any of the second box, and finite for all
        boxes. Tighter bounds make updates faster. A bound that is too small makes the distribution
        wrong; only a few thousand pairs are tested.

    Examples
    --------
    >>> import minigibbs as mg, numba, numpy as np
    >>> @numba.njit
    ... def value(a, b):
    ...     return max(0.0, 1.0 - abs(a[0] - b[0]))
    >>> @numba.njit
    ... def bound(low_a, high_a, low_b, high_b):
    ...     return max(0.0, 1.0 - max(low_a[0] - high_b[0], low_b[0] - high_a[0], 0.0))
    >>> mg.Points(np.linspace(0, 3, 10)[:, None], mg.PointKernel(value, bound))
    <Points: 45 factors, implicit>
    """

    value: Callable[..., Any]
    bound: Callable[..., Any]

    def __post_init__(self) -> None:
        for name in ("value", "bound"):
            if not hasattr(getattr(self, name), "py_func"):
                got = type(getattr(self, name)).__name__
                raise GraphError(f"PointKernel: {name} must be compiled with numba.njit, got {got}")


@checked(GraphError)
class Points(Implicit):
    """A point for every variable, every pair weighted by weight * k(f_i, f_j).

    Only the points and tables over boxes of points are stored; see docs/flagship.md.

    Parameters
    ----------
    features : array-like
        [n, dimensions] one feature vector per variable, in units of the width of the kernel: pixels
        with colors are `[x / 80, y / 80, r / 13, g / 13, b / 13]`. Stored in single precision.
    kernel : str or PointKernel, default "gaussian"
        A function of the distance r of two vectors: "gaussian", exp(-r^2 / 2); "laplace", exp(-r);
        "power", (1 + r^2)^(-exponent / 2). Or a `PointKernel`.
    weight : float, default 1.0
        The factor that multiplies the kernel.
    kind : str, default "potts"
        "potts" (phi = w_ij * [x_i == x_j]) or "ising" (phi = w_ij * s_i * s_j).
    norms : array-like or str, optional
        "sums" divides the weight of a pair by sqrt(n_i * n_j), where n_i is the sum of k(f_i, f_j)
        over all j, i included, as dense conditional random fields do. Or the n_i themselves.
    exponent : float, default 3.0
        The exponent of the kernel "power".

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> places = np.random.default_rng(0).uniform(0, 10, (500, 2))
    >>> graph = mg.FactorGraph([3] * 500, [mg.Points(places, weight=0.5)])
    >>> run = mg.sample(graph, sweeps=10, seed=1, progress=False)
    >>> run.marginals[0].shape
    (3,)
    """

    kind = "points"
    features: NDArray[np.float32]
    weight: float
    scale: NDArray[np.float32]  # [n] 1 / sqrt(n_i)
    kernel: str | PointKernel
    exponent: float

    def __init__(
        self,
        features: ArrayLike,
        kernel: str | PointKernel = "gaussian",
        weight: float = 1.0,
        kind: str = "potts",
        norms: ArrayLike | str | None = None,
        exponent: float = 3.0,
    ) -> None:
        rows = _read_features(features)
        if not isinstance(weight, int | float | np.number) or not abs(weight) <= 1e100:
            raise GraphError(f"points: the weight must be a finite number, got {weight!r}")
        vars(self).update(
            features=rows,
            kernel=kernel,
            exponent=_read_exponent(kernel, exponent),
            weight=float(weight),
            form=read_form("points", kind),
            variables=len(rows),
        )
        if isinstance(kernel, PointKernel):
            _try_bound(self._bare_tree, self.rule)
        scale = self._scales(norms)
        scale.flags.writeable = False
        vars(self).update(scale=scale)

    @cached_property
    def rule(self) -> Decay | OwnDecay:
        """The kernel as a rule for compiled code."""
        from minigibbs.kernels.decay import GAUSSIAN, LAPLACE, POWER, Decay, OwnDecay

        if isinstance(self.kernel, PointKernel):
            return OwnDecay(self.kernel.value, self.kernel.bound)
        code = dict(zip(RULES, (GAUSSIAN, LAPLACE, POWER), strict=True))[self.kernel]
        return Decay(code, self.exponent)

    @cached_property
    def _bare_tree(self) -> Tree:
        from minigibbs.kernels.boxes import grow_tree

        return grow_tree(self.features)

    @cached_property
    def tree(self) -> Tree:
        """The points in boxes, with their scales."""
        from minigibbs.kernels.boxes import scaled

        return self._bare_tree if (self.scale == 1.0).all() else scaled(self._bare_tree, self.scale)

    def _scales(self, norms: ArrayLike | str | None) -> NDArray[np.float32]:
        """Compute 1 / sqrt(n_i), in the precision in which it is used."""
        n = self.variables
        if norms is None:
            return np.ones(n, dtype=np.float32)
        if isinstance(norms, str):
            if norms != "sums":
                raise GraphError(f'points: norms must be "sums", numbers or None, got {norms!r}')
            array = _norms(self._bare_tree, self.rule)
        else:
            rule = f"points: norms must be positive numbers, one for each of {n:,} points"
            array = as_array(norms, "iuf", rule).astype(np.float64)
            if array.shape != (n,):
                raise GraphError(f"{rule}; got shape {array.shape}")
        bad = np.flatnonzero(~((array > 1e-30) & (array < 1e30)))
        if len(bad):
            raise GraphError(
                f"points: norms must be positive and finite, got {array[bad[0]]} of point {bad[0]}"
            )
        return (1.0 / np.sqrt(array)).astype(np.float32)

    @cached_property
    def tables(self) -> Tables:
        """The tables from which points are drawn, one per source."""
        from minigibbs.kernels.box_tables import choose_tables, make_tables

        bounds, sizes = choose_tables(self.tree, self.rule, _SLOTS[0])
        if not bounds < math.inf:
            raise GraphError(_NOT_FINITE)
        for slots in _SLOTS[1:]:
            fewer, more = choose_tables(self.tree, self.rule, slots)
            saved = (bounds - fewer) * abs(self.weight)
            if saved < _WORTH or saved < _WORTHY * bounds * abs(self.weight):
                break
            bounds, sizes = fewer, more
        tables = make_tables(self.tree, self.rule, *sizes)
        if not np.isfinite(tables.weight).all():
            raise GraphError(_NOT_FINITE)
        return tables

    def bounds(self) -> NDArray[np.float64]:
        """Bound the sum of |weight| over the pairs of each variable: the rate of proposals."""
        tables, result = self.tables, np.empty(self.variables)
        result[self.tree.order] = tables.size * tables.weight[tables.source]
        result *= abs(self.weight) * self.scale.astype(np.float64)
        return result

    @cached_property
    def kept(self) -> float:
        """The share of proposals that the true weight keeps, estimated from some variables."""
        rows, sums = self._some
        proposed = float(self.bounds()[rows].sum())
        return min(float(sums.sum()) / proposed, 1.0) if proposed > 0.0 else 1.0

    @cached_property
    def typical(self) -> float:
        """The 0.9 quantile of the sums of |weight|, estimated from some variables."""
        return float(np.quantile(self._some[1], 0.9))

    @cached_property
    def _some(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Some variables, and their sums of |weight|."""
        most = min(max(_LOOKED_AT // self.variables, 32), _ROWS)
        rows = np.random.default_rng(0).permutation(self.variables)[:most]
        return rows, self._sums(rows)

    @cached_property
    def largest(self) -> float:
        """A bound on all variables' sums of |weight|: exact sums where the bounds are largest."""
        bounds = self.bounds()
        most = min(max(_SUMMED // self.variables, 1), self.variables)
        strongest = np.argsort(-bounds, kind="stable")
        true = float(self._sums(strongest[:most]).max())
        others = float(bounds[strongest[most]]) if most < self.variables else 0.0
        return max(true, others)

    def _sums(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum |weight| over the pairs of some variables."""
        from minigibbs.kernels.boxes import row_sums

        return abs(self.weight) * row_sums(self.tree, self.rule, self.places[rows])

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The position in the tree's order of each variable's point."""
        places = np.empty(self.variables, dtype=np.int64)
        places[self.tree.order] = np.arange(self.variables)
        return places

    def _row(self, i: int) -> NDArray[np.float64]:
        """Compute the weights of one variable's pairs, 0 for itself."""
        every = np.arange(self.variables)
        row = self.pair_weights(np.full(self.variables, i), every)
        row[i] = 0.0
        return row

    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the weights of some pairs."""
        from minigibbs.kernels.boxes import pair_values

        i, j = self.places[i], self.places[j]
        return self.weight * pair_values(self.tree, self.rule, i, j)

    @property
    def counting(self) -> int:
        """The number of ordered pairs."""
        return self.variables**2

    def energy_cost(self, values: int) -> float:
        """Predict nanoseconds of an energy, which evaluates all pairs that are not negligible."""
        vectors = self._vectors(values) if self.variables <= _MOST_LOOKED_UP else 2
        return 0.5 * self.counting * vectors

    @property
    def is_counted(self) -> bool:
        """Whether the pairs are few enough to be evaluated."""
        return self.counting <= _MOST_COUNTED

    def local_weights(self) -> NDArray[np.float64]:
        """Sum |weight| exactly, or for very many points return the bounds of the proposals."""
        if not self.is_counted:
            return self.bounds()
        return self._local

    @cached_property
    def _local(self) -> NDArray[np.float64]:
        from minigibbs.kernels.boxes import pair_sums

        sums = pair_sums(self.tree, self.rule, 0.0)
        return abs(self.weight) * self.scale.astype(np.float64) * sums

    def degrees(self) -> NDArray[np.int64]:
        """Return the number of other points; for a `PointKernel`, count the nonzero weights."""
        everybody = np.full(self.variables, self.variables - 1 if self.weight else 0)
        if not isinstance(self.kernel, PointKernel) or not self.is_counted:
            return everybody
        rows = (self._row(i) for i in range(self.variables))
        return np.array([np.count_nonzero(row) for row in rows], dtype=np.int64)

    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Sum pairs of the same value, box by box; for spins s_i s_j = 2 [x_i == x_j] - 1.

        For few points, possibly with very many states, a matrix of all weights is used.
        """
        if self.variables <= _MOST_LOOKED_UP:
            return self._looked_up(states)
        from minigibbs.kernels.boxes import pair_sums

        scale = self.scale.astype(np.float64)
        energies = np.array(
            [
                float(scale @ pair_sums(self.tree, self.rule, _LEAST_ENERGY, labels))
                for labels in states
            ]
        )
        if self.form == "ising" and len(states):
            energies = 2.0 * energies - self._everything
        return 0.5 * self.weight * energies

    def _looked_up(self, states: NDArray[Any]) -> NDArray[np.float64]:
        total = np.zeros(len(states))
        for row, v in agreement(states, self.form, max(1, CHUNK // self.variables)):
            squares = np.einsum("ri,ri->r", v @ self._matrix, v)
            total += np.bincount(row, squares, minlength=len(states))
        return 0.5 * total

    @cached_property
    def _matrix(self) -> NDArray[np.float64]:
        """The weights of all pairs."""
        return np.array([self._row(i) for i in range(self.variables)])

    @cached_property
    def _everything(self) -> float:
        from minigibbs.kernels.boxes import pair_sums

        scale = self.scale.astype(np.float64)
        return float(scale @ pair_sums(self.tree, self.rule, _LEAST_ENERGY))

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        if isinstance(self.kernel, PointKernel):
            raise GraphError(
                "points: a kernel of your own is a function and cannot be written to a file; use "
                f"one of {', '.join(RULES)}"
            )
        arrays: dict[str, Any] = {
            "features": self.features,
            "kernel": self.kernel,
            "weight": self.weight,
            "kind": self.form,
            "exponent": self.exponent,
        }
        if (self.scale != 1.0).any():
            arrays["norms"] = 1.0 / self.scale.astype(np.float64) ** 2
        return arrays


def _read_features(features: ArrayLike) -> NDArray[np.float32]:
    rule = "points: features must be finite numbers, one row per variable, 2 rows or more"
    array = as_array(features, "iuf", rule)
    if array.ndim != 2 or len(array) < 2 or array.shape[1] < 1:
        raise GraphError(f"{rule}; got shape {array.shape}")
    bad = np.argwhere(~(np.abs(array) <= _LIMIT))
    if len(bad):
        row, column = bad[0]
        raise GraphError(f"{rule}; got {array[row, column]} in row {row}, column {column}")
    rows = np.array(array, dtype=np.float32, order="C")
    rows.flags.writeable = False
    return rows


def _norms(tree: Tree, rule: Any) -> NDArray[np.float64]:
    from minigibbs.kernels.boxes import own_values, pair_sums

    return pair_sums(tree, rule, _LEAST_NORM) + own_values(tree, rule)


def _read_exponent(kernel: str | PointKernel, exponent: float) -> float:
    if not isinstance(kernel, PointKernel) and kernel not in RULES:
        names = ", ".join(RULES)
        raise GraphError(f"points: kernel must be {names} or a PointKernel, got {kernel!r}")
    if not isinstance(exponent, int | float | np.number) or not 0 < exponent <= 1000:
        raise GraphError(f"points: exponent must be above 0 and at most 1000, got {exponent!r}")
    return float(exponent)


def _try_bound(tree: Tree, rule: Any) -> None:
    """Test a user's functions on random pairs: nonnegative, symmetric, and within the bound."""
    everything = (tree.low[0], tree.high[0])
    if not rule.bound(*everything, *everything) < math.inf:
        raise GraphError(_NOT_FINITE)
    rng = np.random.default_rng(0)
    leaves = np.flatnonzero(tree.nodes["left"] == 0)
    boxes = rng.choice(leaves, (2, _TRIED))
    width = tree.nodes["end"][boxes] - tree.nodes["begin"][boxes]
    i, j = tree.nodes["begin"][boxes] + (rng.random((2, _TRIED)) * width).astype(np.int64)
    for k in range(_TRIED):
        a, b = tree.features[i[k]], tree.features[j[k]]
        value, mirrored = rule.value(a, b), rule.value(b, a)
        corners = [side[box] for box in boxes[:, k] for side in (tree.low, tree.high)]
        bound = rule.bound(*corners)
        if not (0.0 <= value < math.inf and math.isclose(value, mirrored, rel_tol=1e-9)):
            raise GraphError(
                "points: a kernel must be at least 0 and symmetric, got "
                f"{value} and {mirrored} for {a} and {b}"
            )
        if not value <= bound * (1 + 1e-9) < math.inf:
            raise GraphError(
                f"points: the kernel is {value} for {a} and {b}, above its bound {bound} for boxes "
                "around them; it must hold for every two points of two boxes"
            )
