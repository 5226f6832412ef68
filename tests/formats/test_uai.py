"""UAI files: written files are read back, real models are correct, damage is refused."""

import gzip
import json
import lzma
import os
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minigibbs as mg
from minigibbs.formats import text, uai
from minigibbs.formats.pruning import TableFactor, prune
from minigibbs.graph.domains import all_values
from minigibbs.system import files
from tests.formats.files import SMALL
from tests.paths import DATA
from tests.zoo import IMPLICIT, ZOO

real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")
quick = settings(
    deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def written(tmp_path, content, name="model.uai"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def every_state(graph):
    return np.stack(np.meshgrid(*map(np.arange, graph.sizes), indexing="ij"), -1).reshape(
        -1, len(graph)
    )


def test_the_last_variable_of_a_scope_moves_fastest(tmp_path):
    graph = mg.read(written(tmp_path, SMALL))
    assert graph.sizes.tolist() == [2, 2, 3]
    assert [(type(g).__name__, g.scope.tolist()) for g in graph.factors] == [
        ("Unary", [[0]]),
        ("Table", [[0, 1]]),
        ("Table", [[1, 2]]),
    ]
    assert graph.log_potential([0, 1, 2]) == pytest.approx(np.log(0.25 * 2 * 0.6))
    assert graph.log_potential([1, 0, 1]) == pytest.approx(np.log(0.75 * 3 * 0.2))


def test_bayes_is_read_as_the_product_of_its_tables(tmp_path):
    path = written(tmp_path, "BAYES 2 2 2 2 1 0 2 0 1 2 0.3 0.7 4 0.9 0.1 0.2 0.8")
    graph = mg.read(path)
    assert mg.log_partition(graph) == pytest.approx(0.0, abs=1e-12)
    assert mg.exact_marginals(graph)[1, 1] == pytest.approx(0.3 * 0.1 + 0.7 * 0.8)


def test_factors_of_one_shape_are_one_group(tmp_path):
    path = written(tmp_path, "MARKOV 3 2 2 2 3 2 0 1 1 2 2 2 0 4 1 2 3 4 2 5 6 4 5 6 7 8")
    assert [len(group) for group in mg.read(path).factors] == [2, 1]
    assert mg.read(path).factors[0].scope.tolist() == [[0, 1], [2, 0]]


def test_constants_are_kept(tmp_path):
    graph = mg.read(written(tmp_path, "MARKOV 1 2 3 0 1 0 0 1 3.0 2 1 2 1 0.5"))
    assert mg.log_partition(graph) == pytest.approx(np.log(3.0 * 0.5 * 3))
    alone = mg.read(written(tmp_path, "MARKOV 1 2 1 0 1 3.0"))
    assert alone.factors == ()


@pytest.mark.parametrize("tail", ["", "\n\n", "0\n3 0 1 2\n0\n3 1 1 1"])
def test_what_follows_the_tables_is_left_unread(tmp_path, tail):
    assert repr(mg.read(written(tmp_path, SMALL + tail))) == repr(mg.read(written(tmp_path, SMALL)))


# Round trips


@st.composite
def graphs(draw):
    """Draw small graphs with every kind of factor."""
    count = draw(st.integers(2, 4))
    sizes = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 3.0, 100.0]))
    groups = []
    for _ in range(draw(st.integers(0, 4))):
        scope = rng.permutation(count)[: draw(st.integers(1, count))]
        shape = [sizes[v] for v in scope]
        kind = draw(st.sampled_from(["table", "shared", "unary", "potts", "ising", "logical"]))
        binary = all(size == 2 for size in shape)
        if kind == "table":
            groups.append(mg.Table([scope], rng.normal(0, scale, (1, *shape))))
        elif kind == "shared":
            groups.append(mg.Table([scope, scope], rng.normal(0, scale, shape), weight=[1.0, -0.5]))
        elif kind == "unary":
            groups.append(mg.Unary(scope[:1], rng.normal(0, scale, (1, shape[0]))))
        elif kind == "potts" and len(scope) > 1:
            groups.append(mg.Potts(scope[:1], scope[1:2], rng.normal(0, scale)))
        elif kind == "ising" and len(scope) > 1 and binary:
            groups.append(mg.Ising(scope[:1], scope[1:2], rng.normal(0, scale)))
        elif kind == "logical" and binary:
            op = draw(st.sampled_from(["imply", "and", "or", "equal"]))
            negated = rng.integers(0, 2, (1, len(scope)))
            groups.append(mg.Logical(op, [scope], rng.normal(0, scale), negated))
    return mg.FactorGraph(sizes, groups)


