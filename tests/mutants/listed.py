"""The list of deliberate mistakes."""

import tomllib
from pathlib import Path
from typing import NamedTuple

SOURCES = Path("src") / "minigibbs"


class Mutant(NamedTuple):
    """A deliberate mistake."""

    name: str
    file: str  # relative to `SOURCES`
    old: str  # occurs in it exactly once
    new: str
    tests: list[str]  # relative to `tests`: all of them run, and at least one must fail


def listed() -> list[Mutant]:
    """Return all mutants, in the order of the file."""
    with open(Path(__file__).with_name("mutants.toml"), "rb") as stream:
        return [Mutant(**entry) for entry in tomllib.load(stream)["mutant"]]
