"""What all layouts of a ladder share: exchanges between levels, Houdayer moves, what is noted.

Non-reversible parallel tempering (Syed, Bouchard-Cote, Deligiannidis and Doucet 2019): level k
holds a state of the model with all energies times beta_k, and neighbouring levels exchange their
states, the even pairs in one round and the odd ones in the next.

Replicas lie as [variable][lane]. `twins` ladders of K levels go side by side: level k of ladder t
is slot t * K + k, and `where` names its lane. Everything that is noted lies in `chain.carried`,
behind what the layout needs for itself.
"""

from __future__ import annotations

import math

from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.random import below, positive_uniform

BLOCKS = 64  # parts of a run that are noted apart, for the error of log Z
EMPTY = -1e300  # the logarithm of a sum of nothing

# Places of numbers among those that are noted.
ROUNDS, TRIPS, LENGTH, FIRST = range(4)


def noted(levels: int, twins: int) -> int:
    """How many numbers a ladder carries."""
    return FIRST + levels - 1 + 3 * levels * twins + twins + BLOCKS * (levels - 1) * 2


def stack_size(free: int, variables: int, twins: int) -> int:
    """How many integers of scratch Houdayer moves need, all of them 0 between two moves."""
    return free + variables if twins == 2 else 0


@inlined
def accepted_at(data):
    """Where the sums of acceptance probabilities begin: one for each pair of levels."""
    return data.own + FIRST


@inlined
def where_at(data):
    """Where the lanes of the slots begin."""
    return accepted_at(data) + len(data.beta) - 1


@inlined
def label_at(data):
    """Where the labels of the slots' replicas begin: 1 was last at the hot end, 2 at the cold."""
    return where_at(data) + len(data.beta) * data.twins


@inlined
def energy_at(data):
    """Where the energies of the lanes begin."""
    return label_at(data) + len(data.beta) * data.twins


@inlined
def broken_at(data):
    """Where it says, for each ladder, how many zeros the last soft level's state breaks."""
    return energy_at(data) + len(data.beta) * data.twins


@inlined
def blocks_at(data):
    """Where the sums for log Z begin: [block][pair of levels][up, down], logarithms."""
    return broken_at(data) + data.twins


@kernel
def begin_ladder(data, chain, replicas):
    """Put the chain's state on all levels; nothing is noted yet."""
    lanes = len(data.beta) * data.twins
    for i in range(len(chain.x)):
        for lane in range(lanes):
            replicas[i * lanes + lane] = chain.x[i]
    for k in range(data.own, len(chain.carried)):
        chain.carried[k] = 0.0
    chain.carried[data.own + LENGTH] = 1.0
    for slot in range(lanes):
        chain.carried[where_at(data) + slot] = slot
    for k in range(blocks_at(data), len(chain.carried)):
        chain.carried[k] = EMPTY


@kernel
def lane_of(data, chain, twin, level):
    """The lane that holds a level of a ladder."""
    return int(chain.carried[where_at(data) + twin * len(data.beta) + level])


@kernel
def _add_log(chain, place, value):
    """Add exp(value) to the sum whose logarithm is at a place."""
    before = chain.carried[place]
    high, low = max(before, value), min(before, value)
    chain.carried[place] = high + math.log1p(math.exp(low - high))


