"""Checkpoints: killed runs, damaged files, full disks, and several runs in one folder."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from typer.testing import CliRunner

import minigibbs as mg
from minigibbs.cli.main import app
from minigibbs.running import api, durations
from minigibbs.running import group as running
from minigibbs.running.checkpoint import saver
from minigibbs.running.checkpoint.folder import Checkpoint
from minigibbs.running.checkpoint.peek import saved_run
from minigibbs.running.plan import CHROMATIC, SCANS
from minigibbs.samplers.encoding import describe_sampler, sampler_from
from minigibbs.system import files
from minigibbs.system.watch import current
from tests.harness import sample
from tests.paths import ROOT
from tests.settings import SETTINGS
from tests.zoo import IMPLICIT, ZOO

EVERYTHING = ("marginals", "draws", "energy")
CHECKPOINT, STATE = "minigibbs-checkpoint-2", "minigibbs-state-2"
OPTIONS = {"updates": 3000, "thin": 10, "seed": 7, "record": EVERYTHING, "progress": False}
ARRAYS = ("clock", "counts", "kept_draws", "energy", "error")


def same_runs(a, b):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("factor_evaluations", "minibatch_draws", "acceptance", "changed", "warmup"):
        assert getattr(a.info, name) == getattr(b.info, name)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run.zarr"


@pytest.fixture
def at_segment(monkeypatch):
    """Return a hook that acts at the end of a segment; segments are short."""

    def hook(number, action, length=100):
        original, count = running.Group.run_segment, [0]

        def run_segment(job):
            job.segment = length
            made = original(job)
            count[0] += 1
            if count[0] == number:
                action()
            return made

        monkeypatch.setattr(running.Group, "run_segment", run_segment)

    return hook


@pytest.mark.parametrize(
    ("model", "sampler", "options"),
    [
        (
            "potts",
            "default",
            {"updates": 4_000_000, "thin": 20_000, "warmup": 100_000, "scan": "shuffled"},
        ),
        ("potts", "min-gibbs", {"updates": 150_000, "thin": 2000, "reference": True}),
        ("evidence", "default", {"updates": 3_000_000, "thin": 200_000, "scan": "systematic"}),
        ("evidence", "block-gibbs", {"sweeps": 500_000, "thin": 10_000}),
        ("line", "swendsen-wang", {"sweeps": 500_000, "thin": 10_000}),
        ("mixed", "exact", {"sweeps": 500_000, "thin": 10_000}),
    ],
)
def test_killed_at_any_moment_it_ends_as_if_undisturbed(model, sampler, options, folder):
    kills = 17  # kills per run
    options = {**options, "seed": 3, "record": EVERYTHING}
    work = json.dumps([model, sampler, options, kills, str(folder)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.running.killed", work],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert (report["killed"], report["same"]) == (kills, True)
    assert report["generations"] > 5  # guards the line above: runs were killed in the middle


@pytest.mark.parametrize("name", SETTINGS)
def test_every_sampler_goes_on_where_it_stopped(name, folder):
    setting = SETTINGS[name]
    graph = ZOO["potts" if setting.pairs_only else "mixed"]
    options = {**OPTIONS, "sampler": setting.sampler, "warmup": 7, "chains": 2}
    whole = sample(graph, **options)
    sample(graph, **{**options, "updates": 1003, "checkpoint": folder})
    mg.resume(folder, updates=994, progress=False)
    same_runs(whole, mg.resume(folder, updates=1003, progress=False))


@pytest.mark.parametrize("name", [*IMPLICIT, *ZOO])
def test_every_model_goes_on_where_it_stopped(name, folder):
    graph = {**IMPLICIT, **ZOO}[name]
    record = ("marginals", "draws") if name in IMPLICIT else EVERYTHING
    reference = np.full((len(graph), graph.sizes.max()), 0.5)
    options = {**OPTIONS, "record": record, "reference": reference, "scan": "shuffled", "chains": 2}
    whole = sample(graph, **options)
    sample(graph, **{**options, "updates": 1234, "checkpoint": folder})
    same_runs(whole, mg.resume(folder, updates=3000 - 1234, progress=False))


@pytest.mark.parametrize("scan", [scan for scan in SCANS if scan != CHROMATIC])  # needs sweeps
def test_every_scan_goes_on_where_it_stopped(scan, folder):
    options = {**OPTIONS, "scan": scan, "chains": 2}
    whole = sample(ZOO["mixed"], **options)
    sample(ZOO["mixed"], **{**options, "updates": 1003, "checkpoint": folder})
    same_runs(whole, mg.resume(folder, updates=3000 - 1003, progress=False))


def test_a_graph_that_is_all_clamped(folder):
    graph = ZOO["potts"].condition(dict.fromkeys(range(4), 1))
    reference = np.full((4, 3), 0.5)
    whole = sample(graph, **OPTIONS, reference=reference)
    sample(graph, **{**OPTIONS, "updates": 500}, reference=reference, checkpoint=folder)
    same_runs(whole, mg.resume(folder, updates=2500, progress=False))


def test_a_finished_run_is_returned_as_it_is(folder):
    run = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, warmup=5)
    before = sorted(path.name for path in folder.iterdir())
    again = mg.resume(folder, progress=False)
    same_runs(run, again)
    assert again.info.ended == "length"
    assert again.info.seconds == pytest.approx(run.info.seconds, abs=0.05)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (run.domains.sizes == again.domains.sizes).all()


def test_ctrl_c_saves(folder, at_segment):
    at_segment(20, lambda: os.kill(os.getpid(), signal.SIGINT))
    run = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every="1h")
    assert run.interrupted
    assert 0 < run.clock.min() < 3000
    same_runs(sample(ZOO["mixed"], **OPTIONS), mg.resume(folder, progress=False))


def states(folder):
    return sorted(folder.glob("state-*.npz"))


def stopped_half_way(folder, at_segment, monkeypatch, number=60):
    """Make a run with several generations, stopped like by a kill, without a last write."""

    class Killed(Exception):
        pass

    def kill():
        raise Killed

    at_segment(number, kill)
    with pytest.raises(Killed):
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0, threads=1)
    monkeypatch.undo()
    assert len(states(folder)) == 2


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["start", "middle", "end", "torn", "empty", "gone", "chunk"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    folder, at_segment, monkeypatch, damage
):
    stopped_half_way(folder, at_segment, monkeypatch)
    latest = states(folder)[-1]
    if damage == "chunk":
        latest = sorted(folder.glob("records-*.npz"))[-1]
    size = latest.stat().st_size
    if damage in ("start", "middle", "end", "chunk"):
        flip(latest, {"start": 0, "end": size - 5}.get(damage, size // 2))
    elif damage in ("torn", "empty"):
        os.truncate(latest, size // 2 if damage == "torn" else 0)
    else:
        latest = sorted(folder.glob("records-*.npz"))[-1]
        latest.unlink()
    with pytest.warns(UserWarning, match=f"{latest.name}.*the checkpoint before it is used"):
        run = mg.resume(folder, progress=False)
    same_runs(sample(ZOO["mixed"], **OPTIONS), run)


def test_no_byte_can_change_unnoticed(folder):
    sample(ZOO["potts"], updates=40, seed=1, chains=1, progress=False, checkpoint=folder)
    latest = states(folder)[-1]
    whole = latest.read_bytes()
    for place in range(0, len(whole), 11):
        flip(latest, place)
        with pytest.raises(mg.FormatError):
            files.check_seal(latest)
        latest.write_bytes(whole)
    files.check_seal(latest)


@pytest.mark.parametrize("name", ["both", "model.mg", "run.npz", "first chunk"])
def test_damage_that_cannot_be_mended_is_an_error(folder, at_segment, monkeypatch, name):
    stopped_half_way(folder, at_segment, monkeypatch)
    if name == "both":
        for path in states(folder):
            flip(path, 100)
    else:
        path = min(folder.glob("records-*")) if name == "first chunk" else folder / name
        flip(path, 100)
    with pytest.raises(mg.FormatError, match="checksum"):
        mg.resume(folder, progress=False)


def test_states_of_another_run_are_refused(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        options = {**OPTIONS, "seed": seed, "checkpoint": tmp_path / name}
        sample(ZOO["mixed"], **options)
    for path in [*states(tmp_path / "a"), *(tmp_path / "a").glob("records-*")]:
        shutil.copy(path, tmp_path / "b")
    with pytest.raises(mg.FormatError, match="another run"):
        mg.resume(tmp_path / "b", progress=False)


def reseal(path, expected, /, **changes):
    """Change a sealed file and seal it again."""
    header, arrays = files.read_arrays(path, expected)
    for name, value in changes.items():
        (header if name in header else arrays)[name] = value
    files.write_arrays(path, header, arrays, sealed=True)


def huge(array):
    return np.full_like(array, np.iinfo(array.dtype).max)


@pytest.mark.parametrize("name", ["x", "order", "position", "clock", "warmed", "counts"])
def test_states_that_would_make_compiled_code_go_astray_are_refused(folder, name):
    """Checksums do not stop an attacker; a check of every index does."""
    options = {**OPTIONS, "scan": "shuffled", "updates": 200}
    sample(ZOO["evidence"], **options, checkpoint=folder)
    found = {path: files.read_arrays(path, STATE)[1][name] for path in states(folder)}
    changes = [lambda array: array[:, :0], lambda array: array.astype(float)]
    changes.append((lambda array: 0 * array - 1) if name == "counts" else huge)
    for change in changes:  # one at a time: each must be refused
        for path, array in found.items():
            reseal(path, STATE, **{name: change(array)})
        with pytest.raises(mg.FormatError, match=name):
            mg.resume(folder, progress=False)


@pytest.mark.parametrize("name", ["stream", "path"])
def test_generators_that_would_stand_still_are_refused(folder, name):
    """xoshiro256++ never leaves the state of all zeros; a scan would never end."""
    sample(ZOO["evidence"], **{**OPTIONS, "scan": "shared", "updates": 200}, checkpoint=folder)
    for path in states(folder):
        _, arrays = files.read_arrays(path, STATE)
        reseal(path, STATE, **{name: 0 * arrays[name]})
    with pytest.raises(mg.FormatError, match=name):
        mg.resume(folder, progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"sampler": {"name": "os.system", "command": "touch harm"}},
        {"sampler": {"name": "min-gibbs", "estimator": {"estimator": "CustomEstimator"}}},
        {"scan": "__import__"},
        {"kept": ["draws", "code"]},
        {"backend": "os"},
        {"thin": 0},
        {"chains": -1},
        {"chains": 100},  # records only a few: the arrays of a chain would not fit
        {"warmup": "many"},
        {"length": 1e300},
    ],
)
def test_requests_that_no_run_makes_are_refused(folder, change):
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    plan = files.read_arrays(folder / "run.npz", CHECKPOINT)[0]["plan"]
    reseal(folder / "run.npz", CHECKPOINT, plan={**plan, **change})
    with pytest.raises(mg.FormatError, match=r"run\.npz"):
        mg.resume(folder, progress=False)


@pytest.mark.parametrize("what", ["state", "records"])
def test_a_full_disk_stops_the_run_and_nothing_is_lost(folder, at_segment, monkeypatch, what):
    original, calls = files.write_arrays, []

    def write_arrays(path, *rest, **options):
        if what in Path(path).name:
            calls.append(path)
            if len(calls) >= 4:  # a part of the file exists when the disk is full

                def write(stream):
                    stream.write(b"x" * 1000)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

                return files.write_whole(path, write)
        return original(path, *rest, **options)

    at_segment(10**9, lambda: None)
    monkeypatch.setattr(files, "write_arrays", write_arrays)
    with pytest.raises(mg.StoppedError, match="No space left on device") as caught:
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0)
    monkeypatch.undo()
    so_far = caught.value.run
    assert "mg.resume" in str(caught.value)
    assert so_far.info.ended == "stopped"
    assert 0 < so_far.clock.min() < 3000
    assert not list(folder.glob(".*"))
    whole, run = sample(ZOO["mixed"], **OPTIONS), mg.resume(folder, progress=False)
    same_runs(whole, run)
    records = so_far.draws.shape[1]
    np.testing.assert_array_equal(so_far.draws, whole.draws[:, :records])


LIMITED = """
import resource, sys, signal
import minigibbs as mg
folder, graph = sys.argv[1], mg.models.potts_lattice(6, 3, 0.5)
mg.sample(graph, updates=1, record="draws", progress=False)  # compiled code is kept in files too
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    mg.sample(graph, updates=200_000, warmup=0, chains=2, seed=1, start="random",
              record=mg.Record("draws", thin=200), progress=False, checkpoint=folder, every="1h")
