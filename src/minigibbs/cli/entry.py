"""The program `minigibbs`: Ctrl-C ends it with a clean message from its first moment on.

The module `signal` takes longer to import than all else here, and Ctrl-C during that import would
print a traceback. So the handler is set by `_signal`, the compiled part of it.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import sys
from typing import TYPE_CHECKING

from minigibbs._version import __version__

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command line; Ctrl-C during imports ends like Ctrl-C later.

    The version is printed without importing the commands, which takes most of a second.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"minigibbs {__version__}")
        return
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if usual:
            signal.signal(signal.SIGINT, _leave)
        from minigibbs.cli.main import main as run

        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit immediately: a module in the middle of its import may replace an exception."""
    os.write(2, b"interrupted\n")
    os._exit(130)
