"""The interface between samplers and implicit kinds, and the dispatch by kind.

Each kind has one file in this package. It registers

* `Kind`: the functions that split the kind, prepare its draws and prepare its log-potential;
* `Draws`, for each type of prepared data: the compiled functions that draw, initialize running
  sums, update them, and return the data of a scaled copy;
* its compiled log-potential, for the exchanges of `Tempering`.

Upper bounds on M are sufficient: a draw that is weaker than its bound, or that is not a factor (a
neighbor off the grid, the variable itself), is thinned.
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
    """The requested settings of a split, and the largest domain."""

    slowdown: float | None
    theta: float | None
    heavy: int | None
    values: int
    measured: float | None = None  # the graph's own stickiness, if known

    @property
    def stickiness(self) -> float:
        """The measured stickiness, or the typical one."""
        return STICKINESS if self.measured is None else self.measured


@dataclass(frozen=True)
class ImplicitSplit:
    """The split of an implicit group, common to all variables."""

    theta: float
    tail: float  # largest L_T
    draws: float  # expected draws per update, averaged over the variables
    least: float = math.inf  # the smallest heavy |weight|
    heavy: int = 0  # maximum number of evaluated pairs per variable
    exact: float = 0.0  # the sum of M over the evaluated pairs
    kept: float = 1.0  # the share of draws that thinning keeps
    projected: int = 0  # running sums per chain that replace all pairs, for low rank

    @property
    def log_slowdown(self) -> float:
        """The bound on log(slowdown) for the largest tail."""
        return float(tail_log_slowdown(self.tail, self.theta))

    @property
    def log_range(self) -> float:
        """The largest absolute log weight of a value, as `Split.log_range`."""
        return self.exact + float(tail_range(self.tail, self.theta))


def all_drawn(tail: float, mean: float, wish: Wish) -> ImplicitSplit:
    """Return a split that minibatches all pairs; theta suits the largest tail."""
    best = best_theta(np.array([tail]), wish.slowdown, DRAW, wish.stickiness)
    chosen = wish.theta or float(best[0])
    return ImplicitSplit(chosen, tail, (1 + chosen) * mean)


class Place(NamedTuple):
    """The position of a group among those of an update, and the offsets of its arrays."""

    logs: bool  # whether updates add log weights; otherwise they multiply weights
    values: int  # the largest domain
    first: int  # index of its first running sum in `Chain.carried`
    scratch: int  # index of its first integer in `Chain.scratch`
    before: int  # groups that draw before it
    later: int  # groups that draw after it


class Kind(NamedTuple):
    """The functions by which samplers use one implicit kind."""

    split: Callable[[Any, Wish], ImplicitSplit]
    prepare: Callable[[Any, ImplicitSplit, Place], Any]  # returns the data of draws
    energy: Callable[[Any], Any] | None  # returns the data of energies; None for `Copied`
    energy_cost: Callable[[Any], float] | None  # predicted ns per energy


@kernel
def no_begin(data, chain):
    """Do nothing: the group has no running sums; compiled code only."""


@kernel
def no_note(data, chain, i, new):
    """Do nothing: the group has no running sums; compiled code only."""


class Draws(NamedTuple):
    """The compiled functions of one type of prepared data."""

    draw: Any  # (data, chain, i, mode, size, touched) -> touched
    copy: Any = None  # (data, copies, number) -> the data of one scaled copy
    begin: Any = no_begin  # (data, chain): initialize the running sums, for a new state
    note: Any = no_note  # (data, chain, i, new): update them, before the state changes
    space: Callable[[Any], tuple[int, int]] = lambda data: (0, 0)  # lengths in `carried`, `scratch`


KINDS: dict[type, Kind] = {}
_DRAWS: dict[type, Draws] = {}
_ENERGIES: dict[type, Any] = {}


def register_kind(group: type[Implicit], kind: Kind) -> None:
    """Register the functions of a kind."""
    KINDS[group] = kind


def register_draws(data: type, draws: Draws) -> None:
    """Register the compiled functions of a type of prepared data."""
    _DRAWS[data] = draws


def register_energy(data: type, energy: Any) -> None:
    """Register a compiled energy (data, x, numbers); `numbers` has space for two per value."""
    _ENERGIES[data] = energy


class NothingData(NamedTuple):
    """The data of a graph without implicit groups."""

    unused: int


class SeveralData(NamedTuple):
    """Several groups, which draw one after another."""

    group: Any
    others: Any  # another group, or `SeveralData`


def split_implicit(group: Implicit, wish: Wish) -> ImplicitSplit:
    """Split one implicit group."""
    return KINDS[type(group)].split(group, wish)


def prepare_implicit(graph: FactorGraph, splits: tuple[ImplicitSplit, ...], logs: bool) -> Any:
    """Prepare the graph's implicit groups, if any, for weights or for their logarithms."""
    data: Any = NothingData(0)
    values = int(graph.sizes.max())
    first, scratch = (0, 0) if logs else touched_space(values)  # after that of touched values
    groups = list(zip(graph.implicits, splits, strict=True))
    for before, (group, how) in reversed(list(enumerate(groups))):
        place = Place(logs, values, first, scratch, before, len(groups) - 1 - before)
        own = KINDS[type(group)].prepare(group, how, place)
        first += implicit_space(own)[0]
        data = own if isinstance(data, NothingData) else SeveralData(own, data)
    return data


