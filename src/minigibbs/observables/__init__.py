"""Observables of a run: ready-made ones, and quantities derived from them.

`observe={"m": mg.observables.Magnetization()}` in `mg.sample` measures the magnetization at every
record. A function of the state, such as `lambda x: x.mean()`, is compiled and measured likewise.

Examples
--------
>>> import minigibbs as mg
>>> graph = mg.models.ising_lattice(side=8, beta=0.3)
>>> observe = {"m": mg.observables.Magnetization()}
>>> run = mg.sample(graph, sweeps=2000, seed=1, observe=observe, progress=False)
>>> abs(run.observables["m"].mean) < 5 * run.observables["m"].error
True
"""

from __future__ import annotations

from minigibbs.observables.base import Measure, Observable
from minigibbs.observables.composed import Histogram, Moments
from minigibbs.observables.counts import Agreement, Count, JointEvent, PottsOrder
from minigibbs.observables.derived import (
    Estimate,
    binder,
    correlation_length,
    overlap,
    reweight,
    specific_heat,
    susceptibility,
)
from minigibbs.observables.energy import Energy
from minigibbs.observables.lattices import Correlations, StructureFactor
from minigibbs.observables.magnetization import Magnetization
from minigibbs.observables.own import Own

OBSERVABLES: dict[str, type[Observable]] = {
    one.name: one
    for one in (
        Energy,
        Magnetization,
        PottsOrder,
        Count,
        JointEvent,
        Agreement,
        Correlations,
        StructureFactor,
        Moments,
        Histogram,
    )
}

__all__ = [
    "OBSERVABLES",
    "Agreement",
    "Correlations",
    "Count",
    "Energy",
    "Estimate",
    "Histogram",
    "JointEvent",
    "Magnetization",
    "Measure",
    "Moments",
    "Observable",
    "Own",
    "PottsOrder",
    "StructureFactor",
    "binder",
    "correlation_length",
    "overlap",
    "reweight",
    "specific_heat",
    "susceptibility",
]
