"""The search for the best state of a ladder whose levels extend far below the target's temperature.

First the states are annealed: level by level, each is copied to all colder ones. Then the ladder
continues as in sampling, and every state is compared with the best one.
"""

from __future__ import annotations

import math

from minigibbs.engine.dispatch import begin_sweeps, sweep
from minigibbs.kernels.energy import total_energy
from minigibbs.kernels.jit import entry, kernel
from minigibbs.samplers.tempering.ladder import copy_slot, energy_at, read_slot


@kernel
def _keep_best(data, model, chain, replicas, zeros, best, state, trial):
    """Keep the best state of all slots, if it is better than before and violates no constraint."""
    for slot in range(len(data.beta) * data.twins):
        energy = chain.carried[energy_at(data) + slot]
        if energy <= best[0]:
            continue
        read_slot(data, replicas, slot, trial)
        if zeros and total_energy(model, trial) == -math.inf:
            continue
        best[0] = energy
        for i in range(len(state)):
            state[i] = trial[i]


@kernel
def _copy_down(data, replicas, level):
    """Copy the state of a level to all colder ones, except a hard one, which may exclude it."""
    levels = len(data.beta)
    for twin in range(data.twins):
        for colder in range(level + 1, levels - data.hard):
            copy_slot(data, replicas, twin * levels + level, twin * levels + colder)


@entry
def search(data, model, chain, replicas, zeros, best, state, trial, made, rounds, begin, each):
    """Run `rounds` rounds after round `made`; `best` and `state` keep the best state.

    `trial` is scratch for a state, with the clamped variables set. Annealing begins after round
    `begin` and gives each level `each` rounds.
    """
    if made == 0:
        begin_sweeps(data, model, chain, replicas)
    for k in range(made, made + rounds):
        sweep(data, model, chain, replicas)
        _keep_best(data, model, chain, replicas, zeros, best, state, trial)
        level = (k + 1 - begin) // each - 1
        if (k + 1 - begin) % each == 0 and 0 <= level < len(data.beta) - 1:
            _copy_down(data, replicas, level)
