"""Conversion of draws, energies and observables to ArviZ's `DataTree`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.system import memory
from minigibbs.system.optional import optional

if TYPE_CHECKING:
    from minigibbs.results.run import Run


def to_arviz(run: Run, indicators: bool = False) -> Any:
    """Convert a run's draws, observables and log-potentials; see `Run.to_arviz`."""
    arviz_base = optional("arviz_base", "arviz")
    posterior: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    dims: dict[str, list[str]] = {}
    if run.kept_draws is not None:
        # Signed, because ArviZ computes differences, which would wrap around in the unsigned type.
        posterior["x"] = run.draws.astype(np.promote_types(run.draws.dtype, np.int8))
        coords["node"] = [run.domains.name(v) for v in run.drawn.tolist()]
        dims["x"] = ["node"]  # xarray reserves the name "variable"
    if indicators:
        posterior["indicator"], coords["event"] = _indicators(run)
        dims["indicator"] = ["event"]
    for one in run.observables.values():
        if one.series is not None and one.data.chains == 1:
            posterior[one.name] = one.series
            if not one.scalar:
                coords[f"{one.name}_part"] = list(one.labels)
                dims[one.name] = [f"{one.name}_part"]
    groups = {"posterior": posterior} if posterior else {}
    if run.energy is not None:
        groups["sample_stats"] = {"lp": -run.energy}
    if not groups:
        raise SampleError(
            'to_arviz() needs record=("draws",), record=("energy",) or observe={...} with series'
        )
    return arviz_base.from_dict(groups, coords=coords, dims=dims)


def _indicators(run: Run) -> tuple[NDArray[np.int8], list[str]]:
    """Return indicators [chain, draw, event] of the events "variable=value", and the events' names.

    Events that hold in every draw or in none are omitted, because ArviZ cannot handle constants.
    """
    if run.kept_draws is None:
        raise SampleError('to_arviz(indicators=True) needs record=("draws",)')
    sizes = run.domains.sizes[run.drawn]
    count = int(sizes.sum(dtype=np.int64))
    memory.require(
        run.draws.shape[0] * run.draws.shape[1] * count,
        f"indicators of {count:,} values",
        "record fewer draws, or use indicators=False",
    )
    whole = np.empty((*run.draws.shape[:2], count), dtype=np.int8)
    names, at = [], 0
    for place, (variable, size) in enumerate(zip(run.drawn.tolist(), sizes.tolist(), strict=True)):
        whole[:, :, at : at + size] = run.draws[:, :, place, None] == np.arange(size)
        name = run.domains.name(variable)
        names += [f"{name}={value}" for value in run.domains.values(variable)]
        at += size
    varies = (whole != whole[:1, :1]).any(axis=(0, 1))
    return whole[:, :, varies], [name for name, kept in zip(names, varies, strict=True) if kept]
