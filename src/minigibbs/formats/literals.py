"""DeepDive's factors over literals, "this variable has that value", by function."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, TooLargeError
from minigibbs.graph.factors import Factors, Logical, Table, Unary
from minigibbs.graph.factors.base import FREE
from minigibbs.system import memory

IMPLY, OR, AND, EQUAL, IS_TRUE = 0, 1, 2, 3, 4
LINEAR, RATIO, LOGICAL, AND_CATEGORICAL, IMPLY_MLN = 7, 8, 9, 12, 13
_MOST_ENTRIES = 2**20  # of the table of a factor that is not a formula over two-valued variables
_MOST_ARITY = 32  # of the same
_ENTRY_BYTES = 32  # bytes per entry of a table while its graph is built


class Literals(NamedTuple):
    """Factors of one function and arity."""

    function: int
    variable: NDArray[np.int64]  # [factors, arity]
    value: NDArray[np.int64]  # [factors, arity] that makes a literal true; FREE if no value does
    weight: NDArray[np.float64]  # [factors] weight times feature
    number: NDArray[np.int64]  # [factors] index of the weight
    feature: NDArray[np.float64]  # [factors]


class Weights(NamedTuple):
    """The weights of a file. Unless all of them are fixed, they are parameters."""

    value: NDArray[np.float64]
    fixed: NDArray[np.bool_]

    def tied(self, some: Literals, times: float) -> dict[str, Any]:
        """Return the arguments for the weights of factors, multiplied by `times`."""
        if self.fixed.all():
            return {"weight": times * some.weight}
        count = int(some.number.max(initial=-1)) + 1
        return {
            "weight": self.value[:count],
            "name": "weights",
            "tied": some.number,
            "fixed": self.fixed[:count],
            "scale": times * some.feature,
        }


def groups(
    path: str | os.PathLike[str],
    factors: Sequence[Literals],
    sizes: NDArray[np.int32],
    weights: Weights,
) -> Iterator[Factors]:
    """Yield formulas over two-valued variables as `Logical` groups, and other factors as tables.

    Conjunctions over variables of any size are formulas, too, if their weights are learned.
    """
    tables: dict[tuple[int, ...], NDArray[np.float64]] = {}
    left = memory.available() // _ENTRY_BYTES
    for some in factors:
        plain = _plain(some, sizes)
        if plain.any():
            yield from _FORMULAS[some.function](_only(some, plain), weights)
        rest = _only(some, ~plain)
        learned = ~weights.fixed[rest.number]
        if some.function == AND_CATEGORICAL and learned.any():
            usable = learned & (rest.value != FREE).all(axis=1) & _distinct(rest)
            if usable.any():
                yield _conjunction(_only(rest, usable), weights)
            rest, learned = _only(rest, ~usable), learned[~usable]
        if learned.any():
            yield from _features(path, _only(rest, learned), sizes, weights)
        left = _add_tables(path, tables, _only(rest, ~learned), sizes, left)
    yield from _table_groups(tables)


def _distinct(some: Literals) -> NDArray[np.bool_]:
    """Mark the factors without repeated variables."""
    ordered = np.sort(some.variable, axis=1)
    distinct: NDArray[np.bool_] = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    return distinct


def _conjunction(some: Literals, weights: Weights) -> Logical:
    """Build conjunctions of literals with any value."""
    return Logical("and", some.variable, values=some.value, **weights.tied(some, 1.0))


def _features(
    path: str | os.PathLike[str], some: Literals, sizes: NDArray[np.int32], weights: Weights
) -> Iterator[Factors]:
    """Yield factors with learned weights that are not formulas, with one table each."""
    members: dict[tuple[int, ...], list[tuple[int, tuple[int, ...], NDArray[np.float64]]]]
    members = defaultdict(list)
    left = memory.available() // _ENTRY_BYTES
    for place, (row, values) in enumerate(
        zip(some.variable.tolist(), some.value.tolist(), strict=True)
    ):
        scope = tuple(dict.fromkeys(sorted(row)))
        shape = tuple(int(sizes[variable]) for variable in scope)
        left -= _check_entries(path, scope, shape, left)
        table = _tabulated(some.function, row, values, scope, shape)
        members[shape].append((place, scope, table))
    for found in members.values():
        chosen = np.zeros(len(some.weight), dtype=np.bool_)
        chosen[[place for place, _, _ in found]] = True
        scopes, energy = [scope for _, scope, _ in found], np.stack([table for *_, table in found])
        yield Table(scopes, energy, learn="weight", **weights.tied(_only(some, chosen), 1.0))


def _tabulated(
    function: int,
    row: Sequence[int],
    values: Sequence[int],
    scope: Sequence[int],
    shape: Sequence[int],
) -> NDArray[np.float64]:
    """Tabulate a function over all states of its variables."""
    literals = []
    for variable, value in zip(row, values, strict=True):
        axis = list(scope).index(variable)
        holds = np.arange(shape[axis]) == value
        literals.append(holds.reshape([-1 if k == axis else 1 for k in range(len(scope))]))
    return np.broadcast_to(FUNCTIONS[function](literals), shape).astype(np.float64)


def _plain(some: Literals, sizes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Mark the factors that are formulas over distinct two-valued variables."""
    if some.function not in _FORMULAS:
        return np.zeros(len(some.weight), dtype=np.bool_)
    plain: NDArray[np.bool_] = (sizes[some.variable] == 2).all(axis=1)
    plain &= (some.value != FREE).all(axis=1)
    plain &= _distinct(some)
    return plain


