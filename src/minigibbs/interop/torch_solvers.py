"""Moments and covariances of a graph's statistics at given parameters, exact or from chains.

`Expectations` for PyTorch chooses one of these solvers, and multiplies gradients by its covariance.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from minigibbs.errors import GraphError, SampleError, TooLargeError
from minigibbs.exact.elimination import EliminationTree
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.learning.chains import Chains, Threads
from minigibbs.learning.device import DeviceChains
from minigibbs.learning.exact import Eliminated, Enumerated
from minigibbs.learning.placing import model_chains
from minigibbs.running.request import start_states
from minigibbs.samplers.registry import CPU, CUDA, learned_layout

_EXACT_SECONDS = 0.2  # elimination is chosen if it takes at most this time per model
_STEP = 1e-3  # first step of the differences of exact moments
_FINER = 4  # each further step is this much smaller
_STEPS = 8  # maximum number of steps
_AGREE = 1e-4  # relative difference of two steps at which they are extrapolated
_ROUNDING = 1e-12  # relative rounding error of exact moments
_GROUPS = 16  # groups of chains, whose spread gives standard errors
_CHUNK = 2**22  # statistics that are computed at a time


class Plan(NamedTuple):
    """The settings of sampled moments."""

    chains: int
    sweeps: int  # between recorded states
    draws: int  # recorded states per chain and call
    warmup: int  # sweeps before the first call
    threads: Threads


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
        self._distribution = Enumerated(graph) if Enumerated.possible(graph) else Eliminated(graph)
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
        log_z, mean = self._distribution.of(values, self._nothing)
        if log_z == -math.inf:
            raise GraphError("every state has probability 0 at these parameters")
        found = torch.from_numpy(mean)
        return Result(values, log_z, found, torch.zeros_like(found))

    def product(self, at: Result, vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the covariance of the statistics times a vector, and its standard error of 0."""
        found = torch.from_numpy(self._product(at, vector.cpu().numpy()))
        return found, torch.zeros_like(found)

    def _product(self, at: Result, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(self._distribution, Enumerated):
            energy = self._distribution.log_potential(at.values)
            distribution = np.exp(energy - energy.max())
            distribution /= distribution.sum()
            along = self._distribution.rows @ vector
            found: NDArray[np.float64] = self._distribution.rows.T @ (
                distribution * (along - distribution @ along)
            )
            return found
        size = float(np.abs(vector).max(initial=0.0))
        return size * self._derivative(at, vector / size) if size else np.zeros(len(vector))

    def _derivative(self, at: Result, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of the moments along a direction, by extrapolated differences.

        The step shrinks until two differences agree, because strong correlations make the moments
        change on scales far below 1. Rounding errors bound the step from below.
        """
        noise = _ROUNDING * (1.0 + float(at.mean.abs().max()))
        step = _STEP
        coarse = self._difference(at, along, step)
        for _ in range(_STEPS):
            step /= _FINER
            fine = self._difference(at, along, step)
            apart = np.abs(fine - coarse).max()
            if apart <= _AGREE * np.abs(fine).max() + noise / step:
                break
            coarse = fine
        found: NDArray[np.float64] = fine + (fine - coarse) / (_FINER**2 - 1)
        return found

    def _difference(
        self, at: Result, along: NDArray[np.float64], step: float
    ) -> NDArray[np.float64]:
        """Return the central difference of the moments along a direction."""
        ends = [
            self._distribution.of(at.values + side * step * along, self._nothing)[1]
            for side in (1, -1)
        ]
        return (ends[0] - ends[1]) / (2 * step)


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

    def __init__(self, graph: FactorGraph, plan: Plan, seed: int, device: Any) -> None:
        self._plan, card = plan, device.type == CUDA
        backend = CUDA if card else CPU
        self._chains = model_chains(graph, None, plan.chains, seed, plan.threads, backend)
        self._of: Any = OnCard(graph.frame, device) if card else OnHost(graph.frame)
        self._graph, self._seed, self._fresh = graph, seed, True
        self._forbidden = np.isneginf(graph.frame.flat(graph.factors))
        self._lock = threading.Lock()

    @staticmethod
    def place(graph: FactorGraph, device: Any) -> Any:
        """Return the device of the chains for tensors on a device: the same one, or the CPU."""
        there = device.type == CUDA and learned_layout(graph) is not None and graph.frame.countable
        return device if there else torch.device(CPU)

    def moments(self, values: NDArray[np.float64]) -> Result:
        """Return the moments at some parameters; chains continue from their latest states."""
        with self._lock:
            return self._moments(values)

    def _moments(self, values: NDArray[np.float64]) -> Result:
        plan = self._plan
        self._start_possible(values)
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

    def _start_possible(self, values: NDArray[np.float64]) -> None:
        """Start chains anew whose states have become impossible; raise if no state is possible."""
        forbidden = np.isneginf(values)
        if (forbidden & ~self._forbidden).any():
            graph, states = self._graph.with_flat(values), self._chains.states().copy()
            stuck = np.isneginf(np.atleast_1d(graph.log_potential(states)))
            if stuck.any():
                try:
                    fresh = start_states(graph, "random", len(states), self._seed)
                except SampleError as error:
                    raise GraphError(str(error)) from None
                states[stuck] = fresh[stuck]
                self._chains.load(states)
        self._forbidden = forbidden

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
    squares = (each - each.mean(dim=0)).square().sum(dim=0)  # torch.std warns of an empty tensor
    return (squares / ((len(each) - 1) * len(each))).sqrt()
