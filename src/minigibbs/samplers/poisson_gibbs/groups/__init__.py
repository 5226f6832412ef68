"""Implicit groups for samplers: one file per kind.

A kind's rule is in `graph/factors/implicit/`. Its file here says how `PoissonGibbs` splits it and
draws from it, and how `Tempering` computes its log-potential. Importing this package registers
every kind.
"""

from minigibbs.samplers.poisson_gibbs.groups import complete, copied, kernel, low_rank, points
from minigibbs.samplers.poisson_gibbs.groups.base import (
    ImplicitSplit,
    Wish,
    begin_implicit,
    draw_implicit,
    energy_cost,
    group_energy,
    implicit_space,
    note_implicit,
    prepare_energies,
    prepare_implicit,
    split_implicit,
)

__all__ = [
    "ImplicitSplit",
    "Wish",
    "begin_implicit",
    "complete",
    "copied",
    "draw_implicit",
    "energy_cost",
    "group_energy",
    "implicit_space",
    "kernel",
    "low_rank",
    "note_implicit",
    "points",
    "prepare_energies",
    "prepare_implicit",
    "split_implicit",
]
