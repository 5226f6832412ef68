"""Exact marginals of square grids of spins on a GPU, compared with a transfer matrix."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.exact.device import Card
from minigibbs.exact.elimination import EliminationTree

MOST = 10.0  # seconds for all marginals of the grid of 28 x 28
TOLERANCE = 1e-9


def main() -> None:
    report = Report("gpu_exact", "Exact answers on a GPU: all marginals and log Z")
    card = Card.found()
    mg.infer(grid(8), backend="cuda", progress=False)  # compiles
    for side in (16, 28):
        graph = grid(side)
        answer, seconds = timed(graph)
        clamped = graph.condition({0: 1})
        again, later = timed(clamped)
        bar = (f"at most {MOST:g} s", seconds <= MOST) if side == 28 else ()
        report.add(f"{side} x {side} spins", f"{seconds:.2f} s; other evidence {later:.2f} s", *bar)
        card.free()
        tree = EliminationTree.of(clamped, card=card)
        report.add(
            "  predicted on the card",
            f"{tree.seconds:.2f} s, {tree.size / 2**30:.3g} GiB, {len(tree.plan.steps):,} products",
        )
        wanted, log_z = by_transfer(card.arrays, *fields(side))
        ours = answer.marginals[:, 1].reshape(side, side)
        worst = float(np.abs(ours - wanted).max())
        report.add(
            "  largest difference of a marginal",
            f"{worst:.1e}",
            f"{TOLERANCE:g}",
            worst < TOLERANCE,
        )
        gap = abs(answer.log_z - log_z) / abs(log_z)
        report.add(
            "  relative difference of log Z", f"{gap:.1e}", f"{TOLERANCE:g}", gap < TOLERANCE
        )
        first = float(wanted[0, 0])  # P(x_0 = 1): log Z given x_0 = 1 is log Z + log P
        gap = abs(again.log_z - log_z - math.log(first))
        report.add("  difference of log Z with evidence", f"{gap:.1e}", "1e-6", gap < 1e-6)
    report.notes.append(
        "Random couplings and fields. Seconds passed of `mg.infer(graph, backend='cuda')` with the "
        "search for an elimination order, after a smaller grid was answered. Compared with "
        "products of transfer matrices of whole columns in double precision on the same card."
    )
    report.write()


def fields(side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-odds of each site, and couplings along the rows and along the columns."""
    rng = np.random.default_rng(side)
    right, down = rng.normal(0, 0.5, (side, side - 1)), rng.normal(0, 0.5, (side - 1, side))
    return rng.normal(0, 0.5, (side, side)), right, down


def grid(side: int) -> mg.FactorGraph:
    odds, right, down = fields(side)
    sites = np.arange(side * side).reshape(side, side)
    own = np.stack([np.zeros(side * side), odds.reshape(-1)], axis=1)
    return mg.FactorGraph(
        [2] * side * side,
        [
            mg.Unary(sites.reshape(-1), own),
            mg.Ising(sites[:, :-1].reshape(-1), sites[:, 1:].reshape(-1), right.reshape(-1)),
            mg.Ising(sites[:-1].reshape(-1), sites[1:].reshape(-1), down.reshape(-1)),
        ],
    )


def timed(graph: mg.FactorGraph) -> tuple[Any, float]:
    begun = time.perf_counter()
    answer = mg.infer(graph, "60s", backend="cuda", progress=False)
    if not answer.exact:
        raise RuntimeError(f"not exact: {answer.reason}")
    return answer, time.perf_counter() - begun


def by_transfer(
    arrays: Any, odds: np.ndarray, right: np.ndarray, down: np.ndarray
) -> tuple[np.ndarray, float]:
    """Marginals [row, column] and log Z by vectors over the states of a column."""
    side = len(odds)

    def weigh(vector: Any, column: int) -> None:
        """Multiply by the weights of the sites and pairs of a column."""
        for row in range(side):
            vector.reshape(2**row, 2, -1)[:, 1] *= math.exp(odds[row, column])
        for row in range(side - 1):
            pairs, j = vector.reshape(2**row, 2, 2, -1), float(down[row, column])
            for a in (0, 1):
                for b in (0, 1):
                    pairs[:, a, b] *= math.exp(j if a == b else -j)

    def cross(vector: Any, couplings: np.ndarray) -> None:
        """Sum over the states of a column, weighted by its pairs with the next one."""
        for row in range(side):
            parts, same = vector.reshape(2**row, 2, -1), math.exp(couplings[row])
            low = parts[:, 0].copy()
            parts[:, 0] = same * low + parts[:, 1] / same
            parts[:, 1] = low / same + same * parts[:, 1]

    def scaled(vector: Any) -> float:
        top = float(vector.reshape(1024, -1).max(axis=1).max())
        vector /= top
        return math.log(top)

    log_z, forward = 0.0, []
    vector = arrays.ones(2**side)
    for column in range(side):
        if column:
            cross(vector, right[:, column - 1])
        weigh(vector, column)
        log_z += scaled(vector)
        forward.append(vector.copy())
    log_z += math.log(float(vector.reshape(1024, -1).sum(axis=1).sum()))
    found, vector = np.empty((side, side)), arrays.ones(2**side)
    for column in range(side - 1, -1, -1):
        product = forward.pop() * vector
        for row in range(side):
            halves = product.reshape(2, -1)
            low, high = (
                float(half.reshape(min(1024, half.size), -1).sum(axis=1).sum()) for half in halves
            )
            found[row, column] = high / (low + high)
            product = halves[0] + halves[1]
        if column:
            weigh(vector, column)
            cross(vector, right[:, column - 1])
            scaled(vector)
    return found, log_z
