"""Files are written atomically, and are either read as data or refused."""

import errno
import io
import json
import os
import stat
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.formats import uai
from minigibbs.system import files
from tests.zoo import ZOO


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, changes, compression=zipfile.ZIP_STORED):
    """Change members of an archive; None removes one."""
    kept = {n: d for n, d in {**members(path), **changes}.items() if d is not None}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in kept.items():
            archive.writestr(name, data)


def npy(array, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), **options)
    return stream.getvalue()


def header(path, **changes):
    """Return the JSON header with some entries changed."""
    return json.dumps({**json.loads(members(path)["header.json"]), **changes}).encode()


def test_write_whole_writes(tmp_path):
    files.write_whole(tmp_path / "a", lambda stream: stream.write(b"new"))
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_write_whole_uses_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    files.write_whole(tmp_path / "a", lambda stream: stream.write(b"new"))
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "usual")}
    assert len(modes) == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_write_whole_leaves_the_old_file_on_failure(tmp_path, error):
    (tmp_path / "a").write_bytes(b"old")

    def fail(stream):
        stream.write(b"half")
        raise error

    with pytest.raises(error):
        files.write_whole(tmp_path / "a", fail)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    def full(stream):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"No space left on device: '.*a\.txt'"):
        files.write_whole(tmp_path / "a.txt", full)
    assert not list(tmp_path.iterdir())


def test_write_whole_takes_a_bare_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_whole("a", lambda stream: stream.write(b"new"))
    assert (tmp_path / "a").read_bytes() == b"new"


def test_arrays_come_back_as_they_were(tmp_path):
    arrays = {
        "plain": np.arange(6, dtype=np.int16).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.empty((4, 0), dtype=np.uint8),
        "none": np.empty(0),
        "scalar": np.array(3.5),
        "flags": np.array([True, False]),
    }
    files.write_arrays(tmp_path / "a", {"format": "f", "note": "x"}, arrays)
    head, got = files.read_arrays(tmp_path / "a", "f")
    assert head == {"format": "f", "note": "x"}
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)
    with np.load(tmp_path / "a") as loaded:  # NumPy can read them, too
        np.testing.assert_array_equal(loaded["plain"], arrays["plain"])


def test_arrays_of_objects_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"[Oo]bject arrays"):
        files.write_arrays(tmp_path / "a", {"format": "f"}, {"x": np.array([{}], dtype=object)})
    assert os.listdir(tmp_path) == []


def same_graph(a, b):
    assert [type(group) for group in a.factors] == [type(group) for group in b.factors]
    for left, right in zip(a.factors, b.factors, strict=True):
        assert left.arrays().keys() == right.arrays().keys()
        for name, value in left.arrays().items():
            np.testing.assert_array_equal(right.arrays()[name], value)
    np.testing.assert_array_equal(a.sizes, b.sizes)
    np.testing.assert_array_equal(a.evidence, b.evidence)
    assert a.names == b.names
    assert a.domains.labels == b.domains.labels
    assert a.domains.grids == b.domains.grids
    assert a.stats == b.stats


@pytest.mark.parametrize("model", ZOO)
def test_models_round_trip(tmp_path, model):
    path = tmp_path / "model.mg"
    mg.write(ZOO[model], path)
    same_graph(ZOO[model], mg.read(path))


def described():
    grid = mg.Grid(-1.0, 2.5, 4)
    return mg.FactorGraph(
        [grid, 3, 2],
        [mg.Table.from_function([0], lambda a: a, [grid]), mg.Potts([1], [2], 0.1)],
        names=["height", "sky", "wet é"],
        labels={"sky": ["blue", "gray", "black"], 2: np.array([10, 20])},
    ).condition({"sky": "gray"})


def test_names_labels_grids_and_evidence_round_trip(tmp_path):
    path = tmp_path / "model.mg"
    mg.write(described(), str(path))
    got = mg.read(str(path))
    same_graph(described(), got)
    assert got.domains.values(0) == (-1.0, pytest.approx(1 / 6), pytest.approx(4 / 3), 2.5)
    assert got.condition({"wet é": 20}).evidence.tolist() == [-1, 1, 1]


def test_a_graph_without_factors_round_trips(tmp_path):
    graph = mg.FactorGraph([2, 5], [])
    mg.write(graph, tmp_path / "model.mg")
    same_graph(graph, mg.read(tmp_path / "model.mg"))


def test_labels_that_a_file_cannot_hold_are_refused_when_writing(tmp_path):
    """A written file must be readable."""
    graph = mg.FactorGraph([2], [], labels=[[("a", 1), ("b", 2)]])
    path = tmp_path / "model.mg"
    try:
        mg.write(graph, path)
    except mg.MinigibbsError as error:
        assert "variable 0" in str(error)  # noqa: PT017
        assert os.listdir(tmp_path) == []
    else:
        same_graph(graph, mg.read(path))


