"""One model on many processes, by MPI: each rank updates its part of every color.

Rank 0 runs the loop and writes checkpoints. It controls the tiles of the other ranks: `_Shared`
broadcasts the name of a tile's method, and all ranks call it together. After its part of a color, a
rank exchanges the values that others need. Random bits do not depend on the partition, and sums
are sums of integers. Rank 0 computes everything else. So results are bit-identical on any
number of ranks.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.errors import SampleError
from minigibbs.graph.encoding import encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.results.run import Run
from minigibbs.running.backends.base import Start
from minigibbs.running.backends.cpu import CpuBackend
from minigibbs.running.backends.lockstep import LockstepGroup, lockstep_groups
from minigibbs.running.group import Group
from minigibbs.running.plan import CHROMATIC, Plan
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.lattice import BITS, Lattice
from minigibbs.samplers.chromatic.small_tiles import SmallTile
from minigibbs.samplers.chromatic.spin_tiles import SpinTile
from minigibbs.samplers.chromatic.stencil_bits import StencilBits
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile
from minigibbs.samplers.chromatic.tile import Tile
from minigibbs.samplers.registry import CPU, ScanChoice, chromatic_layout
from minigibbs.system.memory import readable
from minigibbs.system.optional import optional

PATIENCE = 120.0  # seconds that ranks wait for each other before the first sweep
_POLL = 0.001
_SHARED = (StencilTile, SpinTile, SmallTile)  # tiles that processes can share

_LED = ("length",)  # options that rank 0 decides alone
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # set by launchers

Ranges = list[tuple[int, int]]


def cuts(begin: int, end: int, ranks: int, slab: int = 1) -> list[int]:
    """Return the bounds of the parts of all ranks; parts are whole slabs.

    >>> cuts(0, 10, 3)
    [0, 3, 6, 10]
    """
    slabs = -(-(end - begin) // slab)
    return [min(begin + slab * (slabs * rank // ranks), end) for rank in range(ranks + 1)]


class Partition:
    """Partition of the updates over ranks, and the values that they exchange, color by color.

    A lattice is cut into slabs along its first axis, and a rank needs the slabs next to its own.
    For any other graph, every rank needs all values.
    """

    def __init__(self, ends: NDArray[np.int64], ranks: int, lattice: Lattice | None) -> None:
        self.ranks = ranks
        self.colors = [tuple(pair) for pair in pairwise(ends.tolist())]
        self.slab, self.reach, self.wraps = 1, 0, False
        if lattice is not None:
            self.slab, self.reach, self.wraps = _slabs(lattice)
        self.cuts = [cuts(begin, end, ranks, self.slab) for begin, end in self.colors]
        self._lattice = lattice

    def own(self, color: int, rank: int) -> tuple[int, int]:
        """Return the range of a color that a rank updates."""
        return self.cuts[color][rank], self.cuts[color][rank + 1]

    def sent(self, color: int, source: int, target: int) -> Ranges:
        """Return the ranges of a color that one rank sends to another after updating them."""
        begin, end = self.own(color, source)
        if source == target or begin == end:
            return []
        if self._lattice is None:
            return [(begin, end)]
        first, last = self.own(color, target)
        if first == last:
            return []
        lowest, highest = self.colors[color]
        halo = self.reach * self.slab
        needed = [(first - halo, first), (last, last + halo)]
        length, found = highest - lowest, set()
        for low, high in needed:
            for shift in (-length, 0, length) if self.wraps else (0,):
                one, other = max(low + shift, begin), min(high + shift, end)
                if one < other:
                    found.add((one, other))
        return _merged(sorted(found))


def _merged(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for low, high in ranges:
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def _slabs(lattice: Lattice) -> tuple[int, int, bool]:
    """Return units per slab, reach of neighbors in slabs, and whether the first axis wraps."""
    wraps = bool(lattice.wraps[0])
    steps = int(np.abs(lattice.offset[:, 0]).max(initial=0))
    if len(lattice.shape) > 1:
        return lattice.units // int(lattice.shape[0]), steps, wraps
    return 1, -(-steps // (lattice.colors * BITS)) + 1, wraps


def describe_ranks(sampler: Sampler, graph: FactorGraph, ranks: int) -> str:
    """Describe the work and messages of each of several ranks.

    Parameters
    ----------
    sampler : Sampler
        The sampler of the run.
    graph : FactorGraph
        The model.
    ranks : int
        Number of processes.

    Returns
    -------
    str
        Two sentences.
    """
    layout = chromatic_layout(sampler, graph, CPU)
    most = -(-graph.free // ranks)
    if layout.data is not StencilBits:
        whole = most * (ranks - 1)
        return (
            f"{ranks} ranks: each updates about {most:,} variables. After each color a rank sends "
            f"its values to all others: {readable(whole)} per chain and sweep; few ranks gain."
        )
    lattice = layout.lay_out(sampler, graph).lattice
    partition = Partition(np.arange(lattice.colors + 1) * lattice.units, ranks, lattice)
    colors, every = range(lattice.colors), range(ranks)
    words = [sum(end - begin for begin, end in _owned(partition, rank)) for rank in every]
    sent = [
        [
            high - low
            for color in colors
            for other in every
            for low, high in partition.sent(color, rank, other)
        ]
        for rank in every
    ]
    idle = words.count(0)
    text = (
        f"{ranks} ranks: each updates up to {max(words) * BITS:,} variables. A rank sends up to "
        f"{readable(4 * max(map(sum, sent)))} in {max(map(len, sent))} messages per chain and sweep"
    )
    return text + (f"; {idle} ranks have nothing to do." if idle else ".")


def _owned(partition: Partition, rank: int) -> Ranges:
    return [partition.own(color, rank) for color in range(len(partition.colors))]


class _Shared:
    """A tile that ranks share. Rank 0 calls its methods; the other ranks call `obey`."""

    def __init__(self, tile: Tile, number: int, comm: Any) -> None:
        self.tile, self.number, self.comm = tile, number, comm
        lattice = tile.data.lattice if isinstance(tile, StencilTile) else None
        self.partition = Partition(tile._ends(), comm.size, lattice)
        tile.spread = self._spread

    spins = property(lambda self: self.tile.spins)
    chains = property(lambda self: self.tile.chains)
    first = property(lambda self: self.tile.first, lambda self, first: self.call("place", first))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method on all ranks."""
        self.comm.bcast((self.number, name, arguments), root=0)
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
        self._gather(self._arrays())
        return self.tile.energies() if self.comm.rank == 0 else None

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
        return self.tile.chains if isinstance(self.tile, StencilTile) else 1

    def _gather(self, arrays: int) -> None:
        """Gather the first `arrays` shares of all ranks."""
        for color in range(len(self.partition.colors)):
            parts = [
                self.tile.shares(*self.partition.own(color, rank))[:arrays]
                for rank in range(self.comm.size)
            ]
            for several in zip(*parts, strict=True):
                for rank, (array, low, high) in enumerate(several):
                    if low < high:
                        self.comm.Bcast(_bytes(array, low, high), root=rank)

    def _spread(self, tile: Tile, sweep: int, sweeps: int, counting: bool) -> None:
        """Sweep over this rank's part of every color, and exchange what others need.

        Units to send are updated first, so that transfers overlap the other updates.
        """
        for number in range(sweep, sweep + sweeps):
            for color in range(len(self.partition.colors)):
                begin, end = self.partition.own(color, self.comm.rank)
                outgoing, incoming = self._routes(color)
                first = _merged(sorted({part for _, ranges in outgoing for part in ranges}))
                for low, high in first:
                    tile.noted += tile._sweep(low, high, number, 1, counting)
                requests = self._post(tile, outgoing, incoming)
                for low, high in _between(begin, end, first):
                    tile.noted += tile._sweep(low, high, number, 1, counting)
                for request in requests:
                    request.Wait()

    def _routes(self, color: int) -> tuple[list[tuple[int, Ranges]], list[tuple[int, Ranges]]]:
        """Return the ranges sent to and received from each rank."""
        me, ranks = self.comm.rank, range(self.comm.size)
        outgoing = [(rank, self.partition.sent(color, me, rank)) for rank in ranks]
        incoming = [(rank, self.partition.sent(color, rank, me)) for rank in ranks]
        return outgoing, incoming

    def _post(
        self,
        tile: Tile,
        outgoing: list[tuple[int, Ranges]],
        incoming: list[tuple[int, Ranges]],
    ) -> list[Any]:
        """Start all transfers of states."""
        requests, states = [], self._arrays()
        for rank, ranges in incoming:
            for part in ranges:
                for array, low, high in tile.shares(*part)[:states]:
                    requests.append(self.comm.Irecv(_bytes(array, low, high), source=rank))
        for rank, ranges in outgoing:
            for part in ranges:
                for array, low, high in tile.shares(*part)[:states]:
                    requests.append(self.comm.Isend(_bytes(array, low, high), dest=rank))
        return requests


