"""dimod's constrained models and polynomials, compared with its exact solvers and by hand."""

import itertools

import numpy as np
import pytest

import minigibbs as mg

dimod = pytest.importorskip("dimod")
from minigibbs.interop.dimod import MiniGibbsAnnealer  # noqa: E402


def every_state(graph):
    return np.array(list(itertools.product(*map(range, graph.sizes))))


def assert_same_model(cqm, model, beta=1.0):
    """Check that the possible states are the feasible ones, with -beta times the objective."""
    exact = dimod.ExactCQMSolver().sample_cqm(cqm)
    wanted = {}
    for row, energy, good in zip(
        exact.record.sample, exact.record.energy, exact.record.is_feasible, strict=True
    ):
        by_name = dict(zip(exact.variables, row.tolist(), strict=True))
        if good:
            wanted[tuple(by_name[v] for v in model.variables)] = -beta * energy
    states = every_state(model.graph)
    energies = model.graph.log_potential(states)
    possible = energies > -np.inf
    samples = map(tuple, model.samples(states[possible]).tolist())
    found = dict(zip(samples, energies[possible].tolist(), strict=True))
    assert set(found) == set(wanted)
    assert len(found) == possible.sum()
    for sample, energy in found.items():
        assert energy == pytest.approx(wanted[sample], abs=1e-9)


def mixed():
    """Return a model with two one-hot constraints, a spin, an integer, and all senses."""
    cqm = dimod.ConstrainedQuadraticModel()
    a = list(dimod.Binaries([f"a{k}" for k in range(3)]))
    b = list(dimod.Binaries([f"b{k}" for k in range(2)]))
    s, i, x = dimod.Spin("s"), dimod.Integer("i", lower_bound=-1, upper_bound=3), dimod.Binary("x")
    cqm.set_objective(
        2 * a[0] * b[1] - a[1] + 0.5 * a[2] * x + s * x - 1.5 * s * a[0] + i * i - i * x + 0.25
    )
    cqm.add_discrete([f"a{k}" for k in range(3)], label="a")
    cqm.add_constraint(3 * b[0] + 3 * b[1] == 3, label="b")
    cqm.add_constraint(i + 2 * x <= 3, label="le")
    cqm.add_constraint(s + i * x >= 0, label="ge")
    cqm.add_constraint(a[0] + b[0] <= 2, label="idle")
    return cqm


def test_states_and_energies_are_those_of_the_exact_solver():
    cqm = mixed()
    model = mg.from_cqm(cqm, beta=0.7)
    assert model.constraints == {
        "a": "one-hot",
        "b": "one-hot",
        "le": "table",
        "ge": "table",
        "idle": "always",
    }
    assert model.graph.domains.values(0) == ("a0", "a1", "a2")
    assert_same_model(cqm, model, beta=0.7)


def test_names_of_constraints_and_variables_may_be_the_same():
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.set_objective(2 * dimod.Binary("color") - dimod.Binary("red"))
    cqm.add_discrete(["red", "green"], label="color")
    model = mg.from_cqm(cqm)
    assert sorted(model.graph.names) == ["color", "color 2"]
    assert_same_model(cqm, model)
    x = list(dimod.Binaries(range(16)))
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.set_objective(dimod.Binary("slack of 1") + sum(x))
    cqm.add_constraint(sum(x) <= 3, label=1)
    cqm.add_constraint(sum(x) <= 4, label="1")
    names = mg.from_cqm(cqm).graph.names
    assert {"slack of 1", "slack of 1 2", "slack of 1 3"} < set(names)


def wide(sense, right, biases):
    cqm = dimod.ConstrainedQuadraticModel()
    x = list(dimod.Binaries([f"x{k}" for k in range(len(biases))]))
    rng = np.random.default_rng(4)
    cqm.set_objective(
        sum(float(w) * one for w, one in zip(rng.normal(size=len(x)), x, strict=True))
    )
    total = sum(w * one for w, one in zip(biases, x, strict=True))
    compared = {"le": total <= right, "ge": total >= right, "eq": total == right}[sense]
    cqm.add_constraint(compared, label="wide")
    return cqm


def fixed(value, **soft):
    """Return a model with a constraint whose only variable was fixed, and one free variable."""
    cqm = dimod.ConstrainedQuadraticModel()
    x, y = dimod.Binaries("xy")
    cqm.set_objective(x - 2 * y)
    cqm.add_constraint(x + 0.0 >= 1, label="fixed", **soft)
    cqm.fix_variable("x", value)
    return cqm


