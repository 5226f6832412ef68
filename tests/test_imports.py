"""Imports between packages go one way, and every package states its purpose."""

import ast
import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

import minigibbs
from tests.paths import ROOT, TESTS

SOURCE = Path(minigibbs.__file__).parent
# A package may import from itself and from packages above it in this list.
PACKAGES = (
    "_version",
    "errors",
    "system",
    "kernels",
    "graph",
    "exact",
    "engine",
    "samplers",
    "results",
    "observables",
    "formats",
    "models",
    "running",
    "inference",
    "learning",
    "structure",
    "repairing",
    "interop",
    "jax",
    "numpyro",
    "pymc",
    "sklearn",
    "torch",
    "explanation",
    "theory",
    "paper",
    "cli",
    "__main__",
)
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def package_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path):
    """Yield every minigibbs module that a file imports, including lazy imports."""
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


def test_there_are_no_other_packages():
    assert {package_of(path) for path in FILES} == set(PACKAGES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    mine = PACKAGES.index(package_of(path))
    for name in imported(path):
        parts = name.split(".")
        assert len(parts) > 1, f"{path}: import from the package, not from the front door"
        package = parts[1]
        assert package in PACKAGES, f"{path} imports {name}, which is in no package"
        assert PACKAGES.index(package) <= mine, (
            f"{package_of(path)} must not import from {package}: {path}"
        )


def module_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def runtime_imports(path, modules):
    """Yield every minigibbs module that a file imports at run time, including lazy imports."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def cycles_of(edges):
    """Return the sets of two or more nodes that reach each other."""
    names = list(edges)
    place = {name: number for number, name in enumerate(names)}
    pairs = [(place[a], place[b]) for a in names for b in edges[a] if b in place]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    matrix = coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(names),) * 2)
    labels = connected_components(matrix, connection="strong")[1]
    sets = [{names[k] for k in np.flatnonzero(labels == label)} for label in set(labels.tolist())]
    return {frozenset(one) for one in sets if len(one) > 1}


def test_no_modules_import_each_other_even_lazily():
    modules = {module_of(path): path for path in FILES}
    edges = {name: set(runtime_imports(path, modules)) for name, path in modules.items()}
    assert cycles_of(edges) == set()


def test_cycles_are_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"json"}, "e": {"d"}}
    assert cycles_of(edges) == {frozenset("abc")}


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES} - {SOURCE}), ids=str)
def test_every_package_says_what_it_is_for(folder):
    name = ".".join(("minigibbs", *folder.relative_to(SOURCE).parts))
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem)
def test_names_that_benchmarks_import_exist(path):
    """Benchmarks import some names lazily, for peers that may not be installed."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("minigibbs."):
            continue
        try:
            module = importlib.import_module(node.module)
        except ImportError:  # of a bridge, without its library
            continue
        for name in (alias.name for alias in node.names):
            inside = (SOURCE.parent / node.module.replace(".", "/") / name).with_suffix(".py")
            assert hasattr(module, name) or inside.exists(), f"{node.module} has no {name}"


def test_tests_mirror_the_packages():
    folders = {path.name for path in TESTS.iterdir() if (path / "__init__.py").exists()}
    bridges = {"jax", "numpyro", "pymc", "sklearn", "torch"}
    alone = {"_version", "errors", "models", "__main__"} | bridges  # single files
    assert set(PACKAGES) - alone <= folders
