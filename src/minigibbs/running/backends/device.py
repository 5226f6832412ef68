"""Runs on a GPU: memory planned first, launches short enough to watch and to interrupt."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import MissingDependencyError, SampleError, TooLargeError
from minigibbs.kernels.layout import CHANGES, RANDOM, Scan
from minigibbs.kernels.record import mean_error
from minigibbs.kernels.scan import walk
from minigibbs.samplers.base import carries
from minigibbs.system.memory import readable

BACKENDS = ("cpu", "cuda")
DEFAULT_CHAINS = 16384
LANES = 32  # threads of a warp, which go in step
DEFAULT_KEPT = 64  # chains whose energies and draws are kept, if not told otherwise
_LAUNCH_SECONDS = 0.1  # between two looks at Ctrl-C and the progress bar
_FIRST_UPDATES = 64
_PATH = 1 << 16  # steps of a scan that are written down at a time
_COUNT_EVERY = 1024  # updates between two counts of the marginals, or a sweep if that is more
_SHARED_BYTES = 48 * 1024  # what a block may take without asking
_BUFFER_BYTES = 1 << 28  # kept states on the device before they are moved to the host, about
_SPARE_BYTES = 1 << 28  # on the device, for what its driver takes on the way
_MOST_BLOCKS = 65535  # along the second axis of a grid


def load_backend() -> Any:
    """The compiled side, or an error that says what is missing."""
    if not hasattr(np, "row_stack"):  # numba-cuda still asks for what NumPy 2.5 removed
        setattr(np, "row_stack", np.vstack)  # noqa: B010
    try:
        from numba import cuda

        from minigibbs.running.backends import cuda as backend
    except ImportError:
        raise MissingDependencyError(
            'backend="cuda" needs numba-cuda: pip install "minigibbs[cuda]"'
        ) from None
    if not cuda.is_available():
        raise SampleError(
            'backend="cuda" needs an NVIDIA GPU and its driver, and found none; '
            'backend="cpu" runs everywhere'
        )
    return backend


def uses_device(backend: str) -> bool:
    """Whether a backend is a GPU; raises where it is not there, or unknown."""
    if backend not in BACKENDS:
        raise SampleError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if backend == "cuda":
        load_backend()
    return backend == "cuda"


def refuse_on_device(**options: Any) -> None:
    """Raise for what only runs on the CPU offer."""
    for name, value in options.items():
        if value is not None:
            raise SampleError(f'{name} is for backend="cpu"; leave it out for backend="cuda"')


class Records(NamedTuple):
    """What a run on the device leaves; `kept` chains, each at the head of a group of chains."""

    clock: NDArray[np.int64]  # [kept] recorded updates of every chain
    counts: NDArray[np.int64] | None  # [kept, sum of sizes] over the chains of a group
    draws: NDArray[Any] | None  # [kept, record, variable], those chosen
    energy: NDArray[np.float64] | None  # [kept, record]
    error: NDArray[np.float64] | None  # [kept, record]
    tally: NDArray[np.int64]  # [5] over all chains
    warmup: int  # updates of every chain before the recording
    seconds: float
    interrupted: bool


@dataclass
class DeviceRun:
    """Chains on the device, and what is recorded of them.

    Parameters are those of a run: the packed model, the sampler's data, how many chains, the type
    of a state's values, the scan, and how much to keep. `place` puts the chains' beginnings there.
    """

    model: Any
    data: Any
    chains: int
    kind: np.dtype[Any]
    scan: Scan
    carried: int
    scratch: int
    weights: int
    thin: int
    records: int
    kept: int
    marginals: bool
    draws: bool
    energy: bool
    reference: NDArray[np.float64] | None = None
    variables: NDArray[np.int32] | None = None  # whose draws are kept; None for all
    clock: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.backend = load_backend()
        from numba import cuda

        self.cuda = cuda
        _check_data(self.data)
        self._plan_memory()

    def place(self, states: NDArray[Any], streams: NDArray[np.uint64]) -> None:
        """Begin: first states [chain, variable], and streams [chain, 4]."""
        self._place_chains(states, streams)
        self._place_records()
        self._path: Any = None
        self._path_left = 0

    def _plan_memory(self) -> None:
        """Refuse more chains than fit, before anything is taken."""
        self.domain = int(self.model.rows["domain"].max())
        apart = self.scan.kind == RANDOM
        self.rows = self.weights * self.domain
        self.wide = self.rows > self.backend.NARROW or apart or carries(self.data)
        numbers = 4 + self.carried + self.scratch + CHANGES + 1
        numbers += self.rows if self.wide else 0
        each = len(self.model.rows) * self.kind.itemsize + 8 * numbers
        fixed = _bytes(self.model) + _bytes(self.data) + 4 * _PATH + _SPARE_BYTES
        records = self._plan_records()
        free = self.cuda.current_context().get_memory_info().free
        need = fixed + records + each * self.chains
        if need <= free:
            return
        way_out = f"{max((free - fixed - records) // each, 0):,} chains would fit"
        if need - records <= free:
            way_out = (
                f"{readable(records)} of it are for records: use a smaller record_chains, record "
                "less, or draws of fewer variables (record_variables)"
            )
        raise TooLargeError(
            f"{self.chains:,} chains need {readable(need)} on the GPU, but only {readable(free)} "
            f"is free; {way_out}"
        )

    def _plan_records(self) -> int:
        """Choose what is held of the kept chains; returns the bytes that all records take.

        Energies need whole states, draws only the variables chosen.
        """
        every = np.arange(len(self.model.rows), dtype=np.int32)
        self.held: list[NDArray[np.int32]] = []  # by buffer: the first has energies, the last draws
        if self.energy or (self.draws and self.variables is None):
            self.held.append(every)
        if self.draws and self.variables is not None:
            self.held.append(self.variables)
        record = self.kept * self.kind.itemsize * sum(len(held) for held in self.held)
        self.room = min(max(_BUFFER_BYTES // max(record, 1), 1), self.records) if self.held else 0
        size = self.room * (record + (8 * self.kept if self.energy else 0))
        values = int(self.model.rows["domain"].sum(dtype=np.int64)) if self.marginals else 0
        return size + 8 * self.kept * (values + 1)

    def _place_chains(self, states: NDArray[Any], streams: NDArray[np.uint64]) -> None:
        to_device, across = self.cuda.to_device, (self.chains,)

        def zeros(rows: int, kind: Any) -> Any:
            return to_device(np.zeros((rows, *across), kind))

        self.device_model = _to_device(self.cuda, self.model)
        self.device_data = _to_device(self.cuda, self.data)
        self.device_chains = self.backend.Chains(
            x=to_device(np.ascontiguousarray(states.T)),
            streams=to_device(np.ascontiguousarray(streams.T)),
            carried=zeros(self.carried, np.float64),
            weights=zeros(self.rows if self.wide else 0, np.float64),
            scratch=zeros(self.scratch, np.int64),
            tally=zeros(CHANGES + 1, np.int64),
        )
        self.device_scan = _to_device(self.cuda, self.scan)
        self.grid = -(-self.chains // self.backend.THREADS)
        if carries(self.data):
            self.backend.start_chains[self.grid, self.backend.THREADS](
                self.device_data, self.device_model, self.device_chains
            )

    def _place_records(self) -> None:
        to_device, sizes = self.cuda.to_device, self.model.rows["domain"]
        first = np.concatenate([self.model.first, self.model.first[-1:] + sizes[-1:]])
        self.device_first = to_device(first)
        values = int(sizes.sum(dtype=np.int64)) if self.marginals else 0
        self.counts = to_device(np.zeros((self.kept, values), np.int64))
        self.kept_chains = to_device((np.arange(self.kept) * self.chains) // self.kept)
        self.device_held = [to_device(held) for held in self.held]
        self.buffers = [
            self.cuda.device_array((self.room, len(held), self.kept), self.kind)
            for held in self.held
        ]
        self.filled = self.flushed = 0
        drawn = len(self.held[-1]) if self.draws else 0
        self.kept_draws = np.zeros((self.kept, self.records if drawn else 0, drawn), self.kind)
        self.kept_energy = np.zeros((self.kept, self.records if self.energy else 0))
        self.errors: list[NDArray[np.float64]] = []
        self.every = self.scan.variables * -(-_COUNT_EVERY // self.scan.variables)

    def launch(self, updates: int) -> None:
        """Make so many updates of every chain; returns before they are made."""
        arguments = (self.device_data, self.device_model, self.device_chains)
        threads = self.backend.THREADS
        if self.scan.kind == RANDOM:
            kernel = self.backend.advance_apart[self.grid, threads]
            kernel(*arguments, self.device_scan, updates)
        else:
            kernel = self.backend.advance_wide if self.wide else self.backend.advance(self.rows)
            kernel[self.grid, threads](*arguments, self._next_path(updates))

    def _next_path(self, updates: int) -> Any:
        """The next so many variables of the scan that all chains share."""
        if self._path_left < updates or self._path is None:
            steps = np.empty(max(_PATH, updates), np.int32)
            walk(self.scan, steps)
            self._path, self._path_left = self.cuda.to_device(steps), len(steps)
        begun = len(self._path) - self._path_left
        self._path_left -= updates
        return self._path[begun : begun + updates]

    def record_until(self, clock: int) -> None:
        """Run on to a clock, counting and keeping what is due on the way."""
        while self.clock < clock:
            due = min(clock, _next(self.clock, self.thin), _next(self.clock, self.every))
            step = min(due - self.clock, _PATH)
            self.launch(step)
            self.clock += step
            if self.clock % self.every == 0 and self.marginals:
                self._count()
            if self.clock % self.thin == 0:
                self._keep()

    def _count(self) -> None:
        x, threads = self.device_chains.x, self.backend.THREADS
        if 4 * self.domain <= _SHARED_BYTES and self.chains >= LANES * self.kept:
            grid, shared = (x.shape[0], _blocks(self.kept, 1)), 4 * self.domain
            count = self.backend.count_values[grid, threads, 0, shared]
        else:
            count = self.backend.count_wide[(self.grid, _blocks(x.shape[0], 1)), (threads, 1)]
        count(x, self.device_first, self.counts)

    def _keep(self) -> None:
        if self.reference is not None:
            counts = self.counts.copy_to_host()
            self.errors.append(mean_error(counts, self.reference, self.model.first))
        if self.filled == self.room or self.room == 0:
            return
        x, across = self.device_chains.x, -(-self.kept // 32)
        for held, buffer in zip(self.device_held, self.buffers, strict=True):
            keep = self.backend.keep_states[(across, _blocks(len(held), 4)), (32, 4)]
            keep(x, self.kept_chains, held, self.filled, buffer)
        self.filled += 1
        if self.filled == self.room:
            self._flush()

    def _flush(self) -> None:
        """Move what was kept to the host."""
        rows = slice(self.flushed, self.flushed + self.filled)
        if self.filled and self.energy:
            energy = self.cuda.device_array((self.filled, self.kept), np.float64)
            grid = (-(-self.kept // 32), _blocks(self.filled, 4))
            self.backend.state_energies[grid, (32, 4)](self.device_model, self.buffers[0], energy)
            self.kept_energy[:, rows] = energy.copy_to_host().T
        if self.filled and self.draws:
            states = self.buffers[-1][: self.filled].copy_to_host()
            self.kept_draws[:, rows] = states.transpose(2, 0, 1)
        self.flushed, self.filled = rows.stop, 0

    def finish(self, warmup: int, seconds: float, interrupted: bool) -> Records:
        """Gather everything on the host."""
        self._flush()
        if self.marginals and self.clock % self.every:
            self._count()  # the state at the end, so that the shortest run has marginals
        return Records(
            clock=np.full(self.kept, self.clock),
            counts=self.counts.copy_to_host() if self.marginals else None,
            draws=self.kept_draws[:, : self.flushed] if self.draws else None,
            energy=self.kept_energy[:, : self.flushed] if self.energy else None,
            error=np.array(self.errors).T if self.reference is not None else None,
            tally=self.device_chains.tally.copy_to_host().sum(axis=1),
            warmup=warmup,
            seconds=seconds,
            interrupted=interrupted,
        )

    def final_states(self) -> NDArray[Any]:
        """The present states: [chain, variable]."""
        return np.ascontiguousarray(self.device_chains.x.copy_to_host().T)


def run_on_device(run: DeviceRun, warmup: int, length: int, bar: Any) -> Records:
    """Warm up, record, show progress; Ctrl-C keeps what was made until then."""
    run.launch(0)  # compiles
    run.cuda.synchronize()
    interrupted, done, updates = False, 0, _FIRST_UPDATES
    begun = time.perf_counter()
    bar.begin()
    try:
        while done < warmup + length:
            before = time.perf_counter()
            step = min(updates, (warmup if done < warmup else warmup + length) - done)
            if done < warmup:
                step = min(step, _PATH)
                run.launch(step)
            else:
                run.record_until(done - warmup + step)
            run.cuda.synchronize()
            done += step
            now = time.perf_counter()
            updates = max(1, int(updates * min(_LAUNCH_SECONDS / max(now - before, 1e-9), 8.0)))
            bar.advance(step * run.chains)
    except KeyboardInterrupt:
        interrupted = True
        run.cuda.synchronize()
    return run.finish(min(done, warmup), time.perf_counter() - begun, interrupted)


def _check_data(value: Any) -> None:
    """Refuse data that a GPU cannot take: a user's own function."""
    if isinstance(value, tuple):
        for part in value:
            _check_data(part)
    elif not isinstance(value, np.ndarray | int | float | np.generic):
        raise SampleError(
            "estimators of your own (mg.CustomEstimator) run on the CPU only; leave "
            f'backend="cuda" out (it cannot take {type(value).__name__})'
        )


@contextmanager
def without_size_warnings() -> Iterator[None]:
    """Keep Numba from warning that few chains leave most of the GPU idle: the user knows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Grid size")
        yield


def _next(clock: int, spacing: int) -> int:
    return (clock // spacing + 1) * spacing


def _blocks(count: int, each: int) -> int:
    """Blocks along a grid's second axis; kernels go on from the last one with the first."""
    return min(-(-count // each), _MOST_BLOCKS)


def _to_device(cuda: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return type(value)(*(_to_device(cuda, part) for part in value))
    return cuda.to_device(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(_bytes(part) for part in value)
    return int(value.size * value.itemsize) if isinstance(value, np.ndarray) else 0
