"""Plain Gibbs sampling, Algorithm 1 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register
from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition, on_states
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.alias import alias_rows
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.energy import add_general, add_stored
from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.kernels.layout import ALIAS, EVALUATIONS, Model
from minigibbs.kernels.random import uniform
from minigibbs.kernels.touched import (
    DENSE_DOMAIN,
    LARGEST,
    draw_touched,
    forget,
    set_gain,
    touched_space,
)
from minigibbs.samplers.base import Sampler, choice_operations, mean_row
from minigibbs.samplers.gibbs.fields import (
    FieldData,
    change_rate,
    field_workspace,
    fields_are_defined,
    rare_changes,
)
from minigibbs.samplers.gibbs.spin_fields import SpinFieldData
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class Gibbs(Sampler):
    """Plain Gibbs sampling: a variable is redrawn from its conditional distribution.

    An update evaluates every factor at the variable. It costs O(Delta + D) for Potts, Ising and
    unary factors, each of which affects a single value; a table factor adds its D values. Delta is
    the number of factors at the variable, D the number of values.

    Parameters
    ----------
    textbook : bool, default False
        Whether to evaluate every factor again for every value, O(D * Delta), as Algorithm 1 is
        written. Draws are the same; this is the baseline of the paper.
    fields : bool, optional
        Whether to cache the local fields of every variable, so that factors are evaluated only
        after changes. By default a short pilot run decides. For pairs and unary factors over small
        domains.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.Gibbs().describe(mg.models.potts_rbf()))
    Gibbs: exact; an update evaluates up to 399 factors once for all values.
    """

    textbook: bool = False
    fields: bool | None = None
    name = "gibbs"
    takes_zeros = True

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Sum the unary factors of each variable, or prepare nothing for the textbook form."""
        if self.textbook:
            return TextbookData(int(graph.sizes.max()))
        if self.fields and not fields_are_defined(graph):
            raise SampleError(
                "Gibbs: fields can be cached only for pairs and unary factors without hard "
                f"constraints, over domains of at most {DENSE_DOMAIN} values; leave fields out"
            )
        return gibbs_data(graph, self.fields if lanes == 1 else bool(self.fields))

    def check_chromatic(self) -> None:
        """Refuse settings that update one variable after another."""
        if self.textbook or self.fields:
            raise SampleError(
                f'scan="chromatic" is for mg.Gibbs() without settings; got {self}, which updates '
                "one variable after another"
            )

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes of the touched values' scratch, or of the fields."""
        return field_workspace(graph) if isinstance(data, FieldData) else touched_workspace(graph)

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count every factor once, or in the textbook form once per value."""
        if self.textbook:
            row = mean_row(graph)
            pairs = row["pairs"] * row["values"]
            return {
                "update": 1.0,
                "textbook": pairs,
                **choice_operations(row["values"]),
                "general": row["general"],
                "slot": row["slots"],
                "cell": row["cells"],
                "far": row["far"],
            }
        return gibbs_operations(graph, self.prepare(graph, lanes))

    def guaranteed_slowdown(self, graph: FactorGraph, lanes: int = 1) -> float | None:
        """Return 1: other samplers are compared with plain Gibbs."""
        return 1.0

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the cost of an update."""
        stats = graph.stats
        if not graph.implicits and isinstance(self.prepare(graph, lanes), FieldData):
            return (
                f"Gibbs: exact; changes are rare, so local fields are cached: up to "
                f"{stats.max_degree:,} factors are evaluated per change, and none otherwise."
            )
        if self.textbook:
            count = f"{stats.max_degree:,} factors for each of up to {stats.max_domain:,} values"
        else:
            count = f"{stats.max_degree:,} factors once for all values"
        return f"Gibbs: exact; an update evaluates up to {count}."

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of Algorithm 1."""

        def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.tile(softmax(everything.log_potential[line]), (len(line), 1))

        return on_states(everything, conditionals, everything.distribution)


def touched_workspace(graph: FactorGraph) -> Workspace:
    """Return the sizes of the touched values' scratch, which large domains need."""
    return Workspace(*touched_space(int(graph.sizes.max())))


def gibbs_operations(graph: FactorGraph, data: Any) -> dict[str, float]:
    """Return the expected operations of plain Gibbs, with or without cached fields."""
    row = mean_row(graph)
    if isinstance(data, FieldData):
        rate = change_rate(graph, data)  # only changes evaluate factors
        writes, far = rate * row["pairs"], rate * row["far"]
        return {"update": 1.0, **choice_operations(row["values"]), "write": writes, "far": far}
    if isinstance(data, SpinFieldData):
        rate = change_rate(graph, FieldData(sum_unary(graph.packed)))
        told = 0.5 * rate * row["pairs"]  # one field per neighbor instead of two
        return {"update": 1.0, "choice": 1.0, "exp": 1.0, "write": told, "far": rate * row["far"]}
    large = graph.stats.max_domain > DENSE_DOMAIN and not row["general"]
    return {
        "update": 1.0,
        "touch" if large else "read": row["pairs"],
        **choice_operations(min(row["pairs"], row["values"]) if large else row["values"]),
        "general": row["general"],
        "slot": row["slots"],
        "cell": row["cells"],
        "far": row["far"],
    }


