"""Transition matrices of samplers by enumeration, stationary distributions and spectral gaps.

`Sampler.transition` builds the matrix of a sampler from the paper's definitions, not from the
kernels. Minibatches are enumerated, and Poisson counts are cut where less than 1e-12 remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact.distributions import Distribution
from minigibbs.exact.enumeration import Enumeration
from minigibbs.system.boundary import checked

MOST_MATRIX = 20_000  # rows of a dense transition matrix
_LOST = 1e-8  # eigenvalues have absolute errors of about 1e-16, so smaller gaps lose digits


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Transition:
    """The transition matrix of one update or sweep of a sampler.

    Samplers with an energy estimate have pairs (state, energy) as rows. `energy` is 0 for others.

    Attributes
    ----------
    matrix : ndarray
        [row, row] transition probabilities.
    state : ndarray of int
        [row] number of the state.
    energy : ndarray
        [row] energy estimate, or 0.
    distribution : ndarray or None
        [row] the stationary distribution according to theory; None if unknown.
    enumeration : Enumeration
        All states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> chain = mg.theory.transition(pair, mg.Gibbs())
    >>> chain.stationary().round(3)
    array([0.366, 0.134, 0.134, 0.366])
    """

    matrix: NDArray[np.float64]
    state: NDArray[np.int64]
    energy: NDArray[np.float64]
    distribution: NDArray[np.float64] | None
    enumeration: Enumeration

    def marginal(self, distribution: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum a distribution over rows to a distribution over states.

        Parameters
        ----------
        distribution : ndarray
            [row] probabilities.

        Returns
        -------
        ndarray
            [state] probabilities.
        """
        count = len(self.enumeration.states)
        if distribution.shape != self.state.shape:
            raise SampleError(
                f"distribution must have shape {self.state.shape}, got {distribution.shape}"
            )
        return np.bincount(self.state, distribution, minlength=count).astype(np.float64)

    def stationary(self) -> NDArray[np.float64]:
        """Compute the stationary distribution of the matrix, without using `distribution`.

        State reduction (Grassmann, Taksar and Heyman 1985, doi:10.1287/opre.33.5.1107) does not
        subtract. The result is therefore accurate to rounding even for chains that mix poorly.

        Returns
        -------
        ndarray
            [row] probabilities.
        """
        reduced = self.matrix.copy()
        for last in range(len(reduced) - 1, 0, -1):
            leaving = reduced[last, :last].sum()
            if leaving <= 0:
                raise ValueError(
                    f"row {last} is never left: the chain has more than one stationary distribution"
                )
            reduced[:last, last] /= leaving
            reduced[:last, :last] += np.outer(reduced[:last, last], reduced[last, :last])
        distribution = np.ones(len(reduced))
        for row in range(1, len(reduced)):
            distribution[row] = distribution[:row] @ reduced[:row, row]
        return distribution / distribution.sum()  # type: ignore[no-any-return]

    def spectral_gap(self) -> float:
        """Compute 1 minus the second eigenvalue of a chain that is reversible under `distribution`.

        I - P is built from the off-diagonal entries of P, and small gaps are computed without
        subtraction. They are therefore accurate to rounding even for chains that mix poorly. Rows
        whose probability is too small for a double are ignored.

        Returns
        -------
        float
            The spectral gap.
        """
        if self.distribution is None:
            raise ValueError(
                "the spectral gap needs a distribution under which the chain is reversible"
            )
        seen = self.distribution > 0
        distribution, rates = self.distribution[seen], self.matrix[np.ix_(seen, seen)]
        if len(distribution) < 2:
            return 1.0
        np.fill_diagonal(rates, 0.0)
        symmetric, root = _symmetric(rates, distribution), np.sqrt(distribution)
        rates = symmetric * root / root[:, None]
        gap = float(np.linalg.eigvalsh(np.diag(rates.sum(axis=1)) - symmetric)[1])
        return gap if gap > _LOST else _small_gap(rates, distribution)


