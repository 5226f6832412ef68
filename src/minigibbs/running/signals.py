"""Ctrl-C and SIGTERM while a run goes on: noted, not raised, so that no result is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from minigibbs.running.plan import INTERRUPTED, TERMINATED

_ENDS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Signals:
    """While it lasts, the first signal is noted; a second one does what it usually does.

    Signals that the program handles itself, or ignores, are left alone.
    """

    ended = ""  # how the run ends: INTERRUPTED, TERMINATED, or not by a signal
    _raising = False

    def __enter__(self) -> Signals:
        self._ours: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number, usual in _USUAL.items():
                if signal.getsignal(number) is usual:
                    self._ours[number] = usual
                    signal.signal(number, self._note)
        return self

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Work that may be dropped at any moment: a signal ends it with `KeyboardInterrupt`."""
        self._raising = True
        try:
            if self.ended:
                raise KeyboardInterrupt
            yield
        finally:
            self._raising = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.ended:
            self._restore()
            signal.raise_signal(number)
        self.ended = _ENDS[signal.Signals(number)]
        if self._raising:
            raise KeyboardInterrupt

    def _restore(self) -> None:
        for number, usual in self._ours.items():
            signal.signal(number, usual)
        self._ours = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
