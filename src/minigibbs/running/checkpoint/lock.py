"""A folder that one run at a time may use."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import IO

from minigibbs.errors import SampleError

try:
    import fcntl
except ImportError:  # not a POSIX system: only runs of this process are kept apart
    fcntl = None  # type: ignore[assignment]

_HELD: set[Path] = set()  # by this process; the system's locks keep processes apart, not threads


class Lock:
    """Held from creation to `release`, or to the end of the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        if self._path in _HELD:
            raise _in_use(path, f"process {os.getpid()}, which is this one")
        self._file: IO[str] = open(path, "a+")  # noqa: SIM115
        try:
            if fcntl is not None:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise _in_use(path, holder) from None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()
        _HELD.add(self._path)

    def release(self) -> None:
        """Let others in."""
        _HELD.discard(self._path)
        self._file.close()


def _in_use(path: Path, holder: str) -> SampleError:
    return SampleError(
        f"{path.parent} is in use by {holder}; wait for that run, stop it, or give another folder"
    )
