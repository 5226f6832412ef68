"""Bad input: an error of the library that states the place, the expected and the found value."""

import math
import sys

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.cli import main as cli
from minigibbs.running import backends
from minigibbs.system import memory
from tests.harness import sample

NAN, INF = float("nan"), float("inf")


def chain(sizes=(2, 3, 2), **extra):
    return mg.FactorGraph(list(sizes), [mg.Potts([0, 1], [1, 2], 1.0)], **extra)


def on(sizes, *groups):
    return lambda: mg.FactorGraph(sizes, list(groups))


def named():
    return chain(names=["a", "b", "c"], labels={"b": ["low", "mid", "high"]})


def per_factor(value):
    """Return two energies per factor, with a given value 1 of factor 2."""
    energy = np.zeros((4, 2))
    energy[2, 1] = value
    return energy


GRAPH_ERRORS = {
    # shapes
    "pairs of two lengths": (lambda: mg.Potts([0, 1], [1], 1.0), ["potts", "(2,)", "(1,)"]),
    "variables in a square": (lambda: mg.Ising([[0]], [[1]], 1.0), ["ising", "1-D", "(1, 1)"]),
    "variables as fractions": (lambda: mg.Potts([0.5], [1], 1.0), ["potts", "integers", "float64"]),
    "too few weights": (lambda: mg.Potts([0, 1], [1, 2], [1.0]), ["potts", "2 weights", "(1,)"]),
    "weights as text": (lambda: mg.Potts([0], [1], ["a"]), ["potts", "real numbers", "<U1"]),
    "complex weights": (lambda: mg.Ising([0], [1], 1j), ["Ising", "must be numbers", "complex"]),
    "scope of three axes": (lambda: mg.Table([[[0]]], [0.0]), ["table", "scope", "(1, 1, 1)"]),
    "scope without columns": (
        lambda: mg.Logical("and", np.empty((2, 0), int), 1.0),
        ["logical", "scope", "(2, 0)"],
    ),
    "table of another arity": (
        lambda: mg.Table([[0, 1]], np.zeros(3)),
        ["table", "2 dimensions", "(3,)"],
    ),
    "too few tables": (
        lambda: mg.Table([[0, 1], [1, 2]], np.zeros((3, 2, 2))),
        ["table", "2 factors", "length 2", "(3, 2, 2)"],
    ),
    "too few unary rows": (
        lambda: mg.Unary([0, 1], np.zeros((3, 2))),
        ["unary", "(2, values)", "(3, 2)"],
    ),
    "ragged scope": (lambda: mg.Table([[0, 1], [0]], np.eye(2)), ["table", "scope"]),
    "ragged energies": (lambda: mg.Unary([0, 1], [[0.0, 1.0], [1.0]]), ["unary", "log-potentials"]),
    "ragged weights": (lambda: mg.Potts([0, 1], [1, 2], [[1.0, 2.0], [1.0]]), ["potts", "weights"]),
    "ragged probabilities": (
        lambda: mg.Unary.from_probabilities([0, 1], [[0.5, 0.5], [1.0]]),
        ["unary", "probabilit"],
    ),
    "probabilities as text": (
        lambda: mg.Unary.from_probabilities([0], ["a", "b"]),
        ["unary", "probabilit"],
    ),
    "function of the wrong shape": (
        lambda: mg.Table.from_function([0], lambda a: np.zeros(2), [mg.Grid(0, 1, 3)]),
        ["table", "(3,)", "(2,)"],
    ),
    "grids for another scope": (
        lambda: mg.Table.from_function([0, 1], lambda a: a, [mg.Grid(0, 1, 3)]),
        ["table", "2 variables", "(3,)"],
    ),
    "negations of another shape": (
        lambda: mg.Logical("and", [[0, 1]], 1.0, negated=[True, False, True]),
        ["logical", "negated", "(1, 2)", "(3,)"],
    ),
    "negations that are no booleans": (
        lambda: mg.Logical("and", [[0, 1]], 1.0, negated=[0, 2]),
        ["logical", "negated", "booleans"],
    ),
    "table for other domains": (
        on([2, 3, 2], mg.Table([[0, 1], [1, 2]], np.zeros((2, 2, 3)))),
        ["table factor 1 of group 0", "variables 1, 2", "(3, 2)", "(2, 3)"],
    ),
    "unary for another domain": (
        on([2, 3], mg.Potts([0], [1], 1.0), mg.Unary([0, 1], np.zeros((2, 2)))),
        ["unary factor 1 of group 1", "3 log-potentials", "variable 1", "got 2"],
    ),
    "a state too short": (lambda: chain().log_potential([0, 1]), ["3 variables", "(2,)"]),
    "states of three axes": (
        lambda: chain().log_potential(np.zeros((1, 1, 3), int)),
        ["3 variables", "(1, 1, 3)"],
    ),
    "ragged states": (lambda: chain().log_potential([[0, 1, 0], [0]]), ["3 variables"]),
    "a state of fractions": (
        lambda: chain().log_potential([0.0, 1.0, 0.0]),
        ["integers", "float64"],
    ),
    "a state out of domain": (
        lambda: named().log_potential([[0, 1, 0], [0, 3, 0]]),
        ["variable 1 ('b')", "0 to 2", "got 3"],
    ),
    "a negative state": (
        lambda: chain().log_potential([0, 1, -1]),
        ["variable 2", "0 to 1", "got -1"],
    ),
    # indices
    "index too large": (
        on([2, 2, 2], mg.Potts([0, 1], [1, 7], 1.0)),
        ["potts factor 1 of group 0", "0 to 2", "got 7"],
    ),
    "index too large for a table": (
        on([2, 2], mg.Unary([1], np.zeros((1, 2))), mg.Table([[0, 2]], np.zeros((2, 2)))),
        ["table factor 0 of group 1", "0 to 1", "got 2"],
    ),
    "negative index": (lambda: mg.Potts([0, -3], [1, 2], 1.0), ["potts factor 1", "got -3"]),
    "index beyond int32": (lambda: mg.Potts([0], [2**31], 1.0), ["potts factor 0", str(2**31)]),
    "a pair with itself": (lambda: mg.Ising([0, 2], [1, 2], 1.0), ["ising factor 1", "[2, 2]"]),
    "a variable twice": (
        lambda: mg.Logical("or", [[0, 1, 2], [3, 1, 3]], 1.0),
        ["logical factor 1", "differ", "[3, 1, 3]"],
    ),
    "not a factor": (lambda: mg.FactorGraph([2], [3]), ["mg.Potts", "int", "position 0"]),
    "unknown formula": (lambda: mg.Logical("xor", [[0, 1]], 1.0), ["imply", "equal", "'xor'"]),
    "istrue of two": (lambda: mg.Logical("istrue", [[0, 1]], 1.0), ["istrue", "one literal", "2"]),
    # domains
    "domain of size 0": (lambda: mg.FactorGraph([2, 0], []), ["variable 1", "1 to", "got 0"]),
    "negative domain": (lambda: mg.FactorGraph([-2], []), ["variable 0", "1 to", "got -2"]),
    "domain beyond int32": (lambda: mg.FactorGraph([2**31], []), ["variable 0", str(2**31)]),
    "no variables": (lambda: mg.FactorGraph([], []), ["sizes", "at least one", "(0,)"]),
    "one number for sizes": (lambda: mg.FactorGraph(3, []), ["sizes", "per variable"]),
    "sizes in a square": (lambda: mg.FactorGraph([[2, 2]], []), ["sizes", "(1, 2)"]),
    "ragged sizes": (lambda: mg.FactorGraph([2, [2, 3]], []), ["sizes", "per variable"]),
    "sizes as fractions": (lambda: mg.FactorGraph([2.0], []), ["sizes", "integers", "float64"]),
    "a grid of one point": (lambda: mg.Grid(0.0, 1.0, 1), ["Grid", "2 points", "points=1"]),
    "a grid upside down": (lambda: mg.Grid(1.0, 0.0, 5), ["low < high", "low=1.0", "high=0.0"]),
    "a grid to infinity": (lambda: mg.Grid(0.0, INF, 5), ["finite", "high=inf"]),
    # numbers
    "NaN weight": (lambda: mg.Potts([0, 1], [1, 2], [1, NAN]), ["potts factor 1", "finite", "nan"]),
    "infinite weight": (
        lambda: mg.Ising([0, 1], [1, 2], [1, INF]),
        ["ising factor 1", "inf", "Hard constraints", "mg.Table"],
    ),
    "-inf weight": (
        lambda: mg.Logical("and", [[0, 1]], -INF),
        ["logical factor 0", "-inf", "Hard constraints"],
    ),
    "NaN table weight": (lambda: mg.Table([0], [0.0, 1.0], weight=NAN), ["table factor 0", "nan"]),
    "NaN energy": (
        lambda: mg.Unary(range(4), per_factor(NAN)),
        ["unary factor 2", "finite", "got nan"],
    ),
    "infinite energy": (
        lambda: mg.Unary(range(4), per_factor(INF)),
        ["unary factor 2", "finite", "got inf"],
    ),
    "NaN table": (
        lambda: mg.Table([[0], [1], [2], [3]], per_factor(NAN)),
        ["table factor 2", "finite", "got nan"],
    ),
    "a negative weight at a zero": (
        lambda: mg.Table([[0], [1], [2], [3]], per_factor(-INF), weight=[1.0, 1.0, -1.0, 1.0]),
        ["table factor 2", "has a hard constraint", "above 0", "got -1.0"],
    ),
    "weight 0 at a shared zero": (
        lambda: mg.Table([[0, 1], [1, 2]], [[0.0, -INF], [0.0, 0.0]], weight=[1.0, 0.0]),
        ["table factor 1", "has a hard constraint", "got 0.0"],
    ),
    "+inf above a floor": (lambda: mg.Unary([0], [0.0, INF], floor=-9.0), ["unary", "got inf"]),
    "NaN above a floor": (lambda: mg.Unary([0], [0.0, NAN], floor=-9.0), ["unary", "got nan"]),
    "infinite floor": (lambda: mg.Table([0], [0.0, 1.0], floor=-INF), ["floor", "finite", "-inf"]),
    "a weight too large to double": (
        lambda: mg.Ising([0, 1], [1, 2], [1.0, 1.7e308]),
        ["ising factor 1", "finite", "1e+100", "got 1.7e+308"],
    ),
    "negative probability": (
        lambda: mg.Unary.from_probabilities([0], [0.5, -0.5]),
        ["unary", "not negative", "got -0.5"],
    ),
    "negative probability above a floor": (
        lambda: mg.Unary.from_probabilities([0], [0.5, -0.5], floor=1e-9),
        ["unary", "not negative", "got -0.5"],
    ),
    "NaN probability": (
        lambda: mg.Unary.from_probabilities([0], [0.5, NAN], floor=1e-9),
        ["unary", "got nan"],
    ),
    "floor of probability 0": (
        lambda: mg.Unary.from_probabilities([0], [0.5, 0.0], floor=0.0),
        ["unary", "floor", "positive", "0.0"],
    ),
    # two-valued factors
    "Ising on three values": (
        on([2, 3, 2], mg.Ising([0, 1], [2, 2], 1.0)),
        ["ising factor 1 of group 0", "2 values", "variable 1", "has 3"],
    ),
    "Logical on three values": (
        on([2, 2, 3], mg.Logical("or", [[0, 1, 2]], 1.0)),
        ["logical factor 0 of group 0", "2 values", "variable 2", "has 3"],
    ),
    "Ising on one value": (on([2, 1], mg.Ising([0], [1], 1.0)), ["variable 1", "has 1"]),
    # names and labels
    "duplicate names": (lambda: chain(names=["a", "b", "a"]), ["'a'", "variables 0 and 2"]),
    "too few names": (lambda: chain(names=["a"]), ["names", "expected 3", "got 1"]),
    "a name that is no text": (
        lambda: chain(names=["a", "b", 3]),
        ["names", "got 3", "position 2"],
    ),
    "too few labels": (lambda: chain(labels={1: ["x"]}), ["variable 1", "3 labels", "got 1"]),
    "too few label lists": (lambda: chain(labels=[["x", "y"]]), ["labels", "3 lists"]),
    "duplicate labels": (lambda: chain(labels={0: ["x", "x"]}), ["variable 0", "duplicate", "'x'"]),
    "labels without a hash": (
        lambda: chain(labels={0: [(["x"],), "y"]}),
        ["variable 0", "a label must be text or a number", "(['x'],)"],
    ),
    "records as labels": (
        lambda: chain(labels={0: np.zeros(2, dtype=[("a", int)])}),
        ["variable 0", "a label must be text or a number"],
    ),
    "labels of an unknown variable": (lambda: chain(labels={9: ["x", "y"]}), ["variable 9"]),
    # evidence
    "unknown evidence": (lambda: named().condition({"z": 0}), ["unknown variable 'z'"]),
    "names where there are none": (
        lambda: chain().condition({"z": 0}),
        ["unknown variable 'z'", "no names"],
    ),
    "evidence on no variable": (
        lambda: chain().condition({3: 0}),
        ["unknown variable 3", "0 to 2"],
    ),
    "evidence before the first": (lambda: chain().condition({-1: 0}), ["unknown variable -1"]),
    "evidence out of domain": (
        lambda: named().condition({"b": 3}),
        ["variable 1 ('b')", "0 to 2", "'low', 'mid', 'high'", "got 3"],
    ),
    "negative evidence": (lambda: chain().condition({0: -1}), ["variable 0", "0 to 1", "got -1"]),
    "unknown label": (
        lambda: named().condition({"b": "huge"}),
        ["variable 1 ('b')", "'mid'", "got 'huge'"],
    ),
    "evidence as a fraction": (lambda: chain().condition({0: 0.5}), ["variable 0", "got 0.5"]),
    "evidence as an array": (lambda: named().condition({"b": np.array([1, 2])}), ["variable 1"]),
    "a point off the grid": (
        lambda: mg.FactorGraph([mg.Grid(0, 1, 5)], []).condition({0: 0.3}),
        ["variable 0", "5 grid points from 0 to 1", "got 0.3"],
    ),
    "evidence array out of domain": (
        lambda: mg.FactorGraph([2, 2], [], evidence=np.array([7, -1], np.int32)),
        ["variable 0", "got 7"],
    ),
    "evidence array too short": (
        lambda: mg.FactorGraph([2, 2], [], evidence=np.array([-1], np.int32)),
        ["evidence", "2"],
    ),
    # models
    "model without spins": (lambda: mg.models.curie_weiss(1, 1.0), ["n must", "2", "got 1"]),
    "side as a fraction": (lambda: mg.models.ising_rbf(side=2.5), ["side", "integer", "2.5"]),
    "side of a small torus": (lambda: mg.models.ising_lattice(2, 1.0), ["side", "3", "got 2"]),
    "no states": (lambda: mg.models.potts_lattice(3, 0, 1.0), ["states", "1", "got 0"]),
    "arity beyond the variables": (
        lambda: mg.models.random_tables(variables=2, arity=3),
        ["variables", "3", "got 2"],
    ),
    "negative model seed": (lambda: mg.models.random_tables(seed=-1), ["seed", "-1"]),
    "negative factors": (lambda: mg.models.random_tables(factors=-1), ["factors", "got -1"]),
    "NaN beta": (lambda: mg.models.ising_lattice(3, NAN), ["beta", "number", "nan"]),
}


