"""Temporary folders that go with their run, or else with the next one."""

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
_SOCKETS, _PYTHONS = "sockets", "pymp-"  # where the fork server's folder is noted; its name


class Scratch:
    """A folder of this process; those that killed processes have left are swept away first.

    A process holds a lock in its folder as long as it lives, so that no living one's is swept.
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
        """Note the folder of the fork server's socket, which a killed process leaves."""
        (self.path / _SOCKETS).write_text(os.path.basename(util.get_temp_dir()))

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _make() -> tuple[Path, Lock]:
    """A new folder, locked; again if another process took it for one that is left over."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        with suppress(SampleError, FileNotFoundError):
            lock = Lock(path / _LOCK)
            lock.hold()
            return path, lock


def _sweep(folder: Path) -> None:
    """Remove a folder whose lock nobody holds; one without a lock is not ours, or just begun."""
    with suppress(SampleError, OSError):  # it is in use, or gone by now
        if LOCKS_HOLD and _own(folder) and (folder / _LOCK).is_file():
            lock = Lock(folder / _LOCK)
            _sweep_sockets(folder)
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def _sweep_sockets(folder: Path) -> None:
    """Remove the folder of the fork server that a dead process had, as noted in its own."""
    with suppress(OSError, ValueError):
        noted = (folder / _SOCKETS).read_text()
        sockets = folder.parent / noted
        if noted == sockets.name and noted.startswith(_PYTHONS) and _own(sockets):
            shutil.rmtree(sockets, ignore_errors=True)


def _own(folder: Path) -> bool:
    """Whether it is a folder, no link to one, and this user's."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
