"""What a sampler is: a frozen description, the arrays it prepares, and one compiled update.

A sampler's file holds three things: a frozen dataclass (what a user writes), a NamedTuple of the
arrays that its update reads (prepared once per graph), and the update itself,

    update(data, model, chain, i) -> new value of variable i

The update reads `chain.x` and leaves it as it found it; the run loop writes the value. `register`
ties the update to the NamedTuple's type, and the one run loop calls it through `update` below:
Numba picks the function by the type of `data` when it compiles the loop, so that each loop is
specialized, inlined, and cached on disk.

A sampler that moves many variables at once has a sweep instead of the update,

    sweep(data, model, chain, replicas)

which writes `chain.x` itself, and counts as one update of every free variable. `replicas` are
further states of the model that the chain carries, if it asked for any: values [variable][replica],
flat, or 64-bit words that the sampler packs as it likes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import chosen_by_type
from minigibbs.system.boundary import checked
from minigibbs.system.memory import readable

if TYPE_CHECKING:
    from minigibbs.samplers.poisson_gibbs.split import Split


@dataclass(frozen=True)
class Workspace:
    """What one chain needs in addition to its state: cached numbers, integer scratch, weights."""

    carried: int = 0
    scratch: int = 0
    weights: int = 2  # numbers per value
    replicas: int = 0  # further states of all variables; for samplers that sweep
    words: int = 0  # 64-bit words of packed states, instead of `replicas`
    numbers: int = 0  # scratch beyond the weights; for samplers that sweep

    def size(self, graph: FactorGraph) -> float:
        """Bytes of one chain of this graph, its state and weights included."""
        states = (2.0 + self.replicas) * len(graph) * graph.state_type.itemsize
        weights = self.weights * int(graph.sizes.max())
        return states + 8.0 * (self.carried + self.scratch + self.numbers + weights + self.words)

    def new_replicas(self, graph: FactorGraph) -> NDArray[Any]:
        """Return space for the further states of one chain: values, or words of bits."""
        if self.words:
            return np.zeros(self.words, np.uint64)
        return np.zeros(self.replicas * len(graph), graph.state_type)


class Carried(NamedTuple):
    """What a chain stores in addition to its state, and the data that it was laid out for."""

    data: Any
    carried: NDArray[np.float64]
    replicas: NDArray[Any]


@checked(SampleError)
class Sampler(ABC):
    """The base class of samplers: an algorithm and its settings. Subclasses are frozen dataclasses.

    Attributes
    ----------
    name : str
        The name by which `mg.sample` and the command line select the sampler.
    exact : bool
        Whether the stationary distribution is that of the model.

    Examples
    --------
    >>> import minigibbs as mg
    >>> isinstance(mg.Gibbs(), mg.Sampler), mg.Gibbs.name, mg.LocalMinibatchGibbs.exact
    (True, 'gibbs', False)
    """

    name: ClassVar[str]  # in files and on the command line
    exact: ClassVar[bool] = True  # whether its stationary distribution is the model's
    draws_implicit: ClassVar[bool] = False  # whether it can do without stored factors
    sweeps: ClassVar[bool] = False  # whether it moves all variables at once
    on_gpu: ClassVar[bool] = True  # whether a GPU takes it
    takes_zeros: ClassVar[bool] = False  # whether it is exact where factors hold zeros

    def __str__(self) -> str:
        """The sampler as one would write it: settings left at their defaults are left out."""
        given = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def settled(self, graph: FactorGraph) -> Sampler:
        """The sampler with what it has to find out about a graph filled in, once for a run."""
        return self

    @abstractmethod
    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare the arrays the update reads: a NamedTuple of a registered type.

        `lanes` is how many chains go in step, so that each waits for the slowest: 1 on a CPU.
        """

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Ask for what a chain must carry, given what was prepared."""
        return Workspace()

    @property
    def random_because(self) -> str:
        """Why runs visit variables in random order by default; empty if any order will do."""
        return "as the sampler was published"

    def check_chromatic(self) -> None:
        """Refuse chromatic scans; samplers that have one pass.

        Raises
        ------
        SampleError
            If variables of a color cannot be updated together.
        """
        raise SampleError(
            f'scan="chromatic" is for Gibbs and PoissonGibbs; {type(self).__name__} has "random", '
            '"systematic" and "shuffled"'
        )

    def evaluates_all(self, graph: FactorGraph) -> bool:
        """Whether it is known without a split that all factors are evaluated.

        Then nobody has to pack the factors of a large lattice.

        Parameters
        ----------
        graph : FactorGraph
            The model.

        Returns
        -------
        bool
            False if `factor_split` has to tell.
        """
        return False

    def factor_split(self, graph: FactorGraph, lanes: int = 1) -> Split | None:
        """Which factors are evaluated and which are drawn.

        Parameters
        ----------
        graph : FactorGraph
            The model.
        lanes : int, default 1
            How many chains wait for each other; see `describe`.

        Returns
        -------
        Split or None
            None if the sampler does not split factors.
        """
        return None

    @abstractmethod
    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe what the sampler will do on a graph.

        Parameters
        ----------
        graph : FactorGraph
            The model.
        lanes : int, default 1
            Number of chains that wait for each other, as in `run.info.lanes`. It decides which
            factors `mg.PoissonGibbs` minibatches: 1 on a CPU, 64 for chromatic scans (2 for graphs
            without a vectorized layout), 32 on a GPU, 2 within `mg.Tempering`.

        Returns
        -------
        str
            Cost of an update, and the proven guarantee if there is one.
        """

    @abstractmethod
    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Expected operations of an update, by kind (`samplers.costs`), averaged over variables."""

    def guaranteed_slowdown(self, graph: FactorGraph, lanes: int = 1) -> float | None:
        """Compute a proven bound on the slowdown against plain Gibbs.

        It is the largest possible ratio of the spectral gap of plain Gibbs to that of the sampler,
        for random scans. For systematic and chromatic scans see `mg.theory.systematic_slowdown`.

        Parameters
        ----------
        graph : FactorGraph
            The model.
        lanes : int, default 1
            Number of chains that wait for each other; see `describe`.

        Returns
        -------
        float or None
            None if no bound is known.
        """
        return None

    def proviso(self, graph: FactorGraph) -> str:
        """What is known instead of a guaranteed slowdown, in words; empty if nothing is."""
        return ""

    def transition(self, everything: Enumeration) -> Transition:
        """The matrix of one update at a uniformly random variable, by enumeration.

        It follows the published algorithm, not the kernel, which is tested against it.
        """
        raise SampleError(
            f"{type(self).__name__} has no transition matrix: it needs a method "
            "transition(everything), as mg.Gibbs has"
        )


@checked(SampleError)
class SweepSampler(Sampler):
    """A sampler that moves all variables at once; its `transition` is that of one sweep."""

    sweeps = True
    lanes: ClassVar[int] = 1  # for which factors are split within a sweep; see `describe`
    on_gpu: ClassVar[bool] = False  # whether its sweep runs on a GPU, one thread per chain

    def carry_over(self, before: Carried, after: Carried) -> None:
        """Continue a chain on a graph with other weights.

        Parameters
        ----------
        before
            The chain on the old weights.
        after
            The chain on the new weights, begun at the old one's state. What it carries is
            overwritten by what should persist; by default nothing does.
        """

    def account(self, graph: FactorGraph, carried: NDArray[np.float64], warmup: int) -> Any:
        """What the chains [chain, number] have noted, after `warmup` sweeps; None for nothing."""
        return None

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Sweeps are timed, not predicted."""
        raise SampleError(
            f"{type(self).__name__} moves all variables at once: operations are counted for "
            "samplers that update one variable at a time"
        )


