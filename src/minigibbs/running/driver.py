"""The one driver: advances a task until it ends, a signal arrives or its time is up.

Runs (`running.loop`), fits (`learning.ascent`, `learning.climb`) and searches
(`inference.maximize`) are tasks. None of them decides by the clock or by signals when to end.
"""

from __future__ import annotations

from typing import Protocol

from minigibbs.system.watch import INTERRUPTED, StopError, Watch


class Task(Protocol):
    """Long work in segments, which can end after any of them with a result."""

    def segment(self) -> str:
        """Advance by a fraction of a second, where that can be chosen.

        Returns
        -------
        str
            How the task ended, or "" if there is more to do. Work that cannot be cut into segments
            lets `StopError` of `system.watch` through.
        """

    def keep(self) -> None:
        """Write a checkpoint if one is due."""

    def rest(self) -> None:
        """Stop what still runs in the background; the task's state is then consistent."""


def drive(task: Task, watch: Watch) -> str:
    """Advance a task to its end, by at least one segment.

    Signals are noted meanwhile: whatever happens, the task keeps a result.

    Parameters
    ----------
    task : Task
        What to advance.
    watch : Watch
        The deadline and the signals of the call.

    Returns
    -------
    str
        How the task ended: its own word, "interrupted", "terminated" or "time".
    """
    with watch.noted():
        try:
            while not watch.signal:
                ended = task.segment()
                if ended or watch.ended:
                    return ended or watch.ended
                task.keep()
            return watch.signal
        except StopError:
            return watch.ended
        except KeyboardInterrupt:  # raised within `watch.raised`, or by a handler that is not ours
            return watch.signal or INTERRUPTED
        finally:
            task.rest()
