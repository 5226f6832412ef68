"""What a ladder has noted, in numbers that a user reads: exchanges, round trips, log Z."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.samplers.tempering.ladder import (
    BLOCKS,
    EMPTY,
    KEY_0,
    KEY_1,
    LENGTH,
    ROUNDS,
    SWAPS,
    TRIPS,
)
from minigibbs.system.boundary import check_level, checked
from minigibbs.system.quantiles import fisher, student

_PARTS = 8  # of all chains, whose spread gives the error of log Z; two to four of each chain
_DROPPED = 0.2  # share of the rounds of a chain that log Z leaves out, at least
_FALSE_ALARM = 0.05  # of chains that seem to differ by more than their parts do


@checked(SampleError, init=False)
@dataclass(frozen=True)
class Ladder:
    """The temperature ladder of a tempered run and its exchanges: `run.ladder`.

    Attributes
    ----------
    levels : tuple of float
        Inverse temperatures, from 0 to 1.
    swap_rates : tuple of float
        Acceptance rate of exchanges between neighboring temperatures.
    barrier : float
        Sum of the rejection rates.
    rounds : int
        Rounds of exchanges of all chains.
    round_trips : int
        Round trips of replicas between the hottest and the coldest temperature, of all chains.
    log_z : float or None
        Log Z by stepping stones; None before anything is recorded, and while no state of the last
        soft temperature satisfied all hard constraints.
    log_z_error : float or None
        Standard error of `log_z`; None if the run is too short to estimate it.
    log_z_degrees : int
        Degrees of freedom of the error; 0 in files before 0.3.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2] * 9, [mg.Ising(range(8), range(1, 9), 0.5)])
    >>> run = mg.sample(graph, mg.Tempering(), sweeps=200, seed=1, progress=False)
    >>> run.ladder.levels[0], run.ladder.levels[-1]
    (0.0, 1.0)
    """

    levels: tuple[float, ...]
    swap_rates: tuple[float, ...]
    barrier: float
    rounds: int
    round_trips: int
    log_z: float | None
    log_z_error: float | None
    log_z_degrees: int = 0

    def log_z_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Compute Student's confidence interval for log Z; NaN if the error is not known.

        Parameters
        ----------
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        (float, float)
            Lower and upper end.
        """
        check_level(level)
        return student_interval(self.log_z, self.log_z_error, self.log_z_degrees, level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Ladder:
        """The ladder that `to_dict` described; raises `ValueError` for what cannot be one."""
        numbers = {name: tuple(map(float, saved[name])) for name in ("levels", "swap_rates")}
        found = cls(**{**saved, **numbers})
        for name in ("rounds", "round_trips"):
            count = getattr(found, name)
            if type(count) is not int or count < 0:
                raise ValueError(f"{name}: expected a count, got {count!r}")
        for name in ("barrier", "log_z", "log_z_error"):
            number = getattr(found, name)
            if type(number) not in (int, float) and (number is not None or name == "barrier"):
                raise ValueError(f"{name}: expected a number, got {number!r}")
        if found.log_z is None and found.log_z_error is not None:
            raise ValueError("log_z: expected a number, since it has an error")
        if type(found.log_z_degrees) is not int or found.log_z_degrees < 0:
            raise ValueError(f"log_z_degrees: expected a count, got {found.log_z_degrees!r}")
        if len(found.swap_rates) != len(found.levels) - 1 or not found.swap_rates:
            raise ValueError("swap_rates: expected one for each two neighboring levels")
        return found


def student_interval(
    value: float | None, error: float | None, degrees: float, level: float
) -> tuple[float, float]:
    """Return Student's interval; NaN where there is no error, and a point where the error is 0."""
    if value is None or error is None or not (degrees > 0 or error == 0):
        return math.nan, math.nan
    reach = student(degrees, (1 + level) / 2) * error if error else 0.0
    return value - reach, value + reach


def account(
    carried: NDArray[np.float64],
    beta: NDArray[np.float64],
    twins: int,
    own: int,
    first_log_z: float,
    warmup: int,
) -> Ladder:
    """What the chains' [chain, number] notes say; the first `warmup` rounds are left out of log Z.

    At least the first fifth of each chain is left out. `first_log_z` is log Z at level 0.
    """
    pairs = len(beta) - 1
    notes = carried[:, own:]
    check_notes(notes, len(beta), twins)
    rounds = notes[:, ROUNDS]
    chances = notes[:, SWAPS : SWAPS + pairs].sum(axis=0) / max(rounds.sum() * twins, 1.0)
    start = SWAPS + pairs + 3 * len(beta) * twins + twins
    blocks = notes[:, start:].reshape(len(notes), BLOCKS, pairs, 2)
    many = min(4, max(2, _PARTS // len(notes)))
    parts = [
        _parts(own_blocks, many, int(row[ROUNDS]), int(row[LENGTH]), warmup, twins)
        for row, own_blocks in zip(notes, blocks, strict=True)
    ]
    log_z, error, degrees = _log_z([some for some in parts if some])
    return Ladder(
        levels=tuple(beta.tolist()),
        swap_rates=tuple(np.clip(chances, 0.0, 1.0).tolist()),
        barrier=float((1.0 - chances).sum()),
        rounds=int(rounds.sum()),
        round_trips=int(notes[:, TRIPS].sum()),
        log_z=None if log_z is None else first_log_z + log_z,
        log_z_error=error,
        log_z_degrees=degrees,
    )


def check_notes(notes: NDArray[np.float64], levels: int, twins: int) -> None:
    """Refuse notes that no ladder has: some of them are places in memory."""
    begun = notes[notes.any(axis=1)]
    rounds, trips, length = (begun[:, k] for k in (ROUNDS, TRIPS, LENGTH))
    first, slots = SWAPS + levels - 1, levels * twins
    flags, label = begun[:, first : first + slots], begun[:, first + slots : first + 2 * slots]
    keys = begun[:, [KEY_0, KEY_1]]
    right = (
        ((rounds >= 0) & (rounds <= BLOCKS * length) & (length >= 1) & (length <= 2.0**53)).all()
        and (np.floor(begun[:, :SWAPS]) == begun[:, :SWAPS]).all()
        and ((trips >= 0) & (trips <= 2.0**53)).all()
        and ((keys >= 0) & (keys < 2.0**32)).all()
        and np.isin(flags, (0.0, 1.0)).all()
        and np.isin(label, (0.0, 1.0, 2.0)).all()
    )
    if not right:
        raise ValueError("carried holds what no ladder notes")


def _parts(
    blocks: NDArray[np.float64], many: int, rounds: int, length: int, warmup: int, twins: int
) -> list[tuple[NDArray[np.float64], int]]:
    """A chain's blocks after the warm-up, in a few parts: sums' logarithms, and counts.

    Short parts depend on each other, and their spread is then too small. Where the warm-up reaches
    into the last block, that one is all there is.
    """
    last = -(-rounds // length)  # the block under way counts as far as it is
    dropped = max(warmup, math.ceil(_DROPPED * rounds))
    first = min(-(-dropped // length), last - 1)
    counts = np.diff(np.minimum(np.arange(last + 1) * length, rounds)) * twins
    found = []
    for some in np.array_split(np.arange(first, last), many) if last else ():
        if len(some):
            found.append((_log_sum(blocks[some]), int(counts[some].sum())))
    return found


def _log_sum(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the sum over the first axis."""
    top = logs.max(axis=0)
    total: NDArray[np.float64] = top + np.log(np.exp(logs - top).sum(axis=0))
    return np.where(top > EMPTY / 2, total, EMPTY)


Part = tuple[NDArray[np.float64], int]


def _log_z(chains: list[list[Part]]) -> tuple[float | None, float | None, int]:
    """Log Z(1) / Z(0), its standard error and the degrees of freedom of that.

    The error comes from how parts of chains differ. Where chains differ by more than their parts
    explain, it comes from how chains differ.
    """
    parts = [part for own in chains for part in own]
    if not parts:
        return None, None, 0
    value, error = _stepping_stones(parts)
    if value < EMPTY / 2:  # two temperatures were never seen to exchange
        return None, None, 0
    degrees = len(parts) - 1
    if len(chains) > 1 and error is not None and len(parts) > len(chains):
        whole = [
            (_log_sum(np.array([total for total, _ in own])), sum(count for _, count in own))
            for own in chains
        ]
        _, between = _stepping_stones(whole)
        limit = fisher(len(chains) - 1, degrees, 1 - _FALSE_ALARM)
        if between is not None and between**2 > limit * error**2:
            return value, between, len(chains) - 1
    return value, error, degrees


def _stepping_stones(
    parts: list[Part],
) -> tuple[float, float | None]:
    """Log Z(1) / Z(0), each step halved and taken from both sides, and a jackknife's error."""
    sums = np.array([total for total, _ in parts])
    counts = np.array([count for _, count in parts], dtype=np.float64)

    def estimate(chosen: NDArray[np.bool_]) -> float:
        means = _log_sum(sums[chosen]) - math.log(counts[chosen].sum())
        return float((means[:, 0] - means[:, 1]).sum())

    every = np.ones(len(parts), dtype=bool)
    if len(parts) == 1:
        return estimate(every), None
    left_out = _without_each(sums, counts)
    if left_out.min() < EMPTY / 2:  # without one part nothing is known of two temperatures
        return estimate(every), None
    spread = float(np.square(left_out - left_out.mean()).sum())
    return estimate(every), math.sqrt(spread * (len(parts) - 1) / len(parts))


def _without_each(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The estimates without each part: from the sums before it and those behind it."""
    before, behind = np.logaddexp.accumulate(sums), np.logaddexp.accumulate(sums[::-1])[::-1]
    none = np.full_like(sums[:1], EMPTY)
    rest = np.logaddexp(np.concatenate([none, before[:-1]]), np.concatenate([behind[1:], none]))
    rest = np.where(rest > EMPTY / 2, rest, EMPTY)
    means = rest - np.log(counts.sum() - counts)[:, None, None]
    found: NDArray[np.float64] = (means[..., 0] - means[..., 1]).sum(axis=1)
    return found
