"""What `mg.infer_many` gives: exact marginals and log Z of many evidence sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.domains import Domains
from minigibbs.system.boundary import checked


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Answers:
    """The result of `mg.infer_many`.

    Attributes
    ----------
    domains : Domains
        Sizes, names and labels of the variables.
    log_z : ndarray
        [row] log Z given each row; -inf for a row of probability 0.
    log_probability : ndarray
        [row] logarithm of the probability of the evidence of each row.
    seconds : float
        Time of the computation.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"])
    >>> answers = mg.infer_many(graph, {"a": [0, 1, None]})
    >>> answers.marginal("b").round(3)
    array([[0.731, 0.269],
           [0.269, 0.731],
           [0.5  , 0.5  ]])
    """

    domains: Domains
    flat: NDArray[np.float64] = field(repr=False)  # [row, sum of sizes] NaN for impossible rows
    log_z: NDArray[np.float64] = field(repr=False)
    log_probability: NDArray[np.float64] = field(repr=False)
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.log_z)

    def marginal(self, variable: int | str) -> NDArray[np.float64]:
        """Return the marginals of one variable.

        Parameters
        ----------
        variable : int or str
            The variable, by number or name.

        Returns
        -------
        ndarray
            [row, value] probabilities.
        """
        number = self.domains.index(variable)
        first = int(self.domains.sizes[:number].sum(dtype=np.int64))
        return self.flat[:, first : first + int(self.domains.sizes[number])]

    def to_pandas(self) -> Any:
        """Convert the marginals to a pandas frame.

        Returns
        -------
        pandas.DataFrame
            One row per row of evidence, one column per variable and value.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        from minigibbs.system.optional import optional

        pandas = optional("pandas", "pandas")
        columns = pandas.MultiIndex.from_tuples(list(self._columns()), names=["variable", "value"])
        return pandas.DataFrame(self.flat, columns=columns)

    def _columns(self) -> Iterator[tuple[str, Any]]:
        for number in range(len(self.domains)):
            for value in self.domains.values(number):
                yield self.domains.name(number), value
