"""A part of the campaign `python -m tests.fuzz files`."""

import pytest

from tests.fuzz import files
from tests.fuzz.cases import READ, REFUSED


@pytest.mark.parametrize("first", [0, 40])
def test_odd_files_do_no_harm(first):
    found = files.campaign(0, first, 40)
    assert set(found) == {READ, REFUSED}
