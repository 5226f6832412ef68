"""Asynchronous Gibbs: threads update one chain without locks. It is biased.

De Sa, Olukotun and Ré 2016, "Ensuring rapid mixing and low bias for asynchronous Gibbs sampling"
(arXiv:1602.07415). An update is plain Gibbs's, `gibbs.sampler.gibbs_update`; how threads share a
chain is `running.backends.asynchronous`.

Values are bytes or aligned words, so that a read gives a value that was written, old or new. Every
value of every variable indexes within what a thread has for itself: no race leads out of an array.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition, check_rows
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.base import Sampler, Workspace
from minigibbs.samplers.gibbs.sampler import gibbs_data, gibbs_operations, touched_workspace
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class AsyncGibbs(Sampler):
    """Plain Gibbs by several threads on one chain, without locks.

    Each thread updates variables of its own random choice, given the others' values as it finds
    them, old or new. There is no guarantee: where two variables of a factor are updated at the
    same time, each may not see the other, and what the chain converges to is in general not the
    model. The bias is small where variables are many, and factors few and weak.
    `mg.sample(graph, mg.Gibbs(), scan="chromatic")` is exact, and spreads one chain over threads
    as well.

    On several threads a seed fixes nothing but the first states: no two runs are the same, and a
    resumed run is another valid one. On one thread this is `mg.Gibbs(fields=False)` with
    `scan="random"`, draw for draw. Threads meet after each sweep, when marginals are counted.
    Chains take turns.

    Parameters
    ----------
    threads
        How many work on a chain at a time; left out, as many as the machine has processors.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.AsyncGibbs(threads=2).describe(mg.models.ising_lattice(100, 0.3)))
    Asynchronous Gibbs: BIASED, with no guarantee; 2 threads share a chain without locks, an
    update evaluates up to 4 factors.
    """

    threads: int | None = None
    name = "async-gibbs"

    def __post_init__(self) -> None:
        whole = isinstance(self.threads, int | np.integer) and not isinstance(self.threads, bool)
        if self.threads is not None and (not whole or self.threads < 1):
            raise SampleError(
                f"AsyncGibbs: threads must be an integer of at least 1, got {self.threads!r}"
            )

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether its stationary law is the model's: on one thread alone."""
        return self.threads == 1

    @property
    def workers(self) -> int:
        """The threads that work on a chain."""
        return int(self.threads or os.cpu_count() or 1)

    def settled(self, graph: FactorGraph) -> AsyncGibbs:
        """With the number of threads filled in."""
        return replace(self, threads=self.workers)

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """What plain Gibbs prepares. Remembered fields would be written by all threads."""
        return gibbs_data(graph, fields=False)

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Room for the touched values."""
        return touched_workspace(graph)

    def operations(self, graph: FactorGraph) -> dict[str, float]:
        """Those of plain Gibbs, whichever thread has them to do."""
        return gibbs_operations(graph, self.prepare(graph))

    def guaranteed_slowdown(self, graph: FactorGraph) -> float | None:
        """It is plain Gibbs on one thread."""
        return 1.0 if self.exact else None

    def describe(self, graph: FactorGraph) -> str:
        """Say how many threads there are, and that nothing is guaranteed."""
        law = "exact" if self.exact else "BIASED, with no guarantee"
        who = "one thread has the chain" if self.exact else self._sharing()
        return (
            f"Asynchronous Gibbs: {law}; {who}, an update evaluates up to "
            f"{graph.stats.max_degree:,} factors."
        )

    def _sharing(self) -> str:
        return f"{self.workers} threads share a chain without locks"

    def transition(self, everything: Enumeration) -> Transition:
        """As many updates at once as there are threads: all read before any writes.

        That is threads in lockstep, one schedule of many: what they really do depends on the
        machine, and one that is held up knows less. Left out, there are two threads, so that this
        does not.
        """
        threads = 2 if self.threads is None else int(self.threads)
        count = check_rows(len(everything.states))
        moves = {int(i): _moves(everything, int(i)) for i in everything.free}
        matrix, start = np.zeros((count, count)), np.arange(count)
        for chosen, chance in _chosen(list(moves), threads):
            for values in itertools.product(*(range(moves[i][0].shape[1]) for i in chosen)):
                target, weight = start, np.full(count, chance)
                for i, value in zip(chosen, values, strict=True):
                    target = moves[i][0][target, value]
                    weight = weight * moves[i][1][:, value]
                matrix[start, target] += weight
        law = everything.law if threads == 1 else None
        return Transition(matrix, start, np.zeros(count), law, everything)


def _moves(everything: Enumeration, i: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[state, value]: where a state leads if variable `i` takes a value, and its conditional."""
    lines = everything.lines(i)
    shape = (len(everything.states), lines.shape[1])
    target, chance = np.zeros(shape, np.int64), np.zeros(shape)
    for line in lines:
        target[line], chance[line] = line, softmax(everything.energy[line])
    return target, chance


def _chosen(variables: list[int], threads: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """The sets of variables that threads can choose, each with its chance.

    A variable that several choose is drawn from the same conditional whoever writes last.
    """
    if not variables:
        yield (), 1.0
    for size in range(1, min(threads, len(variables)) + 1):
        ways = sum(  # in which `threads` choices hit all of `size` variables
            (-1) ** (size - k) * math.comb(size, k) * k**threads for k in range(1, size + 1)
        )
        for chosen in itertools.combinations(variables, size):
            yield chosen, ways / len(variables) ** threads
