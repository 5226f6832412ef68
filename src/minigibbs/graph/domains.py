"""Names and values of variables: sizes, labels and grids."""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError, TooLargeError
from minigibbs.graph.checks import as_array, as_list, constant, frozen, is_constant
from minigibbs.system import memory
from minigibbs.system.boundary import checked

MAX_DOMAIN = 2**31 - 1
MOST_VARIABLES = 2**31 - 1  # whose numbers are stored, as in factors and observables
MOST_SITES = 2**40  # of a lattice, whose numbers are computed
_LABEL_BYTES = 100  # of memory for each label of a variable
_MOST_COMPARED = 20_000  # names that an error compares with an unknown one


@checked(GraphError)
@dataclass(frozen=True)
class Grid:
    """A continuous variable discretized to evenly spaced points, both ends included.

    Parameters
    ----------
    low : float
        The first point.
    high : float
        The last point.
    points : int
        Number of points.

    Raises
    ------
    GraphError
        If there are fewer than two points, or the ends are not finite and in order.

    Examples
    --------
    >>> Grid(0.0, 1.0, 5).values
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """

    low: float
    high: float
    points: int

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        finite = all(isinstance(end, Real) and math.isfinite(end) for end in ends)
        if not (finite and self.low < self.high):
            raise GraphError(
                f"a Grid needs finite low < high, got low={self.low!r}, high={self.high!r}"
            )
        if not isinstance(self.points, int | np.integer) or self.points < 2:
            raise GraphError(f"a Grid needs at least 2 points, got points={self.points!r}")

    @property
    def values(self) -> NDArray[np.float64]:
        """The points, in ascending order."""
        memory.require(8.0 * self.points, f"a Grid of {self.points:,} points", "use fewer points")
        return np.linspace(self.low, self.high, int(self.points))


