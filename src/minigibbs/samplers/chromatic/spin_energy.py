"""Energies of spins in the order of their places, for many chains or one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.kernels.energy import energies
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.lanes import FULL, add_where, lanes_of
from minigibbs.samplers.gibbs.sampler import sum_unary

_PIECE = 64
_BYTE, _NUMBER = np.uint8(0), 0.0


class SpinEnergy(NamedTuple):
    """An energy as a constant, fields of spins at 1, and weights of equal pairs."""

    constant: float
    field: NDArray[np.float64]  # [m]
    pair: NDArray[np.uint32]  # [P, 2] places
    weight: NDArray[np.float64]  # [P]


def spin_energy(graph: FactorGraph, variable: NDArray[np.int32]) -> SpinEnergy:
    """Return the energy's terms, once per graph and order; `variable` has those at each place."""
    order = variable.tobytes()  # layouts with other exactly evaluated factors have other orders
    return prepared(graph, "spin energy", order, lambda: _parts(graph, variable))


def _parts(graph: FactorGraph, variable: NDArray[np.int32]) -> SpinEnergy:
    model, evidence = graph.packed, graph.evidence
    place = np.full(len(graph), -1, np.int64)
    place[variable] = np.arange(len(variable))
    unary = sum_unary(model)
    field = np.zeros(len(graph)) if not len(unary) else unary[1::2] - unary[::2]
    both = model.pair_weight != 0
    if graph.free < len(graph):
        free = evidence[model.pair] < 0
        both &= free.all(axis=1)
        for own in (0, 1):  # the free variable of a pair with a clamped one has a field
            half = free[:, own] & ~free[:, 1 - own]
            sign = np.where(evidence[model.pair[half, 1 - own]] == 1, 1.0, -1.0)
            weight = sign * model.pair_weight[half]
            field = field + np.bincount(model.pair[half, own], weight, minlength=len(graph))
    pair = place[model.pair[both]].astype(np.uint32)
    order = np.argsort(pair.max(axis=1), kind="stable") if len(pair) else slice(None)
    weights = np.ascontiguousarray(model.pair_weight[both][order])
    whole, zeros = np.empty(1), np.where(evidence < 0, 0, evidence).astype(graph.state_type)
    energies(model, zeros[None], whole)
    constant = float(whole[0]) - float(weights.sum())
    return SpinEnergy(constant, field[variable], np.ascontiguousarray(pair[order]), weights)


@entry
def lane_energies(parts, x, total):
    """Compute the energies of 64 chains, one bit per value."""
    for lane in range(len(total)):
        total[lane] = parts.constant
    for p in range(len(parts.field)):
        if parts.field[p] != 0.0:
            add_where(x[p], total, parts.field[p], FULL)
    for k in range(len(parts.weight)):
        alike = ~(x[parts.pair[k, 0]] ^ x[parts.pair[k, 1]])
        add_where(alike, total, parts.weight[k], FULL)


@entry
def row_energy(parts, x):
    """Compute the energy of one chain, one byte per place."""
    total = parts.constant + alike_energy(parts, x)
    for p in range(len(parts.field)):
        total += parts.field[p] * x[p]
    return total


@kernel
def alike_energy(parts, x):
    """Sum the weights of pairs with equal values; gathers and additions are in separate loops."""
    total, piece, alike = 0.0, lanes_of(_PIECE, _NUMBER), lanes_of(_PIECE, _BYTE)
    for lane in range(_PIECE + np.int64(len(x) < 0)):
        piece[lane] = 0.0
    whole = len(parts.weight) // _PIECE * _PIECE
    for first in range(0, whole, _PIECE):
        for lane in range(_PIECE):
            pair = parts.pair[first + lane]
            alike[lane] = x[pair[0]] == x[pair[1]]
        for lane in range(_PIECE):
            piece[lane] += parts.weight[first + lane] * alike[lane]
    for lane in range(_PIECE):
        total += piece[lane]
    for k in range(whole, len(parts.weight)):
        total += parts.weight[k] * (x[parts.pair[k, 0]] == x[parts.pair[k, 1]])
    return total
