"""Which factors of a variable Poisson-Gibbs evaluates exactly, and how it draws from the rest.

The choice minimizes predicted time per effective sample, by the costs of `samplers.costs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.complete import Complete
from minigibbs.graph.factors.implicit.copied import Copied
from minigibbs.graph.factors.implicit.kernel import Kernel
from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.graph.factors.implicit.points import Points
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import energy_at, entry_spans
from minigibbs.kernels.layout import Model
from minigibbs.samplers.bounds import check_tail, tail_log_slowdown, tail_theta
from minigibbs.samplers.costs import COSTS, LANE_DRAW
from minigibbs.samplers.poisson_gibbs.ranges import conditional_ranges

UPDATE = COSTS["update"] + COSTS["choice"]  # an update with nothing to look at
TAIL, DRAW = COSTS["tail"], COSTS["draw"]
FAR_DRAW = DRAW + COSTS["far"]  # where the alias tables do not fit into the cache
CACHE = 250_000  # slots of alias tables that do
INSTEAD = "weaken the couplings, or store them (graph.stored()) and use mg.Gibbs()"
MARGIN = 0.75  # plain Gibbs is left only for a gain that is sure
STICKINESS = 0.15  # see `stickiness`

_BINS = 64  # powers of two of M that are told apart, from 2**-52 on
_LEAST_POWER = 12 - _BINS
_PIECE = 1 << 20  # combinations of row, cut and theta tried in one go
_QUIETLY = np.errstate(over="ignore", divide="ignore")  # infinite times and thetas are not chosen
_HARD = 2.0**100  # stands for the infinite M of a factor with zeros: no tail is worth that
_HALVINGS = 30  # of the interval in which theta is searched
_LARGEST = 500.0  # beyond this local energy the default is plain Gibbs


@dataclass(frozen=True)
class ImplicitSplit:
    """How an implicit group is split: the same for all variables."""

    theta: float
    tail: float  # L_T where it is largest
    draws: float  # in an update, expected, averaged over the variables
    least: float = math.inf  # the least |weight| that is evaluated exactly
    heavy: int = 0  # pairs of a variable that are evaluated, at most
    exact: float = 0.0  # the energy of what is evaluated
    kept: float = 1.0  # the share of draws that are no phantoms: the rest thins away
    projected: int = 0  # numbers that a chain carries instead of all pairs, for low rank

    @property
    def log_slowdown(self) -> float:
        """The bound on log(slowdown) where the tail is largest."""
        return float(tail_log_slowdown(self.tail, self.theta))

    @property
    def log_range(self) -> float:
        """How far from 0 the logarithm of a value's weight can come, as `Split.log_range`."""
        return self.exact + float(_tail_range(self.tail, self.theta))


@dataclass(frozen=True, eq=False)
class Split:
    """For each entry whether it is heavy; for each variable theta and L_T."""

    heavy: NDArray[np.bool_]  # [E] unary entries and factors with zeros always are
    theta: NDArray[np.float64]  # [n]
    tail: NDArray[np.float64]  # [n] L_T
    exact: NDArray[np.float64]  # [n] the sum of M over what is evaluated; infinite with zeros
    log_bound: NDArray[np.float64]  # [n] on log(slowdown), of the explicit factors
    lanes: int = 1  # vectorized chains, for which it was chosen
    implicits: tuple[ImplicitSplit, ...] = ()  # of the graph's implicit groups

    @property
    def log_slowdown(self) -> float:
        """The bound on log(slowdown) at the worst variable; stored and implicit tails add up."""
        return float(self.log_bound.max(initial=0.0)) + sum(
            group.log_slowdown for group in self.implicits
        )

    @property
    def log_range(self) -> float:
        """How far from 0 the logarithm of a value's weight can come, at the worst variable.

        Beyond that with a chance below 1e-16 in an update.
        """
        if not len(self.heavy):  # nothing is stored
            return self.implicit_range
        return float((self.exact + self.tail_range).max()) + self.implicit_range

    @property
    def tail_range(self) -> NDArray[np.float64]:
        """[n] The same for what is drawn of each variable's stored factors."""
        stored: NDArray[np.float64] = _tail_range(self.tail, self.theta)
        return stored

    @property
    def implicit_range(self) -> float:
        """The same for the implicit groups."""
        return sum(group.log_range for group in self.implicits)


class Wish(NamedTuple):
    """What was asked of a split; and the largest domain."""

    slowdown: float | None
    theta: float | None
    heavy: int | None
    values: int
    measured: float | None = None  # stickiness, where it is known


