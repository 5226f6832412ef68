"""Common base of runs and answers: marginals by variable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.domains import Domains
from minigibbs.results.marginals import LEVEL, Marginal, Shares
from minigibbs.system.boundary import checked
from minigibbs.system.caller import warn

ONE_STATE = "one state"  # start of a run: all chains at one given state
OWN_SCAN = "own"  # scan of samplers that update all variables at once
CHROMATIC_SCAN = "chromatic"  # scan that updates one color at a time


def log_z_text(log_z: float | None, error: float | None) -> str:
    """Format log Z with its error.

    >>> log_z_text(12.5, 0.031), log_z_text(12.5, 0.0), log_z_text(None, None)
    ('12.5000 +- 0.0310', '12.500000', '-')
    >>> log_z_text(12.5, None)
    '12.5000, of unknown error'
    """
    if log_z is None:
        return "-"
    if error is None:
        return f"{log_z:.4f}, of unknown error"
    return f"{log_z:.4f} +- {error:.4f}" if error else f"{log_z:.6f}"


@checked(SampleError, init=False)
class Result(ABC):
    """Marginals by variable, with errors; the base class of `mg.Run` and `mg.Answer`."""

    domains: Domains

    @property
    @abstractmethod
    def shares(self) -> Shares:
        """The marginals as flat arrays; raises `SampleError` if there are none."""

    @cached_property
    def marginals(self) -> NDArray[np.float64]:
        """Marginals [variable, value], 0 beyond a variable's domain; pooled over chains."""
        return self.domains.square(self.shares.pooled)

    @cached_property
    def standard_errors(self) -> NDArray[np.float64]:
        """Standard errors of `marginals`: 0 if exact, NaN for a single chain."""
        return self.domains.square(self.shares.standard_errors)

    def marginal(self, variable: int | str) -> Marginal:
        """Return the marginal of one variable, with its labels or grid points.

        Parameters
        ----------
        variable : int or str
            The variable, by number or name.

        Returns
        -------
        Marginal
            `values` and `probability`.
        """
        number = self.domains.index(variable)
        row = self.marginals[number, : self.domains.sizes[number]]
        return Marginal(self.domains.values(number), row)

    def interval(self, variable: int | str, level: float = LEVEL) -> NDArray[np.float64]:
        """Compute confidence intervals for the marginal of one variable.

        If chains mix, an interval covers the true probability with probability `level`. Intervals
        of k chains are Student's with k - 1 degrees of freedom. They are NaN, with a warning, for a
        single chain.

        Parameters
        ----------
        variable : int or str
            The variable, by number or name.
        level : float, default 0.95
            Coverage of each interval.

        Returns
        -------
        ndarray
            [value, (low, high)].
        """
        number = self.domains.index(variable)
        ends = self.shares.intervals(level)
        if not self.shares.degrees > 0:
            warn(
                "the interval is NaN: a single chain has no standard error; sample with two "
                "chains or more"
            )
        return ends[self.shares.of_variable(number)]

    def to_pandas(self, wide: bool = False, shape: Sequence[int] | None = None) -> Any:
        """Convert the marginals to a pandas frame with one row per variable and value.

        Columns are `variable` (its name), `value` (its label, grid point or number), `probability`,
        `standard_error`, and `low` and `high`, the ends of a 95% interval. The last three are NaN
        for a single chain.

        Parameters
        ----------
        wide : bool, default False
            Whether to return one row per variable and one column per value, with probabilities
            only.
        shape : sequence of int, optional
            Sides of a lattice whose sites are the variables, row by row. `row` and `column`
            (`axis0`, `axis1`, ... if there are not two axes) then replace the names.

        Returns
        -------
        pandas.DataFrame
            The marginals.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        from minigibbs.results.tables import to_pandas

        return to_pandas(self, wide, shape)