def implicit_space(data: Any) -> tuple[int, int]:
    """Return the lengths of the groups' parts of the chain's `carried` and `scratch` arrays."""
    return _DRAWS[type(data)].space(data) if type(data) in _DRAWS else (0, 0)


def draw_implicit(data: Any, chain: Any, i: int, mode: int, size: int, touched: int) -> int:
    """Draw from the implicit groups and multiply the values they favor; compiled code only.

    Returns the number of touched values.
    """
    chosen = _DRAWS[type(data)].draw
    return chosen(data, chain, i, mode, size, touched)  # type: ignore[no-any-return]


@chosen_by_type(draw_implicit)
def _draw_for_type(data, chain, i, mode, size, touched):
    return _DRAWS[data.instance_class].draw.py_func


def begin_implicit(data: Any, chain: Any) -> None:
    """Initialize the running sums of the implicit groups, for a new state; compiled code only."""
    _DRAWS[type(data)].begin(data, chain)


@chosen_by_type(begin_implicit)
def _begin_for_type(data, chain):
    return _DRAWS[data.instance_class].begin.py_func


def note_implicit(data: Any, chain: Any, i: int, new: int) -> None:
    """Update the groups' running sums for a value not yet in the state; compiled code only."""
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
    """Do nothing: there are no implicit groups."""
    return touched


@kernel
def several_draw(data, chain, i, mode, size, touched):
    """Draw from one group, then from the others; the order of the products does not matter."""
    touched = draw_implicit(data.group, chain, i, mode, size, touched)
    return draw_implicit(data.others, chain, i, mode, size, touched)


@kernel
def several_begin(data, chain):
    """Initialize one group, then the others."""
    begin_implicit(data.group, chain)
    begin_implicit(data.others, chain)


@kernel
def several_note(data, chain, i, new):
    """Update the running sums of one group, then of the others."""
    note_implicit(data.group, chain, i, new)
    note_implicit(data.others, chain, i, new)


def several_space(data: SeveralData) -> tuple[int, int]:
    """Return the total of `carried` and the maximum of `scratch`, which the next group reuses."""
    (carried, scratch), (more, other) = implicit_space(data.group), implicit_space(data.others)
    return carried + more, max(scratch, other)


register_draws(NothingData, Draws(nothing_draw))
register_draws(
    SeveralData,
    Draws(several_draw, begin=several_begin, note=several_note, space=several_space),
)


class NoEnergy(NamedTuple):
    """The data of a graph without implicit groups."""

    unused: int


class SeveralEnergies(NamedTuple):
    """The sum of one group's log-potential and that of the others."""

    group: Any
    others: Any  # another group, or `SeveralEnergies`


def prepare_energies(groups: tuple[Implicit, ...]) -> Any:
    """Prepare the data from which the log-potentials of some groups are computed."""
    data: Any = NoEnergy(0)
    for group in reversed(groups):
        prepare = KINDS[type(group)].energy
        assert prepare is not None
        own = prepare(group)
        data = own if isinstance(data, NoEnergy) else SeveralEnergies(own, data)
    return data


def energy_cost(group: Implicit) -> float:
    """Predict the nanoseconds of a group's log-potential from the table of costs."""
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
    """Return the factor of a pair's weight."""
    return 1.0 if same else (-1.0 if spins else 0.0)


register_energy(NoEnergy, no_energy)
register_energy(SeveralEnergies, several_energies)
