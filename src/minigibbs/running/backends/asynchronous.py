"""One chain that several threads work on, without locks: who has which arrays, and who does what.

The state is shared. Everything else that an update writes is a thread's own: its random stream, its
scratch, its tally. The first thread has the chain's own arrays, so that it alone makes a plain
chain. The other threads' streams are drawn anew from the chain's whenever work is handed out: what
a chain needs to go on is then what every other chain needs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import Chain, Scan
from minigibbs.kernels.random import next_word
from minigibbs.kernels.record import keep

_LINE = 128  # bytes that threads keep between what they write: two lines of a cache

Work = Callable[[Chain, Scan, int], None]  # makes so many updates


class Hands:
    """The threads of a chain."""

    def __init__(self, chain: Chain, scan: Scan, count: int) -> None:
        """So many threads, the calling one included, on a chain whose variables are random."""
        self.chains = [chain, *(_beside(chain) for _ in range(count - 1))]
        self.scans = [scan._replace(stream=own.stream) for own in self.chains]
        self._streams = np.zeros((count - 1, len(chain.stream)), np.uint64)

    def work(self, work: Work, updates: int) -> None:
        """Let each thread make its share of so many updates, and wait for all."""
        chain = self.chains[0]
        draw_streams(chain.stream, self._streams)
        for own, stream in zip(self.chains[1:], self._streams, strict=True):
            own.stream[:] = stream
        count = len(self.chains)
        cuts = [updates * k // count for k in range(count + 1)]
        shares = [last - first for first, last in pairwise(cuts)]
        self.together(work, list(zip(self.chains, self.scans, shares, strict=True)))
        for own in self.chains[1:]:
            chain.tally[:] += own.tally
            own.tally[:] = 0

    def together(self, work: Work, tasks: list[tuple[Chain, Scan, int]]) -> None:
        """Do all tasks at the same time, the first of them in the calling thread."""
        others = [_pool(len(tasks) - 1).submit(work, *task) for task in tasks[1:]]
        work(*tasks[0])
        for other in others:
            other.result()


def _beside(chain: Chain) -> Chain:
    """Another thread's chain: the same state, and arrays of its own for all else."""
    own = {name: _apart(array) for name, array in chain._asdict().items() if name != "x"}
    return chain._replace(**own)


def _apart(array: NDArray[Any]) -> NDArray[Any]:
    """Zeros in the shape of an array, in lines of memory that no other thread writes to."""
    gap = _LINE // array.itemsize
    return np.zeros(len(array) + 2 * gap, array.dtype)[gap : gap + len(array)]


@cache
def _pool(helpers: int) -> ThreadPoolExecutor:
    """Threads that help the one that advances a chain; idle ones cost nothing."""
    return ThreadPoolExecutor(helpers, thread_name_prefix="minigibbs-async")


@entry
def draw_streams(stream, streams):
    """Seed each of some streams by the next four words of another."""
    for k in range(len(streams)):
        for word in range(streams.shape[1]):
            streams[k, word] = next_word(stream)


@entry
def note_block(model, recorder, x, updates):
    """Count a state for the so many updates that led to it, and keep what is due."""
    clock = recorder.clock[0] + updates
    recorder.clock[0] = clock
    if len(recorder.counts) > 0:
        for i in range(len(x)):
            recorder.counts[model.first[i] + x[i]] += updates
    if updates > 0 and clock % recorder.thin == 0:
        keep(recorder, model, clock, x)
