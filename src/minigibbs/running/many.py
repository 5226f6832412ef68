"""Function `sample_many`: a series of models, such as a grid of temperatures, as one job."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import MinigibbsError, SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.observed import COLUMNS, Estimate, rows
from minigibbs.results.run import Run
from minigibbs.running.api import sample
from minigibbs.running.executors import check_executor, shared_executor
from minigibbs.running.executors.worker import MOST_RUNS
from minigibbs.running.progress import Job
from minigibbs.running.request import entropy_of
from minigibbs.samplers import Sampler
from minigibbs.system import memory
from minigibbs.system.boundary import checked, shown
from minigibbs.system.optional import optional
from minigibbs.system.watch import StopError, Watch

_RUN_BYTES = 10_000  # Python objects of a run
_PATIENCE = 0.5  # seconds between two looks at signals


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class RunCollection(Sequence[Run]):
    """The result of `mg.sample_many`: one run per model, in order.

    Attributes
    ----------
    runs : tuple of Run
        The runs.
    at : ndarray
        The label of each model, such as its temperature.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graphs = {beta: mg.models.ising_lattice(side=4, beta=beta) for beta in (0.1, 0.3)}
    >>> runs = mg.sample_many(graphs, sweeps=500, seed=1, observe="magnetization", progress=False)
    >>> runs.at.tolist(), len(runs), runs[0].info.chains
    ([0.1, 0.3], 2, 4)
    >>> runs[0.3] is runs[1]
    True
    """

    runs: tuple[Run, ...]
    at: NDArray[Any]

    def __getitem__(self, index: Any) -> Any:
        """Return the run at a position, or of a label that is not an integer: `runs[0.3]`."""
        if isinstance(index, int | np.integer | slice):
            return self.runs[index]
        labels = self.at.tolist()
        if index not in labels:
            raise SampleError(
                f"a run is given by its position, 0 to {len(self) - 1}, or by its label, one of "
                f"{shown(labels)}; got {shown(index)}"
            )
        return self.runs[labels.index(index)]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __repr__(self) -> str:
        names = ", ".join(self._names()) or "none"
        return f"<RunCollection: {len(self)} models, observables: {names}>"

    def _repr_html_(self) -> str:
        """Return the observables of each model as a table, for notebooks."""
        from minigibbs.results.notebook import runs_html

        return runs_html(repr(self), self.at.tolist(), self.runs)

    def _names(self) -> list[str]:
        return list(self.runs[0].observables) if self.runs else []

    def estimates(self, what: str | Callable[[Run], Estimate]) -> list[Estimate]:
        """Compute an observable or a derived quantity of each model, with errors.

        A derived quantity is a function of a run.

        Parameters
        ----------
        what : str or callable
            The name of an observable, or a function of a run such as `mg.observables.binder`.

        Returns
        -------
        list of Estimate
            One per model.

        Raises
        ------
        SampleError
            If a run did not measure the quantity.
        """
        if callable(what):
            return [_estimated(what, run) for run in self.runs]
        found = [run.observables[what] for run in self.runs]
        return [Estimate(one.mean, one.error, one.estimate.blocks) for one in found]

    def frame(self, **derived: Callable[[Run], Estimate]) -> Any:
        """Convert the observables of all runs to a pandas frame.

        Derived quantities may be given by name: `runs.frame(binder=mg.observables.binder)`.

        Parameters
        ----------
        **derived : callable
            Derived quantities by name, such as `binder=mg.observables.binder`.

        Returns
        -------
        pandas.DataFrame
            One row per model and number, with means, errors, ESS and R-hat.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        pandas = optional("pandas", "pandas")
        found = []
        for at, run in zip(self.at.tolist(), self.runs, strict=True):
            found += [{"at": at, **row} for row in rows(run.observables)]
            for name, function in derived.items():
                one = _estimated(function, run)
                found.append({"at": at, "observable": name, "mean": one.value, "error": one.error})
        return pandas.DataFrame(found, columns=["at", *COLUMNS])

    def plot(
        self,
        what: str | Callable[[Run], Estimate] | None = None,
        path: str | os.PathLike[str] | None = None,
        label: str = "",
        *,
        axes: Any = None,
        curve: str = "",
    ) -> Any:
        """Plot an observable or a derived quantity against the labels of the models, with errors.

        Return a Matplotlib figure; with `path`, also write it to a file.

        Parameters
        ----------
        what : str or callable, optional
            The name of an observable, or a function of a run such as `mg.observables.binder`. By
            default the first observable.
        path : str or path, optional
            File to write the figure to.
        label : str, default ""
            Label of the vertical axis. By default the name.
        axes : matplotlib.axes.Axes, optional
            Axes to draw on, so that several calls share one plot. By default new ones.
        curve : str, default ""
            Name of the curve in the legend. By default there is no legend.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.

        Raises
        ------
        SampleError
            If nothing was observed.
        """
        from minigibbs.results.plots import plot_estimates

        names = self._names()
        if what is None and not names:
            raise SampleError("there is nothing to draw: sample_many observed nothing")
        chosen = names[0] if what is None else what
        name = label or (chosen if isinstance(chosen, str) else chosen.__name__)
        return plot_estimates(self.at, self.estimates(chosen), name, path, axes, curve)


