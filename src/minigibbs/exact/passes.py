"""The two passes of a plan with plain numbers: small tables in compiled code, large ones in NumPy.

A product of small tables takes less than a microsecond, where a call of NumPy's functions takes
tens of them. Small tables lie in one array. Runs of steps on them are made by one call each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact import contraction
from minigibbs.exact.contraction import SUM, Contraction, Numbers, UnderflowError, own_threads
from minigibbs.exact.plan import SMALL_BITS, Plan, table_bits
from minigibbs.kernels import passes
from minigibbs.kernels.passes import Nodes, Scratch
from minigibbs.system.watch import current

_STEPS = 1 << 10  # small steps between two looks at the clock
_ENTRIES = 1 << 22  # entries of leaves between two looks at the clock


class Written(NamedTuple):
    """The logarithms of all leaves, one behind the other."""

    logs: NDArray[np.float64]
    begin: NDArray[np.int64]  # [leaf + 1]

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Ranges of leaves of bounded work."""
        last = len(self.begin) - 1
        marks = np.arange(0, self.begin[-1] + 1, _ENTRIES)[1:]
        edges = np.unique([0, *np.searchsorted(self.begin[:-1], marks).tolist(), last]).tolist()
        for first, end in itertools.pairwise(edges):
            current().check()
            yield first, end