except mg.StoppedError as error:
    print("stopped", error.run.clock.min())
"""


def test_a_file_that_may_not_grow_is_as_a_full_disk(folder):
    """The system refuses the write: the last chunk is 72 kB, and 40 kB are allowed."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, folder], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "stopped 200000\n", done.stderr
    graph = mg.models.potts_lattice(6, 3, 0.5)
    options = {"updates": 200_000, "thin": 200, "chains": 2, "seed": 1, "record": "draws"}
    whole = sample(graph, **options, progress=False)
    same_runs(whole, mg.resume(folder, progress=False))


def test_a_folder_that_is_removed_stops_the_run_and_what_was_sampled_is_handed_over(
    folder, at_segment
):
    def remove():
        while folder.exists():  # a file may be written in the meantime
            shutil.rmtree(folder, ignore_errors=True)

    at_segment(40, remove)
    with pytest.raises(mg.StoppedError, match="is gone") as caught:
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0)
    run, whole = caught.value.run, sample(ZOO["mixed"], **OPTIONS)
    assert run.draws.shape[1] > 0
    np.testing.assert_array_equal(run.draws, whole.draws[:, : run.draws.shape[1]])


@pytest.mark.parametrize(
    "names",
    [["model.mg"], ["run.npz"], ["records-*"], ["lock"], ["state-*"], ["[!.]*"]],
    ids="/".join,
)
@pytest.mark.parametrize("resumed", [False, True])
def test_what_vanishes_while_a_run_goes_on_is_written_again(
    folder, at_segment, monkeypatch, names, resumed
):
    """A finished checkpoint can be resumed for a longer run, with the same bits."""
    if resumed:
        stopped_half_way(folder, at_segment, monkeypatch, 30)

    def remove():
        for name in names:
            for path in folder.glob(name):
                path.unlink(missing_ok=True)  # files are written and replaced in the meantime

    at_segment(30, remove)
    if resumed:
        mg.resume(folder, progress=False, every=0)
    else:
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0)
    monkeypatch.undo()
    longer = {**OPTIONS, "updates": 3500}
    same_runs(sample(ZOO["mixed"], **longer), mg.resume(folder, updates=500, progress=False))
    same_runs(sample(ZOO["mixed"], **longer), mg.load(folder))


