"""docs/README.md: the first code block runs as printed."""

import re

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")


def test_first_block_prints_what_it_says(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/README.md", "exec"), {})
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert len(expected) == 2
    assert capsys.readouterr().out.splitlines() == expected
