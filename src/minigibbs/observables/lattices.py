"""Observables of lattices: correlations by distance, and the structure factor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, kernel
from minigibbs.observables.base import (
    Measure,
    Observable,
    Sums,
    Terms,
    check_shape,
    need_spins,
    plain,
)
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class Correlations(Observable):
    """Pair correlations along the axes of a lattice, at distances 1, 2, ... up to `largest`.

    Each is the mean of s_i s_j over pairs at that distance if variables have two values. Otherwise
    it is the share of pairs with equal values.

    Parameters
    ----------
    shape : tuple of int, default ()
        The sides of the lattice. Variables are numbered row by row.
    largest : int, optional
        The largest distance. By default half the shortest side.
    periodic : bool, default True
        Whether the lattice wraps around.

    Examples
    --------
    >>> import minigibbs as mg
    >>> ring = mg.FactorGraph([2] * 64, [mg.Ising(range(64), [*range(1, 64), 0], 0.5)])
    >>> pairs = mg.observables.Correlations((64,), largest=3)
    >>> run = mg.sample(ring, sweeps=2000, seed=1, observe={"c": pairs}, progress=False)
    >>> (abs(run.observables["c"].mean - [0.462, 0.214, 0.099]) < 0.05).all()
    np.True_
    """

    name = "correlations"
    shape: tuple[int, ...] = ()
    largest: int | None = None
    periodic: bool = True

    def bind(self, graph: FactorGraph) -> Measure:
        """Prepare the observable for a lattice with all variables of the graph."""
        sides = check_shape(self.shape, len(graph), self.name)
        most = max(sides) - 1
        largest = max(min(sides) // 2, 1) if self.largest is None else self.largest
        if isinstance(largest, bool) or not 1 <= largest <= max(most, 1) or most < 1:
            raise SampleError(f"correlations: largest must be 1 to {most}, got {self.largest!r}")
        spins = bool((graph.sizes == 2).all())
        parameters = (np.array(sides, np.int64), bool(self.periodic), spins)
        labels = tuple(f"r={r}" for r in range(1, largest + 1))
        return plain(correlations_of, correlations, parameters, labels)


@kernel
def correlations(x, parameters, out):
    """Compute each distance by a pass along each axis that is long enough."""
    sides, periodic, spins = parameters
    for place in range(len(out)):
        distance, same, pairs, stride = place + 1, 0, 0, 1
        for axis in range(len(sides) - 1, -1, -1):
            side = sides[axis]
            for first in range(0, len(x) if distance < side else 0, side * stride):
                for along in range(side if periodic else side - distance):
                    here = first + along * stride
                    there = first + (along + distance) % side * stride
                    for k in range(stride):
                        same += np.int64(x[here + k] == x[there + k])
                    pairs += stride
            stride *= side
        share = same / pairs
        out[place] = 2.0 * share - 1.0 if spins else share


@entry
def correlations_of(states, parameters, out):
    """Compute the correlations of each row of states."""
    for k in range(len(states)):
        correlations(states[k], parameters, out[k])


@checked(SampleError)
@dataclass(frozen=True)
class StructureFactor(Observable):
    """Structure factor S(k) = |sum of s_j exp(i k r_j)|^2 / n of spins on a periodic lattice.

    Wave numbers are 2 pi m / side along each axis, for m from 0 to `largest`, averaged over the
    axes. `mg.observables.correlation_length` needs m = 0 and 1.

    Parameters
    ----------
    shape : tuple of int, default ()
        The sides of the lattice, all equal.
    largest : int, default 1
        The largest m.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=8, beta=0.3)
    >>> waves = mg.observables.StructureFactor((8, 8))
    >>> run = mg.sample(graph, sweeps=500, seed=1, observe={"s": waves}, progress=False)
    >>> run.observables["s"].labels
    ('m=0', 'm=1')
    """

    name = "structure-factor"
    shape: tuple[int, ...] = ()
    largest: int = 1

    def bind(self, graph: FactorGraph) -> Measure:
        """Prepare the observable for a lattice of spins with all variables of the graph."""
        need_spins(graph, "structure-factor", "use mg.observables.Correlations")
        sides = check_shape(self.shape, len(graph), self.name)
        if len(set(sides)) > 1:
            raise SampleError(f"structure-factor: all sides must be the same, got {sides}")
        if isinstance(self.largest, bool) or not 0 <= self.largest <= sides[0] // 2:
            most = sides[0] // 2
            raise SampleError(f"structure-factor: largest must be 0 to {most}, got {self.largest}")
        angle = 2.0 * math.pi * np.arange(sides[0]) / sides[0]
        parameters = (sides[0], len(sides), np.cos(angle), np.sin(angle))
        labels = tuple(f"m={m}" for m in range(self.largest + 1))
        of = plain(waves_of_rows, waves_of_layers, parameters, labels)
        sums = Sums(of, lambda: _layers(sides[0], len(sides)))
        return plain(structure_factors, structure_factor, parameters, labels, sums)


def _layers(side: int, dimensions: int) -> Terms:
    """Return sums of the spins in each layer across each axis, from the last axis to the first."""
    number = np.arange(side**dimensions, dtype=np.int32).reshape((side,) * dimensions)
    across = [np.moveaxis(number, axis, 0) for axis in range(dimensions - 1, -1, -1)]
    variables = np.concatenate([layers.ravel() for layers in across])
    ends = number.size // side * np.arange(1, dimensions * side + 1)
    return Terms(variables, np.ones(len(variables), np.int64), ends)


@kernel
def structure_factor(x, parameters, out):
    """Sum spins over layers across an axis, and waves over the layers."""
    side, dimensions, cos, sin = parameters
    for m in range(len(out)):
        out[m] = 0.0
    stride = 1
    for _ in range(dimensions):
        for m in range(len(out)):
            real, imaginary = 0.0, 0.0
            for along in range(side):
                up, count = 0, 0
                for first in range(along * stride, len(x), side * stride):
                    for k in range(stride):
                        up += np.int64(x[first + k])
                    count += stride
                spin, phase = 2.0 * up - count, m * along % side
                real += spin * cos[phase]
                imaginary += spin * sin[phase]
            out[m] += (real * real + imaginary * imaginary) / (dimensions * len(x))
        stride *= side


@kernel
def waves_of_layers(sums, parameters, out):
    """Compute the structure factor from the number of spins up in each layer."""
    side, dimensions, cos, sin = parameters
    count = 1
    for _ in range(dimensions - 1):
        count *= side
    for m in range(len(out)):
        out[m] = 0.0
        for axis in range(dimensions):
            real, imaginary = 0.0, 0.0
            for along in range(side):
                spin, phase = 2.0 * sums[axis * side + along] - count, m * along % side
                real += spin * cos[phase]
                imaginary += spin * sin[phase]
            out[m] += (real * real + imaginary * imaginary) / (dimensions * count * side)


@entry
def waves_of_rows(sums, parameters, out):
    """Compute the structure factor of each row of sums."""
    for k in range(len(sums)):
        waves_of_layers(sums[k], parameters, out[k])


@entry
def structure_factors(states, parameters, out):
    """Compute the structure factor of each row of states."""
    for k in range(len(states)):
        structure_factor(states[k], parameters, out[k])
