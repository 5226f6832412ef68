"""Temporary folders that are deleted by their run, or by the next run."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

from minigibbs.errors import SampleError
from minigibbs.running.checkpoint.lock import LOCKS_HOLD, Lock

_PREFIX, _LOCK = "minigibbs-", "lock"
# File that names the fork server's folder, and the prefix of that folder.
_SOCKETS, _PYTHONS = "sockets", "pymp-"


class Scratch:
    """Temporary folder of this process; creating it first removes folders of killed processes.

    A living process holds a lock in its folder, which protects the folder.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        for folder in root.glob(f"{_PREFIX}*"):
            _sweep(folder)
        self.path, self._lock = _make()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def note_sockets(self) -> None:
        """Store the name of the fork server's socket folder, which a killed process leaves."""
        (self.path / _SOCKETS).write_text(os.path.basename(util.get_temp_dir()))

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _make() -> tuple[Path, Lock]:
    """Create and lock a new folder; retry if another process removed it as a leftover."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        with suppress(SampleError, FileNotFoundError):
            lock = Lock(path / _LOCK)
            lock.hold()
            return path, lock


def _sweep(folder: Path) -> None:
    """Remove a folder with an unlocked lock file; without a lock file it may be new or foreign."""
    with suppress(SampleError, OSError):  # it is in use or was just removed
        if LOCKS_HOLD and _own(folder) and (folder / _LOCK).is_file():
            lock = Lock(folder / _LOCK)
            _sweep_sockets(folder)
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def _sweep_sockets(folder: Path) -> None:
    """Remove the fork server's folder that a dead process noted in its own folder."""
    with suppress(OSError, ValueError):
        noted = (folder / _SOCKETS).read_text()
        sockets = folder.parent / noted
        if noted == sockets.name and noted.startswith(_PYTHONS) and _own(sockets):
            shutil.rmtree(sockets, ignore_errors=True)


def _own(folder: Path) -> bool:
    """Return whether this is a folder of this user, and not a link."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
