"""Conditional ranges of tables: the range of a factor along one of its variables.

A table's range over all states, M, includes its variation with the other variables. Bounds on the
slowdown need only the range along the updated variable; see part (f) of docs/theory.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import TABLE

_PIECE = 1 << 22  # table cells read per batch


def conditional_ranges(
    graph: FactorGraph, entries: NDArray[Any], owner: NDArray[Any]
) -> NDArray[np.float64]:
    """Compute the largest range of each factor along its variable, over the values of the others.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    entries : ndarray of int
        Indices of general factors in the rows of the packed model.
    owner : ndarray of int
        The variable of each of these rows.

    Returns
    -------
    ndarray of float
        Each is at most the factor's M. Formulas have M itself.
    """
    model = graph.packed
    factors = model.factors[model.target[entries]]
    found: NDArray[np.float64] = factors["span"].astype(np.float64)
    arity = factors["scope_end"] - factors["scope_start"]
    for count in np.unique(arity[factors["form"] == TABLE]):
        same = np.flatnonzero((arity == count) & (factors["form"] == TABLE))
        slots = model.slots[factors["scope_start"][same][:, None] + np.arange(count)]
        axis = (slots["variable"] == owner[same][:, None]).argmax(axis=1)
        shapes = np.column_stack([graph.sizes[slots["variable"]], slots["key"], axis])
        kinds, which = np.unique(shapes, axis=0, return_inverse=True)
        for kind, shape in enumerate(kinds):
            own = same[which.ravel() == kind]
            sizes, steps, along = shape[:count], shape[count:-1], int(shape[-1])
            grids = np.ix_(*(np.arange(n) * k for n, k in zip(sizes, steps, strict=True)))
            cells = np.moveaxis(np.asarray(sum(grids)), along, 0).reshape(int(sizes[along]), -1)
            for some in np.array_split(own, 1 + len(own) * cells.size // _PIECE):
                table = model.table[factors["table_start"][some][:, None, None] + cells]
                ranges = np.ptp(table, axis=1).max(axis=1) * np.abs(factors["weight"][some])
                found[some] = np.minimum(found[some], ranges)
    return found
