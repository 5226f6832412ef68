"""Faster plans: simulated annealing of the tree of products of a plan.

A plan follows an elimination order. Other trees of products of the same tables give the same
results, often for far less work. A rotation replaces the products (a b) c by (a c) b, and rotations
reach every tree. Annealing over rotations follows Kalachev, Panteleev and Yung (2021),
"Multi-tensor contraction for XEB verification of quantum circuits".

The search ends when more of it would cost more than it can save. Its length is counted in
rotations, not in seconds, so that the same graph always gets the same plan.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.plan import (
    PASSES,
    PRICES,
    SMALL_PRODUCTS,
    Plan,
    plan_of_tree,
    tree_of,
    tree_scopes,
)
from minigibbs.kernels.trees import price_tree, rotate_tree
from minigibbs.system.watch import current

_LEAST_SECONDS = 0.05  # predicted for a plan that is worth a search
_PAYS = 0.5  # search for this share of the predicted seconds of the first use
_PAYS_LATER = 0.2  # the same for each of the next uses
_STALE = 0.25  # of that share where the latest rounds have hardly saved anything
_SAVED = 0.05  # share of the seconds that rounds should save
_MOST_SECONDS = 8.0  # of a search, per use
_HOPE_SECONDS = 6.0  # of a search for a plan that fits into memory
_HOPE_BITS = 4.0  # missing bits of memory that halve the hoped-for time
_SHARE = 0.2  # of the time that is left to the call under way
_TRIAL_SECONDS = 5e-8  # of a rotation, beside what follows
_WORD_SECONDS = 6e-9  # per word of bits
_TEMPERATURES = 40
_ROUNDS = ((6.0, 20.0), (15.0, 30.0))  # inverse temperatures of rounds: new trees, better trees
_FIRST_SECONDS = 0.02  # largest time of each of the first two rounds; the next two take twice that
_FIRST_SHARE = 1 / 8  # of the time that the search is worth at first, for each of them
_CROWDED = 1e-8  # seconds per entry if tables do not fit into memory


class Rotation:
    """A plan that is improved while it is used.

    The search for a faster plan may cost a share of the time of all its uses so far. So a plan that
    is used once is searched for briefly, and a plan that is used often becomes a good one.

    Parameters
    ----------
    plan
        The start of the search.
    sizes
        Number of possible values of each variable.
    most
        Largest number of entries of all products together.
    """

    def __init__(self, plan: Plan, sizes: NDArray[np.int64], most: float) -> None:
        self.plan, self._sizes, self._most = plan, sizes, most
        self._uses, self._lock = 0, Lock()
        self._search: _Search | None = None

    def use(self, pace: float = 1.0) -> Plan:
        """Count a use, search as long as all uses justify, and return the best plan so far.

        `pace` is the ratio of the seconds of a use to the predicted ones, which a GPU lowers.
        """
        if not self._lock.acquire(blocking=False):  # another thread searches
            return self.plan
        try:
            self._uses += 1
            fits = self.plan.made <= self._most
            if self.plan.leaves >= 3 and (self.plan.seconds >= _LEAST_SECONDS or not fits):
                self._improve(pace)
        finally:
            self._lock.release()
        return self.plan

    def _improve(self, pace: float) -> None:
        if self._search is None:
            self._search = _Search(self.plan, self._sizes, self._most)
        search, before = self._search, self._search.seconds
        search.run(self._uses, pace)
        if search.seconds == before and self._uses > 1:
            return
        leaves = self.plan.scopes[: self.plan.leaves]
        found = plan_of_tree(leaves, search.best.tolist(), self._sizes)
        self.plan = min(self.plan, found, key=lambda one: (one.made > self._most, one.seconds))


class _Search:
    """Annealing of one tree; `best` has the children of its products."""

    def __init__(self, plan: Plan, sizes: NDArray[np.int64], most: float) -> None:
        self.leaves, self.most = plan.leaves, most
        members = np.unique([v for scope in plan.scopes[: self.leaves] for v in scope])
        self.bits = np.log2(sizes[members].astype(np.float64))
        self.words = max(-(-len(members) // 64), 1)
        place = dict(zip(members.tolist(), range(len(members)), strict=True))
        children = tree_of(plan)
        self.children = np.array(children, dtype=np.int64)
        scopes = tree_scopes(plan.scopes[: self.leaves], children)
        self.rows = np.zeros((len(scopes), self.words), dtype=np.uint64)
        for row, scope in enumerate([*plan.scopes[: self.leaves], *scopes[self.leaves :]]):
            for v in map(place.__getitem__, scope):
                self.rows[row, v >> 6] |= np.uint64(1 << (v & 63))
        self.costs = np.zeros(len(children))
        self.stream: NDArray[Any] = np.random.SeedSequence(self.leaves).generate_state(4, np.uint64)
        self.best = self.children.copy()
        self.best_rows = self.rows.copy()
        self.seconds = self._price(0.0)
        self.made = self._made()
        self.spent, self.rounds, self.first = 0.0, 0, _FIRST_SECONDS
        self.stale, self.before = False, self.seconds  # whether the latest rounds saved little

    def run(self, uses: int, pace: float) -> None:
        """Anneal in rounds from the best tree so far, while the search saves time in all uses."""
        trial = _TRIAL_SECONDS + _WORD_SECONDS * self.words
        allowed = self.spent + _allowed()
        if self.rounds == 0:
            self.first = min(_FIRST_SECONDS, _FIRST_SHARE * self._worth(uses, pace))
        while True:
            lasts = self.first * 2.0 ** (self.rounds // len(_ROUNDS))
            begun = self.rounds >= len(_ROUNDS)
            if begun and self.spent + lasts > min(self._worth(uses, pace), allowed):
                return
            temperatures = _ROUNDS[self.rounds % len(_ROUNDS)]
            self._round(*temperatures, int(lasts / (_TEMPERATURES * trial)))
            self.spent += lasts
            self.rounds += 1
            if self.rounds % len(_ROUNDS) == 0:
                self.stale, self.before = self.seconds > (1 - _SAVED) * self.before, self.seconds

    def _worth(self, uses: int, pace: float) -> float:
        """Seconds that the whole search may take, for a number of uses of the plan."""
        share = (_PAYS + (uses - 1) * _PAYS_LATER) * (_STALE if self.stale else 1.0)
        worth = share * PASSES * self.seconds * pace
        if self.made > self.most:
            beyond = min(math.log2(self.made / self.most), 1000.0)
            worth = _HOPE_SECONDS * 2.0 ** (-beyond / _HOPE_BITS)
        return min(worth, uses * _MOST_SECONDS)

    def _round(self, hot: float, cold: float, trials: int) -> None:
        """Anneal the best tree between two inverse temperatures, `trials` at each."""
        self.children[:], self.rows[:] = self.best, self.best_rows
        crowded = _CROWDED if self.made > self.most else 0.0
        self._price(crowded)
        keep = np.zeros((2, self.words), dtype=np.uint64)
        for inverse in np.linspace(hot, cold, _TEMPERATURES):
            current().check()
            rotate_tree(
                self.children,
                self.rows,
                self.bits,
                self._prices(crowded),
                self.costs,
                trials,
                inverse,
                self.stream,
                keep,
            )
        made, seconds = self._made(), self._price(0.0)
        if (made > self.most, seconds) < (self.made > self.most, self.seconds) or (
            made < self.made and self.made > self.most
        ):
            self.best[:], self.best_rows[:] = self.children, self.rows
            self.made, self.seconds = made, seconds

    def _prices(self, crowded: float) -> NDArray[np.float64]:
        return np.array([*PRICES, SMALL_PRODUCTS, crowded])

    def _price(self, crowded: float) -> float:
        """Return the predicted seconds of one pass."""
        return float(
            price_tree(self.children, self.rows, self.bits, self._prices(crowded), self.costs)
        )

    def _made(self) -> float:
        """Return the number of entries of all products together."""
        set_bits = np.unpackbits(self.rows[self.leaves :].view(np.uint8), axis=1, bitorder="little")
        return float(np.exp2(set_bits[:, : len(self.bits)] @ self.bits).sum())


def _allowed() -> float:
    """Return the seconds that the call can spare, as a power of two so that plans rarely differ."""
    left = _SHARE * current().left
    return math.inf if left == math.inf else 2.0 ** math.floor(math.log2(max(left, 1e-3)))
