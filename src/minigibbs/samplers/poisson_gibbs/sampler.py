"""Poisson-Gibbs with an exact heavy part: exact, and no slower for degree or domain size.

The basis is Zhang and De Sa 2019, "Poisson-Minibatching for Gibbs Sampling with Convergence Rate
Guarantees" (arXiv:1911.09771). The factors at a variable are split into a heavy part, evaluated
exactly, and a tail T with L_T = sum of its M. With theta > 0 an update draws Poisson((1 + theta) *
L_T) factors of the tail, each with probability M / L_T; keeps a draw with probability (theta * M +
phi(x)) / ((theta + 1) * M); and redraws the value with weight exp(heavy part) * product over kept
draws of (1 + phi(x with that value) / (theta * M)). It is Gibbs sampling on (x, s) with the counts
s redrawn each time, so the law is the model's, and nothing is ever rejected. Its spectral gap is
at least exp(-L_T / (4 theta + 1)) times plain Gibbs's; docs/flagship.md has the proof. With no
heavy part but the unary factors and theta = lambda / L it is the algorithm as published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.alias import alias_rows, draw_alias
from minigibbs.kernels.categorical import draw_linear
from minigibbs.kernels.energy import add_general
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ALIAS, DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson_beyond
from minigibbs.kernels.random import leftover, uniform
from minigibbs.kernels.touched import DENSE_DOMAIN, draw_touched, touch, touched_space
from minigibbs.samplers.base import Sampler, Workspace, far_share, mean_row, register
from minigibbs.samplers.bounds import check_one, check_settings
from minigibbs.samplers.gibbs.fields import FieldData, carried_fields, rare_changes
from minigibbs.samplers.gibbs.sampler import base_weights, gibbs_data, gibbs_operations, sum_unary
from minigibbs.samplers.poisson_gibbs.implicit import (
    draw_implicit,
    implicit_counts,
    implicit_data,
    implicit_log_slowdown,
)
from minigibbs.samplers.poisson_gibbs.large import large_data
from minigibbs.samplers.poisson_gibbs.small import (
    HEAVY,
    SmallData,
    heavy_pairs,
    lean_fits,
    load_base,
    load_heavy,
    place_heavy,
    place_parts,
    place_rates,
    small_data,
)
from minigibbs.samplers.poisson_gibbs.spins import SpinData, spin_data, spins_fit
from minigibbs.samplers.poisson_gibbs.split import Split, all_heavy, choose_split, worth_splitting
from minigibbs.samplers.poisson_gibbs.transition import poisson_gibbs_transition


@dataclass(frozen=True)
class PoissonGibbs(Sampler):
    """Poisson-minibatched Gibbs with an exact heavy part: the default sampler.

    Its law is exactly the model's. Left alone, it splits each variable's factors so that time per
    effective sample is least; where no factor is worth drawing, it is plain Gibbs.

    Parameters
    ----------
    slowdown
        A guarantee: the spectral gap is at least 1/slowdown of plain Gibbs's. The default asks
        for none, and takes what is fastest; `describe` says what it guarantees all the same.
    theta
        The weight of the auxiliary draws; larger is closer to plain Gibbs and draws more.
    heavy
        How many of each variable's strongest factors to evaluate exactly, beside its unary ones.
        0 gives Poisson-Gibbs as published, with theta = lambda / L; the largest degree gives plain
        Gibbs.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.PoissonGibbs(slowdown=1.01).describe(mg.models.potts_rbf()))
    Poisson-Gibbs: exact; 7.41 of 396.7 factors a variable evaluated, 0.121 drawn an update.
    Guaranteed: at most 1.01 times slower to converge than Gibbs.
    """

    slowdown: float | None = None
    theta: float | None = None
    heavy: int | None = None
    name = "poisson-gibbs"
    draws_implicit = True

    def __post_init__(self) -> None:
        check_settings("PoissonGibbs", slowdown=self.slowdown)
        check_one("PoissonGibbs", self.theta, self.slowdown)
        if self.theta is not None and not (math.isfinite(self.theta) and self.theta > 0):
            raise SampleError(f"PoissonGibbs: theta must be above 0, got {self.theta!r}")
        whole = isinstance(self.heavy, int | np.integer) and not isinstance(self.heavy, bool)
        if self.heavy is not None and not (whole and self.heavy >= 0):
            raise SampleError(
                f"PoissonGibbs: heavy must be an integer of at least 0, got {self.heavy!r}"
            )

    def split(self, graph: FactorGraph, lanes: int = 1) -> Split:
        """Which factors are heavy, and how the rest is drawn; all heavy where that hardly gains."""
        split = choose_split(graph, self.slowdown, self.theta, self.heavy, lanes)
        if self == PoissonGibbs() and split.tail.any():
            alone = lanes == 1
            rate = rare_changes(graph, FieldData(sum_unary(graph.packed))) if alone else None
            if not worth_splitting(graph, split, rate, lanes):
                return all_heavy(graph)
        return split

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare heavy lists and alias tables; plain Gibbs's data where all is heavy."""
        split = self.split(graph, lanes)
        implicit = implicit_data(graph, self.slowdown, self.theta, self.heavy)
        if graph.implicit is None and not split.tail.any():
            return gibbs_data(graph, None if lanes == 1 else False)
        if not lean_fits(graph, split):
            return poisson_gibbs_data(graph, split, implicit)
        if spins_fit(graph):
            return spin_data(graph, split)
        small = graph.sizes.max() <= DENSE_DOMAIN
        return small_data(graph, split) if small else large_data(graph, split)

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Room for the touched values; for the fields where it is plain Gibbs with them."""
        if isinstance(data, SmallData | SpinData):
            return Workspace(weights=1)
        if isinstance(data, FieldData):
            return Workspace(carried=carried_fields(graph))
        return Workspace(*touched_space(int(graph.sizes.max())))

    def operations(self, graph: FactorGraph) -> dict[str, float]:
        """The heavy part, the draws, and all values where domains are small."""
        if graph.implicit is not None:
            return self._implicit_operations(graph)
        split, row = self.split(graph), mean_row(graph)
        if not split.tail.any():
            return gibbs_operations(graph, gibbs_data(graph))
        free = max(graph.stats.variables, 1)
        heavy, draws = self._counts(graph, split)
        light = max(row["pairs"] + row["general"], 1e-300)
        spins, share = spins_fit(graph), row["general"] / light
        pair = "odds" if spins else "heavy" if row["values"] <= DENSE_DOMAIN else "touch"
        slots = row["slots"] / max(row["general"], 1e-300)
        visits = heavy * share + 2.0 * draws * share
        size = 16 * len(split.heavy) + 56 * len(graph.packed.factors)
        far = (2.0 + 4.0 * share) * draws * far_share(size)
        return {
            "update": 1.0,
            pair: heavy * (1.0 - share),
            "value": 0.0 if spins or row["values"] > DENSE_DOMAIN else row["values"],
            "draw": draws,
            "slot": visits * slots,
            "cell": visits * row["values"],
            "far": far + 4.0 * far_share(100 * free),
        }

    def _counts(self, graph: FactorGraph, split: Split) -> tuple[float, float]:
        """Mean heavy factors (unary ones left out) and draws of an update."""
        rows, free = graph.packed.rows, max(graph.stats.variables, 1)
        unary = float((rows["end"] - rows["unary_begin"]).sum())
        heavy = (float(np.count_nonzero(split.heavy)) - unary) / free
        return heavy, float(((1 + split.theta) * split.tail)[graph.evidence < 0].sum()) / free

    def _implicit_operations(self, graph: FactorGraph) -> dict[str, float]:
        data = implicit_data(graph, self.slowdown, self.theta, self.heavy)
        heavy, draws = implicit_counts(data)
        values = float(graph.sizes.mean())
        return {
            "update": 1.0,
            "touch": 2.0 * heavy,
            "value": 0.0 if values > DENSE_DOMAIN else values,
            "draw": 2.0 * draws,
            "far": 3.0 * far_share(len(graph)),
        }

    def guaranteed_slowdown(self, graph: FactorGraph) -> float | None:
        """The bound of docs/flagship.md at the worst variable."""
        log = self.split(graph).log_slowdown
        if graph.implicit is not None:  # both tails slow the chain down
            data = implicit_data(graph, self.slowdown, self.theta, self.heavy)
            log += implicit_log_slowdown(data)
        return math.exp(min(log, 700.0))

    def reason(self, graph: FactorGraph) -> str:
        """Say why it splits as it does."""
        stats = graph.stats
        if graph.implicit is not None:
            return "the factors are never stored, and it alone can do without them."
        split = self.split(graph)
        heavy, draws = self._counts(graph, split)
        degree = mean_row(graph)["pairs"] + mean_row(graph)["general"]
        if split.tail.any():
            return (
                f"of {degree:,.4g} factors a variable it evaluates {heavy:.3g} and draws "
                f"{draws:.3g} an update."
            )
        if degree < 16:
            return (
                f"with {degree:.3g} factors a variable it is plain Gibbs; there is little to save."
            )
        return (
            f"the factors are strong for their number (L = {stats.local_energy:.3g}, Delta = "
            f"{stats.max_degree:,}): drawing some would need more draws than evaluating all, so it "
            "is plain Gibbs."
        )

    def describe(self, graph: FactorGraph) -> str:
        """Say the split, the cost and the bound."""
        if graph.implicit is not None:
            data = implicit_data(graph, self.slowdown, self.theta, self.heavy)
            heavy, draws = implicit_counts(data)
            return (
                f"Poisson-Gibbs: exact; of factors that are never stored {heavy:.3g} a variable "
                f"evaluated, {draws:.3g} drawn an update. Guaranteed: at most "
                f"{self.guaranteed_slowdown(graph):.3g} times slower to converge than Gibbs."
            )
        split = self.split(graph)
        free = max(int(np.count_nonzero(graph.evidence < 0)), 1)
        heavy = float(split.heavy.sum()) / free
        if not split.tail.any():
            return f"Poisson-Gibbs: exact; all {heavy:.3g} factors a variable heavy: plain Gibbs."
        draws = float(((1 + split.theta) * split.tail).sum()) / free
        return (
            f"Poisson-Gibbs: exact; {heavy:.3g} of {len(split.heavy) / free:.4g} factors a "
            f"variable evaluated, {draws:.3g} drawn an update. Guaranteed: at most "
            f"{math.exp(min(split.log_slowdown, 700)):.3g} times slower to converge than Gibbs."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Gibbs sampling on (state, counts)."""
        return poisson_gibbs_transition(everything, self.split(everything.graph))


