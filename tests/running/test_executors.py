"""Chains on threads, processes and clusters have the same draws, even if workers are lost."""

import errno
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.executors import remote as executors
from minigibbs.running.executors import worker
from minigibbs.running.executors.dask import dask_client
from minigibbs.running.executors.scratch import Scratch
from tests.harness import sample
from tests.running.test_checkpoint import same_runs
from tests.settings import SETTINGS
from tests.zoo import IMPLICIT, ZOO

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")  # Dask's warnings are not tested here

EVERYTHING = ("marginals", "draws", "energy")
OPTIONS = {"updates": 3000, "thin": 10, "seed": 7, "record": EVERYTHING, "progress": False}
LONG = {**OPTIONS, "updates": 1_500_000, "thin": 5000, "warmup": 10_000, "scan": "shuffled"}


class Elsewhere(Executor):
    """Minimal executor: workers with separate memory, to which tasks are sent as bytes."""

    def __init__(self, workers=2):
        self.memories = [{} for _ in range(workers)]
        self.sent, self.received, self.turn = [], [], 0

    def submit(self, function, /, *arguments, **keywords):
        task = pickle.dumps((function, arguments, keywords))
        self.sent.append(len(task))
        future = Future()
        memory = self.memories[self.turn % len(self.memories)]
        self.turn += 1
        try:
            future.set_result(self._run(memory, task))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run(self, memory, task):
        function, arguments, keywords = pickle.loads(task)
        ours = worker._plans, worker._name
        worker._plans, worker._name = memory, str(id(memory))
        try:
            result = pickle.dumps(function(*arguments, **keywords))
        finally:
            worker._plans, worker._name = ours
        self.received.append(len(result))
        return pickle.loads(result)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_sampler_makes_the_same_draws_elsewhere(name):
    setting = SETTINGS[name]
    graph = ZOO["potts" if setting.pairs_only else "mixed"]
    options = {**OPTIONS, "sampler": setting.sampler, "warmup": 7, "chains": 3}
    same_runs(sample(graph, **options), sample(graph, **options, executor=Elsewhere()))


@pytest.mark.parametrize("name", [*IMPLICIT, *ZOO])
def test_every_model_makes_the_same_draws_elsewhere(name):
    graph = {**IMPLICIT, **ZOO}[name]
    record = ("marginals", "draws") if name in IMPLICIT else EVERYTHING
    reference = np.full((len(graph), graph.sizes.max()), 0.5)
    options = {**OPTIONS, "record": record, "reference": reference, "scan": "shuffled"}
    same_runs(sample(graph, **options), sample(graph, **options, executor=Elsewhere()))


def test_a_graph_that_is_all_clamped_needs_nobody():
    graph = ZOO["potts"].condition(dict.fromkeys(range(4), 1))
    same_runs(sample(graph, **OPTIONS), sample(graph, **OPTIONS, executor=Elsewhere()))


def test_the_model_travels_once_to_each_worker():
    graph = mg.models.potts_rbf(side=12, states=3)  # 10,296 pairs, at least 165 kB
    there = Elsewhere(workers=3)
    run = sample(graph, updates=4000, thin=100, seed=1, chains=6, progress=False, executor=there)
    large = [size for size in there.sent if size > 100_000]
    # The model is sent once to each of 3 workers, and again to some of them: no executor lets us
    # choose a task's worker, so a parcel may reach one that has it. In 60 trials 3 to 8 were sent,
    # with frequencies that fall by half each.
    assert 3 <= len(large) <= 24
    assert len(there.sent) - len(large) >= 20
    # A chain is 144 bytes of state and some arrays of a few numbers each.
    assert max(size for size in there.sent if size < 100_000) < 3000
    # Counts also come back, at most 4 bytes per value, and 8 bytes per energy.
    assert max(there.received) < 3000 + 4 * 432 + 8 * 40
    assert run.info.updates == 24_000


def test_past_records_do_not_travel():
    there = Elsewhere()
    options = {**OPTIONS, "updates": 20_000, "thin": 1, "chains": 1, "executor": there}
    run = sample(ZOO["mixed"], **options)
    assert run.draws.nbytes == 120_000
    assert sum(there.received) < 2 * run.draws.nbytes + 8 * 20_000 + 3000 * len(there.sent)


def test_threads_of_ones_own():
    with ThreadPoolExecutor(3) as pool:
        run = sample(ZOO["mixed"], **OPTIONS, executor=pool)
        assert pool.submit(int, "3").result() == 3  # it is not shut down
    same_runs(sample(ZOO["mixed"], **OPTIONS), run)
    same_runs(run, sample(ZOO["mixed"], **OPTIONS, executor="threads"))