def _between(begin: int, end: int, taken: Ranges) -> Ranges:
    """Return the parts of a range outside `taken`."""
    left = []
    for low, high in taken:
        if begin < low:
            left.append((begin, low))
        begin = max(begin, high)
    return [*left, (begin, end)] if begin < end else left


def _bytes(array: NDArray[Any], low: int, high: int) -> NDArray[np.uint8]:
    """View rows of an array as bytes."""
    return array[low:high].reshape(-1).view(np.uint8)


class MpiGroup(LockstepGroup):
    """Chains that all ranks advance together."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not isinstance(self.tile, _SHARED):
            raise SampleError(
                'backend="mpi" splits graphs of spins or small domains whose factors are all '
                "evaluated; this one has another layout"
            )
        self.tile: Any = _Shared(self.tile, self.number, world())

    def share(self, threads: int) -> None:
        """Do nothing: ranks replace threads."""


def follows() -> bool:
    """Return whether this process was launched with a rank other than 0."""
    return any(os.environ.get(name, "0") != "0" for name in _RANKS) and world().rank > 0


def world() -> Any:
    """Return the communicator of all ranks."""
    return optional("mpi4py.MPI", "mpi").COMM_WORLD


class MpiBackend(CpuBackend):
    """Backend that splits one model over the processes of `mpiexec` or `srun`."""

    name = "mpi"
    device = CPU
    chains = 1
    in_threads = False
    refused: ClassVar[tuple[str, ...]] = ("executor", "threads")
    _waiting = False  # whether other ranks wait for this one

    def check(self) -> None:
        """Raise an error if mpi4py is missing."""
        world()

    def choose_scan(
        self, sampler: Sampler, graph: FactorGraph, chains: int, sweeps: bool
    ) -> ScanChoice:
        """Choose the chromatic scan, the only one that ranks can share; see `prepare`."""
        return ScanChoice(CHROMATIC, "ranks update their parts of a color at the same time")

    def prepare(self, plan: Plan) -> Any:
        """Return the layout of the chromatic scan."""
        if plan.scan != CHROMATIC:
            raise SampleError(
                f'backend="mpi" needs scan="chromatic", got "{plan.scan}" with {plan.sampler}'
            )
        return super().prepare(plan)

    def groups(self, plan: Plan, data: Any, start: Start, counted: bool = False) -> list[Group]:
        """Create all chains, at the same initial states on all ranks."""
        header, _ = plan.encode()
        key = json.dumps(header | dict.fromkeys(_LED), sort_keys=True, default=str)
        prepared(plan.graph, "mpi", key, lambda: _agree(plan), most=1)
        self._waiting = world().rank == 0
        return lockstep_groups(plan, data, start(), MpiGroup)

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
        comm.bcast((None, "ended", result), root=0)
        return result

    def release(self, error: BaseException) -> None:
        """Report a failure of rank 0 to the ranks that wait for it."""
        if self._waiting:
            self._waiting = False
            world().bcast((None, "failed", f"{type(error).__name__}: {error}"), root=0)


def _follow(comm: Any, groups: list[Group]) -> Run:
    """Execute the calls of rank 0 until the run ends."""
    while True:
        number, name, given = comm.bcast(None, root=0)
        if name == "ended":
            return given  # type: ignore[no-any-return]
        if name == "failed":
            raise SampleError(f"the run ended on rank 0: {given}")
        try:
            group = groups[number]
            assert isinstance(group, MpiGroup)
            group.tile.obey(name, given)
        except BaseException as error:
            _abort(comm, f"{type(error).__name__}: {error}")
            raise


def _abort(comm: Any, text: str) -> None:
    """End all ranks, because the others would wait for this one."""
    print(f"minigibbs: rank {comm.rank} of {comm.size} failed: {text}", file=sys.stderr, flush=True)
    comm.Abort(1)


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
