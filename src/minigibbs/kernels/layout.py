"""The flat arrays that kernels read and write, with all shapes and types.

Records are aligned, because a GPU would read unaligned ones byte by byte.

Letters: n variables, E entries (pairs of a free variable and a factor at it), P pair factors,
G general factors, S scope slots, T table values, D the largest domain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The forms of factors in the kernels. Every user-facing kind is converted to one of them, or to a
# pair: weight * [x_i == x_j].
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
        ("domain", np.int32),  # number of values of the variable
    ],
    align=True,
)

# A factor that is not a pair.
FACTOR = np.dtype(
    [
        ("weight", np.float64),
        ("low", np.float64),  # least finite value, given the evidence
        ("span", np.float64),  # the paper's M: largest minus least value; infinite if hard
        ("table_start", np.int64),  # index of the first value of a TABLE
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
    """A factor graph as the kernels read it. Compile time grows with the number of fields."""

    rows: NDArray[np.void]  # [n] of ROW
    first: NDArray[np.int64]  # [n] first index in arrays with one number per variable and value
    target: NDArray[np.int32]  # [E] the other variable (pairs), or the index of a general factor
    weight: NDArray[np.float64]  # [E] the factor's weight, with the user's sign
    pair: NDArray[np.int32]  # [P, 2]
    pair_weight: NDArray[np.float64]  # [P]
    factors: NDArray[np.void]  # [G] of FACTOR
    slots: NDArray[np.void]  # [S] of SLOT
    table: NDArray[np.float64]  # [T]


class Ties(NamedTuple):
    """Parameters of factors, and their scales. Arrays are empty if there are no parameters."""

    pair: NDArray[np.int64]  # [P] the parameter of each pair; -1 for none
    pair_scale: NDArray[np.float64]  # [P] its weight for a parameter of 1
    factor: NDArray[np.int64]  # [G] the parameter, or that of the first entry of its table; -1
    factor_scale: NDArray[np.float64]  # [G] its weight, or its entries', for a parameter of 1
    entries: NDArray[np.bool_]  # [G] whether its table's entries are the parameters


# A row of a sparse Poisson vector: strong rates, [strong_start, strong_end), are drawn one by one.
# For the weak ones, [weak_start, weak_end), the total is drawn, and then the entry of each draw.
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

# An entry of an alias table: `place` with probability `accept`, else `other`.
ALIAS = np.dtype([("accept", np.float64), ("place", np.int32), ("other", np.int32)], align=True)


class PoissonVector(NamedTuple):
    """Rows of independent Poisson variates; see `kernels.poisson`."""

    rows: NDArray[np.void]  # of POISSON_ROW
    strong: NDArray[np.void]  # of STRONG
    weak: NDArray[np.void]  # of ALIAS


class Chain(NamedTuple):
    """One chain: the arrays that an update reads and may write (all except `x`)."""

    x: NDArray[np.unsignedinteger]  # [n] the state, in the smallest sufficient type
    stream: NDArray[np.uint64]  # [4] the generator
    carried: NDArray[np.float64]  # numbers that the sampler keeps between updates
    weights: NDArray[np.float64]  # [2D] scratch: a log weight per value, and the same number again
    scratch: NDArray[np.int64]  # scratch of the size that the sampler requested
    tally: NDArray[np.int64]  # [5] see EVALUATIONS..CHANGES


EVALUATIONS, DRAWS, PROPOSED, ACCEPTED, CHANGES = range(5)

# Scan orders
RANDOM, SYSTEMATIC, SHUFFLED, SHARED = range(4)


class Scan(NamedTuple):
    """The order in which a chain visits the free variables."""

    kind: int  # RANDOM, SYSTEMATIC, SHUFFLED or SHARED
    variables: int  # number of variables to visit
    order: NDArray[np.int32]  # the variables; empty for all, in random order
    position: NDArray[np.int64]  # [1] next index in `order`
    stream: NDArray[np.uint64]  # [4] the generator: the chain's own, or equal in all chains


class Recorder(NamedTuple):
    """The records of a chain. Arrays that were not requested have length 0."""

    clock: NDArray[np.int64]  # [1] recorded updates so far
    thin: int  # updates between two records
    counts: NDArray[np.int64]  # [sum of sizes] updates spent in each value, until `since`
    since: NDArray[np.int64]  # [n] the clock up to which a variable is counted; of spins, when
    # they left the value 1 minus when they came to it, from which counts follow
    spins: bool  # whether all variables have two values
    draws: NDArray[np.unsignedinteger]  # [records, variables with recorded draws]
    drawn: NDArray[np.int32]  # the variables; empty for all
    energy: NDArray[np.float64]  # [records], of which every `energy_every`-th is computed
    energy_every: int
    pair: NDArray[np.int32]  # [P, 2] the pairs that contribute to the energy
    pair_weight: NDArray[np.float64]  # [P]
    rows: NDArray[np.int64]  # [n + 1] index of the first pair of each first variable; or empty
    second: NDArray[np.int32]  # [P] the second variables, if `rows` is not empty
    held: NDArray[np.unsignedinteger]  # [block, n] states of the latest records, to be measured
    reference: NDArray[np.float64]  # [sum of sizes] marginals for measuring the error
    error: NDArray[np.float64]  # [records] mean l2 distance of the running marginals