def test_processes_of_ones_own(tmp_path):
    reference = np.full((6, 5), 0.5)
    options = {**OPTIONS, "reference": reference}
    whole = sample(ZOO["mixed"], **options)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        same_runs(whole, sample(ZOO["mixed"], **options, executor=pool))
        folder = tmp_path / "run"
        sample(ZOO["mixed"], **{**options, "updates": 1000}, executor=pool, checkpoint=folder)
        same_runs(whole, mg.resume(folder, updates=2000, executor=pool, progress=False))


@pytest.fixture
def at_return(monkeypatch):
    """Return a hook that acts after a number of returned segments; segments are short."""

    def hook(number, action):
        original, count = executors.absorb, [0]

        def absorb(*arguments):
            original(*arguments)
            count[0] += 1
            if count[0] == number:
                action()

        monkeypatch.setattr(executors, "absorb", absorb)
        monkeypatch.setattr(executors, "SEGMENT_SECONDS", 0.02)
        return count

    return hook


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def own_workers():
    return [child.pid for child in multiprocessing.active_children()]


def test_a_killed_process_costs_a_segment(at_return):
    returned = at_return(25, lambda: kill(own_workers()[:1]))
    run = sample(ZOO["potts"], **LONG, executor="processes", threads=2)
    assert returned[0] > 25
    same_runs(sample(ZOO["potts"], **LONG), run)
    assert not own_workers()


ORPHANS = """
import multiprocessing, os, threading, time
from multiprocessing import forkserver, resource_tracker
import minigibbs as mg
from minigibbs.running.executors import remote

def tell(*_):
    original(*_)
    pids = [child.pid for child in multiprocessing.active_children()]
    others = [forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid]
    if len(pids) == 2:
        print(*pids, *others, flush=True)

if __name__ == "__main__":
    original, remote.absorb = remote.absorb, tell
    mg.sample(mg.models.ising_lattice(30, 0.4), sweeps=10**9, chains=2, threads=2, seed=1,
              executor="processes", progress=False, record="marginals")
"""


def alive(pid):
    """Return whether a process runs; zombies do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def short_folder():
    """Return a folder with a name that is short enough for a socket, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_long_name_of_the_temporary_folder_does_no_harm(tmp_path, monkeypatch):
    """A socket's address has about a hundred bytes, too few for the fork server here."""
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delitem(multiprocessing.process.current_process()._config, "tempdir", raising=False)
    assert executors._start_method() == "spawn"
    away = sample(ZOO["mixed"], **OPTIONS, executor="processes")
    same_runs(away, sample(ZOO["mixed"], **OPTIONS))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_a_killed_run_leaves_no_processes_and_the_next_one_sweeps_its_folder(
    tmp_path, short_folder, monkeypatch
):
    script, scratch = tmp_path / "script.py", short_folder
    script.write_text(ORPHANS)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 4
        (left,) = scratch.glob("minigibbs-*")
        process.kill()
    for _ in range(300):
        if not any(map(alive, pids)):
            break
        time.sleep(0.1)
    assert not any(map(alive, pids))
    assert (left / "model.mg").exists()
    assert list(scratch.glob("pymp-*"))  # the folder of the fork server's socket
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with Scratch() as living:
        assert not left.exists()
        assert not list(scratch.glob("pymp-*"))
        code = "from minigibbs.running.executors.scratch import Scratch; Scratch().close()"
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        assert living.exists()  # another process does not remove it
        with Scratch() as other:
            assert living.exists()  # neither does another run of this process
            assert other != living
    assert not list(scratch.glob("minigibbs-*"))


def test_only_folders_of_our_own_are_swept(tmp_path, monkeypatch):
    """In a folder that everyone can write to, others can create names like ours."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "lock").write_text("gold")
    (tmp_path / "minigibbs-1-link").symlink_to(treasure)
    (tmp_path / "minigibbs-1-begun").mkdir()
    (tmp_path / "minigibbs-1-file").write_text("")
    foreign = tmp_path / "minigibbs-1-foreign"
    foreign.mkdir()
    (foreign / "lock").write_text("")
    with Scratch() as living:
        names = {path.name for path in tmp_path.iterdir()} - {living.name}
    assert names == {"treasure", "minigibbs-1-link", "minigibbs-1-begun", "minigibbs-1-file"}
    foreign.mkdir()
    (foreign / "lock").write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with Scratch():
        assert foreign.exists()
    assert (treasure / "lock").read_text() == "gold"


@pytest.mark.parametrize(
    "noted", ["treasure", "../treasure", "pymp-1/../treasure", "pymp-link", "\0"]
)
def test_what_is_noted_as_the_fork_servers_is_not_believed(tmp_path, monkeypatch, noted):
    """Only a folder next to ours, with a name of Python's pattern, is removed with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    treasure, left = tmp_path / "treasure", tmp_path / "minigibbs-1-left"
    for folder in (treasure, left, tmp_path / "pymp-1"):
        folder.mkdir()
    (tmp_path / "pymp-link").symlink_to(treasure)
    (treasure / "gold").write_text("")
    (left / "lock").write_text("")
    (left / "sockets").write_text(noted)
    Scratch().close()
    assert not left.exists()
    assert (treasure / "gold").exists()


