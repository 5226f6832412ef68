"""The driver, which advances a task until it ends, a signal arrives or its time is up.

Runs (`running.loop`), fits (`learning.ascent`, `learning.climb`) and searches
(`inference.maximize`) are tasks. Tasks never check the clock or signals to decide when to end.
"""

from __future__ import annotations

from typing import Protocol

from minigibbs.system.watch import INTERRUPTED, StopError, Watch


class Task(Protocol):
    """Long work in segments, which can end after any of them with a result."""

    def segment(self) -> str:
        """Advance by one segment, of a fraction of a second if possible.

        Returns
        -------
        str
            How the task ended, or "" if it has not. Work that cannot be split into segments
            must not catch `StopError` of `system.watch`.
        """

    def keep(self) -> None:
        """Write a checkpoint if one is due."""

    def rest(self) -> None:
        """Stop background work; the task's state is then consistent."""


def drive(task: Task, watch: Watch) -> str:
    """Advance a task to its end, by at least one segment.

    Signals only set a flag meanwhile, so that the task always has a result.

    Parameters
    ----------
    task : Task
        The task to advance.
    watch : Watch
        Deadline and signals of the call.

    Returns
    -------
    str
        How the task ended: its own reason, "interrupted", "terminated" or "time".
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
        except KeyboardInterrupt:  # raised within `watch.raised`, or by a foreign signal handler
            return watch.signal or INTERRUPTED
        finally:
            task.rest()