def test_constraints_without_variables():
    """dimod keeps such constraints when it fixes variables: they hold, or no state is feasible."""
    assert mg.from_cqm(fixed(1)).constraints == {"fixed": "always"}
    with pytest.raises(mg.GraphError, match="constraint 'fixed': no state satisfies it"):
        mg.from_cqm(fixed(0))
    soft = mg.from_cqm(fixed(0, weight=1.5))
    assert soft.constraints == {"fixed": "soft"}
    np.testing.assert_allclose(soft.graph.energy(every_state(soft.graph)), [1.5, -0.5])


def test_variables_with_a_zero_bias_are_no_part_of_a_constraint():
    """A matrix row may name every variable, although only a few have a nonzero bias."""
    x = list(dimod.Binaries(range(40)))
    rows = {"one-hot": [1.0] * 3 + [0.0] * 37, "table": [0.0] * 30 + [2.0, 3.0] + [0.0] * 8}
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.set_objective(sum(x))
    for kind, row in rows.items():
        left = dimod.quicksum(bias * one for bias, one in zip(row, x, strict=True))
        cqm.add_constraint(left == 1 if kind == "one-hot" else left <= 3, label=kind)
    product = dimod.quicksum((k == 35) * x[k] * x[k + 1] for k in range(39))
    cqm.add_constraint(product <= 0, label="product")
    model = mg.from_cqm(cqm)
    assert model.constraints == {"one-hot": "one-hot", "table": "table", "product": "table"}
    assert len(model.graph) == 38
    answer = mg.infer(model.graph, progress=False)
    share = np.exp(-1.0)
    parts = 3 * share, 1 + 2 * share, 1 + 2 * share, (1 + share) ** 33
    assert answer.log_z == pytest.approx(np.log(parts).sum())


BIASES = [3, 1, 2, 5, 1, 4, 2, 2, 1, 3, 1, 2, 1, 1, 2]


@pytest.mark.parametrize(("sense", "right"), [("le", 9), ("ge", 20), ("eq", 12)])
def test_counting_is_exact(sense, right):
    """log Z over feasible states, by elimination, equals the sum over all 2^15 states."""
    cqm = wide(sense, right, BIASES)
    model = mg.from_cqm(cqm, wide="counting")
    assert model.constraints == {"wide": "counting"}
    states = np.array(list(itertools.product([0, 1], repeat=15)))
    energies = cqm.objective.energies((states, list(cqm.variables)))
    total = states @ np.array(BIASES)
    good = {"le": total <= right, "ge": total >= right, "eq": total == right}[sense]
    answer = mg.infer(model.graph, progress=False)
    assert answer.method.startswith("exact")
    assert answer.log_z == pytest.approx(np.log(np.exp(-energies[good]).sum()))


@pytest.mark.parametrize(("sense", "right"), [("le", 9), ("ge", 20), ("eq", 12)])
def test_penalties_are_squares_of_violations(sense, right):
    cqm = wide(sense, right, BIASES)
    model = mg.from_cqm(cqm, beta=0.5, penalty=3.0)
    assert model.constraints == {"wide": "penalty"}
    rng = np.random.default_rng(5)
    states = np.stack([rng.integers(0, n, 200) for n in model.graph.sizes], axis=1)
    samples = model.samples(states)
    gap = samples @ np.array(BIASES) - right
    if sense != "eq":
        gap = gap * (1 if sense == "le" else -1) + states[:, -1]
    cost = cqm.objective.energies((samples, list(cqm.variables))) + 3.0 * gap**2
    np.testing.assert_allclose(model.graph.log_potential(states), -0.5 * cost, atol=1e-9)


def test_the_default_penalty_is_the_largest_change_of_the_objective():
    cqm = wide("eq", 12, BIASES)
    largest = max(abs(bias) for _, bias in cqm.objective.iter_linear())
    assert mg.from_cqm(cqm).penalty == pytest.approx(largest)


