"""The model: a frozen, validated factor graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import (
    Frozen,
    as_array,
    as_list,
    constant,
    frozen,
    is_constant,
    some_of,
)
from minigibbs.graph.domains import Domains, Grid, require_numbers
from minigibbs.graph.factors.base import FREE, Factors
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.factors.stencil import Stencil
from minigibbs.graph.prepared import SHARED, STORE, share
from minigibbs.graph.stats import (
    Stats,
    compute_stats,
    description,
    estimated_rounding,
    html_table,
    influence,
    local_energies,
)
from minigibbs.system import memory
from minigibbs.system.arrays import to_scalar
from minigibbs.system.boundary import checked

if TYPE_CHECKING:
    from minigibbs.graph.coloring import Coloring
    from minigibbs.graph.parameters import Frame
    from minigibbs.kernels.layout import Model


@checked(GraphError)
class FactorGraph(Frozen):
    """A distribution pi(x) proportional to exp(sum of factors), over finite domains.

    Parameters
    ----------
    sizes : array-like, iterable of int or Grid, or Domains
        The domain size of each variable, or a `Grid` for a discretized continuous variable; or
        `Domains`, which have names and labels of their own.
    factors : iterable of factor groups
        Factor groups in any number and mixture: `Unary`, `Potts`, `Ising`, `Table`, `Logical`;
        `Stencil`, which couples the sites of a lattice; `Kernel`, `Points`, `Complete`, `LowRank`,
        which join all variables. The last five are implicit. Groups refer to variables by number
        or, if `names` are given, by name.
    names : iterable of str, optional
        One name per variable.
    labels : mapping or iterable of object, optional
        Names of values: one list for all variables, a list per variable, or a mapping from variable
        to list.
    evidence : array-like, optional
        The value of each clamped variable, and -1 for free ones. `condition` is the usual way to
        set it.

    Attributes
    ----------
    domains : Domains
        Sizes, names and labels of the variables.
    factors : tuple
        The factor groups.
    evidence : ndarray of int
        [variable] the clamped value, or -1 for a free variable.

    Raises
    ------
    GraphError
        If a factor does not fit the variables, or an argument is malformed.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 3], [mg.Potts([0], [1], 1.5)], names=["a", "b"])
    >>> graph.log_potential([1, 1])
    1.5
    >>> graph.stats.local_energy
    1.5
    >>> rain = mg.Logical("imply", [["rain", "wet"]], 2.0)
    >>> mg.FactorGraph([2, 2], [rain], names=["rain", "wet"]).factors[0].scope
    array([[0, 1]], dtype=int32)
    """

    domains: Domains
    factors: tuple[Factors, ...]
    evidence: NDArray[np.int32]

    def __init__(
        self,
        sizes: ArrayLike | Iterable[int | Grid] | Domains,
        factors: Iterable[Factors] | Factors,
        names: Iterable[str] | None = None,
        labels: Mapping[int | str, Iterable[Any]] | Iterable[Any] | None = None,
        *,
        evidence: ArrayLike | None = None,
    ) -> None:
        if isinstance(sizes, Domains):
            if names is not None or labels is not None:
                raise GraphError("names and labels are those of the Domains; give them there")
            domains = sizes
        else:
            domains = Domains(sizes, names, labels)
        if isinstance(factors, Factors):
            factors = [factors]
        groups = as_list(factors, "factors must be a list of groups such as mg.Potts(...)")
        for number, group in enumerate(groups):
            if not isinstance(group, Factors):
                raise GraphError(
                    f"factors: expected groups such as mg.Potts(...), got "
                    f"{type(group).__name__} at position {number}"
                )
            groups[number] = group.resolve(domains, number)
            groups[number].check_domains(domains, number)
        if not any(isinstance(group, Stencil) for group in groups):
            require_numbers(len(domains))
        if evidence is None:
            clamped = constant(FREE, len(domains))
            if not is_constant(domains.sizes):
                clamped = frozen(clamped, np.int32)
        else:
            clamped = _read_evidence(evidence, domains)
        vars(self).update(domains=domains, factors=tuple(groups), evidence=clamped)

    def __len__(self) -> int:
        return len(self.domains)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes except cached results; see `graph.prepared`."""
        return {key: value for key, value in vars(self).items() if key not in (STORE, SHARED)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @cached_property
    def free(self) -> int:
        """Number of variables that are not clamped."""
        if is_constant(self.evidence):
            return len(self) if self.evidence[0] == FREE else 0
        return int(np.count_nonzero(self.evidence == FREE))

    @property
    def sizes(self) -> NDArray[np.int32]:
        """The domain size of each variable."""
        return self.domains.sizes

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the variables; None if none were given."""
        return self.domains.names

    def condition(self, evidence: Mapping[int | str, Any]) -> FactorGraph:
        """Return the graph with some variables clamped.

        Parameters
        ----------
        evidence : mapping
            Variables, by number or name, to values or labels.

        Returns
        -------
        FactorGraph
            The graph with the evidence added.

        Raises
        ------
        GraphError
            If a variable or value is unknown.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.0)], names=["rain", "wet"],
        ...                        labels=["no", "yes"])
        >>> graph.condition({"rain": "yes"}).stats.variables
        1
        """
        if not isinstance(evidence, Mapping):
            shape = f" of shape {evidence.shape}" if isinstance(evidence, np.ndarray) else ""
            raise GraphError(
                'evidence must be a mapping from variables to values, such as {"rain": "yes"} or '
                f"{{0: 1}}; got {type(evidence).__name__}{shape}. To clamp all variables to the "
                "integers of a list, give dict(enumerate(values))"
            )
        clamped = self.evidence.copy()
        for variable, value in evidence.items():
            number = self.domains.index(variable)
            fixed = self.domains.value(number, to_scalar(value))
            if clamped[number] not in (FREE, fixed):
                raise GraphError(
                    f"{self.domains.describe(number)} is clamped to {clamped[number]} already; "
                    f"got {fixed}"
                )
            clamped[number] = fixed
        return share(FactorGraph(self.domains, self.factors, evidence=clamped), self)

    def with_likelihoods(self, likelihoods: Mapping[int | str, ArrayLike]) -> FactorGraph:
        """Return the graph with soft evidence: a likelihood for each value of some variables.

        Only ratios matter: [1, 4] and [0.2, 0.8] make value 1 four times as likely as before.

        Parameters
        ----------
        likelihoods : mapping
            Variables, by number or name, to one nonnegative number per value.

        Returns
        -------
        FactorGraph
            The same factors, and one unary factor per variable given.

        Raises
        ------
        GraphError
            If a variable is unknown, or the numbers are negative or all 0.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.FactorGraph([2], [], names=["rain"])
        >>> mg.infer(graph.with_likelihoods({"rain": [1, 4]})).marginal("rain").probability
        array([0.2, 0.8])
        """
        from minigibbs.graph.factors.unary import Unary

        groups = list(self.factors)
        for variable, given in likelihoods.items():
            number = self.domains.index(variable)
            rule = f"likelihoods of {self.domains.describe(number)} must be numbers of at least 0"
            given = as_array(given, "iuf", rule)
            memory.require(4 * 8 * given.size, "likelihoods of a variable", "give fewer values")
            values = given.astype(np.float64)
            if values.shape != (int(self.sizes[number]),):
                raise GraphError(f"{rule}, one per value; got shape {values.shape}")
            if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
                raise GraphError(f"{rule}, finite and not all 0; got {values.tolist()}")
            with np.errstate(divide="ignore"):
                groups.append(Unary([number], np.log(values)[None]))
        return share(FactorGraph(self.domains, groups, evidence=self.evidence), self)

    @overload
    def energy(self, x: Sequence[int]) -> float: ...
    @overload
    def energy(self, x: ArrayLike) -> Any: ...
    def energy(self, x: ArrayLike) -> Any:
        """Compute the energy: minus `log_potential`, so that lower is more probable.

        Parameters
        ----------
        x : array-like of int
            One state, or one state per row.

        Returns
        -------
        float or ndarray
            One value per state. A state that a hard constraint forbids has an energy of inf.

        Raises
        ------
        GraphError
            If the states do not fit the graph.

        Examples
        --------
        >>> import minigibbs as mg
        >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
        >>> pair.energy([[0, 0], [0, 1]])
        array([-0.5,  0.5])
        """
        return 0.0 - self.log_potential(x)  # never -0.0

    @overload
    def log_potential(self, x: Sequence[int]) -> float: ...
    @overload
    def log_potential(self, x: ArrayLike) -> Any: ...
    def log_potential(self, x: ArrayLike) -> Any:
        """Compute the sum of all factors: log pi(x) up to a constant.

        Higher values are more probable. Samplers shift each factor to a minimum of 0, which does
        not change the distribution.

        Parameters
        ----------
        x : array-like of int
            One state, or one state per row.

        Returns
        -------
        float or ndarray
            One value per state.

        Raises
        ------
        GraphError
            If the states do not fit the graph.

        Examples
        --------
        >>> import minigibbs as mg
        >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
        >>> pair.log_potential([[0, 0], [0, 1]])
        array([ 0.5, -0.5])
        """
        states = self.check_states(x)
        offset = 0.0 if self.only_stencils else self.rest.offset
        values = log_potentials(self, np.atleast_2d(states), offset)
        return float(values[0]) if states.ndim == 1 else values

    def check_states(self, x: ArrayLike) -> NDArray[Any]:
        """Return states in the smallest sufficient type; errors name the variable."""
        rule = f"a state must hold integers, one for each of {len(self)} variables"
        states = as_array(x, "iub", rule)
        if states.ndim not in (1, 2) or states.shape[-1] != len(self):
            raise GraphError(f"{rule}; got shape {states.shape}")
        rows = np.atleast_2d(states)
        if is_constant(self.sizes):  # makes no array of a larger type
            wrong = rows.size > 0 and not 0 <= rows.min() <= rows.max() < int(self.sizes[0])
        else:
            wrong = bool(((rows < 0) | (rows >= self.sizes)).any())
        if wrong:
            row, variable = np.argwhere((rows < 0) | (rows >= self.sizes))[0]
            raise GraphError(
                f"{self.domains.describe(int(variable))}: a state must hold values from 0 to "
                f"{self.sizes[variable] - 1}, got {rows[row, variable]}"
            )
        return np.ascontiguousarray(states, dtype=self.state_type)

    @cached_property
    def state_type(self) -> np.dtype[Any]:
        """The smallest unsigned integer type for all values."""
        return np.min_scalar_type(int(some_of(self.sizes).max()) - 1)

    def implicit_energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the sum of the implicit factors in each row of states."""
        return sum((group.energies(states) for group in self.implicits), np.zeros(len(states)))

    @property
    def implicits(self) -> tuple[Implicit, ...]:
        """The implicit groups, in their order."""
        return tuple(group for group in self.factors if isinstance(group, Implicit))

    @cached_property
    def stencils(self) -> tuple[Stencil, ...]:
        """The stencils, in their order. `packed` has them as pairs."""
        return tuple(group for group in self.factors if isinstance(group, Stencil))

    @property
    def only_stencils(self) -> bool:
        """Whether all factors are stencils, and there is at least one."""
        return 0 < len(self.stencils) == len(self.factors)

    @property
    def rest(self) -> FactorGraph:
        """The graph without its stencils; itself if it has none."""
        return self._rest if self.stencils else self

    @cached_property
    def _rest(self) -> FactorGraph:
        others = [group for group in self.factors if not isinstance(group, Stencil)]
        return FactorGraph(self.domains, others, evidence=self.evidence)

    def with_pairs(self) -> FactorGraph:
        """Return the graph with its stencils as pairs; itself if it has none."""
        if not self.stencils:
            return self
        groups = [g.stored() if isinstance(g, Stencil) else g for g in self.factors]
        return share(FactorGraph(self.domains, groups, evidence=self.evidence), self)

    @cached_property
    def lattice(self) -> Stencil | None:
        """The stencil of a graph of one stencil and unary factors; None for any other graph."""
        if len(self.stencils) != 1 or self.implicits:
            return None
        if len(self.factors) == 1:
            return self.stencils[0]
        rows = self.rest.packed.rows
        return None if (rows["start"] < rows["unary_begin"]).any() else self.stencils[0]

    def stored(self) -> FactorGraph:
        """Return the same graph with every factor explicit, for small graphs and other samplers.

        Returns
        -------
        FactorGraph
            A graph without implicit groups.

        Raises
        ------
        TooLargeError
            If the pairs do not fit into memory.
        """
        groups = [g.stored() if isinstance(g, Implicit | Stencil) else g for g in self.factors]
        return share(FactorGraph(self.domains, groups, evidence=self.evidence), self)

    @property
    def packed(self) -> Model:
        """The flat arrays that kernels read; built on first use."""
        return self._packed[0]

    @property
    def offset(self) -> float:
        """The constant difference between `log_potential` and the sum of the packed factors."""
        if self.stencils:
            rest = 0.0 if self.only_stencils else self.rest.offset
            return rest + sum(group.constant for group in self.stencils)
        return self._packed[1]

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """The index of each variable's first value in arrays over all values."""
        from minigibbs.graph.packing import first_values

        first = first_values(self.sizes)
        first.flags.writeable = False
        return first

    @cached_property
    def _packed(self) -> tuple[Model, float]:
        from minigibbs.graph.packing import pack

        if "frame" in vars(self):
            return self.frame.pack(self.factors)
        require_numbers(len(self))
        sizes, evidence = map(np.ascontiguousarray, (self.sizes, self.evidence))
        return pack(sizes, self.factors, evidence)

    @cached_property
    def frame(self) -> Frame:
        """The structure that this graph shares with graphs that have other parameters."""
        from minigibbs.graph.parameters import Frame

        return Frame(self.sizes, self.factors, self.evidence)

    @cached_property
    def parameters(self) -> dict[str, NDArray[np.float64]]:
        """The parameters of the named factors, by name; see `mg.learn`.

        Factors with a shared parameter (`tied`) have one common entry.

        Examples
        --------
        >>> import minigibbs as mg
        >>> chain = mg.Potts([0, 1], [1, 2], 0.5, name="J", tied=0)
        >>> mg.FactorGraph([2, 2, 2], [chain]).parameters
        {'J': array([0.5])}
        """
        return self.frame.named(self.frame.flat(self.factors))

    def with_parameters(self, parameters: Mapping[str, ArrayLike]) -> FactorGraph:
        """Return the graph with other values of some parameters.

        Parameters
        ----------
        parameters : mapping
            Parameters by name; others do not change.

        Returns
        -------
        FactorGraph
            The graph with the new parameters. Structure is shared, so this is cheap.

        Raises
        ------
        GraphError
            If a name is unknown or a shape does not fit.

        Examples
        --------
        >>> import minigibbs as mg
        >>> chain = mg.Potts([0, 1], [1, 2], 0.5, name="J", tied=0)
        >>> graph = mg.FactorGraph([2, 2, 2], [chain])
        >>> graph.with_parameters({"J": 2.0}).log_potential([1, 1, 1])
        4.0
        """
        frame = self.frame
        return self.with_flat(frame.read(parameters, frame.flat(self.factors)))

    def with_flat(self, values: NDArray[np.float64]) -> FactorGraph:
        """Return the graph with other parameters, given as one flat array."""
        changed = FactorGraph.__new__(FactorGraph)
        factors = self.frame.replaced(self.factors, values)
        vars(changed).update(
            domains=self.domains, factors=factors, evidence=self.evidence, frame=self.frame
        )
        return share(changed, self)

    def with_every_parameter(self) -> FactorGraph:
        """Return the same graph with every parametrized factor in its rows.

        Its rows do not depend on the parameters, whereas a parameter of 0 removes a factor from
        `packed`. Colors and layouts of this graph are valid for all parameters. Its weights must
        not be read.
        """
        whole = self.with_flat(self.frame.flat(self.factors))
        vars(whole)["_packed"] = self.frame.structure, self.frame.offset
        return whole

    def statistics(self, x: ArrayLike) -> dict[str, NDArray[np.float64]]:
        """Compute the sufficient statistics: the derivative of the log-potential by each parameter.

        The states are one state, or rows of states.

        Parameters
        ----------
        x : array-like
            One state, or one state per row.

        Returns
        -------
        dict
            Statistics by name, in the shape of the parameter; with a first axis for rows.

        Raises
        ------
        GraphError
            If the states do not fit the graph.

        Examples
        --------
        >>> import minigibbs as mg
        >>> chain = mg.Potts([0, 1], [1, 2], 0.5, name="J", tied=0)
        >>> graph = mg.FactorGraph([2, 2, 2], [chain])
        >>> graph.statistics([[1, 1, 1], [1, 1, 0]])["J"]
        array([[2.],
               [1.]])
        """
        states = self.check_states(x)
        rows = self.frame.statistics(np.atleast_2d(states))
        return self.frame.named(rows[0] if states.ndim == 1 else rows)

    @cached_property
    def colors(self) -> Coloring:
        """A coloring of the free variables: variables of one color share no factor."""
        from minigibbs.graph.coloring import coloring

        return coloring(self)

    @cached_property
    def hard(self) -> NDArray[np.intp]:
        """The indices in `packed.factors` of factors with hard constraints."""
        if self.only_stencils:  # pairs have none
            return np.empty(0, np.intp)
        return np.flatnonzero(np.isinf(self.rest.packed.factors["span"]))

    def where(self, factor: int) -> str:
        """Describe a factor of `packed.factors` for error messages."""
        for number, group in enumerate(self.factors):
            if not isinstance(group, Implicit) and not group.pairs:
                if factor < len(group):
                    return group.where(factor, number)
                factor -= len(group)
        raise GraphError(f"unknown factor {factor}: the packed graph has fewer")

    @cached_property
    def local_energies(self) -> NDArray[np.float64]:
        """The sum of the ranges M of each free variable's factors; the maximum is L.

        It is infinite for a variable with a hard constraint.
        """
        return local_energies(self)

    @cached_property
    def stats(self) -> Stats:
        """The size of the graph: Delta, L, Psi and D of the paper, computed on first use.

        This takes time linear in the number of factors; for a `Kernel` or `Complete` group linear
        in the number of variables n; for a `LowRank` group O(n^2) up to n = 30,000. For larger
        `LowRank` groups Delta, L and Psi are upper bounds, and `mg.explain` says so.
        """
        return compute_stats(self)

    @cached_property
    def influence(self) -> float:
        """Dobrushin's bound on the dependence of variables; below 1, Gibbs sampling mixes fast.

        It is the largest sum, over the factors of a variable and their other variables, of half the
        range of the factor. Unary factors are excluded.

        Examples
        --------
        >>> import minigibbs as mg
        >>> mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.5), mg.Unary([0], [0.0, 9.0])]).influence
        0.25
        """
        return influence(self)

    @cached_property
    def rounding_error(self) -> float:
        """Estimated rounding error of log-odds, without implicit groups that are slow to sum."""
        return estimated_rounding(self)

    def describe(self) -> dict[str, Any]:
        """Return the size of the graph as plain numbers, for JSON and reports.

        Statistics that would take long to compute, as for a large `LowRank` group, and infinite
        ones are None. `zeros` is the number of factors with hard constraints.

        Returns
        -------
        dict
            `stats` by name, `kinds` (factors by kind), `clamped`, and more.

        Examples
        --------
        >>> import minigibbs as mg
        >>> mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]).describe()["kinds"]
        {'ising': 1}
        """
        return description(self)

    def _repr_html_(self) -> str:
        """Return the graph's size for notebooks, without slow statistics."""
        return html_table(self)

    def __repr__(self) -> str:
        groups = ", ".join(map(_shown, self.factors)) or "none"
        clamped = len(self) - self.free
        given = f", {clamped:,} clamped" if clamped else ""
        return f"<FactorGraph: {len(self):,} variables{given}; factors: {groups}>"


