"""The best state that a ladder meets: tempering with its levels far below the target's.

First the states are annealed: level by level, each is copied to all colder ones. Then the ladder
goes on as it does in sampling, and every state on the way is looked at.
"""

from __future__ import annotations

import math

from minigibbs.kernels.energy import total_energy
from minigibbs.kernels.jit import entry, kernel
from minigibbs.samplers.base import begin_sweeps, sweep
from minigibbs.samplers.tempering.ladder import energy_at, lane_of


@kernel
def _keep_best(data, model, chain, replicas, zeros, best, state):
    """Keep the best state of all lanes, if it is better than any before and breaks no zero."""
    lanes = len(data.beta) * data.twins
    for lane in range(lanes):
        energy = chain.carried[energy_at(data) + lane]
        if energy <= best[0]:
            continue
        if zeros and total_energy(model, replicas[lane::lanes]) == -math.inf:
            continue
        best[0] = energy
        for i in range(len(state)):
            state[i] = replicas[i * lanes + lane]


@kernel
def _copy_down(data, chain, replicas, level):
    """Copy the state of a level to all colder ones, but one whose zeros it may break."""
    lanes, levels = len(data.beta) * data.twins, len(data.beta) - data.hard
    for twin in range(data.twins):
        source = lane_of(data, chain, twin, level)
        for colder in range(level + 1, levels):
            target = lane_of(data, chain, twin, colder)
            for k in range(len(data.order)):
                first = data.order[k] * lanes
                replicas[first + target] = replicas[first + source]


@entry
def search(data, model, chain, replicas, zeros, best, state, made, rounds, begin, each):
    """Go on for so many rounds after `made`; `best` and `state` keep what is best.

    Annealing begins after round `begin`, and gives each level so many rounds.
    """
    if made == 0:
        begin_sweeps(data, model, chain, replicas)
    for k in range(made, made + rounds):
        sweep(data, model, chain, replicas)
        _keep_best(data, model, chain, replicas, zeros, best, state)
        level = (k + 1 - begin) // each - 1
        if (k + 1 - begin) % each == 0 and 0 <= level < len(data.beta) - 1:
            _copy_down(data, chain, replicas, level)
