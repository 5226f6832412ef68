"""The list of deliberate mistakes."""

import tomllib
from pathlib import Path
from typing import NamedTuple

SOURCES = Path("src") / "minigibbs"


class Mutant(NamedTuple):
    """One mistake."""

    name: str
    file: str  # under `SOURCES`
    old: str  # occurs in it exactly once
    new: str
    tests: list[str]  # under `tests`: all of them are run, and one must object


def listed() -> list[Mutant]:
    """All mutants, in the order of the file."""
    with open(Path(__file__).with_name("mutants.toml"), "rb") as stream:
        return [Mutant(**entry) for entry in tomllib.load(stream)["mutant"]]
