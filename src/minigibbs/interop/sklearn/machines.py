"""Boltzmann machines, with and without hidden units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from scipy.special import expit, log1p

from minigibbs.errors import LearnError, TooLargeError
from minigibbs.exact.elimination import exact_draws
from minigibbs.graph.factors import Ising, Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.infer import infer
from minigibbs.interop.sklearn.reading import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    check_is_fitted,
    check_parameters,
    numbers_of,
    random_of,
)
from minigibbs.learning.api import learn
from minigibbs.results.answer import Answer
from minigibbs.results.fit import Fit
from minigibbs.running.api import sample
from minigibbs.running.request import Record
from minigibbs.samplers import Tempering
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_WARM = 200  # sweeps before draws
_CHAINS = 8
_THIN = 10  # sweeps between draws
_RATE = 0.01  # learning rate with weighted and with tempered chains
_AWAY = 0.1  # difference of a mean of the model at which weighted chains have missed its modes
_LADDERS = 64  # tempered chains that learn from there
_NOISE = 0.05  # standard deviation of the initial couplings
_PAIR_BYTES = 1000  # per pair of units, at least
_CELL_BYTES = 24  # per cell of the standardized rows, and their decomposition
_WIDE = 2000  # columns above which only the largest principal components are computed


@checked(LearnError, init=False)
class _Machine(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of both machines: graphs of spins with fields h and couplings J."""

    steps: int | None
    method: str
    l2: float
    threshold: float
    log_z_time: str | float
    random_state: Any
    fit_: Fit
    graph_: FactorGraph

    def _binary(self, X: Any, reset: bool) -> NDArray[np.int8]:  # noqa: N803
        if reset:
            check_parameters(self)
        rows: NDArray[np.int8] = (numbers_of(self, X, reset) > self.threshold).astype(np.int8)
        return rows

    def _fit(self, graph: FactorGraph, rows: NDArray[np.int8]) -> None:
        """Learn the parameters of a graph whose first variables are the columns."""
        seed = int(random_of(self.random_state).randint(2**31 - 1))
        weighted: dict[str, Any] = {"rate": _RATE, "reweight": True}
        answer = self._learned(graph, rows, seed, weighted if self.method == "pcd" else {})
        ones = answer.shares.pooled.reshape(-1, 2)[: rows.shape[1], 1]
        if self.method == "pcd" and np.abs(ones - rows.mean(axis=0)).max() > _AWAY:
            tempered = {"rate": _RATE, "sampler": Tempering(), "chains": _LADDERS}
            before = self.fit_, self.graph_
            try:
                answer = self._learned(self.fit_.graph, rows, seed, tempered)
            except TooLargeError:
                self.fit_, self.graph_ = before
        self.log_z_ = float("nan") if answer.log_z is None else float(answer.log_z)
        error = answer.log_z_error
        self.log_z_error_ = float("nan") if error is None else float(error)

    def _learned(
        self, graph: FactorGraph, rows: NDArray[np.int8], seed: int, options: dict[str, Any]
    ) -> Answer:
        """Learn the parameters of a graph, and infer the marginals and log Z of the result."""
        fit = learn(
            graph,
            rows,
            self.method,
            columns=list(range(rows.shape[1])),
            steps=self.steps,
            l2=self.l2,
            errors=False,
            seed=seed,
            progress=False,
            **options,
        )
        table = fit.parameters["field"]  # a constant per unit changes log Z alone
        centered = table - table.mean(axis=1, keepdims=True)
        self.fit_, self.graph_ = fit, fit.graph.with_parameters({"field": centered})
        return infer(self.graph_, self.log_z_time, seed=seed, progress=False)

    def log_likelihood(self, X: Any) -> tuple[float, float]:  # noqa: N803
        """Compute the mean log-likelihood of rows, and the standard error of log Z.

        The error does not include the spread of the rows, which adds
        `score_samples(X).std() / sqrt(len(X))` for the mean of the population.

        Parameters
        ----------
        X : array-like
            One row per case.

        Returns
        -------
        (float, float)
            The mean, and the standard error that log Z adds; 0 if log Z is exact.
        """
        check_is_fitted(self)
        rows = self._binary(X, reset=False)
        return float(self._free(rows).mean() - self.log_z_), self.log_z_error_

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Compute the mean log-likelihood of rows; `log_likelihood` also returns its error.

        Parameters
        ----------
        X : array-like
            One row per case.
        y : None, optional
            Not used.

        Returns
        -------
        float
            The mean log-likelihood per row.
        """
        return self.log_likelihood(X)[0]

    def score_samples(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Compute the log-likelihood of each row.

        Parameters
        ----------
        X : array-like
            One row per case.

        Returns
        -------
        ndarray
            [row] log-likelihoods.
        """
        check_is_fitted(self)
        found: NDArray[np.float64] = self._free(self._binary(X, reset=False)) - self.log_z_
        return found

    def _free(self, rows: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the logarithm of the sum of exp(log-potential) over hidden units."""
        raise NotImplementedError

    def sample(self, n_samples: int = 1, random_state: Any = None) -> NDArray[np.int8]:
        """Draw rows from the model.

        Draws are independent if exact sampling is possible. Otherwise they are states of tempered
        chains, 10 sweeps apart.

        Parameters
        ----------
        n_samples : int, default 1
            Number of rows.
        random_state : int, RandomState or None, optional
            Seed or generator of the draws.

        Returns
        -------
        ndarray of int
            [sample, column] cells of 0 and 1.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise LearnError(f"n_samples must be at least 1, got {n_samples}")
        random = self.random_state if random_state is None else random_state
        seed = int(random_of(random).randint(2**31 - 1))
        try:
            drawn = exact_draws(self.graph_, n_samples, seed, progress=False)
        except TooLargeError:
            each = -(-n_samples // _CHAINS)
            run = sample(
                self.graph_,
                Tempering(),
                chains=_CHAINS,
                sweeps=_THIN * each,
                warmup=_WARM,
                record=Record("draws", thin=_THIN),
                seed=seed,
                progress=False,
            )
            states = np.asarray(run.draws)
            drawn = states.transpose(1, 0, 2).reshape(-1, states.shape[2])[:n_samples]
        return drawn[:, : self.n_features_in_].astype(np.int8)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@checked(LearnError, init=False)
class BoltzmannMachine(OneToOneFeatureMixin, _Machine):  # type: ignore[misc]
    """A pairwise model of all pairs of binary columns.

    log p(s) = sum of h_i s_i + sum of J_ij s_i s_j - log Z, where s_i is +1 if the cell is above
    the threshold and -1 otherwise.

    Parameters
    ----------
    method : {"pcd", "cd", "pseudo", "exact"}, default "pcd"
        The learning method, as in `mg.learn`.
    steps : int, optional
        Maximum number of gradient steps. By default as in `mg.learn`: up to 4,000 steps, until the
        parameters have converged.
    l2 : float, default 0.001
        Coefficient of the penalty l2 / 2 * value**2.
    threshold : float, default 0.5
        Cells above it are 1, others 0.
    log_z_time : str or float, default "10s"
        Time limit for log Z, if it is sampled.
    random_state : int, RandomState or None, default None
        Seed or generator of all random draws.

    Attributes
    ----------
    coupling_ : array
        [column, column] J, symmetric, 0 on the diagonal.
    field_ : array
        [column] h.
    log_z_, log_z_error_ : float
        Log Z of these couplings and fields, and of `graph_`; its standard error is 0 if log Z is
        exact.
    graph_ : FactorGraph
        The model.

    Examples
    --------
    >>> import numpy as np
    >>> from minigibbs.sklearn import BoltzmannMachine
    >>> rows = np.repeat([[0, 0], [1, 1], [0, 1]], [40, 40, 20], axis=0)
    >>> machine = BoltzmannMachine(method="exact").fit(rows)
    >>> bool(machine.coupling_[0, 1] > 0), machine.log_likelihood(rows)[1]
    (True, 0.0)
    """

    def __init__(
        self,
        *,
        method: str = "pcd",
        steps: int | None = None,
        l2: float = 1e-3,
        threshold: float = 0.5,
        log_z_time: str | float = "10s",
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.steps = steps
        self.l2 = l2
        self.threshold = threshold
        self.log_z_time = log_z_time
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> BoltzmannMachine:  # noqa: N803
        """Learn fields and couplings.

        Parameters
        ----------
        X : array or sparse matrix
            One row per case.
        y : None, optional
            Not used.

        Returns
        -------
        BoltzmannMachine
            The machine itself.
        """
        rows = self._binary(X, reset=True)
        count = rows.shape[1]
        pairs = count * (count - 1) // 2
        memory.require(
            _PAIR_BYTES * float(pairs),
            f"a machine with {count:,} columns and {pairs:,} couplings",
            "give fewer columns, or learn a RestrictedBoltzmannMachine",
        )
        i, j = np.triu_indices(count, 1)
        factors: list[Any] = [Unary(np.arange(count), np.zeros((count, 2)), name="field")]
        if len(i):
            factors.append(Ising(i, j, 0.0, name="coupling"))
        self._fit(FactorGraph([2] * count, factors), rows)
        table = self.fit_.parameters["field"]
        self.field_ = (table[:, 1] - table[:, 0]) / 2
        self.coupling_ = np.zeros((count, count))
        if len(i):
            self.coupling_[i, j] = self.coupling_[j, i] = self.fit_.parameters["coupling"]
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Compute the probability that each cell is 1, given the other cells of its row.

        Parameters
        ----------
        X : array-like
            One row per case.

        Returns
        -------
        ndarray
            [row, column] probabilities.
        """
        check_is_fitted(self)
        spins = 2.0 * self._binary(X, reset=False) - 1.0
        found: NDArray[np.float64] = expit(2.0 * (spins @ self.coupling_ + self.field_))
        return found

    def _free(self, rows: NDArray[np.int8]) -> NDArray[np.float64]:
        spins = 2.0 * rows - 1.0
        pairs = 0.5 * np.einsum("ij,ij->i", spins @ self.coupling_, spins)
        found: NDArray[np.float64] = pairs + spins @ self.field_
        return found


@checked(LearnError, init=False)
class RestrictedBoltzmannMachine(ClassNamePrefixFeaturesOutMixin, _Machine):  # type: ignore[misc]
    """A model of binary columns that depend on each other through hidden units.

    log p(s, t) = sum of a_i s_i + sum of b_j t_j + sum of W_ji t_j s_i - log Z, where the spins s
    are +1 if a cell is above the threshold and -1 otherwise, and the hidden spins t are +1 or -1.

    Parameters
    ----------
    n_components : int, default 16
        The number of hidden units.
    method : {"pcd", "cd", "exact"}, default "pcd"
        The learning method, as in `mg.learn`.
    steps : int, optional
        Maximum number of gradient steps. By default as in `mg.learn`: up to 4,000 steps, until the
        parameters have converged.
    l2 : float, default 0.001
        Coefficient of the penalty l2 / 2 * value**2.
    threshold : float, default 0.5
        Cells above it are 1, others 0.
    log_z_time : str or float, default "10s"
        Time limit for log Z, if it is sampled.
    random_state : int, RandomState or None, default None
        Seed or generator of all random draws.

    Attributes
    ----------
    components_ : array
        [hidden, column] couplings W of spins.
    field_, hidden_field_ : array
        Fields a of columns and b of hidden units.
    log_z_, log_z_error_ : float
        Log Z of these couplings and fields, and of `graph_`; its standard error is 0 if log Z is
        exact.
    graph_ : FactorGraph
        The model: columns first, then hidden units.

    Examples
    --------
    >>> import numpy as np
    >>> from minigibbs.sklearn import RestrictedBoltzmannMachine
    >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 30, axis=0)
    >>> machine = RestrictedBoltzmannMachine(n_components=2, steps=200, random_state=0).fit(rows)
    >>> machine.transform(rows).shape, bool(machine.score(rows) > -3 * np.log(2))
    ((60, 2), True)
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        method: str = "pcd",
        steps: int | None = None,
        l2: float = 1e-3,
        threshold: float = 0.5,
        log_z_time: str | float = "10s",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.steps = steps
        self.l2 = l2
        self.threshold = threshold
        self.log_z_time = log_z_time
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RestrictedBoltzmannMachine:  # noqa: N803
        """Learn fields and couplings.

        Parameters
        ----------
        X : array or sparse matrix
            One row per case.
        y : None, optional
            Not used.

        Returns
        -------
        RestrictedBoltzmannMachine
            The machine itself.
        """
        rows = self._binary(X, reset=True)
        if self.n_components < 1:
            raise LearnError(f"n_components must be at least 1, got {self.n_components}")
        count, hidden = rows.shape[1], self.n_components
        memory.require(
            _PAIR_BYTES * count * float(hidden),
            f"a machine with {hidden:,} hidden units",
            "give a smaller n_components",
        )
        random = random_of(self.random_state)
        j, i = np.divmod(np.arange(count * hidden), count)
        share = np.clip(rows.mean(axis=0), 0.01, 0.99)
        start = _NOISE * random.standard_normal((hidden, count)) + _principal(rows, share, hidden)
        field = np.zeros((count + hidden, 2))
        field[:count, 1] = np.log(share / (1.0 - share))
        field[count:, 1] = -2.0 * (start @ (2.0 * share - 1.0))  # probability 1/2 at the mean
        units = Unary(np.arange(count + hidden), field, name="field")
        pairs = Ising(i, count + j, start.ravel(), name="coupling")
        self._fit(FactorGraph([2] * (count + hidden), [units, pairs]), rows)
        table = self.fit_.parameters["field"]
        fields = (table[:, 1] - table[:, 0]) / 2
        self.field_, self.hidden_field_ = fields[:count], fields[count:]
        self.components_ = self.fit_.parameters["coupling"].reshape(hidden, count)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Compute the probability that each hidden unit is 1.

        Parameters
        ----------
        X : array-like
            One row per case.

        Returns
        -------
        ndarray
            [row, hidden] probabilities.
        """
        check_is_fitted(self)
        found: NDArray[np.float64] = expit(2.0 * self._inputs(self._binary(X, reset=False)))
        return found

    def _inputs(self, rows: NDArray[np.int8]) -> NDArray[np.float64]:
        spins = 2.0 * rows - 1.0
        found: NDArray[np.float64] = spins @ self.components_.T + self.hidden_field_
        return found

    def _free(self, rows: NDArray[np.int8]) -> NDArray[np.float64]:
        inputs = np.abs(self._inputs(rows))
        hidden = inputs + log1p(np.exp(-2.0 * inputs))
        found: NDArray[np.float64] = hidden.sum(axis=1) + (2.0 * rows - 1.0) @ self.field_
        return found

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def _principal(
    rows: NDArray[np.int8], share: NDArray[np.float64], hidden: int
) -> NDArray[np.float64]:
    """Return [hidden, column] couplings to the principal directions of standardized columns.

    A Gaussian hidden unit of strength sqrt(1 - 1 / v) gives its direction the variance v.
    Directions get 0 if independent columns could have their variance (Marchenko-Pastur).
    """
    count, columns = rows.shape
    memory.require(
        _CELL_BYTES * float(count) * columns,
        f"the principal directions of {count:,} rows and {columns:,} columns",
        "give fewer rows or columns",
    )
    deviation = 2.0 * np.sqrt(share * (1.0 - share))  # of spins
    found = np.zeros((hidden, columns))
    standard = 2.0 * (rows - share) / deviation
    if columns > _WIDE and min(count, columns) > hidden:
        first = np.ones(min(count, columns))
        _, singular, across = svds(standard, k=hidden, v0=first, return_singular_vectors="vh")
        variance, direction = singular**2 / count, across.T
    else:
        variance, direction = np.linalg.eigh(standard.T @ standard / count)
    largest = variance[::-1][:hidden]
    some = largest[largest > (1.0 + np.sqrt(columns / count)) ** 2]
    strength = np.sqrt(1.0 - 1.0 / some)
    found[: len(some)] = (direction[:, ::-1][:, : len(some)] * strength).T / deviation
    return found
