"""BIF networks: names, labels and tables are correct; zeros and damage are refused."""

import gzip
import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import minigibbs as mg
from minigibbs.formats import bif, uai
from tests import naive
from tests.paths import DATA, LAWN

real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")
PAIR = """network n {}
variable a {{ type discrete [ 2 ] {{ x, y }}; }}
variable b {{ type discrete [ 2 ] {{ u, v }}; }}
probability ( a ) {{ table 0.25, 0.75; }}
probability ( b | a ) {{ {rows} }}
""".replace("network n {}", "network n {{ }}")
HARD = PAIR.format(rows="(x) 1.0, 0.0; (y) 0.5, 0.5;")


def written(folder, content, name="net.bif"):
    (folder / name).write_text(content)
    return folder / name


def test_a_network_is_the_product_of_its_tables():
    graph = mg.load(LAWN)
    assert graph.names == ("rain", "sprinkler", "grass")
    assert graph.domains.values(2) == ("dry", "a little wet", "soaked")
    at = dict(zip(map(tuple, naive.states(graph)), naive.distribution(graph), strict=True))
    assert at[0, 0, 2] == pytest.approx(0.2 * 0.01 * 0.8)  # the default row
    assert at[1, 0, 1] == pytest.approx(0.8 * 0.4 * 0.3)
    assert at[1, 1, 0] == pytest.approx(0.8 * 0.6 * 0.9)
    assert graph.log_potential([1, 1, 0]) == pytest.approx(math.log(0.8 * 0.6 * 0.9))


def test_evidence_goes_by_names_and_labels():
    given = mg.read(LAWN).condition({"grass": "a little wet", "rain": "no"})
    weights = np.array([0.4 * 0.3, 0.6 * 0.07])
    run = mg.sample(given, sweeps=20_000, seed=1, progress=False)
    found = run.marginal("sprinkler")
    assert found.values == ("on", "off")
    np.testing.assert_allclose(found.probability, weights / weights.sum(), atol=0.02)  # 5 sigma


def test_a_whole_table_has_the_child_first(tmp_path):
    rows = mg.read(written(tmp_path, PAIR.format(rows="(x) 0.1, 0.9; (y) 0.4, 0.6;")))
    whole = mg.read(written(tmp_path, PAIR.format(rows="table 0.1, 0.4, 0.9, 0.6;")))
    states = [[0, 0], [0, 1], [1, 0], [1, 1]]
    np.testing.assert_allclose(rows.log_potential(states), whole.log_potential(states))
    assert rows.log_potential([0, 1]) == pytest.approx(math.log(0.25 * 0.9))


def test_tables_may_come_before_their_variables(tmp_path):
    first, *rest = PAIR.format(rows="(x) 0.1, 0.9; (y) 0.4, 0.6;").splitlines()
    turned = mg.read(written(tmp_path, "\n".join([first, *rest[2:], *rest[:2]])))
    assert turned.log_potential([0, 1]) == pytest.approx(math.log(0.25 * 0.9))


def test_compressed_networks_are_read(tmp_path):
    (tmp_path / "net.bif.gz").write_bytes(gzip.compress(LAWN.read_bytes()))
    assert mg.read(tmp_path / "net.bif.gz").names == mg.read(LAWN).names


def test_zeros_are_kept(tmp_path):
    graph = mg.read(written(tmp_path, HARD))
    assert graph.log_potential([0, 1]) == -math.inf
    assert graph.domains.notes == ()


def test_a_floor_lifts_zeros(tmp_path):
    with pytest.warns(UserWarning, match="raised 1 table entry.*another model"):
        graph = mg.read(written(tmp_path, HARD), floor=1e-6)
    assert graph.log_potential([0, 1]) == pytest.approx(math.log(0.25 * 1e-6))
    assert graph.domains.notes == ("raised 1 table entry of 1 factor to 1e-06",)


def test_states_that_cannot_occur_are_pruned(tmp_path):
    graph = mg.read(written(tmp_path, PAIR.format(rows="default 0.0, 1.0;")))
    assert graph.domains.values(1) == ("v",)
    assert graph.condition({"b": "v"}).evidence.tolist() == [-1, 0]
    assert graph.condition({"b": 1}).evidence.tolist() == [-1, 0]  # its index in the file
    with pytest.raises(mg.GraphError, match="no factor forbids"):
        graph.condition({"b": "u"})
    run = mg.sample(graph, sweeps=50, seed=1, progress=False)
    run.save(tmp_path / "run")
    uai.write_marginals(mg.load(tmp_path / "run"), tmp_path / "a.MAR")
    assert uai.read_marginals(tmp_path / "a.MAR")[1].tolist() == [0.0, 1.0]
    assert mg.load(tmp_path / "run").marginal("b").values == ("v",)