def mean_row(graph: FactorGraph) -> dict[str, float]:
    """Means over the free variables of what is around them; see `Sampler.operations`."""
    model, free = graph.packed, graph.evidence < 0
    rows, count = model.rows, max(int(np.count_nonzero(free)), 1)
    place = np.arange(len(model.weight))
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    general = (place >= rows["pair_end"][owner]) & (place < rows["unary_begin"][owner])
    factors = model.factors[model.target[general]]
    pairs = float((rows["pair_end"] - rows["start"]).sum()) / count
    touched = 12 * len(place) + (ROW_BYTES + 8) * len(rows)
    return {
        "pairs": pairs,
        "general": float(np.count_nonzero(general)) / count,
        "slots": float((factors["scope_end"] - factors["scope_start"]).sum()) / count,
        "cells": float(rows["domain"][owner[general]].sum()) / count,
        "values": float(rows["domain"][free].sum()) / count,
        "far": (3.0 + min(pairs, 8.0)) * far_share(touched),
    }


def choice_operations(count: float) -> dict[str, float]:
    """A choice by this number of exponentials; many cost less each."""
    return {"choice": 1.0, "exp": min(count, FEW), "exps": max(count - FEW, 0.0)}


def far_share(size: float) -> float:
    """The share of a trip to main memory that a read from arrays of this number of bytes costs.

    Arrays of a few megabytes leave the processor's own caches, but not the one that cores share.
    """
    return 0.0 if size < 4e6 else 0.4 if size < 32e6 else 1.0


