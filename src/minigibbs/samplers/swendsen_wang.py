"""Swendsen-Wang: clusters of variables with equal values take a new value together.

Swendsen and Wang 1987, doi:10.1103/PhysRevLett.58.86, in the formulation of Edwards and Sokal 1988,
doi:10.1103/PhysRevD.38.2009. A pair of weight w whose variables are equal is bonded with
probability 1 - exp(-w). Given the bonds, each cluster takes a value with weight exp(sum of its
unary factors). Both steps are Gibbs sampling on (state, bonds), so the stationary distribution is
the model's.

A pair is bonded if a Poisson(w) number of draws is not 0. Weak pairs are therefore drawn together,
a Poisson(total weight) number by alias table, and pairs that are not drawn are not evaluated (Fukui
and Todo 2009, doi:10.1016/j.jcp.2008.12.022). A sweep costs O(variables + bonds), even for models
that couple every pair.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register_sweep
from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.factors.implicit.complete import Complete
from minigibbs.graph.factors.implicit.kernel import Kernel
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import Simple, simplified
from minigibbs.kernels.alias import draw_alias, fill_alias
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import chosen_by_type, kernel
from minigibbs.kernels.layout import ALIAS, DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import below, uniform
from minigibbs.samplers.base import SweepSampler
from minigibbs.samplers.poisson_gibbs.groups.kernel import (
    displacement_alias,
    displacements,
    neighbor,
)
from minigibbs.system.boundary import checked

_STRONG = 0.5  # least weight of strong pairs: a draw costs as much as two evaluations
_MOST_BONDS = 16  # pairs whose bonds are enumerated
_FIELDED = 1 << 40  # marks a cluster with unary factors


@checked(SampleError)
@dataclass(frozen=True)
class SwendsenWang(SweepSampler):
    """Swendsen-Wang clusters, for attractive pairs: positive `Potts` weights and `Ising` couplings.

    Unary factors and evidence are allowed, tables over two two-valued variables that attract, and
    `Kernel` and `Complete` groups at O(variables + bonds) per sweep. Near a critical point it mixes
    far faster than single-variable updates. Strong fields of opposite signs slow it down.

    Examples
    --------
    >>> import minigibbs as mg
    >>> critical = mg.models.ising_lattice(side=32, beta=0.4407)
    >>> run = mg.sample(critical, mg.SwendsenWang(), sweeps=100, seed=1, progress=False)
    >>> run.info.sampler
    'SwendsenWang()'
    """

    name = "swendsen-wang"
    draws_implicit = True
    takes_zeros = True

    def settled(self, graph: FactorGraph) -> SwendsenWang:
        """Refuse graphs that the sampler does not support."""
        _check(graph)
        return self

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare lists of the strong pairs, alias tables of the weak ones, and the fields."""
        simple = _check(graph)
        strong = simple.pair_weight >= _STRONG
        weak = simple.pair_weight[~strong]
        fields = simple.unary if simple.unary.any() else np.empty(0)
        evidence = graph.evidence
        return ClusterData(
            pair=np.ascontiguousarray(simple.pair[strong]),
            chance=-np.expm1(-simple.pair_weight[strong]),
            weak=np.ascontiguousarray(simple.pair[~strong]),
            alias=_alias(weak),
            rate=float(weak.sum()),
            fields=fields,
            fielded=_fielded(graph, fields),
            evidence=evidence[:0] if (evidence == FREE).all() else evidence,
            implicit=_bonds([group for group in graph.factors if isinstance(group, Implicit)]),
        )

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes: a forest, the limits of its roots, and sums of unary factors."""
        return Workspace(scratch=2 * len(graph), numbers=len(data.fields))

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe how bonds are drawn."""
        data = self.prepare(graph)
        looks, draws = len(data.pair), data.rate
        bonds = data.implicit
        while not isinstance(bonds, NoBonds):
            looks, draws, bonds = looks + bonds.looks, draws + bonds.rate, bonds.others
        return (
            f"Swendsen-Wang: exact; a sweep visits {looks:,} strong pairs, draws {draws:.4g} of "
            "the others, and gives every cluster a new value."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix by enumeration of all sets of bonds and of compatible states."""
        weight, agree = _agreeing_pairs(everything)
        fields = everything.log_potential - weight @ agree
        weights = np.exp(fields - fields.max())
        count = len(everything.states)
        matrix = np.zeros((count, count))
        for chosen in itertools.product((False, True), repeat=len(weight)):
            bonded = np.array(chosen, dtype=bool)
            chance = np.where(
                bonded[:, None],
                agree * -np.expm1(-weight)[:, None],
                np.exp(-weight[:, None] * agree),
            ).prod(axis=0)
            fits = weights * agree[bonded].all(axis=0)
            if fits.sum() > 0:
                matrix += np.outer(chance, fits / fits.sum())
        return Transition(
            matrix, np.arange(count), np.zeros(count), everything.distribution, everything
        )


class ClusterData(NamedTuple):
    """Pairs that may be bonded, and the clusters' fields and evidence."""

    pair: NDArray[np.int32]  # [strong, 2] evaluated one by one
    chance: NDArray[np.float64]  # [strong] probability of a bond if the values are equal
    weak: NDArray[np.int32]  # [weak, 2]
    alias: NDArray[np.void]  # [weak] of ALIAS
    rate: float  # the sum of the weak pairs' weights
    fields: NDArray[np.float64]  # [sum of sizes] log weights; empty if there are none
    fielded: NDArray[np.int32]  # the variables that have fields
    evidence: NDArray[np.int32]  # [n] clamped values or FREE; empty if there are none
    implicit: Any  # NoBonds, KernelBonds or CompleteBonds


class NoBonds(NamedTuple):
    """The end of the list of implicit groups."""

    unused: int


class KernelBonds(NamedTuple):
    """Displacements: a list of strong ones, and an alias table of others over the half table."""

    shape: NDArray[np.int64]  # [3] the grid, with sides of 1 in front
    sides: NDArray[np.int64]  # [3] of the table of displacements
    reach: NDArray[np.int64]  # [3] its center's coordinates
    periodic: bool
    heavy: NDArray[np.int64]  # [strong, 3] displacements
    chance: NDArray[np.float64]  # [strong]
    tail: NDArray[np.void]  # of ALIAS
    looks: int
    rate: float  # expected draws per sweep
    others: Any  # the next group


class CompleteBonds(NamedTuple):
    """Pairs of one common weight: drawn if weak, all evaluated if strong."""

    variables: int
    chance: float
    looks: int
    rate: float
    others: Any


def _check(graph: FactorGraph) -> Simple:
    """Convert the explicit factors to attractive pairs and fields; raise an error for others."""
    simple, model = simplified(graph), graph.packed
    repels = np.flatnonzero(simple.pair_weight < 0)
    if len(repels):
        i, j = simple.pair[repels[0]].tolist()
        _refuse(
            f"the pair of {graph.domains.describe(i)} and {graph.domains.describe(j)} repels, with "
            f"weight {simple.pair_weight[repels[0]]:.4g}"
        )
    joins = simple.rest[model.factors["span"][simple.rest] > 0]
    if len(joins):
        factor = model.factors[joins[0]]
        scope = model.slots["variable"][factor["scope_start"] : factor["scope_end"]].tolist()
        named = ", ".join(graph.domains.describe(v) for v in scope[:6])
        _refuse(f"a general factor joins {named}{', ...' if len(scope) > 6 else ''}")
    for group in graph.factors:
        if isinstance(group, Implicit):
            _check_implicit(group)
    return simple


def _check_implicit(group: Implicit) -> None:
    if not isinstance(group, Kernel | Complete):
        _refuse(f"the weights of a {group.kind} group are not known to attract")
    least = group.half.min(initial=0.0) if isinstance(group, Kernel) else group.weight
    if least < 0:
        _refuse(f"a pair of the {group.kind} group repels, with weight {least:.4g}")


def _refuse(what: str) -> NoReturn:
    raise SampleError(
        f"SwendsenWang takes attractive pairs and unary factors, but {what}; use mg.PoissonGibbs() "
        "or mg.Tempering()"
    )


def _alias(weight: NDArray[np.float64]) -> NDArray[np.void]:
    table = np.empty(len(weight), dtype=ALIAS)
    table["place"], table["accept"] = np.arange(len(weight)), weight
    fill_alias(table)
    return table


def _fielded(graph: FactorGraph, fields: NDArray[np.float64]) -> NDArray[np.int32]:
    if not len(fields):
        return np.empty(0, dtype=np.int32)
    some = np.logical_or.reduceat(fields != 0, graph.packed.first)
    return np.flatnonzero(some).astype(np.int32)


def _bonds(groups: list[Any]) -> Any:
    """Prepare the implicit groups as a linked list."""
    data: Any = NoBonds(0)
    for group in reversed(groups):
        data = _PREPARE[type(group)](group, data)
    return data


def _prepare_complete(group: Complete, others: Any) -> CompleteBonds:
    weight, count = group.energy_per_weight * group.weight, len(group)
    strong = weight >= _STRONG
    looks, rate = (count, 0.0) if strong else (0, weight * count)
    return CompleteBonds(group.variables, -math.expm1(-weight), looks, rate, others)


def _prepare_kernel(group: Kernel, others: Any) -> KernelBonds:
    """Prepare every variable with every displacement of the half table: each pair once.

    If the kernel is periodic, the table has both d and -d, so each pair occurs twice with half its
    weight.
    """
    rates = group.energy_per_weight * (0.5 if group.periodic else 1.0) * group.half
    strong = rates >= _STRONG
    places, pad = np.flatnonzero(strong), 3 - len(group.shape)
    return KernelBonds(
        shape=np.array((1,) * pad + group.shape, dtype=np.int64),
        sides=np.array((1,) * pad + group.sides, dtype=np.int64),
        reach=np.array((0,) * pad + group.reach, dtype=np.int64),
        periodic=group.periodic,
        heavy=np.ascontiguousarray(displacements(group, places)),
        chance=-np.expm1(-rates[places]),
        tail=displacement_alias(group.half, strong),
        looks=len(places) * group.variables,
        rate=float(rates[~strong].sum()) * group.variables,
        others=others,
    )


_PREPARE: dict[type, Callable[..., Any]] = {Kernel: _prepare_kernel, Complete: _prepare_complete}


def _agreeing_pairs(everything: Enumeration) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the weights of the pairs of free variables, and [pair, state] their agreement."""
    simple = _check(everything.graph.stored())
    if len(simple.pair) > _MOST_BONDS:
        raise TooLargeError(
            f"SwendsenWang: the bonds of {len(simple.pair)} pairs are too many to enumerate; the "
            f"limit is {_MOST_BONDS}"
        )
    (i, j), states = simple.pair.T, everything.states
    return simple.pair_weight, (states[:, i] == states[:, j]).T


@kernel
def _root(forest, i):
    """Find the root of a tree and halve the path; a root stores minus the size of its tree."""
    while forest[i] >= 0:
        above = forest[i]
        if forest[above] >= 0:
            forest[i] = forest[above]
            i = forest[above]
        else:
            return above
    return i


@kernel
def _join(forest, i, j):
    """Join two trees, the smaller below the larger."""
    a, b = _root(forest, i), _root(forest, j)
    if a != b:
        if forest[a] > forest[b]:
            a, b = b, a
        forest[a] += forest[b]
        forest[b] = a


@kernel
def _bond_stored(data, chain):
    """Bond explicit pairs: strong pairs one by one, and a Poisson number of the weak ones."""
    x, forest = chain.x, chain.scratch
    for k in range(len(data.pair)):
        i, j = data.pair[k, 0], data.pair[k, 1]
        if x[i] == x[j] and uniform(chain.stream) < data.chance[k]:
            _join(forest, i, j)
    draws = poisson(data.rate, math.exp(-data.rate), chain.stream) if data.rate > 0.0 else 0
    for _ in range(draws):
        k = draw_alias(data.alias, 0, len(data.alias), chain.stream)
        i, j = data.weak[k, 0], data.weak[k, 1]
        if x[i] == x[j]:
            _join(forest, i, j)
    chain.tally[EVALUATIONS] += len(data.pair)
    chain.tally[DRAWS] += draws


@kernel
def kernel_bonds(data, chain):
    """Bond pairs at strong displacements of every variable, and a Poisson number of the others."""
    x, forest, stream = chain.x, chain.scratch, chain.stream
    for k in range(len(data.heavy)):
        for i in range(len(x)):
            rest = i // data.shape[2]
            a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
            j = neighbor(data, a, b, c, data.heavy[k, 0], data.heavy[k, 1], data.heavy[k, 2])
            if j >= 0 and x[i] == x[j] and uniform(stream) < data.chance[k]:
                _join(forest, i, j)
    draws = poisson(data.rate, math.exp(-data.rate), stream) if data.rate > 0.0 else 0
    center = (data.reach[0] * data.sides[1] + data.reach[1]) * data.sides[2] + data.reach[2]
    for _ in range(draws):
        i, flat = below(stream, len(x)), center + draw_alias(data.tail, 0, len(data.tail), stream)
        rest, line = i // data.shape[2], flat // data.sides[2]
        step_a = line // data.sides[1] - data.reach[0]
        step_b = line % data.sides[1] - data.reach[1]
        step_c = flat % data.sides[2] - data.reach[2]
        a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
        j = neighbor(data, a, b, c, step_a, step_b, step_c)
        if j >= 0 and x[i] == x[j]:
            _join(forest, i, j)
    chain.tally[EVALUATIONS] += data.looks
    chain.tally[DRAWS] += draws
    bond_implicit(data.others, chain)


@kernel
def complete_bonds(data, chain):
    """Bond a Poisson number of uniform pairs, or evaluate all pairs if they are strong."""
    x, forest, stream = chain.x, chain.scratch, chain.stream
    if data.looks > 0:
        for i in range(len(x)):
            for j in range(i):
                if x[i] == x[j] and uniform(stream) < data.chance:
                    _join(forest, i, j)
    draws = poisson(data.rate, math.exp(-data.rate), stream) if data.rate > 0.0 else 0
    for _ in range(draws):
        i, j = below(stream, len(x)), below(stream, len(x) - 1)
        j += j >= i
        if x[i] == x[j]:
            _join(forest, i, j)
    chain.tally[EVALUATIONS] += data.looks
    chain.tally[DRAWS] += draws
    bond_implicit(data.others, chain)


@kernel
def no_bonds(data, chain):
    """Do nothing: there are no more groups."""


_COMPILED = {NoBonds: no_bonds, KernelBonds: kernel_bonds, CompleteBonds: complete_bonds}


def bond_implicit(data: Any, chain: Any) -> None:
    """Bond the pairs of implicit groups; compiled code only."""
    _COMPILED[type(data)](data, chain)


@chosen_by_type(bond_implicit)
def _bond_for_type(data, chain):
    return _COMPILED[data.instance_class].py_func


@kernel
def _gather(data, model, chain, forest, limit, sums):
    """Collect for each cluster its number of common values, its evidence and its fields.

    limit[root] is the number of values that all variables have, plus _FIELDED with fields, or -1 -
    value with evidence.
    """
    for i in range(len(forest)):
        limit[i] = model.rows[i].domain
    for i in range(len(forest)):
        root = _root(forest, i)
        limit[root] = min(limit[root], model.rows[i].domain)
    for k in range(len(data.fielded)):
        i = np.int64(data.fielded[k])
        root = _root(forest, i)
        start, count = model.first[root], min(model.rows[root].domain, model.rows[i].domain)
        if limit[root] < _FIELDED:
            limit[root] += _FIELDED
            for value in range(model.rows[root].domain):
                sums[start + value] = 0.0
        for value in range(count):
            sums[start + value] += data.fields[model.first[i] + value]
    for i in range(len(data.evidence)):
        if data.evidence[i] >= 0:
            limit[_root(forest, i)] = -1 - np.int64(data.evidence[i])


@kernel
def _value(model, chain, root, limit, sums):
    """Draw a new value for a cluster."""
    if limit < 0:
        return -1 - limit
    if limit < _FIELDED:
        return below(chain.stream, limit)
    size, start = limit - _FIELDED, model.first[root]
    for value in range(size):
        chain.weights[value] = sums[start + value]
    return draw_log(chain.weights, size, chain.stream)


@kernel
def swendsen_wang_sweep(data, model, chain, replicas):
    """Draw bonds, then a value for every cluster, in the order of the clusters' first variables."""
    count = len(chain.x)
    forest, limit = chain.scratch[:count], chain.scratch[count:]
    sums = chain.weights[len(chain.weights) - len(data.fields) :]
    for i in range(count):
        forest[i] = -1
    _bond_stored(data, chain)
    bond_implicit(data.implicit, chain)
    _gather(data, model, chain, forest, limit, sums)
    for i in range(count):
        root = _root(forest, i)
        if forest[root] >= -count:  # the cluster has no value yet
            forest[root] = -count - 1 - _value(model, chain, root, limit[root], sums)
        chain.x[i] = -count - 1 - forest[root]


@kernel
def swendsen_wang_begin(data, model, chain, replicas):
    """Do nothing: no state persists between sweeps."""


register_sweep(ClusterData, swendsen_wang_sweep, swendsen_wang_begin)
