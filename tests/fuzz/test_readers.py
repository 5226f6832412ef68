"""A fixed part of the fuzzing, and every file that once did harm."""

import pytest

from tests.fuzz import readers
from tests.fuzz.cases import KEPT, READ, REFUSED, run_case, try_files, valid
from tests.fuzz.limits import limited_memory
from tests.fuzz.mutations import headers, pack, spoiled_arrays, unpack
from tests.fuzz.readers import READERS

CASES = {"checkpoint": 80, "resume": 60, "mg": 300, "run": 150, "summary": 80, "learning": 150}


@pytest.fixture(autouse=True)
def _limits():
    with limited_memory():
        yield


@pytest.mark.parametrize("target", READERS)
def test_files_are_read_or_refused(target, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(readers, "LIMIT", 5.0)
        for content in valid(target):
            assert try_files(target, content, tmp_path / "case") == READ
    found = [run_case(target, 0, k, tmp_path / "case") for k in range(CASES.get(target, 500))]
    assert set(found) == {READ, REFUSED}


@pytest.mark.parametrize("case", sorted(KEPT.glob("*/*")), ids=lambda case: case.name)
def test_what_once_did_harm_is_refused(case, tmp_path):
    content = {path.name: path.read_bytes() for path in case.iterdir()}
    assert try_files(case.parent.name, content, tmp_path / "case") in (READ, REFUSED)


ARCHIVES = [
    ("mg", "model.mg"),
    ("run", "a.run"),
    ("answer", "a.answer"),
    ("fit", "a.fit"),
    ("learning", "a.mgl"),
    ("learning", "a.mgl."),
    *(("checkpoint", name) for name in ("run.npz", "state", "records")),
    *(("resume", name) for name in ("run.npz", "state")),
]


def changed(target, name):
    """Yield valid files, one of which has a changed header field or array."""
    content = valid(target)[-1]
    if name not in content:
        name = max(other for other in content if other.startswith(name))
    header, arrays = unpack(content[name])
    sealed = READERS[target].archive == "sealed"
    for other in headers(header):
        yield {**content, name: pack(other, arrays, sealed)}
    for key, array in arrays.items():
        for other in spoiled_arrays(array):
            yield {**content, name: pack(header, {**arrays, key: other}, sealed)}


@pytest.mark.parametrize(("target", "name"), ARCHIVES)
def test_every_field_may_be_anything(target, name, tmp_path):
    """Changed headers and arrays with correct checksums are refused, or read and valid.

    A run continues from the previous generation if the latest is damaged.
    """
    found = [try_files(target, content, tmp_path / "case") for content in changed(target, name)]
    assert set(found) == {READ, REFUSED}
    if (target, name) != ("resume", "state"):
        assert found.count(REFUSED) > len(found) / 3
