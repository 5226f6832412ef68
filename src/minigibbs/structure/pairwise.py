"""Pairwise Markov networks by pseudo-likelihood with a group penalty.

Every column has fields, and every pair of columns has a table. The objective is the mean log
pseudo-likelihood minus penalty * sum of the Frobenius norms of the tables. A table is stored by
contrasts that sum to zero over each of its columns, so that it contains no fields.
The penalty decreases along a path. At each point the nonzero tables are fitted again without
penalty, and the extended BIC chooses the point. It is twice the log pseudo-likelihood, minus 2 *
(log(rows) + 4 * gamma * log(columns)) per table parameter. Both ends of an edge include its
parameters, hence the factor 2. Edges with a smaller gain than their share of this penalty are then
dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors import Factors, Table, Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.structure.counting import Counter
from minigibbs.structure.learned import Learned, Rules
from minigibbs.system import memory
from minigibbs.system.watch import current

_CHUNK = 2048  # rows that a kernel processes at a time
_RATIO = 0.75  # ratio of successive penalties of the path
_LEAST = 0.02  # the last penalty, as a share of the first
_PATIENCE = 2  # points without a better score that end the path
_STEPS, _TOLERANCE = 60, 1e-3  # of the penalized fits, which only choose edges
_REFIT_STEPS, _FLAT = 40, 1e-5
_RIDGE = 1e-6  # keeps fits finite where a table separates the rows
_MOST_NUMBERS = 20_000  # maximum number of contrasts of all columns together
_BATCH = 1024  # contrasts that are multiplied with all others at a time


def contrasts(size: int) -> NDArray[np.float64]:
    """Return [value, contrast] orthonormal columns that sum to zero.

    >>> contrasts(2).round(3).tolist()
    [[-0.707], [0.707]]
    """
    basis = np.zeros((size, max(size - 1, 0)))
    for k in range(1, size):
        basis[:k, k - 1] = -1.0 / math.sqrt(k * (k + 1))
        basis[k, k - 1] = k / math.sqrt(k * (k + 1))
    return basis


class _Coding(NamedTuple):
    """The table, and the contrasts of all columns, concatenated."""

    codes: NDArray[Any]  # [column, row]
    sizes: NDArray[np.int64]  # [column] number of values
    first: NDArray[np.int64]  # [column + 1] start of its contrasts
    start: NDArray[np.int64]  # [column + 1] start of its values in `basis` and in fields
    basis: NDArray[np.float64]  # [value of a column, contrast], as wide as for the largest column
    features: NDArray[np.float32]  # [contrast, row]


def _coding(counter: Counter) -> _Coding:
    sizes = counter.sizes
    widths = np.maximum(sizes - 1, 0)
    first = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if first[-1] > _MOST_NUMBERS:
        raise LearnError(
            f'method="pairwise" has a limit of {_MOST_NUMBERS:,} values of all columns together, '
            f"got {start[-1]:,}; column {int(sizes.argmax())} alone has {sizes.max():,}"
        )
    memory.require(
        4.0 * first[-1] * counter.rows + 8.0 * first[-1] ** 2,
        f"pseudo-likelihood with {counter.rows:,} rows and {first[-1]:,} features",
        "give fewer rows or columns",
    )
    basis = np.zeros((int(start[-1]), max(int(widths.max()), 1)))
    features = np.empty((int(first[-1]), counter.rows), dtype=np.float32)
    for column, size in enumerate(sizes.tolist()):
        own = contrasts(size)
        basis[start[column] : start[column + 1], : size - 1] = own
        own = own.astype(np.float32)
        features[first[column] : first[column + 1]] = own.T[:, counter.codes[column]]
    return _Coding(counter.codes, sizes, first, start, basis, features)


class _Links(NamedTuple):
    """The edges at each column."""

    ends: NDArray[np.int64]  # [column + 1] start of its edges in `edge` and `other`
    edge: NDArray[np.int64]  # index of the edge
    other: NDArray[np.int64]  # the column at its other end
    place: NDArray[np.int64]  # [edge + 1] start of its parameters


class _Slopes(NamedTuple):
    """The sums over rows that an evaluation computes."""

    total: NDArray[np.float64]  # [column] the log pseudo-likelihood
    fields: NDArray[np.float64]  # derivatives by fields
    halves: NDArray[np.float64]  # [lower or higher column of an edge, parameter] derivatives
    residuals: NDArray[np.float32]  # [contrast, row] derivatives by logits; empty if not kept


class _Edges:
    """A set of pairs, the offsets of their parameters, and the links of each column."""

    def __init__(self, first: NDArray[np.int64], pairs: NDArray[np.int64]) -> None:
        self.pairs = pairs  # [edge, 2], lower column first
        widths = np.diff(first)
        self.sizes = widths[pairs[:, 0]] * widths[pairs[:, 1]]
        self.place = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        columns, count = len(widths), len(pairs)
        ends = pairs.ravel()
        order = np.argsort(ends, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=columns))])
        edge, other = np.repeat(np.arange(count), 2)[order], pairs[:, ::-1].ravel()[order]
        self.links = _Links(starts.astype(np.int64), edge, other, self.place)

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def numbers(self) -> int:
        """The number of parameters of all tables."""
        return int(self.place[-1])

    def norms(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the norm of each edge's parameters."""
        if not len(self):
            return np.zeros(0)
        squares: NDArray[np.float64] = np.add.reduceat(values**2, self.place[:-1])
        return np.sqrt(squares)


