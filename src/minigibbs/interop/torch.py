"""Expected statistics of a graph as a differentiable function of PyTorch tensors.

The gradient of an expected statistic is its covariance with all statistics. It is exact if
enumeration or elimination is feasible. Otherwise it is estimated from the states of persistent
chains, with a standard error. For tensors on a GPU the chains run there, and their states stay
there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, MissingDependencyError
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import require_positive
from minigibbs.learning.chains import Threads, seed_of
from minigibbs.running.request import check_counts, entropy_of
from minigibbs.samplers.registry import CPU
from minigibbs.system.boundary import checked

try:
    import torch
except ImportError:
    raise MissingDependencyError('torch is not installed: pip install "minigibbs[torch]"') from None

from minigibbs.interop.torch_solvers import Exact, Plan, Result, Sampled

__all__ = ["Expectations", "Moments", "expectations"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Expected statistics of a model, by parameter name.

    Attributes
    ----------
    mean : dict of tensors
        The expected statistics: differentiable with respect to the parameters. With batched
        parameters they have a leading batch axis.
    error : dict of tensors
        Their standard errors; 0 if they are exact.
    log_z : tensor or None
        The logarithm of the partition function, differentiable; None if it was not computed
        exactly.
    exact : bool
        Whether means and gradients are exact.
    gradient_error : dict of tensors
        After `backward`, the standard errors of the gradient from its latest call; 0 if it is
        exact. They have the shapes of the given parameters. The models of a batch are independent,
        so the errors of a parameter that they share add in quadrature.

    Examples
    --------
    >>> import minigibbs as mg, torch
    >>> from minigibbs.torch import expectations
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.0, name="J")])
    >>> J = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    >>> moments = expectations(graph, {"J": J})
    >>> moments.exact, bool(torch.isclose(moments.mean["J"], torch.tanh(J)))
    (True, True)
    """

    mean: dict[str, torch.Tensor]
    error: dict[str, torch.Tensor]
    log_z: torch.Tensor | None
    exact: bool
    gradient_error: dict[str, torch.Tensor] = field(default_factory=dict)


