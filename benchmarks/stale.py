"""Tables of results that are older than the code they measure: `python -m benchmarks.stale`.

A table ends with a fingerprint of the code that it measures, without docstrings and comments. It is
stale if the present code has a different fingerprint. `make stale` lists such tables and is part of
a release.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SAMPLING = ("kernels", "engine", "samplers", "running")
MEASURED = {  # table: packages of src/minigibbs; tables that are not named measure sampling
    "answers": ("exact", "inference", *SAMPLING),
    "boltzmann": ("interop/torch.py", *SAMPLING),
    "coverage": ("results", "inference", "learning", *SAMPLING),
    "elimination": ("exact",),
    "exact": ("exact", "inference"),
    "first_calls": ("graph", "system", "results", "inference", "learning", "cli", *SAMPLING),
    "foundation": ("graph", "system", "results", *SAMPLING),
    "gpu_exact": ("exact", "inference"),
    "gpu_learning": ("learning", *SAMPLING),
    "ground_states": ("inference", *SAMPLING),
    "imputation": ("interop/sklearn", "structure", "learning", *SAMPLING),
    "learning": ("learning", *SAMPLING),
    "max_cut": ("inference", *SAMPLING),
    "observables": ("observables", *SAMPLING),
    "repair": ("repairing", "learning", "inference"),
    "residuals": ("inference", *SAMPLING),
    "structure": ("structure",),
    "verdicts": ("results", *SAMPLING),
    "uai": ("exact", "inference", *SAMPLING),
    "uai2014": ("exact", "inference", *SAMPLING),
    "uai2022": ("exact", "inference", *SAMPLING),
}


def fingerprint(table: str) -> str:
    """Compute a checksum of the code that a table measures, without docstrings and comments."""
    digest = hashlib.sha256()
    for package in MEASURED.get(table, SAMPLING):
        path = ROOT / "src" / "minigibbs" / package
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
                    node.body = node.body[1:]
            digest.update(ast.dump(tree).encode())
    return digest.hexdigest()[:12]


def stale() -> list[str]:
    """Return the names of all tables that are older than their code."""
    found = []
    for table in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        last = table.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        if last != stamp(table.stem):
            found.append(table.stem)
    return found


def stamp(table: str) -> str:
    """Return the last line of a table."""
    return f"Code: {fingerprint(table)}."


if __name__ == "__main__":
    names = stale()
    print("stale: " + ", ".join(names) if names else "every table measures the present code")
    sys.exit(bool(names))