def test_another_run_in_a_folder_whose_lock_was_removed_stops_this_one(folder, at_segment):
    others = []

    def intrude():
        """Replace the lock atomically: the run would otherwise recreate a missing lock first."""
        mine = folder / "theirs"
        others.append(open(mine, "a+"))  # noqa: SIM115
        others[0].write("process 77 on another\n")
        others[0].flush()
        fcntl.flock(others[0], fcntl.LOCK_EX)
        mine.replace(folder / "lock")

    at_segment(30, intrude)
    with pytest.raises(mg.StoppedError, match="in use by process 77 on another") as caught:
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0)
    others[0].close()
    assert caught.value.run.clock.min() > 0
    same_runs(sample(ZOO["mixed"], **OPTIONS), mg.resume(folder, progress=False))


@pytest.mark.parametrize("damage", ["gone", "folder"])
@pytest.mark.parametrize("name", ["model.mg", "run.npz", "state"])
def test_parts_that_are_gone_or_folders(folder, name, damage):
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    for path in folder.glob(f"{name}*"):
        path.unlink()
        if damage == "folder":
            path.mkdir()
    for read in (mg.load, lambda path: mg.resume(path, progress=False)):
        with pytest.raises(mg.MinigibbsError, match=r"run\.zarr"):
            read(folder)


