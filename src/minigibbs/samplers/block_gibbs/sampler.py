"""Block Gibbs: sets of variables of small treewidth given the rest, each redrawn jointly.

Jensen, Kong and Kjaerulff 1995, doi:10.1006/ijhc.1995.1029; Hamze and de Freitas 2004
(arXiv:1207.4149) for trees. Variables of a block are summed out one by one and drawn in reverse
order. The result is a draw of the block from its conditional distribution, so this is Gibbs
sampling for any choice of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register_sweep
from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import EQUAL, EVALUATIONS, TABLE
from minigibbs.kernels.random import below, uniform
from minigibbs.samplers.base import SweepSampler
from minigibbs.samplers.block_gibbs.covers import (
    LARGEST_TABLE,
    Blocks,
    Elimination,
    cover,
    join,
    neighbors,
)
from minigibbs.samplers.block_gibbs.program import GENERAL, OUTSIDE, BlockData, program
from minigibbs.samplers.block_gibbs.spins import as_spins, spin_data
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_COVERS = 4
_SEED = 2**64 - 59  # of the covers, which are the same for every run
_MOST_WIDTH = 20
_LONG = 200  # characters of a sampler's settings


@checked(SampleError)
@dataclass(frozen=True)
class BlockGibbs(SweepSampler):
    """Redraw sets of variables jointly, each of treewidth at most `width` given the rest.

    If the treewidth of the graph is at most `width`, there is one block and every sweep is an
    independent draw. Otherwise a sweep uses one of a few covers, chosen at random. A cover has
    every free variable in exactly one block, and blocks are as large as the width allows. Variables
    that hard constraints tie together are kept in one block if the width allows.

    Parameters
    ----------
    width : int, default 1
        The largest treewidth of a block: 1 for trees. A step costs about domain ** (width + 1).
    blocks : list of lists of int or str, optional
        Blocks of variables, by number or name, instead of covers. They are redrawn in this order,
        followed by all other variables one by one.

    Raises
    ------
    SampleError
        If the width or a block is invalid.

    Examples
    --------
    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([3] * 50, [mg.Potts(range(49), range(1, 50), 0.9)])
    >>> print(mg.BlockGibbs().describe(chain))
    Block Gibbs: exact; one block of width 1: every sweep is an independent draw.
    """

    width: int = 1
    blocks: Any = None
    name = "block-gibbs"
    takes_zeros = True

    def __post_init__(self) -> None:
        whole = isinstance(self.width, int | np.integer) and not isinstance(self.width, bool)
        if not whole or not 0 <= self.width <= _MOST_WIDTH:
            raise SampleError(
                f"BlockGibbs: width must be an integer from 0 to {_MOST_WIDTH}, got {self.width!r}"
            )
        if self.blocks is not None:
            object.__setattr__(self, "blocks", _read_blocks(self.blocks))

    def __str__(self) -> str:
        text = super().__str__()
        if self.blocks is None or len(text) < _LONG:
            return text
        width = f"width={self.width}, " if self.width != type(self).width else ""
        return f"BlockGibbs({width}blocks=<{len(self.blocks):,} blocks>)"

    def covers(self, graph: FactorGraph) -> list[Blocks]:
        """Return the blocks of each cover; a sweep uses one cover."""
        spins = self._spins(graph)
        return self._covers(graph if spins is None else spins)

    def _spins(self, graph: FactorGraph) -> FactorGraph | None:
        """Return the graph in a form that has a faster layout, if there is one."""
        return as_spins(graph) if self.width <= 1 else None

    def _covers(self, graph: FactorGraph) -> list[Blocks]:
        around = neighbors(graph)
        choice = (graph.evidence == FREE) & (graph.sizes > 1)
        variables = np.flatnonzero(choice).astype(np.int32)
        width = int(self.width)
        if self.blocks is not None:
            return [self._given(graph, Elimination(around, width, _stream(0)), variables)]
        found = [cover(around, variables, width, _stream(0))]
        if len(found[0].end) > 1:
            found += [cover(around, variables, width, _stream(k)) for k in range(1, _COVERS)]
        return found

    def _given(
        self, graph: FactorGraph, elimination: Elimination, variables: NDArray[np.int32]
    ) -> Blocks:
        """Build the given blocks, and blocks of one for variables that are in none."""
        found, choice = [], np.zeros(len(graph), dtype=bool)
        choice[variables] = True
        seen = np.zeros(len(graph), dtype=bool)
        for number, block in enumerate(self.blocks):
            named = np.array([graph.domains.index(v) for v in block], dtype=np.int32)
            if len(np.unique(named)) < len(named):
                raise SampleError(f"BlockGibbs: block {number} holds a variable twice")
            seen[named] = True
            inside = named[choice[named]]
            if not len(inside):
                continue
            found.append(elimination.block(inside, put_off=False))
            if len(found[-1].order) < len(inside):
                raise TooLargeError(
                    f"BlockGibbs: block {number}, of {len(inside):,} variables, cannot be "
                    f"eliminated within width {self.width} and tables of {LARGEST_TABLE:,} "
                    "entries; give a larger width, or smaller blocks"
                )
        for variable in variables[~seen[variables]].tolist():
            found.append(elimination.block(np.array([variable], np.int32), put_off=False))
        return join(found, int(self.width))

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Find the covers and compile each block to an elimination program."""
        spins = self._spins(graph)
        data = self.tables(graph if spins is None else spins)
        return data if spins is None else spin_data(spins, data)

    def tables(self, graph: FactorGraph) -> BlockData:
        """Find the covers and compile each block to a program with tables of logarithms."""
        data = program(graph, self._covers(graph))
        memory.require(
            8 * data.numbers,
            "the tables of a block",
            "give a smaller width, or smaller blocks",
        )
        return data

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes of a block's tables with a message, and of an index into a table."""
        return Workspace(scratch=2 * data.widest, numbers=data.numbers)

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the number of blocks and the size of the largest."""
        first = self.covers(graph)[0]
        sizes = np.diff(first.end, prepend=0)
        width = int((first.parents >= 0).sum(axis=1).max(initial=0))
        if len(sizes) == 1 and self.blocks is None:
            return (
                f"Block Gibbs: exact; one block of width {width}: every sweep is an independent "
                "draw."
            )
        return (
            f"Block Gibbs: exact; {len(sizes):,} blocks of width up to {width}, the largest with "
            f"{sizes.max(initial=0):,} of {sizes.sum():,} variables, each redrawn jointly."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of a sweep: a random cover, whose blocks are drawn in turn."""
        covers, distribution = self.covers(everything.graph), everything.distribution
        count = len(distribution)
        matrix = np.zeros((count, count))
        for one in covers:
            sweep = np.eye(count)
            for block in one.lists():
                sweep = sweep @ _redraw(everything, block)
            matrix += sweep / len(covers)
        return Transition(matrix, np.arange(count), np.zeros(count), distribution, everything)


