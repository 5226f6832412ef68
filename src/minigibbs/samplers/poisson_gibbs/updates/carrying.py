"""`general` and `strong` for graphs with groups that need running sums in the chain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import kernel
from minigibbs.samplers.gibbs.sampler import touched_workspace
from minigibbs.samplers.poisson_gibbs.groups import begin_implicit, note_implicit
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates import general, strong
from minigibbs.samplers.poisson_gibbs.updates.base import Variant
from minigibbs.samplers.poisson_gibbs.updates.general import general_update
from minigibbs.samplers.poisson_gibbs.updates.strong import strong_update


class CarryingData(NamedTuple):
    """The fields of `GeneralData`."""

    parts: NDArray[np.void]
    heavy: NDArray[np.void]
    general: NDArray[np.int64]
    tail: NDArray[np.void]
    base: NDArray[np.float64]
    alias: NDArray[np.void]
    implicit: Any


class StrongCarryingData(NamedTuple):
    """The fields of `StrongData`."""

    parts: NDArray[np.void]
    heavy: NDArray[np.void]
    general: NDArray[np.int64]
    tail: NDArray[np.void]
    unary: NDArray[np.float64]
    implicit: Any


def prepare(graph: FactorGraph, split: Split) -> CarryingData:
    """Prepare the data of `general`."""
    return CarryingData(*general.prepare(graph, split))


def prepare_strong(graph: FactorGraph, split: Split) -> StrongCarryingData:
    """Prepare the data of `strong`."""
    return StrongCarryingData(*strong.prepare(graph, split))


@kernel
def carrying_begin(data, model, chain):
    """Compute the sums of the first state."""
    begin_implicit(data.implicit, chain)


@kernel
def carrying_update(data, model, chain, i):
    """Make the update of `general`, then update the sums."""
    value = general_update(data, model, chain, i)
    note_implicit(data.implicit, chain, i, value)
    return value


@kernel
def strong_carrying_update(data, model, chain, i):
    """Make the update of `strong`, then update the sums."""
    value = strong_update(data, model, chain, i)
    note_implicit(data.implicit, chain, i, value)
    return value


register(CarryingData, carrying_update, carrying_begin)
register(StrongCarryingData, strong_carrying_update, carrying_begin)
CARRYING = Variant("carrying", CarryingData, prepare, touched_workspace)
STRONG_CARRYING = Variant("strong-carrying", StrongCarryingData, prepare_strong, strong.workspace)