@pytest.mark.parametrize("name", ["model.mg", "run.npz"])
def test_a_disk_that_is_full_before_the_run_begins(folder, monkeypatch, name):
    original = files.write_whole

    def write_whole(path, write):
        if Path(path).name == name:

            def write(stream):
                stream.write(b"x" * 1000)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        original(path, write)

    monkeypatch.setattr(files, "write_whole", write_whole)
    with pytest.raises(
        mg.SampleError, match=r"cannot write the checkpoint.*No space left.*free space"
    ):
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    monkeypatch.undo()
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)  # now there is space


@pytest.fixture
def read_only(monkeypatch):
    """Simulate a read-only medium; permissions would not stop every user."""

    def make(folder):
        def refuse(path, mode="r", *rest, **options):
            if folder in Path(path).parents and set(mode) & set("wa+x"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return open(path, mode, *rest, **options)

        monkeypatch.setattr(files, "open_to_update", lambda path: refuse(path, "a"))
        monkeypatch.setattr(tempfile, "mkstemp", lambda **options: refuse(options["dir"], "w"))
        monkeypatch.setattr(Path, "unlink", lambda path, **_: refuse(path, "w"))

    return make


def test_a_finished_checkpoint_is_read_where_nothing_can_be_written(folder, read_only):
    run = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    read_only(folder)
    same_runs(run, mg.load(folder))
    same_runs(run, mg.resume(folder, progress=False))
    with pytest.raises(mg.SampleError, match=r"cannot be written to.*copy the folder"):
        mg.resume(folder, updates=100, progress=False)


def test_a_clock_that_jumps_changes_nothing(folder, monkeypatch, at_segment):
    at_segment(10**9, lambda: None)
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: (-1) ** next(jumps) * 1e9)
    run = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every="1h")
    assert [path.name for path in states(folder)] == ["state-00000001.npz", "state-00000002.npz"]
    monkeypatch.undo()
    same_runs(sample(ZOO["mixed"], **OPTIONS), run)


