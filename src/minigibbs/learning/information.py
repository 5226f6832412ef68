"""Covariance of learned parameters, from the Fisher information.

Long computations raise `StopError` of `system.watch` when the present call must end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.data import Data
from minigibbs.graph.parameters import Frame
from minigibbs.learning.chains import Chains
from minigibbs.learning.exact import Enumerated
from minigibbs.learning.penalty import Penalty
from minigibbs.learning.pseudo import PseudoLikelihood
from minigibbs.system.watch import current

MOST_PARAMETERS = 1000  # most parameters whose covariances are computed
MOST_STATISTICS = 4_000_000  # most statistics of all chains for a distance without covariances
_DRAWS = 30  # samples of every chain
_LEAST = 1e-9  # eigenvalues below this share of the largest count as 0
_ALARMS = 1e-3  # probability that a moment differs by noise alone
_STEP = 1e-4  # step of the differences that give a second derivative

Matrix = NDArray[np.float64]


class Score(NamedTuple):
    """Gradient of the objective at the learned parameters, for the free ones."""

    gap: NDArray[np.float64]  # gradient of the objective, 0 at the optimum
    noise: Matrix | None = None  # covariance of the gap; None if it is exact


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Uncertainty of learned parameters."""

    deviations: NDArray[np.float64]  # [parameter] standard errors; 0 for fixed ones
    covariance: Matrix  # [parameter, parameter]
    undetermined: Matrix  # [direction, parameter] orthonormal directions that data do not determine
    away: float = 0.0  # distance from the optimum in standard errors, beyond noise


def from_states(
    frame: Frame, distribution: Enumerated, values: NDArray[np.float64], data: Data
) -> Matrix:
    """Return the exact information of a row: the reduction of covariance by the row."""
    free = np.flatnonzero(~frame.fixed)
    nothing = np.full(distribution.states.shape[1], -1, dtype=np.int32)
    whole = _covariance(distribution, free, values, nothing)
    if data.complete:
        return whole
    rows = np.array([data.evidence(row) for row in range(len(data))])
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(which.ravel(), data.weight) / data.weight.sum()
    left = [_covariance(distribution, free, values, row.astype(np.int32)) for row in distinct]
    found: Matrix = whole - np.einsum("r,rab->ab", share, np.array(left))
    return found


def _covariance(
    distribution: Enumerated,
    free: NDArray[np.intp],
    values: NDArray[np.float64],
    evidence: NDArray[np.int32],
) -> Matrix:
    clamped = np.flatnonzero(evidence >= 0)
    agree = (distribution.states[:, clamped] == evidence[clamped]).all(axis=1)
    rows, energy = distribution.rows[agree][:, free], distribution.log_potential(values)[agree]
    shares = np.exp(energy - energy.max())
    shares /= shares.sum()
    centered = rows - shares @ rows
    covariance: Matrix = (centered * shares[:, None]).T @ centered
    return covariance


def from_chains(
    frame: Frame,
    model: Chains,
    sweeps: int,
    rows: Chains | None,
    data: Data,
    moments: NDArray[np.float64],
) -> tuple[Matrix, Score]:
    """Estimate the information of a row from chains of the model and of the rows.

    Also return the difference of the moments of data and model, and its noise. `moments` are
    those of complete data.
    """
    free = np.flatnonzero(~frame.fixed)
    whole, mean, noise = _spread(frame, model, sweeps, pooled=True, weight=None)
    if rows is None:
        return whole, Score(moments[free] - mean, noise)
    left, inside, more = _spread(frame, rows, sweeps, pooled=False, weight=data.weight)
    return whole - left, Score(inside - mean, noise + more)


