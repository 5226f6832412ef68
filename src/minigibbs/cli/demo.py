"""The demonstration behind `make demo`: the paper's Potts model, from its worst start."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs import models
from minigibbs.errors import SampleError
from minigibbs.results import plots
from minigibbs.results.run import Run
from minigibbs.running.api import sample
from minigibbs.system import files

STATES = 10
UPDATES = 1_000_000


def run_demo(updates: int = UPDATES, seed: int = 0, progress: bool = True) -> Run:
    """Sample the paper's Potts model with 4 chains, every variable starting in the same state.

    By symmetry all marginals are uniform, so the error is known exactly.
    """
    graph = models.potts_rbf(states=STATES)
    return sample(
        graph,
        updates=updates,
        warmup=0,
        chains=4,
        seed=seed,
        start=np.zeros(len(graph), dtype=int),
        record=("marginals", "draws", "energy"),
        reference=np.full((len(graph), STATES), 1.0 / STATES),
        progress=progress,
    )


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raise if the picture could not be written; asked before sampling."""
    files.check_target(path)
    plots.picture_format(path)


def draw_demo(run: Run, path: str | os.PathLike[str]) -> None:
    """Draw the error against updates, and states on the way from the worst start."""
    whole, (left, right) = plots.figure(2)
    plots.plot_error(run, left)
    if run.kept_draws is None:
        raise SampleError("this run kept no draws; sample with record=('draws', ...)")
    last = run.draws.shape[1] - 1
    shown = [0, min(9, last), last]  # records, of which there is one every `thin` updates
    side = math.isqrt(run.draws.shape[2])
    _draw_states(run.draws[0, shown], side, right)
    updates = ", ".join(f"{run.record_updates[record]:,}" for record in shown)
    right.set_title(f"One chain after {updates} updates")
    whole.suptitle(
        f"Potts model, {side} x {side}, every two sites coupled, {STATES} states, "
        f"{run.info.chains} chains from a state of one color"
    )
    plots.save(whole, path)


def describe_demo(run: Run) -> list[str]:
    """Return what was done, in three lines, and what to type next.

    The demo starts all chains at one state and has no warm-up, because its picture shows how
    they leave that state. The summary of a run would warn about that.
    """
    info, model = run.info, run.model or {}
    evaluated = (info.factor_evaluations + info.minibatch_draws) / max(info.updates, 1)
    return [
        f"Sampled a Potts model of {model['variables']:,} variables, each coupled to "
        f"{model['max_degree']:,} others.",
        f"{info.chains} chains made {info.updates:,} updates in {info.seconds:.2f} s; an update "
        f"evaluated {evaluated:.1f} factors of {model['max_degree']:,}.",
        f"The error of the marginals fell to {run.marginal_error:.3f}, from a "
        "start in which all variables have the same value.",
        "",
        "What to type next:",
        "  minigibbs infer ising-lattice:side=32,beta=0.4 --max-time 5s",
        "  minigibbs explain potts-rbf",
        "  minigibbs --help",
    ]


def _draw_states(states: NDArray[Any], side: int, axes: Any) -> None:
    """States of a square grid in one row, one color per value."""
    gap = np.full((side, 1), np.nan)
    parts = [part for state in states for part in (gap, state.reshape(side, side))]
    axes.imshow(np.hstack(parts[1:]), cmap="tab10", interpolation="nearest")
    axes.axis("off")
