"""Time per update of a sampler on a graph: one chain, one thread, no records."""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg


class Timed:
    """A sampler that is ready to be timed repeatedly, so that rivals can alternate."""

    def __init__(self, graph, sampler, start=None, warm=20_000, seconds=0.2):
        from minigibbs.running.api import one_chain

        state = np.zeros(len(graph), graph.state_type) if start is None else start.copy()
        stream = np.array([1, 2, 3, 4], dtype=np.uint64)
        self.group = one_chain(graph, sampler, state, stream)
        self.group.compile()
        self.best = np.inf
        per_update = self._time(16)
        self.updates = max(16, min(warm, int(seconds / per_update)))
        self._time(self.updates)  # move away from the start state
        per_update = self._time(self.updates)
        self.updates = max(16, int(seconds / per_update))

    def turn(self) -> float:
        """Time one stretch; store and return seconds per update."""
        per_update = self._time(self.updates)
        self.best = min(self.best, per_update)
        return per_update

    def _time(self, updates: int) -> float:
        begun = time.perf_counter()
        self.group.advance(updates, False)
        return (time.perf_counter() - begun) / updates


def race(rivals: dict[str, Timed], rounds: int = 7) -> dict[str, float]:
    """Return the best nanoseconds per update of each rival; alternation spreads noise evenly."""
    for _ in range(rounds):
        for rival in rivals.values():
            rival.turn()
    return {name: rival.best * 1e9 for name, rival in rivals.items()}


def uniform_start(graph: mg.FactorGraph, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random(len(graph)) * graph.sizes).astype(graph.state_type)
