"""Independent draws from the model: every sweep is a new draw, through the bucket tree.

The upward pass of `exact.elimination` is made once. A draw then visits its steps in reverse order:
the variables that a step has summed out are drawn given the known ones, with weights that are
products of the step's two tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register_sweep
from minigibbs.errors import SampleError
from minigibbs.exact.elimination import EliminationTree, possible
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.samplers.base import SweepSampler
from minigibbs.system.boundary import checked

# Variables that are drawn together. Their sizes are in [slot_start, slot_end) of `own`, their joint
# values are 0 to size - 1, and the weights are products of the parts [part_start, part_end).
_TURN = np.dtype(
    [
        ("size", np.int64),
        ("part_start", np.int64),
        ("part_end", np.int64),
        ("slot_start", np.int64),
        ("slot_end", np.int64),
    ],
    align=True,
)
# A table of weights. Its entries begin at `start`, its slots are those of variables drawn before,
# and `places` from `place` on has the offset of each joint value.
_PART = np.dtype(
    [
        ("start", np.int64),
        ("place", np.int64),
        ("slot_start", np.int64),
        ("slot_end", np.int64),
    ],
    align=True,
)
_SLOT = np.dtype([("variable", np.int64), ("stride", np.int64)], align=True)
# A drawn variable: its number of values, and their offset in `values`.
_OWN = np.dtype([("variable", np.int64), ("size", np.int64), ("value", np.int64)], align=True)


@checked(SampleError)
@dataclass(frozen=True)
class ExactSampler(SweepSampler):
    """Independent draws from the model by variable elimination: every sweep is one draw.

    For graphs of small treewidth, like `mg.exact_marginals`. Other graphs are refused
    (`TooLargeError`).

    Parameters
    ----------
    memory : float, optional
        Bytes that elimination may use. By default 4 GiB, or half of the free memory if that is
        less.

    Examples
    --------
    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 100, [mg.Ising(range(99), range(1, 100), 2.0)])
    >>> exact = mg.ExactSampler()
    >>> run = mg.sample(chain, exact, sweeps=500, seed=1, record="draws", progress=False)
    >>> spins = 2 * run.draws[..., 50].astype(int) - 1
    >>> abs(float((spins[:, 1:] * spins[:, :-1]).mean())) < 0.1  # draws know nothing of the last
    True
    """

    memory: float | None = None
    name = "exact"
    takes_zeros = True
    draws_implicit = True  # only small implicit groups, which it converts to explicit factors

    def __post_init__(self) -> None:
        wrong = isinstance(self.memory, bool) or not isinstance(
            self.memory, int | float | np.number | None
        )
        if wrong or (self.memory is not None and not self.memory > 0):
            raise SampleError(
                f"ExactSampler: memory must be a number of bytes, got {self.memory!r}"
            )

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Sum out the variables once; lay out the tables of every step."""
        tree = EliminationTree.of(graph, self.memory, draws=True)
        with tree.reserved():
            possible(tree)
            return _flat(tree)

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes: scratch has each variable's index among its possible values."""
        return Workspace(scratch=len(graph), numbers=2 * int(data.turns["size"].max(initial=1)))

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the width."""
        order = EliminationTree.of(graph, self.memory, draws=True).order
        return (
            f"Exact: every sweep is an independent draw, by elimination of width {order.width}; "
            "an update looks up the weights of its values in two tables."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix: every row is the distribution itself."""
        distribution = everything.distribution
        matrix, count = np.tile(distribution, (len(distribution), 1)), len(distribution)
        return Transition(matrix, np.arange(count), np.zeros(count), distribution, everything)


class ExactData(NamedTuple):
    """The tables, in the order in which variables are drawn."""

    turns: NDArray[np.void]  # of _TURN
    own: NDArray[np.void]  # of _OWN
    parts: NDArray[np.void]  # of _PART
    slots: NDArray[np.void]  # of _SLOT
    places: NDArray[np.int64]  # offsets of joint values in each part
    logs: NDArray[np.float64]  # entries of the parts
    values: NDArray[np.int64]  # possible values of the variables
    settled: NDArray[np.int64]  # [variable, value] of variables with one possible value


def _flat(tree: EliminationTree) -> ExactData:
    """Concatenate all tables."""
    turns: list[tuple[int, ...]] = []
    own: list[tuple[int, ...]] = []
    parts: list[tuple[int, ...]] = []
    slots: list[tuple[int, int]] = []
    places, tables, values = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int64)]
    place = entry = value = 0
    for turn in tree.turns():
        first_part, first_own, sizes = len(parts), len(own), tree.sizes[list(turn.variables)]
        for variable in turn.variables:
            values.append(tree.values(variable))
            own.append((variable, len(values[-1]), value))
            value += len(values[-1])
        joint = np.indices(sizes.tolist()).reshape(len(sizes), -1)
        for scope, logs in turn.tables:
            tables.append(logs.ravel())
            strides = dict(zip(scope, _strides(logs.shape), strict=True))
            moved = [strides.get(v, 0) for v in turn.variables]
            before = [(v, strides[v]) for v in scope if v not in turn.variables]
            parts.append((entry, place, len(slots), len(slots) + len(before)))
            slots += before
            places.append(np.array(moved, np.int64) @ joint)
            place += joint.shape[1]
            entry += logs.size
        turns.append((joint.shape[1], first_part, len(parts), first_own, len(own)))
    settled = np.flatnonzero(tree.sizes == 1)
    return ExactData(
        turns=np.array(turns, dtype=_TURN),
        own=np.array(own, dtype=_OWN),
        parts=np.array(parts, dtype=_PART),
        slots=np.array(slots, dtype=_SLOT),
        places=np.concatenate(places),
        logs=np.concatenate(tables),
        values=np.concatenate(values),
        settled=np.stack([settled, _values(tree, settled)], axis=1),
    )


def _strides(shape: tuple[int, ...]) -> list[int]:
    """Return the strides of a contiguous array, in entries."""
    return [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]


def _values(tree: EliminationTree, variables: NDArray[Any]) -> NDArray[np.int64]:
    """Return the concatenated possible values of the variables."""
    lists = [tree.values(variable) for variable in variables.tolist()]
    return np.concatenate([np.empty(0, np.int64), *lists])


@kernel
def exact_sweep(data, model, chain, replicas):
    """Draw every variable given those drawn before it, in reverse order of elimination."""
    place = chain.scratch
    for k in range(len(data.settled)):
        chain.x[data.settled[k, 0]] = data.settled[k, 1]
    for k in range(len(data.turns)):
        turn = data.turns[k]
        for joint in range(turn.size):
            chain.weights[joint] = 0.0
        for p in range(turn.part_start, turn.part_end):
            part = data.parts[p]
            at = part.start
            for s in range(part.slot_start, part.slot_end):
                at += data.slots[s].stride * place[data.slots[s].variable]
            for joint in range(turn.size):
                chain.weights[joint] += data.logs[at + data.places[part.place + joint]]
        joint = draw_log(chain.weights, turn.size, chain.stream)
        s = turn.slot_end - 1
        while s >= turn.slot_start:  # the last variable's values are consecutive
            own = data.own[s]
            place[own.variable] = joint % own.size
            chain.x[own.variable] = data.values[own.value + place[own.variable]]
            joint //= own.size
            s -= 1
        chain.tally[EVALUATIONS] += turn.part_end - turn.part_start
    chain.tally[DRAWS] += 1


@kernel
def exact_begin(data, model, chain, replicas):
    """Do nothing: no state persists between sweeps."""


register_sweep(ExactData, exact_sweep, exact_begin)