def _only(some: Literals, chosen: NDArray[np.bool_]) -> Literals:
    return Literals(some.function, *(array[chosen] for array in some[1:]))  # type: ignore[arg-type]


def _formula(
    op: str, some: Literals, weights: Weights, times: float, negate_head: bool = False
) -> Logical:
    negated = some.value == 0
    if negate_head:
        negated[:, -1] = ~negated[:, -1]
    return Logical(op, some.variable, negated=negated, **weights.tied(some, times))


# A function with values +1 and -1 is twice a formula, plus a constant.
_FORMULAS: dict[int, Callable[[Literals, Weights], list[Factors]]] = {
    OR: lambda some, weights: [_formula("or", some, weights, 2.0)],
    AND: lambda some, weights: [_formula("and", some, weights, 2.0)],
    IS_TRUE: lambda some, weights: [_formula("and", some, weights, 2.0)],
    EQUAL: lambda some, weights: [_formula("equal", some, weights, 2.0)],
    AND_CATEGORICAL: lambda some, weights: [_formula("and", some, weights, 1.0)],
    IMPLY_MLN: lambda some, weights: [_formula("imply", some, weights, 1.0)],
    IMPLY: lambda some, weights: [
        _formula("and", some, weights, 1.0),
        _formula("and", some, weights, -1.0, negate_head=True),
    ],
}


def _all(literals: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    whole = np.array(True)
    for one in literals:
        whole = whole & one
    return whole


def _none(literals: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return _all([~one for one in literals])


def _sign(holds: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(holds, 1.0, -1.0)


def _implications(literals: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """Count the literals that imply the last one; without any, whether that one holds."""
    *body, head = literals
    if not body:
        return head.astype(np.float64)
    count = np.zeros(1)
    for one in body:
        count = count + (~one | head)
    return count


# The value of each function for the states of its literals, which are broadcastable arrays.
FUNCTIONS: dict[int, Callable[[Sequence[NDArray[np.bool_]]], NDArray[Any]]] = {
    IMPLY: lambda given: np.where(_all(given[:-1]), _sign(given[-1]), 0.0),
    OR: lambda given: _sign(~_none(given)),
    AND: lambda given: _sign(_all(given)),
    EQUAL: lambda given: _sign(_all(given) | _none(given)),
    IS_TRUE: lambda given: _sign(_all(given)),
    LINEAR: _implications,
    RATIO: lambda given: np.log2(1 + _implications(given)),
    LOGICAL: lambda given: np.where(_implications(given) > 0, 1.0, 0.0),
    AND_CATEGORICAL: lambda given: np.where(_all(given), 1.0, 0.0),
    IMPLY_MLN: lambda given: np.where(_all(given[:-1]) & ~given[-1], 0.0, 1.0),
}


def _add_tables(
    path: str | os.PathLike[str],
    tables: dict[tuple[int, ...], NDArray[np.float64]],
    some: Literals,
    sizes: NDArray[np.int32],
    left: int,
) -> int:
    """Add up factors in one table per set of variables; return the remaining entries."""
    for row, values, weight in zip(
        some.variable.tolist(), some.value.tolist(), some.weight.tolist(), strict=True
    ):
        scope = tuple(dict.fromkeys(sorted(row)))
        shape = [int(sizes[variable]) for variable in scope]
        if scope not in tables:
            left -= _check_entries(path, scope, shape, left)
            tables[scope] = np.zeros(shape)
        tables[scope] += weight * _tabulated(some.function, row, values, scope, shape)
    return left


def _check_entries(
    path: str | os.PathLike[str], scope: Sequence[int], shape: Sequence[int], left: int
) -> int:
    entries = math.prod(shape)
    if entries > _MOST_ENTRIES or len(scope) > _MOST_ARITY:
        raise FormatError(
            f"{path}: a factor over variables {list(scope)[:6]}: expected a table of at most "
            f"{_MOST_ENTRIES:,} entries over {_MOST_ARITY} variables, got {entries:.3g} over "
            f"{len(scope)}"
        )
    if entries > left:
        raise TooLargeError(f"{path}: its tables do not fit into memory; use a machine with more")
    return entries


def _table_groups(tables: Mapping[tuple[int, ...], NDArray[np.float64]]) -> Iterator[Factors]:
    """Yield one group per shape of tables."""
    members: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for scope, table in tables.items():
        members[table.shape].append(scope)
    for shape, scopes in members.items():
        energy = np.stack([tables[scope] for scope in scopes])
        yield Unary(np.array(scopes)[:, 0], energy) if len(shape) == 1 else Table(scopes, energy)