GOOD = PAIR.format(rows="(x) 0.1, 0.9; (y) 0.4, 0.6;")
DAMAGE = {
    "empty": ("", "line 1: expected variables"),
    "no table": (GOOD.replace("probability ( a )", "// "), "line 6: expected a probability of 'a'"),
    "unknown block": ("hello " + GOOD, "line 1: expected network, variable or probability"),
    "cut": (GOOD[:-10], "expected probabilities of 'b'|expected '}'"),
    "open comment": (GOOD + "/* never closed", "line 6: a comment"),
    "open quote": (GOOD.replace("variable a", 'variable "a'), "line 2: expected the name"),
    "two names": (GOOD.replace("variable b", "variable a"), "line 3: variable 'a' is declared"),
    "size": (GOOD.replace("[ 2 ] { x", "[ 3 ] { x"), "line 2: variable 'a': '3' states"),
    "huge size": (GOOD.replace("[ 2 ] { x", f"[ {'9' * 5000} ] {{ x"), "line 2: variable 'a'"),
    "same states": (GOOD.replace("{ x, y }", "{ x, x }"), "line 2: variable 'a': its states"),
    "no type": (GOOD.replace("type discrete [ 2 ] { x, y };", ""), "line 2: variable 'a' has no"),
    "continuous": (GOOD.replace("discrete [ 2 ] { x", "continuous [ 2 ] { x"), "line 2: expected"),
    "unknown parent": (GOOD.replace("b | a", "b | c"), "line 5: unknown variable 'c'"),
    "own parent": (GOOD.replace("b | a", "b | b"), "line 5: the variables of a table must differ"),
    "twice": (GOOD.replace("b | a", "a | b"), "line 5: the probability of 'a' is given twice"),
    "row": (GOOD.replace("(y) 0.4", "(x) 0.4"), "line 5: .* given twice for these states"),
    "missing row": (GOOD.replace("(y) 0.4, 0.6;", ""), "line 5: .* are missing for states"),
    "state": (GOOD.replace("(y)", "(z)"), "line 5: expected one of x, y, got 'z'"),
    "states": (GOOD.replace("(y)", "(y, y)"), "line 5: expected 1 states, got 2"),
    "short": (GOOD.replace("0.4, 0.6", "0.4"), "line 5: expected 2 probabilities of 'b', got 1"),
    "negative": (GOOD.replace("0.4, 0.6", "-0.4, 1.4"), "line 5: expected probabilities of 'b'"),
    "nan": (GOOD.replace("0.4, 0.6", "nan, 0.6"), "line 5: expected probabilities of 'b': finite"),
    "underscore": (GOOD.replace("0.4, 0.6", "0.4, 0.6_0"), "line 5: .* got '0.6_0'"),
    "sum": (GOOD.replace("0.4, 0.6", "0.4, 0.7"), "line 5: .*'b' given a=y must sum to 1, got 1.1"),
    "both": (GOOD.replace("(y)", "table 0.1, 0.4, 0.9, 0.6; (y)"), "line 5: .* got both"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_malformed_networks_are_refused_with_the_line(tmp_path, case):
    content, message = DAMAGE[case]
    with pytest.raises(mg.FormatError, match=message):
        mg.read(written(tmp_path, content))


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "net.bif").write_bytes(b"network \xff")
    with pytest.raises(mg.FormatError, match="byte 8: expected UTF-8"):
        mg.read(tmp_path / "net.bif")


def test_a_default_takes_no_memory_for_a_table_beyond_it(tmp_path):
    names = [f"v{k}" for k in range(31)]
    blocks = [f"variable {v} {{ type discrete [ 4 ] {{ a, b, c, d }}; }}" for v in names]
    blocks += [f"probability ( {v} ) {{ table 0.25 0.25 0.25 0.25; }}" for v in names[1:]]
    given = " ".join(names[1:])
    blocks += [f"probability ( v0 | {given} ) {{ default 0.25 0.25 0.25 0.25; }}"]
    path = written(tmp_path, "\n".join(blocks))
    tracemalloc.start()
    with pytest.raises(mg.TooLargeError, match="'v0'"):
        mg.read(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_many_open_comments_are_refused_in_time(tmp_path):
    with pytest.raises(mg.FormatError):
        mg.read(written(tmp_path, "/* /" * 300_000))
    with pytest.raises(mg.FormatError):
        mg.read(written(tmp_path, '" ' * 300_000 + '"\n'))


WORDS = (
    '{ } ( ) [ ] | , ; " /* */ // \n variable probability table default type discrete property '
    "network a b x y 0.5 1 2 -1 1e999"
).split(" ")


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.sampled_from(WORDS)), max_size=4)
)
@example([])
def test_edited_networks_read_or_are_refused(tmp_path, edits):
    words = GOOD.replace("{", " { ").replace(";", " ; ").replace(",", " , ").split(" ")
    for place, length, word in edits:
        words[place : place + length] = [word]
    try:
        graph = bif.read(written(tmp_path, " ".join(words)))
    except mg.MinigibbsError:
        return
    energy = graph.log_potential([0] * len(graph))
    assert np.isfinite(energy) or (energy == -np.inf and len(graph.hard))


@real
@pytest.mark.parametrize("name", ["cancer", "survey", "hepar2"])
def test_real_networks_are_what_their_uai_twins_are(name):
    graph, twin = mg.read(DATA / f"bnlearn/{name}.bif.gz"), mg.read(DATA / f"bnlearn/{name}.uai")
    known = json.loads((DATA / f"bnlearn/{name}.names.json").read_text())
    assert list(graph.names) == known["names"]
    for variable, called in enumerate(known["names"]):
        assert list(graph.domains.values(variable)) == known["states"][called]
    rng = np.random.default_rng(1)
    states = (rng.random((200, len(graph))) * graph.sizes).astype(int)
    np.testing.assert_allclose(graph.log_potential(states), twin.log_potential(states), atol=1e-9)


@real
def test_a_real_network_has_the_published_marginals():
    run = mg.sample(mg.read(DATA / "bnlearn/survey.bif.gz"), sweeps=20_000, seed=1, progress=False)
    for variable, row in enumerate(uai.read_marginals(DATA / "bnlearn/survey.uai.MAR")):
        np.testing.assert_allclose(run.marginal(variable).probability, row, atol=0.012)  # 5 sigma