class Pairwise:
    """The fit: fields and edge parameters of one table of codes."""

    def __init__(self, counter: Counter, gamma: float, rules: Rules) -> None:
        self.counter, self.rules, self.gamma = counter, rules.undirected(), gamma
        self.coding = _coding(counter)
        columns = counter.columns
        shares = (counter.totals + 0.5) / (
            counter.rows + 0.5 * np.repeat(counter.sizes, counter.sizes)
        )
        self.fields = np.log(shares)
        self.edges = _Edges(self.coding.first, np.zeros((0, 2), dtype=np.int64))
        self.values = np.zeros(0)
        self.residuals = np.zeros((0, 0), dtype=np.float32)
        self.columns = columns

    def evaluate(
        self, fields: NDArray[np.float64], values: NDArray[np.float64], keep: bool = False
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return log pseudo-likelihood per row, gradients of fields and values, and column sums."""
        counter, coding, edges = self.counter, self.coding, self.edges
        if keep:
            self.residuals = np.empty_like(coding.features)
        nothing = np.empty((0, 0), dtype=np.float32)
        halves = np.zeros((2, edges.numbers))
        residuals = self.residuals if keep else nothing
        out = _Slopes(np.zeros(self.columns), np.zeros_like(fields), halves, residuals)
        widest = int(counter.sizes.max())

        def work(begin: int, end: int) -> None:
            scratch = np.zeros((2, widest, _CHUNK), dtype=np.float32)
            _evaluate(coding, edges.links, fields, values, begin, end, scratch, out)

        counter.spread(work, self.columns, counter.rows * 20.0)
        rows = counter.rows
        level, slope = float(out.total.sum()) / rows, halves.sum(axis=0) / rows
        return level, out.fields / rows, slope, out.total

    def slopes(self) -> NDArray[np.float64]:
        """Return [column, column] norms of every pair's gradient, from the stored residuals."""
        coding, rows = self.coding, self.counter.rows
        products = np.zeros((len(coding.features), len(coding.features)), dtype=np.float32)
        for begin in range(0, len(coding.features), _BATCH):
            current().check()
            part = slice(begin, begin + _BATCH)
            np.matmul(coding.features[part], self.residuals.T, out=products[part])
        products += products.T.copy()
        squares = np.asarray(products, dtype=np.float64) ** 2
        first = coding.first[:-1]
        real = np.flatnonzero(np.diff(coding.first))
        sums = np.add.reduceat(np.add.reduceat(squares, first[real], axis=0), first[real], axis=1)
        norms = np.zeros((self.columns, self.columns))
        norms[np.ix_(real, real)] = np.sqrt(sums) / rows
        np.fill_diagonal(norms, 0.0)
        return norms

    def set_edges(self, pairs: NDArray[np.int64]) -> None:
        """Change the edges; those that remain keep their parameters."""
        before, old = self.edges, self.values
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self.edges = _Edges(self.coding.first, pairs[order])
        self.values = np.zeros(self.edges.numbers)
        known = {(int(i), int(j)): k for k, (i, j) in enumerate(before.pairs)}
        for k, (i, j) in enumerate(self.edges.pairs.tolist()):
            if (i, j) in known:
                at = known[i, j]
                part = old[before.place[at] : before.place[at + 1]]
                self.values[self.edges.place[k] : self.edges.place[k + 1]] = part

    def penalized(self, penalty: float) -> None:
        """Fit the current edges with a group penalty, by accelerated proximal steps."""
        edges = self.edges
        owner = np.repeat(np.arange(len(edges)), edges.sizes)
        free = self.rules.required[edges.pairs[:, 0], edges.pairs[:, 1]]
        threshold = np.where(free, 0.0, penalty)
        x = np.concatenate([self.fields, self.values])
        split = len(self.fields)
        y, momentum, step = x.copy(), 1.0, 1.0
        level, *slope_at = self._at(y, split)
        for _ in range(_STEPS):
            current().check()
            slope = np.concatenate(slope_at[:2])
            while True:
                new = y + step * slope
                norms = edges.norms(new[split:])
                shrink = np.maximum(1 - step * threshold / np.maximum(norms, 1e-300), 0.0)
                new[split:] *= shrink[owner]
                move = new - y
                found = self._at(new, split)
                bound = level + slope @ move - (move @ move) / (2 * step)
                if found[0] >= bound - 1e-12 * abs(level):
                    break
                step /= 2
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            change = new - x
            if (y - new) @ change > 0:  # no longer uphill: restart the momentum
                following, y = 1.0, new.copy()
            else:
                y = new + (momentum - 1) / following * change
            momentum, x = following, new
            if np.abs(change).max() < _TOLERANCE * max(np.abs(x[split:]).max(initial=0.1), 0.1):
                break
            step *= 1.1
            level, *slope_at = self._at(y, split) if y is not new else found
        self.fields, self.values = x[:split].copy(), x[split:].copy()

    def _at(self, x: NDArray[np.float64], split: int) -> tuple[Any, ...]:
        return self.evaluate(x[:split], x[split:])

    def refit(self) -> float:
        """Fit the current edges without penalty; return the log pseudo-likelihood of all rows."""
        split = len(self.fields)

        def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            current().check()
            level, fields, values, _ = self.evaluate(x[:split], x[split:])
            slope = np.concatenate([fields, values]) - _RIDGE * x
            return -(level - _RIDGE / 2 * float(x @ x)), -slope

        x = _descend(objective, np.concatenate([self.fields, self.values]))
        self.fields, self.values = x[:split].copy(), x[split:].copy()
        return self.evaluate(self.fields, self.values)[0] * float(self.counter.rows)

    def price(self) -> NDArray[np.float64]:
        """Return the gain in log pseudo-likelihood, over all rows, that each edge must have."""
        rows, columns = self.counter.rows, self.columns
        each = math.log(rows) + 4 * self.gamma * math.log(columns)
        return np.asarray(self.edges.sizes * each)


def _descend(
    objective: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
    x: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimize by L-BFGS, as SciPy's version waits for the threads of BLAS at every step."""
    level, slope = objective(x)
    past: deque[tuple[NDArray[np.float64], NDArray[np.float64]]] = deque(maxlen=10)
    for _ in range(_REFIT_STEPS):
        if np.abs(slope).max(initial=0.0) < _FLAT:
            break
        direction, shares = -slope, []
        for move, turn in reversed(past):
            share = (move @ direction) / (move @ turn)
            direction = direction - share * turn
            shares.append(share)
        if past:
            move, turn = past[-1]
            direction *= (move @ turn) / (turn @ turn)
        for (move, turn), share in zip(past, reversed(shares), strict=True):
            direction += move * (share - (turn @ direction) / (move @ turn))
        falls, step = float(slope @ direction), 1.0
        while True:
            new = x + step * direction
            found, new_slope = objective(new)
            if found <= level + 1e-4 * step * falls + 1e-12 or step < 1e-6:
                break
            step /= 2
        move, turn = new - x, new_slope - slope
        if move @ turn > 1e-12:
            past.append((move, turn))
        done = level - found < 1e-8
        x, level, slope = new, found, new_slope
        if done:
            break
    return x


def pairwise(counter: Counter, gamma: float, rules: Rules) -> Learned:
    """Return the network that the extended BIC prefers along the path of penalties."""
    fit = Pairwise(counter, gamma, rules)
    allowed = fit.rules.allowed.copy()
    np.fill_diagonal(allowed, False)
    required = np.argwhere(np.triu(fit.rules.required, 1))
    fit.set_edges(required.astype(np.int64))
    level = (
        fit.refit() if len(fit.edges) else fit.evaluate(fit.fields, fit.values)[0] * counter.rows
    )
    best = _State.of(fit, level)
    fit.evaluate(fit.fields, fit.values, keep=True)
    norms = np.where(allowed, fit.slopes(), 0.0)
    penalty = largest = float(norms.max(initial=0.0))
    worse, steps = 0, 0
    path = _State.of(fit, level)
    while penalty > _LEAST * largest and penalty > 0 and worse < _PATIENCE:
        penalty *= _RATIO
        path.restore(fit)
        _solve(fit, penalty, allowed)
        path = _State.of(fit, 0.0)
        level = fit.refit()
        steps += 1
        found = _State.of(fit, level)
        if found.score > best.score:
            best, worse = found, 0
        elif len(found.pairs) > len(best.pairs):
            worse += 1
    best.restore(fit)
    best = _pruned(fit, best)
    best.restore(fit)
    edges = [(int(i), int(j)) for i, j in fit.edges.pairs]
    strengths = _node_gains(fit)
    values = {"fields": fit.fields, "tables": _tables(fit)}
    return Learned(edges, strengths.tolist(), False, best.score, steps, values=values)


@dataclass(frozen=True, eq=False)
class _State:
    """A point of the path: edges, parameters and score."""

    pairs: NDArray[np.int64]
    fields: NDArray[np.float64]
    values: NDArray[np.float64]
    score: float

    @staticmethod
    def of(fit: Pairwise, level: float) -> _State:
        score = level - float(fit.price().sum())
        return _State(fit.edges.pairs, fit.fields.copy(), fit.values.copy(), score)

    def restore(self, fit: Pairwise) -> None:
        """Continue the fit from this point."""
        fit.set_edges(self.pairs)
        fit.fields, fit.values = self.fields.copy(), self.values.copy()


def _solve(fit: Pairwise, penalty: float, allowed: NDArray[np.bool_]) -> None:
    """Fit with a penalty, adding edges as long as the norms of their gradients exceed it."""
    for _ in range(5):
        fit.penalized(penalty)
        fit.evaluate(fit.fields, fit.values, keep=True)
        norms = np.where(allowed, fit.slopes(), 0.0)
        norms[fit.edges.pairs[:, 0], fit.edges.pairs[:, 1]] = 0.0
        joining = np.argwhere(np.triu(norms, 1) > penalty * 1.01)
        if not len(joining):
            break
        fit.set_edges(np.concatenate([fit.edges.pairs, joining]).astype(np.int64))
    _keep(fit, fit.edges.norms(fit.values) > 0)


def _keep(fit: Pairwise, kept: NDArray[np.bool_]) -> None:
    """Drop the other edges, unless they are required."""
    pairs = fit.edges.pairs
    kept = kept | fit.rules.required[pairs[:, 0], pairs[:, 1]]
    if not kept.all():
        fit.set_edges(pairs[kept])


def _node_gains(fit: Pairwise) -> NDArray[np.float64]:
    """Return each edge's gain in log pseudo-likelihood at its ends, with all others fixed."""
    counter, coding, edges = fit.counter, fit.coding, fit.edges
    gains = np.zeros((2, len(edges)))
    widest = int(counter.sizes.max())

    def work(begin: int, end: int) -> None:
        scratch = np.zeros((2, widest, _CHUNK), dtype=np.float32)
        _gains(coding, edges.links, fit.fields, fit.values, begin, end, scratch, gains)

    counter.spread(work, fit.columns, counter.rows * 100.0)
    return np.asarray(gains.sum(axis=0))


def _pruned(fit: Pairwise, best: _State) -> _State:
    """Drop the edges whose gain is below their price, the worst half at a time."""
    while len(fit.edges):
        gains, price = _node_gains(fit), fit.price()
        poor = gains < price
        required = fit.rules.required[fit.edges.pairs[:, 0], fit.edges.pairs[:, 1]]
        poor &= ~required
        if not poor.any():
            break
        surplus = gains - price
        poor &= surplus <= np.median(surplus[poor])
        _keep(fit, ~poor)
        found = _State.of(fit, fit.refit())
        if found.score < best.score:
            break
        best = found
    return best


def _tables(fit: Pairwise) -> list[NDArray[np.float64]]:
    """Return the table of each edge; its rows and columns sum to zero."""
    found, sizes = [], fit.counter.sizes
    for k, (i, j) in enumerate(fit.edges.pairs.tolist()):
        own = fit.values[fit.edges.place[k] : fit.edges.place[k + 1]]
        a, b = contrasts(int(sizes[i])), contrasts(int(sizes[j]))
        found.append(a @ own.reshape(a.shape[1], b.shape[1]) @ b.T)
    return found


def pairwise_graph(domains: Domains, learned: Learned) -> FactorGraph:
    """Return the network as a factor graph: fields are named h..., tables J..., by their shapes."""
    sizes = domains.sizes.astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    fields, tables = learned.values["fields"], learned.values["tables"]
    groups: list[Factors] = []
    for size in np.unique(sizes).tolist():
        some = np.flatnonzero(sizes == size)
        energies = np.stack([fields[starts[v] : starts[v + 1]] for v in some.tolist()])
        groups.append(Unary(some, energies, name=f"h{size}", tied=np.arange(len(some))))
    shapes: dict[tuple[int, int], list[int]] = {}
    for k, (i, j) in enumerate(learned.edges):
        shapes.setdefault((int(sizes[i]), int(sizes[j])), []).append(k)
    for (a, b), some_edges in sorted(shapes.items()):
        scope = np.array([learned.edges[k] for k in some_edges])
        energies = np.stack([tables[k] for k in some_edges])
        groups.append(Table(scope, energies, name=f"J{a}x{b}"))
    return FactorGraph(domains, groups)


@entry
def _evaluate(coding, links, fields, values, begin, end, scratch, out):
    """Compute log pseudo-likelihoods of columns `begin` to `end`, summed over rows, and gradients.

    `scratch` is [2, contrast or value, row of a chunk].
    """
    rows, first = coding.codes.shape[1], coding.first
    slopes, logits = scratch[0], scratch[1]
    for i in range(begin, end):
        width = first[i + 1] - first[i]
        if width == 0:
            continue
        level = 0.0
        for low in range(0, rows, _CHUNK):
            count = min(_CHUNK, rows - low)
            _couple(coding, links, values, i, low, count, slopes)
            if coding.sizes[i] == 2:
                level += _two_values(coding, fields, i, low, count, slopes, out.fields)
            else:
                _logits_of(coding, fields, i, count, slopes, logits)
                level += _many_values(coding, i, low, count, logits, out.fields)
                _slopes_of(coding, i, count, logits, slopes)
            if len(out.residuals) > 0:
                for c in range(width):
                    for t in range(count):
                        out.residuals[first[i] + c, low + t] = slopes[c, t]
            _decouple(coding, links, i, low, count, slopes, out.halves)
        out.total[i] = level


@inlined
def _number_of(start, i, j, c, d, width, theirs):
    """Return the index of the parameter of contrast c of column i and contrast d of column j."""
    return start + (c * theirs + d if i < j else d * width + c)


@kernel
def _couple(coding, links, values, i, low, count, out):
    """Compute contrasts of the logits of column i: edge parameters times features of neighbors."""
    first = coding.first
    width = first[i + 1] - first[i]
    for c in range(width):
        for t in range(count):
            out[c, t] = np.float32(0.0)
    for k in range(links.ends[i], links.ends[i + 1]):
        j, at = links.other[k], links.place[links.edge[k]]
        theirs = first[j + 1] - first[j]
        for c in range(width):
            for d in range(theirs):
                value = np.float32(values[_number_of(at, i, j, c, d, width, theirs)])
                if value != 0.0:
                    for t in range(count):
                        out[c, t] += value * coding.features[first[j] + d, low + t]


@kernel
def _decouple(coding, links, i, low, count, slopes, halves):
    """Add the derivatives by the parameters of column i's edges, from those by its contrasts."""
    first = coding.first
    width = first[i + 1] - first[i]
    for k in range(links.ends[i], links.ends[i + 1]):
        j, at = links.other[k], links.place[links.edge[k]]
        theirs, half = first[j + 1] - first[j], 0 if i < j else 1
        for c in range(width):
            for d in range(theirs):
                product = np.float32(0.0)
                for t in range(count):
                    product += slopes[c, t] * coding.features[first[j] + d, low + t]
                halves[half, _number_of(at, i, j, c, d, width, theirs)] += product


@kernel
def _two_values(coding, fields, i, low, count, slopes, slope_fields):
    """Return the log-likelihood of a binary column; its contrast in `slopes` becomes a slope."""
    start, level, summed = coding.start[i], 0.0, 0.0
    gap = fields[start + 1] - fields[start]
    turn = coding.basis[start + 1, 0] - coding.basis[start, 0]
    for t in range(count):
        x = coding.codes[i, low + t]
        z = gap + turn * slopes[0, t]
        small = math.exp(-abs(z))
        p = 1.0 / (1.0 + small) if z >= 0 else small / (1.0 + small)
        level -= math.log1p(small) + max(z if x == 0 else -z, 0.0)
        r = x - p
        summed += r
        slopes[0, t] = np.float32(turn * r)
    slope_fields[start] -= summed
    slope_fields[start + 1] += summed
    return level


@kernel
def _logits_of(coding, fields, i, count, mixed, logits):
    """Compute the logits of column i from their contrasts."""
    start, width = coding.start[i], coding.first[i + 1] - coding.first[i]
    for v in range(coding.sizes[i]):
        for t in range(count):
            logits[v, t] = np.float32(fields[start + v])
        for c in range(width):
            weight = np.float32(coding.basis[start + v, c])
            if weight != 0.0:
                for t in range(count):
                    logits[v, t] += weight * mixed[c, t]


@kernel
def _many_values(coding, i, low, count, logits, slope_fields):
    """Return the log-likelihood of a column; its logits become derivatives."""
    size, start, level = coding.sizes[i], coding.start[i], 0.0
    for t in range(count):
        x = np.int64(coding.codes[i, low + t])
        top = logits[0, t]
        for v in range(1, size):
            top = max(top, logits[v, t])
        level += logits[x, t] - top
        norm = 0.0
        for v in range(size):
            logits[v, t] = np.float32(math.exp(logits[v, t] - top))
            norm += logits[v, t]
        level -= math.log(norm)
        for v in range(size):
            logits[v, t] = np.float32((1.0 if v == x else 0.0) - logits[v, t] / norm)
    for v in range(size):
        summed = 0.0
        for t in range(count):
            summed += logits[v, t]
        slope_fields[start + v] += summed
    return level


@kernel
def _slopes_of(coding, i, count, logits, slopes):
    """Compute the derivatives by contrasts from those by logits."""
    start, width = coding.start[i], coding.first[i + 1] - coding.first[i]
    for c in range(width):
        for t in range(count):
            slopes[c, t] = np.float32(0.0)
        for v in range(coding.sizes[i]):
            weight = np.float32(coding.basis[start + v, c])
            if weight != 0.0:
                for t in range(count):
                    slopes[c, t] += weight * logits[v, t]


@entry
def _gains(coding, links, fields, values, begin, end, scratch, gains):
    """Add the gain of each edge at the columns from `begin` to `end`, with all others fixed.

    gains[0 or 1, edge] belongs to its lower or higher column. `scratch` is [2, value, row of a
    chunk].
    """
    rows, first, start, ends = coding.codes.shape[1], coding.first, coding.start, links.ends
    whole, part = scratch[0], scratch[1]
    for i in range(begin, end):
        size, width = coding.sizes[i], first[i + 1] - first[i]
        if width == 0:
            continue
        for low in range(0, rows, _CHUNK):
            count = min(_CHUNK, rows - low)
            for v in range(size):
                for t in range(count):
                    whole[v, t] = np.float32(fields[start[i] + v])
            for skipped in range(ends[i] - 1, ends[i + 1]):
                # The logits of all edges come first, then those without one edge.
                if skipped < ends[i]:
                    lowest, highest, sign, logits = ends[i], ends[i + 1], 1.0, whole
                else:
                    lowest, highest, sign, logits = skipped, skipped + 1, -1.0, part
                    for v in range(size):
                        for t in range(count):
                            part[v, t] = whole[v, t]
                for k in range(lowest, highest):
                    _tilt(coding, links, values, i, k, low, count, sign, logits)
                if skipped < ends[i]:
                    continue
                level = 0.0
                for t in range(count):
                    x = np.int64(coding.codes[i, low + t])
                    top, floor = whole[0, t], part[0, t]
                    for v in range(1, size):
                        top, floor = max(top, whole[v, t]), max(floor, part[v, t])
                    norm, rest = 0.0, 0.0
                    for v in range(size):
                        norm += math.exp(whole[v, t] - top)
                        rest += math.exp(part[v, t] - floor)
                    level += whole[x, t] - top - math.log(norm)
                    level -= part[x, t] - floor - math.log(rest)
                gains[0 if i < links.other[skipped] else 1, links.edge[skipped]] += level


@kernel
def _tilt(coding, links, values, i, k, low, count, sign, logits):
    """Add the contribution of link k to the logits of column i, or with sign -1 subtract it."""
    first, start = coding.first, coding.start[i]
    width = first[i + 1] - first[i]
    j, at = links.other[k], links.place[links.edge[k]]
    theirs = first[j + 1] - first[j]
    for c in range(width):
        for d in range(theirs):
            value = sign * values[_number_of(at, i, j, c, d, width, theirs)]
            for v in range(coding.sizes[i]):
                weight = np.float32(value * coding.basis[start + v, c])
                if weight != 0.0:
                    for t in range(count):
                        logits[v, t] += weight * coding.features[first[j] + d, low + t]