class GibbsData(NamedTuple):
    """The sums of the unary factors."""

    unary: NDArray[np.float64]  # [sum of sizes] log weights; empty if there are none
    base: NDArray[np.float64]  # the same for large domains: weights that sum to the size
    alias: NDArray[np.void]  # of ALIAS, over values; as long as `base`


class TextbookData(NamedTuple):
    """The size of the largest domain."""

    max_domain: int


def gibbs_data(graph: FactorGraph, fields: bool | None = None) -> GibbsData | FieldData:
    """Sum the unary factors; build alias tables of them for large domains."""
    model = graph.packed
    remembering = FieldData(sum_unary(model))
    if fields or (fields is None and rare_changes(graph, remembering) is not None):
        return remembering
    large = graph.stats.max_domain > DENSE_DOMAIN
    base, alias = base_weights(model) if large else (np.empty(0), np.empty(0, ALIAS))
    return GibbsData(sum_unary(model), base, alias)


def base_weights(model: Model) -> tuple[NDArray[np.float64], NDArray[np.void]]:
    """Normalize each variable's unary weights to sum to its size; return them and alias tables."""
    weights = sum_unary(model)
    if not len(weights):
        return weights, np.empty(0, ALIAS)
    size, first = model.rows["domain"], model.first
    owner = np.repeat(np.arange(len(size)), size)
    weights = np.exp(weights - np.maximum.reduceat(weights, first)[owner])
    weights *= (size / np.add.reduceat(weights, first))[owner]
    alias = alias_rows(first, first + size, np.arange(len(weights)), weights)
    for name in ("place", "other"):
        alias[name] -= first[owner]
    return weights, alias


def sum_unary(model: Model) -> NDArray[np.float64]:
    """Sum the unary factors of each variable and value; empty if there are none."""
    if not (model.rows["unary_begin"] < model.rows["end"]).any():
        return np.empty(0)
    unary = np.zeros(int(model.rows["domain"].sum()))
    _add_unary(model, unary)
    return unary


@entry
def _add_unary(model, unary):
    for i in range(len(model.rows)):
        row = model.rows[i]
        for place in range(row.unary_begin, row.end):
            # the state is never read: a unary factor has no other variable
            add_general(model, model.target, i, place, 1.0, unary[model.first[i] :])


@inlined
def load_unary(unary, first, size, weights):
    """Set the weights of a variable's values to its unary factors, or to 0."""
    for value in range(size):
        weights[value] = unary[first + value] if len(unary) else 0.0


@kernel
def _touch_all(model, chain, i):
    """Sum the pairs of each touched value; return the number of these and the largest sum."""
    row, sums, touched, top = model.rows[i], chain.carried, 0, 0.0
    for place in range(row.start, row.pair_end):
        value = chain.x[model.target[place]]
        if value < row.domain:
            touched = set_gain(chain, value, sums[value] + model.weight[place], touched)
            top = max(top, sums[value])
    return touched, top


@kernel
def gibbs_update(data, model, chain, i):
    """Update by Algorithm 1: rho(v) proportional to exp(sum of the factors at i with x(i) = v)."""
    row, first = model.rows[i], model.first[i]
    chain.tally[EVALUATIONS] += row.end - row.start
    if row.domain > DENSE_DOMAIN and row.pair_end == row.unary_begin:  # avoids work per value
        touched, top = _touch_all(model, chain, i)
        if top < LARGEST:
            u = uniform(chain.stream)
            base, alias, size = data.base, data.alias, row.domain
            value = draw_touched(base, alias, first, size, chain, touched, u, True, True)
            if value >= 0 and (len(base) == 0 or base[first + value] > 0.0):  # 0 due to rounding
                return value
        else:
            forget(chain, touched)
    load_unary(data.unary, first, row.domain, chain.weights)
    add_stored(model, chain.x, i, chain.weights)
    return draw_log(chain.weights, row.domain, chain.stream)


@kernel
def textbook_update(data, model, chain, i):
    """Update by Algorithm 1 as written: all factors at i are summed again for each value."""
    row = model.rows[i]
    for value in range(row.domain):
        chain.weights[value] = 0.0
        for place in range(row.start, row.pair_end):
            if chain.x[model.target[place]] == value:
                chain.weights[value] += model.weight[place]
    for place in range(row.pair_end, row.end):
        add_general(model, chain.x, i, place, 1.0, chain.weights)
    chain.tally[EVALUATIONS] += row.domain * (row.end - row.start)
    return draw_log(chain.weights, row.domain, chain.stream)


register(GibbsData, gibbs_update)
register(TextbookData, textbook_update)
