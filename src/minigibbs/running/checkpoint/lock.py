"""A folder that one run at a time may use."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import IO

from minigibbs.errors import SampleError

try:
    import fcntl
except ImportError:  # not a POSIX system: only runs of this process are kept apart
    fcntl = None  # type: ignore[assignment]

LOCKS_HOLD = fcntl is not None  # whether other processes are kept out
_HELD: dict[Path, Lock] = {}  # by this process


class Lock:
    """Held from creation to `release`, or to the end of the process, however it ends.

    It is the system's lock on an open file, so that others in this process may open and close the
    file, or copy the folder. Forked processes let go of it at once: they may outlive this one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        if self._path in _HELD:
            raise _in_use(path, f"process {os.getpid()}, which is this one")
        self._file = _lock(path)
        _HELD[self._path] = self

    def hold(self) -> None:
        """Make sure that it is held still: the file may have been removed, and made by another."""
        try:
            own, there = os.fstat(self._file.fileno()), os.stat(self._path)
            if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino):
                return
        except FileNotFoundError:
            pass
        before, self._file = self._file, _lock(self._path)
        before.close()

    def release(self) -> None:
        """Let others in."""
        _HELD.pop(self._path, None)
        self._file.close()


def _lock(path: Path) -> IO[str]:
    """The file, open and locked, with a line on who holds it."""
    file = open(path, "a+")  # noqa: SIM115
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            file.close()
            raise
        file.seek(0)
        holder = file.read(200).strip() or "another process"
        file.close()
        raise _in_use(path, holder) from None
    return file


def _in_use(path: Path, holder: str) -> SampleError:
    return SampleError(
        f"{path.parent} is in use by {holder}; wait for that run, stop it, or give another folder"
    )


def _let_go() -> None:
    """In a forked process: the locks are its parent's."""
    for lock in list(_HELD.values()):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
