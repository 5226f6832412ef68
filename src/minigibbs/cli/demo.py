"""The demonstration behind `make demo`: the paper's Potts model, from its worst start."""

from __future__ import annotations

import os

import numpy as np

from minigibbs import models
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
    """Draw the error against updates, and the marginals."""
    whole, (left, right) = plots.figure(2)
    plots.plot_error(run, left)
    plots.plot_marginals(run, right, expected=1.0 / STATES)
    whole.suptitle(
        f"Potts model, 20 x 20, fully connected, {STATES} states, $\\beta$ = 4.6: "
        f"{run.info.chains} chains"
    )
    plots.save(whole, path)
