"""Pages of docs/: every block runs as printed, one after the other."""

import re

import pytest

from tests.paths import ROOT


@pytest.mark.parametrize("page", ["answers.md", "learning.md", "repair.md", "sklearn.md"])
def test_blocks_print_what_they_say(page, capsys):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks, names = re.findall(r"```python\n(.*?)```", text, re.DOTALL), {}
    assert len(blocks) >= 3
    for code in blocks:
        expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out.splitlines() == expected
        assert expected
