"""Every code block of these pages of docs/ runs and prints the stated output."""

import re

import pytest

from tests.paths import ROOT

PAGES = [
    "answers.md",
    "choose_sampler.md",
    "converged.md",
    "learning.md",
    "missing_data.md",
    "partition_functions.md",
    "repair.md",
    "segmentation.md",
    "sklearn.md",
    "spin_glasses.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_print_what_they_say(page, capsys):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks, names = re.findall(r"```python\n(.*?)```", text, re.DOTALL), {}
    assert blocks
    for code in blocks:
        expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out.splitlines() == expected
        assert expected
