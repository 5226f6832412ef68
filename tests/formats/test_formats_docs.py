"""docs/formats.md: its examples run as printed and print what their comments state."""

import re

import pytest

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "formats.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_print_what_they_say(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    exec(compile(code, "formats.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == expected
    assert expected