def _shown(group: Factors) -> str:
    """Return a group's description: number of factors, kind, and parameter name."""
    return f"{len(group):,} {group.kind}" + (f" {group.tie.name!r}" if group.tie else "")


def _read_evidence(evidence: ArrayLike, domains: Domains) -> NDArray[np.int32]:
    """Read each variable's clamped value or `FREE` as a read-only array, with checks."""
    rule = f"evidence must hold integers, one for each of {len(domains)} variables"
    array = as_array(evidence, "iu", rule)
    if array.shape != (len(domains),):
        raise GraphError(f"{rule}; got shape {array.shape}")
    alike = is_constant(array) and is_constant(domains.sizes)
    few = slice(0, 1) if alike else slice(None)
    wrong = np.flatnonzero((array[few] < FREE) | (array[few] >= domains.sizes[few]))
    if len(wrong):
        variable = int(wrong[0])
        raise GraphError(
            f"{domains.describe(variable)}: evidence must be a value from 0 to "
            f"{domains.sizes[variable] - 1}, or {FREE} for none, got {array[variable]}"
        )
    return constant(int(array[0]), len(array)) if alike else frozen(array, np.int32)


def log_potentials(
    graph: FactorGraph, states: NDArray[Any], offset: float, varying: bool = False
) -> NDArray[np.float64]:
    """Return log-potentials of checked states, with a constant for factors that no longer vary.

    With an offset of 0, a huge constant does not round the others away. If only the `varying`
    factors are wanted, those that evidence fixes are left out as well.
    """
    from minigibbs.kernels.energy import energies

    values = np.zeros(len(states))
    if not graph.only_stencils:
        model = graph.rest.packed
        if varying:
            factors = model.factors.copy()
            factors["weight"][factors["span"] == 0] = 0.0
            model = model._replace(factors=factors)
        energies(model, states, values)
        values += offset
    values += graph.implicit_energies(states)
    for group in graph.stencils:
        values += group.energies(states)
    return values