@kernel
def _halve_blocks(data, chain):
    """Put every two blocks together, so that there is room for as many again."""
    width, first = 2 * (len(data.beta) - 1), blocks_at(data)
    for block in range(BLOCKS // 2):
        for k in range(width):
            one = chain.carried[first + 2 * block * width + k]
            chain.carried[first + block * width + k] = one
            _add_log(
                chain, first + block * width + k, chain.carried[first + (2 * block + 1) * width + k]
            )
    for k in range(first + BLOCKS // 2 * width, first + BLOCKS * width):
        chain.carried[k] = EMPTY
    chain.carried[data.own + LENGTH] *= 2.0


@kernel
def _gap(data, chain, twin, k):
    """The logarithm of the ratio by which levels k and k + 1 exchange their states."""
    if data.hard and k == len(data.beta) - 2:
        return 0.0 if chain.carried[broken_at(data) + twin] == 0.0 else -math.inf
    low = chain.carried[energy_at(data) + lane_of(data, chain, twin, k)]
    high = chain.carried[energy_at(data) + lane_of(data, chain, twin, k + 1)]
    return (data.beta[k + 1] - data.beta[k]) * (low - high)


@kernel
def _note_pairs(data, chain):
    """Note for all neighbouring levels how likely they exchange, and the terms of log Z."""
    levels, rounds = len(data.beta), chain.carried[data.own + ROUNDS]
    if rounds == BLOCKS * chain.carried[data.own + LENGTH]:
        _halve_blocks(data, chain)
    block = int(rounds / chain.carried[data.own + LENGTH])
    first = blocks_at(data) + block * 2 * (levels - 1)
    for twin in range(data.twins):
        for k in range(levels - 1):
            gap = _gap(data, chain, twin, k)
            chain.carried[accepted_at(data) + k] += math.exp(min(0.0, gap))
            if data.hard and k == levels - 2:  # the share of states that break no zero
                if gap == 0.0:
                    _add_log(chain, first + 2 * k, 0.0)
                _add_log(chain, first + 2 * k + 1, 0.0)
            else:
                step = data.beta[k + 1] - data.beta[k]
                low = chain.carried[energy_at(data) + lane_of(data, chain, twin, k)]
                high = chain.carried[energy_at(data) + lane_of(data, chain, twin, k + 1)]
                _add_log(chain, first + 2 * k, 0.5 * step * low)
                _add_log(chain, first + 2 * k + 1, -0.5 * step * high)


@kernel
def _swap_carried(chain, a, b):
    chain.carried[a], chain.carried[b] = chain.carried[b], chain.carried[a]


@kernel
def _swap(data, chain, replicas, twin, level):
    """Exchange the states of two neighbouring levels: their lanes, or what these hold."""
    slot, lanes = twin * len(data.beta) + level, len(data.beta) * data.twins
    if data.fixed:
        a, b = lane_of(data, chain, twin, level), lane_of(data, chain, twin, level + 1)
        for i in range(len(chain.x)):
            here, there = i * lanes + a, i * lanes + b
            replicas[here], replicas[there] = replicas[there], replicas[here]
        _swap_carried(chain, energy_at(data) + a, energy_at(data) + b)
    else:
        _swap_carried(chain, where_at(data) + slot, where_at(data) + slot + 1)
    _swap_carried(chain, label_at(data) + slot, label_at(data) + slot + 1)


@kernel
def _label_ends(data, chain, twin):
    """Note which replicas are at the ends; one that comes back to the hot end made a round trip."""
    first, levels = label_at(data) + twin * len(data.beta), len(data.beta)
    if chain.carried[first] == 2.0:
        chain.carried[data.own + TRIPS] += 1.0
    chain.carried[first] = 1.0
    if chain.carried[first + levels - 1] == 1.0:
        chain.carried[first + levels - 1] = 2.0


@kernel
def exchange(data, chain, replicas):
    """One round of exchanges; the energies of all lanes are there."""
    _note_pairs(data, chain)
    rounds = int(chain.carried[data.own + ROUNDS])
    for twin in range(data.twins):
        for k in range(rounds % 2, len(data.beta) - 1, 2):
            gap = _gap(data, chain, twin, k)
            if gap >= 0.0 or math.log(positive_uniform(chain.stream)) < gap:
                _swap(data, chain, replicas, twin, k)
        _label_ends(data, chain, twin)
    chain.carried[data.own + ROUNDS] += 1.0


@kernel
def _differ(replicas, lanes, i, a, b):
    return replicas[i * lanes + a] != replicas[i * lanes + b]


@kernel
def _exchange_cluster(data, chain, replicas, a, b):
    """Exchange two states on one connected part of where they differ: their energies' sum stays.

    The part is that of a random variable, if they differ there. What lies around it is the same in
    both, so that every factor sees two states that it has seen before. Afterwards they differ at
    the same variables, so that the way back is as likely: no rejection is needed.
    """
    lanes, free, stack = len(data.beta) * data.twins, len(data.order), chain.scratch[data.stack :]
    seed = data.order[below(chain.stream, free)]
    if not _differ(replicas, lanes, seed, a, b):
        return
    size, done = 1, 0
    stack[0] = seed
    here, there = seed * lanes + a, seed * lanes + b
    replicas[here], replicas[there] = replicas[there], replicas[here]
    mark = free  # the second half of the scratch marks what has been exchanged
    stack[mark + seed] = 1
    while done < size:
        i = stack[done]
        done += 1
        for place in range(data.start[i], data.start[i + 1]):
            j = data.target[place]
            if stack[mark + j] == 0 and _differ(replicas, lanes, j, a, b):
                stack[mark + j] = 1
                here, there = j * lanes + a, j * lanes + b
                replicas[here], replicas[there] = replicas[there], replicas[here]
                stack[size] = j
                size += 1
    for k in range(size):
        stack[mark + stack[k]] = 0


@kernel
def houdayer(data, chain, replicas):
    """A Houdayer move between the two ladders at every level (Houdayer 2001; Zhu et al. 2015)."""
    if data.twins == 2 and len(data.order) > 0:  # every variable may have one value only
        for k in range(len(data.beta)):
            _exchange_cluster(
                data, chain, replicas, lane_of(data, chain, 0, k), lane_of(data, chain, 1, k)
            )


@kernel
def show(data, chain, replicas):
    """Write the target's state, of the two ladders in turn, to the chain."""
    lanes, rounds = len(data.beta) * data.twins, int(chain.carried[data.own + ROUNDS])
    lane = lane_of(data, chain, rounds % data.twins, len(data.beta) - 1)
    for k in range(len(data.order)):
        i = data.order[k]
        chain.x[i] = replicas[i * lanes + lane]
