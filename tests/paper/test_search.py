"""Every claim on random graphs: the search must find counterexamples to the false claims."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.paper import theorems
from minigibbs.paper.claims import CLAIMS
from minigibbs.paper.search import Tape, climb, fresh, hostile_graph
from minigibbs.theory.bounds import AT_LEAST, AT_MOST, EQUAL, Comparison

TRUE = [name for name, claim in CLAIMS.items() if claim.holds]
FALSE = [name for name, claim in CLAIMS.items() if not claim.holds]


@pytest.fixture(scope="module")
def evidence():
    found = {}

    def gather(name):
        if name not in found:
            found[name] = theorems.gather(name, 40)
        return found[name]

    return gather


@pytest.mark.parametrize("name", TRUE)
def test_true_claims_hold_on_random_graphs(evidence, name):
    """The tolerance is 1e-9; Poisson tails are cut at 1e-12."""
    assert evidence(name).failures == 0
    assert evidence(name).holds


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_are_broken(evidence, name):
    """Control of the search: the paper's statements that have counterexamples."""
    assert not evidence(name).holds
    assert evidence(name).worst.comparison.strain > 1.3


@pytest.mark.parametrize(
    ("name", "least"),
    [("theorem-2-repaired", 0.95), ("theorem-6-sharper", 0.75), ("poisson-gibbs", 0.8)],
)
def test_bounds_that_are_tight_are_seen_to_be(evidence, name, least):
    """Little more could be claimed."""
    assert least < evidence(name).worst.comparison.strain <= 1


@pytest.mark.parametrize("name", ["theorem-4-repaired", "theorem-6", "poisson-mh", "tuna-mh"])
def test_a_bound_that_is_too_strong_is_caught(evidence, name):
    """Negative control: the same truth against a bound close to 1."""
    found = evidence(name)
    assert Comparison(AT_LEAST, found.claimed, found.true).holds()
    assert not Comparison(AT_LEAST, found.claimed**0.02, found.true).holds()


def test_an_allowance_that_is_too_small_is_caught(evidence):
    found = evidence("lemma-2-repaired")
    assert Comparison(AT_MOST, found.claimed, found.true).holds()
    assert not Comparison(AT_MOST, found.claimed**20, found.true).holds()


@pytest.mark.parametrize("name", ["theorem-1", "theorem-5"])
def test_a_distribution_that_is_slightly_off_is_caught(evidence, name):
    found = evidence(name)
    assert not Comparison(EQUAL, found.claimed * (1 + 1e-6), found.true).holds()


def test_trials_are_the_same_again_and_print_themselves():
    make = CLAIMS["theorem-4"].make
    (one, _), (again, _) = fresh(make, 3), fresh(make, 3)
    assert str(one) == str(again)
    assert one.comparison.true == again.comparison.true
    assert str(one).startswith("domains ")
    assert "batch = " in str(one)


def test_a_tape_gives_the_same_numbers_and_some_of_them_moved():
    rng = np.random.default_rng(1)
    tape = Tape(rng)
    read = [tape.uniform(0, 1) for _ in range(50)]
    assert Tape(rng, tuple(tape.numbers)).next() == read[0]
    near = tape.near(np.random.default_rng(2))
    moved = [near.next() != number for number in read]
    assert 0 < sum(moved) < 15
    assert 0 <= near.next() < 1  # continues with new numbers


def test_the_search_keeps_the_worst():
    make = CLAIMS["theorem-4"].make
    trial, tape = fresh(make, 1)
    worst = climb(make, trial, tape, 30)
    assert worst.comparison.strain > trial.comparison.strain


def test_hostile_graphs_have_one_to_three_variables_ties_and_peaks():
    graphs = [hostile_graph(Tape(np.random.default_rng(n)), 2.0) for n in range(200)]
    assert {len(graph) for graph in graphs} == {1, 2, 3}
    tops = [mg.theory.Enumeration(graph).distribution.max() for graph in graphs]
    assert max(tops) > 0.99
    assert any(len(np.unique(np.abs(g.packed.pair_weight))) < len(g.packed.pair) for g in graphs)
