"""How a model reaches the workers of a Dask cluster, those that join later included."""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from minigibbs.running.executors.worker import Parcel, forget, keep


class ModelPlugin(WorkerPlugin):  # type: ignore[misc]
    """The scheduler hands it to every worker, once, when the run begins or the worker starts."""

    def __init__(self, key: str, parcel: Parcel) -> None:
        self.name = f"minigibbs-{key}"
        self._key, self._parcel = key, parcel

    def setup(self, worker: Any) -> None:
        """Have the model at hand for the run's segments."""
        keep(self._key, self._parcel)

    def teardown(self, worker: Any) -> None:
        """Drop it."""
        forget(self._key)
