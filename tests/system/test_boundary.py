"""Arguments of a wrong type raise our error with their name, the expected and the given type."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import minigibbs as mg
from minigibbs.errors import GraphError, SampleError
from minigibbs.system.boundary import Check, checked

if TYPE_CHECKING:
    from minigibbs.results.run import Run

GRAPH = mg.models.ising_lattice(side=3, beta=0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mg.sample("graph.uai"),
            r"sample: graph must be a FactorGraph, got 'graph.uai' \(str\); build one with",
        ),
        (lambda: mg.sample(GRAPH, chains=4.0), r"chains must be an integer, got 4.0 \(float\)"),
        (lambda: mg.sample(GRAPH, progress="no"), "progress must be True or False, got 'no'"),
        (lambda: mg.Ising({0: 1}, [1], 0.5), "Ising: i must be numbers .*, got {0: 1}"),
        (
            lambda: mg.Table.from_function([0, 1, 2], max, [2.5, 3, 5]),
            r"grids must be a list of Grid objects or integers, got 2.5 \(float\) at position 0",
        ),
        (
            lambda: GRAPH.condition(np.zeros(9)),
            "evidence must be a mapping from integers or strings to values, got an array",
        ),
        (lambda: mg.read(3), "read: path must be the path of a file .*, got 3"),
        (lambda: mg.learn(GRAPH, l1="much"), "l1 must be a number or a mapping"),
        (
            lambda: mg.infer(GRAPH, standard_error=float("nan")),
            "standard_error must be a number, got nan",
        ),
        (lambda: mg.log_partition(mg.Gibbs), "graph must be .*, got the class Gibbs"),
        (lambda: mg.observables.binder(GRAPH), "run must be a Run, got an object of type Factor"),
    ],
)
def test_public_calls_name_the_argument(call, message):
    with pytest.raises(mg.MinigibbsError, match=message):
        call()


def test_an_unknown_argument_is_answered_with_those_there_are():
    with pytest.raises(TypeError, match=r"'sides'; did you mean 'side'\? It takes side, beta, dim"):
        mg.models.spin_glass(sides=3)
    with pytest.raises(TypeError, match=r"marginal has no argument 'n'\. It takes variable$"):
        mg.infer(mg.FactorGraph([2], [])).marginal(n=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mg.learn_structure({"a": [1, 2]}, forbidden=map(int, "12")),
        lambda: mg.learn_structure({"a": [1, 2]}, "network", tiers=iter([["a", 1]])),
        lambda: mg.FactorGraph([2], iter([1])),
    ],
)
def test_elements_of_iterators_are_checked(call):
    with pytest.raises(mg.MinigibbsError, match=r"must be .*, got"):
        call()


def test_classes_that_results_hold_are_checked():
    graph = mg.models.spin_glass(side=3, dimensions=2, seed=1)
    run = mg.sample(graph, mg.Tempering(levels=3), sweeps=40, seed=1, progress=False)
    with pytest.raises(SampleError, match="level must be a number, got"):
        run.ladder.log_z_interval(level="most")
    with pytest.raises(SampleError, match="level must be between 0 and 1"):
        run.ladder.log_z_interval(level=2.0)


def _module(one):
    return getattr(one, "__module__", None) or ""


def _classes():
    """Generate every public class and function, by name."""
    for name in mg.__all__:
        public = getattr(mg, name)
        if inspect.ismodule(public):
            keys = getattr(public, "__all__", None) or [
                key for key, one in vars(public).items() if _module(one) == public.__name__
            ]
            found = [(key, getattr(public, key)) for key in keys]
        else:
            found = [(name, public)]
        for key, one in found:
            ours = _module(one).startswith("minigibbs")
            if ours and key[0] != "_" and not (inspect.isclass(one) and issubclass(one, Exception)):
                yield key, one


_UNCHECKED = {
    "Explanation",
    "Info",
    "Marginal",
    "Measure",
    "Stats",
    "Summary",
}  # plain data without methods


@pytest.mark.parametrize(("name", "public"), list(_classes()))
def test_every_public_name_is_checked(name, public):
    if inspect.isclass(public):
        members = [v for b in public.__mro__ for v in vars(b).values() if inspect.isfunction(v)]
    else:
        members = [public] if inspect.isfunction(public) else []
    annotated = [m for m in members if set(getattr(m, "__annotations__", ())) - {"return"}]
    if name in _UNCHECKED or not annotated or public.__module__ == "minigibbs.graph.checks":
        return
    cells = [c.cell_contents for m in annotated for c in m.__closure__ or ()]
    assert any(isinstance(cell, Check) for cell in cells), f"{name} needs @checked(...)"


@checked(SampleError)
def everything(
    whole: int = 0,
    number: float = 0.0,
    truth: bool = False,
    text: str = "",
    array: ArrayLike = (),
    exact: NDArray[np.float64] | None = None,
    names: Sequence[str] = (),
    some: Iterable[int] = (),
    pair: tuple[float, float] = (0.0, 1.0),
    table: Mapping[str, float] | None = None,
    function: Callable[..., Any] = len,
    path: str | os.PathLike[str] = "a",
    run: Run | None = None,
    mode: Literal["a", "b"] = "a",
    whatever: Any = None,
    wrong: int = None,  # noqa: RUF013
) -> None: ...


@pytest.mark.parametrize(
    "right",
    [
        {"whole": np.int8(3)},
        {"number": np.float32(2)},
        {"number": 3},
        {"number": float("inf")},
        {"truth": np.bool_(True)},
        {"array": [[1, 2]]},
        {"array": range(3)},
        {"array": 1.0},
        {"array": memoryview(b"ab")},
        {"exact": np.zeros(2)},
        {"names": np.array(["a"])},
        {"names": {"a": 1}.keys()},
        {"some": (k for k in [1])},
        {"pair": [1, 2]},
        {"table": {"a": 1}},
        {"path": Path("a")},
        {"mode": "b"},
        {"whatever": object()},
        {"wrong": None},
    ],
)
def test_valid_values_pass(right):
    everything(**right)


@pytest.mark.parametrize(
    "wrong",
    [
        {"whole": 1.0},
        {"whole": np.array(1)},
        {"number": 10**400},
        {"number": float("nan")},
        {"number": 1j},
        {"number": Decimal("1")},
        {"number": Fraction(1, 3)},
        {"truth": 1},
        {"text": b"a"},
        {"array": {1, 2}},
        {"array": (k for k in [1])},
        {"array": None},
        {"array": np.float64},
        {"exact": [1.0]},
        {"names": "abc"},
        {"names": ["a", 1]},
        {"some": 3},
        {"some": [1, "a"]},
        {"pair": (1, 2, 3)},
        {"table": {"a": "b"}},
        {"function": 3},
        {"path": ["a"]},
        {"path": "a\0b"},
        {"path": "\ud800"},
        {"path": ""},
        {"whole": np.timedelta64(1, "D")},
        {"number": np.timedelta64(1, "D")},
        {"exact": np.array([None])},
        {"run": mg.Gibbs()},
        {"mode": "c"},
        {"mode": []},
        {"some": np.array(1)},
        {"names": np.array("a")},
        {"pair": np.array(1.0)},
    ],
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(SampleError, match=f"everything: {next(iter(wrong))} must be "):
        everything(**wrong)


def test_what_was_received_stays_short_and_printable():
    with pytest.raises(SampleError) as caught:
        everything(whole="\x1b[31m" + "long" * 10_000)
    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)


@checked(GraphError)
@dataclass(frozen=True)
class Pair:
    """A class with a constructor and methods of all kinds."""

    first: int
    second: int = 0

    def plus(self, number: float) -> float:
        """Method."""
        return self.first + number

    @classmethod
    def of(cls, *numbers: int, **named: str) -> Pair:
        """Class method."""
        return cls(*numbers)


def test_constructors_and_methods_are_checked():
    assert Pair.of(1, 2).plus(0.5) == 1.5
    for call, message in (
        (lambda: Pair("a"), "Pair: first must be an integer, got 'a'"),
        (lambda: Pair(1).plus("a"), "Pair.plus: number must be a number, got 'a'"),
        (lambda: Pair.of(1, "a"), "Pair.of: numbers must be an integer, got 'a'"),
        (lambda: Pair.of(1, called=2), "Pair.of: called must be a string, got 2"),
    ):
        with pytest.raises(GraphError, match=message):
            call()


def test_signatures_docstrings_and_pickling_stay():
    assert list(inspect.signature(mg.sample).parameters)[:2] == ["graph", "sampler"]
    assert mg.sample.__doc__.startswith("Sample a graph")
    assert inspect.unwrap(mg.sample).__module__ == mg.sample.__module__ == "minigibbs.running.api"
    assert pickle.loads(pickle.dumps(mg.sample)) is mg.sample
    assert mg.sample.__globals__["__name__"] == "minigibbs.running.api"  # for doctest


LATTICE = mg.models.ising_lattice(side=4, beta=0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mg.models.curie_weiss(10**400, 1.0), "n must be an integer"),
        (lambda: mg.PoissonGibbs().split(LATTICE, lanes=-(10**400)), "lanes must be an integer"),
        (lambda: mg.models.curie_weiss(True, 1.0), "n must be an integer"),
        (lambda: mg.models.ising_lattice(np.uint64(2**63), 0.5), "a lattice"),
        (lambda: mg.Unary([0], [0.0, 1.0], fixed=[1, [2]]), "fixed must hold booleans"),
        (lambda: LATTICE.domains.square(np.zeros((0, 3))), "flat must hold one number per value"),
        (lambda: LATTICE.domains.value(2, np.timedelta64(1, "D")), "expected a value from 0 to 1"),
        (lambda: mg.models.dense_crf(np.zeros((3, 4, 3)), costs=np.inf), "dense_crf: .*costs"),
        (lambda: LATTICE.domains.values(True), "variable must be an integer"),
        (lambda: mg.BlockGibbs(width=1, blocks=np.ma.masked), "blocks must be lists"),
        (lambda: mg.infer(LATTICE).report("x.html", shape=np.zeros((0, 3))), "rows and columns"),
    ],
)
def test_what_fuzzed_calls_found_is_refused(call, message):
    with pytest.raises(mg.MinigibbsError, match=message):
        call()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.uint64])
def test_numbers_of_numpy_become_those_of_python(kind):
    """In 16 bits the search for the bounds of the paper's Lemma 2 would not end."""
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    expected = str(mg.theory.lemma_2_sharper(graph, delta=2.0, failure=0.5))
    assert str(mg.theory.lemma_2_sharper(graph, delta=kind(2), failure=0.5)) == expected


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError(),
        MemoryError("Unable to allocate 9 EiB"),
        RuntimeError("can't start new thread"),
    ],
)
def test_memory_that_runs_out_is_our_error(failure):
    @checked(SampleError)
    def fill(count: int) -> None:
        raise failure

    with pytest.raises(mg.TooLargeError, match=r"^fill: the memory of this .* ran out") as info:
        fill(3)
    assert info.value.__cause__ is failure


@pytest.mark.parametrize("failure", [RuntimeError("no"), mg.TooLargeError("ours"), KeyError("k")])
def test_other_failures_pass_the_boundary(failure):
    @checked(SampleError)
    def fail(count: int) -> None:
        raise failure

    with pytest.raises(type(failure)) as info:
        fail(3)
    assert info.value is failure
