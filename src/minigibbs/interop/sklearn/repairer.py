"""The transformer `TableRepairer`: `mg.repair` for scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.interop.sklearn.reading import (
    BaseEstimator,
    Given,
    TransformerMixin,
    check_is_fitted,
    check_parameters,
    read,
)
from minigibbs.repairing.api import answered, fitted, read_labels
from minigibbs.repairing.result import RepairedTable
from minigibbs.repairing.table import from_columns
from minigibbs.system.boundary import checked
from minigibbs.system.frames import has_columns, names_of


@checked(LearnError, init=False)
class TableRepairer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Find cells that are probably wrong, and correct them.

    Parameters
    ----------
    constraints : str or list of str, optional
        Rules, as in `mg.repair`.
    labels : mapping, optional
        True values of some rows of the fitted table, as in `mg.repair`. The columns of an array are
        called x0, x1 and so on.
    automatic : bool, default True
        Whether to find and use columns that predict other columns.
    certainty : float, default 0.5
        A cell is changed if another value has at least this probability.
    missing : sequence, default ("",)
        Entries that mean a missing cell, in addition to None and NaN.
    random_state : int, default 0
        Seed that selects the cells from which weights are learned.

    Attributes
    ----------
    model_ : object
        The learned counts and weights.
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from minigibbs.sklearn import TableRepairer
    >>> rows = np.array([["1", "Rome"], ["2", "Oslo"]] * 20, dtype=object)
    >>> rows[4, 1] = "Romx"
    >>> TableRepairer().fit_transform(rows)[4].tolist()
    ['1', 'Rome']
    """

    def __init__(
        self,
        constraints: str | Sequence[str] | None = None,
        *,
        labels: Mapping[int, Mapping[str, Any]] | None = None,
        automatic: bool = True,
        certainty: float = 0.5,
        missing: Sequence[Any] = ("",),
        random_state: int = 0,
    ) -> None:
        self.constraints = constraints
        self.labels = labels
        self.automatic = automatic
        self.certainty = certainty
        self.missing = missing
        self.random_state = random_state

    def _seed(self) -> int:
        if self.random_state < 0:
            raise LearnError(f"random_state must be at least 0, got {self.random_state}")
        return self.random_state

    def fit(self, X: Any, y: Any = None) -> TableRepairer:  # noqa: N803
        """Learn the weights of a table.

        Parameters
        ----------
        X : frame, array or sparse matrix
            The table with errors.
        y : None, optional
            Not used.

        Returns
        -------
        TableRepairer
            The repairer itself.
        """
        check_parameters(self)
        if not 0.0 < self.certainty <= 1.0:
            raise LearnError(f"certainty must be above 0 and at most 1, got {self.certainty}")
        given = read(self, X, reset=True)
        table, known = read_labels(self._table(given), self.labels)
        self.table_, self.known_ = table, known
        self.model_ = fitted(table, self.constraints, known, None, self.automatic, self._seed())
        return self

    def _table(self, given: Given) -> Any:
        columns = list(given.columns.values())
        return from_columns(list(given.columns), columns, "X", self.missing)

    def repairs(self, X: Any) -> RepairedTable:  # noqa: N803
        """Repair a table: find the changed cells, with old and new values and probabilities.

        Parameters
        ----------
        X : frame, array or sparse matrix
            The fitted table, or other rows with the same columns.

        Returns
        -------
        RepairedTable
            The changed cells and their probabilities.
        """
        check_is_fitted(self)
        given = read(self, X, reset=False)
        table = self.table_.read(given.columns, "X")
        same = table.codes.shape == self.table_.codes.shape
        known = self.known_ if same and (table.codes == self.table_.codes).all() else {}
        named = has_columns(X) and list(names_of(X)) == list(given.columns)
        frame = X if named else given.columns
        return answered(self.model_, frame, table, known, self.certainty)

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the repaired table, of the type of `X`.

        Parameters
        ----------
        X : frame or array
            The table.

        Returns
        -------
        frame or array
            The repaired table, of the type of `X`.
        """
        check_is_fitted(self)
        found = self.repairs(X)
        cells = {}
        for column, name in enumerate(found.table.names):
            rows = np.flatnonzero(found.codes[:, column] != found.table.codes[:, column])
            if len(rows):
                cells[name] = (rows, found.entries(column, found.codes[rows, column]))
        return read(self, X, reset=False).with_cells(cells)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns."""
        check_is_fitted(self)
        return np.array(self.table_.names, dtype=object)
