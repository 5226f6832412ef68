"""Approximate marginals by message passing on a join graph with clusters of bounded size.

Mini-buckets partition the factors into clusters: variables are eliminated in an order, and the
tables of a variable are split into groups where their product would be too large. Clusters send
messages over the variables that they share. The method is iterative join-graph propagation
(Mateescu, Kask, Gogate and Dechter, 2010). It is exact if nothing is split, and loopy belief
propagation if every cluster holds one factor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, SampleError
from minigibbs.exact.bounds import Part, greedy, product
from minigibbs.exact.costs import cost_functions
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Delayed
from minigibbs.system.watch import current

_ENTRIES = 1 << 12  # per cluster
_DAMPING = 0.5  # share of the old message, from the second sweep on

Table = NDArray[np.float64]


class Propagation(NamedTuple):
    """The result of `mg.theory.propagate`.

    Attributes
    ----------
    marginals : ndarray
        [variable, value] approximate probabilities, 0 beyond a variable's domain.
    log_z : float
        An approximation of log Z: the Kikuchi free energy of the clusters, with its sign changed.
    exact : bool
        Whether the clusters are a tree, so that the numbers are exact up to rounding.
    sweeps : int
        Number of times that all messages were sent.
    change : float
        Largest change of a marginal in the last sweep. A number above `tol` means that messages did
        not converge.

    Examples
    --------
    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)])
    >>> mg.theory.propagate(chain).exact
    True
    """

    marginals: Table
    log_z: float
    exact: bool
    sweeps: int
    change: float


@checked(SampleError)
def propagate(
    graph: FactorGraph, entries: int = _ENTRIES, sweeps: int = 50, tol: float = 1e-4
) -> Propagation:
    """Approximate marginals and log Z by iterative join-graph propagation.

    It takes seconds where exact elimination does not fit and chains need minutes. The numbers have
    no error estimate. They are good where the loops that were cut are weak, and may be far off
    otherwise. `mg.infer` gives errors.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    entries : int, default 4096
        Largest number of entries of a cluster's table. A factor with more has a cluster of its own.
    sweeps : int, default 50
        Largest number of times that all messages are sent.
    tol : float, default 0.0001
        Largest change of a marginal at which messages have converged.

    Returns
    -------
    Propagation
        Marginals, log Z, and whether they are exact.

    Raises
    ------
    SampleError
        If a setting is not positive.
    GraphError
        If no state is possible.

    Examples
    --------
    >>> import minigibbs as mg
    >>> torus = mg.models.ising_lattice(side=10, beta=0.2).condition({0: 1})
    >>> found = mg.theory.propagate(torus)
    >>> found.exact, bool(abs(found.marginals - mg.infer(torus).marginals).max() < 0.01)
    (False, True)
    """
    for name, number in (("entries", entries), ("sweeps", sweeps), ("tol", tol)):
        if not number > 0:
            raise SampleError(f"{name} must be positive, got {number}")
    constant, costs = cost_functions(graph)
    sizes = graph.sizes.tolist()
    parts = [Part(scope, -table) for scope, table in costs]
    with Delayed("propagating messages"):
        join = _JoinGraph(parts, sizes, greedy(parts, sizes), entries)
        before, change, made = join.marginals(), math.inf, 0
        while made < sweeps and change > tol:
            join.sweep(_DAMPING if made else 0.0)
            after, made = join.marginals(), made + 1
            change = max((float(np.abs(a - b).max()) for a, b in zip(after, before, strict=True)))
            before = after
    square = np.zeros((len(sizes), max(sizes)))
    for row, marginal in zip(square, before, strict=True):
        row[: len(marginal)] = marginal
    return Propagation(square, constant + join.log_z(), not join.split, made, change)


class _JoinGraph:
    """Clusters and messages between them, as tables of logarithms."""

    def __init__(self, parts: list[Part], sizes: list[int], order: list[int], entries: int) -> None:
        self.sizes, self.split = sizes, False
        self.clusters: list[Part] = []
        self.edges: list[tuple[int, int, tuple[int, ...]]] = []  # earlier, later, shared variables
        self._build(parts, order, entries)
        self.near: list[list[int]] = [[] for _ in self.clusters]  # edges of each cluster
        for number, (one, other, _) in enumerate(self.edges):
            self.near[one].append(number)
            self.near[other].append(number)
        shapes = [[sizes[v] for v in shared] for _, _, shared in self.edges]
        self.messages = [(np.zeros(shape), np.zeros(shape)) for shape in shapes]  # to both ends
        home: dict[int, int] = {}  # the smallest cluster with each variable
        for number in sorted(range(len(self.clusters)), key=lambda c: -self.clusters[c].logs.size):
            home.update(dict.fromkeys(self.clusters[number].scope, number))
        self.homes: dict[int, list[int]] = {}
        for v, number in home.items():
            self.homes.setdefault(number, []).append(v)
        self.lonely = set(range(len(sizes))) - set(home)  # variables without factors

    def _build(self, parts: list[Part], order: list[int], entries: int) -> None:
        rank = {v: k for k, v in enumerate(order)}
        held: dict[int, list[tuple[tuple[int, ...], Part | None, int]]] = {}
        for part in parts:
            if part.scope:
                first = min(part.scope, key=rank.__getitem__)
                held.setdefault(first, []).append((part.scope, part, -1))
        for v in order:
            current().check()
            groups: list[tuple[set[int], list[tuple[tuple[int, ...], Part | None, int]]]] = []
            for item in sorted(held.pop(v, []), key=lambda one: -len(one[0])):
                for scope, members in groups:
                    if math.prod(self.sizes[u] for u in scope | set(item[0])) <= entries:
                        scope |= set(item[0])
                        members.append(item)
                        break
                else:
                    groups.append((set(item[0]), [item]))
            self.split |= len(groups) > 1
            for number, (scope, members) in enumerate(groups):
                self._add(v, number, tuple(sorted(scope)), members)
                rest = tuple(u for u in sorted(scope) if u != v)
                if rest:
                    first = min(rest, key=rank.__getitem__)
                    held.setdefault(first, []).append((rest, None, len(self.clusters) - 1))

    def _add(
        self,
        v: int,
        number: int,
        scope: tuple[int, ...],
        members: list[tuple[tuple[int, ...], Part | None, int]],
    ) -> None:
        """Add a cluster, with edges to the clusters whose messages it gets and to the group."""
        own = [part for _, part, _ in members if part is not None]
        self.clusters.append(product(scope, own, self.sizes))
        place = len(self.clusters) - 1
        self.edges += [(sender, place, shared) for shared, _, sender in members if sender >= 0]
        if number:
            self.edges.append((place - 1, place, (v,)))

    def _wide(self, cluster: int, edge: int) -> Table:
        """Return the message that a cluster gets along an edge, with the axes of the cluster."""
        one, _, shared = self.edges[edge]
        logs = self.messages[edge][0 if cluster == one else 1]
        shape = [self.sizes[v] if v in shared else 1 for v in self.clusters[cluster].scope]
        return logs.reshape(shape)  # scopes are sorted

    def _belief(self, cluster: int, without: int = -1) -> Table:
        """Return the logarithms of a cluster's belief, without the message of one edge."""
        logs = self.clusters[cluster].logs
        for edge in self.near[cluster]:
            if edge != without:
                logs = logs + self._wide(cluster, edge)
        return logs

    def sweep(self, damping: float) -> None:
        """Send all messages: from the first cluster to the last, and back."""
        last = len(self.clusters)
        for order, forward in ((range(last), True), (range(last - 1, -1, -1), False)):
            for cluster in order:
                current().check()
                whole = None
                for edge in self.near[cluster]:
                    one, other, _ = self.edges[edge]
                    if (cluster == one) != forward:
                        continue
                    whole = self._belief(cluster) if whole is None else whole
                    self._send(cluster, edge, other if forward else one, whole, damping)

    def _send(self, cluster: int, edge: int, to: int, whole: Table, damping: float) -> None:
        back = self._wide(cluster, edge)
        logs = whole - back if np.isfinite(back).all() else self._belief(cluster, edge)
        shared = self.edges[edge][2]
        axes = tuple(k for k, v in enumerate(self.clusters[cluster].scope) if v not in shared)
        told = _log_sum(logs, axes)
        top = float(told.max())
        if top == -math.inf:
            raise GraphError("every state has probability 0 in this graph; there are no marginals")
        told -= top
        side = 0 if to == self.edges[edge][0] else 1
        old = self.messages[edge][side]
        if damping and np.isfinite(old).all() and np.isfinite(told).all():
            told = damping * old + (1.0 - damping) * told
        self.messages[edge][side][...] = told

    def marginals(self) -> list[Table]:
        """Return the marginal of each variable from the smallest cluster that holds it."""
        found = [np.full(size, 1.0 / size) for size in self.sizes]
        for cluster, own in self.homes.items():
            share, scope = _shares(self._belief(cluster)), self.clusters[cluster].scope
            for v in own:
                axes = tuple(k for k, u in enumerate(scope) if u != v)
                found[v] = share.sum(axis=axes)
        return found

    def log_z(self) -> float:
        """Return the entropy of all clusters, less that of separators, plus the mean of factors."""
        total = sum(math.log(self.sizes[v]) for v in self.lonely)
        for number, cluster in enumerate(self.clusters):
            share = _shares(self._belief(number))
            total += _mean(share, cluster.logs) - _mean_log(share)
        for one, _, shared in self.edges:
            scope = self.clusters[one].scope
            axes = tuple(k for k, v in enumerate(scope) if v not in shared)
            total += _mean_log(_shares(self._belief(one)).sum(axis=axes))
        return total


def _log_sum(logs: Table, axes: tuple[int, ...]) -> Table:
    """Return the logarithm of the sum of exponentials along some axes."""
    top = logs.max(axis=axes, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(logs - safe).sum(axis=axes, keepdims=True)) + safe
    return np.asarray(found.squeeze(axes))


def _shares(logs: Table) -> Table:
    """Return probabilities that are proportional to exponentials."""
    top = float(logs.max())
    if top == -math.inf:
        raise GraphError("every state has probability 0 in this graph; there are no marginals")
    weights = np.exp(logs - top)
    return np.asarray(weights / weights.sum())


def _mean(share: Table, logs: Table) -> float:
    return float((share * np.where(share > 0, logs, 0.0)).sum())


def _mean_log(share: Table) -> float:
    return float((share * np.log(np.where(share > 0, share, 1.0))).sum())
