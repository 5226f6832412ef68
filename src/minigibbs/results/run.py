"""Result of sampling: marginals, draws, energies and counters, with files and summaries."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact import CONNECTED, SPLIT, UNKNOWN
from minigibbs.graph.domains import Domains, domains_from_header, domains_header
from minigibbs.results.diagnostics import Judged, judge
from minigibbs.results.marginals import Marginals, mean_distance
from minigibbs.results.observed import (
    Observations,
    Observed,
    check_observed,
    decode_observed,
    encode_observed,
)
from minigibbs.results.result import Result
from minigibbs.results.tables import write_as_named
from minigibbs.results.tempered import (
    Temperatures,
    check_temperatures,
    decode_temperatures,
    encode_temperatures,
)
from minigibbs.samplers.tempering.account import Ladder
from minigibbs.system import files, memory
from minigibbs.system.boundary import checked

if TYPE_CHECKING:
    from minigibbs.results.summary import Summary

FORMAT = "minigibbs-run-3"
_BEFORE = ("minigibbs-run-1", "minigibbs-run-2")  # 0.1 and 0.2: energies have the opposite sign
FORMATS = (*_BEFORE, FORMAT)
_ARRAYS = (
    "clock",
    "counts",
    "visits",
    "early_counts",
    "early_visits",
    "draws",
    "energy",
    "error",
    "reference",
    "state",
    "clamped",
)
_FIELDS = {"draws": "kept_draws"}  # attributes whose names differ from those in files


@dataclass(frozen=True)
class Info:
    """Settings, counters and times of a run.

    Attributes
    ----------
    sampler : str
        Name of the sampler.
    chains : int
        Number of chains.
    updates : int
        Recorded updates of all chains.
    warmup : int
        Updates of all chains before recording began.
    scan : str
        Order of updates.
    thin : int
        Updates between two records.
    seed : int
        The seed of the run.
    seconds : float
        Time of sampling, without compilation.
    updates_per_second : float
        Updates per second, warm-up included.
    factor_evaluations : int
        Evaluated factors, warm-up included.
    minibatch_draws : int
        Drawn factors, warm-up included.
    acceptance : float
        Share of accepted proposals; 1 for samplers that never reject.
    changed : float
        Flip rate: share of updates that changed the value, warm-up included.
    interrupted : bool
        Whether Ctrl-C ended the run.
    version : str
        Version of minigibbs.
    backend : str
        "cpu", "cuda" or "mpi".
    ended : str
        Reason for the end: "length", "converged", "time", "interrupted", "terminated", "stopped",
        or "running" in a checkpoint.
    energy_thin : int
        Updates between two recorded energies; 0, in files before 0.3, means `thin`.
    sampler_call : str
        The expression that creates the sampler; empty in files before 0.3.
    lanes : int
        Number of synchronized chains for which factors were split; 0 if unknown.
    guarantee : str
        The proven bound on the slowdown relative to plain Gibbs, in words; empty if unknown.
    start : str
        First states: "random", "dispersed", "given", "one state" or "continued".

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> info = mg.sample(graph, sweeps=100, warmup=10, chains=2, seed=1, progress=False).info
    >>> info.updates, info.warmup, info.ended
    (3200, 320, 'length')
    """

    sampler: str
    chains: int
    updates: int
    warmup: int
    scan: str
    thin: int
    seed: int
    seconds: float
    updates_per_second: float
    factor_evaluations: int
    minibatch_draws: int
    acceptance: float
    changed: float
    interrupted: bool
    version: str
    backend: str = "cpu"
    ended: str = "length"
    energy_thin: int = 0
    sampler_call: str = ""
    lanes: int = 0
    guarantee: str = ""
    start: str = "random"


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Run(Result):
    """The result of `mg.sample`, `mg.sample_until` and `mg.resume`.

    Arrays by row have one row per chain. On a GPU a row is a group of chains, and draws and
    energies are those of its first chain.

    Attributes
    ----------
    domains : Domains
        Sizes, names and labels of the variables.
    info : Info
        Settings, counters and times of the run.
    clock : ndarray of int
        [row] recorded updates.
    counts : ndarray of int or None
        [row, sum of sizes] visits to each value; None if marginals were not recorded.
    kept_draws : ndarray of int or None
        The recorded states, or None. `draws` has the same states and raises an error instead of
        None.
    energy : ndarray or None
        [row, record] energy of the state: minus its log-potential.
    error : ndarray or None
        [row, record] distance of the running marginals to the `reference`.
    reference : ndarray or None
        [sum of sizes] the marginals given as `reference=`.
    model : dict or None
        Size of the graph, as returned by `FactorGraph.describe`.
    drawn : ndarray of int
        The variables in `draws`, by number and in order.
    visits : ndarray of int
        [row] divisor of `counts`.
    state : ndarray of int or None
        [chain, variable] last state of every chain.
    clamped : ndarray of bool
        [variable] whether evidence fixes the variable.
    ladder : Ladder or None
        The temperature ladder of a tempered run.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"])
    >>> run = mg.sample(graph, sweeps=2000, seed=1, progress=False)
    >>> longer = mg.sample(graph, sweeps=2000, seed=2, start=run, progress=False)
    >>> low, high = run.interval("a")[1]
    >>> bool(low < 0.5 < high)
    True
    """

    domains: Domains
    info: Info
    clock: NDArray[np.int64]
    counts: NDArray[np.int64] | None
    kept_draws: NDArray[np.unsignedinteger] | None
    energy: NDArray[np.float64] | None
    error: NDArray[np.float64] | None
    reference: NDArray[np.float64] | None = field(default=None, repr=False)
    model: dict[str, Any] | None = field(default=None, repr=False)
    drawn: NDArray[np.int32] = field(
        default=None,  # type: ignore[arg-type]
        repr=False,
    )
    visits: NDArray[np.int64] = field(
        default=None,  # type: ignore[arg-type]
        repr=False,
    )
    state: NDArray[np.unsignedinteger] | None = field(default=None, repr=False)
    clamped: NDArray[np.bool_] = field(
        default=None,  # type: ignore[arg-type]
        repr=False,
    )
    early_counts: NDArray[np.int64] | None = field(default=None, repr=False)  # of the first part
    early_visits: NDArray[np.int64] | None = field(default=None, repr=False)  # of the first part
    ladder: Ladder | None = field(default=None, repr=False)
    observed: Observed | None = field(default=None, repr=False)  # see `observables`
    kept_temperatures: Temperatures | None = field(default=None, repr=False)  # see `temperatures`

    def __post_init__(self) -> None:
        if self.visits is None:  # missing in files of 0.1: the same for all variables
            none = np.zeros(len(self.clock), np.int64)
            first = none if self.counts is None else self.counts[:, : self.domains.sizes[0]]
            object.__setattr__(self, "visits", first.sum(axis=1) if first.ndim == 2 else none)
        if self.drawn is None:
            every = 0 if self.kept_draws is None else len(self.domains)
            object.__setattr__(self, "drawn", np.arange(every, dtype=np.int32))
        if self.clamped is None:  # unknown in files of 0.1
            object.__setattr__(self, "clamped", np.zeros(len(self.domains), dtype=bool))

    def __repr__(self) -> str:
        some = f" of {len(self.drawn):,}" if len(self.drawn) < len(self.domains) else ""
        kept = [
            name
            for name, value in (
                ("marginals", self.counts),
                ("draws" + some, self.kept_draws),
                ("energy", self.energy),
                ("error", self.error),
            )
            if value is not None
        ]
        kept += self.observables
        return (
            f"<Run: {self.info.chains} chains, {self.info.updates:,} updates of "
            f"{len(self.domains):,} variables by {self.info.sampler}; kept: {', '.join(kept)}>"
        )

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self.info.interrupted

    @property
    def draws(self) -> NDArray[np.unsignedinteger]:
        """The recorded states [row, draw, variable], of the variables in `drawn`.

        Raises
        ------
        SampleError
            If the run recorded no draws.
        """
        return self._need(self.kept_draws, "draws")

    @cached_property
    def spins(self) -> NDArray[np.int8]:
        """The recorded states as spins -1 and +1: [row, draw, variable].

        Raises
        ------
        SampleError
            If the run recorded no draws, or a recorded variable does not have two values.

        Examples
        --------
        >>> import minigibbs as mg
        >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
        >>> run = mg.sample(graph, sweeps=50, seed=1, record="draws", progress=False)
        >>> sorted(set(run.spins.ravel().tolist())), run.spins.dtype
        ([-1, 1], dtype('int8'))
        """
        draws = self.draws
        for variable in self.drawn[self.domains.sizes[self.drawn] != 2][:1].tolist():
            raise SampleError(
                f"spins have two values, but {self.domains.describe(variable)} has "
                f"{self.domains.sizes[variable]}; use run.draws"
            )
        return 2 * draws.astype(np.int8) - np.int8(1)

    def draws_of(self, variable: int | str) -> NDArray[np.unsignedinteger]:
        """Return the draws of one variable.

        Parameters
        ----------
        variable : int or str
            The variable, by number or name.

        Returns
        -------
        ndarray of int
            [row, draw] indices of values.

        Raises
        ------
        SampleError
            If the run recorded no draws of the variable.
        """
        number = self.domains.index(variable)
        draws, places = self.draws, np.flatnonzero(self.drawn == number)
        if not len(places):
            raise SampleError(
                f"this run kept no draws of {self.domains.describe(number)}; "
                'sample with it in mg.Record("draws", variables=...)'
            )
        return draws[:, :, places[0]]  # type: ignore[no-any-return]

    @cached_property
    def observables(self) -> Observations:
        """The observables measured with `observe=`, by name: mean, error, ESS, R-hat and series."""
        return Observations(self.observed)

    @property
    def temperatures(self) -> Temperatures:
        """The records of all temperatures of a tempered run, by `mg.Record(temperatures=True)`.

        Raises
        ------
        SampleError
            If the run recorded the target temperature only.
        """
        if self.kept_temperatures is None:
            raise SampleError(
                "this run kept one temperature; sample with mg.Tempering() and "
                "record=mg.Record(temperatures=True)"
            )
        return self.kept_temperatures

    @property
    def energy_updates(self) -> NDArray[np.int64]:
        """The update, counted from the end of the warm-up, at which each energy was recorded."""
        records = 0 if self.energy is None else self.energy.shape[1]
        return np.arange(1, records + 1, dtype=np.int64) * (self.info.energy_thin or self.info.thin)

    @property
    def record_updates(self) -> NDArray[np.int64]:
        """The update, counted from the end of the warm-up, at which each record was made."""
        series = None if self.observed is None else self.observed.series
        kept = next((a for a in (self.kept_draws, self.error, series) if a is not None), None)
        if kept is None and (self.info.energy_thin or self.info.thin) == self.info.thin:
            kept = self.energy
        records = 0 if kept is None else kept.shape[1]
        return np.arange(1, records + 1, dtype=np.int64) * self.info.thin

    @cached_property
    def chain_marginals(self) -> NDArray[np.float64]:
        """Marginals of each row: [row, variable, value], 0 beyond a variable's domain."""
        rows = self.shares.rows
        memory.require(
            8.0 * len(rows) * len(self.domains) * int(self.domains.sizes.max()),
            f"an array of {len(rows):,} rows of marginals",
            "use run.marginals, or run.marginal(variable)",
        )
        return np.stack([self.domains.square(row) for row in rows])

    @cached_property
    def shares(self) -> Marginals:
        """Visits to every value, and statistics computed from them."""
        self._need(self.counts, "marginals")
        return self.known_marginals or Marginals.of(self)

    @cached_property
    def known_marginals(self) -> Marginals | None:
        """Marginals from every update or from the draws; None if the run has none."""
        try:
            return Marginals.of(self)
        except (SampleError, TooLargeError):
            return None

    @cached_property
    def judged(self) -> list[Judged]:
        """R-hat and ESS of the variables whose draws differ most, worst first."""
        return judge(self)

    @property
    def marginal_error(self) -> float:
        """The mean l2 distance of the pooled marginals to the `reference`."""
        reference = self._need(self.reference, "error", "reference=...")
        pooled, visits = self.shares.counts.sum(axis=0), self.shares.visits.sum()
        return float(mean_distance(pooled[None], visits[None], reference, self.shares.first)[0])

    def summary(self) -> Summary:
        """Compute speed, effective sample sizes, R-hat and warnings; the result prints as a table.

        Returns
        -------
        Summary
            One field per row of the table.
        """
        return self._summary

    @cached_property
    def _summary(self) -> Summary:
        from minigibbs.results.summary import summarize

        return summarize(self)

    def to_arviz(self, indicators: bool = False) -> Any:
        """Convert the draws and the energy to an `xarray.DataTree` for ArviZ.

        `posterior["x"]` contains the draws as indices of values, by `node`, the name of the
        variable. `sample_stats["lp"]` contains the log-potential. Observables have their own names.

        Parameters
        ----------
        indicators : bool, default False
            Whether to add `posterior["indicator"]`: 1 if the `event` "variable=label" holds, else
            0, for every event that occurs in some draws and not in others. ESS and R-hat of indices
            say little about values without an order; those of events are always meaningful.

        Returns
        -------
        xarray.DataTree
            Groups `posterior` and `sample_stats`.

        Raises
        ------
        MissingDependencyError
            If xarray is not installed.
        """
        from minigibbs.results.arviz import to_arviz

        return to_arviz(self, indicators)

    def report(
        self,
        path: str | os.PathLike[str],
        title: str = "A minigibbs run",
        shape: Sequence[int] | None = None,
    ) -> None:
        """Write a standalone HTML page with marginals, diagnostics and warnings.

        Parameters
        ----------
        path : str or path
            The file to write.
        title : str, default "A minigibbs run"
            Title of the page.
        shape : sequence of int, optional
            Rows and columns of a lattice whose sites are the variables, to draw marginals as a map.
        """
        from minigibbs.results.report import write

        write(self, path, title, shape)

    def plot_trace(self, *names: str, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the energy and scalar observables against updates.

        Parameters
        ----------
        *names : str
            Observables to draw, or "energy". By default all.
        path : str or path, optional
            File to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.

        Raises
        ------
        SampleError
            If the run recorded none of them.
        """
        from minigibbs.results import plots

        return plots.trace(self, names, path)

    def plot_marginals(
        self,
        value: int = 1,
        shape: Sequence[int] | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Draw the marginals; on a lattice the probability of one value as an image.

        Parameters
        ----------
        value : int, default 1
            Index of the value whose probability is drawn on a lattice.
        shape : sequence of int, optional
            Rows and columns of the lattice. By default those of a `Kernel` or `Stencil`.
        path : str or path, optional
            File to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.
        """
        from minigibbs.results import plots

        return plots.marginals(self, value, shape, path)

    def plot_autocorrelation(
        self, *names: str, lags: int | None = None, path: str | os.PathLike[str] | None = None
    ) -> Any:
        """Draw the autocorrelation of the energy and of scalar observables.

        Parameters
        ----------
        *names : str
            Observables to draw, or "energy". By default all.
        lags : int, optional
            Largest lag in records. By default it is chosen from the autocorrelation.
        path : str or path, optional
            File to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.
        """
        from minigibbs.results import plots

        return plots.autocorrelation(self, names, lags, path)

    def plot_observable(self, name: str, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw an observable: trace and histogram of one number, or means with errors of several.

        Parameters
        ----------
        name : str
            Name of the observable.
        path : str or path, optional
            File to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.

        Raises
        ------
        SampleError
            If the run did not measure it.
        """
        from minigibbs.results import plots

        return plots.observable(self, name, path)

    def _repr_html_(self) -> str:
        """Return a summary as HTML, for notebooks."""
        from minigibbs.results.notebook import run_html

        return run_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run to a file; `mg.load` reads it. An interrupted write leaves no partial file.

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
        kept = {name: getattr(self, _FIELDS.get(name, name)) for name in _ARRAYS}
        arrays = {name: value for name, value in kept.items() if value is not None}
        info = asdict(self.info) | {"seed": str(self.info.seed)}  # 128 bits exceed JSON numbers
        header = {"format": FORMAT, "info": info, **domains_header(self.domains)}
        header["model"] = self.model
        header["ladder"] = None if self.ladder is None else self.ladder.to_dict()
        every = np.arange(len(self.domains))
        if self.kept_draws is not None and not np.array_equal(self.drawn, every):
            arrays["drawn"] = self.drawn
        if self.observed is not None:
            own, some = encode_observed(self.observed)
            header["observed"] = own
            arrays |= some
        if self.kept_temperatures is not None:
            own, some = encode_temperatures(self.kept_temperatures)
            header["temperatures"] = own
            arrays |= some
        files.write_arrays(path, header, {**arrays, "sizes": self.domains.sizes})

    @staticmethod
    def _need(value: NDArray[Any] | None, name: str, how: str = "") -> NDArray[Any]:
        if value is None:
            how = how or f'record=("{name}",)'
            raise SampleError(f"this run kept no {name}; sample with {how}")
        return value


def load(path: str | os.PathLike[str]) -> Run:
    """Read a run written by `Run.save`."""
    header, arrays = files.read_arrays(path, *FORMATS)
    observed = {key: arrays.pop(key) for key in list(arrays) if key.startswith("observed.")}
    levels = {key: arrays.pop(key) for key in list(arrays) if key.startswith("temperatures.")}
    with files.refusing_damage(path):
        domains = domains_from_header(header, arrays.pop("sizes"))
        info = header["info"] | {"seed": int(header["info"]["seed"])}
        if header["format"] in _BEFORE and "energy" in arrays:
            arrays["energy"] = 0.0 - arrays["energy"]
        kept = {**dict.fromkeys(_ARRAYS), **arrays}
        run = Run(
            domains,
            Info(**info),
            model=header.get("model"),  # missing in the earliest files of 0.1.0
            ladder=Ladder.from_dict(header["ladder"]) if header.get("ladder") else None,
            observed=decode_observed(header["observed"], observed)
            if header.get("observed")
            else None,
            kept_temperatures=decode_temperatures(header["temperatures"], levels)
            if header.get("temperatures")
            else None,
            **{_FIELDS.get(name, name): value for name, value in kept.items()},  # type: ignore[arg-type]
        )
        check_run(run)
    return run


def check_run(run: Run) -> None:
    """Raise `ValueError` if the parts of a run are inconsistent."""
    for entry in fields(Info):
        value = getattr(run.info, entry.name)
        if type(value).__name__ != entry.type:
            raise ValueError(f"info: {entry.name} must be of type {entry.type}, got {value!r}")
    check_model(run.model)
    if run.kept_draws is not None:
        check_drawn(run.drawn, len(run.domains))
    elif len(run.drawn):
        raise ValueError("drawn: there are no draws")
    chains = run.info.chains if run.info.backend == "cpu" else min(run.info.chains, len(run.clock))
    values = int(run.domains.sizes.sum())
    _check_array("clock", run.clock, np.signedinteger, (chains,))
    _check_array("visits", run.visits, np.signedinteger, (chains,))
    early, visits = run.early_counts, run.early_visits
    if early is not None or visits is not None:
        _check_array("early_visits", visits, np.signedinteger, (chains,))
        _check_array("early_counts", early, np.signedinteger, (chains, values))
        assert early is not None
        assert visits is not None
        part = ((visits > 0) & (visits < run.visits)).all()
        if run.counts is None or not part or (early > run.counts).any():
            raise ValueError("early_counts: expected the counts of a part of the run")
    for name in ("clock", "visits", "counts", "early_counts"):
        array = getattr(run, name)
        if array is not None and array.size and array.min() < 0:
            raise ValueError(f"{name}: expected counts, got {array.min()}")
    records = int(run.clock.min()) // run.info.thin
    energies = int(run.clock.min()) // (run.info.energy_thin or run.info.thin)
    for name, kind, shape in (
        ("counts", np.signedinteger, (chains, values)),
        ("draws", np.unsignedinteger, (chains, records, len(run.drawn))),
        ("energy", np.floating, (chains, energies)),
        ("error", np.floating, (chains, records)),
        ("reference", np.floating, (values,)),
        ("state", np.unsignedinteger, (run.info.chains, len(run.domains))),
        ("clamped", np.bool_, (len(run.domains),)),
    ):
        array = getattr(run, _FIELDS.get(name, name))
        if array is not None:
            _check_array(name, array, kind, shape)
    if run.kept_draws is not None and (run.draws >= run.domains.sizes[run.drawn]).any():
        raise ValueError("draws: a value lies outside its variable's domain")
    if run.observed is not None:
        check_observed(run.observed, chains)
    if run.kept_temperatures is not None:
        check_temperatures(run.kept_temperatures, chains, records)


def check_drawn(drawn: NDArray[Any], variables: int) -> None:
    """Raise `ValueError` unless `drawn` has numbers of variables, each at most once."""
    _check_array("drawn", drawn, np.signedinteger, (drawn.size,))
    if not drawn.size or drawn.min() < 0 or drawn.max() >= variables:
        raise ValueError(f"drawn: expected numbers of variables, 0 to {variables - 1}")
    if len(np.unique(drawn)) != len(drawn):
        raise ValueError("drawn: a variable is there twice")


def check_model(model: dict[str, Any] | None) -> None:
    """Raise `ValueError` unless `model` is None or an output of `FactorGraph.describe`."""
    if model is None:
        return
    sums = ("factors", "max_degree", "local_energy", "total_energy", "max_domain")
    counts = [model["clamped"], *model["kinds"].values(), *(model.get("shape") or [])]
    counts += [model[key] for key in sums if model[key] is not None]
    counts.append(model.get("zeros", 0))  # missing in files of 0.1, like the influence
    counts.append(0 if model.get("influence") is None else model["influence"])
    counts.append(model.get("rounding_error", 0.0))  # missing in files before 0.3
    if not all(type(count) in (int, float) and 0 <= count < math.inf for count in counts):
        raise ValueError(f"model: expected counts and sums, got {model!r}")
    for key in ("uniform", "biased"):
        if type(model.get(key, False)) is not bool:
            raise ValueError(f"model: expected {key} to be true or false, got {model[key]!r}")
    kinds = {"variable": str, "size": int, "share": float}
    for missed in (model[key] for key in ("missed", "phase") if key in model):
        if {key: type(value) for key, value in missed.items()} != kinds:
            raise ValueError(f"model: expected a variable, a size and a share, got {missed!r}")
    if model.get("reach", CONNECTED) not in (CONNECTED, SPLIT, UNKNOWN):
        raise ValueError(f"model: expected a known reach, got {model['reach']!r}")


def _check_array(
    name: str, array: NDArray[Any] | None, kind: type[np.generic], shape: tuple[int, ...]
) -> None:
    # In NumPy, timedelta64 is a subtype of signedinteger.
    fits = array is not None and np.issubdtype(array.dtype, kind) and array.dtype.kind != "m"
    if array is None or not fits or array.shape != shape:
        got = "none" if array is None else f"shape {array.shape} of {array.dtype}"
        raise ValueError(f"{name}: expected shape {shape} of {kind.__name__}, got {got}")
