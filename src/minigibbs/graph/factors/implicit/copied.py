"""Scaled copies of an implicit group, for samplers with many temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.factors.implicit.base import Implicit


class Copied(Implicit):
    """One copy of a group for each scale; variable i of copy c has index i * copies + c.

    Scales are between 0 and 1, so that bounds for the group are bounds for every copy. Different
    copies have no factors between them.
    """

    kind = "copied"
    group: Implicit
    scales: NDArray[np.float64]  # [copies]

    def __init__(self, group: Implicit, scales: NDArray[np.float64]) -> None:
        if not (scales.min() >= 0.0 and scales.max() <= 1.0):
            raise GraphError(
                f"copied: scales must be between 0 and 1, got {scales.min()} to {scales.max()}"
            )
        variables = group.variables * len(scales)
        vars(self).update(group=group, scales=scales, variables=variables, form=group.form)

    @property
    def is_counted(self) -> bool:
        """Whether the group's local weights and degrees are exact."""
        return self.group.is_counted

    def energy_cost(self, values: int) -> float:
        """Predict nanoseconds per energy of all copies."""
        return len(self.scales) * self.group.energy_cost(values)

    @property
    def counting(self) -> int:
        """Approximate number of operations for all copies."""
        return self.group.counting * len(self.scales)

    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weights of the group, scaled; 0 between two copies."""
        copies = len(self.scales)
        weights = self.scales[i % copies] * self.group.pair_weights(i // copies, j // copies)
        return np.where(i % copies == j % copies, weights, 0.0)

    def local_weights(self) -> NDArray[np.float64]:
        """Return the local weights of the group, scaled."""
        return np.outer(self.group.local_weights(), self.scales).ravel()

    def degrees(self) -> NDArray[np.int64]:
        """Return the degrees of the group; 0 for a scale of 0."""
        return np.outer(self.group.degrees(), self.scales > 0.0).ravel()

    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Sum the energies of the copies."""
        copies = len(self.scales)
        own = [
            scale * self.group.energies(np.ascontiguousarray(states[:, c::copies]))
            for c, scale in enumerate(self.scales)
        ]
        return np.sum(own, axis=0)  # type: ignore[no-any-return]

    def arrays(self) -> dict[str, Any]:
        """Raise an error: copies are created for a run, and never written."""
        raise GraphError("copied: copies of a group are not written to files; write the group")
