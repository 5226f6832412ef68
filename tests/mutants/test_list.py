"""The list of deliberate mistakes is valid: each can be made, and its tests exist."""

import re

import pytest

from tests.mutants.listed import SOURCES, listed
from tests.paths import ROOT, TESTS

MUTANTS = listed()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made_and_has_a_test(mutant):
    text = (ROOT / SOURCES / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert mutant.tests
    for test in mutant.tests:
        file, name = re.fullmatch(r"([\w/]+\.py)::(\w+)(?:\[.*\])?", test).groups()
        assert f"def {name}(" in (TESTS / file).read_text()


def test_names_are_unique_and_every_room_has_some():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 60
    packages = {mutant.file.split("/")[0] for mutant in MUTANTS}
    assert packages >= {"kernels", "graph", "exact", "samplers", "results", "running", "formats"}
