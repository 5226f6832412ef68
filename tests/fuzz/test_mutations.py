"""Mutants are valid archives with one change, and no mutant occurs twice."""

import random

import numpy as np
import pytest

from minigibbs.system import files
from tests.fuzz import mutations
from tests.fuzz.cases import valid
from tests.fuzz.readers import READERS

ARCHIVES = [name for name, reader in READERS.items() if reader.archive in ("plain", "sealed")]


def archives(target):
    """Return the valid archives of a reader, and which are sealed."""
    for content in valid(target):
        for name, data in content.items():
            if data[:2] == b"PK":
                yield data, name.endswith((".npz", ".mgl"))


@pytest.mark.parametrize("target", ARCHIVES)
def test_an_archive_put_together_from_members_is_the_one_that_is_written(target, tmp_path):
    for number, (data, sealed) in enumerate(archives(target)):
        header, arrays = mutations.unpack(data)
        joined = mutations.join(header, mutations._members(data).values(), sealed)
        path = tmp_path / f"{number}"
        path.write_bytes(joined)
        if sealed:
            files.check_seal(path)
        found, read = files.read_arrays(path, header["format"])
        assert found == header
        assert list(read) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array, strict=True)
        whole = mutations.pack(header, arrays, sealed)
        assert joined[joined.index(b"PK", 4) : joined.index(b"PK\x01\x02")] in whole


def test_a_changed_array_is_the_only_thing_that_is_changed(tmp_path):
    data, _ = next(archives("mg"))
    header, arrays = mutations.unpack(data)
    seen = set()
    for number in range(200):
        path = tmp_path / "a"
        path.write_bytes(mutations.spoil_archive(data, random.Random(number), False))
        found = mutations.unpack(path.read_bytes())
        same = {name for name in arrays if _same(found[1].get(name), arrays[name])}
        changed = (found[0] != header) + len(set(arrays) - same)
        assert changed <= 3
        seen.add(changed)
    assert seen >= {1, 2, 3}


def _same(found, array):
    return found is not None and found.dtype == array.dtype and np.array_equal(found, array)