def same_distribution(graph, other):
    states = every_state(graph)
    np.testing.assert_array_equal(graph.sizes, other.sizes)
    difference = graph.log_potential(states) - other.log_potential(states)
    np.testing.assert_allclose(difference, difference[0], atol=1e-9)
    return difference


@quick
@given(graph=graphs())
def test_graphs_round_trip(tmp_path, graph):
    path = tmp_path / "model.uai"
    mg.write(graph, path)
    np.testing.assert_allclose(same_distribution(graph, mg.read(path)), 0.0, atol=1e-9)


@pytest.mark.parametrize("ending", ["uai", "uai.gz", "uai.xz"])
@pytest.mark.parametrize("model", [name for name in ZOO if name != "evidence"])
def test_the_zoo_round_trips(tmp_path, model, ending):
    path = tmp_path / f"model.{ending}"
    mg.write(ZOO[model], path)
    same_distribution(ZOO[model], mg.read(path))
    assert os.listdir(tmp_path) == [path.name]


def test_compressed_files_are_compressed(tmp_path):
    plain = mg.read(written(tmp_path, SMALL))
    for ending, opener in {"gz": gzip.open, "xz": lzma.open}.items():
        mg.write(plain, tmp_path / f"model.uai.{ending}")
        with opener(tmp_path / f"model.uai.{ending}") as stream:
            assert stream.read().startswith(b"MARKOV\n3\n2 2 3\n")
    before = (tmp_path / "model.uai.gz").read_bytes()
    mg.write(plain, tmp_path / "model.uai.gz")
    assert (tmp_path / "model.uai.gz").read_bytes() == before  # no time stamp


def test_evidence_is_written_as_factors(tmp_path):
    graph, path = ZOO["evidence"], tmp_path / "model.uai"
    mg.write(graph, path)
    other = mg.read(path)
    assert other.domains.labels == {3: (1,), 4: (1,)}
    assert mg.log_partition(other) == pytest.approx(mg.log_partition(graph))
    uai.write_marginals(mg.exact_marginals(other), tmp_path / "m.MAR", other.domains)
    for got, want in zip(
        uai.read_marginals(tmp_path / "m.MAR"), mg.exact_marginals(graph), strict=True
    ):
        np.testing.assert_allclose(got, want[: len(got)], atol=1e-12)


@pytest.mark.parametrize("shift", [-5000.0, 5000.0])
def test_energies_too_large_for_exp_are_shifted(tmp_path, shift):
    graph = mg.FactorGraph([2, 2], [mg.Table([0, 1], shift + np.array([[0, 1.5], [-600, 30]]))])
    mg.write(graph, tmp_path / "model.uai")
    same_distribution(graph, mg.read(tmp_path / "model.uai"))


REFUSED = {
    "span": (mg.FactorGraph([2, 2], [mg.Potts([0], [1], 5000.0)]), "potts factor 0.*span 5e\\+03"),
    "formula": (
        mg.FactorGraph([2] * 1000, [mg.Logical("and", [range(1000)], 1.0)]),
        "logical factor 0 of group 0.*at most 32 variables, got 1000",
    ),
    "wide": (
        mg.FactorGraph([2] * 25, [mg.Logical("or", [range(25)], 1.0)]),
        "logical factor 0 of group 0.*3.36e\\+07 entries",
    ),
    "large domains": (
        mg.FactorGraph([2, 5000, 5000], [mg.Potts([0, 1], [1, 2], 1.0)]),
        "potts factor 1 of group 0.*entries, and at most 1,048,576",
    ),
    "implicit": (IMPLICIT["complete"], r"complete group 0.*graph\.stored\(\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_file_cannot_hold_is_refused(tmp_path, case):
    graph, message = REFUSED[case]
    with pytest.raises(mg.FormatError, match=message):
        mg.write(graph, tmp_path / "model.uai")
    assert os.listdir(tmp_path) == []


def test_stored_forms_of_implicit_groups_are_written(tmp_path):
    graph = IMPLICIT["complete"]
    mg.write(graph.stored(), tmp_path / "model.uai")
    same_distribution(graph, mg.read(tmp_path / "model.uai"))


def test_a_failure_leaves_the_old_file(tmp_path):
    path = written(tmp_path, SMALL)
    with pytest.raises(mg.FormatError):
        mg.write(REFUSED["span"][0], path)
    assert path.read_text() == SMALL
    assert os.listdir(tmp_path) == ["model.uai"]


# Evidence, marginals, partition functions


@pytest.mark.parametrize(
    ("content", "evidence"),
    [
        ("0", {}),
        ("1 0", {}),
        ("1\n0\n", {}),
        ("1 4 2", {4: 2}),
        ("1\n1 4 2", {4: 2}),
        ("2 0 1 4 2\n", {0: 1, 4: 2}),
        ("1\n2 0 1 4 2 ", {0: 1, 4: 2}),
        ("2 4 2 4 2", {4: 2}),
    ],
)
def test_both_dialects_of_evidence(tmp_path, content, evidence):
    assert uai.read_evidence(written(tmp_path, content, "a.evid")) == evidence
    packed = written(tmp_path, gzip.compress(content.encode()), "a.evid.gz")
    assert uai.read_evidence(packed) == evidence


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: expected the number of evidence sets"),
        ("2\n1 4 2", "line 1: expected the number of evidence sets: 1, got 2"),
        ("0 0", "evidence sets: 1, got 0"),
        ("2 4 2", r"clamped variables \(1 pairs follow\): 1, got 2"),
        ("1\n\n3 4 2", r"line 3: .*: 1, got 3"),
        ("1\n4 -1", "line 2: expected a variable and its value: an integer from 0"),
        ("1\n4.5 1", "got 4.5"),
        ("1 4 x", "expected a finite number, got 'x'"),
        ("1 4 nan", "expected a finite number, got 'nan'"),
        ("2\n4 1\n4 0", "line 3: variable 4: expected one value, got 1 and 0"),
        ("1 4 1e300", "got 1e\\+300"),
    ],
)
def test_malformed_evidence(tmp_path, content, message):
    with pytest.raises(mg.FormatError, match=message):
        uai.read_evidence(written(tmp_path, content, "a.evid"))


