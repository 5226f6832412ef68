"""A part of the campaign `python -m tests.fuzz environments`."""

import pytest

from tests.fuzz.environments import (
    ENVIRONMENTS,
    REFUSED,
    RIGHT,
    Environment,
    start,
    try_environment,
)

SLICE = ["-OO", "no working directory", "cache not writable", "stdout closed", "no HOME"]


@pytest.fixture(scope="module")
def expected():
    answer, said = start(Environment(), None)
    assert answer, said
    return answer


@pytest.mark.parametrize("name", SLICE)
def test_the_answer_is_the_same_in_every_environment(name, expected):
    assert try_environment(name, expected, None) == RIGHT


def test_a_refusal_is_clear(expected):
    assert try_environment("NUMBA_DISABLE_JIT", expected, None) == REFUSED


def test_there_are_many_environments():
    assert len(ENVIRONMENTS) >= 40