@pytest.mark.parametrize("ending", ["txt", "MG", ""])
def test_unknown_endings_are_refused(tmp_path, ending):
    with pytest.raises(mg.FormatError, match=r"unknown model format.*\.mg"):
        mg.write(ZOO["potts"], tmp_path / f"model.{ending}")
    with pytest.raises(mg.FormatError, match=r"unknown model format.*\.mg"):
        mg.read(tmp_path / f"model.{ending}")
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        mg.read(tmp_path / "model.mg")
    mg.write(ZOO["potts"], tmp_path / "model.mg")
    for name, found in {
        "modle.mg": "did you mean model.mg?",
        "run": "check the name and the folder",
        "no/run": "there is no folder",
    }.items():
        with pytest.raises(mg.MissingFileError, match="expected a saved model, run") as caught:
            mg.load(tmp_path / name)
        assert found in str(caught.value)
    for read in (uai.read_evidence, uai.read_marginals, mg.resume_learning):
        with pytest.raises(mg.MissingFileError, match="there is no none in"):
            read(tmp_path / "none")


def group_header(path, **changes):
    groups = json.loads(members(path)["header.json"])["groups"]
    groups[0].update(changes)
    return header(path, groups=groups)


def deep(path):
    return b'{"format": "minigibbs-model-1", "groups": ' + b"[" * 200_000


DAMAGE = {
    "no header": lambda p: {"header.json": None},
    "header of another kind": lambda p: {"header.json": b"[1, 2]"},
    "header that is no JSON": lambda p: {"header.json": b"{"},
    "header that is no text": lambda p: {"header.json": b"\xff\xfe{}"},
    "header nested deeply": lambda p: {"header.json": deep(p)},
    "another format": lambda p: {"header.json": header(p, format="minigibbs-run-1")},
    "no groups": lambda p: {"header.json": header(p, groups=None)},
    "groups of numbers": lambda p: {"header.json": header(p, groups=[1, 2])},
    "unknown kind": lambda p: {"header.json": group_header(p, kind="magic")},
    "kind of another type": lambda p: {"header.json": group_header(p, kind=["potts"])},
    "unknown argument": lambda p: {"header.json": group_header(p, color="red")},
    "labels in a list": lambda p: {"header.json": header(p, labels=[1])},
    "too few names": lambda p: {"header.json": header(p, names=["a"])},
    "grid that is none": lambda p: {"header.json": header(p, grids={"0": [1.0, 0.0, 3]})},
    "grid of another size": lambda p: {"header.json": header(p, grids={"0": [0.0, 1.0, 99]})},
    "grid of no variable": lambda p: {"header.json": header(p, grids={"77": [0.0, 1.0, 3]})},
    "no sizes": lambda p: {"sizes.npy": None},
    "no evidence": lambda p: {"evidence.npy": None},
    "domain of size 0": lambda p: {"sizes.npy": npy([0, 3, 3, 3])},
    "sizes as text": lambda p: {"sizes.npy": npy(["a", "b", "c", "d"])},
    "evidence out of domain": lambda p: {"evidence.npy": npy([7, -1, -1, -1])},
    "evidence too short": lambda p: {"evidence.npy": npy([-1])},
    "evidence too long": lambda p: {"evidence.npy": npy([-1] * 4 + [0])},
    "evidence as text": lambda p: {"evidence.npy": npy(["a"] * 4)},
    "no weights": lambda p: {"0.weight.npy": None},
    "too few weights": lambda p: {"0.weight.npy": npy([1.0])},
    "NaN weight": lambda p: {"0.weight.npy": npy([1.0, 2.0, 3.0, 4.0, np.nan])},
    "variable out of range": lambda p: {"0.i.npy": npy([0, 1, 2, 3, 99])},
    "an array that is none": lambda p: {"0.weight.npy": b"not an array"},
    "an empty array file": lambda p: {"0.weight.npy": b""},
    "an array cut short": lambda p: {"0.weight.npy": npy(np.ones(5))[:-8]},
    "an array with a tail": lambda p: {"0.weight.npy": npy(np.ones(5)) + b"12345678"},
    "a pickle": lambda p: {"0.weight.npy": npy(np.array([{}] * 5, dtype=object))},
    "an oversized claim": lambda p: {
        "0.weight.npy": npy(np.ones(5)).replace(b"(5,), }     ", b"(5000000,), }")
    },
    "a negative shape": lambda p: {
        "0.weight.npy": npy(np.ones((2, 5))).replace(b"(2, 5), }  ", b"(-2, -5), }")
    },
    "an open bracket": lambda p: {"0.weight.npy": npy(np.ones(5)).replace(b"(5,), }", b"(5,), [")},
    "items of no size": lambda p: {"0.weight.npy": npy(np.empty(0)).replace(b"'<f8'", b"'|V0'")},
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_models_are_refused(tmp_path, case):
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    before = members(path)
    rewrite(path, DAMAGE[case](path))
    assert members(path) != before
    with pytest.raises(mg.FormatError, match=r"model\.mg"):
        mg.read(path)


def test_rewriting_alone_does_no_damage(tmp_path):
    """Guard the test above."""
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    rewrite(path, {})
    same_graph(ZOO["potts"], mg.read(path))


def test_compressed_files_are_refused(tmp_path):
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    rewrite(path, {"bomb.npy": npy(np.zeros(10**6))}, zipfile.ZIP_DEFLATED)
    with pytest.raises(mg.FormatError, match="compressed"):
        mg.read(path)


def claim(path, member, at, form, value):
    """Change a number in an archive's directory, `at` bytes after the start of a member's entry."""
    data = bytearray(path.read_bytes())
    entry = data.rindex(member.encode()) - 46  # bytes of an entry before its name
    assert data[entry : entry + 4] == b"PK\x01\x02"
    struct.pack_into(form, data, entry + at, value)
    path.write_bytes(data)


CLAIMS = {
    "2 GB, compressed": (20, "<I", 2**31 - 1),
    "2 GB": (24, "<I", 2**31 - 1),
    "one byte, compressed": (20, "<I", 1),
    "LZMA, with a dictionary of any size": (10, "<H", 14),
    "bzip2": (10, "<H", 12),
    "deflate": (10, "<H", 8),
    "encryption": (8, "<H", 1),
    "the place of the first member": (42, "<I", 0),
    "a place beyond the end": (42, "<I", 2**31),
}
LOADS = """
import resource, sys
import minigibbs as mg
from minigibbs.system import files
mg.FactorGraph([2], [])
load = mg.load  # with all that it imports
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 200_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        load(path)
    except mg.FormatError as error:
        print("refused")
    print(files.stated_format(path))
"""


def test_no_claim_of_an_archive_is_believed(tmp_path):
    """With 200 MB of memory, a few kB can be read or refused, whatever sizes they state."""
    paths = []
    for number, (at, form, value) in enumerate(CLAIMS.values()):
        for member in ("header.json", "0.weight.npy"):
            paths.append(tmp_path / f"{number}-{member}.mg")
            mg.write(ZOO["potts"], paths[-1])
            claim(paths[-1], member, at, form, value)
            if (member, at, value) != ("header.json", 42, 0):  # its true offset
                with pytest.raises(mg.FormatError, match="damaged"):
                    mg.read(paths[-1])
    command = [sys.executable, "-c", LOADS, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.stderr == ""
    assert done.stdout.count("refused") == len(paths) - 1


def test_members_may_not_share_bytes_or_names(tmp_path):
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("header.json", members(path)["header.json"])
    with pytest.raises(mg.FormatError, match="two members of one name"):
        mg.read(path)


def test_cut_files_are_refused_by_load(tmp_path):
    """This includes files for which `zipfile` seeks before the beginning."""
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 23):
        for cut in (whole[:length], whole[length + 1 :]):
            path.write_bytes(cut)
            with pytest.raises(mg.FormatError, match=r"model\.mg"):
                mg.load(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"hello world" * 100], ids=["empty", "2", "text"])