def _tail_range(tail: Any, theta: Any) -> Any:
    """The most draws there can be, each of the largest effect; Poisson counts beyond: 1e-17."""
    rate = (1.0 + theta) * tail
    most = rate + 9.0 * np.sqrt(rate) + 12.0
    return np.where(rate > 0.0, most * np.log1p(1.0 / theta), 0.0)


def stickiness(theta: Any, measured: float = STICKINESS) -> Any:
    """Log slowdown per unit of L_T, as seen in practice; far below the bound.

    The counts favor the value they were drawn at: a factor at its maximum M adds M * ((1 + theta)
    * log(1 + 1/theta) - 1) to it in the mean. Measured slowdowns follow that at a fraction of the
    strength, since not all factors are at their maximum and not all values are in doubt: 0.06 on
    the paper's Potts model and a dense random field, 0.3 to 0.5 on the Curie-Weiss model.
    """
    return measured * ((1.0 + theta) * np.log1p(1.0 / theta) - 1.0)


def waits(rate: Any, lanes: int) -> Any:
    """The expected number of draws of the slowest of `lanes` chains, about."""
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
    """Split every variable's factors: by cost, under a guarantee, or as told.

    `lanes` chains are vectorized: when one draws from its tail, all the others wait. `measured` is
    the graph's own stickiness, where it is known.
    """
    model, spans = graph.packed, entry_spans(graph.packed)
    rows = model.rows
    if slowdown is not None:  # logarithms of slowdowns add up: each tail gets its share
        tails = len(graph.implicits) + bool((rows["start"] < rows["unary_begin"]).any())
        slowdown = slowdown ** (1.0 / max(tails, 1))
    wish = Wish(slowdown, theta, heavy, int(graph.sizes.max()), measured)
    sticky = STICKINESS if measured is None else measured
    implicits = tuple(_OF_GROUP[type(group)](group, wish) for group in graph.implicits)
    for group in implicits:
        check_tail("PoissonGibbs", group.tail, group.theta, INSTEAD)
    if not len(spans):  # all factors are implicit, or there are none
        none = np.broadcast_to(np.zeros(1), len(rows))
        ones = np.broadcast_to(np.ones(1), len(rows))
        return Split(np.empty(0, dtype=bool), ones, none, none, none, lanes, implicits)
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


class _Swing(NamedTuple):
    """The tails of variables by conditional ranges: part (f) of docs/theory.md."""

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
        """None where no table is minibatched: pairs have the ranges M."""
        rows, places = graph.packed.rows, np.flatnonzero(light & (spans > 0))
        general = places >= rows["pair_end"][owner[places]]
        if not general.any():
            return None
        own, ratio = owner[places], np.ones(len(places))
        entries = places[general]
        ratio[general] = conditional_ranges(graph, entries, owner[entries]) / spans[entries]
        return _Swing(own, spans[places], np.minimum(ratio, 1.0), len(rows))

    def log_slowdown(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] The bound on log(slowdown): the sum of (sqrt(theta M + m) - sqrt(theta M))^2."""
        own = theta[self.owner]
        terms = self.spans * (self.ratio / (np.sqrt(own + self.ratio) + np.sqrt(own))) ** 2
        return np.bincount(self.owner, terms, minlength=self.rows).astype(np.float64)

    def theta(self, slowdown: float, most: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] The least theta that keeps a slowdown, given one that does; by bisection."""
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
    """The split whose stored factors are all evaluated."""
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
    """Whether a split is predicted to beat plain Gibbs by more than the prediction may be off.

    `change_rate` is the share of updates that change something, where plain Gibbs would remember
    its fields and look at factors only then; None where it would not.
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
    """The `heavy` largest of each row, and all unary entries."""
    order = np.lexsort((-np.where(unary, 0.0, spans), owner))
    first = np.searchsorted(owner, np.arange(owner[-1] + 1 if len(owner) else 0))
    mask = unary.copy()
    mask[order] |= np.arange(len(spans)) - first[owner] < heavy
    return mask


@_QUIETLY
def best_theta(
    tail: NDArray[np.float64],
    slowdown: float | None,
    draw: float = DRAW,
    measured: float = STICKINESS,
) -> NDArray[np.float64]:
    """Theta for a given tail: what time suggests among those that keep the guarantee."""
    least = 0.0 if slowdown is None else tail_theta(tail, slowdown)
    grid = np.maximum(THETAS[:, None], np.broadcast_to(least, tail.shape))
    sticky = np.minimum(tail * stickiness(grid, measured), 700.0)
    time = (UPDATE + TAIL + draw * (1 + grid) * tail) * np.exp(sticky)
    best: NDArray[np.float64] = grid[time.argmin(axis=0), np.arange(len(tail))]
    return best


THETAS = np.geomspace(0.05, 50.0, 25)


CHUNK = 2**20  # weights looked at in one go: there may be tens of millions


def _by_exponent(weights: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Sums and counts of |weight| by power of two, and the power of the first."""
    lowest, bins = -1100, 2200
    sums, counts = np.zeros(bins), np.zeros(bins, dtype=np.int64)
    for first in range(0, len(weights), CHUNK):
        size = np.abs(weights[first : first + CHUNK])
        size = size[size > 0]
        exponent = np.frexp(size)[1] - lowest
        sums += np.bincount(exponent, size, minlength=bins)
        counts += np.bincount(exponent, minlength=bins)
    return sums, counts, lowest