@checked(GraphError)
class Domains:
    """The variables of a graph: sizes, names, and labels or grids of their values.

    A graph creates its own `graph.domains` from its arguments. A `Domains` may be given instead,
    and can be shared by several graphs.

    Parameters
    ----------
    sizes : array-like, or iterable of int or Grid
        The domain size of each variable, or a `Grid` for a discretized continuous variable.
    names : iterable of str, optional
        One name per variable.
    labels : mapping or iterable of object, optional
        Names of values: one list for all variables, one list per variable, or a mapping from
        variable to list.

    Raises
    ------
    GraphError
        If sizes, names or labels are malformed or do not fit each other.

    Examples
    --------
    >>> import minigibbs as mg
    >>> domains = mg.Domains([2, mg.Grid(0.0, 1.0, 3)], ["rain", "level"], {"rain": ["no", "yes"]})
    >>> graph = mg.FactorGraph(domains, [])
    >>> domains.values(0), domains.values(domains.index("level"))
    (('no', 'yes'), (0.0, 0.5, 1.0))
    """

    def __init__(
        self,
        sizes: ArrayLike | Iterable[int | Grid],
        names: Iterable[str] | None = None,
        labels: Mapping[int | str, Iterable[Any]] | Iterable[Any] | None = None,
    ) -> None:
        self.grids: dict[int, Grid] = {}
        self.sizes = self._read_sizes(sizes)
        self.names = self._read_names(names)
        self.labels: dict[int, tuple[Hashable, ...]] = {}
        self.notes: tuple[str, ...] = ()  # changes made while reading the model, in words
        if labels is not None:
            self._read_labels(labels)

    def __len__(self) -> int:
        return len(self.sizes)

    def name(self, variable: int) -> str:
        """Return the name of a variable; `x7` for variable 7 if none was given.

        Parameters
        ----------
        variable : int
            The variable, by number.

        Returns
        -------
        str
            The name.
        """
        try:
            return f"x{variable}" if self.names is None else self.names[variable]
        except IndexError:
            raise self._unknown(variable) from None

    def describe(self, variable: int) -> str:
        """Return the variable's description in error messages."""
        return f"variable {variable}" + (f" ({self.name(variable)!r})" if self.names else "")

    def values(self, variable: int) -> tuple[Any, ...]:
        """Return the values of a variable: labels, grid points, or 0, 1, 2, ...

        Parameters
        ----------
        variable : int
            The variable, by number.

        Returns
        -------
        tuple
            One entry per value.
        """
        if variable in self.labels:
            return self.labels[variable]
        if variable in self.grids:
            return tuple(self.grids[variable].values.tolist())
        try:
            return tuple(range(int(self.sizes[variable])))
        except (IndexError, OverflowError):
            raise self._unknown(variable) from None

    def index(self, variable: int | str) -> int:
        """Return the number of a variable.

        Parameters
        ----------
        variable : int or str
            The variable, by number or name.

        Returns
        -------
        int
            Its number.

        Raises
        ------
        GraphError
            If the variable is unknown.
        """
        if isinstance(variable, int | np.integer) and not isinstance(variable, bool):
            if 0 <= variable < len(self):
                return int(variable)
            raise self._unknown(variable)
        try:
            return self.numbers[variable]  # type: ignore[index]
        except (KeyError, TypeError):
            raise GraphError(unknown_name(self, variable)) from None

    def _unknown(self, variable: int) -> GraphError:
        return GraphError(
            f"unknown variable {variable}: the graph has variables 0 to {len(self) - 1}"
        )

    def value(self, variable: int, value: Any) -> int:
        """Return the index of a value.

        Parameters
        ----------
        variable : int
            The variable, by number.
        value : object
            Its label, grid point or index.

        Returns
        -------
        int
            The index of the value.

        Raises
        ------
        GraphError
            If the value is unknown.
        """
        variable = self.index(variable)
        labels = self.labels.get(variable, ())
        if isinstance(value, Hashable) and value in labels:
            return labels.index(value)
        size = int(self.sizes[variable])
        if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
            if 0 <= value < size:
                return int(value)
        elif variable in self.grids and isinstance(value, float | np.floating):
            points = self.grids[variable].values
            nearest = int(np.argmin(np.abs(points - value)))
            step = points[1] - points[0]
            if np.isclose(points[nearest], value, rtol=1e-15, atol=1e-6 * step):
                return nearest
        expected = f"a value from 0 to {size - 1}"
        if labels:
            expected += " or one of its labels " + _list(labels)
        if variable in self.grids:
            grid = self.grids[variable]
            expected += f" or one of the {size} grid points from {grid.low} to {grid.high}"
        raise GraphError(f"{self.describe(variable)}: expected {expected}, got {value!r}")

    def square(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Reshape an array over all values to [variable, value], padded by 0."""
        shape = (len(self), int(self.sizes.max()))
        memory.require(
            8.0 * shape[0] * shape[1],
            f"an array of {shape[0]:,} variables by {shape[1]:,} values",
            "look at one variable at a time: result.marginal(variable)",
        )
        if np.shape(flat) != (self.sizes.sum(),):
            raise GraphError(
                f"flat must hold one number per value, {self.sizes.sum():,} in all; got shape "
                f"{np.shape(flat)}"
            )
        square = np.zeros(shape)
        square[np.arange(shape[1]) < self.sizes[:, None]] = flat
        return square

    def pick(self, variables: Sequence[int]) -> Domains:
        """Return the domains of some variables, with their names.

        Parameters
        ----------
        variables : sequence of int
            The variables, by number.

        Returns
        -------
        Domains
            The chosen variables, in this order.
        """
        variables = [self.index(variable) for variable in variables]
        chosen = list(enumerate(variables))
        labels = {k: self.labels[v] for k, v in chosen if v in self.labels}
        picked = Domains(self.sizes[variables], [self.name(v) for _, v in chosen], labels)
        picked.grids = {k: self.grids[v] for k, v in chosen if v in self.grids}
        return picked

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each variable by its name; `x7` for variable 7 if none was given."""
        names = self.names or (f"x{number}" for number in range(len(self)))
        return {name: number for number, name in enumerate(names)}

    def _read_sizes(self, sizes: Any) -> NDArray[np.int32]:
        rule = "sizes must be integers (or Grids), one per variable, at least one"
        if not isinstance(sizes, np.ndarray):
            sizes = as_list(sizes, rule)
            self.grids = {v: size for v, size in enumerate(sizes) if isinstance(size, Grid)}
            for variable, grid in self.grids.items():
                sizes[variable] = int(grid.points)
        sizes = as_array(sizes, "iu", rule)
        if sizes.ndim != 1 or not len(sizes):
            raise GraphError(f"{rule}; got an array of shape {sizes.shape}")
        alike = is_constant(sizes)
        seen = sizes[:1] if alike else sizes
        bad = np.flatnonzero((seen < 1) | (seen > MAX_DOMAIN))
        if len(bad):
            raise GraphError(
                f"variable {bad[0]}: a domain needs 1 to {MAX_DOMAIN} values, got {sizes[bad[0]]}"
            )
        return constant(int(sizes[0]), len(sizes)) if alike else frozen(sizes, np.int32)

    def _read_names(self, names: Iterable[str] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        names = tuple(as_list(names, "names must be a list of text, one per variable"))
        if len(names) != len(self):
            raise GraphError(f"names: expected {len(self)}, one per variable, got {len(names)}")
        seen: dict[str, int] = {}
        for variable, name in enumerate(names):
            if not isinstance(name, str):
                raise GraphError(f"variable {variable}: a name must be a str, got {name!r}")
            if name in seen:
                raise GraphError(f"duplicate name {name!r}: variables {seen[name]} and {variable}")
            seen[name] = variable
        return names

    def _read_labels(self, labels: Any) -> None:
        rule = (
            f"labels must be one list, {len(self)} lists (one per variable), or a mapping to lists"
        )
        if isinstance(labels, Mapping):
            per_variable = {self.index(key): value for key, value in labels.items()}
        else:
            labels = as_list(labels, rule)
            if all(_is_label(label) for label in labels):  # one list, shared by all variables
                per_variable = dict.fromkeys(range(len(self)), labels)
            elif len(labels) == len(self):
                per_variable = {v: value for v, value in enumerate(labels) if value is not None}
            else:
                raise GraphError(f"{rule}; got {len(labels)} lists")
        for variable, given in per_variable.items():
            self.labels[variable] = self._read_row(variable, given)

    def _read_row(self, variable: int, labels: Any) -> tuple[Hashable, ...]:
        """Read one variable's labels."""
        where = self.describe(variable)
        row = tuple(as_list(labels, f"{where}: labels must be a list"))
        if len(row) != self.sizes[variable]:
            raise GraphError(
                f"{where}: expected {self.sizes[variable]} labels, one per value, got {len(row)}"
            )
        strange = [label for label in row if not is_hashable(label)]
        if strange:
            raise GraphError(f"{where}: a label must be text or a number, got {strange[0]!r}")
        if len(set(row)) != len(row):
            raise GraphError(f"{where}: duplicate labels in {row!r}")
        return row


def require_numbers(variables: int) -> None:
    """Refuse graphs whose variables have numbers beyond 32 bits, which factors cannot store."""
    if variables > MOST_VARIABLES:
        raise TooLargeError(
            f"only stencils can have {variables:,} variables, more than {MOST_VARIABLES:,}; use "
            'mg.Gibbs() or mg.PoissonGibbs() with scan="chromatic" and spins with one coupling '
            "strength per offset, and record energies or the magnetization"
        )


def unknown_name(domains: Domains, name: Any) -> str:
    """Return the error message for a name that no variable has."""
    hint = "no such name"
    if domains.names is None:
        hint = f"the graph's variables have no names but x0 to x{len(domains) - 1}"
    elif isinstance(name, str):
        close = difflib.get_close_matches(name, domains.names[:_MOST_COMPARED])
        hint += f"; close names: {_list(close)}" if close else f"; names: {_list(domains.names)}"
    return f"unknown variable {name!r}: {hint}"


@checked(GraphError)
class PrunedDomains(Domains):
    """Domains without states that cannot occur; the remaining states keep their labels.

    Parameters
    ----------
    full_sizes
        Original number of states of each variable.
    kept
        The remaining states, for each variable that lost some.
    names
        One name per variable.
    labels
        The labels of the original states by variable, as a list or by index. By default, the
        remaining states of a pruned variable are labeled by their original indices.
    """

    def __init__(
        self,
        full_sizes: NDArray[np.int32],
        kept: Mapping[int, NDArray[np.integer]] | None = None,
        names: Sequence[str] | None = None,
        labels: Mapping[int, Any] | None = None,
    ) -> None:
        self.full_sizes = full_sizes
        self.kept: dict[int, NDArray[np.integer]] = dict(kept or {})
        sizes, left = full_sizes.copy(), dict(labels or {})
        self._full = {v: left[v] for v in self.kept if v in left}
        for variable, states in self.kept.items():
            sizes[variable] = len(states)
            full = left.get(variable)
            left[variable] = [s if full is None else full[s] for s in states.tolist()]
        super().__init__(sizes, names, left)

    def full_values(self, variable: int) -> tuple[Any, ...]:
        """Return the values of a variable, pruned ones included."""
        if variable not in self.kept:
            return self.values(variable)
        size = int(self.full_sizes[variable])
        memory.require(size * _LABEL_BYTES, f"the labels of {size:,} states", "use .uai files")
        full = self._full.get(variable, {})
        if isinstance(full, Mapping):
            return tuple(full.get(state, state) for state in range(size))
        return tuple(full)

    def lost_labels(self, variable: int) -> list[Any]:
        """Return the labels of the pruned states of a variable; none if they are unknown."""
        if len(self._full.get(variable, ())) < self.full_sizes[variable]:
            return []
        kept = set(self.kept[variable].tolist())
        return [x for state, x in enumerate(self.full_values(variable)) if state not in kept]

    def value(self, variable: int, value: Any) -> int:
        """Return the index of a value, given by label or original index; refuse lost values."""
        if variable not in self.kept:
            return super().value(variable, value)
        labels, states = self.labels[variable], tuple(self.kept[variable].tolist())
        if isinstance(value, Hashable) and value in labels:
            return labels.index(value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and value in states:
            return states.index(int(value))
        raise GraphError(
            f"{self.describe(variable)}: expected one of the states that no factor forbids "
            f"({_list(labels)}), got {value!r}"
        )


def all_values(domains: Domains, variable: int) -> tuple[Any, ...]:
    """Return the values of a variable, pruned ones included."""
    if isinstance(domains, PrunedDomains):
        return domains.full_values(variable)
    return domains.values(variable)


def domains_header(domains: Domains) -> dict[str, Any]:
    """Convert names, labels and grids to JSON."""
    labels = {v: _plain_row(domains, v, row) for v, row in domains.labels.items()}
    grids = {v: [float(g.low), float(g.high), int(g.points)] for v, g in domains.grids.items()}
    header: dict[str, Any] = {"names": domains.names, "labels": labels, "grids": grids}
    if isinstance(domains, PrunedDomains):
        # By variable: original size, remaining states, labels of the other states.
        full = domains.full_sizes.tolist()
        header["pruned"] = {
            v: [full[v], states.tolist(), _plain_row(domains, v, domains.lost_labels(v))]
            for v, states in domains.kept.items()
        }
    return header


def _plain_row(domains: Domains, variable: int, labels: Iterable[Any]) -> list[Any]:
    """Convert the labels of a variable to JSON."""
    row = [_plain(label) for label in labels]
    odd = [label for label in row if not isinstance(label, str | int | float)]
    if odd:
        raise GraphError(
            f"{domains.describe(variable)}: a file keeps labels that are text or numbers, "
            f"got {odd[0]!r}; use str(label) to keep it"
        )
    return row


def domains_from_header(header: Mapping[str, Any], sizes: NDArray[Any]) -> Domains:
    """The inverse of `domains_header`."""
    domains = Domains(sizes, header["names"], {int(v): row for v, row in header["labels"].items()})
    if header.get("pruned"):
        domains = _pruned(domains, header["pruned"])
    for key, row in header["grids"].items():
        variable, grid = domains.index(int(key)), Grid(*row)
        if grid.points != domains.sizes[variable]:
            raise GraphError(
                f"{domains.describe(variable)}: expected a Grid of {domains.sizes[variable]} "
                f"points, got {grid.points}"
            )
        domains.grids[variable] = grid
    return domains


def _pruned(domains: Domains, pruned: Mapping[str, Any]) -> PrunedDomains:
    """Convert domains to `PrunedDomains`, from the pruned states in a header."""
    full_sizes, labels = domains.sizes.copy(), dict[int, Any](domains.labels)
    kept = {}
    for key, (size, states, *given) in pruned.items():
        variable = domains.index(int(key))
        kept[variable] = as_array(states, "iu", "pruned: states must be integers")
        ordered = kept[variable].tolist()
        if len(ordered) != domains.sizes[variable] or not all(
            a < b for a, b in zip([-1, *ordered], [*ordered, size], strict=True)
        ):
            raise GraphError(
                f"{domains.describe(variable)}: expected {domains.sizes[variable]} states below "
                f"{size} in order, got {_list(ordered)}"
            )
        full_sizes[variable] = size
        labels[variable] = dict(zip(ordered, domains.values(variable), strict=True))
        if given and given[0]:  # the labels of states that were lost
            labels[variable] |= _lost(domains, variable, size, ordered, given[0])
    return PrunedDomains(full_sizes, kept, domains.names, labels)


def _lost(
    domains: Domains, variable: int, size: int, kept: Sequence[int], labels: Any
) -> dict[int, Any]:
    """Read the labels of pruned states, by original index."""
    row = as_list(labels, f"{domains.describe(variable)}: labels must be a list")
    if len(row) != size - len(kept) or not all(_is_label(label) for label in row):
        raise GraphError(
            f"{domains.describe(variable)}: expected {size - len(kept)} labels of pruned states, "
            f"got {_list(row)}"
        )
    if len({*row, *domains.values(variable)}) < size:
        raise GraphError(f"{domains.describe(variable)}: duplicate labels in {_list(row)}")
    left = set(kept)
    numbers = [number for number in range(size) if number not in left]
    return dict(zip(numbers, row, strict=True))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def is_hashable(value: Any) -> bool:
    """Return whether a value is hashable; tuples of lists and writable records of NumPy are not."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_label(label: Any) -> bool:
    return isinstance(label, str | int | float | bool | np.generic)


def _list(labels: Sequence[Any], most: int = 8) -> str:
    shown = ", ".join(repr(label) for label in labels[:most])
    return shown + (", ..." if len(labels) > most else "")