SECOND = """
import sys, minigibbs as mg
try:
    mg.resume(sys.argv[1], progress=False)
except mg.SampleError as error:
    print(error)
"""


def test_a_second_run_is_refused(folder, at_segment):
    found = []

    def try_both():
        with pytest.raises(mg.SampleError, match=f"in use by process {os.getpid()}"):
            mg.resume(folder, progress=False)
        with pytest.raises(mg.SampleError, match="in use"):
            sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
        done = subprocess.run(
            [sys.executable, "-c", SECOND, folder], capture_output=True, text=True, timeout=100
        )
        found.append(done.stdout)

    at_segment(30, try_both)
    run = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    assert f"in use by process {os.getpid()} on" in found[0]
    same_runs(sample(ZOO["mixed"], **OPTIONS), run)
    mg.resume(folder, progress=False)  # others may use it after its end


def test_the_lock_holds_whatever_this_process_does_with_its_file(folder, at_segment):
    """A lock per process would be released when this process closes any descriptor of the file."""
    found = []

    def open_and_try():
        (folder / "lock").read_text()
        shutil.copytree(folder, folder.with_name("copy"))
        command = [sys.executable, "-c", SECOND, folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        found.append(done.stdout)

    at_segment(30, open_and_try)
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    assert f"in use by process {os.getpid()} on" in found[0]


FORKED = """
import os, signal, sys, time
import minigibbs as mg
from minigibbs.running.group import Group
original = Group.run_segment
def run_segment(group):
    made = original(group)
    if group.clock > 500:
        child = os.fork()
        if not child:
            time.sleep(100)
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return made
Group.run_segment = run_segment
mg.sample(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]), updates=1000, chains=1, seed=1,
          progress=False, checkpoint=sys.argv[1])
"""


def test_a_child_that_outlives_a_killed_run_does_not_hold_its_lock(folder):
    command = [sys.executable, "-W", "ignore", "-c", FORKED, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        process.wait()
    try:
        graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
        whole = mg.sample(graph, updates=1000, chains=1, seed=1, progress=False)
        same_runs(whole, mg.resume(folder, progress=False))
    finally:
        os.kill(child, signal.SIGKILL)


def test_where_there_is_a_run_none_is_started(folder):
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    with pytest.raises(mg.SampleError, match=r"already holds a run.*mg\.resume"):
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)


def test_folders_that_will_not_do(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear")
    with pytest.raises(mg.SampleError, match=r"other files \(dear\.txt\)"):
        sample(ZOO["mixed"], **OPTIONS, checkpoint=tmp_path / "letters")
    with pytest.raises(mg.SampleError, match="cannot make the checkpoint folder"):
        sample(ZOO["mixed"], **OPTIONS, checkpoint=tmp_path / "no" / "such")
    for path in (tmp_path / "nothing", tmp_path / "letters"):
        with pytest.raises(mg.SampleError, match="there is no checkpoint"):
            mg.resume(path, progress=False)


@pytest.mark.parametrize(
    "name", ["records-2024.npz", "records-20240101.npz", "state-00000001.npz", "model.mg", "lock"]
)
def test_files_of_a_user_are_never_removed(folder, name):
    """A new run is refused for every name, and a resumed run does not touch the files."""
    folder.mkdir()
    (folder / name).write_bytes(b"mine")
    with pytest.raises(mg.SampleError, match=rf"other files \({name}\); give a folder of its own"):
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_bytes() == b"mine"


def test_a_resumed_run_leaves_files_of_a_user_alone(folder):
    whole = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    mine = [
        "records-2024.npz",
        "records-99999999.npz",
        ".notes.npz.txt",
        ".state-1.npz.abc",
        "a.txt",
    ]
    for name in mine:
        (folder / name).write_bytes(b"mine")
    same_runs(whole, mg.resume(folder, progress=False))
    assert all((folder / name).read_bytes() == b"mine" for name in mine)


LINKS = {
    "link": lambda path, target: path.symlink_to(target),
    "hard link": lambda path, target: path.hardlink_to(target),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": lambda path, _: bound_socket(path),
}


def bound_socket(path):
    """Create a socket's file by a relative name, because socket addresses are short."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", ["lock", "model.mg", "run.npz", "state-*", "records-*"])
def test_files_of_a_checkpoint_that_are_no_plain_files(folder, tmp_path, name, kind):
    """A foreign checkpoint must neither change the user's files nor hang."""
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    states(folder)[0].unlink()  # an older generation, without records
    target = tmp_path / "target"
    for path in folder.glob(name):
        target.write_bytes(b"dear diary" if name == "lock" else path.read_bytes())
        before = target.read_bytes()
        path.unlink()
        LINKS[kind](path, target)
    if kind == "hard link" and name != "lock":  # a hard link is a regular file
        mg.load(folder)
        mg.resume(folder, progress=False)
    else:
        with pytest.raises(mg.MinigibbsError, match=f"{name.strip('*')}"):
            mg.resume(folder, progress=False)
        if name != "lock":
            with pytest.raises(mg.MinigibbsError):
                mg.load(folder)
            assert CliRunner().invoke(app, ["report", str(folder)]).exit_code != 0
    assert target.read_bytes() == before
    if name != "lock":
        with pytest.raises(mg.SampleError, match=r"other files|already holds a run|cannot lock"):
            sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    assert target.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_becomes_a_link_while_a_run_goes_on(folder, at_segment, tmp_path, kind):
    target = tmp_path / "target"
    target.write_bytes(b"mine")

    def intrude():  # atomic, because the run may write its lock between two calls
        LINKS[kind](tmp_path / "beside", target)
        (tmp_path / "beside").replace(folder / "lock")

    at_segment(30, intrude)
    with pytest.raises(mg.StoppedError, match="lock: expected a regular file") as caught:
        sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0)
    assert caught.value.run.clock.min() > 0
    assert target.read_bytes() == b"mine"


def test_a_start_that_was_killed_can_be_made_again(folder):
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    for path in states(folder):
        path.unlink()
    (folder / ".state-00000001.npz.k1lled_9").write_bytes(b"half")
    with pytest.raises(mg.SampleError, match="before its first checkpoint"):
        mg.resume(folder, progress=False)
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    assert not list(folder.glob(".*"))


def test_samplers_that_hold_code_are_refused_before_anything_is_made(folder):
    estimator = mg.CustomEstimator(numba.njit(lambda model, x, stream, parameters: 0.0))
    with pytest.raises(mg.SampleError, match=r"CustomEstimator cannot be described"):
        sample(ZOO["mixed"], mg.MinGibbs(estimator=estimator), checkpoint=folder, updates=10)
    assert not folder.exists()


@pytest.mark.parametrize("name", SETTINGS)
def test_samplers_survive_their_description(name):
    sampler = SETTINGS[name].sampler
    assert sampler_from(json.loads(json.dumps(describe_sampler(sampler)))) == sampler


def test_numpy_numbers_in_samplers_are_described_too():
    described = describe_sampler(mg.PoissonGibbs(heavy=np.int64(3), theta=np.float64(0.5)))
    assert sampler_from(json.loads(json.dumps(described))) == mg.PoissonGibbs(heavy=3, theta=0.5)


def test_only_what_is_new_is_written(folder, at_segment):
    at_segment(10**9, lambda: None, length=100)
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0, threads=1)
    chunks = [files.read_arrays(p, "minigibbs-records-1")[1] for p in folder.glob("records-*.npz")]
    assert len(chunks) > 3
    assert sum(len(chunk["draws"]) for chunk in chunks) == 4 * 300
    assert max(len(chunk["draws"]) for chunk in chunks) < 300
    assert len(states(folder)) == 2