@pytest.mark.parametrize("case", GRAPH_ERRORS)
def test_bad_graphs(case):
    make, pieces = GRAPH_ERRORS[case]
    with pytest.raises(mg.GraphError) as caught:
        make()
    assert_says(caught, pieces)


def assert_says(caught, pieces):
    message = str(caught.value)
    assert isinstance(caught.value, mg.MinigibbsError)
    missing = [piece for piece in pieces if piece not in message]
    assert not missing, f"{missing} not in {message!r}"
    assert "\n" not in message


@pytest.fixture
def no_sampling(monkeypatch):
    """Fail if a chain is started."""

    def refuse(*_):
        raise AssertionError("sampling has begun")

    monkeypatch.setattr(backends.cpu, "advance", refuse)


def test_the_guard_against_sampling_works(no_sampling):
    with pytest.raises(AssertionError, match="sampling has begun"):
        sample(chain(), updates=1, progress=False)


SAMPLE_ERRORS = {
    "unknown sampler": ({"sampler": "metropolis"}, ["sampler", "gibbs", "'metropolis'"]),
    "a sampler's class": ({"sampler": mg.Gibbs}, ["sampler", "mg.Gibbs()"]),
    "unknown scan": ({"scan": "zigzag"}, ["scan", "random", "systematic", "shuffled", "'zigzag'"]),
    "scan as a list": ({"scan": ["random"]}, ["scan", "random", "['random']"]),
    "unknown record": ({"record": "everything"}, ["record", "marginals", "'everything'"]),
    "no record": ({"record": None}, ["record", "Record", "None"]),
    "negative updates": ({"updates": -1}, ["updates", "at least 0", "got -1"]),
    "negative sweeps": ({"sweeps": -5}, ["sweeps", "at least 0", "got -5"]),
    "negative warmup": ({"warmup": -1}, ["warmup", "at least 0", "got -1"]),
    "no chains": ({"chains": 0}, ["chains", "at least 1", "got 0"]),
    "negative chains": ({"chains": -2}, ["chains", "at least 1", "got -2"]),
    "no threads": ({"threads": 0}, ["threads", "at least 1", "got 0"]),
    "thin 0": ({"thin": 0}, ["thin", "at least 1", "got 0"]),
    "updates as a fraction": ({"updates": 1e3}, ["updates", "integer", "1000.0"]),
    "chains as a boolean": ({"chains": True}, ["chains", "integer", "True"]),
    "updates and sweeps": ({"updates": 1, "sweeps": 1}, ["updates or sweeps"]),
    "negative seed": ({"seed": -1}, ["seed", "non-negative", "got -1"]),
    "seed as text": ({"seed": "one"}, ["seed", "integer", "'one'"]),
    "unknown start": ({"start": "zeros"}, ["start", "random", "'zeros'"]),
    "start too short": ({"start": [0, 0]}, ["3 variables", "(2,)"]),
    "start ragged": ({"start": [[0, 1, 1], [0]]}, ["3 variables"]),
    "start out of domain": ({"start": [0, 3, 1]}, ["variable 1 ('b')", "0 to 2", "got 3"]),
    "start as fractions": ({"start": [0.0, 1.0, 1.0]}, ["integers", "float64"]),
    "start for other chains": ({"start": [[0, 0, 1]] * 3, "chains": 2}, ["3 states", "2 chains"]),
    "start against the evidence": (
        {"start": [0, 1, 0]},
        ["violates the evidence", "variable 2 ('c')", "clamped to 1", "got 0"],
    ),
    "one start against the evidence": (
        {"start": [[0, 1, 1], [0, 1, 0]], "chains": 2},
        ["violates the evidence", "variable 2 ('c')", "clamped to 1", "got 0"],
    ),
    "reference of another shape": (
        {"reference": np.zeros((3, 2))},
        ["reference", "(3, 3)", "(3, 2)"],
    ),
    "reference without marginals": (
        {"reference": np.zeros((3, 3)), "record": "energy"},
        ["reference", "marginals"],
    ),
}