def test_evidence_round_trips(tmp_path):
    for evidence in ({}, {3: 1}, {np.int64(7): np.int32(2), 0: 0}):
        uai.write_evidence(evidence, tmp_path / "a.evid")
        assert uai.read_evidence(tmp_path / "a.evid") == evidence


def test_marginals_round_trip(tmp_path):
    rows = [[0.25, 0.75], np.array([1 / 3, 1 / 3, 1 / 3]), (1.0,)]
    uai.write_marginals(rows, tmp_path / "a.MAR")
    assert (tmp_path / "a.MAR").read_text().startswith("MAR\n3 2 0.25 0.75 3 0.33")
    for got, want in zip(uai.read_marginals(tmp_path / "a.MAR"), rows, strict=True):
        np.testing.assert_array_equal(got, want)


def test_marginals_of_a_run(tmp_path):
    run = mg.sample(ZOO["mixed"], sweeps=50, seed=1, progress=False)
    uai.write_marginals(run, tmp_path / "a.MAR")
    rows = uai.read_marginals(tmp_path / "a.MAR")
    assert [len(row) for row in rows] == ZOO["mixed"].sizes.tolist()
    for variable, row in enumerate(rows):
        np.testing.assert_allclose(row, run.marginal(variable).probability, rtol=1e-14)


def test_marginals_that_are_not_there_are_refused(tmp_path):
    graph = ZOO["potts"]
    for options in ({"record": "energy", "sweeps": 2}, {"updates": 0}):
        run = mg.sample(graph, seed=1, progress=False, **options)
        with pytest.raises(mg.SampleError, match="marginals"):
            uai.write_marginals(run, tmp_path / "a.MAR")
    with pytest.raises(mg.FormatError, match="expected 4 rows"):
        uai.write_marginals([[0.5, 0.5]], tmp_path / "a.MAR", graph.domains)
    with pytest.raises(mg.FormatError, match="variable 1: expected 3 numbers"):
        uai.write_marginals([[0.2, 0.3, 0.5], [1.0]] * 2, tmp_path / "a.MAR", graph.domains)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: expected MAR, got the end"),
        ("PR 1", "expected MAR, got 'PR'"),
        ("MAR", "expected the number of variables"),
        ("MAR\n2\n2 0.5 0.5", "line 3: expected the domain size of variable 1"),
        ("MAR\n1\n1000000000 0.5 0.5", "line 3: expected the marginal of variable 0"),
        ("MAR\n99999999999 2 0.5 0.5", "domain size of variable 1"),
        ("MAR\n1 2 -0.5 1.5", "expected marginals: at least 0, got -0.5"),
        ("MAR\n1 2 0.5 0.5 1", "expected the end of the file, but 1 numbers are left"),
        ("MAR\n1 2 0.5 nan", "finite"),
    ],
)
def test_malformed_marginals(tmp_path, content, message):
    with pytest.raises(mg.FormatError, match=message):
        uai.read_marginals(written(tmp_path, content, "a.MAR"))