def test_writing_that_is_slow_is_done_more_rarely(folder, monkeypatch, at_segment):
    """This holds for the default interval; an explicit interval is not changed."""
    monkeypatch.setattr(saver, "EVERY", 0.0)
    original = files.write_arrays

    def slow(*arguments, **options):
        time.sleep(0.01)
        original(*arguments, **options)

    monkeypatch.setattr(files, "write_arrays", slow)
    at_segment(10**9, lambda: None, length=20)
    options = {**OPTIONS, "updates": 600, "checkpoint": folder}
    sample(ZOO["mixed"], **options)
    rare = int(states(folder)[-1].stem[-8:])
    shutil.rmtree(folder)
    sample(ZOO["mixed"], **options, every=0)
    assert 2 <= rare < int(states(folder)[-1].stem[-8:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("5min", 300), ("1h", 3600), (2.5, 2.5), ("0.5 s", 0.5), ("2d", 172800), (0, 0)],
)
def test_durations(text, expected):
    assert durations.seconds(text, "every") == expected


@pytest.mark.parametrize("text", ["", "s", "5 weeks", "-1s", -1, True, None, float("nan"), "1.2.3"])
def test_durations_that_are_none(folder, text):
    with pytest.raises(mg.SampleError, match=r"every must be seconds.*got"):
        durations.seconds(text, "every")


