"""Conversion of a file's tables to a graph: impossible states are pruned, other zeros kept."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, GraphError
from minigibbs.formats.pruning import TableFactor, cut, prune
from minigibbs.graph.domains import PrunedDomains
from minigibbs.graph.factors import Factors, Table, Unary
from minigibbs.graph.factors.base import FLOOR_CHANGES
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.caller import warn


def check_floor(floor: float | None) -> None:
    """Raise an error if `floor` is not a probability to which zeros can be raised."""
    if floor is not None and not 0 < floor < math.inf:
        raise GraphError(f"floor must be a positive probability, got {floor}")


def assemble(
    path: str | os.PathLike[str],
    sizes: NDArray[np.int32],
    factors: Sequence[TableFactor],
    floor: float | None = None,
    names: Sequence[str] | None = None,
    labels: Mapping[int, Any] | None = None,
    kind: type[PrunedDomains] = PrunedDomains,
) -> FactorGraph:
    """Build the graph of some tables of probabilities; `domains.notes` lists changes.

    Parameters
    ----------
    path
        The file, for errors.
    sizes
        The domain sizes in the file.
    factors
        The tables over all states.
    floor
        Smaller probabilities, zeros included, are raised to it after the pruning, with a warning:
        this changes the model. By default zeros are kept.
    names, labels
        The file's names of variables and states.
    kind
        The class of the domains.
    """
    check_floor(floor)
    kept = prune(factors)
    domains = kind(sizes, {v: s for v, s in kept.items() if len(s)}, names, labels)
    for variable, states in kept.items():
        if not len(states):
            raise FormatError(
                f"{path}: every state has probability 0, since its factors leave no value to "
                f"{domains.describe(variable)}"
            )
    left = [cut(factor, kept) for factor in factors]
    notes = [_pruned_note(sizes, kept)] if kept else []
    for number, (scope, table) in enumerate(left):
        if not scope and not table.all():
            raise FormatError(
                f"{path}: every state has probability 0, since factor {number}, over no "
                "variables, is 0"
            )
    if floor is not None:
        raised = _floor_note(left, floor)
        if raised:
            warn(f"{path}: {raised[0]}: {FLOOR_CHANGES}")
        notes += raised
        left = [TableFactor(scope, np.maximum(table, floor)) for scope, table in left]
    domains.notes = tuple(notes)
    return FactorGraph(domains, group_tables(left))


def _pruned_note(sizes: NDArray[np.int32], kept: dict[int, NDArray[np.int64]]) -> str:
    lost = sum(int(sizes[variable]) - len(states) for variable, states in kept.items())
    return f"pruned {_several(lost, 'state')} of {_several(len(kept), 'variable')}: forbidden"


def _floor_note(factors: Sequence[TableFactor], floor: float) -> list[str]:
    raised = [count for _, table in factors if (count := int(np.count_nonzero(table < floor)))]
    if not raised:
        return []
    entries = f"{sum(raised):,} table entr{'y' if sum(raised) == 1 else 'ies'}"
    return [f"raised {entries} of {_several(len(raised), 'factor')} to {floor:g}"]


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def group_tables(factors: Sequence[TableFactor]) -> list[Factors]:
    """Combine factors of one shape in one group; the first group gets the constants."""
    members: dict[tuple[int, ...], list[TableFactor]] = defaultdict(list)
    for factor in factors:
        members[factor.table.shape].append(factor)
    constant = sum(math.log(factor.table) for factor in members.pop((), []))
    groups: list[Factors] = []
    for shape, some in members.items():
        scope = np.array([factor.scope for factor in some])
        with np.errstate(divide="ignore"):  # a zero is a log-potential of -inf
            values = np.log(np.stack([factor.table for factor in some]))
        if not groups:
            values[0] += constant
        groups.append(Unary(scope[:, 0], values) if len(shape) == 1 else Table(scope, values))
    return groups


def constant_group(path: str | os.PathLike[str], log_potential: float, size: int) -> list[Factors]:
    """Return a file's factors over no variables, as a factor of the first variable."""
    if log_potential == -math.inf:
        raise FormatError(f"{path}: every state is forbidden, by a cost over no variables")
    return [Unary([0], [[log_potential] * size])] if log_potential else []


STEEPEST = 700.0  # larger absolute log-potentials overflow or underflow exp() in double precision


def exponentials(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute exp(log-potentials), divided by the largest if they would overflow a double.

    Zeros remain zeros. Raises `OverflowError`, with the range, if even that does not suffice.
    """
    finite = values[values > -np.inf]
    if abs(finite).max(initial=0.0) <= STEEPEST:
        return np.exp(values)
    span = float(np.ptp(finite))
    if span > STEEPEST:
        raise OverflowError(f"log-potentials that span {span:.3g}, where {STEEPEST:g} would fit")
    shifted: NDArray[np.float64] = values - finite.max()
    return np.exp(shifted)
