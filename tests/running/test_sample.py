"""The run loop: reproducibility by seed, visits, records, and endings."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import RANDOM, SHUFFLED, SYSTEMATIC, Scan
from minigibbs.kernels.random import shared_stream, streams
from minigibbs.kernels.scan import next_variable
from minigibbs.running import group as running
from minigibbs.running.backends.cpu import CpuGroup
from minigibbs.running.request import Options, start_states
from minigibbs.samplers import SAMPLERS, SWEEPING
from tests import harness, naive
from tests.harness import FALSE_ALARM
from tests.zoo import ZOO

EVERYTHING = ("marginals", "draws", "energy")


def sample(graph, **options):
    return harness.sample(graph, **{"seed": 7, "progress": False, "record": EVERYTHING, **options})


def same_runs(a, b):
    for name in ("clock", "counts", "kept_draws", "energy", "error"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.info.factor_evaluations == b.info.factor_evaluations
    assert a.info.changed == b.info.changed


# These pin the random stream; changing them is a breaking change.
GOLDEN = [
    [
        [1, 1, 0, 1, 0, 0],
        [1, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 2, 0, 1],
        [0, 0, 0, 2, 0, 1],
        [0, 0, 0, 2, 0, 1],
        [0, 0, 1, 0, 0, 1],
        [0, 0, 1, 4, 0, 0],
        [0, 0, 0, 4, 0, 0],
        [1, 0, 1, 3, 0, 0],
        [1, 0, 1, 4, 0, 0],
        [1, 1, 1, 4, 0, 0],
    ],
    [
        [0, 0, 0, 2, 0, 0],
        [0, 0, 2, 1, 0, 0],
        [1, 1, 2, 1, 0, 1],
        [1, 1, 2, 0, 0, 1],
        [1, 1, 2, 3, 0, 1],
        [1, 1, 2, 1, 0, 0],
        [1, 1, 1, 1, 0, 1],
        [1, 1, 1, 4, 0, 1],
        [1, 1, 1, 4, 0, 1],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 0, 2, 1, 0, 1],
    ],
]


def test_golden_draws():
    run = sample(ZOO["mixed"], updates=60, thin=5, chains=2, seed=2024, scan="random")
    assert run.draws.tolist() == GOLDEN


def test_textbook_form_makes_the_same_draws():
    run = sample(
        ZOO["mixed"], sampler=mg.Gibbs(textbook=True), updates=60, thin=5, chains=2, seed=2024
    )
    assert run.draws.tolist() == GOLDEN


def test_the_seed_fixes_the_draws_whatever_the_threads():
    options = {"updates": 3000, "warmup": 100, "thin": 7, "chains": 5}
    one = sample(ZOO["potts"], threads=1, **options)
    for threads in (2, 3):
        same_runs(one, sample(ZOO["potts"], threads=threads, **options))


@pytest.mark.parametrize("scan", ["random", "systematic", "shuffled", "shared"])
def test_the_seed_fixes_the_draws_whatever_the_segments(scan, monkeypatch):
    graph = ZOO["evidence"]
    reference = naive.marginals(graph)
    options = {
        "updates": 500,
        "warmup": 33,
        "thin": 7,
        "chains": 2,
        "scan": scan,
        "reference": reference,
    }
    whole = sample(graph, **options)
    original = running.Group.run_segment
    for length in (1, 10, 10_000):
        made = []

        def cut(job, length=length, made=made):
            job.segment = length
            made.append(original(job))
            return made[-1]

        monkeypatch.setattr(running.Group, "run_segment", cut)
        same_runs(whole, sample(graph, **options))
        assert max(made) == min(length, 250)  # the counts of the first half are stored


def test_the_clock_decides_how_long_segments_are(monkeypatch):
    made = []
    original = running.Group.run_segment

    def note(job):
        made.append(original(job))
        return made[-1]

    monkeypatch.setattr(running.Group, "run_segment", note)
    monkeypatch.setattr(running.Group, "segment_seconds", 0.0)
    sample(ZOO["potts"], updates=100, chains=1)
    assert made == [16] + [1] * 84  # the first segment is 16 long, and each took too long
    made.clear()
    monkeypatch.setattr(running.Group, "segment_seconds", 1e9)
    sample(ZOO["potts"], updates=100_000, chains=1)
    assert made[:3] == [16, 128, 1024]


def test_segments_near_a_deadline_are_short(monkeypatch):
    wanted, original = [], running.Group.pace

    def note(group, took, seconds):
        wanted.append(seconds)
        original(group, took, seconds)

    monkeypatch.setattr(running.Group, "pace", note)
    mg.sample_until(ZOO["potts"], ess=10**9, max_time=0.5, seed=1, progress=False)
    assert wanted
    assert all(0.01 <= seconds <= 0.05 for seconds in wanted)  # a tenth of the time left


def test_another_seed_gives_other_draws_and_chains_differ():
    a, b = (sample(ZOO["potts"], updates=400, chains=3, seed=seed) for seed in (1, 2))
    assert (a.draws != b.draws).any()
    assert (a.draws[0] != a.draws[1]).any()


def test_a_chain_does_not_depend_on_how_many_there_are():
    two, three = (sample(ZOO["potts"], updates=400, chains=chains) for chains in (2, 3))
    np.testing.assert_array_equal(two.draws, three.draws[:2])


def test_a_fresh_seed_is_kept_and_repeats_the_run():
    first = sample(ZOO["potts"], updates=400, seed=None)
    again = sample(ZOO["potts"], updates=400, seed=first.info.seed)
    np.testing.assert_array_equal(first.draws, again.draws)
    assert sample(ZOO["potts"], updates=400, seed=None).info.seed != first.info.seed


def forced(n):
    """Return a graph whose visited variables become 1: exp(-50) is below a stream's resolution."""
    return mg.FactorGraph([2] * n, [mg.Unary(range(n), [0.0, 50.0])])