def test_files_that_are_no_archives_are_refused(tmp_path, content):
    path = tmp_path / "model.mg"
    path.write_bytes(content)
    with pytest.raises(mg.FormatError, match=r"model\.mg"):
        mg.read(path)


def test_truncated_models_are_refused(tmp_path):
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(mg.FormatError):
            mg.read(path)


def test_no_flipped_byte_does_worse_than_a_refusal(tmp_path):
    """For each byte the file is read unchanged, or refused; nothing else may happen."""
    path = tmp_path / "model.mg"
    mg.write(ZOO["potts"], path)
    whole, refused = path.read_bytes(), 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        try:
            graph = mg.read(path)
        except mg.FormatError:
            refused += 1
        else:
            same_graph(ZOO["potts"], graph)
    assert refused > len(whole) / 2


def test_a_folder_that_is_not_there_is_named(tmp_path):
    graph = mg.FactorGraph([2], [])
    run = mg.sample(graph, sweeps=5, progress=False)
    for write in (run.save, lambda path: mg.write(graph, path)):
        with pytest.raises(mg.SampleError, match=r"there is no folder .*gone; make it first"):
            write(tmp_path / "gone" / "a.mg")


def test_load_reads_models_and_runs(tmp_path):
    graph = mg.FactorGraph([2], [])
    mg.write(graph, tmp_path / "model.mg")
    mg.sample(graph, sweeps=5, progress=False).save(tmp_path / "run.mg")
    mg.load(tmp_path / "run.mg").save(tmp_path / "run")
    assert isinstance(mg.load(tmp_path / "model.mg"), mg.FactorGraph)
    assert isinstance(mg.load(tmp_path / "run.mg"), mg.Run)
    assert isinstance(mg.load(tmp_path / "run"), mg.Run)
    for name in ("run", "model.mg"):
        with pytest.raises(mg.FormatError, match="options"):
            mg.load(tmp_path / name, floor=0.1)
    (tmp_path / "bad.mg").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(mg.FormatError, match="damaged"):
        mg.load(tmp_path / "bad.mg")
    with pytest.raises(FileNotFoundError):
        mg.load(tmp_path / "gone.mg")