def _spread(
    frame: Frame, chains: Chains, sweeps: int, pooled: bool, weight: NDArray[np.float64] | None
) -> tuple[Matrix, NDArray[np.float64], Matrix]:
    """Return the covariance of statistics, over all chains or averaged within chains.

    Also return the means, and their covariance by differences between chains. Chains of given rows
    also differ by their rows, so single draws give theirs, an upper bound for chains.
    """
    count, free = len(chains), np.flatnonzero(~frame.fixed)
    share = np.ones(count) if weight is None else weight
    square, total = np.zeros((len(free), len(free))), np.zeros((count, len(free)))
    for _ in range(_DRAWS):
        current().check()
        chains.sweep(sweeps)
        drawn = frame.statistics(chains.states())[:, free]
        square += (drawn * share[:, None]).T @ drawn
        total += drawn
    means, draws = total / _DRAWS, count * _DRAWS
    center = share @ means / share.sum()
    if pooled:
        within: Matrix = square / draws - np.outer(center, center)
        away = means - center
        return within, center, away.T @ away / (max(count - 1, 1) * count)
    within = square / draws - (means * share[:, None]).T @ means / count
    within = within * (_DRAWS / (_DRAWS - 1))
    return within, center, within / count


def distance(
    frame: Frame,
    model: Chains,
    sweeps: int,
    rows: Chains | None,
    data: Data,
    moments: NDArray[np.float64],
    penalty: Penalty,
    count: float,
    values: NDArray[np.float64],
) -> float:
    """Return the largest gap between moments of data and model in standard errors, minus noise.

    The standard errors are those of the moments of `count` rows. Unlike `errors` this needs no
    covariances, but a gap in many moments that depend on each other looks small.
    """
    free = np.flatnonzero(~frame.fixed)
    mean, spread, noise = _single(frame, model, sweeps, None)
    target = moments[free]
    if rows is not None:
        target, within, _ = _single(frame, rows, sweeps, data.weight)
        noise = noise + within / len(rows)
    finite = np.where(np.isfinite(values), values, 0.0)
    gap = target - mean - penalty.slope(finite)[free]
    gap -= np.clip(gap, -penalty.l1[free], penalty.l1[free])
    allowed = np.sqrt(2.0 * np.log(2.0 * max(len(free), 1) / _ALARMS) * noise)
    error = np.sqrt((spread + penalty.l2[free]) / count)
    known = error > 0
    beyond = np.maximum(np.abs(gap) - allowed, 0.0)
    return float((beyond[known] / error[known]).max(initial=0.0))