def test_a_checkpoint_that_is_looked_at_says_that_the_run_goes_on(folder, at_segment):
    seen = []
    at_segment(30, lambda: seen.append(mg.load(folder)))
    whole = sample(ZOO["mixed"], **OPTIONS, checkpoint=folder, every=0)
    assert seen[0].info.ended == "running"
    assert "has not ended" in str(seen[0].summary())
    records = seen[0].draws.shape[1]
    np.testing.assert_array_equal(seen[0].draws, whole.draws[:, :records])
    assert mg.load(folder).info.ended == "length"


def test_a_look_at_what_is_being_written_tries_again(folder, monkeypatch):
    """Both listed generations may be deleted before they are read."""
    sample(ZOO["mixed"], **OPTIONS, checkpoint=folder)
    saved = Checkpoint.inspect(folder)
    plan, _ = saved.read_plan()
    original, tries = Checkpoint._read, []

    def read(checkpoint, generation):
        tries.append(generation)
        if len(tries) == 1:  # the writer adds a new generation and deletes this one
            path = states(folder)[-1]
            header, arrays = files.read_arrays(path, STATE)
            header["generation"] += 1
            files.write_arrays(saved._name("state", generation + 1), header, arrays, sealed=True)
            for old in states(folder)[:-1]:
                old.unlink()
        return original(checkpoint, generation)

    monkeypatch.setattr(Checkpoint, "_read", read)
    assert saved.latest(lambda found: saved_run(plan, found)).info.ended == "length"
    assert tries[-1] == max(tries)


