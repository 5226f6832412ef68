"""docs/observables.md: every block runs, and prints the text below it."""

import re

import pytest

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "observables.md").read_text(encoding="utf-8")


def test_blocks_print_what_they_say(capsys):
    pytest.importorskip("pandas")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python") >= 5
    names = {}
    for code, expected in blocks:
        exec(compile(code, "observables.md", "exec"), names)
        assert capsys.readouterr().out == expected
