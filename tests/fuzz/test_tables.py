"""A part of the campaign `python -m tests.fuzz tables`."""

import pytest

from tests.fuzz import tables


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_bad_tables_do_no_harm(first):
    for library in ("pandas", "polars", "pyarrow", "sklearn"):
        pytest.importorskip(library)
    found = tables.campaign(0, first, 40)
    assert {what for _, what in found} <= set(tables.HARMLESS), found
    assert any(what == tables.READ for _, what in found)