def test_marginals_that_were_not_recorded_are_refused_before_going_on(folder, capsys, monkeypatch):
    from minigibbs.cli import main as cli

    sample(ZOO["mixed"], **{**OPTIONS, "record": "energy"}, checkpoint=folder)
    command = ["minigibbs", "resume", str(folder), "--sweeps", "1000000000", "--out", "x.csv"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "add marginals to --record" in capsys.readouterr().err


def test_a_time_limit_covers_reading_the_checkpoint(folder, monkeypatch):
    goal = {"ess": 10**9, "seed": 1, "progress": False}
    first = mg.sample_until(ZOO["potts"], max_time=0.2, checkpoint=folder, **goal)
    restore = api._restore_loop

    def slow(*arguments):
        time.sleep(2.0)
        return restore(*arguments)

    monkeypatch.setattr(api, "_restore_loop", slow)
    run = mg.resume(folder, max_time=2.0, progress=False)
    assert run.info.ended == "time"
    assert first.info.updates < run.info.updates  # one segment of each chain, at least
    assert run.info.seconds - first.info.seconds < 1.5


def test_a_time_limit_covers_the_last_save(folder, monkeypatch):
    write_now, left = saver.Saver.write_now, []

    def slow(self):
        left.append(current().left)
        write_now(self)
        time.sleep(0.7)
        self.seconds = 0.7

    monkeypatch.setattr(saver.Saver, "write_now", slow)
    goal = {"ess": 10**9, "seed": 1, "progress": False}
    mg.sample_until(ZOO["potts"], max_time=2.5, checkpoint=folder, **goal)
    assert len(left) == 2
    assert left[1] > 0


def test_a_checkpoint_that_is_not_read_in_time_is_not_called_damaged(folder, monkeypatch):
    mg.sample_until(ZOO["potts"], ess=10**9, max_time=0.2, checkpoint=folder, progress=False)
    monkeypatch.setattr(api, "_restore_loop", lambda *_: current().check())
    with pytest.raises(mg.SampleError, match=r"time limit of .* was over before"):
        mg.resume(folder, max_time=1e-9, progress=False)
