"""The rooms of the house: imports go one way, and each room says what it is for."""

import ast
import importlib
from pathlib import Path

import pytest

import minigibbs
from tests.paths import TESTS

SOURCE = Path(minigibbs.__file__).parent
# From the ground up: a room may import from itself and from those before it.
ROOMS = (
    "_version",
    "errors",
    "system",
    "kernels",
    "graph",
    "exact",
    "samplers",
    "results",
    "observables",
    "formats",
    "models",
    "running",
    "inference",
    "learning",
    "interop",
    "explanation",
    "theory",
    "paper",
    "cli",
)
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path):
    """Every module of ours that a file imports, wherever in the file: lazy imports count."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide where they lead"
            names = [node.module or ""]
            if node.module == "minigibbs":
                names = [f"minigibbs.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "minigibbs")


def test_there_are_no_other_rooms():
    assert {room_of(path) for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    mine = ROOMS.index(room_of(path))
    for name in imported(path):
        parts = name.split(".")
        assert len(parts) > 1, f"{path}: import from the room, not from the front door"
        room = parts[1]
        assert room in ROOMS, f"{path} imports {name}, which is in no room"
        assert ROOMS.index(room) <= mine, f"{room_of(path)} must not import from {room}: {path}"


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES} - {SOURCE}), ids=str)
def test_every_room_says_what_it_is_for(folder):
    name = ".".join(("minigibbs", *folder.relative_to(SOURCE).parts))
    assert importlib.import_module(name).__doc__


def test_tests_mirror_the_rooms():
    folders = {path.name for path in TESTS.iterdir() if (path / "__init__.py").exists()}
    alone = {"_version", "errors", "models"}  # single files
    assert set(ROOMS) - alone <= folders
