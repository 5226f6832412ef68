"""Formulas (.cnf) and weighted clauses (.wcnf) against explicit counting."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from tests.formats.files import CNF, WCNF, WCNF_OLD

LITERALS = [[1, -2], [2, 3, -4], [-1], [3, 3, 4], [2, -2, 1]]


def written(tmp_path, content, name):
    path = tmp_path / name
    path.write_text(content)
    return path


def violated(state, clauses):
    """Return the clauses without a true literal."""
    return [k for k, c in enumerate(clauses) if not any(state[abs(v) - 1] == (v > 0) for v in c)]


def every_state(variables):
    return np.array(list(itertools.product([0, 1], repeat=variables)))


def test_solutions_of_a_formula_are_equally_probable(tmp_path):
    graph = mg.read(written(tmp_path, CNF, "a.cnf"))
    states = every_state(4)
    solved = [not violated(state, LITERALS) for state in states]
    np.testing.assert_array_equal(graph.log_potential(states), np.where(solved, 0.0, -np.inf))
    assert mg.infer(graph, progress=False).log_z == pytest.approx(np.log(sum(solved)))


def test_clauses_with_a_weight(tmp_path):
    graph = mg.read(written(tmp_path, CNF, "a.cnf"), hard=1.5)
    states = every_state(4)
    expected = [-1.5 * len(violated(state, LITERALS)) for state in states]
    np.testing.assert_allclose(graph.log_potential(states), expected, atol=1e-12)


def test_weights_of_literals(tmp_path):
    text = "c p weight 1 0.3 0\nc p weight -1 0.7 0\np cnf 2 1\n1 2 0\nc p show 1 0\n"
    graph = mg.read(written(tmp_path, text, "a.cnf"))
    assert mg.infer(graph, progress=False).log_z == pytest.approx(np.log(0.3 * 2 + 0.7))
    assert "projection" in graph.domains.notes[0]


def test_satlib_files_end_with_a_percent_sign(tmp_path):
    assert len(mg.read(written(tmp_path, "p cnf 2 1\n1 -2 0\n%\n0\n\n", "a.cnf"))) == 2


@pytest.mark.parametrize("text", [WCNF, WCNF_OLD])
def test_costs_of_weighted_clauses(tmp_path, text):
    graph = mg.read(written(tmp_path, text, "a.wcnf"), beta=0.5)
    hard, soft = [[1, 2, -3]], {(-1,): 3.0, (-2, 3): 2.5, (): 4.0}
    states = every_state(3)
    expected = []
    for state in states:
        missed = violated(state, list(soft))
        cost = sum(list(soft.values())[k] for k in missed)
        expected.append(-np.inf if violated(state, hard) else -0.5 * cost)
    np.testing.assert_allclose(graph.log_potential(states), expected, atol=1e-12)


def test_hard_clauses_with_a_weight(tmp_path):
    graph = mg.read(written(tmp_path, WCNF, "a.wcnf"), hard=10.0)
    assert graph.log_potential([0, 0, 1]) == pytest.approx(-10.0 - 4.0)


def test_clauses_with_the_same_negations_share_a_table(tmp_path):
    rng = np.random.default_rng(1)
    rows = [rng.permutation(50)[:3] + 1 for _ in range(200)]
    signs = rng.choice([-1, 1], (200, 3))
    lines = [" ".join(map(str, row * sign)) + " 0" for row, sign in zip(rows, signs, strict=True)]
    graph = mg.read(written(tmp_path, "p cnf 50 200\n" + "\n".join(lines), "a.cnf"))
    assert sorted(len(g) for g in graph.factors) == sorted(
        np.bincount((signs < 0).sum(axis=1)).tolist()
    )
    assert all(g.shared for g in graph.factors)


def test_maximize_solves_a_formula(tmp_path):
    """Random 3-SAT at ratio 3: every instance that is drawn here has solutions."""
    rng = np.random.default_rng(2)
    hidden = rng.integers(0, 2, 40)
    lines = []
    while len(lines) < 120:
        row = rng.permutation(40)[:3]
        signs = rng.integers(0, 2, 3)
        if (signs == hidden[row]).any():
            lines.append(
                " ".join(str((v + 1) * (1 if s else -1)) for v, s in zip(row, signs, strict=True))
            )
    path = written(tmp_path, f"p cnf 40 {len(lines)}\n" + " 0\n".join(lines) + " 0\n", "a.cnf")
    best = mg.maximize(mg.read(path, hard=1.0), rounds=100, seed=1, progress=False)
    assert best.energy == 0.0
    assert mg.read(path).log_potential(best.state) == 0.0


WRONG = {
    "no header": ("1 2 0", "cnf", "p cnf"),
    "fewer clauses": ("p cnf 2 2\n1 2 0\n", "cnf", "expected 2 clauses, got 1"),
    "no end": ("p cnf 2 1\n1 2\n", "cnf", "expected 0 at the end of a clause"),
    "unknown variable": ("p cnf 2 1\n1 3 0\n", "cnf", "line 2: expected a literal.* got 3"),
    "fraction": ("p cnf 2 1\n1.5 2 0\n", "cnf", "expected a literal.* got 1.5"),
    "empty clause": ("p cnf 2 1\n0\n", "cnf", "a hard clause is empty"),
    "too many variables": ("p cnf 2147483647 0\n", "cnf", "2,147,483,647 variables"),
    "xor": ("p cnf 2 1\nx1 2 0\n", "cnf", "line 2: expected a finite number, got 'x1'"),
    "wide": (f"p cnf 20 1\n{' '.join(map(str, range(1, 21)))} 0\n", "cnf", "20 literals.*hard="),
    "one weight": ("c p weight 1 0.3 0\np cnf 1 0\n", "cnf", "both 1 and -1"),
    "negative weight": ("c p weight 1 -2 0\np cnf 1 0\n", "cnf", "c p weight"),
    "weight of 0": ("0 1 0\n", "wcnf", "weight above 0"),
    "weight below 0": ("-1 1 0\n", "wcnf", "expected h or a weight"),
    "nothing": ("", "wcnf", "got none"),
    "old, weight below 0": ("p wcnf 1 1 5\n-2 1 0\n", "wcnf", "clause 1.* got -2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_damage_is_refused_with_its_place(tmp_path, case):
    text, ending, message = WRONG[case]
    with pytest.raises((mg.FormatError, mg.TooLargeError), match=message):
        mg.read(written(tmp_path, text, f"a.{ending}"))


@pytest.mark.parametrize("ending", ["cnf", "wcnf"])
def test_graphs_are_not_written(tmp_path, ending):
    with pytest.raises(mg.FormatError, match=r"write a \.uai or \.mg file"):
        mg.write(mg.models.ising_lattice(3, 0.1), tmp_path / f"a.{ending}")


@pytest.mark.parametrize("hard", [0.0, -1.0, float("inf")])
def test_options_are_checked(tmp_path, hard):
    with pytest.raises(mg.FormatError, match="hard must be"):
        mg.read(written(tmp_path, CNF, "a.cnf"), hard=hard)