def _symmetric(
    matrix: NDArray[np.float64], distribution: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the matrix of a reversible operator in an orthonormal basis of L2(distribution).

    The two entries of a pair of states are equal except for errors, such as cut Poisson tails. The
    entry in the row of the less likely state is used. It is larger before scaling, so more precise.
    """
    root = np.sqrt(distribution)
    scaled = root[:, None] * matrix / root
    weight = (1.0 + np.sign(distribution - distribution[:, None])) / 2.0
    return weight * scaled + (1.0 - weight) * scaled.T  # type: ignore[no-any-return]


def _small_gap(rates: NDArray[np.float64], distribution: NDArray[np.float64]) -> float:
    """Return the spectral gap from the off-diagonal probabilities, to relative precision.

    Let A be I - P without the row and column of the most probable state o. For f with f(o) = 0 the
    Dirichlet form is <f, A f>, and Var f = <f, C f> with C = I - 1 1^T in L2 of the distribution.
    Therefore 1 / gap is the largest eigenvalue of sqrt(C) A^-1 sqrt(C).
    """
    likeliest = int(np.argmax(distribution))
    others = np.arange(len(distribution)) != likeliest
    inverse = _green(rates[np.ix_(others, others)], rates[others, likeliest])
    if inverse is None:
        return 0.0
    root = np.sqrt(distribution[others])
    shrink = np.outer(root, root) / (1.0 + np.sqrt(distribution[likeliest]))  # I - sqrt(C)
    centered = np.eye(len(root)) - shrink
    scaled = centered @ _symmetric(inverse, distribution[others]) @ centered
    return float(1.0 / np.linalg.eigvalsh(scaled)[-1])


def _green(rates: NDArray[np.float64], exits: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the inverse of diag(rates.sum(axis=1) + exits) - rates; None if it is singular.

    State reduction, as in `Transition.stationary`, does not subtract. Every entry therefore has
    full relative precision. Diagonal entries of `rates` are ignored.
    """
    rates, exits, green = rates.copy(), exits.copy(), np.eye(len(exits))
    leaving = np.empty(len(exits))
    for last in range(len(exits) - 1, -1, -1):
        leaving[last] = exits[last] + rates[last, :last].sum()
        if leaving[last] <= 0:
            return None
        share = rates[:last, last] / leaving[last]
        rates[:last, :last] += np.outer(share, rates[last, :last])
        exits[:last] += share * exits[last]
        green[:last] += np.outer(share, green[last])
    for row in range(len(exits)):
        green[row] = (green[row] + rates[row, :row] @ green[:row]) / leaving[row]
    return green


def on_states(
    everything: Enumeration,
    conditionals: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
    distribution: NDArray[np.float64] | None,
) -> Transition:
    """Return the transition matrix over states of an update at a uniformly random variable.

    `conditionals(i, line)` returns [old value, new value] for variable i, on the states of a line
    that differ only in that variable. If hard constraints forbid a whole line, it has no moves.
    """
    count = check_rows(len(everything.states))
    matrix = np.zeros((count, count))
    for i in everything.free:
        for line in everything.lines(i):
            forbidden = everything.log_potential[line].max() == -np.inf
            moves = np.eye(len(line)) if forbidden else conditionals(int(i), line)
            matrix[np.ix_(line, line)] += moves / len(everything.free)
    return Transition(matrix, np.arange(count), np.zeros(count), distribution, everything)


class Joint:
    """The space of pairs (state, energy estimate), with the distribution of Theorems 1 and 5.

    `distributions` are the paper's mu_x, one per state.
    """

    def __init__(self, everything: Enumeration, distributions: Sequence[Distribution]) -> None:
        self.everything = everything
        self.distributions = distributions
        self.starts = np.cumsum([0] + [len(points) for points, _ in distributions])
        self.shift = max(float(points.max()) for points, _ in distributions)

    def points(self, state: int) -> NDArray[np.float64]:
        """Return the possible energies of an estimate of a state."""
        return self.distributions[state][0]

    def chances(self, state: int) -> NDArray[np.float64]:
        """Return the probabilities of `points`."""
        return self.distributions[state][1]

    def block(self, old: int, new: int) -> tuple[slice, slice]:
        """Return the rows and columns of the matrix that lead from one state to another."""
        cut = [slice(self.starts[s], self.starts[s + 1]) for s in (old, new)]
        return cut[0], cut[1]

    def sum_exp(self, states: list[int]) -> Distribution:
        """Return the distribution of the sum of exp(energy - shift) over independent estimates."""
        mass, chance = np.zeros(1), np.ones(1)
        for state in states:
            points, own = self.distributions[state]
            mass = (mass[:, None] + np.exp(points - self.shift)).ravel()
            chance = (chance[:, None] * own).ravel()
        return mass, chance

    def empty(self) -> NDArray[np.float64]:
        """Return a matrix of zeros."""
        count = check_rows(int(self.starts[-1]))
        return np.zeros((count, count))

    def finish(self, matrix: NDArray[np.float64]) -> Transition:
        """Add the remaining probability of each row to the diagonal; return the transition."""
        matrix[np.diag_indices_from(matrix)] += 1.0 - matrix.sum(axis=1)
        energy = np.concatenate([points for points, _ in self.distributions])
        distribution = np.concatenate([own for _, own in self.distributions]) * np.exp(
            energy - self.shift
        )
        state = np.repeat(np.arange(len(self.distributions)), np.diff(self.starts))
        return Transition(matrix, state, energy, distribution / distribution.sum(), self.everything)


def check_rows(rows: int) -> int:
    """Raise `TooLargeError` for a matrix that is too large; return the number of its rows."""
    if rows > MOST_MATRIX:
        raise TooLargeError(
            f"the transition matrix would have {rows:,} rows; the limit is {MOST_MATRIX:,}"
        )
    return rows
