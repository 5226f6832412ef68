"""Options of a run: checked, and converted to a plan."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.support import Support, forbidding
from minigibbs.graph.checks import as_array
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.random import SEEDED
from minigibbs.observables.reading import Observe, read_observe
from minigibbs.results.result import OWN_SCAN
from minigibbs.results.run import Run
from minigibbs.running.backends import BACKENDS, Backend
from minigibbs.running.budget import SHARE, SHARE_UNTIL, energy_every, observing_every
from minigibbs.running.plan import (
    CHROMATIC,
    CONTINUED,
    DISPERSED,
    GIVEN,
    MOST_UPDATES,
    ONE_STATE,
    RANDOM_START,
    RECORDS,
    SCANS,
    Plan,
    check_temperatures,
)
from minigibbs.samplers import SAMPLERS, PoissonGibbs, Sampler
from minigibbs.samplers.base import check_stored, check_zeros
from minigibbs.samplers.registry import check_colors
from minigibbs.system.boundary import checked

DEFAULT_RECORD = ("marginals", "energy")
DEFAULT_SWEEPS = 1000
WARMUP_SHARE = 4  # recorded updates per update of the default warm-up
MOST_DISPERSED = 64  # most chains of which some begin at constant states
_MOST_SERIES = 1 << 27  # most bytes of observables for which every record is stored
_MOST_UNTIL = 16  # the same in values per record, for a run of unknown length
DEFAULT_RECORDS = 1000  # most large or costly records if `thin` is not given
_MOST_RECORDS = 100_000  # the same of records that are a few numbers


@checked(SampleError)
@dataclass(frozen=True, init=False)
class Record:
    """Quantities that a run records, and how often.

    Parameters
    ----------
    *what : str
        "marginals" (counts over every update), "draws" and "energy" (every `thin`). By default
        marginals and energy; the energy then takes at most about a tenth of the time
        (`run.energy_updates`). Draws have the smallest unsigned type that fits; `run.spins`
        converts them to -1 and +1.
    thin : int, optional
        Sweeps between two records, or updates if the length of the run is given in updates. By
        default one sweep, or more so that a chain has at most 1,000 records with draws, with all
        temperatures, against a reference or on a GPU, and at most 100,000 otherwise.
    variables : iterable of int or str, optional
        The variables whose draws are recorded, by index or name. By default all. Draws then have
        shape [chain, draw, chosen variable], in this order; `run.drawn` has the indices.
        `run.draws_of(variable)` returns the draws of one variable.
    chains : int, optional
        Number of chains whose draws and energies a GPU records, by default 64, evenly spaced. Row k
        of the arrays of the run is chain k * chains // record.chains, and its counts are those of
        all chains from there to the next row.
    temperatures : bool, default False
        Whether `mg.Tempering` records the energies, the observables and the overlaps of two ladders
        at every temperature, not only at the target; see `run.temperatures`.

    Raises
    ------
    SampleError
        If a quantity is unknown or a number is not positive.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2], [1, 2, 3], 0.5)])
    >>> record = mg.Record("draws", thin=5, variables=[0, 3])
    >>> mg.sample(graph, sweeps=100, record=record, progress=False).draws.shape
    (4, 20, 2)
    """

    what: tuple[str, ...]
    thin: int | None
    variables: tuple[int | str, ...] | None
    chains: int | None
    temperatures: bool

    def __init__(
        self,
        *what: str,
        thin: int | None = None,
        variables: Iterable[int | str] | None = None,
        chains: int | None = None,
        temperatures: bool = False,
    ) -> None:
        unknown = [name for name in what if name not in RECORDS]
        if unknown:
            raise SampleError(f"record takes {', '.join(RECORDS)}; got {unknown[0]!r}")
        check_counts(thin=thin, record_chains=chains)
        chosen = None if variables is None else tuple(variables)
        if chosen is not None and not chosen:
            raise SampleError("record: variables must hold at least one; by default all are kept")
        vars(self).update(what=what or DEFAULT_RECORD, thin=thin, variables=chosen, chains=chains)
        vars(self).update(temperatures=temperatures)

    @classmethod
    def read(cls, record: Record | str | Sequence[str]) -> Record:
        """Return a record from itself, a name, or several names."""
        if isinstance(record, Record):
            return record
        several = isinstance(record, Iterable) and not isinstance(record, str)
        names: list[Any] = list(record) if several else [record]
        if not names:
            empty = Record()
            vars(empty).update(what=())
            return empty
        return Record(*names)


@dataclass(frozen=True)
class Options:
    """Common options of `sample`, `sample_until` and the command line; see `mg.sample`."""

    sampler: Sampler | str | None = None
    warmup: int | None = None
    chains: int | None = None
    seed: int | None = None
    start: str | ArrayLike | Run = DISPERSED
    scan: str | None = None
    record: Record | str | Sequence[str] = DEFAULT_RECORD
    progress: bool = True
    threads: int | None = None
    executor: Executor | str | Any = None
    checkpoint: str | os.PathLike[str] | None = None
    every: str | float | None = None
    backend: str = "cpu"
    observe: Observe = None

    @classmethod
    def gather(cls, arguments: Mapping[str, Any]) -> Options:
        """Select the common options from a function's arguments."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})

    def plan(
        self,
        graph: FactorGraph,
        length: int | None,
        unit: int,
        reference: ArrayLike | None = None,
    ) -> Plan:
        """Build the plan. `length` counts units of `unit` updates; None: a goal sets it later."""
        _require_compiler()
        backend, sampler = self._backend(graph), choose(self.sampler)
        check_counts(warmup=self.warmup, chains=self.chains, threads=self.threads)
        if self.scan is not None and (not isinstance(self.scan, str) or self.scan not in SCANS):
            raise SampleError(f"scan must be one of {', '.join(SCANS)}; got {self.scan!r}")
        check_stored(sampler, graph)
        check_zeros(sampler, graph)
        if sampler.sweeps:
            self._check_sweeps(graph, sampler)
        scan = self._scan(backend, sampler, graph, unit)
        if scan == CHROMATIC:
            check_colors(sampler, graph)
        sweeps = sampler.sweeps or scan == CHROMATIC
        if sweeps:
            _check_whole(graph, scan, sampler, length, unit)
        sampler = sampler.settled(graph)
        record, chains = Record.read(self.record), self._chains(backend, sampler, graph)
        if record.temperatures:
            check_temperatures(sampler, graph)
            if not backend.records_temperatures(sampler, graph):
                raise SampleError(
                    f'mg.Record(temperatures=True) with backend="{backend.name}" needs spins with '
                    "pairs and mg.Tempering() without an inner sampler; leave the backend out"
                )
        updates = 0 if length is None else length * unit
        kept = frozenset(record.what)
        chosen = self.record is not DEFAULT_RECORD and record.what is not DEFAULT_RECORD
        rows = _rows(backend, record, chains)
        observe = read_observe(self.observe)
        width = sum(one.bind(graph).width for one in observe.values())
        if record.thin is not None:
            thin = int(record.thin) * unit
        else:
            few = "draws" in kept or reference is not None or record.temperatures
            most = _most_records(rows * (width + 1), few or not backend.spreads(scan))
            least = 1
            if most > DEFAULT_RECORDS:
                least = observing_every(graph, sampler, len(observe), scan == CHROMATIC)
            sweep = max(graph.free, 1)
            thin = _thin(None if length is None else updates, sweep, most, least)
            thin = -(-thin // sweep) * sweep if sweeps else thin
        every = 1
        if not chosen and (backend.spreads(scan) or scan == CHROMATIC):
            share = SHARE_UNTIL if length is None else SHARE
            records = None if length is None else updates // thin
            every = energy_every(graph, sampler, thin, records, share, scan == CHROMATIC)
        if reference is not None and "marginals" not in kept:
            raise SampleError('a reference needs record to hold "marginals"')
        return Plan(
            graph=graph,
            sampler=sampler,
            backend=backend.name,
            chains=chains,
            seed=self._entropy(backend),
            length=updates,
            warmup=self._warmup(length) * unit,
            start=start_kind(self.start),
            scan=scan,
            kept=kept,
            thin=thin,
            rows=rows,
            variables=_variables(record, graph),
            reference=None if reference is None else flat_reference(graph, reference),
            observe=observe,
            series=_keeps_series(width, rows, None if length is None else updates // thin),
            energy_every=every,
            temperatures=record.temperatures and graph.free > 0,
        )

    def _backend(self, graph: FactorGraph) -> Backend:
        if not isinstance(self.backend, str) or self.backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise SampleError(f"backend must be one of {known}; got {self.backend!r}")
        backend = BACKENDS[self.backend]
        backend.check()
        for name in backend.refused:
            if getattr(self, name) is not None:
                raise SampleError(f'{name} is for backend="cpu"; backend="{self.backend}" has none')
        return backend if graph.free else BACKENDS["cpu"]

    def _entropy(self, backend: Backend) -> int:
        """Return the given seed, or a fresh one."""
        seed = entropy_of(self.seed)
        return backend.shared_seed(seed) if self.seed is None else seed

    def _warmup(self, length: int | None) -> int:
        """Return the units of the warm-up; `length` counts recorded units, None if unknown.

        By default a fifth of all updates is warm-up. Chains that continue a run need none. If the
        length is unknown, `sample_until` drops the beginning itself.
        """
        if self.warmup is not None:
            return int(self.warmup)
        return 0 if length is None or isinstance(self.start, Run) else length // WARMUP_SHARE

    def _chains(self, backend: Backend, sampler: Sampler, graph: FactorGraph) -> int:
        if self.chains is not None:
            return int(self.chains)
        if isinstance(self.start, Run):
            return self.start.info.chains
        return backend.default_chains(sampler, graph)

    def _scan(self, backend: Backend, sampler: Sampler, graph: FactorGraph, unit: int) -> str:
        """Return the requested scan, or the fastest one."""
        if sampler.sweeps:
            return OWN_SCAN
        chains = self._chains(backend, sampler, graph)
        return self.scan or backend.choose_scan(sampler, graph, chains, sweeps=unit > 1).scan

    def _check_sweeps(self, graph: FactorGraph, sampler: Sampler) -> None:
        """Refuse options that samplers of whole sweeps do not have."""
        name = type(sampler).__name__
        if self.scan is not None:
            raise SampleError(f"{name} moves all variables at once: it has no scan, leave it out")
        if self.backend not in ("cpu", "mpi") and not sampler.on_gpu:
            raise SampleError(f'{name} runs on backend="cpu"; got backend="{self.backend}"')


def _most_records(numbers: int, few: bool) -> int:
    """Return the most records of a chain by default; `numbers` are those of one record."""
    if few:
        return DEFAULT_RECORDS
    return min(max(_MOST_SERIES // (8 * numbers), DEFAULT_RECORDS), _MOST_RECORDS)


def _thin(updates: int | None, sweep: int, most: int, least: int) -> int:
    """Return the default number of updates between two records.

    There are up to 1,000 records, and up to `most` if they are at least `least` updates apart.
    """
    if updates is None:
        return sweep
    few, many = -(-updates // DEFAULT_RECORDS), -(-updates // most)
    return max(sweep, min(few, max(many, least)))


def _check_whole(
    graph: FactorGraph, scan: str, sampler: Sampler, length: int | None, unit: int
) -> None:
    """Refuse a length in updates for a run of whole sweeps."""
    free = graph.free
    if unit == 1 and length and free > 1:
        who = f'scan="{scan}"' if scan == CHROMATIC else type(sampler).__name__
        raise SampleError(
            f"{who} moves all variables at once: give sweeps, of {free:,} updates each, in "
            "place of updates"
        )


def _keeps_series(width: int, rows: int, records: int | None) -> bool:
    """Return whether every record of observables is stored; a first round's length is unknown."""
    if records is None:
        return width <= _MOST_UNTIL
    return 8 * width * rows * records <= _MOST_SERIES


def _rows(backend: Backend, record: Record, chains: int) -> int:
    """Return the number of chains that are recorded individually."""
    if backend.rows is None:
        if record.chains is not None:
            raise SampleError(
                f'mg.Record(chains=...) is for backend="cuda"; backend="{backend.name}" records '
                "every chain"
            )
        return chains
    return min(record.chains or backend.rows, chains)


def _variables(record: Record, graph: FactorGraph) -> NDArray[np.int32] | None:
    """Return the indices of the variables whose draws are recorded, in order; None for all."""
    if record.variables is None:
        return None
    if "draws" not in record.what:
        raise SampleError(
            'record: variables says whose draws are kept, and none are: add "draws", or leave '
            "variables out"
        )
    numbers = [graph.domains.index(variable) for variable in record.variables]
    seen: set[int] = set()
    for number in numbers:
        if number in seen:
            raise SampleError(f"record: variables holds {graph.domains.describe(number)} twice")
        seen.add(number)
    return np.array(numbers, dtype=np.int32)


def choose(sampler: Sampler | str | None) -> Sampler:
    """Return the sampler itself, by its name, or the default."""
    if sampler is None:
        return PoissonGibbs()
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str) and sampler in SAMPLERS:
        return SAMPLERS[sampler]()
    near = difflib.get_close_matches(str(sampler), SAMPLERS, 1)
    raise SampleError(
        f"sampler must be a sampler such as mg.Gibbs() or one of {', '.join(SAMPLERS)}; "
        f"got {sampler!r}" + (f", did you mean {near[0]!r}?" if near else "")
    )


def run_length(updates: int | None, sweeps: int | None, free: int) -> tuple[int, int]:
    """Return the length of each chain, and its unit in updates: 1, or a sweep."""
    if updates is not None and sweeps is not None:
        raise SampleError("give updates or sweeps, not both")
    check_counts(updates=updates, sweeps=sweeps)
    if updates is not None:
        return int(updates), 1
    return int(DEFAULT_SWEEPS if sweeps is None else sweeps), max(free, 1)


_LEAST = {
    "updates": 0,
    "sweeps": 0,
    "warmup": 0,
    "chains": 1,
    "threads": 1,
    "thin": 1,
    "record_chains": 1,
    "ranks": 1,
}


_MOST_COUNT = 2**53  # most updates, sweeps or chains


def check_counts(**counts: int | None) -> None:
    """Raise an error for a count that is not an integer, or is too small or too large."""
    for name, count in counts.items():
        if count is None:
            continue
        shown = "record: chains" if name == "record_chains" else name
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not whole or count < _LEAST[name]:
            raise SampleError(
                f"{shown} must be an integer of at least {_LEAST[name]}, got {count!r}"
            )
        if count > _MOST_COUNT:
            raise SampleError(f"{shown} must be at most {_MOST_COUNT:,}, got a larger number")


def flat_reference(graph: FactorGraph, reference: ArrayLike) -> NDArray[np.float64]:
    """Return the reference without the entries beyond a variable's domain."""
    shape = (len(graph), int(graph.sizes.max()))
    rule = f"reference must hold real numbers in shape {shape}"
    array = as_array(reference, "iufb", rule).astype(np.float64)
    if array.shape != shape:
        raise SampleError(f"{rule}; got shape {array.shape}")
    return array[np.arange(shape[1]) < graph.sizes[:, None]]


def _require_compiler() -> None:
    """Refuse to sample if Numba does not compile; its GPU simulator does not need to."""
    if numba.config.DISABLE_JIT and not numba.config.ENABLE_CUDASIM:  # type: ignore[attr-defined, unused-ignore]
        raise SampleError(
            "sampling needs compiled code, but NUMBA_DISABLE_JIT is set: remove it from the "
            "environment"
        )


def entropy_of(seed: int | None) -> int:
    """Return the given seed, or a fresh one."""
    if seed is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SampleError(f"seed must be a non-negative integer, got {seed!r}")
    return int(seed)


def start_states(
    graph: FactorGraph, start: str | ArrayLike | Run, chains: int, seed: int
) -> NDArray[Any]:
    """Return one writable state per chain that matches the evidence: [chain, variable]."""
    clamped = graph.evidence >= 0
    if isinstance(start, Run):
        start = _last_states(start)
    if isinstance(start, str):
        start_kind(start)
        states = np.empty((chains, len(graph)), graph.state_type)
        dispersed = start == DISPERSED and 1 < chains <= MOST_DISPERSED
        fill = _filling(graph, _dispersed if dispersed else _marks)
        pieces = [(states[first : first + SEEDED], first) for first in range(0, chains, SEEDED)]
        if len(graph.hard):  # in this thread, where the time limit of the call is known
            for piece, first in pieces:
                fill(piece, graph, first, seed)
        else:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda piece: fill(piece[0], graph, piece[1], seed), pieces))
        states[:, clamped] = graph.evidence[clamped]
        if dispersed:
            _replace_hopeless(states, graph, seed)
        return states
    given = graph.check_states(start)
    if given.ndim == 2 and len(given) != chains:
        raise SampleError(f"start holds {len(given)} states for {chains} chains")
    rows = np.broadcast_to(given, (chains, len(graph)))
    wrong = clamped & (rows != graph.evidence)
    if wrong.any():
        row, variable = np.argwhere(wrong)[0]
        raise SampleError(
            f"start violates the evidence: {graph.domains.describe(int(variable))} is clamped to "
            f"{graph.evidence[variable]}, got {rows[row, variable]}"
        )
    if len(graph.hard):
        _check_possible(graph, given)
    return rows.astype(graph.state_type, copy=True)


def _check_possible(graph: FactorGraph, given: NDArray[Any]) -> None:
    """Refuse an initial state that a factor forbids."""
    for row in np.flatnonzero(np.atleast_1d(graph.log_potential(given)) == -np.inf)[:1]:
        state = np.atleast_2d(given)[row]
        factor = forbidding(graph, state)
        assert factor is not None
        own = graph.packed.factors[factor]
        slots = graph.packed.slots["variable"][own["scope_start"] : own["scope_end"]]
        values = [f"{graph.domains.name(v)} = {state[v]}" for v in slots.tolist()]
        which = f" of chain {row}" if given.ndim == 2 else ""
        raise SampleError(
            f"start: the state{which} has probability 0, since {graph.where(factor)} forbids "
            f'{", ".join(values)}; start="random" finds one that is possible'
        )


def _last_states(run: Run) -> NDArray[Any]:
    if run.state is None:
        raise SampleError(
            "start: this run keeps no last states, since it was saved by minigibbs 0.1; "
            'give a state, or "random"'
        )
    return run.state


def start_kind(start: str | ArrayLike | Run) -> str:
    """Return the kind of initial states; see `Plan.start`."""
    if isinstance(start, Run):
        return CONTINUED
    if isinstance(start, str):
        if start not in (RANDOM_START, DISPERSED):
            known = f'"{DISPERSED}", "{RANDOM_START}"'
            raise SampleError(f"start must be {known}, a state or a run, got {start!r}")
        return start
    try:
        states = np.asarray(start)
    except ValueError:  # ragged: refused when states are checked
        return GIVEN
    same = states.ndim < 2 or bool((states == states[:1]).all())
    return ONE_STATE if same else GIVEN


Marks = Iterator[tuple[int, NDArray[np.float64]]]


def _filling(
    graph: FactorGraph, marks: Callable[[int, FactorGraph, int, int], Marks]
) -> Callable[[NDArray[Any], FactorGraph, int, int], None]:
    """Return a function that computes states from marks, uniform numbers from 0 to 1.

    A mark selects a value of its variable's domain by inversion. In a graph with hard constraints
    only allowed values are selected.
    """
    support = Support(graph) if len(graph.hard) else None

    def fill(states: NDArray[Any], graph: FactorGraph, first: int, seed: int) -> None:
        for begin, some in marks(len(states), graph, first, seed):
            part = states[begin : begin + len(some)]
            if support is None:
                part[:] = some * graph.sizes
            else:
                support.fill(part, some)

    return fill


def _dispersed(chains: int, graph: FactorGraph, first: int, seed: int) -> Marks:
    """Generate marks of overdispersed states.

    Half of the chains, and at least two, begin at constant states: all variables at their first
    value, at their second, and so on. The others begin at random, in pairs of mirrored states. So
    chains begin in different modes of a model with a symmetry, such as the flip of all spins.
    """
    constant = _constant(chains)
    for begin, marks in _marks(chains, graph, first, seed):
        for row, own in enumerate(marks):
            chain = begin + row
            if chain < constant:
                own[:] = (chain % graph.sizes + 0.5) / graph.sizes
            elif (chain - constant) % 2 and row:
                own[:] = np.nextafter(1.0 - marks[row - 1], 0.0)
        yield begin, marks


def _constant(chains: int) -> int:
    """Return the number of chains that begin at constant states."""
    return max(2, chains // 2)


def _replace_hopeless(states: NDArray[Any], graph: FactorGraph, seed: int) -> None:
    """Replace constant states of negligible weight by random ones.

    A state is negligible if another is more probable by a factor above the number of all states.
    Even if all states were as probable as this one, they would weigh less than the other. A chain
    that begins there may never leave, for example at "all records are the same person".
    """
    free = graph.evidence < 0
    energies = np.atleast_1d(graph.log_potential(states[: _constant(len(states))]))
    least = energies.max() - np.log(graph.sizes[free]).sum()
    hopeless = np.flatnonzero(energies < least)
    if len(hopeless) == 0:
        return
    others = start_states(graph, RANDOM_START, len(states), seed)
    states[hopeless] = others[hopeless]


_TOGETHER = 2**20  # uniform numbers generated together


def _marks(chains: int, graph: FactorGraph, first: int, seed: int) -> Marks:
    """Generate blocks of uniform numbers for chains from `first` on, with their offsets.

    The first 4096 chains have one seed each.
    """
    variables = len(graph)
    together = max(1, _TOGETHER // variables)
    seeds = np.random.SeedSequence(seed).spawn(chains) if first == 0 else []
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2**32 - 2, first)))
    for begin in range(0, chains, together):
        rows = min(together, chains - begin)
        if first:
            yield begin, rng.random((rows, variables))
        else:
            own = (np.random.default_rng(s.spawn(1)[0]) for s in seeds[begin : begin + rows])
            yield begin, np.stack([one.random(variables) for one in own])


def unrecorded(
    graph: FactorGraph,
    sampler: Sampler,
    chains: int,
    seed: int,
    backend: str = "cpu",
    scan: str | None = None,
) -> Plan:
    """Return the plan of chains of unlimited length that record nothing.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    sampler : Sampler
        The sampler of the run.
    chains : int
        Number of chains.
    seed : int
        Seed of the random numbers.
    backend : str, default "cpu"
        Backend that runs the chains.
    scan : str, optional
        Order of visits; by default that of `mg.sample`.

    Returns
    -------
    Plan
        All of its updates are warm-up.
    """
    unit = max(graph.free, 1)
    options = Options(
        sampler=sampler, chains=chains, seed=seed, record=(), backend=backend, scan=scan
    )
    return replace(options.plan(graph, 0, unit), warmup=MOST_UPDATES // unit * unit)
