"""What samplers need to know about an implicit kind, and the dispatch to it.

Each kind has one file in this package. It registers

* `Kind`: how the kind is split and prepared for draws, and prepared for energies;
* `Draws`, for each type of prepared data: the compiled functions that draw, begin, note a change
  and return a weaker copy;
* its compiled energy, for the exchanges of `Tempering`.

Upper bounds on M are enough. A draw is thinned away if the factor is weaker than its bound, or if
there is no factor: a neighbor outside the grid, or the variable itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import chosen_by_type, kernel
from minigibbs.kernels.touched import touched_space
from minigibbs.samplers.bounds import tail_log_slowdown
from minigibbs.samplers.poisson_gibbs.theta import DRAW, STICKINESS, best_theta, tail_range

INSTEAD = "weaken the couplings, or store them (graph.stored()) and use mg.Gibbs()"


class Wish(NamedTuple):
    """What the user asked of a split, and the largest domain."""

    slowdown: float | None
    theta: float | None
    heavy: int | None
    values: int
    measured: float | None = None  # stickiness, if it was measured

    @property
    def stickiness(self) -> float:
        """The measured stickiness, or the typical one."""
        return STICKINESS if self.measured is None else self.measured


@dataclass(frozen=True)
class ImplicitSplit:
    """How an implicit group is split: the same for all variables."""

    theta: float
    tail: float  # L_T of the variable where it is largest
    draws: float  # expected draws per update, averaged over the variables
    least: float = math.inf  # the least |weight| that is evaluated exactly
    heavy: int = 0  # the most pairs of a variable that are evaluated exactly
    exact: float = 0.0  # the sum of M over what is evaluated exactly
    kept: float = 1.0  # the share of draws that hit a factor; the others are thinned away
    projected: int = 0  # running sums per chain that replace all pairs, for low rank

    @property
    def log_slowdown(self) -> float:
        """The bound on log(slowdown) where the tail is largest."""
        return float(tail_log_slowdown(self.tail, self.theta))

    @property
    def log_range(self) -> float:
        """Largest absolute logarithm of a value's weight, as `Split.log_range`."""
        return self.exact + float(tail_range(self.tail, self.theta))


def all_drawn(tail: float, mean: float, wish: Wish) -> ImplicitSplit:
    """Return a split without exactly evaluated pairs; theta suits the largest tail."""
    best = best_theta(np.array([tail]), wish.slowdown, DRAW, wish.stickiness)
    chosen = wish.theta or float(best[0])
    return ImplicitSplit(chosen, tail, (1 + chosen) * mean)


class Place(NamedTuple):
    """Where a group is among the groups of an update."""

    logs: bool  # whether an update sums logarithms of weights; else it multiplies weights
    values: int  # the largest domain
    first: int  # index of its first running sum in `Chain.carried`
    scratch: int  # index of its first integer in `Chain.scratch`
    before: int  # groups that draw before it
    later: int  # groups that draw after it


class Kind(NamedTuple):
    """How samplers handle one implicit kind."""

    split: Callable[[Any, Wish], ImplicitSplit]
    prepare: Callable[[Any, ImplicitSplit, Place], Any]  # what draws read
    energy: Callable[[Any], Any] | None  # what energies read; None where ladders have copies
    energy_cost: Callable[[Any], float] | None  # predicted ns per energy


def no_begin(data: Any, chain: Any) -> None:
    """Set nothing: the group carries nothing; compiled code only."""


def no_note(data: Any, chain: Any, i: int, new: int) -> None:
    """Update nothing: the group carries nothing; compiled code only."""


class Draws(NamedTuple):
    """The compiled functions of one type of prepared data."""

    draw: Any  # (data, chain, i, mode, size, touched) -> touched
    copy: Any = None  # (data, copies, number) -> the data of one scaled copy
    begin: Any = kernel(no_begin)  # (data, chain): set what the chain carries, for a new state
    note: Any = kernel(no_note)  # (data, chain, i, new): before the state changes
    space: Callable[[Any], tuple[int, int]] = lambda data: (0, 0)  # numbers carried, scratch


KINDS: dict[type, Kind] = {}
_DRAWS: dict[type, Draws] = {}
_ENERGIES: dict[type, Any] = {}


def register_kind(group: type[Implicit], kind: Kind) -> None:
    """Register how samplers handle a kind."""
    KINDS[group] = kind


def register_draws(data: type, draws: Draws) -> None:
    """Register the compiled functions of a type of prepared data."""
    _DRAWS[data] = draws


def register_energy(data: type, energy: Any) -> None:
    """Register a compiled energy (data, x, numbers); `numbers` has space for two per value."""
    _ENERGIES[data] = energy


class NothingData(NamedTuple):
    """A graph without implicit groups."""

    unused: int


class SeveralData(NamedTuple):
    """Several groups, which draw one after the other."""

    group: Any
    others: Any  # one more group, or `SeveralData`


def split_implicit(group: Implicit, wish: Wish) -> ImplicitSplit:
    """Split one implicit group."""
    return KINDS[type(group)].split(group, wish)