def test_partition_functions_are_to_base_10(tmp_path):
    path = written(tmp_path, "PR\n-2.5\n", "a.PR")
    assert uai.read_partition(path) == pytest.approx(-2.5 * np.log(10))
    uai.write_partition(np.float64(np.log(1000)), path)
    assert float(path.read_text().split()[1]) == pytest.approx(3.0)
    assert uai.read_partition(path) == pytest.approx(np.log(1000))


@pytest.mark.parametrize("content", ["PR", "PR\nx", "PR 1 2", "MAR 1", "PR inf", "PR 1e308", ""])
def test_malformed_partition_functions(tmp_path, content):
    with pytest.raises(mg.FormatError, match=r"a\.PR, line"):
        uai.read_partition(written(tmp_path, content, "a.PR"))


def test_an_infinite_partition_function_is_refused(tmp_path):
    with pytest.raises(mg.FormatError, match="finite"):
        uai.write_partition(-np.inf, tmp_path / "a.PR")


# Pruning and hard constraints

PADDED = "MARKOV 2 3 2 2 1 0 2 0 1 3 0 0.5 0.5 6 9 9 1 2 3 4"


def test_forbidden_states_are_pruned(tmp_path):
    graph = mg.read(written(tmp_path, PADDED))
    assert graph.sizes.tolist() == [2, 2]
    assert graph.domains.full_sizes.tolist() == [3, 2]
    assert graph.domains.labels == {0: (1, 2)}
    assert graph.log_potential([1, 0]) == pytest.approx(np.log(0.5 * 3))
    run = mg.sample(graph, sweeps=100, seed=1, progress=False)
    assert run.marginal(0).values == (1, 2)
    uai.write_marginals(run, tmp_path / "a.MAR")
    first, second = uai.read_marginals(tmp_path / "a.MAR")
    assert first[0] == 0
    assert first.sum() == pytest.approx(1)
    assert len(second) == 2


def test_a_run_from_a_file_knows_the_pruned_states(tmp_path):
    graph = mg.read(written(tmp_path, PADDED))
    run = mg.sample(graph, sweeps=9, seed=1, progress=False)
    run.save(tmp_path / "run.mgr")
    for name, of in (("a.MAR", run), ("b.MAR", mg.load(tmp_path / "run.mgr"))):
        uai.write_marginals(of, tmp_path / name)
    assert [len(row) for row in uai.read_marginals(tmp_path / "b.MAR")] == [3, 2]
    assert (tmp_path / "b.MAR").read_bytes() == (tmp_path / "a.MAR").read_bytes()


def test_a_pruned_model_in_our_own_format_knows_its_states(tmp_path):
    graph = mg.read(written(tmp_path, PADDED))
    mg.write(graph, tmp_path / "a.mg")
    again = mg.read(tmp_path / "a.mg")
    assert again.domains.full_sizes.tolist() == [3, 2]
    assert again.domains.values(0) == graph.domains.values(0) == (1, 2)
    assert again.condition({0: 2}).evidence.tolist() == [1, -1]
    with pytest.raises(mg.GraphError, match="no factor forbids"):
        again.condition({0: 0})
    header, arrays = files.read_arrays(tmp_path / "a.mg", "minigibbs-model-1")
    earlier = {"0": [3, [1, 2]]}  # earlier files have no names of pruned states
    files.write_arrays(tmp_path / "a.mg", {**header, "pruned": earlier}, arrays)
    assert all_values(mg.read(tmp_path / "a.mg").domains, 0) == (0, 1, 2)


@pytest.mark.parametrize(
    "pruned",
    [
        {"0": [3, [2, 1]]},
        {"0": [3, [1, 3]]},
        {"0": [3, [1]]},
        {"7": [3, [1, 2]]},
        {"0": 3},
        {"0": [3, [1, 2], ["a", "b"]]},
        {"0": [3, [1, 2], [1]]},
        {"0": [3, [1, 2], [["a"]]]},
        {"0": [3, [1, 2], 4]},
    ],
)
def test_a_file_with_impossible_pruning_is_refused(tmp_path, pruned):
    mg.write(mg.read(written(tmp_path, PADDED)), tmp_path / "a.mg")
    header, arrays = files.read_arrays(tmp_path / "a.mg", "minigibbs-model-1")
    files.write_arrays(tmp_path / "a.mg", {**header, "pruned": pruned}, arrays)
    with pytest.raises(mg.FormatError, match="damaged"):
        mg.read(tmp_path / "a.mg")


