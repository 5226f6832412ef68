"""Independent draws from the model: every sweep is a fresh one, through the bucket tree.

The upward pass of `exact.elimination` is made once. A draw then goes through the variables, the
last eliminated first: each takes a value given those of its clique, whose weights are the products
of the factors and messages in its bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.elimination import BucketTree, Part, possible
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.samplers.base import SweepSampler, Workspace, register_sweep
from minigibbs.system.boundary import checked

# A variable in its turn: its parts are [part_start, part_end), its values those from `value` on.
_TURN = np.dtype(
    [
        ("variable", np.int32),
        ("size", np.int32),
        ("part_start", np.int64),
        ("part_end", np.int64),
        ("value", np.int64),
    ],
    align=True,
)
# A factor or message: entry `start` and on, `own` entries between two values of the variable, and
# for each of its other variables a slot.
_PART = np.dtype(
    [
        ("start", np.int64),
        ("own", np.int64),
        ("slot_start", np.int64),
        ("slot_end", np.int64),
    ],
    align=True,
)
_SLOT = np.dtype([("variable", np.int64), ("stride", np.int64)], align=True)


@checked(SampleError)
@dataclass(frozen=True)
class Exact(SweepSampler):
    """Every sweep is an independent draw from the model: nothing to converge.

    By variable elimination, as `mg.theory.exact_marginals`: for graphs of small treewidth. One
    that is too wide is refused (`TooLargeError`).

    Parameters
    ----------
    memory
        Bytes that elimination may use; by default 4 GiB, or half of what is free if that is less.

    Examples
    --------
    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 100, [mg.Ising(range(99), range(1, 100), 2.0)])
    >>> run = mg.sample(chain, mg.Exact(), sweeps=500, seed=1, record="draws", progress=False)
    >>> spins = 2 * run.draws[..., 50].astype(int) - 1
    >>> abs(float((spins[:, 1:] * spins[:, :-1]).mean())) < 0.1  # draws know nothing of the last
    True
    """

    memory: float | None = None
    name = "exact"
    takes_zeros = True
    draws_implicit = True  # small ones, which it stores

    def __post_init__(self) -> None:
        wrong = isinstance(self.memory, bool) or not isinstance(
            self.memory, int | float | np.number | None
        )
        if wrong or (self.memory is not None and not self.memory > 0):
            raise SampleError(f"Exact: memory must be a number of bytes, got {self.memory!r}")

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Sum the variables out once; lay out what each bucket then holds."""
        tree = BucketTree.of(graph, self.memory)
        with tree.reserved():
            possible(tree)
            return _flat(tree)

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Each variable's place among the values that zeros leave it."""
        return Workspace(scratch=len(graph))

    def describe(self, graph: FactorGraph) -> str:
        """Say the width."""
        order = BucketTree.of(graph, self.memory).order
        return (
            f"Exact: every sweep is an independent draw, by elimination of width {order.width}; "
            "an update looks up a value's weight in each factor and message of its bucket."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Every row is the law itself."""
        law = everything.law
        matrix, count = np.tile(law, (len(law), 1)), len(law)
        return Transition(matrix, np.arange(count), np.zeros(count), law, everything)


class ExactData(NamedTuple):
    """The buckets, in the order in which values are drawn."""

    turns: NDArray[np.void]  # of _TURN
    parts: NDArray[np.void]  # of _PART
    slots: NDArray[np.void]  # of _SLOT
    logs: NDArray[np.float64]  # of what the parts hold
    values: NDArray[np.int64]  # that variables may take
    settled: NDArray[np.int64]  # [variable, value] of those with one


def _flat(tree: BucketTree) -> ExactData:
    """All buckets end to end."""
    count = len(tree.order.variables)
    parts = [part for variable in reversed(tree.order.variables) for part in tree.parts[variable]]
    turns = np.zeros(count, dtype=_TURN)
    turns["variable"] = tree.order.variables[::-1]
    turns["size"] = tree.sizes[turns["variable"]]
    turns["value"] = np.cumsum(turns["size"]) - turns["size"]
    turns["part_end"] = np.cumsum([len(tree.parts[v]) for v in turns["variable"].tolist()])
    turns["part_start"][1:] = turns["part_end"][:-1]
    rows, slots = np.zeros(len(parts), dtype=_PART), [_slots(part) for part in parts]
    sizes = np.array([part.table.size for part in parts], dtype=np.int64)
    rows["start"] = np.cumsum(sizes) - sizes
    rows["own"] = [part.table.size // len(part.table) for part in parts]
    rows["slot_end"] = np.cumsum([len(own) for own in slots])
    rows["slot_start"][1:] = rows["slot_end"][:-1]
    logs = np.empty(int(sizes.sum()))
    for part, first in zip(parts, rows["start"].tolist(), strict=True):
        logs[first : first + part.table.size] = part.table.ravel()
    if not tree.logs:
        with np.errstate(divide="ignore"):
            np.log(logs, out=logs)
    settled = np.flatnonzero(tree.sizes == 1)
    return ExactData(
        turns=turns,
        parts=rows,
        slots=np.concatenate([np.empty(0, _SLOT), *slots]),
        logs=logs,
        values=_values(tree, turns["variable"]),
        settled=np.stack([settled, _values(tree, settled)], axis=1),
    )


def _values(tree: BucketTree, variables: NDArray[Any]) -> NDArray[np.int64]:
    """The values that each of some variables may take."""
    lists = [tree.values(variable) for variable in variables.tolist()]
    return np.concatenate([np.empty(0, np.int64), *lists])


def _slots(part: Part) -> NDArray[np.void]:
    """The variables of a part but its first, with their strides in the flat table."""
    slots = np.empty(len(part.scope) - 1, dtype=_SLOT)
    slots["variable"] = part.scope[1:]
    shape = part.table.shape
    slots["stride"] = [int(np.prod(shape[k + 1 :])) for k in range(1, len(shape))]
    return slots


@kernel
def exact_sweep(data, model, chain, replicas):
    """Draw every variable, the last eliminated first, given those before it."""
    place = chain.scratch
    for k in range(len(data.settled)):
        chain.x[data.settled[k, 0]] = data.settled[k, 1]
    for k in range(len(data.turns)):
        turn = data.turns[k]
        for value in range(turn.size):
            chain.weights[value] = 0.0
        for p in range(turn.part_start, turn.part_end):
            part = data.parts[p]
            at = part.start
            for s in range(part.slot_start, part.slot_end):
                at += data.slots[s].stride * place[data.slots[s].variable]
            for value in range(turn.size):
                chain.weights[value] += data.logs[at + value * part.own]
        place[turn.variable] = draw_log(chain.weights, turn.size, chain.stream)
        chain.x[turn.variable] = data.values[turn.value + place[turn.variable]]
        chain.tally[EVALUATIONS] += turn.part_end - turn.part_start
    chain.tally[DRAWS] += 1


@kernel
def exact_begin(data, model, chain, replicas):
    """Nothing is carried."""


register_sweep(ExactData, exact_sweep, exact_begin)
