"""Every error that minigibbs raises on purpose."""

from __future__ import annotations

from typing import Any


class MinigibbsError(Exception):
    """Base of all errors of this library."""


class GraphError(MinigibbsError, ValueError):
    """A model is malformed: the message names the factor or variable and what was expected."""


class SampleError(MinigibbsError, ValueError):
    """A request to sample cannot be carried out as stated."""


class StoppedError(SampleError):
    """A run had to stop before its end; `run` holds what was sampled until then, if anything."""

    run: Any = None


class FormatError(MinigibbsError, ValueError):
    """A file is not what its format promises."""


class TooLargeError(MinigibbsError, MemoryError):
    """The work would not fit into memory: the message says how much it needs."""


class MissingDependencyError(MinigibbsError, ImportError):
    """An optional part is not installed: the message gives the line that installs it."""
