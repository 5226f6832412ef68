"""PyMC step method for the discrete variables of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, MissingDependencyError
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.conditional import ConditionalGibbs

try:
    import pymc
    from pymc.pytensorf import rvs_in_graph
    from pymc.step_methods.compound import BlockedStep, StepMethodState
    from pymc.util import get_random_generator, get_value_vars_from_user_vars
except ImportError:
    raise MissingDependencyError('pymc is not installed: pip install "minigibbs[pymc]"') from None

__all__ = ["GraphStep"]

_TRIED = 4  # number of chain states, and of random states, at which graph and model are compared
_TOLERANCE = 1e-6


class GraphStep(BlockedStep):  # type: ignore[misc]
    """Gibbs sweeps of a factor graph for the discrete variables of a PyMC model.

    Parameters
    ----------
    vars : list
        The discrete random variables, in the order of the graph's variables.
    graph : FactorGraph
        The conditional distribution of these variables given all others, with named factors.
    parameters : mapping or None, default None
        The parameters of the graph by name: expressions of the other variables of the model, or
        numbers.
    sweeps : int, default 1
        Number of sweeps per step.
    check : bool, default True
        Whether to compare the graph with the log-density of the model at a few states, and at two
        values of the other variables. A difference raises an error.
    model : pymc.Model, optional
        As in other step methods of PyMC.
    rng : Generator, optional
        As in other step methods of PyMC.
    blocked : bool, default True
        As in other step methods of PyMC.
    initial_point : mapping, optional
        As in other step methods of PyMC.
    compile_kwargs : dict, optional
        As in other step methods of PyMC.

    Raises
    ------
    GraphError
        If the variables do not match the graph, or the graph is not the conditional distribution of
        the model.

    Examples
    --------
    >>> import minigibbs as mg, pymc as pm
    >>> from minigibbs.pymc import GraphStep
    >>> with pm.Model():
    ...     x = pm.Bernoulli("x", 0.75)
    ...     graph = mg.FactorGraph([2], [mg.Unary.from_probabilities([0], [0.25, 0.75])])
    ...     GraphStep([x], graph).vars[0].name
    'x'
    """

    name = "graph_gibbs"
    stats_dtypes_shapes: dict[str, Any] = {}  # noqa: RUF012
    _state_class = StepMethodState

    def __init__(
        self,
        vars: Any,
        graph: FactorGraph,
        parameters: Mapping[str, Any] | None = None,
        *,
        sweeps: int = 1,
        check: bool = True,
        model: Any = None,
        rng: Any = None,
        blocked: bool = True,
        initial_point: Any = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        model = pymc.modelcontext(model)
        if not isinstance(graph, FactorGraph):
            raise GraphError(f"graph must be a FactorGraph, got {type(graph).__name__}")
        if not isinstance(parameters, Mapping | None):
            raise GraphError(
                f"parameters must be expressions by name, got {type(parameters).__name__}"
            )
        self.vars = get_value_vars_from_user_vars(vars, model)
        self.rng = get_random_generator(rng)
        self._gibbs = ConditionalGibbs(graph, sweeps)
        point = model.initial_point() if initial_point is None else initial_point
        self._names = [one.name for one in self.vars]
        self._check_variables(graph, point)
        given = dict(parameters or {})
        for name in given:
            graph.frame.find(name)
        self._parameters = list(given)
        options = dict(compile_kwargs or {})
        self._function = None
        if given:
            own = {model.values_to_rvs[one] for one in self.vars}
            for name, one in given.items():
                found = own & set(rvs_in_graph([one])) if hasattr(one, "owner") else set()
                if found:
                    raise GraphError(
                        f"parameter {name!r} depends on {next(iter(found)).name!r}, which this "
                        "step updates"
                    )
            outputs = [pymc.pytensorf.pt.as_tensor_variable(one) for one in given.values()]
            replaced = model.replace_rvs_by_values(outputs)
            self._function = model.compile_fn(
                replaced, inputs=model.value_vars, on_unused_input="ignore", **options
            )
        if check:
            self._compare(model.compile_logp(**options), point)

    def _check_variables(self, graph: FactorGraph, point: Mapping[str, Any]) -> None:
        total = 0
        for one in self.vars:
            if one.dtype not in pymc.discrete_types:
                raise GraphError(f"variable {one.name!r} must be discrete, got {one.dtype}")
            total += np.size(point[one.name])
        if total != len(graph):
            raise GraphError(
                f"the variables {', '.join(map(repr, self._names))} have {total} entries, but the "
                f"graph has {len(graph)} variables"
            )

    def step(self, point: Any) -> tuple[Any, list[Any]]:
        """Sweep the discrete variables with all others fixed."""
        seed = [int(word) for word in self.rng.integers(2**32, size=4)]
        state = self._gibbs.step(self._state(point), self._values(point), seed)
        return self._with(point, state), [{}]

    def _state(self, point: Any) -> NDArray[Any]:
        """Return the values of the discrete variables, concatenated."""
        return np.concatenate([np.ravel(point[name]) for name in self._names])

    def _values(self, point: Any) -> Any:
        found = [] if self._function is None else self._function(point)
        return self._gibbs.read(dict(zip(self._parameters, found, strict=True)))

    def _with(self, point: Any, state: Any) -> Any:
        """Return the point with the discrete variables set to a state."""
        changed, first = dict(point), 0
        for name in self._names:
            old = np.asarray(point[name])
            changed[name] = state[first : first + old.size].reshape(old.shape).astype(old.dtype)
            first += old.size
        return changed

    def _compare(self, density: Any, point: Any) -> None:
        """Raise if the graph and the model's conditional distribution differ at a few states.

        The other variables are compared at the given point, and at a point with PyMC's initial
        jitter. A number that should be an expression agrees at only one of these points.
        """
        rng = np.random.default_rng(0)
        self._check_support(density, point)
        self._compare_at(density, point, rng, "")
        moved = dict(point)
        for name in set(point) - set(self._names):
            value = np.asarray(point[name])
            if value.dtype.kind == "f":
                moved[name] = (value + rng.uniform(-1.0, 1.0, value.shape)).astype(value.dtype)
        if np.isfinite(density(moved)):
            where = "; the other variables were moved from the initial point, so parameters that "
            self._compare_at(density, moved, rng, where + "depend on them must be expressions")

    def _check_support(self, density: Any, point: Any) -> None:
        """Raise if a variable has more values in the model than in the graph."""
        if not np.isfinite(density(point)):
            return
        state, first = self._state(point), 0
        for name in self._names:
            for value in (-1, int(self._gibbs.graph.sizes[first])):
                outside = state.copy()
                outside[first] = value
                if np.isfinite(self._density(density, point, outside)):
                    raise GraphError(
                        f"variable {name!r} may be {value} in the model, but the graph's variable "
                        f"has the values 0 to {self._gibbs.graph.sizes[first] - 1}"
                    )
            first += np.size(point[name])

    def _density(self, density: Any, point: Any, state: NDArray[Any]) -> float:
        """Return the log-density of the model; -inf if a label is no index of its arrays."""
        try:
            return float(density(self._with(point, state)))
        except (IndexError, ValueError):
            return -np.inf

    def _compare_at(self, density: Any, point: Any, rng: Any, hint: str) -> None:
        """Compare at the states of a short chain and at random states."""
        values = self._values(point)
        graph, given = self._gibbs.graph.with_flat(values), self._state(point)
        states = [self._gibbs.check(given)]
        for number in range(_TRIED):
            states.append(self._gibbs.step(states[-1], values, [number]))
        drawn = rng.integers(0, graph.sizes, (_TRIED, len(graph)))
        states.extend(np.where(graph.evidence == FREE, drawn, graph.evidence))
        ours = np.atleast_1d(graph.log_potential(np.array(states)))
        theirs = np.array([self._density(density, point, state) for state in states])
        possible = np.isfinite(ours)
        if (possible != np.isfinite(theirs)).any():
            wrong = int(np.flatnonzero(possible != np.isfinite(theirs))[0])
            raise GraphError(
                f"{self._refusal()}: one of them gives probability 0 to "
                f"{np.asarray(states[wrong])[:8].tolist()}, the first values of a state{hint}"
            )
        mine, other = (each[possible][1:] - each[possible][0] for each in (ours, theirs))
        scale = max(1.0, float(np.abs(theirs[possible]).max(initial=0.0)))
        apart = np.flatnonzero(~(np.abs(mine - other) <= _TOLERANCE * scale))
        if len(apart):
            raise GraphError(
                f"{self._refusal()}: between two states its log-potential changes by "
                f"{mine[apart[0]]:.6g}, the log-density of the model by {other[apart[0]]:.6g}{hint}"
            )

    def _refusal(self) -> str:
        names = ", ".join(map(repr, self._names))
        return f"the graph is not the conditional distribution of {names} in the model"

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Any:
        """Return that PyMC must not choose this step itself, since it needs a graph."""
        return pymc.step_methods.compound.Competence.INCOMPATIBLE