@pytest.mark.parametrize("penalty", ["linear", "quadratic"])
def test_soft_constraints(penalty):
    cqm = dimod.ConstrainedQuadraticModel()
    i, x = dimod.Integer("i", upper_bound=4), dimod.Binary("x")
    cqm.set_objective(i - x)
    if penalty == "quadratic":  # dimod allows it for binary variables only
        i = x + dimod.Binary("y")
    cqm.add_constraint(2 * x + i <= 1, weight=1.5, penalty=penalty, label="soft")
    model = mg.from_cqm(cqm)
    assert model.constraints == {"soft": "soft"}
    states = every_state(model.graph)
    samples = model.samples(states)
    excess = cqm.constraints["soft"].lhs.energies((samples, list(cqm.variables))) - 1
    excess = np.maximum(excess, 0) ** (2 if penalty == "quadratic" else 1)
    cost = cqm.objective.energies((samples, list(cqm.variables))) + 1.5 * excess
    np.testing.assert_allclose(model.graph.log_potential(states), -cost, atol=1e-9)


def test_the_annealer_finds_the_best_feasible_sample():
    cqm = mixed()
    reads = MiniGibbsAnnealer().sample_cqm(cqm, num_reads=4, seed=1)
    exact = dimod.ExactCQMSolver().sample_cqm(cqm)
    least = exact.record.energy[exact.record.is_feasible].min()
    assert reads.record.is_feasible.all()
    assert reads.record.energy.tolist() == pytest.approx([least] * 4)
    assert reads.info["constraints"]["a"] == "one-hot"


def test_a_model_without_variables():
    reads = MiniGibbsAnnealer().sample_cqm(dimod.ConstrainedQuadraticModel(), num_reads=3)
    assert len(reads) == 3
    assert reads.record.is_feasible.all()


def knapsack():
    """Return a capacity constraint over 20 items, which becomes a penalty, and the best value."""
    rng = np.random.default_rng(6)
    weight, value = rng.integers(1, 10, 20), rng.integers(1, 20, 20)
    cqm = dimod.ConstrainedQuadraticModel()
    x = list(dimod.Binaries(range(20)))
    cqm.set_objective(-sum(int(v) * one for v, one in zip(value, x, strict=True)))
    load = sum(int(w) * one for w, one in zip(weight, x, strict=True))
    cqm.add_constraint(load <= 30, label="load")
    best = np.zeros(31)
    for w, v in zip(weight, value, strict=True):
        best[w:] = np.maximum(best[w:], best[:-w] + v)
    return cqm, best.max()


def test_the_annealer_fills_a_knapsack():
    cqm, best = knapsack()
    reads = MiniGibbsAnnealer().sample_cqm(cqm, num_reads=2, num_sweeps=600, seed=1)
    assert reads.info["constraints"] == {"load": "penalty"}
    assert len(reads.info["penalty"]) == 5
    assert reads.record.is_feasible[0]
    assert reads.record.energy[0] <= -0.97 * best