@checked(GraphError)
class Expectations:
    """Expected statistics of a graph, as a differentiable function of its parameters.

    Parameters
    ----------
    graph : FactorGraph
        The model. The factors to be differentiated have names, as for `mg.learn`.
    exact : bool or None, default None
        Whether to compute exact moments. By default if that takes a fraction of a second.
    chains : int, default 64
        Number of chains for sampled moments. They persist between calls: each call continues from
        the states of the previous one. Models of a batch have separate chains.
    sweeps : int, default 5
        Sweeps between the recorded states.
    draws : int, default 16
        Number of recorded states per chain.
    warmup : int, default 100
        Sweeps before the first call.
    seed : int or None, default None
        Seed of the chains.
    threads : int or None, default None
        Number of threads. By default one per processor.

    Raises
    ------
    GraphError
        If the graph has no parameters, or implicit factors.

    Examples
    --------
    >>> import minigibbs as mg, torch
    >>> from minigibbs.torch import Expectations
    >>> chain = mg.Potts(range(4), range(1, 5), 0.0, name="J", tied=0)
    >>> field = mg.Unary(range(5), [[0.0, 0.0, 0.0]] * 5, name="h")
    >>> head = Expectations(mg.FactorGraph([3] * 5, [chain, field]))
    >>> J, h = torch.tensor([0.5]), torch.zeros(2, 5, 3, requires_grad=True)
    >>> moments = head({"J": J, "h": h})
    >>> moments.mean["h"].shape, moments.log_z.shape
    (torch.Size([2, 5, 3]), torch.Size([2]))
    """

    def __init__(
        self,
        graph: FactorGraph,
        *,
        exact: bool | None = None,
        chains: int = 64,
        sweeps: int = 5,
        draws: int = 16,
        warmup: int = 100,
        seed: int | None = None,
        threads: int | None = None,
    ) -> None:
        if graph.implicits:
            raise GraphError(
                f"{graph.implicits[0].kind} factors are implicit and have no parameters to "
                "differentiate; use graph.stored() if it is small"
            )
        if not graph.frame.size:
            raise GraphError(
                "the graph has no parameters: name the factors to be differentiated, such as "
                'mg.Ising(i, j, 0.0, name="J")'
            )
        check_counts(chains=chains, threads=threads)
        require_positive(sweeps=sweeps, draws=draws, warmup=warmup)
        self.graph = graph
        self.exact = Exact.possible(graph) if exact is None else exact
        self._seed = entropy_of(seed)
        self._plan = Plan(chains, sweeps, draws, warmup, Threads(threads))
        self._solvers: dict[Any, list[Exact | Sampled]] = {}  # by device

    def __call__(self, parameters: Mapping[str, Any]) -> Moments:
        """Compute the expected statistics at some parameters.

        Parameters
        ----------
        parameters : mapping of tensors
            Tensors by name, in the shapes of `graph.parameters`, or with a leading batch axis. A
            parameter without a batch axis is shared by all models of the batch. A tensor without
            axes is one number for all entries. Parameters that are not given keep the graph's
            values.

        Returns
        -------
        Moments
            With a batch axis if a parameter has one.

        Raises
        ------
        GraphError
            If a parameter is unknown or no such tensor, or every state has probability 0.
        """
        theta, batched = self._flat(parameters)
        rows = _numbers(theta)
        solvers = self._solvers.setdefault(Sampled.place(self.graph, theta.device), [])
        results = [self._moments(row, solvers, k, theta.device) for k, row in enumerate(rows)]
        gradient_error: dict[str, torch.Tensor] = {}
        own = {k for k, one in parameters.items() if one.ndim > len(self.graph.frame.find(k).shape)}

        def report(found: torch.Tensor) -> None:
            for name, error in self._named(found.to(theta), batched).items():
                shared = batched and name not in own
                gradient_error[name] = error.square().sum(dim=0).sqrt() if shared else error

        mean, log_z = _Function.apply(theta, results, solvers, report)
        errors = _stacked([one.error for one in results], theta)
        return Moments(
            self._named(mean, batched),
            self._named(errors, batched),
            (log_z if batched else log_z[0]) if self.exact else None,
            self.exact,
            gradient_error,
        )

    def _moments(
        self, row: NDArray[np.float64], solvers: list[Exact | Sampled], number: int, device: Any
    ) -> Result:
        """Compute the moments of one model of a batch."""
        self.graph.frame.require_finite(row)
        if number == len(solvers):
            shared = solvers[0] if self.exact and solvers else None
            solvers.append(shared or self._solver(number, device))
        return solvers[number].moments(row)

    def _solver(self, number: int, device: Any) -> Exact | Sampled:
        if self.exact:
            return Exact(self.graph)
        place = Sampled.place(self.graph, device)
        return Sampled(self.graph, self._plan, seed_of((self._seed, number)), place)

    def _flat(self, parameters: Mapping[str, Any]) -> tuple[torch.Tensor, bool]:
        """Return all parameters as [model, parameter], and whether there is a batch."""
        frame, known = self.graph.frame, self.graph.parameters
        if not isinstance(parameters, Mapping):
            raise GraphError(f"parameters must be tensors by name, got {type(parameters).__name__}")
        for name, given in parameters.items():
            shape = frame.find(name).shape
            if not isinstance(given, torch.Tensor):
                raise GraphError(f"parameter {name!r} must be a tensor, got {type(given).__name__}")
            if not given.is_floating_point():
                raise GraphError(
                    f"parameter {name!r} must be a tensor of a floating-point type, got "
                    f"{given.dtype}"
                )
            if given.layout != torch.strided:
                raise GraphError(f"parameter {name!r} must be a dense tensor, got {given.layout}")
            if given.ndim and tuple(given.shape) != shape and tuple(given.shape[1:]) != shape:
                raise GraphError(
                    f"parameter {name!r} must have shape {shape}, or that with a batch axis before "
                    f"it, or be one number for all; got shape {tuple(given.shape)}"
                )
        kind, device = _kind(parameters)
        sizes = {
            len(given)
            for name, given in parameters.items()
            if given.ndim > len(frame.find(name).shape)
        }
        if len(sizes) > 1:
            raise GraphError(f"parameters must have one batch size, got {sorted(sizes)}")
        count = next(iter(sizes), 1)
        parts = []
        for one in frame:
            given = parameters.get(one.name)
            if given is None:
                given = torch.as_tensor(np.array(known[one.name]))
            if given.ndim <= len(one.shape):
                given = given.expand(count, *one.shape)
            parts.append(given.reshape(count, math.prod(one.shape)).to(device, kind))
        return torch.cat(parts, dim=1), bool(sizes)

    def _named(self, flat: torch.Tensor, batched: bool) -> dict[str, torch.Tensor]:
        lead = (len(flat),) if batched else ()
        return {one.name: flat[:, one.place].reshape(*lead, *one.shape) for one in self.graph.frame}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the settings; a copy or an unpickled object starts new chains."""
        options = {**self._plan._asdict(), "threads": self._plan.threads.count}
        make = partial(type(self), self.graph, exact=self.exact, seed=self._seed, **options)
        return make, ()


def _numbers(theta: torch.Tensor) -> NDArray[np.float64]:
    """Copy the parameters to the host."""
    try:
        rows: NDArray[np.float64] = theta.detach().cpu().to(torch.float64).numpy()
    except RuntimeError as error:  # NotImplementedError for tensors of the device "meta"
        raise GraphError(
            "parameters must be tensors with numbers. torch.func transforms, such as vmap and "
            f"grad, are not supported: use a leading batch axis. PyTorch says: {error}"
        ) from None
    return rows


def _stacked(rows: list[torch.Tensor], theta: torch.Tensor) -> torch.Tensor:
    """Stack one row per model of a batch, which may be empty, in the type of the parameters."""
    return torch.stack(rows).to(theta) if rows else torch.zeros_like(theta)


def _kind(parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the promoted type and the common device of all parameters."""
    if not parameters:
        return torch.float64, torch.device(CPU)
    kind = reduce(torch.promote_types, (given.dtype for given in parameters.values()))
    devices = {given.device for given in parameters.values()}
    if len(devices) > 1:
        raise GraphError(
            f"parameters must be on one device, got {', '.join(sorted(map(str, devices)))}"
        )
    return kind, devices.pop()


