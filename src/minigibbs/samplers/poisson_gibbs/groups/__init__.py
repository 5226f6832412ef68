"""Implicit groups for samplers: one file per kind.

The definition of a kind is in `graph/factors/implicit/`. Its file here implements its split and its
draws for `PoissonGibbs`, and its log-potential for `Tempering`. Importing this package registers
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