def _read_blocks(blocks: Any) -> tuple[tuple[Any, ...], ...]:
    rule = "BlockGibbs: blocks must be lists of variables, such as [[0, 1], [2, 3]]"
    rows = list(blocks) if _is_list(blocks) else [blocks]
    for row in rows:
        if not _is_list(row):
            raise SampleError(f"{rule}; got {row!r}")
    return tuple(tuple(v.item() if isinstance(v, np.generic) else v for v in row) for row in rows)


def _is_list(given: Any) -> bool:
    scalar = isinstance(given, np.ndarray) and not given.ndim
    return isinstance(given, Iterable) and not isinstance(given, str) and not scalar


def _stream(number: int) -> NDArray[np.uint64]:
    words = np.random.SeedSequence(_SEED, spawn_key=(number,)).generate_state(4, np.uint64)
    return words.astype(np.uint64)


def _redraw(everything: Enumeration, block: list[int]) -> NDArray[np.float64]:
    """Compute the matrix of one block's update."""
    others = np.delete(everything.states, block, axis=1)
    _, rest = np.unique(others, axis=0, return_inverse=True)
    logs = np.where(rest.ravel()[:, None] == rest.ravel(), everything.log_potential, -np.inf)
    possible = logs.max(axis=1) > -np.inf  # false if the other variables' values are impossible
    matrix = np.eye(len(logs))
    matrix[possible] = softmax(logs[possible])
    return matrix


@kernel
def advance_digits(data, step, digits, strides, first, place):
    """Advance `digits` to the next entry of the clique; return its index in the source.

    The variable's own axis is excluded.
    """
    axis, last = 1, step.member_end - step.member_start
    while axis < last:
        stride, size = strides[first + axis], data.members[step.member_start + axis].size
        digits[axis] += 1
        if digits[axis] < size:
            return place + stride
        digits[axis] = 0
        place -= stride * (size - 1)
        axis += 1
    return place


