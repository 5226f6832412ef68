"""Couplings of a lattice by displacement: a stencil, which is expanded only if necessary.

A stencil converts to the pairs that it defines, so that all code for pairs accepts it. Chromatic
scans, energies and statistics read the stencil itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array, frozen, some_of
from minigibbs.graph.domains import MOST_SITES, Domains, require_numbers
from minigibbs.graph.factors.base import FREE, LARGEST, Factors, Pairs
from minigibbs.graph.factors.implicit.base import PAIR_KINDS, read_form
from minigibbs.system import memory
from minigibbs.system.boundary import checked

Slices = tuple[slice, ...]

_STORED_BYTES = 48  # bytes of a pair while it is expanded
_MOST_AXES = 8


@checked(GraphError)
class Stencil(Factors):
    """Pairs of lattice sites that are a given displacement apart.

    Parameters
    ----------
    shape : sequence of int
        The sides of the lattice. Variables are its sites in C order: the last axis is the fastest.
    offsets : array-like
        [offset, axis] displacements from a site to its partner. List one of `d` and `-d`.
    weights : array-like
        One weight for all pairs, one per offset, or an array [offset, *shape] with the weight of
        the pair that starts at each site. Weights of pairs that leave the lattice are ignored.
    periodic : bool or sequence of bool, default True
        Whether the lattice wraps around, for all axes or for each.
    kind : {"ising", "potts"}, default "ising"
        "ising" (phi = weight * s_i * s_j) or "potts" (phi = weight * [x_i == x_j]).

    Examples
    --------
    >>> import minigibbs as mg
    >>> square = mg.Stencil((64, 64), [(0, 1), (1, 0)], 0.4)
    >>> graph = mg.FactorGraph([2] * 4096, [square])
    >>> graph
    <FactorGraph: 4,096 variables; factors: 8,192 stencil>
    >>> graph.log_potential([1] * 4096)
    3276.8
    """

    kind = "stencil"
    pairs = True
    shape: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]
    periodic: tuple[bool, ...]
    weights: NDArray[Any]  # [offset], or [offset, *shape]
    form: str

    def __init__(
        self,
        shape: Sequence[int],
        offsets: ArrayLike,
        weights: ArrayLike,
        periodic: bool | Sequence[bool] = True,
        kind: str = "ising",
    ) -> None:
        sides = _read_shape(shape)
        wraps = _read_periodic(periodic, len(sides))
        steps = _read_offsets(offsets, sides, wraps)
        vars(self).update(
            shape=sides,
            offsets=steps,
            periodic=wraps,
            weights=_read_weights(weights, len(steps), sides),
            form=read_form("stencil", kind),
        )

    @property
    def variables(self) -> int:
        """The number of sites of the lattice."""
        return math.prod(self.shape)

    @property
    def uniform(self) -> bool:
        """Whether all pairs of an offset have one weight."""
        return self.weights.ndim == 1

    @property
    def energy_per_weight(self) -> float:
        """The range of a factor divided by |weight|: 2 for Ising factors, else 1."""
        return 2.0 if self.form == "ising" else 1.0

    def __len__(self) -> int:
        return sum(map(self.count, range(len(self.offsets))))

    def count(self, offset: int) -> int:
        """Return the number of pairs of an offset, given by its index."""
        sides = zip(self.shape, self.offsets[offset], self.periodic, strict=True)
        return math.prod(n if wraps else max(n - abs(d), 0) for n, d, wraps in sides)

    def __repr__(self) -> str:
        sides = " x ".join(map(str, self.shape))
        return f"<Stencil: {sides} sites, {len(self.offsets)} offsets, {len(self):,} factors>"

    @property
    def entries(self) -> int:
        """Two variables per pair."""
        return 2 * len(self)

    def pieces(self, offset: int) -> Iterator[tuple[Slices, Slices]]:
        """Yield views of the lattice with all pairs of an offset: the sites, and their partners."""
        axes = zip(self.shape, self.offsets[offset], self.periodic, strict=True)
        for parts in itertools.product(*(_spans(*axis) for axis in axes)):
            yield tuple(here for here, _ in parts), tuple(there for _, there in parts)

    def weight_of(self, offset: int, here: Slices) -> Any:
        """Return the weights of an offset's pairs that start in a view: a number or an array."""
        if self.uniform:
            return float(self.weights[offset])
        return self.weights[offset][here].astype(np.float64, copy=False)

    @cached_property
    def constant(self) -> float:
        """The constant that remains after conversion to `[x_i == x_j]`."""
        return 0.0 if self.form == "potts" else -self.sum_of_weights

    @property
    def sum_of_weights(self) -> float:
        """The sum of the weights of all pairs."""
        return self._total(lambda weight: weight)

    @property
    def strength(self) -> float:
        """The sum of the ranges of all factors."""
        return self.energy_per_weight * self._total(np.abs)

    def _total(self, of: Any) -> float:
        """Sum a function of the weights over all pairs."""
        total = 0.0
        for k in range(len(self.offsets)):
            if self.uniform:
                total += self.count(k) * float(of(self.weights[k]))
                continue
            for here, _ in self.pieces(k):
                if self.weights.dtype == np.int8:  # integers, whose sum is exact
                    small = self.weights[k][here].astype(np.int16)  # int16 can represent 128
                    total += float(of(small).sum(dtype=np.int64))
                else:
                    total += float(of(self.weight_of(k, here)).sum())
        return total

    @cached_property
    def magnitudes(self) -> NDArray[np.float64]:
        """The common magnitude of all weights of an offset, or NaN if they differ: [offset]."""
        return np.array([_common_size(np.atleast_1d(weight)) for weight in self.weights])

    def energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Sum the factors in each row of states."""
        energies = np.empty(len(states))
        for row, state in enumerate(states):
            energies[row] = self._energy(state.reshape(self.shape))
        return energies

    def _energy(self, state: NDArray[Any]) -> float:
        total = 0.0
        for k in range(len(self.offsets)):
            equal, weights = 0, 0.0
            for here, there in self.pieces(k):
                same = state[here] == state[there]
                if self.uniform:
                    equal += int(np.count_nonzero(same))
                else:
                    weights += float((self.weight_of(k, here) * same).sum())
            total += equal * float(self.weights[k]) if self.uniform else weights
        return self.energy_per_weight * total + self.constant

    def varying(
        self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]
    ) -> Iterator[tuple[Slices, Slices, Any]]:
        """Yield views of all pairs, each with its weights, which are 0 if evidence fixes a factor.

        Weights are numbers, or arrays of the views' shape.
        """
        size, given = sizes.reshape(self.shape), evidence.reshape(self.shape)
        plain = _plain(sizes, evidence)
        for k in range(len(self.offsets)):
            for here, there in self.pieces(k):
                weight = self.weight_of(k, here)
                if not plain:
                    varies = (size[here] > 1) | (size[there] > 1)
                    for one, other in ((here, there), (there, here)):
                        value = given[one]
                        fits = (given[other] == FREE) & (value < size[other]) & (size[other] > 1)
                        varies &= (value == FREE) | fits
                    weight = np.where(varies, weight, 0.0)
                yield here, there, weight

    def local(
        self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Count the varying factors at each variable, and sum their ranges, as read-only arrays."""
        plain = _plain(sizes, evidence)
        if plain and all(self.periodic) and not np.isnan(self.magnitudes).any():
            degree = 2 * int(np.count_nonzero(self.magnitudes))
            total = 2.0 * self.energy_per_weight * float(self.magnitudes.sum())
            return (
                np.broadcast_to(np.int64(degree), self.variables),
                np.broadcast_to(np.float64(total), self.variables),
            )
        degrees, totals = np.zeros(self.shape, np.int64), np.zeros(self.shape)
        for here, there, weight in self.varying(sizes, evidence):
            ranges = self.energy_per_weight * np.abs(weight)
            for view in (here, there):
                degrees[view] += weight != 0
                totals[view] += ranges
        return degrees.ravel(), totals.ravel()

    def totals(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> tuple[int, float]:
        """Count the varying factors, and sum their ranges."""
        factors, total = 0, 0.0
        plain = _plain(sizes, evidence)
        if plain and not self.uniform and not np.isnan(self.magnitudes).any():
            for k, size in enumerate(self.magnitudes.tolist()):
                factors += self.count(k) * (size != 0)
                total += self.count(k) * size
            return factors, self.energy_per_weight * total
        for here, _, weight in self.varying(sizes, evidence):
            if np.ndim(weight):
                factors += int(np.count_nonzero(weight))
                total += float(np.abs(weight).sum())
            else:
                pairs = math.prod(one.stop - one.start for one in here)
                factors += pairs * (weight != 0)
                total += pairs * abs(weight)
        return factors, self.energy_per_weight * total

    @property
    def scope(self) -> NDArray[np.int32]:
        """The two variables of every pair: offset by offset, in the order of the sites."""
        return self._expanded()[0]

    def _expanded(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the variables and the weight of every pair."""
        pairs = len(self)
        memory.require(
            pairs * _STORED_BYTES,
            f"expanding a stencil into {pairs:,} pairs",
            'keep it implicit: mg.PoissonGibbs() with scan="chromatic" does',
        )
        require_numbers(self.variables)
        site = np.arange(self.variables, dtype=np.int32).reshape(self.shape)
        scope, weight, first = np.empty((pairs, 2), np.int32), np.empty(pairs), 0
        partner = np.empty(self.shape, np.int32)
        for k in range(len(self.offsets)):
            partner[...] = -1
            for here, there in self.pieces(k):
                partner[here] = site[there]
            inside = partner >= 0
            last = first + self.count(k)
            scope[first:last, 0], scope[first:last, 1] = site[inside], partner[inside]
            weight[first:last] = self.weights[k] if self.uniform else self.weights[k][inside]
            first = last
        scope.flags.writeable = weight.flags.writeable = False
        return scope, weight

    def stored(self) -> Factors:
        """Return the same pairs as an `mg.Ising` or `mg.Potts` group."""
        scope, weight = self._expanded()
        return PAIR_KINDS[self.form](scope[:, 0], scope[:, 1], weight)

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Pairs:
        """Expand into pairs, for code that reads only pairs."""
        scope, weight = self._expanded()
        return Pairs(scope, self.energy_per_weight * weight, self.constant)

    def resolve(self, domains: Domains, group: int) -> Stencil:
        """Return the group itself, whose lattice must have all variables of the graph."""
        if self.variables != len(domains):
            raise GraphError(
                f"stencil group {group} has a lattice of {self.variables:,} sites, but the graph "
                f"has {len(domains):,} variables"
            )
        return self

    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise an error if spins do not have two values."""
        if self.form == "ising" and (some_of(domains.sizes) != 2).any():
            variable = int(np.flatnonzero(domains.sizes != 2)[0])
            raise GraphError(
                f"stencil group {group}: ising factors need variables with 2 values, but "
                f'{domains.describe(variable)} has {domains.sizes[variable]}; use kind="potts"'
            )

    def where(self, factor: int, group: int | None = None) -> str:
        """Return the group's description in error messages; its factors have no indices."""
        return "stencil group" + ("" if group is None else f" {group}")

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "shape": np.array(self.shape, np.int64),
            "offsets": np.array(self.offsets, np.int64),
            "weights": self.weights,
            "periodic": np.array(self.periodic, np.bool_),
            "kind": self.form,
        }


def _plain(sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> bool:
    """Return whether every variable is free and has several values."""
    return bool((some_of(sizes) > 1).all() and (some_of(evidence) == FREE).all())


def _spans(side: int, step: int, wraps: bool) -> list[tuple[slice, slice]]:
    """Return intervals of an axis, each with the interval displaced by `step`."""
    if not wraps:
        if abs(step) >= side:
            return []
        low, high = max(-step, 0), min(side - step, side)
        return [(slice(low, high), slice(low + step, high + step))]
    step %= side
    if step == 0:
        return [(slice(0, side), slice(0, side))]
    return [
        (slice(0, side - step), slice(step, side)),
        (slice(side - step, side), slice(0, step)),
    ]


def _read_shape(shape: Sequence[int]) -> tuple[int, ...]:
    rule = f"stencil: shape must be 1 to {_MOST_AXES} integers of at least 1"
    sides = as_array(shape, "iu", rule)
    if sides.ndim != 1 or not 1 <= len(sides) <= _MOST_AXES or (sides < 1).any():
        raise GraphError(f"{rule}; got {shape!r}")
    if math.prod(sides.tolist()) > MOST_SITES:
        raise GraphError(f"stencil: a lattice has at most {MOST_SITES:,} sites; got {shape!r}")
    return tuple(sides.tolist())


def _read_periodic(periodic: bool | Sequence[bool], axes: int) -> tuple[bool, ...]:
    rule = f"stencil: periodic must be True, False or {axes} of them"
    wraps = as_array(periodic, "b", rule)
    if wraps.shape not in ((), (axes,)):
        raise GraphError(f"{rule}; got {periodic!r}")
    return tuple(np.broadcast_to(wraps, axes).tolist())


def _common_size(weight: NDArray[Any]) -> float:
    """Return the common magnitude of an array, or NaN; computed in slabs to save memory."""
    size = abs(float(weight.flat[0]))
    alike = (bool((np.abs(slab) == size).all()) for slab in weight)
    return size if all(alike) else math.nan


def _read_offsets(
    offsets: ArrayLike, shape: tuple[int, ...], periodic: tuple[bool, ...]
) -> tuple[tuple[int, ...], ...]:
    """Read the displacements; refuse repeated pairs, and pairs of a site with itself."""
    rule = f"stencil: offsets must be integers, [offset, {len(shape)} axes]"
    steps = as_array(offsets, "iu", rule)
    if steps.ndim != 2 or steps.shape[1] != len(shape):
        raise GraphError(f"{rule}; got shape {steps.shape}")

    def wrapped(step: list[int]) -> tuple[int, ...]:
        axes = zip(step, shape, periodic, strict=True)
        return tuple(d % side if wraps else d for d, side, wraps in axes)

    seen: set[tuple[int, ...]] = set()
    for step in steps.tolist():
        one, other = wrapped(step), wrapped([-d for d in step])
        if not any(one):
            raise GraphError(f"stencil: offset {tuple(step)} joins every site with itself")
        if one == other:
            raise GraphError(
                f"stencil: offset {tuple(step)} joins every pair twice, because a periodic side "
                "is twice as long; use a larger or an open lattice"
            )
        if one in seen or other in seen:
            raise GraphError(f"stencil: offset {tuple(step)} joins pairs that another one joins")
        seen.add(one)
    return tuple(map(tuple, steps.tolist()))


def _read_weights(weights: ArrayLike, offsets: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read one weight per offset, or per offset and site; small types are preserved."""
    rule = (
        f"stencil: weights must be real numbers: one, {offsets} (one per offset), or an array of "
        f"shape {(offsets, *shape)}"
    )
    array = as_array(weights, "iufb", rule)
    if array.ndim == 0:
        array = np.full(offsets, array, np.float64)
    if array.shape not in ((offsets,), (offsets, *shape)):
        raise GraphError(f"{rule}; got shape {array.shape}")
    small = array.ndim > 1 and array.dtype in (np.int8, np.float32)
    array = frozen(array, array.dtype if small else np.float64)
    largest = float(np.abs(array).max(initial=0)) if array.dtype != np.int8 else 0.0
    if not largest <= LARGEST:
        raise GraphError(f"stencil: weights must be finite, at most {LARGEST} in size")
    return array
