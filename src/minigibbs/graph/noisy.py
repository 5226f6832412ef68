"""Noisy-OR and noisy-MAX: many causes of one effect, without a table over all causes.

The effect is the maximum of one hidden value per cause. A chain of partial maxima, one variable per
cause except the last, converts it to tables of three variables. This is exact, and linear in the
number of causes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.table import Table
from minigibbs.graph.factors.unary import Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.boundary import checked

_TOLERANCE = 1e-6  # of the sum of a row of probabilities


@checked(GraphError)
@dataclass(frozen=True, eq=False)
class NoisyMax:
    """The conditional probabilities of an effect given many causes: noisy-OR or noisy-MAX.

    Each cause independently draws a value, given its own value. The effect is the largest of these
    values and of a leak.

    Parameters
    ----------
    effect : int or str
        The variable, by number or name. Its values are ordered: 0 is the absence of an effect.
    causes : mapping
        By variable: the table [value of the cause, drawn value] of the probabilities of drawn
        values. For two-valued variables one number is sufficient: the probability that the cause,
        if it is 1, draws 1 (noisy-OR).
    leak : float or array-like, default 0.0
        The probabilities of the values of the effect without any cause, or for a two-valued effect
        the probability of 1.

    Attributes
    ----------
    effect
        The variable.
    causes
        The probabilities, by cause.
    leak
        The probabilities without any cause.

    Examples
    --------
    >>> import minigibbs as mg
    >>> NoisyMax("fever", {"flu": 0.9, "cold": 0.3}, leak=0.01).causes["flu"]
    0.9
    """

    effect: int | str
    causes: Mapping[int | str, ArrayLike]
    leak: ArrayLike = 0.0


@checked(GraphError)
def add_noisy_max(graph: FactorGraph, rules: Sequence[NoisyMax]) -> FactorGraph:
    """Add noisy-OR and noisy-MAX factors to a graph, with the hidden variables that they need.

    Parameters
    ----------
    graph : FactorGraph
        The other factors, such as the prior probabilities of the causes.
    rules : sequence of NoisyMax
        One rule per effect.

    Returns
    -------
    FactorGraph
        The graph with one more variable for each cause of a rule except the last. They follow the
        others and represent partial maxima. `mg.infer` is exact if the treewidth is low.
        Chains need `mg.BlockGibbs(width=2)`, which redraws the partial maxima of a rule jointly.
        They depend on each other through hard constraints, and chains that update one variable or
        one tree at a time do not mix.

    Raises
    ------
    GraphError
        If a variable is unknown, or probabilities do not sum to 1.

    Examples
    --------
    >>> import minigibbs as mg
    >>> names = ["flu", "cold", "fever"]
    >>> prior = mg.Unary.from_probabilities([0, 1], [[0.95, 0.05], [0.8, 0.2]])
    >>> graph = mg.FactorGraph([2, 2, 2], [prior], names)
    >>> rule = mg.NoisyMax("fever", {"flu": 0.9, "cold": 0.3}, leak=0.01)
    >>> sick = mg.add_noisy_max(graph, [rule]).condition({"fever": 1})
    >>> f"{mg.infer(sick, progress=False).marginal('flu').probability[1]:.3f}"
    '0.408'
    """
    domains, sizes, names = graph.domains, graph.sizes.tolist(), []
    groups = list(graph.factors)
    members: dict[tuple[int, ...], list[tuple[list[int], NDArray[np.float64]]]] = defaultdict(list)
    for rule in rules:
        effect = domains.index(rule.effect)
        size = sizes[effect]
        causes = {domains.index(cause): table for cause, table in rule.causes.items()}
        if effect in causes or len(causes) < len(rule.causes):
            raise GraphError(f"{domains.describe(effect)}: its causes must differ from it")
        own = f"{domains.describe(effect)}: the leak"
        distribution = _rows(rule.leak, 1, size, own)[0]
        before: int | None = None
        for count, (cause, given) in enumerate(causes.items()):
            where = f"{domains.describe(effect)}: cause {domains.name(cause)!r}"
            table = _rows(given, sizes[cause], size, where)
            steps = np.eye(size) if before is not None else distribution[None]  # [before, value]
            joint = _maxima(steps, table)
            if count == len(causes) - 1:
                after = effect
            else:
                after = len(sizes)
                sizes.append(size)
                names.append(f"{domains.name(effect)}, {count + 1} causes")
            scope = [cause, after] if before is None else [before, cause, after]
            tables = joint[0] if before is None else joint
            members[tables.shape].append((scope, tables))
            before = after
        if not causes:
            groups.append(Unary.from_probabilities([effect], distribution[None]))
    for some in members.values():
        scopes, stacked = zip(*some, strict=True)
        groups.append(Table.from_probabilities(scopes, np.stack(stacked)))
    return FactorGraph(
        _extended(domains, sizes, names),
        groups,
        evidence=np.append(graph.evidence, np.full(len(names), -1)),
    )


def _maxima(steps: NDArray[np.float64], table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute P(max(u, z) = v) as [before, cause, v], u ~ `steps` [before, u], z ~ `table`."""
    below = np.cumsum(steps, axis=1)[:, None] * np.cumsum(table, axis=1)[None]
    maxima: NDArray[np.float64] = np.diff(below, axis=2, prepend=0.0).clip(0.0)
    return maxima


def _rows(given: ArrayLike, rows: int, size: int, where: str) -> NDArray[np.float64]:
    """Read probabilities [row, value]; one number p means 0 and p for a two-valued effect."""
    rule = f"{where}: probabilities must be numbers from 0 to 1"
    table = as_array(given, "iufb", rule).astype(np.float64)
    outside = ~((table >= 0) & (table <= 1))
    if outside.any():
        raise GraphError(f"{rule}, got {table[outside][0]}")
    if table.ndim == 0 and size == 2 and rows in (1, 2):
        chance = np.array([0.0, float(table)])[-rows:]
        table = np.stack([1 - chance, chance], axis=1)
    elif table.ndim == 0 and table == 0 and rows == 1:  # no leak
        table = (np.arange(size) == 0).astype(np.float64)
    table = table[None] if table.ndim == 1 and rows == 1 else table
    if table.shape != (rows, size):
        raise GraphError(f"{where}: expected a table of shape {(rows, size)}, got {table.shape}")
    wrong = np.flatnonzero(np.abs(table.sum(axis=1) - 1) > _TOLERANCE)
    if len(wrong):
        raise GraphError(f"{where}: row {wrong[0]} must sum to 1, got {table[wrong[0]].sum():.6g}")
    return table


def _extended(domains: Domains, sizes: list[int], names: list[str]) -> Domains:
    """Append variables to domains."""
    if not names:
        return domains
    every = [domains.name(v) for v in range(len(domains))]
    taken = set(every)
    for name in names:
        while name in taken:
            name += "'"
        taken.add(name)
        every.append(name)
    given: list[Any] = list(sizes)
    for variable, grid in domains.grids.items():
        given[variable] = grid
    return Domains(given, every, dict(domains.labels))