def test_systematic_scan_visits_in_order():
    run = sample(forced(6), start=[0] * 6, updates=6, thin=1, chains=2, scan="systematic")
    assert run.draws.tolist() == [np.tri(6, dtype=int).tolist()] * 2


def test_systematic_scan_leaves_clamped_variables_out():
    graph = forced(6).condition({0: 0, 3: 0})
    run = sample(graph, start=[0] * 6, updates=4, thin=1, chains=1, scan="systematic")
    visited = np.argmax(np.diff(run.draws[0].astype(int), axis=0, prepend=0), axis=1)
    assert visited.tolist() == [1, 2, 4, 5]


def test_warmup_moves_the_scan_on():
    run = sample(forced(6), start=[0] * 6, updates=2, warmup=3, thin=1, chains=1, scan="systematic")
    assert run.draws[0].tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]]


def test_shuffled_scan_visits_each_variable_once_in_an_order_of_its_own():
    run = sample(forced(9), start=[0] * 9, updates=9, thin=1, chains=3, scan="shuffled")
    visited = np.argmax(np.diff(run.draws.astype(int), axis=1, prepend=0), axis=2)
    assert (np.sort(visited, axis=1) == np.arange(9)).all()
    assert len({tuple(row) for row in visited.tolist()}) == 3


def test_shared_scan_is_random_and_the_same_in_every_chain():
    run = sample(forced(9), start=[0] * 9, updates=5, thin=1, chains=3, scan="shared")
    np.testing.assert_array_equal(run.draws[1:], run.draws[:1].repeat(2, axis=0))
    visited = [np.flatnonzero(row).tolist() for row in run.draws[0]]
    assert visited[0] != [0] or visited[1] != [0, 1]  # false alarm: 1 in 81 seeds


@entry
def _visit(scan, stream, out):
    for k in range(len(out)):
        out[k] = next_variable(scan, stream)


