"""One model on several ranks has the bits of one machine, and errors instead of hangs."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.backends import mpi, parts
from minigibbs.running.backends.mpi import _between
from minigibbs.running.backends.partition import Load, Partition, cuts, routes
from minigibbs.running.backends.parts import LEVELS, METIS, parts_of
from minigibbs.samplers.chromatic.first import first_states
from minigibbs.samplers.chromatic.lattice import lattice_of
from minigibbs.samplers.chromatic.stencil_bits import stencil_bits
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile
from minigibbs.samplers.registry import color_data, make_tile
from tests.running import mpi_program

MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
pytest.importorskip("mpi4py")
launched = pytest.mark.skipif(MPIEXEC is None, reason="needs mpiexec")


@pytest.fixture
def launch(tmp_path_factory):
    """Return a function that runs a case of `mpi_program` on ranks, and returns their results."""

    def run(ranks, *arguments, fails=False):
        folder = tmp_path_factory.mktemp("found")
        program = [sys.executable, "-m", "tests.running.mpi_program", folder, *arguments]
        command = [MPIEXEC, "-n", ranks, *program]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=300, check=False
        )
        if fails:
            assert done.returncode != 0
            return done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        files = [folder / f"{rank}.json" for rank in range(ranks)]
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    return run


@launched
def test_results_are_the_same_on_any_number_of_ranks(launch):
    expected = json.loads(json.dumps(mpi_program.everything("cpu")))
    assert json.loads(json.dumps(mpi_program.everything("mpi"))) == expected  # one rank
    for ranks in (2, 3, 7):
        assert launch(ranks, "everything", "mpi") == [expected] * ranks


@launched
@pytest.mark.parametrize("what", ["lattice", "ladders"])
def test_a_checkpoint_is_resumed_on_another_number_of_ranks(tmp_path, what, launch):
    whole = json.loads(json.dumps(mpi_program.begun(tmp_path / "a", what, "cpu")))
    more = mpi_program.resumed(tmp_path / "a")
    assert launch(3, "begun", tmp_path / "b", what) == [whole] * 3
    assert launch(2, "resumed", tmp_path / "b") == [more] * 2


@launched
def test_tasks_that_fail_on_a_rank_stop_the_run_everywhere(launch):
    answers = launch(2, "failing")
    assert "a segment of chain" in answers[0]
    assert "MemoryError: no memory" in answers[0]
    assert "the run ended on rank 0: StoppedError: a segment of chain" in answers[1]


@launched
@pytest.mark.parametrize("what", ["graph", "seed", "version of minigibbs", "partition"])
def test_ranks_that_disagree_all_say_so(what, launch):
    answers = launch(3, "disagreeing", what)
    assert len(answers) == 3
    for answer in answers:
        assert f"rank 0 and rank 1 disagree on the {what}" in answer


@launched
def test_errors_of_rank_0_reach_all(launch):
    answers = launch(2, "disagreeing", "fail")
    assert len(answers) == 2
    assert all("cannot make the checkpoint folder" in answer for answer in answers)


@launched
def test_a_rank_that_fails_ends_the_job(launch):
    assert "rank 1 of 2 failed: MemoryError: no memory" in launch(2, "dying", fails=True)


@launched
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_job_and_the_run_is_resumed(tmp_path, victim, launch):
    graph = mpi_program.graphs()["glass"]
    whole = mg.sample(graph, sweeps=40, chains=1, **mpi_program.OPTIONS)
    begun = time.monotonic()
    assert "signal 9" in launch(2, "killed", tmp_path / "a", victim, fails=True)
    assert time.monotonic() - begun < 100  # the other rank does not wait for ranks to begin
    resumed = launch(3, "finished", tmp_path / "a")
    assert resumed == [mpi_program.digest(whole)] * 3


def test_processes_that_are_not_connected_are_refused(monkeypatch):
    graph = mg.models.ising_lattice(10, 0.3, implicit=True)
    mpi.world()  # mpi4py warns if it is first imported with this variable
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(mg.SampleError, match=r"4 processes were launched .* not connected"):
        mg.sample(graph, sweeps=2, backend="mpi", progress=False)


def test_a_missing_mpi_library_is_named():
    program = (
        "import minigibbs as mg; g = mg.models.ising_lattice(4, 0.3); "
        "mg.sample(g, sweeps=2, backend='mpi', progress=False)"
    )
    environment = os.environ | {"MPI4PY_LIBMPI": "/nowhere/libmpi.so"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "MissingDependencyError: mpi4py finds no MPI library" in done.stderr


@launched
def test_a_run_without_a_seed_has_one_seed(launch):
    seeds = launch(2, "seedless")
    assert seeds[0] == seeds[1]


def test_other_scans_and_options_are_refused():
    graph = mg.models.ising_lattice(10, 0.3, implicit=True)
    with pytest.raises(mg.SampleError, match='threads is for backend="cpu"'):
        mg.sample(graph, sweeps=2, backend="mpi", threads=2, progress=False)
    hard = mg.FactorGraph([2, 2], [mg.Table([0, 1], [[0.0, 1.0], [1.0, -np.inf]])])
    with pytest.raises(mg.SampleError, match="no layout that ranks can share"):
        mg.sample(hard, sweeps=2, backend="mpi", progress=False)


def test_explain_says_what_ranks_do():
    costs = {"read": 1.0, "draw": 10.0}
    square = mg.models.ising_lattice(1024, 0.4, implicit=True)
    told = mg.explain(square.condition({0: 1}), costs=costs, ranks=64).ranks
    # 16 rows per rank, of 16 words per color; one row of each color goes to each neighbor
    assert "64 ranks, slabs along the first axis of the lattice: each updates up to 16,384" in told
    assert "256 B in 4 messages per chain and sweep: about" in told
    small = mg.models.ising_lattice(4, 0.4, implicit=True)
    assert "3 ranks have nothing to do" in mg.explain(small, costs=costs, ranks=7).ranks
    stored = mg.models.ising_lattice(16, 0.4, implicit=False)
    # two halves of 8 rows: sites of the first and of the last row have neighbors on the other rank
    told = str(mg.explain(stored, costs=costs, ranks=2))
    assert "A rank sends up to 32 B in 2 messages per chain and sweep" in told
    assert "equal parts in the order of the variables, which cut 0.062 of the pairs" in told
    told = str(mg.explain(mpi_program.graphs()["shuffled"], costs=costs, ranks=7, trials=0))
    assert "7 ranks, parts by reverse Cuthill-McKee order, which cut " in told
    with pytest.raises(mg.SampleError, match="ranks must be an integer of at least 1"):
        mg.explain(small, costs=costs, ranks=0)


@pytest.mark.parametrize("ranks", [2, 3, 7])
@pytest.mark.parametrize("name", ["sparse", "tables", "shuffled"])
def test_a_rank_of_a_graph_is_sent_all_that_it_reads(name, ranks):
    """Updates of a rank read no stale place that is not sent to it."""
    graph = mpi_program.graphs()[name]
    found = parts_of(color_data(mg.Gibbs(), graph), ranks)
    assert found.cuts is not None or (name, ranks) != ("shuffled", 7)
    data = found.data
    states = first_states(graph, 1, 5)
    whole = make_tile(mg.Gibbs(), graph, data, 0, states, 3)
    partition = Partition(whole._ends(), ranks, None, found.cuts)
    before = whole.x.copy()
    whole.advance(0, 1, False)
    for rank in range(ranks):
        tile = make_tile(mg.Gibbs(), graph, data, 0, states, 3)
        own = routes(tile, partition, rank)
        known = np.zeros(len(tile.x), bool)
        for color, one in enumerate(own):
            _, low, high = tile.shares(*partition.own(color, rank))[0]
            known[low:high] = True
            for _, places in one.received:
                known[places] = True
        sizes = graph.sizes[data.variable]
        tile.x[~known] = (before[~known] + 1) % sizes[~known]  # values unknown to the rank
        for color, one in enumerate(own):
            tile._sweep(*partition.own(color, rank), 0, 1, False)
            _, low, high = tile.shares(*partition.own(color, rank))[0]
            np.testing.assert_array_equal(tile.x[low:high], whole.x[low:high])
            for _, places in one.received:
                tile.x[places] = whole.x[places]
            for target, places in one.sent:
                listed = routes(tile, partition, target)[color].received
                assert any(source == rank and (places == got).all() for source, got in listed)


@pytest.mark.parametrize("how", [LEVELS, METIS])
@pytest.mark.parametrize("name", ["shuffled", "tables"])
def test_better_parts_have_the_same_draws_and_send_less(name, how, monkeypatch):
    """All but the order of a sum of floats is equal, so energies agree to 1e-9."""
    if how == METIS:
        pytest.importorskip("pymetis")
    monkeypatch.setattr(parts, "_by_levels" if how == METIS else "_by_metis", lambda *_: None)
    if (name, how) != ("shuffled", LEVELS):  # latencies outweigh bytes, or no parts are better
        monkeypatch.setattr(parts, "_GAIN", 2.0)
        monkeypatch.setattr(parts, "_MOST_WORK", 7.0)
    graph = mpi_program.graphs()[name]
    data = color_data(mg.Gibbs(), graph)
    found = parts_of(data, 7)
    assert found.how == how
    plain, moved = (
        Load.of_graph(one, Partition(one.block_ends, 7, None, cuts))
        for one, cuts in ((data, None), (found.data, found.cuts))
    )
    if name == "shuffled":
        assert moved.across < 0.5 * plain.across
        assert moved.updates <= 1.3 * plain.updates
    for chains in (1, 33):
        states = first_states(graph, chains, 5)
        one, other = (make_tile(mg.Gibbs(), graph, own, 0, states, 3) for own in (data, found.data))
        for tile in (one, other):
            tile.advance(0, 5, True)
        np.testing.assert_array_equal(one.states(), other.states())
        np.testing.assert_array_equal(one.counts(5), other.counts(5))
        np.testing.assert_array_equal(one.tally(chains), other.tally(chains))
        np.testing.assert_allclose(one.energies(), other.energies(), rtol=1e-9)
        one.data, one.x = data, other.x[found.order]
        np.testing.assert_array_equal(one.states(), other.states())


def test_large_graphs_are_judged_by_some_of_their_blocks(monkeypatch):
    monkeypatch.setattr(parts, "_SAMPLE", 4)
    monkeypatch.setattr(parts, "LATENCY", 0.0)
    lattice = mg.models.ising_lattice(24, 0.4, implicit=False)
    assert parts._are_close(color_data(mg.Gibbs(), lattice), 2)
    shuffled = mpi_program.graphs()["shuffled"]
    assert not parts._are_close(color_data(mg.Gibbs(), shuffled), 3)


def test_cuts():
    assert cuts(4, 14, 3) == [4, 7, 10, 14]
    assert cuts(0, 12, 5, slab=4) == [0, 0, 4, 4, 8, 12]
    assert _between(0, 10, [(0, 2), (8, 10)]) == [(2, 8)]
    assert _between(3, 3, []) == []


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_a_rank_is_sent_all_that_it_reads(ranks, periodic):
    """Updates of a rank read no stale word that is not sent to it."""
    offsets = [(2, 0, 1), (0, 1, 0)]
    stencil = mg.Stencil((9, 4, 70), offsets, 0.4, (periodic, True, False))
    graph = mg.FactorGraph([2] * stencil.variables, [stencil])
    lattice, data = lattice_of(stencil), stencil_bits(graph)
    state = np.random.default_rng(1).integers(0, 2, (1, len(graph)), np.uint8)
    whole = StencilTile(graph, data, 0, state, 3)
    partition = Partition(whole._ends(), ranks, lattice)
    whole.advance(0, 1, False)
    for rank in range(ranks):
        tile = StencilTile(graph, data, 0, state, 3)
        known = np.zeros(tile.units, bool)
        for color in range(lattice.colors):
            for source in range(ranks):
                for low, high in partition.sent(color, source, rank):
                    known[low:high] = True
            known[slice(*partition.own(color, rank))] = True
        tile.x[0, ~known] ^= np.uint32(0x5A5A5A5A)  # values unknown to the rank
        for color in range(lattice.colors):
            tile._sweep(*partition.own(color, rank), 0, 1, False)
            begin, end = partition.own(color, rank)
            np.testing.assert_array_equal(tile.x[0, begin:end], whole.x[0, begin:end])
            for source in range(ranks):
                for low, high in partition.sent(color, source, rank):
                    tile.x[0, low:high] = whole.x[0, low:high]