# One variable of Poisson-Gibbs.
PART = np.dtype(
    [
        ("heavy_start", np.int64),  # its heavy pairs
        ("general_start", np.int64),  # its heavy general factors
        ("tail_start", np.int64),  # its slots of the alias table
        ("heavy", np.int32),  # how many of each
        ("general", np.int32),
        ("tail", np.int32),
        ("dense", np.int32),  # whether to look at every value
        ("rate", np.float64),  # (1 + theta) * L_T
        ("none", np.float64),  # exp(-rate)
        ("some", np.float64),  # exp(rate)
        ("theta", np.float64),
        ("keep", np.float64),  # theta / (1 + theta): how often a draw at its minimum is kept
        ("gain", np.float64),  # 1 / keep: what a pair that is kept multiplies a weight by
    ],
    align=True,
)


class PoissonGibbsData(NamedTuple):
    """Heavy parts, tails, and the unary factors as base weights."""

    parts: NDArray[np.void]  # [n] of PART
    heavy: NDArray[np.void]  # of HEAVY
    general: NDArray[np.int64]  # places of heavy general factors
    tail: NDArray[np.void]  # of ALIAS, over places
    base: NDArray[np.float64]  # [sum of sizes] unary weights that sum to the size, or empty
    alias: NDArray[np.void]  # of ALIAS, over values; as long as `base`
    implicit: Any  # see samplers.implicit