def test_notes_say_what_reading_changed(tmp_path):
    assert mg.read(written(tmp_path, PADDED)).domains.notes == (
        "pruned 1 state of 1 variable: forbidden",
    )
    hard = "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 0 0 1\n"
    with pytest.warns(UserWarning, match="raised 2 table entries.*another model"):
        graph = uai.read(written(tmp_path, hard), floor=1e-9)
    assert graph.domains.notes == ("raised 2 table entries of 1 factor to 1e-09",)
    assert mg.read(written(tmp_path, hard)).domains.notes == ()


def test_pruned_models_are_written_with_their_zeros(tmp_path):
    graph = mg.read(written(tmp_path, PADDED))
    mg.write(graph.condition({1: 0}), tmp_path / "again.uai")
    again = mg.read(tmp_path / "again.uai")
    assert again.domains.full_sizes.tolist() == [3, 2]
    assert again.domains.labels == {0: (1, 2), 1: (0,)}
    np.testing.assert_allclose(
        again.log_potential([[0, 0], [1, 0]]), graph.log_potential([[0, 0], [1, 0]])
    )


def test_evidence_on_a_pruned_variable_means_the_files_numbers(tmp_path):
    graph = mg.read(written(tmp_path, PADDED))
    assert graph.condition({0: 2}).evidence.tolist() == [1, -1]
    assert graph.condition({0: 1, 1: 1}).evidence.tolist() == [0, 1]
    with pytest.raises(mg.GraphError, match=r"variable 0: .*no factor forbids \(1, 2\), got 0"):
        graph.condition({0: 0})


def test_pruning_goes_on_until_nothing_changes(tmp_path):
    """x0 is not 0; x0 and x1 are equal, as are x1 and x2: all are 1 or 2 of 3 values."""
    chain = np.eye(3) + np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    factors = [
        TableFactor((2, 1), chain),
        TableFactor((1, 0), chain),
        TableFactor((0,), np.array([0.0, 1, 1])),
    ]
    assert {v: states.tolist() for v, states in prune(factors).items()} == {
        0: [1, 2],
        1: [1, 2],
        2: [1, 2],
    }


def test_long_chains_are_pruned_in_time():
    """Each step enables the next; the work is linear in the length, not quadratic."""
    count = 20_000
    equal = np.array([[1.0, 0.0], [0.0, 1.0]])
    factors = [TableFactor((v + 1, v), equal) for v in reversed(range(count))]
    kept = prune([*factors, TableFactor((0,), np.array([0.0, 1.0]))])
    assert len(kept) == count + 1


@quick
@given(seed=st.integers(0, 2**32), density=st.floats(0.2, 0.9))
def test_pruning_loses_no_possible_state(seed, density):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 4)
    factors = []
    for _ in range(rng.integers(1, 5)):
        scope = tuple(rng.permutation(4)[: rng.integers(1, 4)].tolist())
        shape = tuple(sizes[list(scope)])
        factors.append(TableFactor(scope, 1.0 * (rng.random(shape) < density)))
    kept = prune(factors)
    for state in np.ndindex(*sizes):
        if all(table[tuple(state[v] for v in scope)] for scope, table in factors):
            assert all(state[v] in states for v, states in kept.items())


def test_zeros_that_remain_are_kept_or_raised(tmp_path):
    path = written(tmp_path, "MARKOV 2 3 2 2 1 0 2 0 1 3 0 0.5 0.5 6 9 9 1 2 3 0")
    graph = mg.read(path)
    assert graph.sizes.tolist() == [2, 2]
    assert graph.log_potential([1, 1]) == -np.inf
    assert graph.log_potential([1, 0]) == pytest.approx(np.log(1.5))
    with pytest.warns(UserWarning, match="raised 1 table entry"):
        raised = uai.read(path, floor=1e-6)
    assert raised.log_potential([1, 1]) == pytest.approx(np.log(0.5e-6))


def test_zeros_are_written_and_read_back(tmp_path):
    table = [[0.0, -np.inf, 800.0], [1.0, 790.0, -np.inf]]
    graph = mg.FactorGraph([2, 3], [mg.Table([[0, 1]], table)])
    with pytest.raises(mg.FormatError, match="span 800"):
        mg.write(graph, tmp_path / "far.uai")
    near = mg.FactorGraph([2, 3], [mg.Table([[0, 1]], [[750.0, -np.inf, 800.0], [760, 790, 751]])])
    mg.write(near, tmp_path / "near.uai")
    states = [[i, j] for i in range(2) for j in range(3)]
    again = mg.read(tmp_path / "near.uai").log_potential(states)
    np.testing.assert_allclose(again + 800.0, near.log_potential(states))


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_floor_is_a_positive_number(tmp_path, floor):
    with pytest.raises(mg.GraphError, match="floor must be a positive probability"):
        uai.read(written(tmp_path, SMALL), floor=floor)


