"""The split: factors of a variable that Poisson-Gibbs evaluates exactly, and rates of the others.

The choice minimizes the predicted time per effective sample, by the costs of `samplers.costs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import energy_at, entry_spans
from minigibbs.kernels.layout import Model
from minigibbs.samplers.bounds import check_tail, tail_log_slowdown, tail_theta
from minigibbs.samplers.costs import COSTS, LANE_DRAW
from minigibbs.samplers.poisson_gibbs.groups import ImplicitSplit, Wish, split_implicit
from minigibbs.samplers.poisson_gibbs.groups.base import INSTEAD
from minigibbs.samplers.poisson_gibbs.ranges import conditional_ranges
from minigibbs.samplers.poisson_gibbs.theta import (
    DRAW,
    LARGEST_EXPONENT,
    QUIETLY,
    TAIL,
    THETAS,
    UPDATE,
    best_theta,
    stickiness,
    tail_range,
)
from minigibbs.system.watch import current

FAR_DRAW = DRAW + COSTS["far"]  # if the alias tables do not fit into the cache
CACHE = 250_000  # slots of alias tables that fit
MARGIN = 0.75  # plain Gibbs is replaced only for a clear gain

_BINS = 64  # distinguished powers of two of M, from 2**-52
_LEAST_POWER = 12 - _BINS
_PIECE = 1 << 20  # combinations of row, cut and theta evaluated per batch
_HARD = 2.0**100  # replaces the infinite M of a factor with zeros, which is never minibatched
_HALVINGS = 30  # of the interval in which theta is searched
_LARGEST = 500.0  # a larger local energy makes plain Gibbs the default


@dataclass(frozen=True, eq=False)
class Split:
    """The heavy entries, and theta and L_T of each variable."""

    heavy: NDArray[np.bool_]  # [E] always true for unary entries and factors with zeros
    theta: NDArray[np.float64]  # [n]
    tail: NDArray[np.float64]  # [n] L_T
    exact: NDArray[np.float64]  # [n] the sum of M over the evaluated factors; infinite with zeros
    log_bound: NDArray[np.float64]  # [n] on log(slowdown), from the explicit factors
    lanes: int = 1  # number of vectorized chains for which it was chosen
    implicits: tuple[ImplicitSplit, ...] = ()  # of the graph's implicit groups

    @property
    def log_slowdown(self) -> float:
        """The bound on log(slowdown) at the worst variable; explicit and implicit tails add up."""
        return float(self.log_bound.max(initial=0.0)) + sum(
            group.log_slowdown for group in self.implicits
        )

    @property
    def log_range(self) -> float:
        """The largest absolute log weight of a value, at the worst variable.

        An update exceeds it with probability below 1e-16.
        """
        if not len(self.heavy):  # there are no explicit factors
            return self.implicit_range
        return float((self.exact + self.tail_range).max()) + self.implicit_range

    @property
    def tail_range(self) -> NDArray[np.float64]:
        """[n] The same for the minibatched explicit factors of each variable."""
        stored: NDArray[np.float64] = tail_range(self.tail, self.theta)
        return stored

    @property
    def implicit_range(self) -> float:
        """The same for the implicit groups."""
        return sum(group.log_range for group in self.implicits)


def waits(rate: Any, lanes: int) -> Any:
    """Approximate the expected number of draws of the slowest of `lanes` chains."""
    if lanes == 1:
        return rate
    return np.minimum(lanes * rate, rate + 2.0 * np.sqrt(rate) + 1.0)


def choose_split(
    graph: FactorGraph,
    slowdown: float | None,
    theta: float | None,
    heavy: int | None,
    lanes: int = 1,
    measured: float | None = None,
) -> Split:
    """Split every variable's factors: by cost, under a guarantee, or by given settings.

    `lanes` chains are vectorized: when one draws from its tail, all the others wait. `measured` is
    the graph's own stickiness, if known.
    """
    model = graph.packed
    rows = model.rows
    if slowdown is not None:  # logarithms of slowdowns add up, so each tail gets its share
        tails = len(graph.implicits) + bool((rows["start"] < rows["unary_begin"]).any())
        slowdown = slowdown ** (1.0 / max(tails, 1))
    wish = Wish(slowdown, theta, heavy, int(graph.sizes.max()), measured)
    sticky = wish.stickiness
    implicits = tuple(split_implicit(group, wish) for group in graph.implicits)
    for group in implicits:
        check_tail("PoissonGibbs", group.tail, group.theta, INSTEAD)
    if not len(model.weight):  # no explicit factors
        none = np.broadcast_to(np.zeros(1), len(rows))
        ones = np.broadcast_to(np.ones(1), len(rows))
        return Split(np.empty(0, dtype=bool), ones, none, none, none, lanes, implicits)
    if heavy is None and _cheap_rows(model):
        others = graph.stencils or graph.implicits  # `local_energies` includes them
        local = energy_at(model) if others else graph.local_energies
        chosen = np.full(len(rows), _theta_without_tail(theta, local))
        none = np.zeros(len(rows))
        every = np.broadcast_to(np.True_, len(model.weight))
        return Split(every, chosen, none, local, none, lanes, implicits)
    spans = entry_spans(model)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    unary = np.arange(len(spans)) >= rows["unary_begin"][owner]
    hard = np.isinf(spans)  # factors with hard constraints, which are always evaluated
    if hard.any():
        soft = np.where(hard, 0.0, spans)
        local = np.bincount(owner, soft, minlength=len(rows)).astype(np.float64)
        spans = np.where(hard, _HARD, spans)
    else:
        local = energy_at(model)
    tail, chosen = np.zeros(len(rows)), np.full(len(rows), 1.0 if theta is None else theta)
    current().check_droppable()
    if heavy is not None:
        mask = _strongest(spans, unary, owner, heavy) | hard
        tail = np.bincount(owner[~mask], spans[~mask], minlength=len(rows)).astype(np.float64)
    else:
        limit = np.zeros(len(rows))
        if local.max() <= _LARGEST:
            thetas = THETAS if theta is None else np.array([float(theta)])
            limit, chosen, tail = _choose(model, spans, thetas, slowdown, lanes, sticky)
        mask = unary | hard | (spans >= limit[owner])
    if heavy is not None and theta is None:
        chosen = best_theta(tail, slowdown, DRAW, sticky)
    current().check_droppable()
    swing = _Swing.of(graph, ~mask & ~unary, owner, spans)
    if swing is not None and slowdown is not None and theta is None:
        widest = tail_theta(tail, slowdown)
        least = np.maximum(swing.theta(slowdown, widest), best_theta(tail, None, DRAW, sticky))
        chosen = np.where(chosen <= widest * (1 + 1e-9), np.minimum(chosen, least), chosen)
    worst = int(((1 + chosen) * tail).argmax())
    instead = "use the default split, or evaluate more factors exactly"
    check_tail("PoissonGibbs", float(tail[worst]), float(chosen[worst]), instead)
    exact = np.bincount(owner[mask], spans[mask], minlength=len(rows)).astype(np.float64)
    exact[owner[hard]] = math.inf
    log_bound = tail_log_slowdown(tail, chosen) if swing is None else swing.log_slowdown(chosen)
    return Split(mask, chosen, tail, exact, log_bound, lanes, implicits)


def _cheap_rows(model: Model) -> bool:
    """Return whether every variable has so few pairs, and nothing else, that no tail can pay."""
    rows = model.rows
    if len(model.factors):
        return False
    return COSTS["heavy"] * float((rows["end"] - rows["start"]).max()) <= TAIL


def _theta_without_tail(theta: float | None, local: NDArray[np.float64]) -> float:
    """Return the theta of variables that draw nothing, as `_choose` gives it."""
    if theta is not None:
        return theta
    return float(THETAS[0]) if local.max() <= _LARGEST else 1.0


class _Swing(NamedTuple):
    """The conditional ranges of variables' tails: part (f) of docs/theory.md."""

    owner: NDArray[Any]  # [entry of a tail] its variable
    spans: NDArray[np.float64]  # M
    ratio: NDArray[np.float64]  # the conditional range over M
    rows: int

    @staticmethod
    def of(
        graph: FactorGraph,
        light: NDArray[np.bool_],
        owner: NDArray[Any],
        spans: NDArray[np.float64],
    ) -> _Swing | None:
        """Compute the ranges; None if no table is minibatched, since pairs have the range M."""
        rows, places = graph.packed.rows, np.flatnonzero(light & (spans > 0))
        general = places >= rows["pair_end"][owner[places]]
        if not general.any():
            return None
        own, ratio = owner[places], np.ones(len(places))
        entries = places[general]
        ratio[general] = conditional_ranges(graph, entries, owner[entries]) / spans[entries]
        return _Swing(own, spans[places], np.minimum(ratio, 1.0), len(rows))

    def log_slowdown(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bound on log(slowdown) [n]: the sum of (sqrt(theta M + m) - sqrt(theta M))^2."""
        own = theta[self.owner]
        terms = self.spans * (self.ratio / (np.sqrt(own + self.ratio) + np.sqrt(own))) ** 2
        return np.bincount(self.owner, terms, minlength=self.rows).astype(np.float64)

    def theta(self, slowdown: float, most: NDArray[np.float64]) -> NDArray[np.float64]:
        """Find the least theta [n] that keeps a slowdown by bisection, given one that does."""
        low, high, wanted = np.zeros_like(most), most.copy(), math.log(slowdown)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = self.log_slowdown(middle) <= wanted
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
        return high


def _draw_cost(slots: int, lanes: int) -> float:
    if lanes > 1:
        return LANE_DRAW
    return DRAW if slots < CACHE else FAR_DRAW


def all_heavy(split: Split) -> Split:
    """Return the split that evaluates all explicit factors."""
    ones, zeros = np.ones_like(split.theta), np.zeros_like(split.tail)
    exact = split.exact + split.tail
    return replace(
        split,
        heavy=np.ones_like(split.heavy),
        theta=ones,
        tail=zeros,
        exact=exact,
        log_bound=zeros,
    )


def worth_splitting(graph: FactorGraph, split: Split, change_rate: float | None) -> bool:
    """Return whether a split is predicted to beat plain Gibbs by more than the prediction's error.

    `change_rate` is the share of updates that change the value, if plain Gibbs would cache its
    fields and evaluate factors only after changes; else None.
    """
    model, free = graph.packed, max(int(np.count_nonzero(graph.evidence < 0)), 1)
    rows = model.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(owner))
    stored = place < rows["unary_begin"][owner]
    general = place >= rows["pair_end"][owner]
    cost = entry_costs(model, rows["domain"][owner], place, general)
    far = _draw_cost(len(owner), split.lanes)
    draws = waits((1 + split.theta) * split.tail, split.lanes).sum()
    draws *= far + (2 * COSTS["general"] if general.any() else 0)
    ours = (cost[split.heavy & stored].sum() + draws) / free + UPDATE + TAIL
    plain = cost[stored].sum() / free + UPDATE
    if change_rate is not None:
        plain = UPDATE + change_rate * COSTS["write"] / COSTS["heavy"] * cost[stored].sum() / free
    return bool(ours < MARGIN * plain)


def _strongest(
    spans: NDArray[np.float64], unary: NDArray[np.bool_], owner: NDArray[Any], heavy: int
) -> NDArray[np.bool_]:
    """Mark the `heavy` strongest entries of each row, and all unary entries."""
    order = np.lexsort((-np.where(unary, 0.0, spans), owner))
    first = np.searchsorted(owner, np.arange(owner[-1] + 1 if len(owner) else 0))
    mask = unary.copy()
    mask[order] |= np.arange(len(spans)) - first[owner] < heavy
    return mask


def _choose(
    model: Model,
    spans: NDArray[np.float64],
    thetas: NDArray[np.float64],
    slowdown: float | None,
    lanes: int,
    measured: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Choose the least heavy M, theta and L_T of each variable with the least time per sample.

    Rows are processed in batches, since every cut and theta is evaluated for each.
    """
    rows = model.rows
    limit, tail = np.zeros(len(rows)), np.zeros(len(rows))
    chosen = np.full(len(rows), thetas[0])
    power = np.clip(np.frexp(spans)[1] - _LEAST_POWER, 0, _BINS - 1)
    there = np.bincount(power, minlength=_BINS) > 0
    used, level = np.flatnonzero(there) + _LEAST_POWER, (there.cumsum() - 1)[power]
    step = max(1, _PIECE // (len(used) * len(thetas)))
    for first in range(0, len(rows), step):
        current().check_droppable()
        piece = slice(first, first + step)
        entries = slice(int(rows["start"][first]), int(rows["end"][piece][-1]))
        counts = _count_powers(model, piece, entries, spans, level, len(used), lanes)
        gains = np.flatnonzero(counts[0].sum(axis=1) > TAIL)  # only these tails can save time
        cut, theta, energy = _best_cuts(counts[:, gains], thetas, slowdown, lanes, measured)
        gains += first
        limit[gains] = np.where(cut > 0, np.ldexp(1.0, used[cut - 1]), 0.0)
        chosen[gains], tail[gains] = theta, energy
    return limit, chosen, tail


def _count_powers(
    model: Model,
    piece: slice,
    entries: slice,
    spans: NDArray[np.float64],
    level: NDArray[np.intp],
    levels: int,
    lanes: int,
) -> NDArray[np.float64]:
    """Sum by [3, row, level] the time to evaluate the entries, their energy, and draw costs.

    Unary entries are excluded, since they are always heavy.
    """
    rows, per_draw = model.rows[piece], _draw_cost(len(spans), lanes)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(entries.start, entries.stop)
    stored = place < rows["unary_begin"][owner]
    owner, place = owner[stored], place[stored]
    exact = entry_costs(model, rows["domain"][owner], place, place >= rows["pair_end"][owner])
    draw = np.where(place >= rows["pair_end"][owner], per_draw + 2.0 * exact, per_draw)
    key, shape = owner * levels + level[place], (len(rows), levels)
    columns = (exact, spans[place], spans[place] * draw)
    return np.stack([_sums(key, column, shape) for column in columns])


def _sums(
    key: NDArray[np.intp], values: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    sums: NDArray[Any] = np.bincount(key, values, minlength=shape[0] * shape[1])
    return sums.reshape(shape)


def entry_costs(
    model: Model, sizes: NDArray[Any], place: NDArray[np.intp], general: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the cost of evaluating each entry for all values of its variable."""
    cost = np.full(len(place), COSTS["heavy"])
    factors = model.factors[model.target[place[general]]]
    slots = factors["scope_end"] - factors["scope_start"]
    cost[general] = COSTS["general"] + COSTS["slot"] * slots + COSTS["cell"] * sizes[general]
    return cost


@QUIETLY
def _best_cuts(
    counts: NDArray[np.float64],
    thetas: NDArray[np.float64],
    slowdown: float | None,
    lanes: int,
    measured: float,
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return for each row the number of lowest levels in its tail, theta, and the tail's energy."""
    rows = counts.shape[1]
    below = np.concatenate([np.zeros((3, rows, 1)), counts.cumsum(axis=2)], axis=2)
    exact = counts[0].sum(axis=1)[:, None] - below[0]
    energy, draws = below[1], below[2]
    theta = np.broadcast_to(thetas, (rows, energy.shape[1], len(thetas)))
    has = energy > 0
    safe = np.where(has, energy, 1.0)
    if slowdown is not None:
        theta = np.maximum(tail_theta(energy, slowdown)[..., None], thetas)
    drawing = TAIL + waits((1.0 + theta) * safe[..., None], lanes) * (draws / safe)[..., None]
    time = UPDATE + exact[..., None] + np.where(has[..., None], drawing, 0.0)
    time *= np.exp(np.minimum(energy[..., None] * stickiness(theta, measured), LARGEST_EXPONENT))
    combinations = time.reshape(rows, time.shape[1] * time.shape[2])
    cut, which = np.divmod(combinations.argmin(axis=1), time.shape[2])
    row = np.arange(rows)
    return cut, theta[row, cut, which], energy[row, cut]