def poisson_gibbs_data(graph: FactorGraph, split: Split, implicit: Any) -> PoissonGibbsData:
    """Lay out heavy pairs, heavy general factors and alias tables, variable by variable."""
    model, rows = graph.packed, graph.packed.rows
    if rows.strides == (0,):
        return _nothing_stored(len(rows), int(rows[0]["domain"]), implicit)
    spans = entry_spans(model)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(spans))
    pair, unary = place < rows["pair_end"][owner], place >= rows["unary_begin"][owner]
    heavy_pair, heavy_general = split.heavy & pair, split.heavy & ~pair & ~unary
    parts = np.zeros(len(rows), dtype=PART)
    place_parts(parts, owner, general=heavy_general, tail=~split.heavy)
    places = place_heavy(parts, owner[heavy_pair])
    place_rates(parts, split)
    parts["theta"] = split.theta
    has_general = np.bincount(owner[~pair & ~unary], minlength=len(rows)) > 0
    parts["dense"] = has_general | (rows["domain"] <= DENSE_DOMAIN)
    base, alias = base_weights(model)
    return PoissonGibbsData(
        parts=parts,
        heavy=heavy_pairs(graph, heavy_pair, places),
        general=np.flatnonzero(heavy_general),
        tail=alias_rows(
            parts["tail_start"],
            parts["tail_start"] + parts["tail"],
            np.flatnonzero(~split.heavy),
            spans,
        ),
        base=base,
        alias=alias,
        implicit=implicit,
    )


