"""The program `minigibbs`: Ctrl-C ends it with a clean message from its first moment on."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C during imports ends like Ctrl-C later on."""
    try:
        from minigibbs.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
