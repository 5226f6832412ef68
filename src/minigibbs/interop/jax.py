"""Gibbs sweeps of a graph as a JAX function of keys and arrays, for NumPyro and blackjax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from minigibbs.errors import GraphError, MissingDependencyError
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.conditional import ConditionalGibbs
from minigibbs.system.boundary import checked

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    raise MissingDependencyError('jax is not installed: pip install "minigibbs[numpyro]"') from None

__all__ = ["GraphKernel", "GraphState", "graph_gibbs", "graph_kernel"]


class GraphState(NamedTuple):
    """The state of a `graph_kernel`: one value per variable."""

    position: Any


class GraphKernel(NamedTuple):
    """Two functions, as in blackjax: `init(position)`, `step(key, state, parameters)`."""

    init: Callable[..., Any]
    step: Callable[..., Any]


@checked(GraphError)
def graph_kernel(graph: FactorGraph, sweeps: int = 1) -> GraphKernel:
    """Wrap Gibbs sweeps of a graph as a kernel in the style of blackjax.

    Parameters
    ----------
    graph : FactorGraph
        The model, with named factors.
    sweeps : int, default 1
        Number of sweeps per step.

    Returns
    -------
    GraphKernel
        `init(position)` creates a state. `step(key, state, parameters)` returns the next state and
        an empty dictionary; `parameters` are arrays by name. JAX can compile both functions. The
        sweeps run on the CPU, in a callback.

    Raises
    ------
    GraphError
        If the graph has implicit factors.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, minigibbs as mg
    >>> from minigibbs.jax import graph_kernel
    >>> graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.0, name="J", tied=0)])
    >>> kernel = graph_kernel(graph)
    >>> state = kernel.init(jnp.array([0, 1, 0]))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(1), state, {"J": jnp.array([9.0])})
    >>> len(set(state.position.tolist()))
    1
    """
    gibbs = ConditionalGibbs(graph, sweeps)
    frame = graph.frame

    def host(names: tuple[str, ...], key: Any, position: Any, *given: Any) -> Any:
        values = gibbs.read(dict(zip(names, map(np.asarray, given), strict=True)))
        found = gibbs.step(np.asarray(position), values, np.asarray(key).ravel().tolist())
        return found.astype(np.asarray(position).dtype)

    def init(position: Any) -> GraphState:
        position = jnp.asarray(position)
        if position.shape != (len(graph),) or not jnp.issubdtype(position.dtype, jnp.integer):
            raise GraphError(
                f"position must hold {len(graph)} integers, one per variable; got shape "
                f"{position.shape} of {position.dtype}"
            )
        if not isinstance(position, jax.core.Tracer):
            gibbs.check(np.asarray(position))
        return GraphState(position)

    def parameter(name: str, given: Any) -> Any:
        one, array = frame.find(name), jnp.asarray(given)
        kind = jnp.promote_types(array.dtype, jnp.float32)
        if array.shape not in ((), one.shape) or not jnp.issubdtype(kind, jnp.floating):
            raise GraphError(
                f"parameter {name!r} must hold real numbers in shape {one.shape}, or one for all; "
                f"got shape {array.shape} of {array.dtype}"
            )
        return array.astype(kind)

    def step(
        rng_key: Any, state: GraphState, parameters: Mapping[str, Any]
    ) -> tuple[GraphState, dict[str, Any]]:
        if not isinstance(parameters, Mapping):
            raise GraphError(f"parameters must be arrays by name, got {type(parameters).__name__}")
        position = init(state.position).position
        call = partial(host, tuple(parameters))
        given = [jax.random.key_data(rng_key), position, *starmap(parameter, parameters.items())]
        if not any(isinstance(one, jax.core.Tracer) for one in given):
            return GraphState(jnp.asarray(call(*given))), {}  # raises errors unchanged
        shape = jax.ShapeDtypeStruct(position.shape, position.dtype)
        found = jax.pure_callback(call, shape, *given, vmap_method="sequential")
        return GraphState(found), {}

    return GraphKernel(init, step)


@checked(GraphError)
def graph_gibbs(
    graph: FactorGraph,
    site: str,
    parameters: Callable[..., Mapping[str, Any]],
    sweeps: int = 1,
) -> Callable[..., dict[str, Any]]:
    """Create the Gibbs function of a discrete site for `numpyro.infer.HMCGibbs`.

    Parameters
    ----------
    graph : FactorGraph
        The conditional distribution of the site given everything else, with named factors.
    site : str
        The name of the site: an array of integers of any shape, one per variable of the graph.
    parameters : callable
        A function of the other sites, by name, that returns the parameters of the graph as arrays
        by name.
    sweeps : int, default 1
        Number of sweeps per step.

    Returns
    -------
    callable
        For `HMCGibbs(kernel, gibbs_fn=..., gibbs_sites=[site])`.

    Raises
    ------
    GraphError
        If the graph has implicit factors, or the parameters do not match the graph's.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, minigibbs as mg
    >>> from minigibbs.numpyro import graph_gibbs
    >>> graph = mg.FactorGraph([2, 2], [mg.Unary([0, 1], [[0.0, 0.0]] * 2, name="h")])
    >>> update = graph_gibbs(graph, "x", lambda sites: {"h": sites["field"]})
    >>> sites = {"field": jnp.array([[0.0, 50.0], [50.0, 0.0]])}
    >>> update(jax.random.key(0), {"x": jnp.array([0, 0])}, sites)["x"].tolist()
    [1, 0]
    """
    kernel = graph_kernel(graph, sweeps)

    def gibbs_fn(rng_key: Any, gibbs_sites: Any, hmc_sites: Any) -> dict[str, Any]:
        if site not in gibbs_sites:
            raise GraphError(
                f"unknown site {site!r}: the Gibbs sites are "
                f"{', '.join(map(repr, gibbs_sites)) or 'none'}"
            )
        given = jnp.asarray(gibbs_sites[site])
        state = kernel.init(given.ravel())
        found = kernel.step(rng_key, state, parameters(hmc_sites))[0].position
        return {site: found.reshape(given.shape)}

    return gibbs_fn
