"""DimmWitted's graphs: every function has its meaning, and damage is refused with the byte."""

import itertools
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minigibbs as mg
from minigibbs.formats import dimmwitted
from tests import naive, paths
from tests.formats.files import BOOLEAN, FUNCTIONS, THREE, written

DATA = paths.DATA / "dimmwitted"
real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")


def meaning(function, literals):
    """Return DimmWitted's functions, in a second implementation."""
    *body, head = literals
    implied = sum((not one) or head for one in body) if body else int(head)
    return {
        0: (1 if head else -1) if all(body) else 0,
        1: 1 if any(literals) else -1,
        2: 1 if all(literals) else -1,
        3: 1 if all(literals) or not any(literals) else -1,
        4: 1 if all(literals) else -1,
        7: implied,
        8: math.log2(1 + implied),
        9: 1 if implied > 0 else 0,
        12: 1 if all(literals) else 0,
        13: 1 if head or not all(body) else 0,
    }[function]


def distribution(energies):
    weights = np.exp(np.array(energies) - max(energies))
    return weights / weights.sum()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3])
def test_every_function_means_what_dimmwitted_means(tmp_path, function, arity, size):
    kind = BOOLEAN if size == 2 else THREE
    for equal in itertools.product(range(2), repeat=arity):
        factor = (function, list(enumerate(equal)), 0, 0.5)
        graph = mg.read(written(tmp_path, [kind] * arity, [factor], weights=[1.4]))
        states = list(itertools.product(range(size), repeat=arity))
        want = [
            0.7 * meaning(function, [x == e for x, e in zip(state, equal, strict=True)])
            for state in states
        ]
        np.testing.assert_allclose(naive.distribution(graph), distribution(want), atol=1e-12)


def test_factors_on_the_same_variables_add_up(tmp_path):
    factors = [(12, [(0, a), (1, b)], a + b, 1.0) for a in range(3) for b in range(3)]
    graph = mg.read(written(tmp_path, [THREE, THREE], factors, weights=[0.1, 0.5, 0.2, 0.9, 2.0]))
    assert [len(group) for group in graph.factors] == [1]
    want = [[0.1, 0.5, 0.2, 0.9, 2.0][a + b] for a in range(3) for b in range(3)]
    np.testing.assert_allclose(naive.distribution(graph), distribution(want))


def test_a_variable_twice_in_a_factor(tmp_path):
    factors = [(3, [(0, 1), (0, 1), (1, 1)], 0, 1.0), (2, [(0, 0), (0, 1)], 0, 1.0)]
    graph = mg.read(written(tmp_path, [BOOLEAN, BOOLEAN], factors, weights=[0.4]))
    np.testing.assert_allclose(naive.distribution(graph), distribution([0.4, -0.4, -0.4, 0.4]))


def test_a_value_that_a_variable_does_not_have_makes_no_literal_true(tmp_path):
    factors = [(12, [(0, 7)], 0, 1.0), (12, [(0, 5)], 0, 1.0)]
    graph = mg.read(written(tmp_path, [THREE], factors, domains={0: [9, 5, 2]}))
    assert graph.domains.values(0) == (2, 5, 9)
    np.testing.assert_allclose(naive.distribution(graph), distribution([0, 1, 0]))


def test_evidence_is_clamped_or_not(tmp_path):
    variables = [(1, 5, 1, 3), (2, 1, 0, 2), (0, 1, 0, 2)]
    written(tmp_path, variables, [(2, [(1, 1), (2, 1)], 0, 1.0)], domains={0: [2, 5, 9]})
    assert mg.read(tmp_path).evidence.tolist() == [1, 1, -1]
    assert mg.read(tmp_path, evidence=False).evidence.tolist() == [-1, -1, -1]
    assert mg.read(tmp_path / "graph.meta").evidence.tolist() == [1, 1, -1]


def test_weights_may_be_given(tmp_path):
    written(tmp_path, [BOOLEAN], [(4, [(0, 1)], 0, 1.0), (4, [(0, 1)], 1, 1.0)], weights=[0.0, 0.0])
    want = distribution([-0.5, 0.5])
    for weights in ({1: 0.5}, [0.0, 0.5]):
        graph = dimmwitted.read(tmp_path, weights=weights)
        np.testing.assert_allclose(naive.distribution(graph), want)
    for wrong in ({2: 0.5}, [0.5], {0: math.nan}):
        with pytest.raises(mg.FormatError, match="weight"):
            dimmwitted.read(tmp_path, weights=wrong)


