"""Result of `mg.infer_many`: exact marginals and log Z for many sets of evidence."""

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
        [row] log Z given the evidence of each row; -inf for a row of probability 0.
    log_probability : ndarray
        [row] logarithm of the probability of each row's evidence.
    seconds : float
        Time of the computation, without compilation.

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

    def __str__(self) -> str:
        return "\n".join(f"{label:<12}{value}" for label, value in self.rows())

    def __repr__(self) -> str:
        return f"<Answers: {len(self):,} rows, {len(self.domains):,} variables>"

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the displayed table.

        Returns
        -------
        list of (str, str)
            Label and value.
        """
        known = self.log_probability[np.isfinite(self.log_probability)]
        mean = f"{known.mean():.6g}" if len(known) else "-"
        impossible = len(self) - len(known)
        return [
            ("rows", f"{len(self):,}"),
            ("variables", f"{len(self.domains):,}"),
            ("log p", f"{mean} (mean over rows, of their evidence)"),
            *(
                [("impossible", f"{impossible:,} rows, with NaN as marginals")]
                if impossible
                else []
            ),
            ("seconds", f"{self.seconds:.2f}"),
        ]

    def _repr_html_(self) -> str:
        """Return the result as HTML tables, for notebooks."""
        from minigibbs.results.notebook import answers_html

        return answers_html(self)

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
        columns = pandas.MultiIndex.from_tuples(list(self.columns()), names=["variable", "value"])
        return pandas.DataFrame(self.flat, columns=columns)

    def columns(self) -> Iterator[tuple[str, Any]]:
        """Yield the variable and the value of each column of `to_pandas()`."""
        for number in range(len(self.domains)):
            for value in self.domains.values(number):
                yield self.domains.name(number), value
