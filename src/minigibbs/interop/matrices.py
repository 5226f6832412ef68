"""Ising and Potts models from coupling matrices, dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.graph.factors import Factors, Ising, Potts
from minigibbs.graph.factors.unary import unary_groups
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import read_beta
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_ENTRY_BYTES = 64  # per entry, while it is sorted, compared and stored
_ROUNDING = 1e-12  # tolerated asymmetry of a symmetric matrix, relative to the largest entry


@checked(GraphError)
def ising_from_matrix(
    J: Any,  # noqa: N803 - the name that physics gives it
    h: ArrayLike | None = None,
    beta: float = 1.0,
    *,
    names: Sequence[str] | None = None,
) -> FactorGraph:
    """Build the Ising model exp(beta * (sum over i<j of J_ij s_i s_j + sum of h_i s_i)).

    Spins s_i are -1 (value 0) and +1 (value 1); positive couplings align. Each pair counts once.

    Parameters
    ----------
    J : matrix
        A square NumPy or scipy.sparse matrix with a zero diagonal: symmetric, or triangular with
        each J_ij given once. Sparse matrices are not converted to dense ones.
    h : array-like, optional
        One field per spin. By default none.
    beta : float, default 1.0
        The inverse temperature.
    names : sequence of str, optional
        One name per spin.

    Returns
    -------
    FactorGraph
        One two-valued variable per spin.

    Raises
    ------
    GraphError
        If the matrix is not square, not symmetric or triangular, or not finite.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.ising_from_matrix([[0, 1.0], [1.0, 0]], h=[0.5, 0], beta=2.0)
    >>> graph.log_potential([[1, 1], [1, 0]])
    array([ 3., -1.])
    """
    beta = read_beta(beta)
    i, j, coupling, n = _couplings(J)
    rows = np.zeros((n, 2))
    if h is not None:
        field = _numbers(h, "h", f"one per spin ({n})", (n,))
        rows = beta * np.stack([-field, field], axis=1)
    groups: list[Factors] = [Ising(i, j, beta * coupling), *unary_groups(rows)]
    return FactorGraph(np.full(n, 2), groups, names)


@checked(GraphError)
def potts_from_matrix(
    J: Any,  # noqa: N803
    states: int,
    h: ArrayLike | None = None,
    beta: float = 1.0,
    *,
    names: Sequence[str] | None = None,
) -> FactorGraph:
    """Build the Potts model exp(beta * (sum over i<j of J_ij [x_i == x_j] + sum of h_i(x_i))).

    Positive couplings align. Each pair counts once.

    Parameters
    ----------
    J : matrix
        A square matrix, as for `mg.ising_from_matrix`.
    states : int
        Number of values of each variable.
    h : array-like, optional
        Fields [variable, value], or [value] for all variables. By default none.
    beta : float, default 1.0
        The inverse temperature.
    names : sequence of str, optional
        One name per variable.

    Returns
    -------
    FactorGraph
        One variable per row of the matrix.

    Raises
    ------
    GraphError
        If the matrix is not square, not symmetric or triangular, or not finite.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.potts_from_matrix([[0, 1.5], [0, 0]], states=3, h=[0, 0, 0.25])
    >>> graph.log_potential([[0, 0], [2, 2], [0, 1]])
    array([1.5, 2. , 0. ])
    """
    beta = read_beta(beta)
    i, j, weight, n = _couplings(J)
    whole = isinstance(states, int | np.integer) and not isinstance(states, bool)
    if not whole or states < 1:
        raise GraphError(f"states must be an integer of at least 1, got {states!r}")
    groups: list[Factors] = [Potts(i, j, beta * weight)]
    if h is not None:
        rule = f"one per value ({states}), or one row of them per variable ({n})"
        field = _numbers(h, "h", rule, (int(states),), (n, int(states)))
        groups += unary_groups(beta * np.broadcast_to(field, (n, int(states))))
    return FactorGraph(np.full(n, int(states)), groups, names)


class _Couplings(NamedTuple):
    i: NDArray[Any]
    j: NDArray[Any]
    weight: NDArray[np.float64]
    variables: int


def _couplings(matrix: Any) -> _Couplings:
    """Return the pairs of a matrix, each once, i < j, without zeros."""
    rows = _entries(matrix)
    entries = rows.tocoo()
    (i, j), weight = entries.coords, entries.data
    bad = np.flatnonzero(~np.isfinite(weight))
    if len(bad):
        raise _error("entries must be finite", entries, bad[0])
    diagonal = np.flatnonzero(i == j)
    if len(diagonal):
        rule = (
            "the diagonal must be 0, since s_i * s_i = 1 and [x_i == x_i] = 1 are constants that "
            "change nothing"
        )
        raise _error(rule, entries, diagonal[0])
    upper, lower = i < j, i > j
    if upper.any() and lower.any():
        _check_symmetry(rows)
    half = upper if upper.any() else lower
    a, b = (i, j) if upper.any() else (j, i)
    return _Couplings(a[half], b[half], weight[half], entries.shape[0])


def _entries(matrix: Any) -> Any:
    """Return a matrix as scipy's `csr_array` of float64, without duplicates or zeros."""
    from scipy import sparse

    rule = "J must be a square matrix of real numbers"
    if sparse.issparse(matrix):
        if matrix.dtype.kind not in "iufb":
            raise GraphError(f"{rule}; got type {matrix.dtype}")
    else:
        matrix = as_array(matrix, "iufb", rule)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        raise GraphError(f"{rule}, of at least one variable; got shape {matrix.shape}")
    count = matrix.nnz if sparse.issparse(matrix) else int(np.count_nonzero(matrix))
    memory.require(count * _ENTRY_BYTES, f"a matrix of {count:,} couplings", "use a sparser one")
    entries = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    return entries


def _check_symmetry(rows: Any) -> None:
    """Raise for the most asymmetric entry, unless the asymmetry is a rounding error."""
    difference = (rows - rows.T.tocsr()).tocoo()
    size = np.abs(difference.data)
    if len(size) and size.max() > _ROUNDING * np.abs(rows.data).max():
        worst = int(size.argmax())
        i, j = sorted(int(axis[worst]) for axis in difference.coords)
        raise GraphError(
            f"J must be symmetric, or triangular with each pair given once; got J[{i}, {j}] = "
            f"{float(rows[i, j])!r} and J[{j}, {i}] = {float(rows[j, i])!r}. "
            "(J + J.T) / 2 is symmetric"
        )


def _error(rule: str, entries: Any, place: int) -> GraphError:
    i, j = (int(axis[place]) for axis in entries.coords)
    return GraphError(f"J: {rule}; got J[{i}, {j}] = {float(entries.data[place])!r}")


def _numbers(given: ArrayLike, name: str, rule: str, *shapes: tuple[int, ...]) -> NDArray[Any]:
    """Return finite numbers in one of the given shapes."""
    array = as_array(given, "iufb", f"{name} must hold real numbers, {rule}").astype(np.float64)
    if array.shape not in shapes:
        raise GraphError(f"{name} must hold real numbers, {rule}; got shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = ", ".join(map(str, bad[0].tolist()))
        raise GraphError(f"{name}: fields must be finite; got {array[tuple(bad[0])]} at [{place}]")
    return array
