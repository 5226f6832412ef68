"""Transfer of a model to the workers of a Dask cluster, including later ones."""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from minigibbs.running.executors.worker import Parcel, forget, keep


class ModelPlugin(WorkerPlugin):  # type: ignore[misc]
    """Plugin that the scheduler installs once per worker, at the run's or the worker's start."""

    def __init__(self, key: str, parcel: Parcel) -> None:
        self.name = f"minigibbs-{key}"
        self._key, self._parcel = key, parcel

    def setup(self, worker: Any) -> None:
        """Store the model for the run's segments."""
        keep(self._key, self._parcel)

    def teardown(self, worker: Any) -> None:
        """Delete the model."""
        forget(self._key)