def _nothing_stored(variables: int, size: int, implicit: Any) -> PoissonGibbsData:
    """Without stored factors one part serves all variables."""
    part = np.zeros(1, dtype=PART)
    part["theta"], part["none"], part["some"] = 1.0, 1.0, 1.0  # no draws
    part["dense"] = size <= DENSE_DOMAIN
    return PoissonGibbsData(
        parts=np.broadcast_to(part, variables),
        heavy=np.empty(0, HEAVY),
        general=np.empty(0, np.int64),
        tail=np.empty(0, ALIAS),
        base=np.empty(0),
        alias=np.empty(0, ALIAS),
        implicit=implicit,
    )


@kernel
def _draw_general(part, model, chain, i, place, size):
    """Keep a drawn general factor or not; if kept, multiply every value's weight."""
    factor, weights = model.factors[model.target[place]], chain.weights
    values = weights[size:]
    for value in range(size):
        values[value] = -factor.low
    add_general(model, chain.x, i, place, 1.0, values)
    share = values[chain.x[i]] / factor.span
    if uniform(chain.stream) * (1.0 + part.theta) < part.theta + share:
        for value in range(size):
            weights[value] *= 1.0 + values[value] / (part.theta * factor.span)


@kernel
def _draw_tail(data, part, model, chain, i, dense, u, touched):
    """Steps 1 to 3: draw factors of the tail, keep some, and multiply the values they favour.

    Returns how many values are touched.
    """
    row, x = model.rows[i], chain.x
    draws = poisson_beyond(u, part.rate, part.none, chain.stream)
    for _ in range(draws):
        first = part.tail_start
        place = draw_alias(data.tail, first, first + part.tail, chain.stream)
        if place >= row.pair_end:
            _draw_general(part, model, chain, i, place, row.domain)
            continue
        other, attracts = x[model.target[place]], model.weight[place] > 0.0
        if (other == x[i]) == attracts or uniform(chain.stream) < part.keep:
            factor = part.gain if attracts else part.keep
            touched = touch(chain, dense, row.domain, other, factor, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def _load_dense(data, part, model, chain, i):
    """Set the weight of every value to its base weight times the heavy general factors."""
    row, weights = model.rows[i], chain.weights
    if part.general == 0:
        load_base(data.base, model.first[i], row.domain, weights)
        return
    for value in range(row.domain):
        weights[value] = 0.0
    for k in range(part.general):
        add_general(model, chain.x, i, data.general[part.general_start + k], 1.0, weights)
    top = weights[0]
    for value in range(1, row.domain):
        top = max(top, weights[value])
    for value in range(row.domain):
        own = data.base[model.first[i] + value] if len(data.base) else 1.0
        weights[value] = own * math.exp(weights[value] - top)


@kernel
def poisson_gibbs_update(data, model, chain, i):
    """Zhang and De Sa's Algorithm 2 with an exact heavy part; see the top of this file."""
    part, row, x = data.parts[i], model.rows[i], chain.x
    dense, touched = part.dense != 0, 0
    if dense:
        _load_dense(data, part, model, chain, i)
        load_heavy(data.heavy, part.heavy_start, part.heavy, chain)
    else:
        for k in range(part.heavy):
            pair = data.heavy[part.heavy_start + k]
            touched = touch(chain, False, row.domain, x[pair.target], pair.factor, touched)
    chain.tally[EVALUATIONS] += part.heavy + part.general
    u = uniform(chain.stream)
    if u >= part.none:
        touched = _draw_tail(data, part, model, chain, i, dense, u, touched)
        u = uniform(chain.stream)
    else:
        u = leftover(u, part.none, part.some, chain.stream)
    touched = draw_implicit(data.implicit, chain, i, dense, row.domain, touched)
    if dense:
        return draw_linear(chain.weights, row.domain, u)
    first, size = model.first[i], row.domain
    return draw_touched(data.base, data.alias, first, size, chain, touched, u, True, False)


register(PoissonGibbsData, poisson_gibbs_update)