FEW = 16.0
ROW_BYTES = 40


def check_stored(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse a sampler that reads stored factors for a graph with implicit ones."""
    if not graph.implicits or sampler.draws_implicit:
        return
    stats = graph.stats
    raise SampleError(
        f"{type(sampler).__name__} reads stored factors, but this graph's {stats.factors:,} are "
        f"implicit; stored (graph.stored(), about {readable(stats.factors * 24)}), an update "
        f"would look at up to {stats.max_degree:,} of them. Use mg.PoissonGibbs()"
    )


def check_zeros(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse a sampler whose theory needs bounded energies for a graph with zeros."""
    if sampler.takes_zeros or not len(graph.hard):
        return
    raise SampleError(
        f"{type(sampler).__name__} needs factors of bounded energy, but "
        f"{graph.where(int(graph.hard[0]))} holds a zero (a log-potential of -inf); use "
        "mg.PoissonGibbs() or mg.Gibbs(), which evaluate such factors exactly, or raise zeros with "
        "floor=, which is another model"
    )


class _Compiled(NamedTuple):
    update: Any
    begin: Any


_COMPILED: dict[type, _Compiled] = {}
_SWEEPS: dict[type, _Compiled] = {}


def register(data: type, update: Any, begin: Any = None) -> None:
    """Tie a sampler's compiled functions to the type of its data.

    `begin(data, model, chain)` sets what the sampler carries from update to update, if anything.
    """
    _COMPILED[data] = _Compiled(update, begin)


def register_sweep(data: type, sweep: Any, begin: Any) -> None:
    """Tie the compiled functions of a sampler that sweeps to the type of its data.

    `begin(data, model, chain, replicas)` sets what the chain carries, given its first state.
    """
    _SWEEPS[data] = _Compiled(sweep, begin)


def compiled_for(kind: type) -> _Compiled:
    """The compiled functions for a type of prepared data."""
    return _COMPILED[kind]


def carries(data: Any) -> bool:
    """Whether the sampler carries something that must be set before its first update."""
    return compiled_for(type(data)).begin is not None


def update(data: Any, model: Any, chain: Any, i: int) -> int:
    """Draw a new value for variable `i`; compiled code only."""
    return compiled_for(type(data)).update(data, model, chain, i)  # type: ignore[no-any-return]


def begin(data: Any, model: Any, chain: Any) -> None:
    """Set what the sampler carries, for a fresh state; compiled code only."""
    compiled_for(type(data)).begin(data, model, chain)


def sweep(data: Any, model: Any, chain: Any, replicas: Any) -> None:
    """Move all variables; compiled code only."""
    _SWEEPS[type(data)].update(data, model, chain, replicas)


def begin_sweeps(data: Any, model: Any, chain: Any, replicas: Any) -> None:
    """Set what a sampler that sweeps carries, for a fresh state; compiled code only."""
    _SWEEPS[type(data)].begin(data, model, chain, replicas)


# Numba wants these signatures bare, letter for letter, and takes the chosen function's source for
# its own: one that calls it would be one more to compile.
@chosen_by_type(update)
def _update_for_type(data, model, chain, i):  # type: ignore[no-untyped-def]
    return _COMPILED[data.instance_class].update.py_func


@chosen_by_type(begin)
def _begin_for_type(data, model, chain):  # type: ignore[no-untyped-def]
    return _COMPILED[data.instance_class].begin.py_func


@chosen_by_type(sweep)
def _sweep_for_type(data, model, chain, replicas):  # type: ignore[no-untyped-def]
    return _SWEEPS[data.instance_class].update.py_func


@chosen_by_type(begin_sweeps)
def _begin_sweeps_for_type(data, model, chain, replicas):  # type: ignore[no-untyped-def]
    return _SWEEPS[data.instance_class].begin.py_func
