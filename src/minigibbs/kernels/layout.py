"""The flat arrays that kernels read and write: every shape and type is stated here.

Records are aligned: a GPU would read unaligned ones byte by byte.

Letters: n variables, E entries (pairs of a free variable and a factor at it), P pair factors,
G general factors, S scope slots, T table values, D the largest domain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The forms a factor can take inside the kernels; every user-facing kind lowers to one of them,
# or to a pair: weight * [x_i == x_j].
TABLE = 0  # weight * table[...]
AND = 1  # weight * [all literals x_v == key hold]
EQUAL = 2  # weight * [all literals hold, or none]

# A free variable's entries: first its pairs, [start, pair_end), then its general factors,
# [pair_end, unary_begin), then its unary factors, [unary_begin, end).
ROW = np.dtype(
    [
        ("start", np.int64),
        ("pair_end", np.int64),
        ("unary_begin", np.int64),
        ("end", np.int64),
        ("domain", np.int32),  # how many values the variable has
    ],
    align=True,
)

# A factor that is no pair.
FACTOR = np.dtype(
    [
        ("weight", np.float64),
        ("low", np.float64),  # least finite value it can take, given the evidence
        ("span", np.float64),  # the paper's M: largest minus least value; infinite with a zero
        ("table_start", np.int64),  # where a TABLE's values begin
        ("scope_start", np.int64),  # its slots, [scope_start, scope_end)
        ("scope_end", np.int64),
        ("form", np.int64),  # TABLE, AND or EQUAL
    ],
    align=True,
)

# One variable of a factor's scope.
SLOT = np.dtype(  # key: a stride, or a literal's value
    [("variable", np.int32), ("key", np.int32)], align=True
)


class Model(NamedTuple):
    """A factor graph as the kernels see it. Compile time grows with the number of fields."""

    rows: NDArray[np.void]  # [n] of ROW
    first: NDArray[np.int64]  # [n] first place in arrays with a number per variable and value
    target: NDArray[np.int32]  # [E] the other variable (pairs), or a general factor's number
    weight: NDArray[np.float64]  # [E] the factor's weight, as the user signed it
    pair: NDArray[np.int32]  # [P, 2]
    pair_weight: NDArray[np.float64]  # [P]
    factors: NDArray[np.void]  # [G] of FACTOR
    slots: NDArray[np.void]  # [S] of SLOT
    table: NDArray[np.float64]  # [T]


class Ties(NamedTuple):
    """Which parameter each factor has, and how much of it. Empty where no factor has any."""

    pair: NDArray[np.int64]  # [P] the parameter of each pair; -1 for none
    pair_scale: NDArray[np.float64]  # [P] its weight for a parameter of 1
    factor: NDArray[np.int64]  # [G] the parameter, or that of the first entry of its table; -1
    factor_scale: NDArray[np.float64]  # [G] its weight, or its entries', for a parameter of 1
    entries: NDArray[np.bool_]  # [G] whether its table's entries are the parameters


# A row of a sparse Poisson vector: strong rates are drawn one by one, [strong_start, strong_end);
# of the weak ones, [weak_start, weak_end), the total is drawn and then each draw's place.
POISSON_ROW = np.dtype(
    [
        ("strong_start", np.int64),
        ("strong_end", np.int64),
        ("weak_start", np.int64),
        ("weak_end", np.int64),
        ("weak_total", np.float64),  # the sum of the weak rates
        ("none", np.float64),  # exp(-weak_total)
    ],
    align=True,
)
STRONG = np.dtype([("place", np.int64), ("rate", np.float64), ("none", np.float64)], align=True)

# A slot of an alias table: `place` with probability `accept`, else `other`.
ALIAS = np.dtype([("accept", np.float64), ("place", np.int32), ("other", np.int32)], align=True)


class PoissonVector(NamedTuple):
    """Independent Poisson variates by place, a row at a time; see `kernels.poisson`."""

    rows: NDArray[np.void]  # of POISSON_ROW
    strong: NDArray[np.void]  # of STRONG
    weak: NDArray[np.void]  # of ALIAS


class Chain(NamedTuple):
    """One chain: what a sampler's update reads and may write (all but `x`)."""

    x: NDArray[np.unsignedinteger]  # [n] the state, in the smallest type that fits
    stream: NDArray[np.uint64]  # [4] the generator
    carried: NDArray[np.float64]  # what the sampler carries from update to update
    weights: NDArray[np.float64]  # [2D] scratch: a log weight per value, and as much again
    scratch: NDArray[np.int64]  # scratch of the size that the sampler requested
    tally: NDArray[np.int64]  # [5] see EVALUATIONS..CHANGES


EVALUATIONS, DRAWS, PROPOSED, ACCEPTED, CHANGES = range(5)

# Scan orders
RANDOM, SYSTEMATIC, SHUFFLED, SHARED = range(4)


class Scan(NamedTuple):
    """In which order a chain visits the free variables."""

    kind: int  # RANDOM, SYSTEMATIC, SHUFFLED or SHARED
    variables: int  # how many to visit
    order: NDArray[np.int32]  # which ones; empty for all, at random
    position: NDArray[np.int64]  # [1] next place in `order`
    stream: NDArray[np.uint64]  # [4] the generator: the chain's own, or SHARED one like all others


class Recorder(NamedTuple):
    """What a chain keeps. Arrays that are not recorded have length 0."""

    clock: NDArray[np.int64]  # [1] recorded updates so far
    thin: int  # updates between two records
    counts: NDArray[np.int64]  # [sum of sizes] updates spent in each value, up to `since`
    since: NDArray[np.int64]  # [n] the clock up to which a variable is counted; of spins, when
    # they left the value 1 less when they came to it, from which counts follow
    spins: bool  # whether all variables have two values
    draws: NDArray[np.unsignedinteger]  # [records, variables whose draws are kept]
    drawn: NDArray[np.int32]  # which ones; empty for all
    energy: NDArray[np.float64]  # [records], of which every `energy_every`-th is taken
    energy_every: int
    pair: NDArray[np.int32]  # [P, 2] the pairs that matter for an energy
    pair_weight: NDArray[np.float64]  # [P]
    rows: NDArray[np.int64]  # [n + 1] where the pairs of each first variable begin; or empty
    second: NDArray[np.int32]  # [P] the other variables, beside rows
    held: NDArray[np.unsignedinteger]  # [block, n] states of the latest records, to be measured
    reference: NDArray[np.float64]  # [sum of sizes] marginals to measure the error against
    error: NDArray[np.float64]  # [records] mean l2 distance of the running marginals