class Passes(Contraction):
    """A plan with plain numbers for one row.

    Parameters
    ----------
    plan
        The products to make.
    sizes
        How many values each variable may take.
    written
        The logarithms of the leaves.
    ranges
        As for `Contraction`.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: NDArray[np.int64],
        written: Written,
        ranges: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(plan, sizes, (), SUM, ranges)
        own = np.empty(0) if ranges is None else np.ascontiguousarray(ranges, dtype=np.float64)
        arrays = plan.arrays
        wide, joint = table_bits(arrays, sizes)
        counts = np.where(wide <= SMALL_BITS, np.rint(np.exp2(np.minimum(wide, SMALL_BITS))), 0)
        places = np.where(counts > 0, 1 + np.cumsum(counts) - counts, -1).astype(np.int64)
        entries, largest = 1 + int(counts.sum()), int(counts.max(initial=1))
        axes = np.diff(arrays.start)[plan.leaves :] + np.diff(arrays.summed_start)
        limits = np.array([contraction.LEAST, contraction.SPARE, contraction.SCALED])
        self._flat = Nodes(*arrays[:4], sizes, places, own, limits)
        self._room = np.array([entries, entries + largest])
        self._scratch = Scratch(
            np.empty(entries + 2 * largest),
            np.zeros(len(places)),
            np.zeros(len(places)),
            np.zeros((3, len(sizes)), dtype=np.int64),
            np.zeros((5, int(axes.max(initial=1))), dtype=np.int64),
        )
        self._scratch.numbers[0] = 1.0
        self._runs = _runs(joint <= SMALL_BITS)
        self._large: dict[int, Numbers] = {}
        self._told_large: dict[int, tuple[tuple[int, ...], Numbers, float]] = {}
        self._load(written)

    def _load(self, written: Written) -> None:
        for first, last in written.pieces():
            if passes.load_leaves(self._flat, self._scratch, *written, first, last) >= 0:
                raise UnderflowError
        for leaf in np.flatnonzero(self._flat.place[: self.plan.leaves] < 0).tolist():
            scope = self.plan.scopes[leaf]
            logs = written.logs[written.begin[leaf] : written.begin[leaf + 1]]
            numbers, low, scale = self._leaf(scope, logs.reshape(1, *self._shape(scope)))
            self._keep(leaf, numbers, low, scale)

    def _shape(self, scope: tuple[int, ...]) -> list[int]:
        return [self._sizes[v] for v in scope]

    def _node(self, node: int) -> Numbers:
        if node in self._large:
            return self._large[node]
        at, shape = int(self._flat.place[node]), self._shape(self.plan.scopes[node])
        return self._scratch.numbers[at : at + math.prod(shape)].reshape(1, *shape)

    def _table(self, node: int) -> tuple[tuple[int, ...], Numbers, float]:
        return self._scopes[node], self._node(node), float(self._scratch.low[node])

    def _replace(self, node: int, table: Numbers) -> None:
        self._large[node] = table

    def _movable(self, node: int) -> bool:
        return node in self._large and super()._movable(node)

    def _keep(self, node: int, table: Numbers, low: float, scale: Numbers) -> None:
        own, scope = self._scopes[node], self.plan.scopes[node]
        if self._flat.place[node] < 0:
            self._large[node] = table
        elif own == scope:
            self._node(node)[:] = table
        else:  # compiled code needs the axes of the plan
            self._node(node)[:] = table.transpose([0, *(1 + own.index(v) for v in scope)])
            self._scopes[node] = scope
        self._scratch.low[node], self._scratch.scale[node] = low, scale[0]

    def _upward(self) -> Numbers:
        first, total = self.plan.leaves, self._scratch.scale
        for begin, end, small in self._runs:
            current().check()
            if small:
                self._make(begin, end, down=False)
                continue
            step = self.plan.steps[begin]
            out, low, scale = self._made(begin)
            scale = scale + total[step.left] + (total[step.right] if step.right >= 0 else 0.0)
            self._keep(first + begin, out, low, scale)
        roots = np.array(self.plan.roots, dtype=np.int64)
        with np.errstate(divide="ignore"):
            logs = np.log(self._scratch.numbers[self._flat.place[roots]])
        return np.array([(logs + total[roots]).sum()])

    def _pass_down(self) -> None:
        """Set every leaf to its joint marginal."""
        for root in self.plan.roots:
            self._scratch.numbers[self._flat.place[root]] = 1.0
            self._scratch.low[root] = 0.0
        for begin, end, small in reversed(self._runs):
            current().check()
            if small:
                self._make(begin, end, down=True)
            else:
                self._tell(begin)

    def _make(self, begin: int, end: int, down: bool) -> None:
        """Make the products of a run of small steps."""
        arguments = (self._flat, self._scratch, begin, end, self._room, down)
        if passes.make_products(*arguments) >= 0:
            raise UnderflowError

    def _tell(self, number: int) -> None:
        """Tell the two nodes of a step what the rest says, where tables are large."""
        node = self.plan.leaves + number
        self._large.pop(node, None)
        above = self._told_large.pop(node, None) or self._table(node)
        for own, told in self._told_below(self.plan.steps[number], above).items():
            scope, table, low = told
            if own < self.plan.leaves:
                joint = self._joint(own, (scope, table))
                self._keep(own, joint, low, np.zeros(1))
            elif self._flat.place[own] < 0:
                self._told_large[own] = told
            else:
                known = [v for v in self.plan.scopes[own] if v in scope]
                moved = table.transpose([0, *(1 + scope.index(v) for v in known)])
                shape = [self._sizes[v] if v in scope else 1 for v in self.plan.scopes[own]]
                self._keep(own, moved.reshape(1, *shape), low, np.zeros(1))

    def joints(self) -> Callable[[int], Numbers]:
        """As for `Contraction`."""
        with own_threads():
            self._pass_down()
        return self._node

    def marginals(self, begin: NDArray[np.int64], out: NDArray[np.float64]) -> None:
        """Write the marginal of every variable of the plan, after `upward`.

        The values of a variable are at its place in `begin`.
        """
        with own_threads():
            self._pass_down()
        leaf_of = np.full(len(self.sizes), -1, dtype=np.int64)
        leaf_of[list(self.plan.leaf_of)] = list(self.plan.leaf_of.values())
        passes.sum_joints(self._flat, self._scratch.numbers, leaf_of, begin, out)
        for variable, leaf in self.plan.leaf_of.items():
            if leaf in self._large:
                axis = 1 + self.plan.scopes[leaf].index(variable)
                joint = self._large[leaf]
                others = tuple(k for k in range(1, joint.ndim) if k != axis)
                at = begin[variable]
                out[at : at + self.sizes[variable]] = joint.sum(axis=others)[0]


def _runs(small: NDArray[np.bool_]) -> list[tuple[int, int, bool]]:
    """Ranges of steps: small ones together, the others one by one."""
    found, begin = list[tuple[int, int, bool]](), 0
    for number in [*np.flatnonzero(~small).tolist(), len(small)]:
        found += [(k, min(k + _STEPS, number), True) for k in range(begin, number, _STEPS)]
        if number < len(small):
            found.append((number, number + 1, False))
        begin = number + 1
    return found
