"""docs/interop.md: every block runs and prints the output that its comments state."""

import importlib.util
import re

import pytest

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "interop.md").read_text()
EXAMPLE = re.compile(r"^## (\w+).*?```python\n(.*?)```", re.DOTALL | re.MULTILINE)
SECTIONS = dict(EXAMPLE.findall(PAGE))
NEEDS = {
    "ArviZ": "arviz_stats",
    "Constrained": "dimod",
    "NumPyro": "jax",
    "PyTorch": "torch",
    "dimod": "dimod",
    "networkx": "networkx",
    "pandas": "pandas",
    "pgmpy": "pgmpy",
}


def test_every_section_has_an_example():
    assert len(SECTIONS) == PAGE.count("\n## ") == PAGE.count("```python")


@pytest.mark.parametrize("section", SECTIONS)
def test_examples_print_what_they_say(section, capsys):
    pytest.importorskip(NEEDS.get(section, "minigibbs"))
    late = section.lower()  # must not be imported here, since warnings are errors
    if section in ("PyMC", "pyAgrum") and importlib.util.find_spec(late) is None:
        pytest.skip(f"needs {section}")
    code = SECTIONS[section]
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    exec(compile(code, f"interop.md, {section}", "exec"), {})
    assert capsys.readouterr().out.splitlines() == expected
    assert expected


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)]+)\)", PAGE))
def test_links_lead_somewhere(link):
    assert (ROOT / "docs" / link).exists()
