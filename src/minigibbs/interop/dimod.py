"""Two dimod samplers: draws from exp(-beta * energy), and a search for minimum energy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import MissingDependencyError, SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.maximize import best_states
from minigibbs.interop.constrained import PENALTY, from_cqm
from minigibbs.interop.polynomial import from_polynomial
from minigibbs.interop.quadratic import from_bqm, from_dqm
from minigibbs.running.api import sample
from minigibbs.running.plan import CHROMATIC, SCANS
from minigibbs.samplers import SAMPLERS, Sampler
from minigibbs.system.boundary import checked

try:
    import dimod
except ImportError:
    raise MissingDependencyError('dimod is not installed: pip install "minigibbs[dimod]"') from None

__all__ = [
    "MiniGibbsAnnealer",
    "MiniGibbsSampler",
    "from_bqm",
    "from_cqm",
    "from_dqm",
    "from_polynomial",
]

_LARGEST_SEED = 2**32  # bound of the seeds of dimod's generators
_SHARES = (1 / 256, 1 / 64, 1 / 16, 1 / 4)  # other fractions of the default penalty to try


if TYPE_CHECKING:  # dimod annotates its attributes as None
    Discrete = Any
    Constrained = Any
    Polynomial = Any
else:
    Discrete = dimod.DiscreteQuadraticModel
    Constrained = dimod.ConstrainedQuadraticModel
    Polynomial = dimod.BinaryPolynomial


@checked(SampleError)
class MiniGibbsSampler(dimod.Sampler, dimod.Initialized):  # type: ignore[misc, name-defined]
    """Sampler of exp(-beta * energy) at a fixed inverse temperature.

    This is a sampler, not an annealer: it does not look for the least energy, and lower energies
    are as frequent as the Boltzmann distribution makes them. (`MiniGibbsAnnealer` looks for it.)
    Every read is the last state of a chain of its own, after `num_sweeps` sweeps from a random
    start. Reads are independent. They have the correct distribution if the chains have converged.

    Examples
    --------
    >>> import dimod
    >>> from minigibbs.interop.dimod import MiniGibbsSampler
    >>> bqm = dimod.BinaryQuadraticModel({"a": -1.0}, {"ab": 1.0}, 0.0, "SPIN")
    >>> reads = MiniGibbsSampler().sample(bqm, num_reads=5, num_sweeps=20, seed=1)
    >>> len(reads), sorted(reads.variables)
    (5, ['a', 'b'])
    """

    parameters: Any = None
    properties: Any = None

    def __init__(self) -> None:
        own = ("num_reads", "num_sweeps", "beta", "seed", "sampler", "scan")
        self.parameters = {
            name: [] for name in (*own, "initial_states", "initial_states_generator")
        }
        self.properties = {
            "samplers": list(SAMPLERS),
            "scans": list(SCANS),
        }

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        num_sweeps: int = 1000,
        beta: float = 1.0,
        seed: int | None = None,
        sampler: Sampler | str | None = None,
        scan: str = "random",
        initial_states: Any = None,
        initial_states_generator: str = "random",
        **kwargs: Any,
    ) -> Any:
        """Sample a binary quadratic model.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel
            The model.
        num_reads : int, optional
            Number of independent chains, each of which gives one sample. By default the number of
            initial states, or 1.
        num_sweeps : int, default 1000
            Number of sweeps per chain.
        beta : float, default 1.0
            The inverse temperature.
        seed : int, optional
            Seed of all random draws.
        sampler : Sampler or str, optional
            A sampler such as `mg.Gibbs()`, or its name. By default `mg.PoissonGibbs()`.
        scan : str, default "random"
            "random", "systematic", "shuffled" or "chromatic", as in `mg.sample`.
        initial_states : object, optional
            Initial states of the chains; see `dimod.Initialized`.
        initial_states_generator : str, default "random"
            "none", "tile" or "random": how to create missing initial states; see
            `dimod.Initialized`.
        **kwargs : object
            Options of other samplers. They are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            `info` contains the times in nanoseconds, as in dwave-samplers, the seed and beta.
        """
        begun = time.perf_counter_ns()
        self.remove_unknown_kwargs(**kwargs)
        seed = _seed(seed)
        try:
            start = self.parse_initial_states(
                bqm, initial_states, initial_states_generator, num_reads, seed % _LARGEST_SEED
            )
        except (TypeError, ValueError) as error:
            raise SampleError(f"initial_states and initial_states_generator: {error}") from None
        reads = start.num_reads
        if not len(bqm.variables):
            return dimod.SampleSet.from_samples_bqm((np.empty((reads, 0), np.int8), []), bqm)
        order = [start.initial_states.variables.index(v) for v in bqm.variables]
        first = start.initial_states.record.sample[:, order] > 0
        chains = _Call(from_bqm(bqm, beta), sampler, scan, num_sweeps, seed)
        states = chains.run(first.astype(np.int8), begun).astype(np.int8)
        if bqm.vartype is dimod.SPIN:
            states = 2 * states - 1
        energies = bqm.energies((states, list(bqm.variables)))
        return _result(bqm, states, bqm.vartype, energies, chains.info(beta))

    def sample_dqm(
        self,
        dqm: Discrete,
        *,
        num_reads: int = 1,
        num_sweeps: int = 1000,
        beta: float = 1.0,
        seed: int | None = None,
        sampler: Sampler | str | None = None,
        scan: str = "random",
        **kwargs: Any,
    ) -> Any:
        """Sample a discrete quadratic model; samples contain case numbers.

        Parameters
        ----------
        dqm : dimod.DiscreteQuadraticModel
            The model.
        num_reads : int, default 1
            Number of independent chains, each of which gives one sample.
        num_sweeps : int, default 1000
            Number of sweeps per chain, from a random state.
        beta : float, default 1.0
            The inverse temperature.
        seed : int, optional
            Seed of all random draws.
        sampler : Sampler or str, optional
            A sampler such as `mg.Gibbs()`, or its name. By default `mg.PoissonGibbs()`.
        scan : str, default "random"
            "random", "systematic", "shuffled" or "chromatic", as in `mg.sample`.
        **kwargs : object
            Options of other samplers. They are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            `info` contains the times in nanoseconds, the seed and beta.
        """
        begun = time.perf_counter_ns()
        self.remove_unknown_kwargs(**kwargs)
        num_reads = _whole("num_reads", num_reads, 1)
        if not len(dqm.variables):
            return _empty_dqm(dqm, num_reads)
        chains = _Call(from_dqm(dqm, beta), sampler, scan, num_sweeps, _seed(seed))
        states = chains.run(num_reads, begun).astype(np.int64)
        energies = dqm.energies((states, list(dqm.variables)))
        return _result(dqm, states, "DISCRETE", energies, chains.info(beta))


@checked(SampleError)
class MiniGibbsAnnealer(dimod.Sampler, dimod.PolySampler):  # type: ignore[misc, name-defined]
    """Search for states of minimum energy by annealing and parallel tempering, as in `mg.maximize`.

    Every read is the best state found by its own temperature ladder; reads are independent.

    Examples
    --------
    >>> import dimod
    >>> from minigibbs.interop.dimod import MiniGibbsAnnealer
    >>> bqm = dimod.BinaryQuadraticModel({"a": -1.0}, {"ab": 1.0}, 0.0, "SPIN")
    >>> reads = MiniGibbsAnnealer().sample(bqm, num_reads=2, seed=1)
    >>> float(reads.first.energy), reads.first.sample == {"a": 1, "b": -1}
    (-2.0, True)
    """

    parameters: Any = None
    properties: Any = None

    def __init__(self) -> None:
        self.parameters = {name: [] for name in ("num_reads", "num_sweeps", "beta_range", "seed")}
        self.properties = {}

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int = 1,
        num_sweeps: int = 200,
        beta_range: Sequence[float] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Search for the states of lowest energy of a binary quadratic model.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel
            The model.
        num_reads : int, default 1
            Number of searches, each of which gives one sample.
        num_sweeps : int, default 200
            Sweeps per temperature of each ladder. A third of them anneal.
        beta_range : (float, float), optional
            Smallest and largest inverse temperature. By default derived from the biases.
        seed : int, optional
            Seed of all random draws.
        **kwargs : object
            Options of other samplers. They are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            `info` contains the time in nanoseconds and the seed.
        """
        self.remove_unknown_kwargs(**kwargs)
        num_reads = _whole("num_reads", num_reads, 1)
        if not len(bqm.variables):
            return dimod.SampleSet.from_samples_bqm((np.empty((num_reads, 0), np.int8), []), bqm)
        states, info = _minima(from_bqm(bqm), num_reads, num_sweeps, beta_range, seed)
        states = states.astype(np.int8)
        if bqm.vartype is dimod.SPIN:
            states = 2 * states - 1
        energies = bqm.energies((states, list(bqm.variables)))
        return _result(bqm, states, bqm.vartype, energies, info)

    def sample_dqm(
        self,
        dqm: Discrete,
        *,
        num_reads: int = 1,
        num_sweeps: int = 200,
        beta_range: Sequence[float] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Search for the states of lowest energy of a discrete quadratic model.

        Parameters
        ----------
        dqm : dimod.DiscreteQuadraticModel
            The model.
        num_reads : int, default 1
            Number of searches, each of which gives one sample.
        num_sweeps : int, default 200
            Sweeps per temperature of each ladder. A third of them anneal.
        beta_range : (float, float), optional
            Smallest and largest inverse temperature. By default derived from the biases.
        seed : int, optional
            Seed of all random draws.
        **kwargs : object
            Options of other samplers. They are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            Samples contain case numbers.
        """
        self.remove_unknown_kwargs(**kwargs)
        num_reads = _whole("num_reads", num_reads, 1)
        if not len(dqm.variables):
            return _empty_dqm(dqm, num_reads)
        states, info = _minima(from_dqm(dqm), num_reads, num_sweeps, beta_range, seed)
        states = states.astype(np.int64)
        energies = dqm.energies((states, list(dqm.variables)))
        return _result(dqm, states, "DISCRETE", energies, info)

    def sample_poly(
        self,
        polynomial: Polynomial,
        *,
        num_reads: int = 1,
        num_sweeps: int = 200,
        beta_range: Sequence[float] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Search for the states of lowest energy of a polynomial.

        `sample_hising` and `sample_hubo` use this method.

        Parameters
        ----------
        polynomial : dimod.BinaryPolynomial
            The model.
        num_reads : int, default 1
            Number of searches, each of which gives one sample.
        num_sweeps : int, default 200
            Sweeps per temperature of each ladder. A third of them anneal.
        beta_range : (float, float), optional
            Smallest and largest inverse temperature. By default derived from the biases.
        seed : int, optional
            Seed of all random draws.
        **kwargs : object
            Options of other samplers. They are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            `info` contains the time in nanoseconds and the seed.
        """
        self.remove_unknown_kwargs(**kwargs)
        num_reads = _whole("num_reads", num_reads, 1)
        variables = sorted(polynomial.variables, key=str)
        if variables:
            graph = from_polynomial(polynomial)
            states, info = _minima(graph, num_reads, num_sweeps, beta_range, seed)
        else:
            states, info = np.empty((num_reads, 0)), {}
        states = states.astype(np.int8)
        if polynomial.vartype is dimod.SPIN:
            states = 2 * states - 1
        energies = polynomial.energies((states, variables))
        return dimod.SampleSet.from_samples(
            (states, variables), polynomial.vartype, energies, info=info, sort_labels=True
        )

    def sample_cqm(
        self,
        cqm: Constrained,
        *,
        num_reads: int = 1,
        num_sweeps: int = 200,
        beta_range: Sequence[float] | None = None,
        penalty: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Search for feasible states of lowest energy of a constrained quadratic model.

        Parameters
        ----------
        cqm : dimod.ConstrainedQuadraticModel
            The model.
        num_reads : int, default 1
            Number of searches, each of which gives one sample.
        num_sweeps : int, default 200
            Sweeps per temperature of each ladder. A third of them anneal.
        beta_range : (float, float), optional
            Smallest and largest inverse temperature. By default derived from the biases.
        penalty : float, optional
            Weight of a squared violation in constraints that become penalties. By default each read
            tries five weights, the default of `mg.from_cqm` and fractions of it down to 1/256, and
            keeps its best sample.
        seed : int, optional
            Seed of all random draws.
        **kwargs : object
            Options of other samplers. They are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            Samples sorted by feasibility, then by energy. `info["constraints"]` is the
            representation of each constraint; see `mg.from_cqm`.
        """
        self.remove_unknown_kwargs(**kwargs)
        num_reads = _whole("num_reads", num_reads, 1)
        if not len(cqm.variables):
            return dimod.SampleSet.from_samples_cqm((np.empty((num_reads, 0), np.int8), []), cqm)
        models = [from_cqm(cqm, penalty=penalty)]
        if penalty is None and PENALTY in models[0].constraints.values():
            largest = models[0].penalty
            models += [from_cqm(cqm, penalty=share * largest) for share in _SHARES]
        found, seed = [], _seed(seed)
        for model in models:
            states, info = _minima(model.graph, num_reads, num_sweeps, beta_range, seed)
            found.append(model.samples(states))
        info |= {"constraints": models[0].constraints, "penalty": [m.penalty for m in models]}
        variables = list(cqm.variables)
        reads = dimod.SampleSet.from_samples_cqm((np.concatenate(found), variables), cqm).record
        order = np.lexsort((reads.energy, ~reads.is_feasible))  # best first
        best = np.unique(order % num_reads, return_index=True)[1]  # the best of each read
        chosen = (np.concatenate(found)[order[np.sort(best)]], variables)
        return dimod.SampleSet.from_samples_cqm(chosen, cqm, info=info)


def _minima(
    graph: FactorGraph,
    reads: int,
    sweeps: int,
    beta_range: Sequence[float] | None,
    seed: int | None,
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return the best state of each search, and the `info` of the `SampleSet`."""
    begun, seed = time.perf_counter_ns(), _seed(seed)
    rounds = _whole("num_sweeps", sweeps, 1)
    states = best_states(graph, 0.0, rounds, beta_range, "random", reads, seed).states
    timing = {"sampling_ns": time.perf_counter_ns() - begun}
    return states, {"num_sweeps": rounds, "seed": seed, "timing": timing}


def _empty_dqm(dqm: Any, reads: int) -> Any:
    energies = np.full(reads, float(dqm.offset))
    return dimod.SampleSet.from_samples((np.empty((reads, 0), np.int64), []), "DISCRETE", energies)


def _result(
    model: Any, states: NDArray[Any], vartype: Any, energies: Any, info: dict[str, Any]
) -> Any:
    samples = (states, list(model.variables))
    return dimod.SampleSet.from_samples(
        samples, vartype, energies, info=info, aggregate_samples=False, sort_labels=True
    )


class _Call:
    """A call of `sample`, and its times."""

    def __init__(
        self,
        graph: FactorGraph,
        sampler: Sampler | str | None,
        scan: str,
        num_sweeps: int,
        seed: int,
    ) -> None:
        self.graph, self.sampler, self.scan = graph, sampler, scan
        self.sweeps, self.seed = _whole("num_sweeps", num_sweeps, 1), seed
        self.times: dict[str, int] = {}
        self.done = 0
        self.name = ""

    def run(self, start: int | NDArray[np.int8], begun: int) -> NDArray[Any]:
        """Return the final states; `start` has the initial states, or is the number of chains."""
        whole = self.scan == CHROMATIC
        ready = time.perf_counter_ns()
        run = sample(
            self.graph,
            self.sampler,
            updates=None if whole else self.sweeps * len(self.graph),
            sweeps=self.sweeps if whole else None,
            warmup=0,
            chains=start if isinstance(start, int) else len(start),
            seed=self.seed,
            start="random" if isinstance(start, int) else start,
            scan=self.scan,
            record=(),
            progress=False,
        )
        self.done = time.perf_counter_ns()
        self.times = {"preprocessing_ns": ready - begun, "sampling_ns": self.done - ready}
        self.name = run.info.sampler
        if run.interrupted:
            raise KeyboardInterrupt
        assert run.state is not None
        return run.state

    def info(self, beta: float) -> dict[str, Any]:
        """Return the `info` of the `SampleSet`."""
        times = {**self.times, "postprocessing_ns": time.perf_counter_ns() - self.done}
        return {
            "beta": float(beta),
            "num_sweeps": self.sweeps,
            "sampler": self.name,
            "seed": self.seed,
            "timing": times,
        }


def _seed(seed: int | None) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return _whole("seed", seed, 0)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SampleError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)