def test_a_full_temporary_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(executors.native, "write", full)
    with pytest.raises(mg.SampleError, match=r"No space left.*free space in .*TMPDIR"):
        sample(ZOO["mixed"], **OPTIONS, executor=Elsewhere())
    assert os.listdir(tmp_path) == []


class Failing(Elsewhere):
    """Loses some of its tasks, or all after some time."""

    def __init__(self, lost, error):
        super().__init__()
        self.lost, self.error, self.count = lost, error, 0

    def _run(self, memory, task):
        self.count += 1
        if self.lost(self.count):
            raise self.error
        return super()._run(memory, task)


def test_lost_segments_are_run_again():
    lost = (2, 5, 9, 14)  # fewer than the allowed losses of one segment
    there = Failing(lambda count: count in lost, MemoryError("out of memory"))
    run = sample(ZOO["mixed"], **OPTIONS, executor=there)
    assert there.count > 20
    same_runs(sample(ZOO["mixed"], **OPTIONS), run)


def test_a_segment_that_is_always_lost_stops_the_run_and_it_can_be_resumed(tmp_path):
    there = Failing(lambda count: count > 15, MemoryError("out of memory"))
    folder = tmp_path / "run"
    with pytest.raises(
        mg.StoppedError, match=r"lost 5 times.*MemoryError: out of memory"
    ) as caught:
        sample(ZOO["mixed"], **OPTIONS, executor=there, checkpoint=folder, every="1h")
    assert 0 < caught.value.run.clock.max() < 3000
    same_runs(sample(ZOO["mixed"], **OPTIONS), mg.resume(folder, progress=False))


def limit_memory():
    """Limit memory to 60 MB more than now, after all imports."""
    import minigibbs.running.executors.worker  # noqa: F401

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 60_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits need Linux")
def test_a_worker_that_hits_its_memory_limit(tmp_path):
    graph = mg.models.ising_lattice(700, 0.4)  # about 100 MB in a worker
    context = multiprocessing.get_context("spawn")
    options = {"updates": 1000, "chains": 2, "seed": 1, "progress": False}
    with (
        ProcessPoolExecutor(1, context, limit_memory) as pool,
        pytest.raises(mg.StoppedError, match=r"lost 5 times.*Memory|terminated abruptly"),
    ):
        sample(graph, **options, executor=pool, checkpoint=tmp_path / "run")
    whole = sample(graph, **options)
    same_runs(whole, mg.resume(tmp_path / "run", progress=False))


def test_workers_of_another_version_are_refused(monkeypatch):
    monkeypatch.setattr(worker, "__version__", "0.0.1")
    with pytest.raises(mg.StoppedError, match=r"a worker has minigibbs 0\.0\.1"):
        sample(ZOO["mixed"], **OPTIONS, executor=Elsewhere())


@pytest.mark.parametrize("executor", [3, "mpi", object(), ThreadPoolExecutor])
def test_executors_that_are_none(executor):
    with pytest.raises(mg.SampleError, match=r"executor must be a concurrent\.futures\.Executor"):
        sample(ZOO["mixed"], **OPTIONS, executor=executor)


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_dask_makes_the_same_draws(cluster):
    reference = np.full((6, 5), 0.5)
    options = {**OPTIONS, "reference": reference}
    whole = sample(ZOO["mixed"], **options)
    same_runs(whole, sample(ZOO["mixed"], **options, executor=cluster.get_executor()))
    same_runs(whole, sample(ZOO["mixed"], **options, executor=cluster))


def test_dask_samples_several_models_at_the_same_time(cluster):
    graphs = [ZOO["mixed"], ZOO["potts"], ZOO["mixed"]]
    options = {"updates": 3000, "seed": 7, "record": EVERYTHING, "progress": False}
    here = mg.sample_many(graphs, **options)
    for run, other in zip(here, mg.sample_many(graphs, **options, executor=cluster), strict=True):
        same_runs(run, other)


