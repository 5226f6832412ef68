"""Limits of a process, if the system supports them."""

import ctypes
import math
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = 2**30  # bytes that reading a few kB may take, far more than needed
_THREAD = 2**24  # address space of a thread: its stack, beside its part of the one arena
_ARENA_MAX = -8  # the C library's number of the parameter for the count of arenas


@contextmanager
def limited_memory(more: int = MEMORY) -> Iterator[None]:
    """Limit the memory of this process to `more` bytes beyond its present size.

    The limit counts address space. The GNU C library reserves 64 MiB of it for an arena of each
    thread unless all threads share one, so that the limit would depend on the number of cores.
    PyArrow reserves a gigabyte for its first text, which a data frame of pandas may contain.
    """
    with suppress(ImportError):
        import pandas as pd

        pd.DataFrame({"text": ["a"]})
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    more += _THREAD * (os.cpu_count() or 1)
    size, (soft, hard) = Path("/proc/self/statm"), resource.getrlimit(resource.RLIMIT_AS)
    if size.exists():
        limit = int(size.read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def seconds_used(pid: int) -> float:
    """Return the processor seconds of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return math.inf
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
