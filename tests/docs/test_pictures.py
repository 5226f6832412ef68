"""Pictures of benchmarks are drawn from the stored tables, and every row they need exists."""

import pytest

from benchmarks.pictures import CHARTS, CURVES, RESULTS, Table, draw
from tests.paths import ROOT


@pytest.mark.parametrize("name", CHARTS)
def test_every_number_of_a_picture_is_in_its_table(name):
    bars_of, title, unit = CHARTS[name]
    bars = bars_of(Table.read(RESULTS / f"{name}.md"))
    assert len(bars) >= 4
    assert all(number > 0 for _, _, number in bars)
    assert title
    assert unit


def test_a_picture_is_drawn_beside_its_table(tmp_path):
    pytest.importorskip("matplotlib")
    table = tmp_path / "clusters.md"
    table.write_text((RESULTS / "clusters.md").read_text())
    draw(table)
    assert (tmp_path / "clusters.png").read_bytes().startswith(b"\x89PNG")
    draw(tmp_path / "uai.md")  # this table has no picture


def test_every_picture_has_its_table():
    assert {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.png")} == {
        *CHARTS,
        *CURVES,
    }
