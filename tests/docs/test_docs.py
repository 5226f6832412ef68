"""Documentation: the tutorial's output, a complete reference, and valid links."""

import doctest
import importlib.util
import inspect
import re

import pytest

import minigibbs as mg
from tests.paths import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
# Names without an example in the docstring. A name must be removed from this list once it has one.
WITHOUT_EXAMPLE = {"interop"}


def _build():
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


build = _build()
PUBLIC = sorted(set(mg.__all__) - {"__version__"})


def test_tutorial_prints_what_it_says(tmp_path):
    pytest.importorskip("matplotlib")
    blocks = build.tutorial_blocks()
    assert sum(bool(expected) for _, expected in blocks) >= 7
    for (code, expected), printed in zip(blocks, build.run_tutorial(tmp_path), strict=True):
        assert printed == expected, code
    made = {path.name for path in tmp_path.glob("*.png")} | {"report.png"}
    assert made == {path.name for path in build.PICTURES.glob("*.png")}
    assert (tmp_path / "people.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_reference_has_every_public_name_once():
    named = [name for names in build.CHAPTERS.values() for name in names]
    assert sorted(named) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_examples_that_run(name):
    thing = getattr(mg, name)
    examples = doctest.DocTestParser().get_examples(thing.__doc__ or "")
    assert (thing.__doc__ or "").strip()
    assert bool(examples) != (name in WITHOUT_EXAMPLE), "add an example, or strike the exemption"
    module = inspect.getmodule(thing)
    assert module.__name__.startswith("minigibbs")  # where pytest runs the doctests


def test_exemptions_are_public_names():
    assert set(PUBLIC) >= WITHOUT_EXAMPLE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_are_there(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, link


def test_pictures_have_words():
    for page in PAGES:
        assert "![](" not in page.read_text(encoding="utf-8")


def test_index_links_every_page():
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", text)}
    assert {page for page in PAGES if page.name != "README.md"} <= linked
