"""One model on many processes, by MPI: each rank updates its part of every color.

Rank 0 runs the loop and writes checkpoints. It controls the tiles of the other ranks: `_Shared`
broadcasts the name of a tile's method, and all ranks call it together. After its part of a color, a
rank exchanges the values that others need. Random bits do not depend on the partition, and sums
are sums of integers. Rank 0 computes everything else. So results are bit-identical on any
number of ranks.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.errors import MissingDependencyError, SampleError
from minigibbs.graph.encoding import encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.results.run import Run
from minigibbs.running.backends.base import Start
from minigibbs.running.backends.cpu import CpuBackend
from minigibbs.running.backends.lockstep import LockstepGroup, lockstep_groups
from minigibbs.running.backends.partition import NO_PARTS, Partition, Ranges, Routes, routes
from minigibbs.running.backends.parts import NUMBERS, Parts, parts_of
from minigibbs.running.group import Group
from minigibbs.running.plan import CHROMATIC, Plan
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.small import SmallColors
from minigibbs.samplers.chromatic.small_tiles import SmallTile
from minigibbs.samplers.chromatic.spin_tiles import SpinTile
from minigibbs.samplers.chromatic.spins import SpinColors
from minigibbs.samplers.chromatic.stencil_tiles import LatticeTile, StencilTile
from minigibbs.samplers.chromatic.tile import Tile
from minigibbs.samplers.registry import CPU, ScanChoice
from minigibbs.system.optional import optional
from minigibbs.system.watch import current

PATIENCE = 120.0  # seconds that ranks wait for each other before the first sweep
_POLL = 0.001
_SHARED = (LatticeTile, SpinTile, SmallTile)  # tiles that processes can share

_LED = ("length",)  # options that rank 0 decides alone
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # set by launchers
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")  # set by launchers
_MESSAGE = 1 << 30  # most bytes of a message: some libraries count them in 32 bits


class _Shared:
    """A tile that ranks share. Rank 0 calls its methods; the other ranks call `obey`."""

    def __init__(self, tile: Tile, number: int, comm: Any, parts: Parts) -> None:
        self.tile, self.number, self.comm, self.parts = tile, number, comm, parts
        lattice = tile.data.lattice if isinstance(tile, LatticeTile) else None
        self.partition = Partition(tile._ends(), comm.size, lattice, self.parts.cuts)
        self.routes = routes(tile, self.partition, comm.rank)
        colors = range(len(self.partition.colors))
        tile.hold([self.partition.own(color, comm.rank) for color in colors])
        tile.spread = self._spread

    spins = property(lambda self: self.tile.spins)
    chains = property(lambda self: self.tile.chains)
    first = property(lambda self: self.tile.first, lambda self, first: self.call("place", first))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method on all ranks."""
        tell(self.comm, (self.number, name, arguments))
        return self.obey(name, arguments)

    def obey(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Execute a method that rank 0 called."""
        return getattr(self, f"_{name}")(*arguments)

    def states(self) -> NDArray[Any]:
        """Return the states."""
        return self.call("states")  # type: ignore[no-any-return]

    def load(self, states: NDArray[Any]) -> None:
        """Load states."""
        self.call("load", states)

    def compile(self) -> None:
        """Compile on all ranks."""
        self.call("compile")

    def energies(self) -> NDArray[np.float64]:
        """Return the energies of the states."""
        return self.call("energies")  # type: ignore[no-any-return]

    def spin_sums(self, terms: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sums over spins."""
        self.call("gather", 1)
        return self.tile.spin_sums(terms, ends)

    def advance(self, sweep: int, sweeps: int, counting: bool) -> None:
        """Make this number of sweeps, beginning with number `sweep`."""
        self.call("advance", sweep, sweeps, counting)

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the counters of the first chains."""
        return self.call("tally", chains)  # type: ignore[no-any-return]

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Count the sweeps after which each value was present."""
        return self.call("counts", sweeps)  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Reset counts and counters."""
        self.call("clear")

    def _place(self, first: int) -> None:
        self.tile.first = first

    def _compile(self) -> None:
        self.tile.compile()

    def _load(self, states: NDArray[Any]) -> None:
        self.tile.load(states)

    def _clear(self) -> None:
        self.tile.clear()

    def _advance(self, sweep: int, sweeps: int, counting: bool) -> None:
        self.tile.advance(sweep, sweeps, counting)

    def _states(self) -> NDArray[Any] | None:
        self._gather(self._arrays())
        return self.tile.states() if self.comm.rank == 0 else None

    def _energies(self) -> NDArray[np.float64] | None:
        if isinstance(self.tile, StencilTile) and self.tile.countable:
            every = range(len(self.partition.colors))
            parts = (self.partition.own(color, self.comm.rank) for color in every)
            counts = sum(self.tile.satisfied(*part) for part in parts)  # of values that are here
            return self.tile.energies_of(self.comm.allreduce(counts))
        self._gather(self._arrays())
        return self._ordered_energies() if self.comm.rank == 0 else None

    def _ordered_energies(self) -> NDArray[np.float64]:
        """Compute energies as one machine does, which adds numbers in the order of its places."""
        order = self.parts.order
        if order is None:
            return self.tile.energies()
        tile: Any = self.tile
        states, data = tile.x, tile.data
        tile.x, tile.data = states[order], self.parts.original
        try:
            return self.tile.energies()
        finally:
            tile.x, tile.data = states, data

    def _counts(self, sweeps: int) -> NDArray[np.int64] | None:
        self.tile._flush()
        self._gather(len(self.tile.shares(0, 0)))
        return self.tile.counts(sweeps) if self.comm.rank == 0 else None

    def _tally(self, chains: int) -> NDArray[np.int64]:
        own = self.tile.noted
        self.tile.noted = self.comm.allreduce(own)
        tally = self.tile.tally(chains)
        self.tile.noted = own
        return tally

    def _arrays(self) -> int:
        """Return how many of the tile's shares are states."""
        return self.tile.chains if isinstance(self.tile, LatticeTile) else 1

    def _gather(self, arrays: int) -> None:
        """Send the first `arrays` shares of all ranks to rank 0."""
        me, requests = self.comm.rank, []
        for rank in range(1, self.comm.size) if me == 0 else (me,) if me else ():
            for color in range(len(self.partition.colors)):
                part = self.partition.own(color, rank)
                for array, low, high in self.tile.shares(*part)[:arrays]:
                    for piece in pieces(array[low:high]):
                        move = self.comm.Isend if me else self.comm.Irecv
                        requests.append(move(piece, 0 if me else rank))
        finish(requests)

    def _spread(self, tile: Tile, sweep: int, sweeps: int, counting: bool) -> None:
        """Sweep over this rank's part of every color, and exchange what others need.

        Units to send are updated first, so that transfers overlap the other updates.
        """
        for number in range(sweep, sweep + sweeps):
            for color, own in enumerate(self.routes):
                begin, end = self.partition.own(color, self.comm.rank)
                for low, high in own.early:
                    tile.noted += tile._sweep(low, high, number, 1, counting)
                requests, kept, arrived = self._post(own)
                for low, high in _between(begin, end, own.early):
                    tile.noted += tile._sweep(low, high, number, 1, counting)
                finish(requests)
                for array, places, values in arrived:
                    array[places] = values
                del kept

    def _post(self, own: Routes) -> tuple[list[Any], list[Any], list[Any]]:
        """Start all transfers of a color.

        Returns
        -------
        requests, kept, arrived : list
            What to wait for; buffers to keep until then; arrays, places, and their new values.
        """
        requests: list[Any] = []
        kept: list[Any] = []
        arrived: list[Any] = []
        for rank, what in own.received:
            for array, where in self._cells(what):
                buffer = array[where]  # a view of a range, or a copy of places
                requests += [self.comm.Irecv(piece, rank) for piece in pieces(buffer)]
                if not isinstance(where, slice):
                    arrived.append((array, where, buffer))
        for rank, what in own.sent:
            for array, where in self._cells(what):
                kept.append(array[where])
                requests += [self.comm.Isend(piece, rank) for piece in pieces(kept[-1])]
        return requests, kept, arrived

    def _cells(self, what: Any) -> list[tuple[NDArray[Any], Any]]:
        """Return arrays of states, each with the entries of a message."""
        if isinstance(what, tuple):
            shares = self.tile.shares(*what)[: self._arrays()]
            return [(array, slice(low, high)) for array, low, high in shares]
        return [(self.tile.shares(0, 0)[0][0], what)]


def finish(requests: list[Any]) -> None:
    """Wait for transfers, and let other processes use the core meanwhile.

    MPI itself waits in a loop, so ranks that share a core would delay each other.
    """
    for request in requests:
        while not request.Test():
            os.sched_yield()


def tell(comm: Any, what: Any = None) -> Any:
    """Send an object from rank 0 to all ranks, and return it."""
    data = np.frombuffer(pickle.dumps(what) if comm.rank == 0 else b"", np.uint8)
    length = np.array([len(data)])
    finish([comm.Ibcast(length, root=0)])
    if comm.rank:
        data = np.empty(int(length[0]), np.uint8)
    for piece in pieces(data):
        finish([comm.Ibcast(piece, root=0)])
    return what if comm.rank == 0 else pickle.loads(data.tobytes())


def _between(begin: int, end: int, taken: Ranges) -> Ranges:
    """Return the parts of a range outside `taken`."""
    left = []
    for low, high in taken:
        if begin < low:
            left.append((begin, low))
        begin = max(begin, high)
    return [*left, (begin, end)] if begin < end else left


def pieces(array: NDArray[Any]) -> list[NDArray[np.uint8]]:
    """View a contiguous array as pieces that one message can hold."""
    flat = array.reshape(-1).view(np.uint8)
    return [flat[first : first + _MESSAGE] for first in range(0, len(flat), _MESSAGE)]


class MpiGroup(LockstepGroup):
    """Chains that all ranks advance together."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not isinstance(self.tile, _SHARED):
            raise SampleError(f'backend="mpi": {NO_PARTS}')
        self.tile: Any = _Shared(self.tile, self.number, world(), _parts(self.plan))

    def share(self, threads: int) -> None:
        """Do nothing: ranks replace threads."""


def follows() -> bool:
    """Return whether this process was launched with a rank other than 0."""
    return any(os.environ.get(name, "0") != "0" for name in _RANKS) and world().rank > 0


def world() -> Any:
    """Return the communicator of all ranks."""
    try:
        return optional("mpi4py.MPI", "mpi").COMM_WORLD
    except RuntimeError as error:  # of mpi4py, if it finds no MPI library
        raise MissingDependencyError(
            "mpi4py finds no MPI library: load the MPI module of your cluster, or "
            f"pip install mpich. It reports: {' '.join(str(error).split())}"
        ) from None


def _check_launch(comm: Any) -> None:
    """Refuse processes of one launch that are not connected: each would run the whole job."""
    started = {name: os.environ.get(name, "") for name in _SIZES}
    for name, size in started.items():
        if comm.size == 1 and size.isdigit() and int(size) > 1:
            raise SampleError(
                f'backend="mpi": {size} processes were launched ({name}), but they are not '
                "connected. Launch them with the mpiexec of the MPI library that mpi4py uses "
                f"({_library()}), or with srun --mpi=pmix or --mpi=pmi2"
            )


def _library() -> str:
    version: str = optional("mpi4py.MPI", "mpi").Get_library_version()
    return " ".join(version.split())[:40]


class MpiBackend(CpuBackend):
    """Backend that splits one model, or chains, over the processes of `mpiexec` or `srun`."""

    name = "mpi"
    device = CPU
    chains = 1
    in_threads = False
    refused: ClassVar[tuple[str, ...]] = ("executor", "threads")
    _waiting = False  # whether other ranks wait for this one

    def check(self) -> None:
        """Raise an error if MPI is missing, or if the processes of a launch do not find it."""
        _check_launch(world())

    def choose_scan(
        self, sampler: Sampler, graph: FactorGraph, chains: int, sweeps: bool
    ) -> ScanChoice:
        """Choose the chromatic scan, the only one in which ranks can share a model."""
        return ScanChoice(CHROMATIC, "ranks update their parts of a color at the same time")

    def prepare(self, plan: Plan) -> Any:
        """Return the layout of a shared model, or the data of chains that are spread over ranks."""
        return _parts(plan).data

    def groups(self, plan: Plan, data: Any, start: Start, counted: bool = False) -> list[Group]:
        """Create all chains, at the same initial states on all ranks."""
        header, _ = plan.encode()
        key = json.dumps(header | dict.fromkeys(_LED), sort_keys=True, default=str)
        prepared(plan.graph, "mpi", key, lambda: _agree(plan), most=1)
        self._waiting = world().rank == 0
        if plan.scan != CHROMATIC:
            return super().groups(plan, data, start, counted)
        return lockstep_groups(plan, data, start(), MpiGroup)

    def spreads(self, scan: str) -> bool:
        """Return whether ranks share chains instead of a model."""
        return scan != CHROMATIC

    def default_chains(self, sampler: Sampler, graph: FactorGraph) -> int:
        """Return 1, or the default of a CPU if chains are spread over ranks."""
        return CpuBackend.chains if sampler.sweeps else self.chains

    def shared_seed(self, seed: int) -> int:
        """Return the seed of rank 0."""
        return int(_patiently(world(), str(seed))[0])

    def together(self, groups: list[Group], run: Callable[[], Run]) -> Run:
        """Run on rank 0 and follow on the others; all return the run."""
        comm = world()
        if comm.rank:
            return _follow(comm, groups)
        try:
            result = run()
        except BaseException as error:
            self.release(error)
            raise
        self._waiting = False
        tell(comm, (None, "ended", None))
        _share(comm, result, result.domains)
        return result

    def release(self, error: BaseException) -> None:
        """Report a failure of rank 0 to the ranks that wait for it."""
        if self._waiting:
            self._waiting = False
            tell(world(), (None, "failed", f"{type(error).__name__}: {error}"))


def _follow(comm: Any, groups: list[Group]) -> Run:
    """Execute the calls of rank 0 until the run ends. Rank 0 decides what signals do."""
    plan = groups[0].plan
    with current().noted():
        while True:
            number, name, given = tell(comm)
            if name == "ended":
                return _share(comm, None, plan.graph.domains)
            if name == "failed":
                raise SampleError(f"the run ended on rank 0: {given}")
            try:
                if name == "spread":  # chains, which come one by one
                    follow, key = given
                    follow(comm, plan, _parts(plan).data, key)
                    continue
                group = groups[number]
                assert isinstance(group, MpiGroup)
                group.tile.obey(name, given)
            except BaseException as error:
                _abort(comm, f"{type(error).__name__}: {error}")
                raise


class _Pickler(pickle.Pickler):
    """Pickles a run without its domains, which every rank has, and leaves its arrays in place."""

    def __init__(self, file: io.BytesIO, domains: Any, keep: Callable[[Any], Any]) -> None:
        super().__init__(file, protocol=5, buffer_callback=keep)
        self.domains = domains

    def persistent_id(self, obj: Any) -> str | None:
        """Return the name of an object that is not pickled."""
        return "domains" if obj is self.domains else None


class _Unpickler(pickle.Unpickler):
    """The inverse of `_Pickler`."""

    def __init__(self, data: bytes, domains: Any, buffers: list[NDArray[np.uint8]]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.domains = domains

    def persistent_load(self, pid: Any) -> Any:
        """Return the rank's own object."""
        return self.domains


def _share(comm: Any, run: Run | None, domains: Any) -> Run:
    """Send the run of rank 0 to all ranks; arrays are sent without a copy."""
    kept: list[NDArray[np.uint8]] = []
    file = io.BytesIO()
    if run is not None:

        def keep(buffer: Any) -> None:
            kept.append(np.frombuffer(buffer.raw(), np.uint8))

        _Pickler(file, domains, keep).dump(run)
    data, sizes = tell(comm, (file.getvalue(), [len(one) for one in kept]))
    buffers = kept if run is not None else [np.empty(size, np.uint8) for size in sizes]
    for buffer in buffers:
        for piece in pieces(buffer):
            finish([comm.Ibcast(piece, root=0)])
    if run is not None:
        return run
    received: Run = _Unpickler(data, domains, buffers).load()
    return received


def _abort(comm: Any, text: str) -> None:
    """End all ranks, because the others would wait for this one."""
    print(f"minigibbs: rank {comm.rank} of {comm.size} failed: {text}", file=sys.stderr, flush=True)
    comm.Abort(1)


def _parts(plan: Plan) -> Parts:
    """Return the data of a plan, in parts of all ranks; once per graph and number of ranks."""
    ranks = world().size

    def make() -> Parts:
        data = CpuBackend.prepare(BACKEND, plan)
        if isinstance(data, SpinColors | SmallColors):
            return parts_of(data, ranks)
        return Parts(data, None, None, None, NUMBERS)

    key = (plan.sampler, str(plan.sampler), plan.scan == CHROMATIC, ranks)
    return prepared(plan.graph, "parts", key, make)


def _agree(plan: Plan) -> None:
    """Raise an error on every rank if ranks make different calls."""
    comm = world()
    header, arrays = plan.encode()
    model, model_arrays = encode(plan.graph)
    own = {
        "version of minigibbs": __version__,
        "seed": str(plan.seed),
        "graph": _digest(model, model_arrays),
        "options": _digest(header | dict.fromkeys(("seed", *_LED)), arrays),
        "partition (is pymetis on all machines?)": _parts(plan).how,
    }
    every = [json.loads(text) for text in _patiently(comm, json.dumps(own))]
    for what in own:
        others = [rank for rank, one in enumerate(every) if one[what] != every[0][what]]
        if others:
            shown = f"{every[0][what]} and {every[others[0]][what]}"
            told = f": {shown}" if what in ("seed", "version of minigibbs") else ""
            raise SampleError(
                f'backend="mpi": rank 0 and rank {others[0]} disagree on the {what}{told}. All '
                f"{comm.size} ranks must make the same call"
            )


def _digest(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True, default=str).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _patiently(comm: Any, text: str) -> list[str]:
    """Gather the texts of all ranks; if one is missing too long, abort with a message."""
    length = np.zeros(comm.size, np.int64)
    _wait(comm, comm.Iallgather(np.array([len(text.encode())]), length))
    out = np.empty(int(length.sum()), np.uint8)
    starts = np.cumsum(length) - length
    own = np.frombuffer(text.encode(), np.uint8)
    kind = optional("mpi4py.MPI", "mpi").BYTE
    _wait(comm, comm.Iallgatherv(own, [out, length, starts, kind]))
    return [
        out[first : first + size].tobytes().decode()
        for first, size in zip(starts.tolist(), length.tolist(), strict=True)
    ]


def _wait(comm: Any, request: Any) -> None:
    begun = time.monotonic()
    while not request.Test():
        if time.monotonic() - begun > PATIENCE:
            text = f"after {PATIENCE:g} s not all {comm.size} ranks have begun the same run"
            _abort(comm, text)
            raise SampleError(f'backend="mpi": {text}')
        time.sleep(_POLL)


BACKEND = MpiBackend()
