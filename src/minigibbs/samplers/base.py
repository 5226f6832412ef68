"""Base classes of samplers: frozen settings, prepared arrays and one compiled update.

A sampler's file contains a frozen dataclass (what a user writes), a NamedTuple of the arrays that
its update reads (prepared once per graph), and the update itself,

    update(data, model, chain, i) -> new value of variable i

The update reads `chain.x` and leaves it unchanged; the run loop writes the value. `register`
associates the update with the NamedTuple's type. The run loop calls it through
`engine.dispatch.update`: Numba selects the function by the type of `data` when it compiles the
loop, so each loop is specialized, inlined, and cached on disk.

A sampler that updates many variables at once has a sweep instead of the update,

    sweep(data, model, chain, replicas)

which writes `chain.x` itself, and counts as one update of every free variable. `replicas` are
further states of the model that the chain stores if its workspace requests them: a flat array of
values [variable][replica], or 64-bit words in a layout of the sampler's choice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Carried, Workspace
from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.boundary import checked
from minigibbs.system.memory import readable

if TYPE_CHECKING:
    from minigibbs.samplers.poisson_gibbs.split import Split


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
    draws_implicit: ClassVar[bool] = False  # whether it works without explicit factors
    sweeps: ClassVar[bool] = False  # whether it updates all variables at once
    on_gpu: ClassVar[bool] = True  # whether it runs on a GPU
    takes_zeros: ClassVar[bool] = False  # whether it is exact with hard constraints

    def __str__(self) -> str:
        """Format the sampler as a user would write it, without settings equal to their defaults."""
        given = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def settled(self, graph: FactorGraph) -> Sampler:
        """Return the sampler with its graph-dependent settings filled in, once per run."""
        return self

    @abstractmethod
    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare the arrays the update reads: a NamedTuple of a registered type.

        `lanes` is the number of synchronized chains, each of which waits for the slowest: 1 on a
        CPU.
        """

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes of a chain's arrays, given the prepared data."""
        return Workspace()

    @property
    def random_because(self) -> str:
        """Reason why runs visit variables in random order by default; empty if any order works."""
        return "as the sampler was published"

    def check_chromatic(self) -> None:
        """Refuse chromatic scans; samplers that support them override this method.

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
        """Return whether all factors are known to be evaluated without computing a split.

        The factors of a large lattice then need not be packed.

        Parameters
        ----------
        graph : FactorGraph
            The model.

        Returns
        -------
        bool
            False if `factor_split` has to be computed.
        """
        return False

    def factor_split(self, graph: FactorGraph, lanes: int = 1) -> Split | None:
        """Split the factors into evaluated and minibatched ones.

        Parameters
        ----------
        graph : FactorGraph
            The model.
        lanes : int, default 1
            Number of chains that wait for each other; see `describe`.

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
        """Return the mean expected operations per update, by kind (`samplers.costs`)."""

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
        """Describe a known result that replaces a guaranteed slowdown; empty if there is none."""
        return ""

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of one update at a uniformly random variable, by enumeration.

        It implements the published algorithm, not the kernel, which is tested against it.
        """
        raise SampleError(
            f"{type(self).__name__} has no transition matrix: it needs a method "
            "transition(everything), as mg.Gibbs has"
        )


@checked(SampleError)
class SweepSampler(Sampler):
    """A sampler that updates all variables at once; its `transition` is that of one sweep."""

    sweeps = True
    lanes: ClassVar[int] = 1  # for splitting factors within a sweep; see `describe`
    on_gpu: ClassVar[bool] = False  # whether its sweep runs on a GPU, one thread per chain

    def carry_over(self, before: Carried, after: Carried) -> None:
        """Continue a chain on a graph with other weights.

        Parameters
        ----------
        before
            The chain on the old weights.
        after
            The chain on the new weights, started from the old one's state. Overwrite those of its
            arrays that should persist; by default none does.
        """

    def account(self, graph: FactorGraph, carried: NDArray[np.float64], warmup: int) -> Any:
        """Summarize statistics of the chains [chain, number] after `warmup` sweeps, if any."""
        return None

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Raise an error: the cost of a sweep is measured, not predicted."""
        raise SampleError(
            f"{type(self).__name__} moves all variables at once: operations are counted for "
            "samplers that update one variable at a time"
        )


def mean_row(graph: FactorGraph) -> dict[str, float]:
    """Return mean operation counts of the free variables' rows; see `Sampler.operations`."""
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
    """Return the operations of a choice by `count` exponentials; each is cheaper in bulk."""
    return {"choice": 1.0, "exp": min(count, FEW), "exps": max(count - FEW, 0.0)}


def far_share(size: float) -> float:
    """Return the cost of a read from arrays of `size` bytes, as a share of a main-memory access.

    Arrays of a few megabytes exceed a core's private caches, but not the shared cache.
    """
    return 0.0 if size < 4e6 else 0.4 if size < 32e6 else 1.0


FEW = 16.0
ROW_BYTES = 40


def check_stored(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse a sampler that reads explicit factors for a graph with implicit ones."""
    if not graph.implicits or sampler.draws_implicit:
        return
    stats = graph.stats
    raise SampleError(
        f"{type(sampler).__name__} reads stored factors, but this graph's {stats.factors:,} are "
        f"implicit; stored (graph.stored(), about {readable(stats.factors * 24)}), an update "
        f"would evaluate up to {stats.max_degree:,} of them. Use mg.PoissonGibbs()"
    )


def check_zeros(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse a sampler whose theory needs bounded energies for a graph with hard constraints."""
    if sampler.takes_zeros or not len(graph.hard):
        return
    raise SampleError(
        f"{type(sampler).__name__} needs factors of bounded energy, but "
        f"{graph.where(int(graph.hard[0]))} has a hard constraint (a log-potential of -inf); use "
        "mg.PoissonGibbs() or mg.Gibbs(), which evaluate such factors exactly, or read "
        "the model with floor=, which changes it"
    )