@pytest.mark.parametrize("how_many", [1, 2])
def test_killed_dask_workers_cost_segments(cluster, at_return, how_many):
    """One of two workers is killed, or both."""
    cluster.wait_for_workers(2)
    pids = list(cluster.run(os.getpid).values())
    returned = at_return(25, lambda: kill(pids[:how_many]))
    run = sample(ZOO["potts"], **LONG, executor=cluster.get_executor())
    assert returned[0] > 25
    assert not set(pids[:how_many]) & set(cluster.run(os.getpid).values())
    same_runs(sample(ZOO["potts"], **LONG), run)


@pytest.fixture
def far_cluster(tmp_path):
    """Start a scheduler and a worker like a user; return the address and the scheduler."""
    program = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    scheduler = subprocess.Popen([*program, *options], **quiet)
    for _ in range(600):
        if file.exists() and file.read_text():
            break
        time.sleep(0.1)
    address = json.loads(file.read_text())["address"]
    program = [sys.executable, "-m", "distributed.cli.dask_worker"]
    options = [address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    options += ["--local-directory", tmp_path, "--death-timeout", "20"]
    workers = subprocess.Popen([*program, *options], **quiet)
    yield address, scheduler
    for process in (workers, scheduler):
        process.kill()
        process.wait()


def test_the_command_line_on_dask_and_a_lost_scheduler(far_cluster, tmp_path, at_return):
    address, scheduler = far_cluster
    command = [sys.executable, "-c", "from minigibbs.cli.main import main; main()", "sample"]
    command += ["ising-lattice:side=4,beta=0.3", "--sweeps", "100", "--seed", "1", "--json"]
    done = subprocess.run([*command, "--dask", address], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    graph = mg.models.ising_lattice(4, 0.3)
    here = mg.sample(graph, sweeps=100, seed=1, progress=False)
    assert json.loads(done.stdout)["energy_mean"] == here.energy.mean()

    folder = tmp_path / "run"
    at_return(12, lambda: kill([scheduler.pid]))
    options = {**LONG, "warmup": 0}
    with (
        _short_patience(),
        dask_client(address, patience=3) as client,
        pytest.raises(mg.StoppedError, match="scheduler was lost") as caught,
    ):
        sample(ZOO["potts"], **options, executor=client, checkpoint=folder, every="1h")
    assert 0 < caught.value.run.clock.max() < LONG["updates"]
    whole = sample(ZOO["potts"], **options)
    same_runs(whole, mg.resume(folder, progress=False))


def test_a_cluster_without_workers_is_told_and_the_time_limit_holds(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("minigibbs.running.executors.dask.SILENCE", 0.5)
    options = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.warns(UserWarning, match=r"has no workers, and the run waits.*dask worker"),
    ):
        run = mg.sample_until(ZOO["potts"], seed=1, progress=False, executor=client, max_time=2)
    assert run.info.ended == "time"
    assert run.clock.max() == 0


def _short_patience():
    import dask

    return dask.config.set({"distributed.comm.timeouts.connect": "2s"})


def test_a_cluster_that_is_not_there():
    with (
        pytest.raises(mg.SampleError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"),
        dask_client("tcp://127.0.0.1:1", patience=1),
    ):
        pass


def test_a_cluster_that_wants_tls_is_not_met_without_a_certificate():
    with pytest.raises(mg.SampleError, match="wants TLS"), dask_client("tls://127.0.0.1:1"):
        pass


def test_dask_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(mg.MissingDependencyError, match=r"minigibbs\[dask\]"), dask_client("x"):
        pass


def test_nothing_is_imported_from_dask_unless_asked_for():
    script = (
        "import sys, minigibbs as mg\n"
        "mg.sample(mg.models.ising_lattice(3, 0.1), updates=10, progress=False)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('dask', 'distributed')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_segments_follow_the_clock_of_their_worker():
    there = Elsewhere()
    sample(ZOO["potts"], **{**LONG, "chains": 1, "warmup": 0}, executor=there)
    assert 7 <= len(there.sent) < 30  # 16 updates, then 8 times more each time, up to a second


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    """Workers import the script, and would start workers themselves."""
    script = tmp_path / "script.py"
    script.write_text(
        "import minigibbs as mg\n"
        "graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])\n"
        "mg.sample(graph, mg.Gibbs(), sweeps=5, chains=1, scan='random', executor='processes',\n"
        "          progress=False)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()
    told = [line for line in last if line.startswith("minigibbs.errors.StoppedError")]
    assert len(told) == 1
    assert 'under  if __name__ == "__main__":' in told[0]