def visits(kind, order, count):
    out = np.empty(count, dtype=np.int64)
    scan = Scan(
        kind,
        len(order),
        np.array(order, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        shared_stream(0),
    )
    _visit(scan, streams(3, 1)[0], out)
    return out


def test_shuffled_scan_takes_a_new_uniform_order_each_sweep():
    """The new position of each variable is uniform given its old one, too."""
    sweeps = visits(SHUFFLED, [2, 5, 7, 8], 4 * 24_000).reshape(-1, 4)
    assert (np.sort(sweeps, axis=1) == [2, 5, 7, 8]).all()
    moved = (sweeps[1:, :, None] == sweeps[:-1, None, :]).argmax(axis=2)
    for orders in (sweeps, moved):
        _, counts = np.unique(orders, axis=0, return_counts=True)
        assert len(counts) == 24
        assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_random_scan_picks_uniformly_and_independently():
    pairs = visits(RANDOM, [2, 5, 7], 2 * 9_000).reshape(-1, 2)
    _, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(counts) == 9
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_systematic_scan_goes_round():
    assert visits(SYSTEMATIC, [2, 5, 7], 7).tolist() == [2, 5, 7, 2, 5, 7, 2]


COUNTED = {
    "spins": (mg.FactorGraph([2] * 5, [mg.Ising(range(4), range(1, 5), 0.4)]), {}),
    "spins, one clamped": (
        mg.FactorGraph([2] * 5, [mg.Ising(range(4), range(1, 5), 0.4)]).condition({2: 1}),
        {},
    ),
    "one value": (mg.FactorGraph([2, 1, 2], [mg.Ising([0], [2], 0.4)]), {}),
    "mixed": (ZOO["mixed"], {}),
    "spins by clusters": (
        mg.FactorGraph([2] * 5, [mg.Ising(range(4), range(1, 5), 0.4)]),
        {"sampler": mg.SwendsenWang()},
    ),
    "values by blocks": (ZOO["potts"], {"sampler": mg.BlockGibbs()}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_those_of_the_states_after_every_update(name, tmp_path):
    """This also holds for a run that is split, and after a warm-up, which is not counted."""
    graph, options = COUNTED[name]
    sampler = options.get("sampler")
    free = int((graph.evidence < 0).sum())
    unit = free if sampler is not None and sampler.sweeps else 1
    length = {"sweeps": 60} if unit > 1 else {"updates": 60 * free}
    record, common = mg.Record("marginals", "draws", thin=1), {"seed": 3, "progress": False}
    common |= options | {"chains": 2, "record": record, "warmup": 7}
    run = mg.sample(graph, checkpoint=tmp_path / "run", **length, **common)
    longer = mg.resume(tmp_path / "run", **length, progress=False)
    first = np.cumsum(graph.sizes) - graph.sizes
    for one in (run, longer):
        expected = np.zeros_like(one.counts)
        for row, draws in zip(expected, one.draws, strict=True):
            np.add.at(row, first + draws.astype(np.int64), unit)
        np.testing.assert_array_equal(one.counts, expected)


def test_warmup_is_not_recorded():
    """A run with a warm-up records what a longer run records after as many updates."""
    options = {"thin": 10, "chains": 2, "start": [0, 1, 2, 0]}
    whole = sample(ZOO["potts"], updates=500, **options)
    late = sample(ZOO["potts"], updates=300, warmup=200, **options)
    np.testing.assert_array_equal(late.draws, whole.draws[:, 20:])
    np.testing.assert_array_equal(late.energy, whole.energy[:, 20:])
    assert late.counts.sum(axis=1).tolist() == [300 * 4] * 2
    assert late.record_updates[0] == 10
    assert (late.info.updates, late.info.warmup) == (600, 400)
    assert late.info.factor_evaluations == whole.info.factor_evaluations


@pytest.mark.parametrize("model", ZOO)
def test_marginals_are_those_of_all_states(model):
    graph = ZOO[model]
    run = sample(graph, updates=300, thin=1, chains=2)
    values = np.arange(graph.sizes.max())
    counted = (run.draws[..., None] == values).mean(axis=1)
    np.testing.assert_array_equal(run.chain_marginals, counted)
    pooled = (run.draws[..., None] == values).reshape(600, len(graph), -1).sum(axis=0) / 600
    np.testing.assert_array_equal(run.marginals, pooled)
    assert (run.marginals[values >= graph.sizes[:, None]] == 0).all()


@pytest.mark.parametrize("model", ZOO)
def test_energy_is_that_of_the_draws(model):
    graph = ZOO[model]
    run = sample(graph, updates=120, thin=4, chains=2)
    assert run.energy.shape == (2, 30)
    for draws, energies in zip(run.draws, run.energy, strict=True):
        # at most 15 terms of the order of 1: rounding stays below 1e-12
        np.testing.assert_allclose(energies, graph.energy(draws), atol=1e-12)


@pytest.mark.parametrize("model", ["potts", "tables", "evidence"])
def test_error_is_that_of_the_running_marginals(model):
    graph = ZOO[model]
    reference = naive.marginals(graph)
    run = sample(graph, updates=60, thin=1, chains=2, reference=reference)
    sparse = sample(graph, updates=60, thin=12, chains=2, reference=reference)
    seen = run.draws[..., None] == np.arange(graph.sizes.max())
    for chain in range(2):
        want = [
            naive.error(seen[chain, : k + 1].mean(axis=0).tolist(), reference.tolist())
            for k in range(60)
        ]
        np.testing.assert_allclose(run.error[chain], want, atol=1e-12)
        np.testing.assert_allclose(sparse.error[chain], want[11::12], atol=1e-12)
    assert run.marginal_error == pytest.approx(naive.error(run.marginals, reference), abs=1e-12)


def test_error_falls_as_the_chains_go_on():
    graph = ZOO["potts"]
    run = sample(graph, updates=40_000, reference=naive.marginals(graph))
    # Over seeds the error is near 0.005 with a spread of 0.002: 0.03 is more than ten of those
    # away, a false alarm far below 1e-4.
    assert run.marginal_error < 0.03
    assert run.error[:, -1].mean() < run.error[:, 0].mean()


@pytest.mark.parametrize("model", ZOO)
def test_counters_count_factor_evaluations(model):
    """Sweeps in order evaluate the sum of degrees, times each domain in the textbook form."""
    graph = ZOO[model]
    degree = np.zeros(len(graph), dtype=int)
    for free, _, _ in naive.spans(graph):
        degree[free] += 1
    options = {"sweeps": 5, "chains": 2, "scan": "systematic"}
    run = sample(graph, **options)
    assert run.info.factor_evaluations == 10 * degree.sum()
    textbook = sample(graph, sampler=mg.Gibbs(textbook=True), **options)
    assert textbook.info.factor_evaluations == 10 * (degree * graph.sizes).sum()
    assert run.info.minibatch_draws == 0
    assert run.info.acceptance == 1.0
    assert run.info.updates == 10 * np.count_nonzero(graph.evidence < 0)


def test_info_says_how_a_run_went():
    run = sample(ZOO["potts"], updates=200, warmup=10, chains=3, thin=2, scan="shuffled")
    info = run.info
    assert (info.chains, info.updates, info.warmup, info.thin) == (3, 600, 30, 2)
    assert (info.scan, info.seed, info.interrupted) == ("shuffled", 7, False)
    assert info.version == mg.__version__
    assert info.sampler == "PoissonGibbs()"
    assert info.updates_per_second == pytest.approx(630 / info.seconds)
    assert 0 < info.changed < 1


def test_changes_are_counted():
    run = sample(ZOO["potts"], updates=200, thin=1, chains=1, start=[0] * 4)
    states = np.concatenate([[[0] * 4], run.draws[0]])
    assert run.info.changed * 200 == (states[1:] != states[:-1]).sum()


@pytest.mark.parametrize(
    ("options", "thin", "records"),
    [
        ({"updates": 400}, 4, 100),  # one sweep
        ({"sweeps": 50}, 4, 50),
        ({"updates": 40_000}, 40, 1000),  # at most 1,000 records
        ({"updates": 100, "thin": 30}, 30, 3),
        ({"updates": 3}, 4, 0),
        ({"updates": 0}, 4, 0),
        ({}, 4, 1000),  # 1,000 sweeps
    ],
)
def test_length_and_thinning(options, thin, records):
    run = sample(ZOO["potts"], chains=2, **options)
    assert run.info.thin == thin
    assert run.draws.shape == (2, records, 4)
    assert run.record_updates.tolist() == [thin * (k + 1) for k in range(records)]


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ({}, 5_000),  # records of a few numbers: one per sweep
        ({"observe": {"first": lambda x: x[0]}}, 5_000),  # few variables: cheap to measure
        ({"record": ("marginals", "draws", "energy")}, 1_000),
        ({"reference": [np.full(k, 1 / k) for k in ZOO["potts"].sizes]}, 1_000),
    ],
    ids=["energies", "observables", "draws", "reference"],
)
def test_errors_of_longer_runs_keep_shrinking(options, records):
    """Without draws there are more than 1,000 records, so that their errors shrink."""
    options = {"record": ("marginals", "energy"), **options}
    run = mg.sample(ZOO["potts"], sweeps=5_000, chains=2, seed=1, progress=False, **options)
    assert len(run.record_updates) == records
    if "observe" in options:
        assert run.observables["first"].series.shape == (2, records)


def test_records_are_rare_where_observables_cost_more_than_updates():
    """4 ns per update and 15 ns per variable and observable: at most one record per 19 sweeps."""
    graph = mg.models.ising_lattice(side=8, beta=0.3)
    run = mg.sample(
        graph, sweeps=3_000, chains=64, seed=1, progress=False, observe={"m": "magnetization"}
    )
    assert len(run.record_updates) == 1_000


def test_only_what_was_asked_for_is_recorded():
    run = sample(ZOO["potts"], updates=100, record="marginals")
    assert (run.kept_draws, run.energy, run.error) == (None, None, None)
    assert run.marginals.shape == (4, 3)
    run = sample(ZOO["potts"], updates=100, record=["draws"])
    with pytest.raises(mg.SampleError, match=r'kept no marginals.*record=\("marginals",\)'):
        _ = run.marginals
    with pytest.raises(mg.SampleError, match=r"reference=\.\.\."):
        _ = run.marginal_error
    assert sample(ZOO["potts"], updates=100, record=()).counts is None


def recorder_bytes(updates, kept):
    plan = Options(record=kept, chains=1).plan(ZOO["mixed"], updates, 1)
    plan = replace(plan, thin=1)
    group = CpuGroup(plan, mg.Gibbs().prepare(plan.graph), np.zeros(6, np.uint8), streams(0, 1)[0])
    return sum(a.nbytes for a in group.recorder if isinstance(a, np.ndarray))


def test_a_run_that_keeps_marginals_only_does_not_grow():
    assert recorder_bytes(10**12, ["marginals"]) == recorder_bytes(10, ["marginals"]) < 1000
    assert recorder_bytes(60_000, ["marginals", "draws"]) > 60_000  # guards the line above


def test_states_take_the_smallest_type():
    assert sample(ZOO["mixed"], updates=10, thin=1).draws.dtype == np.uint8
    graph = mg.FactorGraph([300, 2], [mg.Unary([0], np.linspace(0, 3, 300))])
    run = sample(graph, updates=2000, thin=1)
    assert run.draws.dtype == np.uint16
    assert run.draws[..., 0].max() > 255
    np.testing.assert_array_equal(
        run.marginals[0], np.bincount(run.draws[..., 0].ravel(), minlength=300) / 8000
    )


def test_dispersed_chains_begin_at_constant_states_and_at_mirrored_ones():
    graph = mg.models.curie_weiss(50, 1.5)
    states = start_states(graph, "dispersed", 4, 3)
    np.testing.assert_array_equal(states[0], 0)
    np.testing.assert_array_equal(states[1], 1)
    np.testing.assert_array_equal(states[2], 1 - states[3])
    assert 0 < states[2].sum() < 50


@pytest.mark.parametrize(("field", "kept"), [(0.3, True), (0.4, False)])
def test_no_chain_begins_at_a_constant_state_without_weight(field, kept):
    """All spins down are less probable by 2 * field * 50; log of the 2^50 states is 0.69 * 50."""
    graph = mg.FactorGraph(
        [2] * 50, [*mg.models.curie_weiss(50, 1.5).factors, mg.Unary(range(50), [-field, field])]
    )
    states = start_states(graph, "dispersed", 4, 3)
    assert (states[0] == 0).all() == kept
    assert (states[1] == 1).all()
    if not kept:
        np.testing.assert_array_equal(states[0], start_states(graph, "random", 4, 3)[0])


def test_start_states():
    graph = ZOO["evidence"]
    one = [0, 1, 2, 1, 1, 0]
    run = sample(graph, updates=1, thin=1, start=one)
    assert ((run.draws[:, 0] != one).sum(axis=1) <= 1).all()
    several = np.array([one, [1, 0, 0, 1, 1, 1]])
    run = sample(graph, updates=1, thin=1, chains=2, start=several)
    assert ((run.draws[:, 0] != several).sum(axis=1) <= 1).all()
    assert several.tolist() == [one, [1, 0, 0, 1, 1, 1]]  # unchanged


def test_random_starts_agree_with_the_evidence_and_are_uniform():
    graph = mg.FactorGraph([3, 2, 5], []).condition({1: 1})
    states = np.array(start_states(graph, "random", 6000, 5))
    assert (states[:, 1] == 1).all()
    cells = np.bincount(states[:, 0] * 5 + states[:, 2], minlength=15)
    assert stats.chisquare(cells).pvalue > FALSE_ALARM


def test_evidence_never_moves():
    run = sample(ZOO["evidence"], updates=500, thin=1)
    assert (run.draws[..., [3, 4]] == 1).all()
    assert run.marginals[3].tolist() == [0.0, 1.0, 0.0]


def test_variables_without_factors_are_uniform():
    graph = mg.FactorGraph([2, 3, 4], [])
    run = sample(graph, sweeps=6000, thin=3, scan="systematic")  # every draw is independent
    cells = run.draws.reshape(-1, 3) @ [12, 4, 1]
    assert stats.chisquare(np.bincount(cells, minlength=24)).pvalue > FALSE_ALARM
    assert run.info.factor_evaluations == 0


def test_a_graph_that_is_all_clamped():
    graph = mg.FactorGraph([2, 3], [mg.Potts([0], [1], 1.5), mg.Unary([0], [0.0, 1.0])])
    graph = graph.condition({0: 1, 1: 1})
    run = sample(graph, updates=20, thin=5, chains=2, warmup=3)
    assert run.marginals.tolist() == [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    assert run.draws.tolist() == [[[1, 1]] * 4] * 2
    assert run.energy.tolist() == [[-2.5] * 4] * 2
    assert run.info.updates == 40
    assert str(run.summary())


def test_the_default_run():
    run = mg.sample(ZOO["potts"], seed=1, progress=False)
    assert run.info.chains == 4
    assert run.info.updates == 4 * 1000 * 4
    assert run.kept_draws is None
    assert run.energy.shape == (4, 1000)


def test_samplers_by_name():
    attracting = mg.FactorGraph([3, 3], [mg.Potts([0], [1], 0.5)])
    for name, kind in SAMPLERS.items():
        length = {"sweeps": 2} if name in SWEEPING else {"updates": 4}
        run = sample(attracting, sampler=name, **length)
        assert run.info.sampler.startswith(f"{kind.__name__}(")
        assert run.info.sampler.endswith("()") or name == "tempering"
    sampler = mg.MGPMH(slowdown=1.2)
    assert sample(ZOO["potts"], sampler=sampler, updates=4).info.sampler == "MGPMH(slowdown=1.2)"


def test_no_progress_bar_where_nobody_watches(capsys):
    sample(ZOO["potts"], updates=100, progress=True)
    assert capsys.readouterr() == ("", "")


INTERRUPTED = """
import os, signal
import minigibbs as mg
from minigibbs.running import group as running

original, seen = running.Group.run_segment, []

def run_segment(job):
    made = original(job)
    seen.append(made)
    if len(seen) == 12:  # as Ctrl-C would, from outside and while chains run
        os.kill(os.getpid(), signal.SIGINT)
    return made

running.Group.run_segment = run_segment
running.Group.segment_seconds = 0.01
run = mg.sample(
    mg.models.potts_lattice(8, 3, 0.5), updates=10**13, warmup=5, chains=3, threads=2, seed=1,
    record=mg.Record("marginals", "energy", thin=10**10), progress=False,
)
assert run.interrupted
assert "interrupted" in str(run.summary())
assert 0 < run.clock.min() <= run.clock.max() < 10**13
assert run.info.updates == run.clock.sum() == sum(seen) - 15
assert (run.counts.sum(axis=1) == 64 * run.clock).all()
assert abs(run.marginals.sum(axis=1) - 1).max() < 1e-12
assert run.energy.shape == (3, run.clock.min() // 10**10)
print("as it should be")
"""


def test_ctrl_c_returns_what_was_sampled():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "as it should be\n", done.stderr
    assert done.returncode == 0
