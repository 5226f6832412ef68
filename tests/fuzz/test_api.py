"""A part of the campaign over the public API; the whole is `python -m tests.fuzz api`."""

import os

import pytest

from tests.fuzz import api

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


def test_calls_end_in_a_result_or_in_an_error_of_ours():
    results = api.run([api.call(0, number) for number in range(100)])
    assert not results.harm, results.table()
    assert results.counts[api.REFUSED] > 40
    assert results.counts[api.OK] > 5


def test_every_public_callable_is_a_target():
    names = set(api.targets())
    assert {
        "mg.sample",
        "mg.Ising",
        "chain.condition",
        "run.interval",
        "mg.theory.lemma_1",
    } <= names
    assert len(names) > 200


def test_harm_is_found_and_counted():
    results = api.run(["1 / 0", "os._exit(3)", "sum(iter(int, 1))", "mg.Gibbs()"], 2.0)
    assert dict(results.counts) == {"foreign": 1, "crash": 1, "hang": 1, api.OK: 1}
    assert any("ZeroDivisionError" in what for what in results.found)
    assert "    1 / 0" in results.table()