@pytest.mark.parametrize("case", SAMPLE_ERRORS)
def test_bad_requests_to_sample(case, no_sampling):
    options, pieces = SAMPLE_ERRORS[case]
    with pytest.raises(mg.MinigibbsError) as caught:
        sample(named().condition({"c": 1}), **options)
    assert_says(caught, pieces)


@pytest.fixture
def small_memory(monkeypatch):
    """Simulate a machine with 1 GiB left."""
    monkeypatch.setattr(memory, "available", lambda: 2**30)


TOO_LARGE = {
    "all pairs": lambda: mg.models.curie_weiss(100_000, 1.0, implicit=False),
    "a grid of all pairs": lambda: mg.models.potts_rbf(side=300, implicit=False),
    "a lattice": lambda: mg.models.ising_lattice(10_000, 1.0, implicit=False),
    "tables": lambda: mg.models.random_tables(factors=10, arity=20, states=10),
    "tables of many axes": lambda: mg.models.random_tables(factors=2, arity=70, states=2),
    "draws": lambda: sample(chain(), updates=10**9, thin=1, record="draws"),
    "energies": lambda: sample(chain(), updates=10**9, thin=1, record="energy"),
    "marginals": lambda: sample(mg.FactorGraph([2**28, 2**28], []), updates=0),
    "a weight for every value": lambda: sample(
        mg.FactorGraph([2**28, 2], []), updates=0, record="energy"
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_too_large_for_memory(case, small_memory, no_sampling):
    with pytest.raises(mg.TooLargeError, match=r"needs [\d.]+ \wiB.*1\.0 GiB"):
        TOO_LARGE[case]()


def test_packing_too_many_factors(monkeypatch):
    count = 100_000
    graph = mg.FactorGraph(
        np.full(3, 2), [mg.Ising(np.zeros(count, int), np.ones(count, int), 1.0)]
    )
    monkeypatch.setattr(memory, "available", lambda: 2**20)
    with pytest.raises(mg.TooLargeError, match=r"100,000 factors needs 2\.3 MiB.*1\.0 MiB"):
        _ = graph.packed


COMMANDS = {
    "unknown model": (["sample", "no-such"], ["no-such", "potts-rbf"]),
    "unknown argument": (["sample", "potts-rbf:size=3"], ["potts-rbf", "side=", "'size=3'"]),
    "argument without a value": (["sample", "potts-rbf:side"], ["potts-rbf", "'side'"]),
    "argument of another type": (["sample", "potts-rbf:side=x"], ["side", "int", "'x'"]),
    "argument left out": (["sample", "ising-lattice:side=4"], ["ising-lattice", "beta"]),
    "argument out of range": (["sample", "potts-rbf:side=0"], ["side", "got 0"]),
    "model seed out of range": (["explain", "random-tables:seed=-1"], ["seed", "-1"]),
    "unknown sampler": (["sample", "potts-rbf:side=3", "--sampler", "no"], ["gibbs", "'no'"]),
    "unknown scan": (["sample", "potts-rbf:side=3", "--scan", "no"], ["shuffled", "'no'"]),
    "unknown record": (["sample", "potts-rbf:side=3", "--record", "no"], ["marginals", "'no'"]),
    "negative updates": (["sample", "potts-rbf:side=3", "--updates", "-1"], ["updates", "-1"]),
    "negative warmup": (["sample", "potts-rbf:side=3", "--warmup", "-1"], ["warmup", "-1"]),
    "negative chains": (["sample", "potts-rbf:side=3", "--chains", "-1"], ["chains", "-1"]),
    "negative seed": (["sample", "potts-rbf:side=3", "--seed", "-1"], ["seed", "-1"]),
    "unknown evidence": (["sample", "potts-rbf:side=3", "--given", "y=1"], ["'y'"]),
    "evidence off the end": (["sample", "potts-rbf:side=3", "--given", "9=1"], ["9", "0 to 8"]),
    "evidence out of domain": (
        ["sample", "potts-rbf:side=3,states=4", "--given", "2=4"],
        ["variable 2", "0 to 3", "got 4"],
    ),
    "evidence without a value": (["sample", "potts-rbf:side=3", "--given", "2"], ["'2'", "="]),
    "evidence in odd digits": (["sample", "potts-rbf:side=3", "--given", "²=1"], ["²"]),
    "too large": (
        ["explain", "curie-weiss:n=3000000,beta=1,implicit=false"],
        ["3,000,000", "needs", "TiB", "implicit=True"],
    ),
    "unknown folder": (["sample", "potts-rbf:side=3", "--out", "no/run.mgr"], ["no/run.mgr"]),
    "demo of negative length": (["demo", "--updates", "-1"], ["updates", "-1"]),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_bad_commands_write_nothing(case, no_sampling, monkeypatch, tmp_path, capsys):
    arguments, pieces = COMMANDS[case]
    out = [] if "--out" in arguments or arguments[0] != "sample" else ["--out", "run.mgr"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["minigibbs", *arguments, *out])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    stdout, stderr = capsys.readouterr()
    assert caught.value.code == 2
    assert stdout == ""
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    missing = [piece for piece in pieces if piece not in stderr]
    assert not missing, f"{missing} not in {stderr!r}"
    assert list(tmp_path.iterdir()) == []


def test_a_weight_that_is_no_number_is_not_called_a_hard_constraint():
    with pytest.raises(mg.GraphError, match=r"got nan$"):
        mg.Potts([0], [1], math.nan)
    with pytest.raises(mg.GraphError, match=r"got inf\. Hard constraints"):
        mg.Potts([0], [1], math.inf)
