"""Result of `mg.infer`: marginals and log Z with errors, and the method that computed them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs._version import __version__
from minigibbs.errors import GraphError, SampleError
from minigibbs.exact.bounds import Bounds, log_z_bounds
from minigibbs.exact.elimination import exact_draws
from minigibbs.exact.queries import (
    joint_marginal,
    log_evidence,
    log_likelihood,
    most_probable_values,
)
from minigibbs.graph.checks import as_array
from minigibbs.graph.domains import Domains, domains_from_header, domains_header
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.results.marginals import Known
from minigibbs.results.observed import Observations
from minigibbs.results.population import Population
from minigibbs.results.result import Result, log_z_text
from minigibbs.results.run import Run, check_model
from minigibbs.results.tables import write_as_named
from minigibbs.system import files
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Delayed
from minigibbs.system.text import printable

FORMAT = "minigibbs-answer-1"
_LARGEST_LOG = math.log(sys.float_info.max)


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Answer(Result):
    """The result of `mg.infer`: marginals and log Z with errors.

    Attributes
    ----------
    domains : Domains
        Sizes, names and labels of the variables.
    log_z : float or None
        The logarithm of the sum of exp(log-potential) over all states; None if unknown.
    log_z_error : float or None
        Standard error of `log_z`; 0 if exact.
    method : str
        "exact", or the name of the sampler.
    reason : str
        Reason for the choice of the method.
    seconds : float
        Time of the computation.
    warnings : tuple of str
        Possible problems with the answer.
    run : Run or None
        The run if the graph was sampled; not saved in files.
    graph : FactorGraph or None
        The model; not saved in files.
    population : Population or None
        Temperatures, families and replicas of population annealing; not saved in files.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"])
    >>> answer = mg.infer(graph.condition({"a": 1}))
    >>> answer.exact, answer.marginal("b").probability.round(4).tolist()
    (True, [0.2689, 0.7311])
    """

    domains: Domains
    known: Known = field(repr=False)  # marginals, flat: [sum of sizes]
    log_z: float | None
    log_z_error: float | None
    method: str
    reason: str
    seconds: float
    warnings: tuple[str, ...] = ()
    clamped: NDArray[np.bool_] | None = field(default=None, repr=False)
    model: dict[str, Any] | None = field(default=None, repr=False)
    run: Run | None = field(default=None, repr=False)
    graph: FactorGraph | None = field(default=None, repr=False)
    expected: Mapping[str, float] = field(default_factory=dict, repr=False)  # exact observables
    population: Population | None = field(default=None, repr=False)  # not saved in files either

    @property
    def shares(self) -> Known:
        """The marginals and their errors as flat arrays."""
        return self.known

    @property
    def observables(self) -> Observations:
        """The observables given with `observe=`, by name, as in `Run.observables`.

        For an exact answer, sums of functions of few variables are exact.
        """
        sampled = None if self.run is None else self.run.observed
        return Observations(sampled, self.expected)

    @property
    def exact(self) -> bool:
        """Whether the answer is exact up to rounding."""
        return self.method == "exact"

    @cached_property
    def bounds(self) -> Bounds:
        """Proven lower and upper bounds on log Z: `bounds.lower` and `bounds.upper`.

        For an exact answer both are log Z. For a sampled answer weighted mini-buckets are computed
        on first use, with tables of up to 65,536 entries, and log Z with some variables fixed at
        the values of the best state found; see `mg.theory.log_z_bounds`.

        Examples
        --------
        >>> import minigibbs as mg
        >>> torus = mg.models.ising_lattice(side=5, beta=0.2)
        >>> sampled = mg.infer(torus, "1s", exact=False, seed=1, progress=False)
        >>> sampled.bounds.lower < mg.infer(torus).log_z < sampled.bounds.upper
        True
        """
        if self.exact and self.log_z is not None:
            return Bounds(self.log_z, self.log_z)
        if self.graph is None:
            raise SampleError("files of answers do not keep the model: call mg.infer again")
        return log_z_bounds(self.graph, state=best_of(self.graph, self.run))

    def joint(self, *variables: int | str) -> NDArray[np.float64]:
        """Compute the exact joint marginal of some variables.

        Parameters
        ----------
        *variables : int or str
            The variables, by number or name.

        Returns
        -------
        ndarray
            One axis per variable.

        Raises
        ------
        SampleError
            If the answer is sampled, or was read from a file.
        TooLargeError
            If the treewidth with the variables joined is too large.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)], names=["a", "b", "c"])
        >>> mg.infer(graph).joint("a", "c").round(3)
        array([[0.303, 0.197],
               [0.197, 0.303]])
        """
        graph, numbers = self._model(), [self.domains.index(v) for v in variables]
        with Delayed("computing a joint distribution"):
            return joint_marginal(graph, numbers)

    def probability(self, evidence: Mapping[int | str, Any]) -> float:
        """Compute the exact probability that some variables have given values.

        Parameters
        ----------
        evidence : mapping
            Variables, by number or name, to values or labels.

        Returns
        -------
        float
            Their joint probability given the evidence of the graph.

        Raises
        ------
        SampleError
            If the answer is sampled, or was read from a file.
        TooLargeError
            If the treewidth with the variables joined is too large.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)])
        >>> round(mg.infer(graph).probability({0: 1, 2: 1}), 3)
        0.303
        """
        graph = self._model()
        assert self.log_z is not None, "exact answers have log Z"
        for variable, value in evidence.items():
            number = self.domains.index(variable)
            if graph.evidence[number] not in (FREE, self.domains.value(number, value)):
                return 0.0
        with Delayed("computing the probability of evidence"):
            return math.exp(log_evidence(graph, evidence, self.log_z))

    def likelihood(self, evidence: Mapping[int | str, ArrayLike]) -> float:
        """Compute the exact probability of soft evidence.

        Soft evidence gives a likelihood for each value of a variable: the probability of what was
        seen if the variable has that value. The result is the expected product of the likelihoods.
        The ratio of two results is a likelihood ratio, or Bayes factor.

        Parameters
        ----------
        evidence : mapping
            Variables, by number or name, to arrays with one likelihood per value.

        Returns
        -------
        float
            The probability given the evidence of the graph.

        Raises
        ------
        SampleError
            If a likelihood is negative or not finite, or the answer is sampled or was read from a
            file.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)])
        >>> answer = mg.infer(graph)
        >>> round(answer.likelihood({0: [0.1, 0.8], 2: [0.3, 0.9]}), 4)
        0.2924
        """
        graph, logs = self._model(), dict[int, NDArray[np.float64]]()
        assert self.log_z is not None, "exact answers have log Z"
        for variable, values in evidence.items():
            number = self.domains.index(variable)
            if number in logs:
                raise SampleError(f"{self.domains.describe(number)} has soft evidence twice")
            size, rule = int(graph.sizes[number]), f"{self.domains.describe(number)}: likelihoods"
            given = as_array(values, "iufb", f"{rule} must be numbers", SampleError).astype(float)
            if given.shape != (size,) or not np.isfinite(given).all() or (given < 0).any():
                raise SampleError(
                    f"{self.domains.describe(number)} needs {size} likelihoods of at least 0, one "
                    f"per value; got {given!r}"
                )
            with np.errstate(divide="ignore"):
                logs[number] = np.log(given)
        with Delayed("computing the likelihood of soft evidence"):
            found = log_likelihood(graph, logs, self.log_z)
        if found > _LARGEST_LOG:
            raise SampleError(
                f"the likelihood is e^{found:.4g}, too large for a number; give smaller ones, of "
                "which only ratios matter"
            )
        return math.exp(found)

    def most_probable(self, *variables: int | str) -> tuple[dict[int | str, Any], float]:
        """Find the most probable joint value of some variables (marginal MAP).

        All other variables are summed out, and the table that is left is maximized by elimination.
        There may be many variables if the graph without the others has a low treewidth.

        Parameters
        ----------
        *variables : int or str
            The variables, by number or name. Without any, all variables: the most probable
            explanation.

        Returns
        -------
        values : dict
            The label or number of each variable's value.
        probability : float
            Their joint probability.

        Raises
        ------
        SampleError
            If the answer is sampled, or was read from a file.
        TooLargeError
            If the treewidth is too large where the other variables are eliminated first.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.FactorGraph([2] * 2, [mg.Unary([0], [[0.0, 1.0]])], names=["a", "b"])
        >>> values, probability = mg.infer(graph).most_probable("a")
        >>> values, round(probability, 4)
        ({'a': 1}, 0.7311)
        >>> mg.infer(graph).most_probable()[0]
        {'a': 1, 'b': 0}
        """
        graph, numbers = self._model(), [self.domains.index(v) for v in variables]
        assert self.log_z is not None, "exact answers have log Z"
        if not variables:
            variables = tuple(map(self.domains.name, range(len(graph))))
            numbers = list(range(len(graph)))
        with Delayed("finding the most probable values"):
            found, weight = most_probable_values(graph, numbers)
        warn_of_rounding(graph, self.log_z)
        values = {
            variable: self.domains.values(number)[place]
            for variable, number, place in zip(variables, numbers, found, strict=True)
        }
        return values, math.exp(min(weight - self.log_z, 0.0))

    def draws(
        self,
        count: int,
        seed: int | None = None,
        evidence: Mapping[int | str, Any] | None = None,
    ) -> NDArray[np.unsignedinteger]:
        """Draw independent states of all variables given the evidence.

        Parameters
        ----------
        count : int
            Number of draws.
        seed : int, optional
            Fixes the draws.
        evidence : mapping, optional
            Variables, by number or name, to values or labels on which the draws are conditioned, in
            addition to the evidence of the graph.

        Returns
        -------
        ndarray of int
            [draw, variable] indices of values.

        Raises
        ------
        SampleError
            If the answer is sampled, or was read from a file.
        GraphError
            If the evidence has probability 0.

        Examples
        --------
        >>> import minigibbs as mg
        >>> chain = mg.FactorGraph([2] * 9, [mg.Ising(range(8), range(1, 9), 0.5)])
        >>> mg.infer(chain.condition({0: 1})).draws(5, seed=1)[:, 0]
        array([1, 1, 1, 1, 1], dtype=uint8)
        >>> mg.infer(chain).draws(2, seed=1, evidence={0: 1, 8: 0})[:, [0, 8]].tolist()
        [[1, 0], [1, 0]]
        """
        graph = self._model()
        for variable, value in (evidence or {}).items():
            number = self.domains.index(variable)
            if graph.evidence[number] not in (FREE, self.domains.value(number, value)):
                raise GraphError(f"{self.domains.describe(number)} is observed with another value")
        with Delayed(f"drawing {count:,} states"):
            return exact_draws(graph.condition(evidence or {}), count, seed, progress=False)

    def _model(self) -> FactorGraph:
        """Return the graph of an exact answer."""
        if not self.exact:
            raise SampleError(
                f"this answer was sampled ({self.method}), and such questions need an exact one: "
                "use mg.sample with observe=mg.observables.JointEvent({...}), or record draws"
            )
        if self.graph is None:
            raise SampleError("files of answers do not keep the model: call mg.infer again")
        return self.graph

    def _repr_html_(self) -> str:
        """Return the result as HTML tables, for notebooks."""
        from minigibbs.results.notebook import answer_html

        return answer_html(self)

    def __str__(self) -> str:
        return "\n".join(f"{label:<12}{value}" for label, value in self.rows()) + "".join(
            f"\nwarning: {warning}" for warning in self.warnings
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the displayed table: label and value."""
        rows = [
            ("method", printable(self.method)),
            ("because", printable(self.reason)),
            ("seconds", f"{self.seconds:.2f}"),
        ]
        if self.log_z is not None:
            rows.append(("log Z", self.log_z_text()))
        if not self.exact:
            largest = float(np.nanmax(self.shares.standard_errors, initial=0.0))
            rows.append(("error", f"{largest:.4f} (largest standard error of a marginal)"))
        return rows

    def log_z_text(self) -> str:
        """Return log Z with its error as text."""
        return log_z_text(self.log_z, self.log_z_error)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the marginals as numbers and text for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return {
            "method": self.method,
            "reason": self.reason,
            "exact": self.exact,
            "seconds": self.seconds,
            "log_z": self.log_z,
            "log_z_error": self.log_z_error,
            "warnings": list(self.warnings),
        }

    def report(
        self,
        path: str | os.PathLike[str],
        title: str = "An answer",
        shape: Sequence[int] | None = None,
    ) -> None:
        """Write a standalone HTML page with the answer.

        Parameters
        ----------
        path : str or path
            The file to write.
        title : str, default "An answer"
            Title of the page.
        shape : sequence of int, optional
            Rows and columns of a lattice whose sites are the variables, to draw marginals as a map.
        """
        from minigibbs.results.report import write_answer

        write_answer(self, path, title, shape)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the answer to a file; `mg.load` reads it.

        The file does not contain the run. Use `answer.run.save` for that.

        Parameters
        ----------
        path : str or path
            The file. A name that ends in .csv writes a table of the marginals instead.

        Raises
        ------
        SampleError
            If the name has the ending of another format, such as .html or .json.
        """
        if write_as_named(self, path):
            return
        freedom = self.shares.freedom
        header = {
            "format": FORMAT,
            "version": __version__,
            "freedom": None if math.isinf(freedom) else freedom,
            "model": self.model,
            "expected": dict(self.expected),
            **self.to_dict(),
            **domains_header(self.domains),
        }
        del header["exact"]
        arrays: dict[str, NDArray[Any]] = {
            "sizes": self.domains.sizes,
            "probability": self.shares.given,
            "error": self.shares.errors,
        }
        if self.clamped is not None:
            arrays["clamped"] = self.clamped
        files.write_arrays(path, header, arrays)


def best_of(graph: FactorGraph, run: Run | None) -> NDArray[Any] | None:
    """Return the most probable of the last states of a run, or None."""
    if run is None or run.state is None:
        return None
    states = run.state.astype(np.int64)
    return states[int(np.argmax([graph.log_potential(state) for state in states]))]  # type: ignore[no-any-return]


def load(path: str | os.PathLike[str]) -> Answer:
    """Read an answer written by `Answer.save`."""
    header, arrays = files.read_arrays(path, FORMAT)
    with files.refusing_damage(path):
        domains = domains_from_header(header, arrays["sizes"])
        freedom = math.inf if header["freedom"] is None else float(header["freedom"])
        answer = Answer(
            domains,
            Known(arrays["probability"], arrays["error"], domains.sizes, freedom),
            header["log_z"],
            header["log_z_error"],
            str(header["method"]),
            str(header["reason"]),
            float(header["seconds"]),
            tuple(map(str, header["warnings"])),
            arrays.get("clamped"),
            header["model"],
            expected={str(k): float(v) for k, v in header.get("expected", {}).items()},
        )
        _check(answer)
    return answer


def _check(answer: Answer) -> None:
    """Raise `ValueError` if the parts of an answer are inconsistent."""
    values = int(answer.domains.sizes.sum(dtype=np.int64))
    for name, array in (("probability", answer.shares.given), ("error", answer.shares.errors)):
        if array.shape != (values,) or array.dtype != np.float64:
            raise ValueError(f"{name}: expected {values} doubles, got {array.shape} {array.dtype}")
        if (array < 0).any() or (name == "probability" and not (array <= 1 + 1e-9).all()):
            raise ValueError(f"{name}: has entries outside its range")
    clamped = answer.clamped
    if clamped is not None and (clamped.shape != (len(answer.domains),) or clamped.dtype != bool):
        raise ValueError("clamped: expected a mark for each variable")
    for name in ("log_z", "log_z_error"):
        value = getattr(answer, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name}: expected a number, got {value!r}")
    if not answer.seconds >= 0 or answer.shares.freedom <= 0:
        raise ValueError("seconds and freedom must be positive")
    check_model(answer.model)
