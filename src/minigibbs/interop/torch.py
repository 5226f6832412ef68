"""Expected statistics of a graph as a differentiable function of PyTorch tensors.

The gradient of an expected statistic is its covariance with all statistics. It is exact if
enumeration or elimination is feasible. Otherwise it is estimated from the states of persistent
chains, with a standard error. For tensors on a GPU the chains run there, and their states stay
there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, MissingDependencyError, TooLargeError
from minigibbs.exact.elimination import EliminationTree
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.interop.common import require_positive
from minigibbs.learning.chains import Chains, Threads
from minigibbs.learning.device import DeviceChains
from minigibbs.learning.exact import Eliminated, Enumerated
from minigibbs.learning.placing import model_chains
from minigibbs.running.request import check_counts, entropy_of
from minigibbs.samplers.registry import CPU, CUDA, learned_layout
from minigibbs.system.boundary import checked

try:
    import torch
except ImportError:
    raise MissingDependencyError('torch is not installed: pip install "minigibbs[torch]"') from None

__all__ = ["Expectations", "Moments", "expectations"]

_EXACT_SECONDS = 0.2  # elimination is chosen if it takes at most this time per model
_STEP = 1e-4  # step of the central difference of exact moments
_GROUPS = 16  # groups of chains, whose spread gives standard errors
_CHUNK = 2**22  # statistics that are computed at a time


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


class Result(NamedTuple):
    """The moments of one model, and the data for its gradient."""

    values: NDArray[np.float64]  # the parameters
    log_z: float  # NaN if unknown
    mean: torch.Tensor
    error: torch.Tensor
    states: Any = ()  # [group of chains] states of sampled moments


class Exact:
    """Exact moments, and products with the exact covariance."""

    def __init__(self, graph: FactorGraph) -> None:
        self._law = Enumerated(graph) if Enumerated.possible(graph) else Eliminated(graph)
        self._nothing = np.full(len(graph), FREE, dtype=np.int32)

    @staticmethod
    def possible(graph: FactorGraph) -> bool:
        """Return whether exact moments are fast."""
        if Enumerated.possible(graph):
            return True
        try:
            return EliminationTree.of(graph).seconds <= _EXACT_SECONDS
        except TooLargeError:
            return False

    def moments(self, values: NDArray[np.float64]) -> Result:
        """Return the moments at some parameters."""
        log_z, mean = self._law.of(values, self._nothing)
        if log_z == -math.inf:
            raise GraphError("every state has probability 0 at these parameters")
        found = torch.from_numpy(mean)
        return Result(values, log_z, found, torch.zeros_like(found))

    def product(self, at: Result, vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the covariance of the statistics times a vector, and its standard error of 0."""
        found = torch.from_numpy(self._product(at, vector.cpu().numpy()))
        return found, torch.zeros_like(found)

    def _product(self, at: Result, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(self._law, Enumerated):
            energy = self._law.log_potential(at.values)
            law = np.exp(energy - energy.max())
            law /= law.sum()
            along = self._law.rows @ vector
            found: NDArray[np.float64] = self._law.rows.T @ (law * (along - law @ along))
            return found
        size = float(np.abs(vector).max(initial=0.0))
        if not size:
            return np.zeros(len(vector))
        step = _STEP * vector / size
        ends = [self._law.of(at.values + side * step, self._nothing)[1] for side in (1, -1)]
        return (ends[0] - ends[1]) * (size / (2 * _STEP))


class OnHost:
    """Statistics of states on the host, computed by compiled code."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def read(self, chains: Chains) -> NDArray[Any]:
        """Return a copy of the states of all chains."""
        return chains.states().copy()

    def grouped(self, drawn: list[NDArray[Any]], groups: int) -> Any:
        """Return some draws [chain, variable] as [group of chains, state, variable]."""
        used = len(drawn[0]) // groups * groups
        states = np.stack(drawn, axis=1)[:used]
        return states.reshape(groups, -1, states.shape[-1])

    def summed(self, states: NDArray[Any], weight: torch.Tensor) -> torch.Tensor:
        """Return the sum of weight times statistics over some states."""
        return torch.from_numpy(self._frame.summed(states, weight.numpy()))

    def along(self, states: NDArray[Any], vector: torch.Tensor) -> torch.Tensor:
        """Return the statistics of each state times a vector."""
        frame, by = self._frame, vector.numpy()
        step = max(1, _CHUNK // max(frame.size, 1))
        parts = [states[k : k + step] for k in range(0, len(states), step)]
        return torch.from_numpy(np.concatenate([frame.statistics(one) @ by for one in parts]))


class OnCard:
    """Statistics of states on a GPU, computed by PyTorch; the states stay there as bits.

    Every statistic is a sum of counts. A count is whether a state has two given values at once.
    """

    def __init__(self, frame: Frame, device: Any) -> None:
        counted, self._frame = frame.counted, frame
        parts = (counted.one, counted.other, counted.number)
        self._one, self._other, self._number = (
            torch.as_tensor(part.astype(np.int64), device=device) for part in parts
        )
        self._scale = torch.as_tensor(counted.scale, device=device)
        self._constant = torch.as_tensor(frame.constant, device=device)

    def read(self, chains: DeviceChains) -> torch.Tensor:
        """Return [chain, value of a variable] whether the chain has the value."""
        words = torch.as_tensor(chains.marks(self._frame)).to(self._one.device)
        return unpacked(words, len(chains))

    def grouped(self, drawn: list[torch.Tensor], groups: int) -> torch.Tensor:
        """Return some draws [chain, value] as [group of chains, state, value]."""
        used = len(drawn[0]) // groups * groups
        states = torch.stack(drawn, dim=1)[:used]
        return states.reshape(groups, -1, states.shape[-1])

    def summed(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return the sum of weight times statistics over some states."""
        total = self._constant * weight.sum()
        for part, together in self._together(states):
            counts = weight @ together.to(weight.dtype)
            total.index_add_(0, self._number[part], counts * self._scale[part])
        return total

    def along(self, states: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """Return the statistics of each state times a vector."""
        found = (self._constant @ vector).repeat(len(states))
        for part, together in self._together(states):
            by = vector[self._number[part]] * self._scale[part]
            found += together.to(vector.dtype) @ by
        return found

    def _together(self, states: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield [state, count] whether both values are present, for some counts at a time."""
        step = max(1, _CHUNK // max(len(states), 1))
        for first in range(0, len(self._one), step):
            part = slice(first, first + step)
            yield part, states[:, self._one[part]] & states[:, self._other[part]]


def unpacked(words: torch.Tensor, chains: int) -> torch.Tensor:
    """Return [chain, value] the bits of words [word, value], each with 32 chains."""
    places = torch.arange(32, dtype=torch.int32, device=words.device)
    bits = (words[:, None, :] >> places[:, None]) & 1
    return bits.reshape(-1, words.shape[1])[:chains].bool()


class Sampled:
    """Moments and covariances from persistent chains."""

    def __init__(self, graph: FactorGraph, plan: _Plan, seed: int, device: Any) -> None:
        self._plan, card = plan, device.type == CUDA
        backend = CUDA if card else CPU
        self._chains = model_chains(graph, None, plan.chains, seed, plan.threads, backend)
        self._of: Any = OnCard(graph.frame, device) if card else OnHost(graph.frame)
        self._fresh = True

    @staticmethod
    def place(graph: FactorGraph, device: Any) -> Any:
        """Return the device of the chains for tensors on a device: the same one, or the CPU."""
        there = device.type == CUDA and learned_layout(graph) is not None and graph.frame.countable
        return device if there else torch.device(CPU)

    def moments(self, values: NDArray[np.float64]) -> Result:
        """Return the moments at some parameters; chains continue from their latest states."""
        plan = self._plan
        self._chains.set_weights(values)
        self._chains.sweep(plan.warmup if self._fresh else plan.sweeps)
        self._fresh = False
        drawn = []
        for _ in range(plan.draws):
            self._chains.sweep(plan.sweeps)
            drawn.append(self._of.read(self._chains))
        states = self._of.grouped(drawn, min(_GROUPS, plan.chains))
        each = []
        for some in states:
            weight = torch.full((len(some),), 1 / len(some), dtype=torch.float64)
            each.append(self._of.summed(some, weight.to(getattr(some, "device", CPU))))
        found = torch.stack(each)
        return Result(values, math.nan, found.mean(dim=0), spread(found), states)

    def product(self, at: Result, vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the covariance of the statistics times a vector, and its standard error."""
        vector, count = vector.to(at.mean.device), len(at.states[0])
        along = torch.stack([self._of.along(some, vector) for some in at.states])
        along -= along.mean()
        total = along.numel()
        each = []
        for some, weight in zip(at.states, along / count, strict=True):
            each.append(self._of.summed(some, weight) - weight.sum() * at.mean)
        found = torch.stack(each) * (total / max(total - 1, 1))
        return found.mean(dim=0), spread(found)


def spread(each: torch.Tensor) -> torch.Tensor:
    """Return the standard error of the mean of independent groups [group, ...]; NaN for one."""
    if len(each) < 2:
        return torch.full_like(each[0], math.nan)
    return each.std(dim=0) / math.sqrt(len(each))


class _Plan(NamedTuple):
    chains: int
    sweeps: int
    draws: int
    warmup: int
    threads: Threads


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
        self._plan = _Plan(chains, sweeps, draws, warmup, Threads(threads))
        self._solvers: dict[Any, list[Exact | Sampled]] = {}  # by device

    def __call__(self, parameters: Mapping[str, Any]) -> Moments:
        """Compute the expected statistics at some parameters.

        Parameters
        ----------
        parameters : mapping of tensors
            Tensors by name, in the shapes of `graph.parameters`, or with a leading batch axis. A
            parameter without a batch axis is shared by all models of the batch. Parameters that are
            not given keep the graph's values.

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
        return Sampled(self.graph, self._plan, self._seed + number, place)

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
            if tuple(given.shape) != shape and tuple(given.shape[1:]) != shape:
                raise GraphError(
                    f"parameter {name!r} must have shape {shape}, or that with a batch axis before "
                    f"it; got {tuple(given.shape)}"
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
            if given.ndim == len(one.shape):
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
            product, error = solver.product(at, vector)
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
