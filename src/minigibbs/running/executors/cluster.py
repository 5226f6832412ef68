"""Dask clusters by their address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigibbs.errors import MissingDependencyError, SampleError

_PATIENCE = 30  # seconds to wait for a scheduler, and then for a worker


@contextmanager
def dask_client(address: str | None, patience: float = _PATIENCE) -> Iterator[Any]:
    """A client of the scheduler at an address such as tcp://host:8786; None without one."""
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
    """Raise if an address wants TLS and Dask has no certificate to show."""
    from distributed.security import Security

    if address.startswith("tls://") and not Security().get_connection_args("client")["ssl_context"]:
        raise SampleError(
            f"{address} wants TLS, but Dask's settings name no certificate; see docs/long_runs.md"
        )