def _require_room(first: Run, models: int) -> None:
    """Refuse a series of models whose runs do not fit, given the size of the first run."""
    parts = [vars(first), {} if first.observed is None else vars(first.observed)]
    arrays = [value for part in parts for value in part.values() if isinstance(value, np.ndarray)]
    size = _RUN_BYTES + sum(array.nbytes for array in arrays)
    memory.require(
        float(size) * (models - 1),
        f"sample_many: keeping the runs of {models:,} models, {memory.readable(size)} each,",
        "give fewer models at a time, fewer chains, or record less",
    )


def _estimated(function: Callable[[Run], Estimate], run: Run) -> Estimate:
    """Return a derived quantity of a run; raise an error if the function returns none."""
    called = getattr(function, "__name__", type(function).__name__)
    rule = f"{called} must be a function of a run that returns an Estimate"
    try:
        found = function(run)
    except MinigibbsError:
        raise
    except Exception as error:
        raise SampleError(
            f"{rule}, such as mg.observables.binder; it failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Estimate):
        raise SampleError(f"{rule}, such as mg.observables.binder; it returned {shown(found)}")
    return found


@checked(SampleError)
def sample_many(
    graphs: Mapping[Any, FactorGraph] | Iterable[FactorGraph],
    sampler: Sampler | str | None = None,
    *,
    seed: int | None = None,
    progress: bool = True,
    **options: Any,
) -> RunCollection:
    """Sample several models, such as a grid of temperatures, with one progress bar.

    Models run sequentially, and the chains of a model in parallel. With an `executor`, up to 8
    models run at the same time, with the same draws. `seed` determines a seed for every model.

    Parameters
    ----------
    graphs : mapping or iterable of FactorGraph
        The models: a list, or a mapping from a label, such as beta, to each model.
    sampler : Sampler or str, optional
        The sampler, as in `mg.sample`; the same for all models.
    seed : int, optional
        Fixes every draw of all models.
    progress : bool, default True
        Whether to show one progress bar for all models if stderr is a terminal.
    **options : object
        Other arguments of `mg.sample`, the same for all models. With `start="last"` each model
        starts from the last states of the previous one, so models run sequentially. `checkpoint` is
        not accepted, because a checkpoint contains one run.

    Returns
    -------
    RunCollection
        One run per model, in order.

    Raises
    ------
    SampleError
        If there is no model, or an option is invalid.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graphs = {beta: mg.models.ising_lattice(side=6, beta=beta) for beta in (0.2, 0.4, 0.6)}
    >>> observe = {"m": mg.observables.Magnetization(absolute=True)}
    >>> runs = mg.sample_many(graphs, sweeps=500, seed=1, observe=observe, progress=False)
    >>> means = [run.observables["m"].mean for run in runs]
    >>> means == sorted(means)
    True
    """
    named = isinstance(graphs, Mapping)
    at, models = (list(graphs), list(graphs.values())) if named else (None, list(graphs))  # type: ignore[union-attr]
    for number, graph in enumerate(models):
        if not isinstance(graph, FactorGraph):
            raise SampleError(
                f"sample_many takes factor graphs, got {type(graph).__name__} at {number}"
            )
    if options.get("checkpoint") is not None:
        raise SampleError("a checkpoint is of one run: give it to mg.sample, for one model")
    unknown = options.keys() - inspect.signature(sample).parameters.keys()
    if unknown:
        raise SampleError(
            f"sample_many: {min(unknown)!r} is not an option; it takes those of mg.sample, such as "
            "sweeps, chains, observe"
        )
    check_executor(options.get("executor"))
    entropy = entropy_of(seed)
    with Job(len(models), progress) as job, Watch() as watch:
        series = _Series(models, sampler, entropy, options, job, watch)
        runs = series.together() if series.spread else series.in_turn()
    labels = np.asarray(range(len(models)) if at is None else at)
    return RunCollection(tuple(runs.values()), labels[list(runs)])


@dataclass(frozen=True)
class _Series:
    """The models of one call of `sample_many`, and how they are sampled."""

    models: list[FactorGraph]
    sampler: Sampler | str | None
    entropy: int
    options: dict[str, Any]  # of `mg.sample`
    job: Job
    watch: Watch

    @property
    def follows(self) -> bool:
        """Whether each model starts from the states of the previous one."""
        start = self.options.get("start")
        return isinstance(start, str) and start == "last"

    @property
    def spread(self) -> bool:
        """Whether several models run at the same time, on an executor."""
        executor = self.options.get("executor")
        threads = isinstance(executor, str) and executor == "threads"
        return executor is not None and not threads and not self.follows and len(self.models) > 1

    def run(self, number: int, **others: Any) -> Run:
        """Sample a model."""
        sequence = np.random.SeedSequence(self.entropy, spawn_key=(number,))
        seed = int.from_bytes(sequence.generate_state(4).tobytes(), "little")
        options = self.options | others
        return sample(self.models[number], self.sampler, seed=seed, progress=False, **options)

    def _count(self, runs: dict[int, Run]) -> None:
        """Count a finished model; refuse the series after its first if all would not fit."""
        self.job.step()
        if len(runs) == 1:
            _require_room(next(iter(runs.values())), len(self.models))

    def in_turn(self) -> dict[int, Run]:
        """Sample one model after another; return the runs by number."""
        runs: dict[int, Run] = {}
        for number in range(len(self.models)):
            start = {"start": runs[number - 1] if runs else "random"} if self.follows else {}
            try:
                runs[number] = self.run(number, **start)
            except KeyboardInterrupt:  # before this model had any result
                if not runs:
                    raise
                break
            self._count(runs)
            if runs[number].interrupted:
                break
        return runs

    def together(self) -> dict[int, Run]:
        """Sample several models at the same time on an executor; return the runs by number."""
        with (
            shared_executor(self.options["executor"], self.options.get("threads")) as executor,
            self.watch.noted(),  # runs end with their results
            ThreadPoolExecutor(MOST_RUNS) as pool,
        ):
            numbers = range(len(self.models))
            tasks = {pool.submit(self._adopted, number, executor): number for number in numbers}
            try:
                found = self._collect(tasks)
            except BaseException:
                self.watch.stop()
                pool.shutdown(cancel_futures=True)
                raise
        if self.watch.signal and not found:
            raise KeyboardInterrupt
        return dict(sorted(found.items()))

    def _adopted(self, number: int, executor: Any) -> Run | None:
        """Sample a model on a thread of this call; None if the call ended before a result."""
        with self.watch.adopted():
            try:
                self.watch.check()
                run = self.run(number, executor=executor)
            except StopError:
                return None
        return None if run.interrupted and not run.info.updates + run.info.warmup else run

    def _collect(self, tasks: dict[Future[Run | None], int]) -> dict[int, Run]:
        """Collect finished models, in any order."""
        found: dict[int, Run] = {}
        waiting = set(tasks)
        while waiting:
            done, waiting = wait(waiting, _PATIENCE, FIRST_COMPLETED)
            for task in done:
                run = task.result()
                if run is not None:
                    found[tasks[task]] = run
                    self._count(found)
        return found