@pytest.mark.parametrize(
    "content",
    [
        "MARKOV 1 2 1 1 0 2 0 0",
        "MARKOV 1 2 2 1 0 1 0 2 0 1 2 1 0",
        "MARKOV 2 2 2 3 1 0 2 0 1 1 1 2 0 1 4 1 1 0 1 2 1 0",
    ],
)
def test_models_without_any_possible_state(tmp_path, content):
    for floor in (None, 1e-9):
        with pytest.raises(mg.FormatError, match=r"every state has probability 0.*variable"):
            uai.read(written(tmp_path, content), floor=floor)


def test_a_constant_zero_is_refused(tmp_path):
    with pytest.raises(mg.FormatError, match=r"every state has probability 0, since factor 0"):
        mg.read(written(tmp_path, "MARKOV 1 2 1 0 1 0"))


# Damage

MALFORMED = {
    "empty": ("", "line 1: expected MARKOV or BAYES, got the end of the file"),
    "another word": ("GRID 1 2 0", "line 1: expected MARKOV or BAYES, got 'GRID'"),
    "a long word": ("x" * 10**6, "got 'xxxxxxxxxxxxxxxxxxxx...'"),
    "only the word": ("MARKOV\n", "line 2: expected the number of variables"),
    "no variables": ("MARKOV\n0\n0", "line 2: .*: an integer from 1 to"),
    "half a variable": ("MARKOV\n1.5\n2\n0", "line 2: .*, got 1.5"),
    "too few sizes": ("MARKOV\n3\n2 2", "line 3: expected domain sizes; it takes 3 more, but 2"),
    "an oversized claim": ("MARKOV\n99999999999\n2 2\n0", "it takes 99,999,999,999 more"),
    "a domain of size 0": ("MARKOV\n2\n2\n0\n0", "line 4: expected domain sizes: .*, got 0"),
    "a negative domain": ("MARKOV\n2\n2 -2\n0", "got -2"),
    "a huge domain": ("MARKOV\n1\n2147483648\n0", "got 2.14748e\\+09"),
    "no factors": ("MARKOV\n2\n2 2\n", "line 4: expected the number of factors"),
    "negative factors": ("MARKOV\n2\n2 2\n-1", "line 4: .*, got -1"),
    "too many factors": ("MARKOV\n2\n2 2\n9e15\n1 0", "the number of variables of factor 1"),
    "an unknown variable": ("MARKOV\n2\n2 2\n1\n1 2\n2 1 1", "line 5: .*factor 0.* 0 to 1, got 2"),
    "a negative variable": ("MARKOV\n2\n2 2\n1\n1 -1\n2 1 1", "line 5: .*got -1"),
    "a repeated variable": ("MARKOV\n2\n2 2\n1\n2 1 1\n4 1 1 1 1", "line 5: factor 0: .*differ"),
    "a long scope": ("MARKOV 40" + " 1" * 40 + " 1 40 0 1", "from 0 to 32, got 40"),
    "a wrong table size": (SMALL.replace("\n4\n", "\n5\n"), "line 12: .*factor 1: 4, got 5"),
    "a huge table": ("MARKOV 2 2147483647 2147483647 1 2 0 1 4 1 1 1 1", "46116860141324206"),
    "a claimed table": ("MARKOV\n1\n1000000\n1\n1 0\n1000000 1", "table of factor 0; it takes 1,0"),
    "a missing table": (SMALL[: SMALL.index("\n6\n")], "number of table entries of factor 2"),
    "a short table": (
        SMALL.rstrip()[:-3],
        "line 17: expected the table of factor 2; it takes 6 more, but 5",
    ),
    "a negative entry": (SMALL.replace("0.75", "-0.75"), "line 10: .*at least 0, got -0.75"),
    "a NaN": (SMALL.replace("0.75", "nan"), "line 10: expected a finite number, got 'nan'"),
    "an infinity": (SMALL.replace("0.75", "-inf"), "line 10: expected a finite number"),
    "an overflow": (SMALL.replace("0.75", "1e999"), "line 10: .*got '1e999'"),
    "text": (SMALL.replace("0.75", "abc"), "line 10: expected a finite number, got 'abc'"),
    "two points": (SMALL.replace("0.75", "0.7.5"), "line 10: .*got '0.7.5'"),
    "an underscore": (SMALL.replace("0.75", "7_5"), "line 10: .*got '7_5'"),
    "a comma": (SMALL.replace("0.25 0.75", "0.25,0.75"), "line 10: .*got '0.25,0.75'"),
    "a hexadecimal": (SMALL.replace("0.75", "0x1p3"), "line 10: .*got '0x1p3'"),
    "a NUL": (SMALL.replace("0.75", "0.7\0"), r"line 10: .*got '0.7\\x00'"),
    "no ASCII": (SMALL.replace("0.75", "٣"), r"line 10: .*got '\\\\xd9\\\\xa3'"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_models_are_refused_with_the_line(tmp_path, case):
    content, message = MALFORMED[case]
    with pytest.raises(mg.FormatError, match=r"model\.uai, line .*") as caught:
        mg.read(written(tmp_path, content))
    assert caught.match(message)


def test_truncated_models_are_refused(tmp_path):
    """Every truncation is refused, except within the last number, where a number remains."""
    for length in range(len(SMALL.rstrip()) - 2):
        with pytest.raises(mg.FormatError):
            mg.read(written(tmp_path, SMALL[:length]))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_damaged_compression_is_refused(tmp_path, pack):
    name = "model.uai." + ("gz" if pack is gzip.compress else "xz")
    whole = pack(SMALL.encode())
    mg.read(written(tmp_path, whole, name))
    for length in range(len(whole)):
        with pytest.raises(mg.FormatError, match=r"model\.uai\.|MARKOV"):
            mg.read(written(tmp_path, whole[:length], name))
    with pytest.raises(mg.FormatError, match=r"not a \.(gz|xz) file"):
        mg.read(written(tmp_path, SMALL, name))
    with pytest.raises(mg.FormatError, match=r"not a \.(gz|xz) file"):
        mg.read(written(tmp_path, whole + b"tail", name))
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        try:
            mg.read(written(tmp_path, bytes(flipped), name))
        except mg.FormatError:
            continue


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_bomb_is_refused_while_it_unfolds(tmp_path, ending, pack):
    bomb = pack(b" " * 2**26)
    path = written(tmp_path, bomb, f"model.uai.{ending}")
    tracemalloc.start()
    try:
        with pytest.raises(mg.FormatError, match="more than 200 times its size"):
            mg.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 2**24


def test_an_xz_decoder_gets_no_more_memory_than_it_should(tmp_path):
    greedy = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]
    packed = lzma.compress(SMALL.encode(), filters=greedy)
    with pytest.raises(mg.FormatError, match=r"not a \.xz file .*[Mm]emory"):
        mg.read(written(tmp_path, packed, "model.uai.xz"))


@pytest.mark.parametrize("ending", ["uai", "uai.gz"])
def test_text_that_does_not_fit_memory_is_refused(tmp_path, monkeypatch, ending):
    pack = gzip.compress if ending == "uai.gz" else bytes
    path = written(tmp_path, pack(SMALL.encode()), f"model.{ending}")
    monkeypatch.setattr(text.memory, "available", lambda: 64 * 50)
    monkeypatch.setattr(text.memory, "HARMLESS", 0)
    with pytest.raises(mg.TooLargeError, match="memory to read 50 B"):
        mg.read(path)


def test_claims_take_no_memory(tmp_path):
    """The largest possible domain costs nothing until it is sampled."""
    tracemalloc.start()
    try:
        graph = mg.read(written(tmp_path, "MARKOV 2 2147483647 2 1 1 1 2 0 1"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert graph.sizes.tolist() == [2147483647, 1]
    assert peak < 2**22


def test_long_numbers_are_read_in_time(tmp_path):
    content = SMALL.replace("0.75", "0." + "7" * 10**6)
    assert mg.read(written(tmp_path, content)).log_potential([1, 0, 0]) == pytest.approx(
        np.log(7 / 9 * 3 * 0.1)
    )


edits = st.lists(
    st.tuples(
        st.integers(0, len(SMALL) - 1),
        st.one_of(
            st.binary(max_size=3),
            st.sampled_from([b"0", b"-", b" 1e9 ", b"9", b"\n", b" 0 0 ", b".", b"e"]),
        ),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


def edited(content, changes):
    for place, piece, cut in changes:
        content = content[:place] + piece + content[place + cut :]
    return content


@settings(quick, max_examples=500)
@given(changes=edits, floor=st.sampled_from([None, 1e-6]))
def test_edited_files_read_or_are_refused(tmp_path, changes, floor):
    path = written(tmp_path, edited(SMALL.encode(), changes))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about raised zeros
            graph = uai.read(path, floor)
    except mg.MinigibbsError:
        return
    energy = graph.log_potential(np.zeros(len(graph), dtype=int))
    assert np.isfinite(energy) or (energy == -np.inf and floor is None and len(graph.hard))


@settings(quick, max_examples=300)
@given(content=st.lists(st.sampled_from("0 1 2 3 -1 0.5 1e9 MAR PR MARKOV x".split()), max_size=9))
def test_small_files_read_or_are_refused(tmp_path, content):
    path = written(tmp_path, " ".join(content), "a")
    for read in (uai.read, uai.read_evidence, uai.read_marginals, uai.read_partition):
        try:
            read(path)
        except mg.MinigibbsError:
            continue


# Real models


@real
@pytest.mark.parametrize(
    "model",
    ["uai2008_protein/pdb1akg", *(f"uai2014/ObjectDetection_{k}" for k in (11, 25, 28, 32))],
)
def test_real_models_are_pruned_as_they_should_be(model):
    graph, pruned = mg.read(DATA / f"{model}.uai"), mg.read(DATA / f"{model}.pruned.uai")
    keep = json.loads((DATA / f"{model}.pruned.uai.keep.json").read_text())
    assert [list(graph.domains.values(v)) for v in range(len(graph))] == keep
    np.testing.assert_array_equal(graph.sizes, pruned.sizes)
    rng = np.random.default_rng(1)
    states = rng.integers(0, graph.sizes, (50, len(graph)))
    np.testing.assert_allclose(graph.log_potential(states), pruned.log_potential(states), rtol=1e-9)


TINY = """bnlearn/cancer bnlearn/survey libdai/hoi1 libdai/hoi3 libdai/testfast libdai/twofactors
merlin/bn merlin/paskin merlin/simple5 pgmpy/grid4x4""".split()


@real
@pytest.mark.parametrize("model", TINY)
def test_real_models_have_the_published_answers(model):
    graph = mg.read(DATA / f"{model}.uai")
    log_z = float((DATA / f"{model}.uai.lnZ").read_text())
    assert mg.log_partition(graph) == pytest.approx(log_z, rel=1e-9, abs=1e-9)
    exact = mg.exact_marginals(graph)
    for row, want in zip(exact, uai.read_marginals(DATA / f"{model}.uai.MAR"), strict=True):
        np.testing.assert_allclose(row[: len(want)], want, atol=1e-9)


@real
@pytest.mark.parametrize(
    "model", ["bnlearn/survey", "libdai/testfast", "uai2014/ObjectDetection_28"]
)
def test_sampled_marginals_agree_with_the_exact_ones(tmp_path, model):
    """Errors are estimated from 8 chains: 12 standard errors, and 1e-4 for rare values.

    A t variable with 7 degrees of freedom exceeds 12 with probability 6.3e-6. At most 600 values
    make that one false alarm in 260 seeds, and the seed is fixed.
    """
    graph = mg.read(DATA / f"{model}.uai")
    run = mg.sample(graph, sweeps=4000, warmup=2000, chains=8, seed=3, threads=1, progress=False)
    uai.write_marginals(run, tmp_path / "a.MAR")
    got, want = (uai.read_marginals(p) for p in (tmp_path / "a.MAR", DATA / f"{model}.uai.MAR"))
    errors = run.chain_marginals.std(axis=0, ddof=1) / np.sqrt(8)
    for variable, (row, truth) in enumerate(zip(got, want, strict=True)):
        kept = list(graph.domains.values(variable))
        error = errors[variable, : len(kept)]
        assert (abs(row - truth)[kept] <= 12 * error + 1e-4).all()
        assert np.delete(row, kept).sum() == 0
        assert abs(row - truth).max() < 0.02


@real
def test_large_real_models_are_read():
    graph = mg.read(DATA / "uai2014" / "relational_1.uai.gz")
    evidence = uai.read_evidence(DATA / "uai2014" / "relational_1.uai.evid")
    assert (len(graph), sum(map(len, graph.factors)), len(evidence)) == (500, 62_500, 17)
    stats = graph.condition(evidence).stats
    # 72 factors join two clamped variables; 2,178 are constant once one of their variables is
    # clamped.
    assert (stats.variables, stats.factors, stats.max_degree) == (483, 60_250, 250)
    assert stats.local_energy == pytest.approx(1.87, abs=0.01)
