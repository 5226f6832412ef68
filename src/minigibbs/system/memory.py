"""Available memory, checked before allocation."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from minigibbs.errors import SampleError, TooLargeError

HARMLESS = 2**16  # bytes that every machine has: smaller sizes are not checked
_lock = threading.Lock()
_reserved = 0.0  # bytes reserved by work in progress in this process
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def readable(size: float) -> str:
    """Format a number of bytes.

    >>> readable(3 * 2**30)
    '3.0 GiB'
    """
    size = min(size, 1e300)  # integers may be larger than floats
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def read_size(size: str | float, name: str) -> float:
    """Read a number of bytes, or a text such as "4G" or "500 MB"; units are powers of 1024.

    >>> read_size("4G", "memory") == read_size("4 GiB", "memory") == 4 * 2**30
    True
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+]?\d+)?)\s*([KMGT]?)(?:i?B)?\s*", str(size), re.I)
    try:
        value = float(found[1]) * 1024.0 ** " KMGT".index(found[2].upper() or " ") if found else 0.0
    except ValueError:  # such as 1.2.3
        value = 0.0
    if isinstance(size, bool) or not 0 < value < math.inf:
        raise SampleError(f'{name} must be bytes, or a text such as "4G" or "500M"; got {size!r}')
    return value


def available() -> int:
    """Return the bytes this process can still allocate: free memory, or a smaller limit.

    Limits are those of a container and of ulimit. Reserved bytes do not count as available,
    whether they have been allocated yet or not.
    """
    free = min(_physical(), _address_space())
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            free = min(free, int(_content(limit)) - int(_content(used)))
        except (OSError, ValueError):  # no such limit on this system
            continue
    return max(int(free - _reserved), 0)


@contextmanager
def reserved(size: float, what: str, way_out: str) -> Iterator[None]:
    """Reserve `size` bytes within a `with`, or raise an error if that exceeds the memory left.

    Threads that check at the same time thus do not count the same free memory twice.
    """
    global _reserved
    with _lock:
        require(size, what, way_out)
        _reserved += size
    try:
        yield
    finally:
        with _lock:
            _reserved -= size


def require(size: float, what: str, way_out: str) -> None:
    """Raise an error if `size` bytes exceed the memory that is left."""
    if size <= HARMLESS:
        return
    free = available()
    if size > free:
        raise too_large(size, free, what, way_out)


def too_large(size: float, free: float, what: str, way_out: str) -> TooLargeError:
    """Build the error with required and available memory and a remedy."""
    return TooLargeError(
        f"{what} needs {readable(size)}, but only {readable(free)} of memory is available; "
        f"{way_out}"
    )


def _content(path: str) -> bytes:
    """Return the content of a short file of the system."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 2**14)
    finally:
        os.close(handle)


def _address_space() -> int:
    """Return the bytes that `ulimit -v` leaves to this process."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return 2**62
        return limit - int(_content("/proc/self/statm").split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return 2**62


def _physical() -> int:
    try:
        for line in _content("/proc/meminfo").splitlines():
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system: allocation decides
        return 2**62
