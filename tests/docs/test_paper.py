"""The paper builds, and its numbers are those of benchmarks/results."""

import importlib.util
import re

import pytest

from tests.paths import ROOT

spec = importlib.util.spec_from_file_location("paper_build", ROOT / "paper" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

COVERAGE = """# Coverage

2026-11-18, a machine.

| what | measured | bar | met |
|---|---|---|---|
| marginals | 94.8% | 93% to 97% |  |

A note.
"""


def test_the_paper_builds(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "OUT", tmp_path)
    (path,) = build.build()
    assert path.read_bytes().startswith(b"%PDF")


def test_numbers_are_those_of_the_results():
    found = build.numbers()
    row = "| the paper's Potts model, n = 400, D = 10 | {:g} ns/update |"
    text = (build.RESULTS / "flagship.md").read_text(encoding="utf-8")
    assert row.format(found["potts_ns"]) in text
    assert len(found["real"]) == len(
        re.findall(
            r"^\| \S.*n = ", (build.RESULTS / "real.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )


def test_a_missing_row_stops_the_build(tmp_path, monkeypatch):
    for name in build.USED:
        text = (build.RESULTS / f"{name}.md").read_text(encoding="utf-8")
        (tmp_path / f"{name}.md").write_text(text.replace("numbskull over it", "gone"))
    monkeypatch.setattr(build, "RESULTS", tmp_path)
    with pytest.raises(KeyError, match="numbskull"):
        build.numbers()


def test_coverage_is_shown_once_it_is_there(tmp_path, monkeypatch):
    assert build.coverage(tmp_path / "coverage.md") is None
    path = tmp_path / "coverage.md"
    path.write_text(COVERAGE)
    table = build.coverage(path)
    assert table["head"] == ["what", "measured", "bar"]  # empty columns are left out
    assert table["rows"] == [["marginals", "94.8%", "93% to 97%"]]
    assert table["notes"] == "A note."
    monkeypatch.setattr(build, "OUT", tmp_path)
    monkeypatch.setattr(build, "coverage", lambda path: table)
    assert build.build()


def test_every_reference_is_cited():
    text = build.SOURCE.read_text(encoding="utf-8")
    keys = re.findall(
        r"^@\w+\{(\w+),", (build.SOURCE.parent / "references.bib").read_text(), re.MULTILINE
    )
    assert len(keys) > 10
    assert [key for key in keys if f"@{key}" not in text and f"<{key}>" not in text] == []
