"""What a user asks of a run: checked, and put into the terms of `minigibbs.running.plan`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.checks import as_array
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import RANDOM, SHARED, SHUFFLED, SYSTEMATIC
from minigibbs.kernels.random import SEEDED
from minigibbs.samplers import SAMPLERS, PoissonGibbs, Sampler

SCANS = {"random": RANDOM, "systematic": SYSTEMATIC, "shuffled": SHUFFLED, "shared": SHARED}
RECORDS = ("marginals", "draws", "energy")
DEFAULT_RECORD = ("marginals", "energy")
DEFAULT_SWEEPS = 1000
DEFAULT_RECORDS = 1000  # at the most, where `thin` is left out


def choose(sampler: Sampler | str | None) -> Sampler:
    """The sampler that is meant: itself, by its name, or the default."""
    if sampler is None:
        return PoissonGibbs()
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str) and sampler in SAMPLERS:
        return SAMPLERS[sampler]()
    raise SampleError(
        f"sampler must be a sampler such as mg.Gibbs() or one of {', '.join(SAMPLERS)}; "
        f"got {sampler!r}"
    )


def run_length(updates: int | None, sweeps: int | None, free: int) -> int:
    """How many updates each chain makes."""
    if updates is not None and sweeps is not None:
        raise SampleError("give updates or sweeps, not both")
    check_counts(updates=updates, sweeps=sweeps)
    if updates is not None:
        return int(updates)
    return int(DEFAULT_SWEEPS if sweeps is None else sweeps) * max(free, 1)


_LEAST = {
    "updates": 0,
    "sweeps": 0,
    "warmup": 0,
    "chains": 1,
    "threads": 1,
    "thin": 1,
    "record_chains": 1,
}


def check_counts(**counts: int | None) -> None:
    """Raise for a count that is no integer, or too small."""
    for name, count in counts.items():
        if count is None:
            continue
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not whole or count < _LEAST[name]:
            raise SampleError(
                f"{name} must be an integer of at least {_LEAST[name]}, got {count!r}"
            )


def what_to_keep(
    record: str | Sequence[str], reference: ArrayLike | None, graph: FactorGraph
) -> frozenset[str]:
    """What is recorded; energies of factors that are never stored are not."""
    several = isinstance(record, Iterable) and not isinstance(record, str)
    asked: list[Any] = list(record) if several else [record]
    unknown = [name for name in asked if name not in RECORDS]
    if unknown:
        raise SampleError(f"record takes {', '.join(RECORDS)}; got {unknown[0]!r}")
    if reference is not None and "marginals" not in asked:
        raise SampleError('a reference needs record to hold "marginals"')
    if graph.implicit is not None and "energy" in asked:
        if record is not DEFAULT_RECORD:
            raise SampleError(
                "the energy of factors that are never stored is not recorded along the way; "
                'record "draws" and ask graph.energy(draws)'
            )
        asked.remove("energy")
    return frozenset(asked)


def variables_to_keep(
    variables: Sequence[int | str] | None, kept: frozenset[str], graph: FactorGraph
) -> NDArray[np.int32] | None:
    """The numbers of the variables whose draws are kept, in the order given; None for all."""
    if variables is None:
        return None
    if "draws" not in kept:
        raise SampleError(
            'record_variables says whose draws are kept, and none are: add "draws" to record, '
            "or leave record_variables out"
        )
    if isinstance(variables, str) or not isinstance(variables, Iterable):
        raise SampleError(
            f"record_variables must be a sequence of variables, such as [{variables!r}]; "
            f"got {variables!r}"
        )
    numbers = [graph.domains.index(variable) for variable in variables]
    if not numbers:
        raise SampleError(
            "record_variables must hold at least one variable; leave it out to keep all"
        )
    seen: set[int] = set()
    for number in numbers:
        if number in seen:
            raise SampleError(f"record_variables holds {graph.domains.describe(number)} twice")
        seen.add(number)
    return np.array(numbers, dtype=np.int32)


def flat_reference(graph: FactorGraph, reference: ArrayLike) -> NDArray[np.float64]:
    """The reference without the places beyond a variable's domain."""
    shape = (len(graph), int(graph.sizes.max()))
    rule = f"reference must hold real numbers in shape {shape}"
    array = as_array(reference, "iufb", rule).astype(np.float64)
    if array.shape != shape:
        raise SampleError(f"{rule}; got shape {array.shape}")
    return array[np.arange(shape[1]) < graph.sizes[:, None]]


def entropy_of(seed: int | None) -> int:
    """The seed, or a fresh one."""
    if seed is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SampleError(f"seed must be a non-negative integer, got {seed!r}")
    return int(seed)


def start_states(
    graph: FactorGraph, start: str | ArrayLike, chains: int, entropy: int
) -> NDArray[Any]:
    """One state per chain, which agrees with the evidence: writable, [chain, variable]."""
    clamped = graph.evidence >= 0
    if isinstance(start, str):
        if start != "random":
            raise SampleError(f'start must be "random" or a state, got {start!r}')
        states = np.empty((chains, len(graph)), graph.state_type)
        for first in range(0, chains, SEEDED):
            _fill_random(states[first : first + SEEDED], graph, first, entropy)
        states[:, clamped] = graph.evidence[clamped]
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
    return rows.astype(graph.state_type, copy=True)


def _fill_random(states: NDArray[Any], graph: FactorGraph, first: int, entropy: int) -> None:
    """Draw uniform states for chains from `first` on: the first 4096 each by a seed of its own."""
    if first == 0:
        children = np.random.SeedSequence(entropy).spawn(len(states))
        for state, child in zip(states, children, strict=True):
            state[:] = np.random.default_rng(child.spawn(1)[0]).random(len(graph)) * graph.sizes
    else:
        rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(2**32 - 2, first)))
        for state in states:
            state[:] = rng.random(len(graph)) * graph.sizes