def _single(
    frame: Frame, chains: Chains, sweeps: int, weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return means and variances of statistics, and variances of the means between chains."""
    count, free = len(chains), np.flatnonzero(~frame.fixed)
    share = np.ones(count) if weight is None else weight
    square, total = np.zeros(len(free)), np.zeros((count, len(free)))
    for _ in range(_DRAWS):
        current().check()
        chains.sweep(sweeps)
        drawn = frame.statistics(chains.states())[:, free]
        square += share @ drawn**2
        total += drawn
    means = total / _DRAWS
    center = share @ means / share.sum()
    spread = np.maximum(square / (_DRAWS * share.sum()) - center**2, 0.0)
    noise = share @ (means - center) ** 2 / (share.sum() * max(count - 1, 1))
    return center, spread, noise


def errors(
    frame: Frame,
    information: Matrix,
    penalty: Penalty,
    rows: float,
    score: Score | None = None,
    values: NDArray[np.float64] | None = None,
) -> Uncertainty:
    """Return the uncertainty of all parameters; errors are infinite if nothing is known.

    Directions that data do not determine, such as a constant added to all energies of a factor, are
    listed and excluded from the errors. With a score and the values of the parameters, also compute
    their distance from the optimum.
    """
    free = np.flatnonzero(~frame.fixed)
    scale = np.where(frame.scales[free] > 0, frame.scales[free], 1.0)  # all in units of energy
    curvature = rows * (information + np.diag(penalty.l2[free])) / np.outer(scale, scale)
    own = np.diag(curvature)
    inverse, nothing = _inverse(curvature)
    inverse /= np.outer(scale, scale)
    away = 0.0
    if score is not None and values is not None:
        finite = np.where(np.isfinite(values), values, 0.0)  # infinite ones are fixed
        gap = score.gap - penalty.slope(finite)[free]
        gap -= np.clip(gap, -penalty.l1[free], penalty.l1[free])  # gradient that L1 balances
        away = _away(inverse, rows * gap, None if score.noise is None else rows**2 * score.noise)
    unknown = own <= _LEAST * own.max(initial=0.0)
    return _uncertainty(frame, inverse, nothing / scale, unknown, away)


def _away(inverse: Matrix, gap: NDArray[np.float64], noise: Matrix | None) -> float:
    """Return the distance from the optimum by a Newton step, beyond four times its noise."""
    error = np.sqrt(np.maximum(np.diag(inverse), 0.0))
    step = np.abs(inverse @ gap)
    if noise is not None:
        spread = np.einsum("ij,jk,ik->i", inverse, noise, inverse)
        step = step - 4.0 * np.sqrt(np.maximum(spread, 0.0))
    known = error > 0
    return float((step[known] / error[known]).max(initial=0.0))


def _uncertainty(
    frame: Frame, inverse: Matrix, nothing: Matrix, unknown: NDArray[np.bool_], away: float
) -> Uncertainty:
    """Expand the results of the free parameters to all."""
    free = np.flatnonzero(~frame.fixed)
    deviations, covariance = np.zeros(frame.size), np.zeros((frame.size, frame.size))
    deviations[free] = np.sqrt(np.maximum(np.diag(inverse), 0.0))
    deviations[free[unknown]] = np.inf
    covariance[np.ix_(free, free)] = inverse
    directions = np.zeros((len(nothing), frame.size))
    directions[:, free] = np.linalg.qr(nothing.T)[0].T if len(nothing) else nothing
    return Uncertainty(deviations, covariance, directions, away)


def sandwich(
    frame: Frame,
    likelihood: PseudoLikelihood,
    values: NDArray[np.float64],
    penalty: Penalty,
) -> Uncertainty:
    """Return the errors of a pseudo-likelihood's maximum, whose terms are dependent."""
    free, data = np.flatnonzero(~frame.fixed), likelihood.data

    def slope(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return likelihood.of(at)[1][free] - penalty.slope(at)[free]

    curvature = -_differences(slope, values, free)
    curvature = (curvature + curvature.T) / 2
    scores = np.zeros((len(data), len(free)))
    for row in np.flatnonzero(data.weight).tolist():
        one = PseudoLikelihood(likelihood.graph, data.some(np.array([row])), likelihood.threads)
        scores[row] = one.of(values)[1][free] * data.weight[row]
    centered = scores - scores.mean(axis=0)
    inverse, nothing = _inverse(curvature)
    covariance = inverse @ (centered.T @ centered / len(data)) @ inverse / len(data)
    found = _uncertainty(frame, covariance, nothing, np.diag(curvature) <= 0, 0.0)
    error = found.deviations[free]
    known = (error > 0) & np.isfinite(error)
    away = (np.abs(inverse @ slope(values))[known] / error[known]).max(initial=0.0)
    return replace(found, away=float(away))


def _differences(
    slope: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    values: NDArray[np.float64],
    free: NDArray[np.intp],
) -> Matrix:
    """Return the derivative of a gradient along each free parameter."""
    rows = []
    for number in free:
        ends = []
        for side in (_STEP, -_STEP):
            moved = values.copy()
            moved[number] += side
            ends.append(slope(moved))
        rows.append((ends[0] - ends[1]) / (2 * _STEP))
    return np.array(rows).reshape(len(free), len(free))


def _inverse(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Return the inverse on directions of nonzero curvature, and the other directions."""
    if not len(matrix):
        return matrix, matrix
    along, axes = np.linalg.eigh(matrix)
    known = along > _LEAST * max(along[-1], 0.0)
    inverse: Matrix = (axes[:, known] / along[known]) @ axes[:, known].T
    return inverse, axes[:, ~known].T