@_QUIETLY
def split_weights(
    weights: NDArray[np.float64],
    scale: float,
    copies: int,
    slowdown: float | None,
    theta: float | None,
    heavy: int | None,
    measured: float = STICKINESS,
) -> tuple[float, float, float]:
    """(least heavy weight, theta, L_T) for one list of weights that serves all variables.

    Each weight stands for `copies` factors of energy scale * |weight|.
    """
    sums, counts, lowest = _by_exponent(weights)
    best: tuple[float, float, float, float] | None = None
    if heavy is not None:
        ordered = np.sort(np.abs(weights))[::-1]
        most = min(heavy // copies, len(ordered))
        cuts = [float(ordered[most - 1])] if most else [math.inf]
    else:
        used = np.flatnonzero(counts) + lowest
        cuts = [math.inf, *(math.ldexp(1.0, int(exponent) - 1) for exponent in used)]
    for cut in cuts:
        if heavy is None:  # cuts lie between the exponents
            light = math.frexp(cut)[1] - lowest if math.isfinite(cut) else len(counts)
            energy, exact = sums[:light].sum(), counts[light:].sum()
        else:
            energy, exact = sums.sum() - np.abs(weights[np.abs(weights) >= cut]).sum(), heavy
        energy = copies * scale * max(float(energy), 0.0)
        tail = np.array([energy])
        chosen = best_theta(tail, slowdown, DRAW, measured)[0] if theta is None else theta
        time = UPDATE + copies * COSTS["touch"] * float(exact)
        time += TAIL + DRAW * (1 + chosen) * energy
        time *= math.exp(min(energy * stickiness(chosen, measured), 700.0))
        if best is None or time < best[0]:
            best = (time, cut, float(chosen), energy)
    assert best is not None
    return best[1:]


def _stickiness(wish: Wish) -> float:
    return STICKINESS if wish.measured is None else wish.measured


def _split_kernel(group: Kernel, wish: Wish) -> ImplicitSplit:
    """Split the displacements like a variable's factors, once for all variables."""
    copies = 1 if group.periodic else 2  # the half table stands for d and -d
    scale = group.energy_per_weight
    least, chosen, tail = split_weights(group.half, scale, copies, *wish[:3], _stickiness(wish))
    strong = heavy_displacements(group, least)
    count, exact = copies * int(np.count_nonzero(strong)), copies * scale * _sum(group.half, strong)
    return ImplicitSplit(chosen, tail, (1 + chosen) * tail, least, count, exact)


def _sum(weights: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    return float(np.abs(weights[chosen]).sum())


def heavy_displacements(group: Kernel, least: float) -> NDArray[np.bool_]:
    """Which places of a kernel's half table are heavy."""
    return (group.half >= least) | (group.half <= -least)


def _split_complete(group: Complete, wish: Wish) -> ImplicitSplit:
    energy = group.energy_per_weight * abs(group.weight) * (group.variables - 1)
    return _all_drawn(energy, energy, wish)


def _split_low_rank(group: LowRank, wish: Wish) -> ImplicitSplit:
    """Through sums that the chain carries, unless draws are asked for or are cheaper."""
    bound = group.bounds()
    total = group.energy_per_weight * float(bound.sum())
    drawn = _all_drawn(total * float(bound.max()), total * float(bound.mean()), wish)
    values, (rank, sides) = 1 if group.form == "ising" else wish.values, group.thin
    time = UPDATE + TAIL + drawn.draws * (DRAW + rank * sides * COSTS["cell"])
    time *= math.exp(min(drawn.tail * stickiness(drawn.theta, _stickiness(wish)), 700.0))
    projected = UPDATE + values * (COSTS["exp"] + rank * sides * COSTS["cell"])
    everything = wish.heavy is not None and wish.heavy >= group.variables - 1
    told = wish.theta is not None or wish.heavy is not None
    if (projected <= time and not told) or everything:
        exact = group.energy_per_weight * float(group.reach().max())
        return ImplicitSplit(1.0, 0.0, 0.0, exact=exact, projected=values * rank * sides)
    return drawn


_LEAST_KEPT = 1e-6  # of proposals: none may be kept of those that were looked at


def _split_points(group: Points, wish: Wish) -> ImplicitSplit:
    """All drawn; theta suits all but a tenth of the tails, a guarantee all of them.

    What is kept of the proposals is what would be drawn by the true weights, so that these, and
    not the bounds by which points are proposed, say how strong a tail is.
    """
    bounds = group.energy_per_weight * group.bounds()
    most, theta = group.energy_per_weight * group.largest, wish.theta
    if theta is None and wish.slowdown is not None:
        theta = float(best_theta(np.array([most]), wish.slowdown, DRAW)[0])
    elif theta is None:
        likely, draw = group.energy_per_weight * group.typical, DRAW / max(group.kept, _LEAST_KEPT)
        theta = float(best_theta(np.array([likely]), None, draw, _stickiness(wish))[0])
    check_tail("PoissonGibbs", float(bounds.max()), theta, INSTEAD)
    draws = (1 + theta) * float(bounds.mean())
    return ImplicitSplit(theta, most, draws, kept=group.kept)


def _split_copied(group: Copied, wish: Wish) -> ImplicitSplit:
    """As the group itself, whose bounds hold for every copy; weaker copies draw less."""
    own = _OF_GROUP[type(group.group)](group.group, wish)
    return replace(own, draws=own.draws * float(group.scales.mean()))


def _all_drawn(tail: float, mean: float, wish: Wish) -> ImplicitSplit:
    """No pair is heavy; theta suits the largest tail."""
    sticky = _stickiness(wish)
    chosen = wish.theta or float(best_theta(np.array([tail]), wish.slowdown, DRAW, sticky)[0])
    return ImplicitSplit(chosen, tail, (1 + chosen) * mean)


_OF_GROUP: dict[type, Callable[..., ImplicitSplit]] = {
    Kernel: _split_kernel,
    Complete: _split_complete,
    LowRank: _split_low_rank,
    Points: _split_points,
    Copied: _split_copied,
}


def _choose(
    model: Model,
    spans: NDArray[np.float64],
    thetas: NDArray[np.float64],
    slowdown: float | None,
    lanes: int,
    measured: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """For each variable the least heavy M, theta and L_T with the least time per sample.

    Rows are looked at in pieces, since each is tried with every cut and theta.
    """
    rows = model.rows
    limit, tail = np.zeros(len(rows)), np.zeros(len(rows))
    chosen = np.full(len(rows), thetas[0])
    power = np.clip(np.frexp(spans)[1] - _LEAST_POWER, 0, _BINS - 1)
    there = np.bincount(power, minlength=_BINS) > 0
    used, level = np.flatnonzero(there) + _LEAST_POWER, (there.cumsum() - 1)[power]
    step = max(1, _PIECE // (len(used) * len(thetas)))
    for first in range(0, len(rows), step):
        piece = slice(first, first + step)
        entries = slice(int(rows["start"][first]), int(rows["end"][piece][-1]))
        counts = _count_powers(model, piece, entries, spans, level, len(used), lanes)
        gains = np.flatnonzero(counts[0].sum(axis=1) > TAIL)  # else a tail cannot pay for itself
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
    """[3, row, level]: time to evaluate the entries of each level, their energy, and draw costs.

    Unary entries count for nothing: they are always heavy.
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
    """What it takes to evaluate each entry for all values of its variable."""
    cost = np.full(len(place), COSTS["heavy"])
    factors = model.factors[model.target[place[general]]]
    slots = factors["scope_end"] - factors["scope_start"]
    cost[general] = COSTS["general"] + COSTS["slot"] * slots + COSTS["cell"] * sizes[general]
    return cost


@_QUIETLY
def _best_cuts(
    counts: NDArray[np.float64],
    thetas: NDArray[np.float64],
    slowdown: float | None,
    lanes: int,
    measured: float,
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """For each row how many of the lowest levels are its tail, theta, and the tail's energy."""
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
    time *= np.exp(np.minimum(energy[..., None] * stickiness(theta, measured), 700.0))
    combinations = time.reshape(rows, time.shape[1] * time.shape[2])
    cut, which = np.divmod(combinations.argmin(axis=1), time.shape[2])
    row = np.arange(rows)
    return cut, theta[row, cut, which], energy[row, cut]
