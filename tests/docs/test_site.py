"""The site builds without a warning and is complete. This takes seconds, and no network."""

import json
import os
import re
import subprocess
import sys

import pytest

import minigibbs as mg
from tests.docs.test_docs import build
from tests.paths import ROOT

pytest.importorskip("mkdocs", reason="the site is built by MkDocs")
pytest.importorskip("mkdocstrings", reason="the reference is made by mkdocstrings")


def run(*command):
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_docstrings_become_markdown():
    run("-m", "doctest", "docs/docstrings.py")


WANTED = {  # search words, and the page that answers
    "impute": "missing_data/",
    "missing values": "missing_data/",
    "QUBO": "spin_glasses/",
    "ground state": "spin_glasses/",
    "RBM": "learning/",
    "MAP": "answers/",
    "partition function": "partition_functions/",
    "segmentation": "segmentation/",
    "CRF": "segmentation/",
    "convergence": "converged/",
    "burn-in": "converged/",
    "install": "install/",
    "PyTorch": "interop/",
    "entity resolution": "tutorial/",
}


def check_search(index):
    """Check that the answering page comes first, with the search engine and weights of the site."""
    lunr = pytest.importorskip("lunr").lunr
    fields = [{"field_name": "title", "boost": 1000}, {"field_name": "text"}]
    found = lunr(ref="location", fields=fields, documents=json.loads(index.read_text())["docs"])
    for words, page in WANTED.items():
        best = found.search(words.replace("-", " "))[0]["ref"]
        assert best.split("#")[0] == page, words


def test_site_builds_and_is_whole(tmp_path):
    """One test checks everything, since every part needs the whole site."""
    run("docs/stage.py")
    run("-m", "mkdocs", "build", "--strict", "-q", "-f", "build/mkdocs.yml", "-d", str(tmp_path))
    reference = "".join(page.read_text() for page in tmp_path.glob("reference/*/index.html"))
    for name in set(mg.__all__) - {"__version__"}:
        assert f'id="minigibbs.{name}"' in reference, name
    assert 'id="minigibbs.theory.transition"' in reference
    assert 'id="minigibbs.Run.marginal"' in reference  # inherited
    shown = set(re.findall(r'id="minigibbs\.(Potts|MGPMH|Run)\.(\w+)"', reference))
    assert shown == {("Run", member) for member in build.MEMBERS["Run"]}  # and no hooks
    for path in (ROOT / "docs").rglob("*.md"):
        place = path.relative_to(ROOT / "docs").with_suffix("")
        page = tmp_path / place / "index.html" if path.stem != "README" else tmp_path / "index.html"
        assert page.is_file(), page
    for path in (ROOT / "examples").glob("*.py"):
        book = json.loads((tmp_path / "gallery" / f"{path.stem}.ipynb").read_text())
        kinds = [cell["cell_type"] for cell in book["cells"]]
        assert kinds[0] == "markdown"
        assert set(kinds[1:]) == {"code"}
        for cell in book["cells"][1:]:
            compile(cell["source"], path.name, "exec")
    assert "<math" in (tmp_path / "flagship" / "index.html").read_text()
    tables = (tmp_path / "fast" / "index.html").read_text()
    assert "<!-- table" not in tables
    assert "ns/update" in tables
    assert "<strong>minigibbs</strong>" in tables  # our rows among those of peers
    shown = re.findall(r"Measured on \d{4}-\d\d-\d\d with minigibbs \d", tables)
    assert len(shown) == tables.count("<table>")  # every number has a date and a version
    assert not re.search(r"=(<[^>]+>)*(DISPERSED|DEFAULT_RECORD)", reference)  # but their values
    check_search(tmp_path / "search" / "search_index.json")
