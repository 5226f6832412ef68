"""Rounds of a search between two checks of the clock."""

from __future__ import annotations

ROUNDS = "rounds"  # end of a search that completed all rounds
_SEGMENT = 0.2  # target time between two checks of the clock, in seconds
_GROWTH = 8  # largest ratio of the lengths of consecutive segments


def next_rounds(pace: float, before: int, left: float, rest: int | None) -> int:
    """Return the number of rounds of the next segment; 0 if the search is complete.

    Parameters
    ----------
    pace : float
        Measured seconds per round.
    before : int
        Rounds of the last segment.
    left : float
        Rounds that fit into the time that is left.
    rest : int or None
        Rounds that are left of a given number; None if the time alone ends the search.

    Examples
    --------
    >>> next_rounds(0.001, 1, 1e6, None), next_rounds(0.001, 100, 1e6, 30)
    (8, 30)
    """
    fit = max(1, int(min(_SEGMENT / pace, left, _GROWTH * before)))
    return fit if rest is None else min(fit, rest)
