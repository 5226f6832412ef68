"""Warnings that point to the line of the user's code that called this library."""

from __future__ import annotations

import os
import sys
import warnings

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn(text: str) -> None:
    """Warn at the innermost line that is not of this library.

    A fixed level would depend on how a call came here: directly, through the check of arguments, or
    through another public call.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
