"""Numbers in prose agree with the committed tables."""

import re

import pytest

from benchmarks import stale
from tests.paths import ROOT

RESULTS = ROOT / "benchmarks" / "results"
# A page, a phrase on it, the table that the phrase quotes, and the row with the number.
QUOTES = [
    ("README.md", "it takes 15 ns", "flagship", r"Ising kernel, n = 4096 \| 15 ns"),
    ("README.md", "dwave-samplers takes 40 times", "flagship", r"\(Gibbs\) over it \| 40\.3x"),
    ("README.md", "OpenJij 89 times", "flagship", r"OpenJij \(dense\) over it \| 89\.2x"),
    (
        "README.md",
        "1.4e11 updates",
        "gpu_ladders",
        r"16\^3, \+-1, 73 temperatures, 256 ladders, Houdayer clusters \| 1\.38e\+11",
    ),
    (
        "README.md",
        "8,192 x 8,192 spins runs at 1.1e12",
        "gpu_lattices",
        r"8,192 x 8,192 \| 1\.06e\+12",
    ),
    ("README.md", "Grids_15 take 0.4 s", "exact", r"Grids_15[^|]* \| 0\.(3[5-9]|4[0-4])"),
    ("docs/comparison.md", "56 times as long in", "elimination", r"\(55\.7x\)"),
    ("docs/comparison.md", "takes 105 ns at 400", "flagship", r"10\.8x \(105 ns\)"),
    ("docs/comparison.md", "624 ns at 4,096", "flagship", r"40\.3x \(624 ns\)"),
    ("docs/comparison.md", "10 ns and 15 ns", "flagship", r"n = 400 \| 10 ns"),
    ("docs/comparison.md", "185 microseconds", "flagship", r"8524\.5x \(185284 ns\)"),
    ("docs/comparison.md", "10.7 ns in THRML", "sparse", r"thrml[^|]* \| 10\.7 ns"),
    ("docs/comparison.md", "3.30 ns here on one", "sparse", r"300 x 300: an update \| 3\.30 ns"),
    ("docs/comparison.md", "22 nanoseconds", "flagship", r"D = 10 \| 22 ns"),
]


@pytest.mark.parametrize(
    ("page", "phrase", "table", "row"), QUOTES, ids=lambda part: str(part)[:24]
)
def test_quoted_numbers_are_in_their_table(page, phrase, table, row):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert phrase in text
    assert f"results/{table}.md" in text
    assert re.search(row, (RESULTS / f"{table}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md"])
def test_every_table_that_a_page_cites_with_numbers_is_checked(page):
    """A sentence with a number that ends in a link to a table must be among the quotes."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for sentence in re.findall(
        r"([^.]*?\d[^.]*?)\(\[[^\]]*\]\((?:\.\./)?benchmarks/results/(\w+)\.md", text
    ):
        assert any(one[0] == page and one[2] == sentence[1] for one in QUOTES), sentence


def test_measured_packages_and_tables_exist():
    for table, packages in stale.MEASURED.items():
        assert (RESULTS / f"{table}.md").exists() or table == "boltzmann"
        for package in packages:
            assert (ROOT / "src" / "minigibbs" / package).exists(), package


def test_prose_does_not_make_a_table_stale(tmp_path, monkeypatch):
    """The fingerprint of a table changes with the code, but not with docstrings and comments."""
    package = tmp_path / "src" / "minigibbs" / "exact"
    package.mkdir(parents=True)
    monkeypatch.setattr(stale, "ROOT", tmp_path)
    prints = []
    for text in ('"""One."""\nx = 1\n', '"""Two."""\nx = 1  # the number\n', '"""One."""\nx = 2\n'):
        (package / "a.py").write_text(text, encoding="utf-8")
        prints.append(stale.fingerprint("elimination"))
    assert prints[0] == prints[1] != prints[2]