@kernel
def _add_source(data, step, numbers, digits, strides, first, source, place, weight):
    """Add a table with these strides to a step's own table."""
    at, own, size = step.table, strides[first], step.size
    for _ in range(step.entries // size):
        for value in range(size):
            numbers[at + value] += weight * source[place + value * own]
        at += size
        place = advance_digits(data, step, digits, strides, first, place)


@kernel
def _add_formula(data, step, numbers, digits, keys, true, literals, form, weight):
    """Add a formula to a step's table; `true` of its literals outside the block hold.

    keys[axis] is the value of the literal on that axis, or -1.
    """
    at, last = step.table, step.member_end - step.member_start
    for _ in range(step.entries // step.size):
        count = true
        for axis in range(1, last):
            count += digits[axis] == keys[axis]
        for value in range(step.size):
            held = count + (value == keys[0])
            if held == literals or (form == EQUAL and held == 0):
                numbers[at + value] += weight
        at += step.size
        advance_digits(data, step, digits, keys, 0, 0)


@kernel
def _add_general(data, model, chain, step, item, numbers):
    """Add a factor that is not a pair to a step's table, given the variables outside the block."""
    last, x = step.member_end - step.member_start, chain.x
    digits, keys = chain.scratch[: data.widest], chain.scratch[data.widest :]
    factor = model.factors[item.other]
    none = 0 if factor.form == TABLE else -1
    for axis in range(last):
        keys[axis] = none
    place, true, k = factor.table_start, 0, item.axis_start
    for s in range(factor.scope_start, factor.scope_end):
        slot, axis = model.slots[s], data.axes[k]
        k += 1
        if axis == OUTSIDE:
            place += np.int64(slot.key) * np.int64(x[slot.variable])
            true += x[slot.variable] == slot.key
        else:
            keys[axis] = slot.key
    if factor.form == TABLE:
        _add_source(data, step, numbers, digits, keys, 0, model.table, place, item.weight)
    else:
        literals = factor.scope_end - factor.scope_start
        _add_formula(data, step, numbers, digits, keys, true, literals, factor.form, item.weight)


@kernel
def _add_pair(data, chain, step, item, numbers):
    """Add a pair to a step's table."""
    size, rows = np.int64(step.size), step.entries // step.size
    if item.axis == OUTSIDE:
        value = np.int64(chain.x[item.other])
        if value < size:
            for row in range(rows):
                numbers[step.table + row * size + value] += item.weight
        return
    member = data.members[step.member_start + item.axis]
    if rows == member.size:
        for value in range(min(size, rows)):
            numbers[step.table + value * (size + 1)] += item.weight
        return
    unit, value, left = member.stride // size, 0, member.stride // size
    for row in range(rows):
        if value < size:
            numbers[step.table + row * size + value] += item.weight
        left -= 1
        if left == 0:
            left = unit
            value = value + 1 if value + 1 < member.size else 0


@kernel
def _send(data, step, numbers, digits):
    """Sum a step's table over its variable; scale to a maximum of 1 and add to the target's."""
    size, rows = np.int64(step.size), step.entries // step.size
    begin, largest = data.numbers - rows, -math.inf
    for row in range(rows):
        at, top, total = step.table + row * size, -math.inf, 0.0
        for value in range(size):
            top = max(top, numbers[at + value])
        if top > -math.inf:
            for value in range(size):
                total += math.exp(numbers[at + value] - top)
            top += math.log(total)
        numbers[begin + row] = top
        largest = max(largest, top)
    for row in range(rows):
        numbers[begin + row] -= largest
    target = data.steps[step.target]
    _add_source(data, target, numbers, digits, data.strides, step.stride_start, numbers, begin, 1.0)


@kernel
def _draw(data, chain, step, numbers):
    """Draw a value for a step's variable, given the rest of its clique."""
    at, size = step.table, step.size
    for k in range(step.member_start + 1, step.member_end):
        member = data.members[k]
        at += member.stride * np.int64(chain.x[member.variable])
    if size == 2:
        odds = math.exp(numbers[at] - numbers[at + 1])
        return 1 if uniform(chain.stream) * (1.0 + odds) < 1.0 else 0
    for value in range(size):
        chain.weights[value] = numbers[at + value]
    return draw_log(chain.weights, size, chain.stream)


@kernel
def sum_out(data, model, chain, first, last, numbers):
    """Sum out a block's variables one by one, given the others."""
    digits = chain.scratch[: data.widest]
    for k in range(data.steps[last - 1].table + data.steps[last - 1].entries):
        numbers[k] = 0.0
    for s in range(first, last):
        step = data.steps[s]
        for k in range(step.item_start, step.item_end):
            item = data.items[k]
            if item.axis == GENERAL:
                _add_general(data, model, chain, step, item, numbers)
            else:
                _add_pair(data, chain, step, item, numbers)
        if step.target >= 0:
            _send(data, step, numbers, digits)


@kernel
def _redraw_block(data, model, chain, first, last, numbers):
    """Sum out a block's variables, then draw them in reverse order."""
    sum_out(data, model, chain, first, last, numbers)
    for s in range(last - 1, first - 1, -1):
        chain.x[data.steps[s].variable] = _draw(data, chain, data.steps[s], numbers)
    chain.tally[EVALUATIONS] += data.steps[last - 1].item_end - data.steps[first].item_start


@kernel
def block_gibbs_sweep(data, model, chain, replicas):
    """Redraw all blocks of a cover."""
    numbers = chain.weights[len(chain.weights) - data.numbers :]
    chosen = below(chain.stream, len(data.cover_end)) if len(data.cover_end) > 1 else 0
    begin = data.cover_end[chosen - 1] if chosen > 0 else 0
    for block in range(begin, data.cover_end[chosen]):
        first = data.block_end[block - 1] if block > 0 else 0
        _redraw_block(data, model, chain, first, data.block_end[block], numbers)


@kernel
def block_gibbs_begin(data, model, chain, replicas):
    """Do nothing: no state persists between sweeps."""


register_sweep(BlockData, block_gibbs_sweep, block_gibbs_begin)
