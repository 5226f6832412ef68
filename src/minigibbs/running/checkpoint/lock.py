"""A folder that one run at a time may use."""

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
except ImportError:  # not a POSIX system: only runs of this process are kept apart
    fcntl = None  # type: ignore[assignment]

LOCKS_HOLD = fcntl is not None  # whether other processes are kept out
_LONGEST = 300  # bytes of a lock's line, at most
_HELD: dict[Path, Lock] = {}  # by this process


class Lock:
    """Held from creation to `release`, or to the end of the process, however it ends.

    It is the system's lock on an open file, so that others in this process may open and close the
    file, or copy the folder. Forked processes let go of it at once: they may outlive this one.
    `guarded` is what error messages say is in use: by default the lock's folder.
    """

    def __init__(self, path: Path, guarded: Path | None = None) -> None:
        self._path = path.parent.resolve() / path.name
        self._guarded = guarded or path.parent
        if self._path in _HELD:
            raise _in_use(self._guarded, f"process {os.getpid()}, which is this one")
        self._file = _lock(path, self._guarded)
        _HELD[self._path] = self

    def hold(self) -> None:
        """Make sure that it is held still: the file may have been removed, and made by another."""
        if not _leads_to(self._path, self._file):
            before, self._file = self._file, _lock(self._path, self._guarded)
            before.close()

    def release(self) -> None:
        """Let others in."""
        _HELD.pop(self._path, None)
        self._file.close()

    def remove(self) -> None:
        """Let others in, and leave no file."""
        if _leads_to(self._path, self._file):
            with suppress(OSError):
                self._path.unlink()
        self.release()


def is_lock(path: Path) -> bool:
    """Whether a file is a lock that this library wrote."""
    try:
        with files.open_plain(path, links=False) as file:
            return _is_ours(file)
    except (OSError, FormatError):
        return False


def _is_ours(file: IO[bytes]) -> bool:
    """Whether a file is empty or says who holds a lock: nothing else is overwritten."""
    file.seek(0)
    return re.fullmatch(rb"(process \d+ on .*\n)?", file.read(_LONGEST)) is not None


def _leads_to(path: Path, file: IO[bytes]) -> bool:
    try:
        own, there = os.fstat(file.fileno()), os.lstat(path)
    except FileNotFoundError:
        return False
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _lock(path: Path, guarded: Path) -> IO[bytes]:
    """The file, open and locked, with a line on who holds it."""
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
        file.close()  # its holder removed it in the meantime


def _open(path: Path) -> IO[bytes]:
    """The file, open; what no lock of ours can be is refused and left as it is."""
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
    """In a forked process: the locks are its parent's."""
    for lock in list(_HELD.values()):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
