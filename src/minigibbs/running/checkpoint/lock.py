"""Lock of a folder that only one run at a time may use."""

from __future__ import annotations

import errno
import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO

from minigibbs.errors import FormatError, SampleError
from minigibbs.system import files
from minigibbs.system.text import printable

try:
    import fcntl
except ImportError:  # not a POSIX system: only runs of this process exclude each other
    fcntl = None  # type: ignore[assignment]

LOCKS_HOLD = fcntl is not None  # whether other processes are excluded
_LONGEST = 300  # most bytes of the text in a lock file
_HELD: dict[Path, Lock] = {}  # locks of this process


class Lock:
    """Exclusive lock from creation to `release`, or to the end of the process, however it ends.

    It is the system's lock on an open file. So other code of this process may open and close the
    file, or copy the folder. Forked processes release it immediately, because they may outlive
    this one. `guarded` is the path in error messages; by default the lock's folder.
    """

    def __init__(self, path: Path, guarded: Path | None = None) -> None:
        self._path = path.parent.resolve() / path.name
        self._guarded = guarded or path.parent
        if self._path in _HELD:
            raise _in_use(self._guarded, f"process {os.getpid()}, which is this one")
        self._file = _lock(path, self._guarded)
        _HELD[self._path] = self

    def hold(self) -> None:
        """Verify the lock; the file may have been removed and created by another process."""
        if not _leads_to(self._path, self._file):
            before, self._file = self._file, _lock(self._path, self._guarded)
            before.close()

    def release(self) -> None:
        """Release the lock."""
        _HELD.pop(self._path, None)
        self._file.close()

    def remove(self) -> None:
        """Release the lock and delete its file."""
        if _leads_to(self._path, self._file):
            with suppress(OSError):
                self._path.unlink()
        self.release()


def is_lock(path: Path) -> bool:
    """Return whether a file is a lock file of this library."""
    try:
        with files.open_plain(path, links=False) as file:
            return _is_ours(file)
    except (OSError, FormatError):
        return False


def _is_ours(file: IO[bytes]) -> bool:
    """Return whether a file is empty or a lock file; nothing else is overwritten."""
    file.seek(0)
    return re.fullmatch(rb"(process \d+ on .*\n)?", file.read(_LONGEST)) is not None


def _leads_to(path: Path, file: IO[bytes]) -> bool:
    try:
        own, there = os.fstat(file.fileno()), os.lstat(path)
    except FileNotFoundError:
        return False
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _lock(path: Path, guarded: Path) -> IO[bytes]:
    """Open and lock the file, and write a line that names this process."""
    while True:
        file = _open(path)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            file.flush()
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                file.close()
                raise
            file.seek(0)
            holder = file.read(_LONGEST).decode(errors="replace").strip() or "another process"
            file.close()
            raise _in_use(guarded, printable(holder)) from None
        if _leads_to(path, file):
            return file
        file.close()  # its holder has removed the file in the meantime


def _open(path: Path) -> IO[bytes]:
    """Open the file; refuse a file that cannot be a lock, and do not change it."""
    try:
        file = files.open_to_update(path)
    except FormatError as error:
        raise SampleError(f"cannot lock {error}") from None
    if not _is_ours(file):
        file.close()
        raise SampleError(
            f"{path}: expected a lock file of minigibbs, got other content; give another "
            "folder, or move that file away"
        )
    return file


def _in_use(guarded: Path, holder: str) -> SampleError:
    return SampleError(
        f"{guarded} is in use by {holder}; wait for that run, stop it, or give another "
        f"{'folder' if guarded.is_dir() else 'file'}"
    )


def _let_go() -> None:
    """Release all locks in a forked process: they belong to its parent."""
    for lock in list(_HELD.values()):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