def test_long_formulas_take_no_table(tmp_path):
    literals = [(v, 1) for v in range(200)]
    graph = mg.read(written(tmp_path, [BOOLEAN] * 200, [(13, literals, 0, 1.0)]))
    assert [(group.kind, len(group)) for group in graph.factors] == [("logical", 1)]


def test_graphs_are_not_written(tmp_path):
    with pytest.raises(mg.FormatError, match="read, not written"):
        mg.write(mg.FactorGraph([2], []), tmp_path / "graph.meta")


PAIR = ([BOOLEAN, THREE], [(2, [(0, 1), (1, 2)], 0, 1.0), (4, [(0, 1)], 0, 1.0)])
META = b"1,2,2,3"
VARIABLES = struct.pack(">QBQHQ", 0, *BOOLEAN) + struct.pack(">QBQHQ", 1, *THREE)
FACTORS = struct.pack(">HQQQQQQd", 2, 2, 0, 1, 1, 2, 0, 1.0) + struct.pack(
    ">HQQQQd", 4, 1, 0, 1, 0, 1.0
)
HUGE = 2**63
DAMAGE = {
    "meta words": ({"meta": b"one,2,2,3"}, "line 1: .* got 'one' for weights"),
    "meta short": ({"meta": b"1,2,2"}, "line 1: .* got '' for edges"),
    "meta empty": ({"meta": b""}, "line 1"),
    "no variables": ({"meta": b"1,0,2,3"}, "expected 1 to"),
    "more variables": ({"meta": b"1,3,2,3"}, "variables, byte 54: expected 3 variables"),
    "huge variables": ({"meta": b"1,2000000000,2,3"}, "variables, byte 54"),
    "huge factors": ({"meta": f"1,2,{HUGE},3".encode()}, "factors, byte"),
    "huge weights": ({"meta": f"{HUGE},2,2,3".encode()}, "weights, byte 17"),
    "edges": ({"meta": b"1,2,2,4"}, "factors, byte 100: expected 2 factors with 4 edges"),
    "cut variables": ({"variables": VARIABLES[:-1]}, "variables, byte 53"),
    "cut factors": ({"factors": FACTORS[:-1]}, "factors, byte 99"),
    "more factors": ({"factors": FACTORS + b"\0"}, "factors, byte 100"),
    "same variable": ({"variables": VARIABLES[:27] * 2}, "variables, byte 27: .* got 0"),
    "variable id": (
        {"variables": VARIABLES[:27] + struct.pack(">QBQHQ", HUGE, *THREE)},
        f"variables, byte 27: .* got {HUGE}",
    ),
    "type": ({"variables": VARIABLES[:27] + struct.pack(">QBQHQ", 1, 0, 0, 2, 3)}, "type 2"),
    "boolean": ({"variables": VARIABLES[:27] + struct.pack(">QBQHQ", 1, 0, 0, 0, 3)}, "boolean"),
    "no values": ({"variables": VARIABLES[:27] + struct.pack(">QBQHQ", 1, 0, 0, 1, 0)}, "1 to"),
    "huge domain": (
        {"variables": VARIABLES[:27] + struct.pack(">QBQHQ", 1, 0, 0, 1, HUGE)},
        "1 to",
    ),
    "large domain": (
        {"variables": VARIABLES[:27] + struct.pack(">QBQHQ", 1, 0, 0, 1, 2**31 - 1)},
        "a table of at most",
    ),
    "evidence": (
        {"variables": VARIABLES[:27] + struct.pack(">QBQHQ", 1, 1, 3, 1, 3)},
        "evidence on variable 1 must be one of its values, got 3",
    ),
    "weight": ({"weights": struct.pack(">QBd", 0, 1, math.inf)}, "weight 0 must be finite"),
    "weight id": ({"weights": struct.pack(">QBd", 1, 1, 1.0)}, "weights, byte 0: .* got 1"),
    "function": ({"factors": struct.pack(">H", 5) + FACTORS[2:]}, "byte 0: factor 0: .* 5 of 2"),
    "arity": ({"factors": FACTORS[:2] + struct.pack(">Q", HUGE) + FACTORS[10:]}, "factor 0"),
    "zero arity": ({"factors": FACTORS[:2] + struct.pack(">Q", 0) + FACTORS[10:]}, "factor 0"),
    "factor's variable": (
        {"factors": FACTORS[:10] + struct.pack(">Q", 2) + FACTORS[18:]},
        "factors, byte 0: expected variables 0 to 1, got 2",
    ),
    "factor's weight": (
        {"factors": FACTORS[:-16] + struct.pack(">Qd", 1, 1.0)},
        "factors, byte 58: expected weights 0 to 0, got 1",
    ),
    "feature": ({"factors": FACTORS[:-8] + struct.pack(">d", math.nan)}, "byte 58: .* nan"),
    "infinite feature": (
        {
            "weights": struct.pack(">QBd", 0, 1, 0.0),
            "factors": FACTORS[:-8] + struct.pack(">d", math.inf),
        },
        "byte 58: .* inf",
    ),
    "large feature": ({"factors": FACTORS[:-8] + struct.pack(">d", 1e300)}, "byte 58: .* 1e[+]300"),
    "domain cut": ({"domains": struct.pack(">QQ", 1, 3)}, "domains, byte 16: expected 48 more"),
    "domain head": ({"domains": b"\0" * 9}, "domains, byte 0: expected 16 more"),
    "domain size": ({"domains": struct.pack(">QQ", 1, HUGE)}, "byte 0: .* with 3 values"),
    "domain variable": ({"domains": struct.pack(">QQ", HUGE, 3)}, "byte 0: expected one of"),
    "domain values": (
        {"domains": struct.pack(">QQQdQdQd", 1, 3, 4, 0, 4, 0, 5, 0)},
        "expected values that differ",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused_with_the_place(tmp_path, case):
    changed, message = DAMAGE[case]
    written(tmp_path, *PAIR)
    assert mg.read(tmp_path).stats.factors == 2  # the refusal is due to the damage
    for kind, content in changed.items():
        (tmp_path / f"graph.{kind}").write_bytes(content)
    with pytest.raises(mg.FormatError, match=message):
        mg.read(tmp_path)


def test_folders_that_hold_no_graph(tmp_path):
    with pytest.raises(mg.FormatError, match=r"a graph\.meta in it"):
        mg.read(tmp_path)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["meta", "variables", "factors", "weights", "domains"]),
    st.lists(st.tuples(st.integers(0, 110), st.integers(0, 9), st.binary(max_size=9)), max_size=3),
)
def test_edited_graphs_read_or_are_refused(tmp_path, kind, edits):
    written(tmp_path, *PAIR, domains={1: [4, 5, 2]})
    content = (tmp_path / f"graph.{kind}").read_bytes()
    for place, length, piece in edits:
        content = content[:place] + piece + content[place + length :]
    (tmp_path / f"graph.{kind}").write_bytes(content)
    try:
        graph = mg.read(tmp_path)
    except mg.MinigibbsError:
        return
    assert np.isfinite(graph.log_potential(np.maximum(graph.evidence, 0)))


MODELS = ["biased_coin", "biased_coin_continuous", "partial_observation", "sparse_multinomial2"]


@real
@pytest.mark.parametrize("clamped", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_real_graphs_have_the_exact_answers(model, clamped):
    known = json.loads((DATA / model / "expected_exact.json").read_text())
    weights = {int(k): w for k, w in known["weights_used"].items()}
    graph = mg.load(DATA / model, evidence=clamped, weights=weights)
    exact = known["evidence_clamped" if clamped else "evidence_sampled_too"]
    if graph.stats.variables > 12:  # too many states to enumerate
        run = mg.sample(graph, sweeps=20_000, seed=1, progress=False)
        rows, tolerance = run.marginals, 0.025  # 5 standard errors of the least certain value
    else:
        rows, tolerance = naive.marginals(graph), 1e-9
    for variable, row in exact.items():
        values = graph.domains.values(int(variable))
        got = {str(value): p for value, p in zip(values, rows[int(variable)], strict=False)}
        assert got == pytest.approx(row, abs=tolerance)
