"""docs/answers.md: every block runs as printed, one after the other."""

import re

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")


def test_blocks_print_what_they_say(capsys):
    blocks, names = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), {}
    assert len(blocks) >= 3
    for code in blocks:
        expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
        exec(compile(code, "answers.md", "exec"), names)
        assert capsys.readouterr().out.splitlines() == expected
        assert expected
