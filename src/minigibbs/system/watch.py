"""Time limit and signals of one public call, shared by all of its phases.

A call that can take long opens a `Watch`. Nested calls open their own, which share the signals of
the outermost one and cannot outlast it. Inner functions get the watch from `current()`.

Ctrl-C or SIGTERM raises `KeyboardInterrupt` when nothing would be lost, such as during
preparations. Within `noted()` it only sets a flag, so that a result can be returned. A second
signal has its usual effect. Signals that the program handles itself, or ignores, are not changed.

Compilation by Numba does not count: it happens once per machine, and a user's time limit for a
model cannot account for it.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from minigibbs.errors import SampleError, TooLargeError

INTERRUPTED, TERMINATED, TIME = "interrupted", "terminated", "time"

_ENDS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
_AGAIN = 0.01  # seconds until a signal that cannot be raised is sent again
_open = threading.local()


class StopError(Exception):
    """Work was canceled because the call must end; never leaves the outermost `Watch`."""


class Compiling:
    """Seconds of compilation in this process; `kernels.jit` adds to them."""

    seconds = 0.0


class Watch:
    """Clock and signals of a call.

    Parameters
    ----------
    seconds : float or None, default None
        Time limit from now on; None for no limit.

    Examples
    --------
    >>> with Watch(60) as call:
    ...     with Watch() as phase:
    ...         call.left <= 60 and phase.left <= 60, phase.ended
    (True, '')
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._limit = math.inf if seconds is None else seconds
        self._begun, self._compiled = time.monotonic(), Compiling.seconds
        self._outer: Watch | None = None
        self._droppable = False
        self._signals = _Signals()

    def __enter__(self) -> Watch:
        self._outer = getattr(_open, "watch", None)
        if self._outer is None:
            self._signals.install()
        else:
            self._signals = self._outer._signals
        _open.watch = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _open.watch = self._outer
        if self._outer is not None:
            return
        self._signals.restore()
        if isinstance(error, KeyboardInterrupt | StopError):  # the call has no result
            if self.signal == TERMINATED:
                signal.raise_signal(signal.SIGTERM)
            if self.signal == INTERRUPTED:
                raise KeyboardInterrupt from None
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            raise SampleError(
                "the working directory of this process was removed, and Numba cannot compile "
                "without one; change to another one with os.chdir"
            ) from error
        if isinstance(error, StopError):
            raise SampleError(
                f"the time limit of {self._limit:g} s was over before there was a result; give "
                "more time"
            ) from None

    @property
    def left(self) -> float:
        """Number of seconds until the deadline of this watch or an outer one."""
        compiled = Compiling.seconds - self._compiled
        own = self._limit + compiled - (time.monotonic() - self._begun)
        return own if self._outer is None else min(own, self._outer.left)

    @property
    def spent(self) -> float:
        """Number of seconds since the watch was created, without compilation."""
        return time.monotonic() - self._begun - (Compiling.seconds - self._compiled)

    @property
    def limited(self) -> bool:
        """Whether there is a deadline."""
        return self.left < math.inf

    @property
    def signal(self) -> str:
        """INTERRUPTED or TERMINATED once such a signal has arrived, else ""."""
        return self._signals.ended

    @property
    def ended(self) -> str:
        """Reason why the call must end: INTERRUPTED, TERMINATED or TIME; "" if it may continue."""
        return self.signal or (TIME if self.left <= 0 else "")

    def check(self) -> None:
        """Raise `StopError` if the call must end."""
        if self.ended:
            raise StopError(self.ended)

    def check_droppable(self) -> None:
        """Raise `StopError` if the call must end and is within `droppable()`."""
        if self._droppable:
            self.check()

    def require(self, seconds: float, what: str, way_out: str) -> None:
        """Raise `TooLargeError` if preparations would take more than half of the time left.

        Parameters
        ----------
        seconds : float
            Predicted time.
        what : str
            Subject of the message: the work that takes this long.
        way_out : str
            Remedy for the user.
        """
        left = self.left
        if seconds > max(left, 0.0) / 2:
            raise TooLargeError(
                f"{what} takes about {seconds:.2g} s, too long for the {max(left, 0.0):.2g} s that "
                f"are left; {way_out}"
            )

    def extend(self, seconds: float) -> None:
        """Allow at least this many more seconds."""
        if self.left < seconds:
            self._limit += seconds - self.left

    def stop(self) -> None:
        """Let the time be over, for work on other threads."""
        self._limit = -math.inf

    @contextmanager
    def adopted(self) -> Iterator[None]:
        """Make this the watch of the present thread, which works for the same call."""
        before = getattr(_open, "watch", None)
        _open.watch = self
        try:
            yield
        finally:
            _open.watch = before

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record signals in `ended` instead of raising them; inner code must check it."""
        with self._signals.noting(True):
            yield

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise signals within `noted()`, for work that can be canceled at any moment."""
        with self._signals.noting(False):
            if self.signal:
                raise KeyboardInterrupt
            yield

    @contextmanager
    def droppable(self) -> Iterator[None]:
        """Let work in pieces raise `StopError` at the deadline, though results need it elsewhere.

        An energy is an example: one that is timed may be dropped, that of a result may not.
        """
        before, self._droppable = self._droppable, True
        try:
            yield
        finally:
            self._droppable = before


class _Signals:
    """Signal handlers of the outermost watch, and the signals received."""

    def __init__(self) -> None:
        self.ended = ""
        self._ours: dict[signal.Signals, Any] = {}
        self._noting = False

    def install(self) -> None:
        """Replace the usual signal handlers; only the main thread can do this."""
        if threading.current_thread() is threading.main_thread():
            for number, usual in _USUAL.items():
                if signal.getsignal(number) is usual:
                    self._ours[number] = usual
                    signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the usual handlers."""
        for number, usual in self._ours.items():
            signal.signal(number, usual)
        self._ours = {}

    @contextmanager
    def noting(self, noted: bool) -> Iterator[None]:
        """Record signals within, or raise them."""
        before, self._noting = self._noting, noted
        try:
            yield
        finally:
            self._noting = before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._noting and _in_a_callback(frame):
            threading.Timer(_AGAIN, os.kill, (os.getpid(), number)).start()
            return
        if self.ended:
            self.restore()
            signal.raise_signal(number)
        self.ended = _ENDS[signal.Signals(number)]
        if not self._noting:
            raise KeyboardInterrupt


def _in_a_callback(frame: FrameType | None) -> bool:
    """Return whether LLVM has called the present code, in which exceptions are lost.

    LLVM passes compiled code to a callback. Signals during a long compilation are handled by the
    first Python code after it, which is this callback.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name.startswith("_raw_object_cache") and "llvmlite" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


_UNLIMITED = Watch()


def current() -> Watch:
    """Return the watch of this thread's innermost call, or one without a limit.

    >>> current().left
    inf
    """
    return getattr(_open, "watch", None) or _UNLIMITED
