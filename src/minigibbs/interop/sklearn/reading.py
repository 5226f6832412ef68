"""Tables for estimators: frames, arrays and sparse matrices, and results of their type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from minigibbs.errors import LearnError, MissingDependencyError
from minigibbs.system import memory
from minigibbs.system.boundary import Check
from minigibbs.system.frames import as_column, column_of, has_columns, names_of, with_cells

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        OneToOneFeatureMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingDependencyError(
        'scikit-learn is not installed: pip install "minigibbs[sklearn]"'
    ) from None

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "Given",
    "OneToOneFeatureMixin",
    "TransformerMixin",
    "available_if",
    "check_is_fitted",
    "check_parameters",
    "keys_of",
    "numbers_of",
    "random_of",
    "read",
]  # the only module that imports scikit-learn

_CELL_BYTES = 24


@dataclass(frozen=True, eq=False)
class Given:
    """A given table as columns, and the conversion of results to its type."""

    original: Any
    columns: dict[str, NDArray[Any]]  # missing cells are None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def with_cells(self, cells: Mapping[str, tuple[NDArray[np.int64], Any]]) -> Any:
        """Return a copy of the given table with other entries in some rows of some columns."""
        if has_columns(self.original):
            names = dict(zip(self.columns, names_of(self.original), strict=True))
            changed = {names[key]: one for key, one in cells.items()}
            return with_cells(self.original, changed, "X", LearnError)
        whole = self.original.toarray() if sparse.issparse(self.original) else self.original
        whole = np.array(whole)
        for number, name in enumerate(self.columns):
            if name in cells:
                rows, entries = cells[name]
                whole = _able_to_hold(whole, entries)
                whole[rows, number] = entries
        if sparse.issparse(self.original):
            return type(self.original)(whole)
        return whole


def _able_to_hold(whole: NDArray[Any], entries: Any) -> NDArray[Any]:
    """Return an array as objects if its type cannot hold some entries, such as text among floats.

    >>> _able_to_hold(np.array([["Oslo"]]), ["Madrid"]).dtype, _able_to_hold(np.eye(2), [1]).dtype
    (dtype('O'), dtype('float64'))
    """
    made = np.asarray(list(entries))
    if made.dtype.kind in "OUS" and whole.dtype.kind != "O" and made.dtype != whole.dtype:
        return whole.astype(object)
    return whole


def read(estimator: Any, X: Any, reset: bool, least: int = 1) -> Given:  # noqa: N803
    """Return the columns of a table, after the checks of scikit-learn.

    Parameters
    ----------
    estimator
        The estimator whose `n_features_in_` and `feature_names_in_` are set or compared.
    X
        A frame, an array or a sparse matrix; cells of any type, missing ones included.
    reset
        Whether the estimator is being fitted to this table.
    least
        The minimum number of rows.
    """
    names = _names(X)
    if names is not None:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        keys = keys_of(estimator)
        columns = {
            key: column_of(X, name, "X", LearnError) for key, name in zip(keys, names, strict=True)
        }
        rows = len(next(iter(columns.values()), ()))
        if rows < least or not columns:
            raise ValueError(
                f"Found array with {rows} sample(s) (shape=({rows}, {len(names)})) while a minimum "
                f"of {least} is required by {type(estimator).__name__}."
            )
        return Given(X, columns)
    array = validate_data(
        estimator,
        _unmasked(X),
        reset=reset,
        dtype=None,
        accept_sparse=["csr", "csc"],
        ensure_all_finite="allow-nan",
        ensure_min_samples=least,
    )
    memory.require(
        _CELL_BYTES * float(np.prod(array.shape)),
        f"a table of shape {array.shape}",
        "give fewer rows",
    )
    dense = array.toarray() if sparse.issparse(array) else array
    keys = keys_of(estimator)
    columns = {
        key: as_column(dense[:, k], f"X, column {k}", LearnError) for k, key in enumerate(keys)
    }
    return Given(array, columns)


def _unmasked(X: Any) -> Any:  # noqa: N803
    """Return an array whose masked cells are NaN or None; scikit-learn would read through masks.

    >>> _unmasked(np.ma.array([1.5, 2.5], mask=[False, True])).tolist()
    [1.5, nan]
    """
    if not isinstance(X, np.ma.MaskedArray):
        return X
    return np.ma.filled(X, np.nan) if X.dtype.kind == "f" else np.ma.filled(X.astype(object), None)


def _names(X: Any) -> list[Any] | None:  # noqa: N803
    """Return the names of a frame's columns, or None for an array; refuse mappings."""
    if not has_columns(X):
        return None
    if isinstance(X, Mapping | np.ndarray):
        what = "a structured array" if isinstance(X, np.ndarray) else type(X).__name__
        raise LearnError(f"X must be a frame, an array or a sparse matrix, got {what}")
    return names_of(X, "X", LearnError)


def check_parameters(estimator: Any) -> None:
    """Compare the parameters of an estimator with the annotations of its constructor.

    scikit-learn requires `fit` to do this, not the constructor.
    """
    kind = type(estimator)
    Check(kind.__init__, LearnError, kind.__name__)((estimator,), estimator.get_params(deep=False))


def random_of(random_state: Any) -> np.random.RandomState:
    """Return the generator of a `random_state`.

    >>> random_of(3).randint(9)
    8
    """
    try:
        found: np.random.RandomState = check_random_state(random_state)
    except (ValueError, TypeError) as error:
        raise LearnError(f"random_state: {error}") from None
    return found


def numbers_of(estimator: Any, X: Any, reset: bool) -> NDArray[np.float64]:  # noqa: N803
    """A table of numbers, checked as scikit-learn checks tables."""
    _names(X)
    try:
        array = validate_data(
            estimator, _unmasked(X), reset=reset, accept_sparse="csr", dtype=np.float64
        )
    except (ValueError, TypeError):
        raise
    except Exception as error:  # of a library whose frame has no numbers
        raise LearnError(f"X: {error}") from None
    found: NDArray[np.float64] = array.toarray() if hasattr(array, "toarray") else array
    return found


def keys_of(estimator: Any) -> list[str]:
    """Return the columns of the table that was fitted: its names, or x0, x1 and so on."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{k}" for k in range(estimator.n_features_in_)] if names is None else list(names)
