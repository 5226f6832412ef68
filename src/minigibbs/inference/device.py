"""The search of `mg.maximize` on a GPU: temperature ladders that keep their best states.

All ladders advance together, as in sampling (`running.backends.cuda_ladders` and
`cuda_small_ladders`). A kernel keeps each ladder's best state after every sweep.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.rounds import ROUNDS, next_rounds
from minigibbs.running.backends import BACKENDS
from minigibbs.running.backends.cuda_group import LevelGroup
from minigibbs.running.progress import Bar
from minigibbs.running.request import Options
from minigibbs.samplers.tempering.sampler import Tempering
from minigibbs.system.watch import Watch

UNFIT = (
    'maximize: backend="cuda" needs spins with pairs, or small domains with pairs and tables of '
    "two variables, stored and without hard constraints; leave the backend out"
)


def default_ladders(graph: FactorGraph) -> int:
    """Return the number of ladders that keep a GPU busy."""
    return BACKENDS["cuda"].default_chains(Tempering(), graph)


class DeviceSearching:
    """All chains of a search on a GPU, which advance together; a task of the driver.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    data : NamedTuple
        The ladder of every chain.
    states : array
        The first state of each chain.
    seed : int
        Seed of all draws.
    rounds : int or None
        Number of rounds; None for as many as the time allows.

    Raises
    ------
    SampleError
        If there is no GPU, or the ladder's levels are not updated by threads of their own.
    """

    def __init__(
        self, graph: FactorGraph, data: Any, states: NDArray[Any], seed: int, rounds: int | None
    ) -> None:
        backend = BACKENDS["cuda"]
        backend.check()
        sampler = Tempering(levels=(0.0, 1.0), houdayer=data.twins == 2)
        options = Options(
            sampler=sampler,
            chains=len(states),
            seed=seed,
            warmup=0,
            scan=None,
            backend="cuda",
            record=(),
        )
        (group,) = backend.groups(options.plan(graph, 1, graph.free), data, lambda: states)
        if not isinstance(group, LevelGroup):
            raise SampleError(UNFIT)
        self.group: LevelGroup = group
        self.group.keep_best()
        self.levels, self._updates, self._wanted = len(data.beta), len(data.order), rounds
        self.rounds, self._next = 0, 1
        self.total = None if rounds is None else rounds * len(states) * self._updates

    @property
    def states(self) -> NDArray[Any]:
        """The best state of each chain so far."""
        return self.group.best_states()

    def enough_rounds(self, watch: Watch, workers: int) -> str:
        """Return a note on the shape of the search; a GPU always has enough rounds."""
        return f"{self.group.chains:,} chains of {self.levels} temperatures on a GPU"

    def begin(self, pool: ThreadPoolExecutor, bar: Bar, watch: Watch) -> None:
        """Compile."""
        self._bar, self._watch = bar, watch
        self.group.compile()

    def segment(self) -> str:
        """Run some rounds of every chain."""
        before = time.monotonic()
        self.group.advance(self._next * self.group.unit)
        pace = max(time.monotonic() - before, 1e-6) / self._next
        self.rounds += self._next
        self._bar.advance(self._next * self.group.chains * self._updates)
        left = self._watch.left / pace  # rounds
        rest = None if self._wanted is None else self._wanted - self.rounds
        self._next = next_rounds(pace, self._next, left, rest)
        return "" if self._next else ROUNDS

    def keep(self) -> None:
        """Do nothing, because a search has no checkpoint."""

    def rest(self) -> None:
        """Do nothing, because a segment ends with all of its launches."""
