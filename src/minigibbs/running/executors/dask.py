"""Segments on a Dask cluster, and Dask clients by address."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from typing import Any

from minigibbs.errors import MissingDependencyError, SampleError, StoppedError
from minigibbs.running.executors.remote import Remote
from minigibbs.running.plan import Plan
from minigibbs.system.caller import warn

SILENCE = 5.0  # seconds without workers before a warning
_PATIENCE = 30  # seconds to wait for a scheduler, and then for a worker


class Dask(Remote):
    """Segments on a Dask cluster; its scheduler sends the model to present and later workers."""

    def __init__(self, executor: Executor, client: Any, plan: Plan, data: Any) -> None:
        from minigibbs.running.executors.plugin import ModelPlugin

        super().__init__(executor, plan, data)
        self._client = client
        self._plugin = ModelPlugin(self._outline.key, self._content())
        client.register_plugin(self._plugin)
        self._idle_since: float | None = None  # when the cluster was first without workers
        self._said = False

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._client.status == "running":
            with suppress(Exception):  # a cluster that shuts down does not need it
                self._client.unregister_worker_plugin(self._plugin.name)

    def check(self) -> None:
        """Raise an error if the scheduler is lost; warn if it has had no workers for a while."""
        if self._client.status == "closed":
            raise StoppedError(
                "the Dask scheduler was lost, or its client closed, and the run was stopped"
            )
        if self._has_workers():
            self._idle_since, self._said = None, False
            return
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if not self._said and now - self._idle_since >= SILENCE:
            self._said = True
            address = getattr(self._client.scheduler, "address", "ADDRESS")
            warn(
                f"the Dask scheduler at {address} has no workers, and the run waits for some; "
                f"start them with `dask worker {address}`, or stop the run with Ctrl-C"
            )

    def _has_workers(self) -> bool:
        """Return the scheduler's last answer, which the client refreshes every few seconds."""
        return bool(self._client._scheduler_identity.get("workers"))


@contextmanager
def dask_client(address: str | None, patience: float = _PATIENCE) -> Iterator[Any]:
    """Connect to a scheduler at an address such as tcp://host:8786; None without an address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependencyError('--dask needs Dask: pip install "minigibbs[dask]"') from None
    _check_tls(address)
    try:
        client = Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise SampleError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}); start one with "
            "`dask scheduler`, and give the address it prints"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=patience)
        except TimeoutError:
            raise SampleError(
                f"the Dask scheduler at {address} has no workers; start some with "
                f"`dask worker {address}`"
            ) from None
        yield client


def _check_tls(address: str) -> None:
    """Raise an error if an address needs TLS and Dask has no certificate."""
    from distributed.security import Security

    if address.startswith("tls://") and not Security().get_connection_args("client")["ssl_context"]:
        raise SampleError(
            f"{address} wants TLS, but Dask's settings name no certificate; see docs/long_runs.md"
        )
