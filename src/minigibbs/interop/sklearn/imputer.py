"""Imputation of missing cells by a graphical model of the columns."""

from __future__ import annotations

import warnings
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from minigibbs.errors import LearnError, TooLargeError
from minigibbs.graph.data import Data
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.many import infer_many
from minigibbs.interop.sklearn.reading import (
    BaseEstimator,
    Given,
    TransformerMixin,
    available_if,
    check_is_fitted,
    check_parameters,
    keys_of,
    random_of,
    read,
)
from minigibbs.learning.chains import Threads
from minigibbs.learning.placing import row_chains
from minigibbs.structure.api import learn_structure
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.frames import missing_in

_CHUNK = 2**22  # marginal probabilities that are computed at a time
_ROUNDING = 1e-9  # of a cumulative probability
_HEADER = 128  # bytes of an array without its content
_WARM, _SWEEPS = 20, 200  # sweeps of chains, if exact inference is too large


def _has_dense_cells(imputer: Any) -> bool:
    """Return whether an imputer was fitted to a table that is not sparse."""
    return not getattr(imputer, "sparse_", False)


@checked(LearnError, init=False)
class CategoricalImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill in missing cells of categorical tables, with probabilities.

    A graphical model of the columns is learned from all rows, including rows with missing cells.
    Each missing cell gets its distribution given the other cells of its row.

    Parameters
    ----------
    method : {"tree", "network", "pairwise"}, default "network"
        The model, as in `mg.learn_structure`.
    bins : int, default 10
        Number of quantile bins of numeric columns with more than 20 distinct numbers. A missing
        number becomes the median of its distribution: the median of the bin in which it is.
    pseudocount : float, default 5.0
        The total weight of the prior of a conditional table.
    max_categories : int, default 1000
        Maximum number of values of a column that is not numeric.
    max_time : str, float or None, default None
        Time limit for learning the structure, such as "60s".
    random_state : int, RandomState or None, default None
        Seed or generator of all random draws.

    Attributes
    ----------
    categories_ : list of arrays
        The values of each column; for a binned column, the medians of its bins.
    structure_ : Structure
        The learned structure.
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from minigibbs.sklearn import CategoricalImputer
    >>> rows = np.array([["sun", "dry"], ["rain", "wet"]] * 20 + [["rain", None]], dtype=object)
    >>> imputer = CategoricalImputer(random_state=0).fit(rows)
    >>> imputer.transform(rows)[-1].tolist()
    ['rain', 'wet']
    >>> bool(imputer.predict_proba(rows)[-1, imputer.slices_["x1"]].max() > 0.9)
    True
    """

    def __init__(
        self,
        method: str = "network",
        *,
        bins: int = 10,
        pseudocount: float = 5.0,
        max_categories: int = 1000,
        max_time: str | float | None = None,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.bins = bins
        self.pseudocount = pseudocount
        self.max_categories = max_categories
        self.max_time = max_time
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> CategoricalImputer:  # noqa: N803
        """Learn the model of a table.

        Parameters
        ----------
        X : frame, array or sparse matrix
            One row per case. None and NaN are missing.
        y : None, optional
            Not used.

        Returns
        -------
        CategoricalImputer
            The imputer itself.
        """
        check_parameters(self)
        given = read(self, X, reset=True, least=2)
        seed = int(random_of(self.random_state).randint(2**31 - 1))
        used = {name: one for name, one in given.columns.items() if not missing_in(one).all()}
        for name, column in used.items():
            self._check_categories(name, column)
        self.columns_ = list(used)
        self.sparse_ = sparse.issparse(X)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "column '.*' has")  # one value, or very many
            self.structure_ = (
                learn_structure(
                    used,
                    self.method,
                    bins=self.bins,
                    pseudocount=self.pseudocount,
                    max_time=self.max_time,
                    seed=seed,
                    progress=False,
                )
                if used
                else None
            )
        self.categories_ = self._read_categories(given)
        return self

    def _check_categories(self, name: str, column: NDArray[Any]) -> None:
        seen = column[~missing_in(column)].tolist()
        numeric = all(isinstance(one, int | float) and not isinstance(one, bool) for one in seen)
        count = len(set(seen))
        if not numeric and count > self.max_categories:
            raise LearnError(
                f"column {name!r} has {count:,} different values, more than max_categories="
                f"{self.max_categories:,}; drop it, or merge rare values"
            )

    def _read_categories(self, given: Given) -> list[NDArray[Any]]:
        """Return the values of each column, as entries of a table."""
        found = []
        for name, column in given.columns.items():
            if name not in self.columns_:
                found.append(np.empty(0, dtype=object))
                continue
            assert self.structure_ is not None
            codes = self.structure_.codes
            assert codes is not None
            reading = codes.readings[codes.domains.index(name)]
            if reading.cuts is None:
                entries = np.empty(len(reading.labels), dtype=object)
                entries[:] = reading.labels
            else:
                numbers = column[~missing_in(column)].astype(np.float64)
                bins = reading.cuts.codes(numbers)
                whole = np.median(numbers)
                entries = np.array(
                    [
                        np.median(numbers[bins == k]) if (bins == k).any() else whole
                        for k in range(len(reading.cuts))
                    ]
                )
                if all(isinstance(one, int) for one in column[~missing_in(column)].tolist()):
                    entries = np.round(entries).astype(np.int64)
            found.append(entries)
        return found

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Fill missing cells; return a table of the type of `X`.

        A cell gets its most probable value. In a binned column of numbers it gets the median of its
        distribution. A value that did not occur in `fit` is kept, and counts as missing where other
        cells of its row are filled.

        Parameters
        ----------
        X : frame, array or sparse matrix
            One row per case. None and NaN are missing.

        Returns
        -------
        frame, array or sparse matrix
            The rows without missing cells.
        """
        given, codes, missing = self._encoded(X)
        best: NDArray[np.int64] = np.zeros(codes.shape, dtype=np.int64)
        rows, binned = np.flatnonzero(missing.any(axis=1)), self._binned()
        for some, shares in self._marginals(codes[rows]):
            best[rows[some]] = np.stack(
                [
                    (np.cumsum(one, axis=1) >= 0.5 - _ROUNDING).argmax(axis=1)
                    if column in binned
                    else one.argmax(axis=1)
                    for column, one in enumerate(shares)
                ],
                axis=1,
            )
        return self._filled(given, best, missing)

    def _binned(self) -> set[int]:
        """Return the modeled columns that have bins."""
        codes = None if self.structure_ is None else self.structure_.codes
        if codes is None:
            return set()
        return {k for k, reading in enumerate(codes.readings) if reading.cuts is not None}

    @available_if(_has_dense_cells)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Compute the distribution of every cell.

        An estimator that was fitted to a sparse matrix does not have this method, since the result
        is dense.

        Parameters
        ----------
        X : frame, array or sparse matrix
            One row per case. None and NaN are missing.

        Returns
        -------
        ndarray
            [row, value] probabilities of the values of all columns; `slices_` maps a column to its
            part.
        """
        _, codes, _ = self._encoded(X)
        sizes = np.array([len(one) for one in self.categories_], dtype=np.int64)
        memory.require(
            8.0 * len(codes) * int(sizes.sum()), "the distributions of cells", "give fewer rows"
        )
        found = np.zeros((len(codes), int(sizes.sum())))
        begin = [self.slices_[name].start for name in self.columns_]
        for column, first in enumerate(begin):
            seen = np.flatnonzero(codes[:, column] != FREE)
            found[seen, first + codes[seen, column]] = 1.0
        rows = np.flatnonzero((codes == FREE).any(axis=1))
        for some, shares in self._marginals(codes[rows]):
            for name, share in zip(self.columns_, shares, strict=True):
                found[rows[some], self.slices_[name]] = share
        return found

    @property
    def slices_(self) -> dict[str, slice]:
        """The columns of `predict_proba` that belong to each column of the table."""
        ends = np.cumsum([0] + [len(one) for one in self.categories_]).tolist()
        return {
            name: slice(first, last)
            for name, first, last in zip(keys_of(self), ends[:-1], ends[1:], strict=True)
        }

    def sample(self, X: Any, n_samples: int = 5) -> list[Any]:  # noqa: N803
        """Draw completed tables for multiple imputation: missing cells given the others.

        Parameters
        ----------
        X : frame, array or sparse matrix
            The table.
        n_samples : int, default 5
            Number of completed tables, which are independent.

        Returns
        -------
        list
            Tables of the type of `X`.
        """
        if n_samples < 1:
            raise LearnError(f"n_samples must be at least 1, got {n_samples}")
        given, codes, missing = self._encoded(X)
        memory.require(
            (codes.nbytes + _HEADER) * float(n_samples), "the completed tables", "lower n_samples"
        )
        rng = np.random.default_rng(random_of(self.random_state).randint(2**31 - 1))
        rows = np.flatnonzero((codes == FREE).any(axis=1))
        found = []
        for _ in range(n_samples):
            drawn = codes.copy()
            if len(rows):
                drawn[rows] = self._drawn(codes[rows], rng)
            found.append(self._filled(given, drawn, missing))
        return found

    def _drawn(self, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return rows with missing cells drawn jointly, column by column given the earlier ones."""
        drawn = codes.copy()
        for column in np.flatnonzero((codes == FREE).any(axis=0)).tolist():
            rows = np.flatnonzero(drawn[:, column] == FREE)
            for some, shares in self._marginals(drawn[rows]):
                total = np.cumsum(shares[column], axis=1)
                point = rng.random(len(total))[:, None] * total[:, -1:]
                drawn[rows[some], column] = (total <= point).sum(axis=1)
        return drawn

    def _encoded(self, X: Any) -> tuple[Given, NDArray[np.int64], NDArray[np.bool_]]:  # noqa: N803
        """Return the table, its codes [row, modeled column], and whether cells are missing."""
        check_is_fitted(self)
        given = read(self, X, reset=False)
        if self.structure_ is None:
            return given, np.empty((len(given), 0), np.int64), np.empty((len(given), 0), np.bool_)
        used = {name: given.columns[name] for name in self.columns_}
        missing = np.stack([missing_in(column) for column in used.values()], axis=1)
        return given, self.structure_.encode(used), missing

    def _filled(self, given: Given, codes: NDArray[np.int64], missing: NDArray[np.bool_]) -> Any:
        place = dict(zip(keys_of(self), self.categories_, strict=True))
        cells = {}
        for column, name in enumerate(self.columns_):
            rows = np.flatnonzero(missing[:, column])
            if len(rows):
                cells[name] = (rows, place[name][codes[rows, column]])
        return given.with_cells(cells)

    def _marginals(self, codes: NDArray[np.int64]) -> Any:
        """Yield the distributions in chunks: (rows, one array [row, category] per column)."""
        if not len(codes):
            return
        assert self.structure_ is not None
        graph = self.structure_.graph
        plain = FactorGraph(graph.sizes, graph.factors)
        cuts = np.cumsum(graph.sizes)[:-1]
        kinds, back = np.unique(codes, axis=0, return_inverse=True)
        back = back.ravel()
        order = np.argsort(back, kind="stable")
        chunk = max(_CHUNK // int(graph.sizes.sum()), 1)
        for begin in range(0, len(kinds), chunk):
            some = kinds[begin : begin + chunk]
            shares = self._shares(plain, some)
            first = np.searchsorted(back[order], begin)
            last = np.searchsorted(back[order], begin + len(some))
            rows = order[first:last]
            yield rows, np.split(shares[back[rows] - begin], cuts, axis=1)

    def _shares(self, graph: FactorGraph, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return [row, sum of sizes] distributions, exact if possible, else from chains."""
        try:
            rows = np.where(codes == FREE, np.nan, codes)
            return infer_many(graph, rows, progress=False).flat
        except TooLargeError:
            return _sampled(graph, codes, random_of(self.random_state))

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
        return np.array(keys_of(self), dtype=object)


def _sampled(graph: FactorGraph, codes: NDArray[np.int64], random: Any) -> NDArray[np.float64]:
    """Return the distributions of `_shares`, estimated by Gibbs chains, one per row."""
    seen = (codes != FREE).astype(np.uint8)
    states = np.where(seen != 0, codes, 0).astype(graph.state_type)
    data = Data(states, seen, np.ones(len(codes)))
    first = np.cumsum(graph.sizes, dtype=np.int64) - graph.sizes
    found = np.zeros((len(codes), int(graph.sizes.sum())))
    rows = np.arange(len(codes))[:, None]
    with closing(Threads(None)) as pool:
        chains = row_chains(graph, data, int(random.randint(2**31 - 1)), pool)
        chains.set_weights(graph.frame.flat(graph.factors))
        chains.sweep(_WARM)
        for _ in range(_SWEEPS):
            chains.sweep(1)
            found[rows, first + chains.states().astype(np.int64)] += 1.0 / _SWEEPS
    return found