class _Function(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Moments and log Z of each row of parameters; the gradient is a product with a covariance."""

    @staticmethod
    def forward(ctx: Any, theta: Any, results: Any, solvers: Any, report: Any) -> Any:
        """Return the moments that were computed."""
        ctx.results, ctx.solvers, ctx.report = results, solvers, report
        ctx.save_for_backward(theta)
        mean = _stacked([one.mean for one in results], theta)
        return mean, torch.as_tensor([one.log_z for one in results], dtype=torch.float64).to(theta)

    @staticmethod
    def backward(ctx: Any, mean: Any, log_z: Any) -> Any:
        """Multiply by the covariance of the statistics; the gradient of log Z is the mean."""
        found, errors = [], []
        along, times = mean.detach().to(torch.float64), log_z.detach().tolist()
        for at, solver, vector, share in zip(ctx.results, ctx.solvers, along, times, strict=False):
            if torch.isfinite(vector).all():
                product, error = solver.product(at, vector)
            else:
                product = error = torch.full_like(at.mean, math.nan)
            found.append(product + (share * at.mean if share else 0.0))
            errors.append(error)
        ctx.report(_stacked(errors, mean))
        gradient = _stacked(found, mean)
        return first_only(gradient, *ctx.saved_tensors, mean, log_z), None, None, None


class _FirstOnly(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """The identity on gradients; differentiating it raises, instead of giving a silent zero."""

    @staticmethod
    def forward(ctx: Any, gradient: Any, *inputs: Any) -> Any:
        """Return the gradient."""
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        """Raise an error."""
        raise GraphError(
            "second derivatives are not available. With Expectations, the gradient of log_z is "
            "mean, so the derivative of mean is the second derivative of log_z"
        )


def first_only(gradient: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """Return a gradient, computed from some inputs, that cannot be differentiated again."""
    if not torch.is_grad_enabled():
        return gradient
    found: torch.Tensor = _FirstOnly.apply(gradient, *inputs)
    return found


@checked(GraphError)
def expectations(
    graph: FactorGraph,
    parameters: Mapping[str, Any],
    *,
    exact: bool | None = None,
    chains: int = 64,
    sweeps: int = 5,
    draws: int = 16,
    warmup: int = 100,
    seed: int | None = None,
    threads: int | None = None,
) -> Moments:
    """Compute expected statistics of a graph, differentiable with respect to its parameters.

    This is one call of `Expectations`, which keeps its chains between calls.

    Parameters
    ----------
    graph : FactorGraph
        The model, with named factors.
    parameters : mapping
        Tensors by name, as in `Expectations`.
    exact : bool, optional
        Whether to compute exact moments. By default if that takes a fraction of a second.
    chains : int, default 64
        Number of chains for sampled moments.
    sweeps : int, default 5
        Sweeps between the recorded states.
    draws : int, default 16
        Number of recorded states per chain.
    warmup : int, default 100
        Sweeps before the first recorded state.
    seed : int, optional
        Seed of the chains.
    threads : int, optional
        Number of threads. By default one per processor.

    Returns
    -------
    Moments
        The moments, their errors and log Z.

    Raises
    ------
    GraphError
        If a parameter is unknown, or has the wrong shape.

    Examples
    --------
    >>> import minigibbs as mg, torch
    >>> from minigibbs.torch import expectations
    >>> graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.0, name="J", tied=0)])
    >>> J = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    >>> expectations(graph, {"J": J}).log_z.backward()
    >>> torch.isclose(J.grad, 2 * torch.tanh(J)).tolist()
    [True]
    """
    options = {"chains": chains, "sweeps": sweeps, "draws": draws, "warmup": warmup}
    found = Expectations(graph, exact=exact, seed=seed, threads=threads, **options)
    return found(parameters)
