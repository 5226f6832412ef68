"""Which factors of a variable Poisson-Gibbs evaluates exactly, and how it draws from the rest.

The choice minimises predicted time per effective sample. The costs below are nanoseconds measured
on one machine; only their ratios matter. They are shipped rather than measured on the spot, so that
a seed gives the same chain on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph import FactorGraph
from minigibbs.kernels.jit import entry, kernel
from minigibbs.packed import energy_at, entry_spans

UPDATE = 35.0  # an update with nothing to look at
HEAVY_PAIR = 2.0
HEAVY_DISPLACEMENT = 4.0
GENERAL = 12.0  # a table or formula, and for each slot and value on top:
GENERAL_SLOT = 3.0
GENERAL_VALUE = 1.0
TAIL = 8.0  # having a tail at all
DRAW = 30.0
LANE_DRAW = 8.0  # on a GPU, where all threads of a warp wait for one that draws
FAR_DRAW = 70.0  # where the alias tables do not fit into the processor's cache
CACHE = 250_000  # slots of alias tables that do
FIELD_WRITE = 5.0  # bringing a neighbour's field up to date
MARGIN = 0.75  # plain Gibbs is left only for a gain that is sure
STICKINESS = 0.15  # see `stickiness`

_BINS = 64  # powers of two of M
_LARGEST = 500.0  # products of exp(M) stay far from overflow


@dataclass(frozen=True, eq=False)
class Split:
    """For each entry whether it is heavy; for each variable theta and L_T."""

    heavy: NDArray[np.bool_]  # [E] unary entries count as heavy
    theta: NDArray[np.float64]  # [n]
    tail: NDArray[np.float64]  # [n] L_T

    @property
    def log_slowdown(self) -> float:
        """The bound on log(slowdown): the largest L_T * (2 / theta + 1 / theta^2)."""
        return float((self.tail * (2 / self.theta + 1 / self.theta**2)).max(initial=0.0))


def stickiness(theta: Any) -> Any:
    """Log slowdown per unit of L_T, as seen in practice; far below the bound.

    The counts favour the value they were drawn at: a factor at its maximum M adds M * ((1 + theta)
    * log(1 + 1/theta) - 1) to it in the mean. Measured slowdowns follow that at a fraction of the
    strength, since not all factors are at their maximum and not all values are in doubt: 0.06 on
    the paper's Potts model and a dense random field, 0.3 to 0.5 on the Curie-Weiss model.
    """
    return STICKINESS * ((1.0 + theta) * np.log1p(1.0 / theta) - 1.0)


_stickiness = kernel(stickiness)


def waits(rate: Any, lanes: int) -> Any:
    """The expected number of draws of the slowest of `lanes` chains, about."""
    if lanes == 1:
        return rate
    return np.minimum(lanes * rate, rate + 2.0 * np.sqrt(rate) + 1.0)


_waits = kernel(waits)


def choose_split(
    graph: FactorGraph,
    slowdown: float | None,
    theta: float | None,
    heavy: int | None,
    lanes: int = 1,
) -> Split:
    """Split every variable's factors: by cost, under a guarantee, or as told.

    `lanes` chains go in step: when one draws from its tail, all the others wait.
    """
    model, spans = graph.packed, entry_spans(graph.packed)
    rows = model.rows
    if not len(spans):  # all factors are unstored, or there are none
        none = np.broadcast_to(np.zeros(1), len(rows))
        return Split(np.empty(0, dtype=bool), np.broadcast_to(np.ones(1), len(rows)), none)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    unary = np.arange(len(spans)) >= rows["unary_begin"][owner]
    tail, chosen = np.zeros(len(rows)), np.full(len(rows), 1.0 if theta is None else theta)
    if heavy is not None:
        mask = _strongest(spans, unary, owner, heavy)
        tail = np.bincount(owner[~mask], spans[~mask], minlength=len(rows)).astype(np.float64)
    else:
        limit = np.zeros(len(rows))
        log_slowdown = math.nan if slowdown is None else math.log(slowdown)
        if spans.sum() <= _LARGEST or energy_at(model).max() <= _LARGEST:
            counts = np.empty((_BINS + 1, 3))
            fixed = math.nan if theta is None else theta
            far = _draw_cost(len(spans), lanes)
            _choose(model, spans, log_slowdown, fixed, (far, lanes), counts, limit, chosen, tail)
        mask = unary | (spans >= limit[owner])
    if heavy is not None and theta is None:
        chosen = best_theta(tail, slowdown)
    overflow = (1 + chosen) * tail * np.log1p(1 / chosen)
    if overflow.max(initial=0.0) > _LARGEST:
        raise SampleError(
            f"PoissonGibbs: a tail of energy {tail.max():.3g} at theta = {chosen.min():.3g} is too "
            "large to draw from; leave heavy and theta out, or evaluate more factors exactly"
        )
    return Split(mask, chosen, tail)


def _draw_cost(slots: int, lanes: int) -> float:
    if lanes > 1:
        return LANE_DRAW
    return DRAW if slots < CACHE else FAR_DRAW


def all_heavy(graph: FactorGraph) -> Split:
    """The split that is plain Gibbs."""
    rows = len(graph.packed.rows)
    mask = np.ones(len(graph.packed.weight), dtype=bool)
    return Split(mask, np.ones(rows), np.zeros(rows))


def worth_splitting(
    graph: FactorGraph, split: Split, change_rate: float | None, lanes: int = 1
) -> bool:
    """Whether a split is predicted to beat plain Gibbs by more than the prediction may be off.

    `change_rate` is the share of updates that change something, where plain Gibbs would remember
    its fields and look at factors only then; None where it would not.
    """
    model, free = graph.packed, max(int(np.count_nonzero(graph.evidence < 0)), 1)
    rows = model.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(owner))
    stored = place < rows["unary_begin"][owner]
    cost = np.full(len(owner), HEAVY_PAIR)
    general = place >= rows["pair_end"][owner]
    factors = model.factors[model.target[general]]
    slots = factors["scope_end"] - factors["scope_start"]
    cost[general] = GENERAL + GENERAL_SLOT * slots + GENERAL_VALUE * rows["domain"][owner[general]]
    far = _draw_cost(len(owner), lanes)
    draws = waits((1 + split.theta) * split.tail, lanes).sum()
    draws *= far + (2 * GENERAL if general.any() else 0)
    ours = (cost[split.heavy & stored].sum() + draws) / free + UPDATE + TAIL
    plain = cost[stored].sum() / free + UPDATE
    if change_rate is not None:
        plain = UPDATE + change_rate * FIELD_WRITE / HEAVY_PAIR * cost[stored].sum() / free
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


def best_theta(tail: NDArray[np.float64], slowdown: float | None) -> NDArray[np.float64]:
    """Theta for a given tail: what the guarantee asks for, or what time suggests."""
    safe = np.maximum(tail, 1e-12)
    if slowdown is not None:
        return 1.0 / (np.sqrt(1.0 + math.log(slowdown) / safe) - 1.0)
    grid = THETAS[:, None]
    sticky = np.minimum(tail * stickiness(grid), 700.0)
    time = (UPDATE + TAIL + DRAW * (1 + grid) * tail) * np.exp(sticky)
    best: NDArray[np.float64] = THETAS[time.argmin(axis=0)]
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


def split_weights(
    weights: NDArray[np.float64],
    scale: float,
    copies: int,
    slowdown: float | None,
    theta: float | None,
    heavy: int | None,
) -> tuple[float, float, float]:
    """(least heavy weight, theta, L_T) for one list of weights that serves all variables.

    Each weight stands for `copies` factors of energy scale * |weight|.
    """
    sums, counts, lowest = _by_exponent(weights)
    best = (math.inf, math.inf, 1.0, 0.0)
    if heavy is not None:
        ordered = np.sort(np.abs(weights))[::-1]
        cuts = [float(ordered[heavy // copies - 1])] if heavy >= copies else [math.inf]
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
        chosen = best_theta(np.array([energy]), slowdown)[0] if theta is None else theta
        time = UPDATE + copies * HEAVY_DISPLACEMENT * float(exact)
        time += TAIL + DRAW * (1 + chosen) * energy
        time *= math.exp(min(energy * stickiness(chosen), 700.0))
        if time < best[0]:
            best = (time, cut, float(chosen), energy)
    return best[1:]


@entry
def _choose(model, spans, log_slowdown, fixed, draw_cost, counts, limit, chosen, tail):
    """For each variable the threshold on M and the theta with the least time per sample."""
    per_draw, lanes = draw_cost
    for i in range(len(model.rows)):
        row = model.rows[i]
        for b in range(_BINS + 1):
            counts[b, 0] = counts[b, 1] = counts[b, 2] = 0.0
        for place in range(row.start, row.unary_begin):
            b = min(max(math.frexp(spans[place])[1] + _BINS - 12, 0), _BINS - 1)
            exact, draw = HEAVY_PAIR, per_draw
            if place >= row.pair_end:
                factor = model.factors[model.target[place]]
                slots = factor.scope_end - factor.scope_start
                exact = GENERAL + GENERAL_SLOT * slots + GENERAL_VALUE * row.domain
                draw = per_draw + 2.0 * exact
            counts[b, 0] += exact
            counts[b, 1] += spans[place]
            counts[b, 2] += spans[place] * draw
        best, energy, draws, exact = math.inf, 0.0, 0.0, 0.0
        for b in range(_BINS):
            exact += counts[b, 0]
        for b in range(_BINS + 1):  # bins below b are the tail
            if b == 0 or counts[b - 1, 0] > 0.0:
                for k in range(len(THETAS)):
                    theta = THETAS[k]
                    if not math.isnan(fixed):
                        theta = fixed
                    elif not math.isnan(log_slowdown) and energy > 0.0:
                        theta = 1.0 / (math.sqrt(1.0 + log_slowdown / energy) - 1.0)
                    time = UPDATE + exact
                    if b:
                        rate = (1.0 + theta) * energy
                        time += TAIL + _waits(rate, lanes) * draws / energy
                    time *= math.exp(energy * _stickiness(theta))
                    if time < best:
                        best, chosen[i], tail[i] = time, theta, energy
                        limit[i] = math.ldexp(1.0, b - _BINS + 11) if b else 0.0
            exact -= counts[b, 0]
            energy += counts[b, 1]
            draws += counts[b, 2]