def test_counting_proves_the_optimum_of_a_knapsack():
    """40 items, where penalties end 12% below; the optimum is by dynamic programming."""
    rng = np.random.default_rng(40)
    value, weight = rng.integers(5, 40, 40), rng.integers(3, 30, 40)
    capacity = int(weight.sum() // 2)
    most = np.zeros(capacity + 1, dtype=int)
    for gain, size in zip(value, weight, strict=True):
        most[size:] = np.maximum(most[size:], most[:-size] + gain)
    cqm = dimod.ConstrainedQuadraticModel()
    items = [dimod.Binary(k) for k in range(40)]
    cqm.set_objective(-sum(int(gain) * item for gain, item in zip(value, items, strict=True)))
    load = sum(int(size) * item for size, item in zip(weight, items, strict=True))
    cqm.add_constraint(load <= capacity, label="capacity")
    model = mg.from_cqm(cqm, wide="counting")
    best = mg.maximize(model.graph, "60s", prove=True, seed=1, progress=False)
    assert best.proven
    chosen = model.samples(best.state)[0]
    assert chosen @ weight <= capacity
    assert chosen @ value == most[-1]


def test_feasible_samples_come_first():
    """The weight is so small that most reads overload the knapsack."""
    cqm, _ = knapsack()
    reads = MiniGibbsAnnealer().sample_cqm(cqm, num_reads=12, num_sweeps=60, penalty=2.0, seed=3)
    feasible = reads.record.is_feasible
    assert 0 < feasible.sum() < 12
    assert (np.diff(feasible.astype(int)) <= 0).all()
    assert (np.diff(reads.record.energy[feasible]) >= 0).all()
    assert reads.record.energy[~feasible].min() < reads.record.energy[feasible].min()


LARGE = dimod.Integer("i")
BAD = {
    "no model": (lambda: mg.from_cqm(dimod.BQM("SPIN")), "expected a dimod.Constrained"),
    "no variables": (lambda: mg.from_cqm(dimod.CQM()), "no variables"),
    "real": (lambda: mg.from_cqm(made(dimod.Real("r"))), "variable 'r'.*got REAL"),
    "unbounded": (lambda: mg.from_cqm(made(LARGE)), "variable 'i'.*set_upper_bound"),
    "NaN": (
        lambda: mg.from_cqm(made(dimod.BQM({"x": float("nan")}, {}, "BINARY"))),
        "bias of 'x'.*nan",
    ),
    "infeasible": (
        lambda: mg.from_cqm(made(dimod.Binary("x"), dimod.Binary("x") >= 2)),
        "constraint 'c': no state satisfies it",
    ),
    "infeasible, wide": (lambda: mg.from_cqm(wide("ge", 99, BIASES)), "no state satisfies"),
    "fractions": (
        lambda: mg.from_cqm(wide("le", 3, [0.3] * 15)),
        "constraint 'wide'.*integer biases",
    ),
    "large slack": (lambda: mg.from_cqm(wide("le", 99999, [9999] * 15)), "slack"),
    "large count": (
        lambda: mg.from_cqm(wide("le", 9999, [2**k for k in range(15)]), wide="counting"),
        "counting takes",
    ),
    "wide and quadratic": (
        lambda: mg.from_cqm(made(dimod.Binary("x"), squares() <= 9)),
        "a quadratic constraint becomes a table",
    ),
    "penalty": (lambda: mg.from_cqm(mixed(), penalty=0.0), "penalty must be"),
    "no polynomial": (lambda: mg.from_polynomial({"ab": 1.0}), "expected a dimod.BinaryPoly"),
    "empty polynomial": (
        lambda: mg.from_polynomial(dimod.BinaryPolynomial({}, "SPIN")),
        "no variables",
    ),
    "NaN term": (
        lambda: mg.from_polynomial(dimod.BinaryPolynomial({"ab": float("nan")}, "SPIN")),
        "term of .*nan",
    ),
    "many spins": (
        lambda: mg.from_polynomial(dimod.BinaryPolynomial({tuple(range(17)): 1.0}, "SPIN")),
        "a product of 17 spins",
    ),
}


def made(objective, *constraints):
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.set_objective(objective)
    for constraint in constraints:
        cqm.add_constraint(constraint, label="c")
    return cqm


def squares():
    x = list(dimod.Binaries(range(20)))
    return sum(x[k] * x[k + 1] for k in range(19))


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(mg.GraphError, match=message):
        call()


# Polynomials

TERMS = {"abc": -1.5, "abcd": 0.75, "ab": 0.5, "bd": -0.25, "a": 1.0, "d": -2.0, "": 0.5}


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_energies_of_all_states_of_a_polynomial(vartype):
    polynomial = dimod.BinaryPolynomial(TERMS, vartype)
    graph = mg.from_polynomial(polynomial, beta=0.6)
    states = every_state(graph)
    values = 2 * states - 1 if vartype == "SPIN" else states
    energies = polynomial.energies((values, list(graph.names)))
    np.testing.assert_allclose(graph.log_potential(states), -0.6 * energies, atol=1e-12)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_the_annealer_takes_polynomials(vartype):
    polynomial = dimod.BinaryPolynomial(TERMS, vartype)
    reads = MiniGibbsAnnealer().sample_poly(polynomial, num_reads=3, seed=1)
    least = dimod.ExactPolySolver().sample_poly(polynomial).first.energy
    assert reads.record.energy.tolist() == pytest.approx([least] * 3)
    assert reads.vartype is polynomial.vartype
    constant = dimod.BinaryPolynomial({(): 2.5}, vartype)
    assert MiniGibbsAnnealer().sample_poly(constant).record.energy.tolist() == [2.5]


def test_the_annealer_takes_higher_order_dictionaries():
    reads = MiniGibbsAnnealer().sample_hubo({("a", "b", "c"): -1.0, ("a",): 0.25}, seed=1)
    assert reads.first.energy == pytest.approx(-0.75)