def prepare_implicit(graph: FactorGraph, splits: tuple[ImplicitSplit, ...], logs: bool) -> Any:
    """Prepare the implicit groups of a graph, for weights or for their logarithms."""
    data: Any = NothingData(0)
    values = int(graph.sizes.max())
    first, scratch = (0, 0) if logs else touched_space(values)  # groups follow the touched values
    groups = list(zip(graph.implicits, splits, strict=True))
    for before, (group, how) in reversed(list(enumerate(groups))):
        place = Place(logs, values, first, scratch, before, len(groups) - 1 - before)
        own = KINDS[type(group)].prepare(group, how, place)
        first += implicit_space(own)[0]
        data = own if isinstance(data, NothingData) else SeveralData(own, data)
    return data


def implicit_space(data: Any) -> tuple[int, int]:
    """Return how many numbers a chain carries for the groups, and how many integers of scratch."""
    return _DRAWS[type(data)].space(data) if type(data) in _DRAWS else (0, 0)


def draw_implicit(data: Any, chain: Any, i: int, mode: int, size: int, touched: int) -> int:
    """Multiply the weights of values by the factors that are drawn; compiled code only.

    Returns how many values are touched.
    """
    chosen = _DRAWS[type(data)].draw
    return chosen(data, chain, i, mode, size, touched)  # type: ignore[no-any-return]


@chosen_by_type(draw_implicit)
def _draw_for_type(data, chain, i, mode, size, touched):
    return _DRAWS[data.instance_class].draw.py_func


def begin_implicit(data: Any, chain: Any) -> None:
    """Set what the implicit groups carry, for a new state; compiled code only."""
    _DRAWS[type(data)].begin(data, chain)


@chosen_by_type(begin_implicit)
def _begin_for_type(data, chain):
    return _DRAWS[data.instance_class].begin.py_func


def note_implicit(data: Any, chain: Any, i: int, new: int) -> None:
    """Update what the implicit groups carry, before the state changes; compiled code only."""
    _DRAWS[type(data)].note(data, chain, i, new)


@chosen_by_type(note_implicit)
def _note_for_type(data, chain, i, new):
    return _DRAWS[data.instance_class].note.py_func


def copy_of(data: Any, copies: Any, number: int) -> Any:
    """Return the data of one scaled copy of a group; compiled code only."""
    return _DRAWS[type(data)].copy(data, copies, number)


@chosen_by_type(copy_of)
def _copy_for_type(data, copies, number):
    return _DRAWS[data.instance_class].copy.py_func


@kernel
def nothing_draw(data, chain, i, mode, size, touched):
    """Draw nothing."""
    return touched


@kernel
def several_draw(data, chain, i, mode, size, touched):
    """Draw from one group, then from the others; weights multiply in any order."""
    touched = draw_implicit(data.group, chain, i, mode, size, touched)
    return draw_implicit(data.others, chain, i, mode, size, touched)


@kernel
def several_begin(data, chain):
    """Begin one group, then the others."""
    begin_implicit(data.group, chain)
    begin_implicit(data.others, chain)


@kernel
def several_note(data, chain, i, new):
    """Note a change in one group, then in the others."""
    note_implicit(data.group, chain, i, new)
    note_implicit(data.others, chain, i, new)


def several_space(data: SeveralData) -> tuple[int, int]:
    """Return the sum of what is carried; groups draw in turn and share their scratch."""
    (carried, scratch), (more, other) = implicit_space(data.group), implicit_space(data.others)
    return carried + more, max(scratch, other)


register_draws(NothingData, Draws(nothing_draw))
register_draws(
    SeveralData,
    Draws(several_draw, begin=several_begin, note=several_note, space=several_space),
)


class NoEnergy(NamedTuple):
    """A graph without implicit groups."""

    unused: int


class SeveralEnergies(NamedTuple):
    """The sum of one group's log-potential and that of the others."""

    group: Any
    others: Any  # one more group, or `SeveralEnergies`


def prepare_energies(groups: tuple[Implicit, ...]) -> Any:
    """Prepare what the log-potentials of some groups are computed from."""
    data: Any = NoEnergy(0)
    for group in reversed(groups):
        prepare = KINDS[type(group)].energy
        assert prepare is not None
        own = prepare(group)
        data = own if isinstance(data, NoEnergy) else SeveralEnergies(own, data)
    return data


def energy_cost(group: Implicit) -> float:
    """Predict the ns that one log-potential of a group takes, by shipped costs."""
    cost = KINDS[type(group)].energy_cost
    assert cost is not None
    return cost(group)


def group_energy(data: Any, x: Any, numbers: Any) -> float:
    """Return the log-potential of the implicit groups in a state; compiled code only."""
    return _ENERGIES[type(data)](data, x, numbers)  # type: ignore[no-any-return]


@chosen_by_type(group_energy)
def _energy_for_type(data, x, numbers):
    return _ENERGIES[data.instance_class].py_func


@kernel
def no_energy(data, x, numbers):
    """Return 0."""
    return 0.0


@kernel
def several_energies(data, x, numbers):
    """Add the log-potential of one group to that of the others."""
    return group_energy(data.group, x, numbers) + group_energy(data.others, x, numbers)


@kernel
def pair_sign(spins, same):
    """Return what the weight of a pair is multiplied by."""
    return 1.0 if same else (-1.0 if spins else 0.0)


register_energy(NoEnergy, no_energy)
register_energy(SeveralEnergies, several_energies)
