"""Functions that compiled code calls have no machine code of their own."""

import numpy as np
import pytest

from minigibbs.kernels import jit
from minigibbs.kernels.linking import _LinkedLibrary


@jit.kernel
def _halved(x):
    if x < 0.0:
        raise ValueError("negative")
    return 0.5 * x


@jit.literal
def _total(array):
    total = 0.0
    for x in array:
        total += _halved(x) + _halved(2.0 * x)
    return total


def entry():
    def total(array):
        return _total(array)

    return jit.entry(total)


def library(function):
    (compiled,) = function.overloads.values()
    return compiled.library


def test_functions_that_compiled_code_calls_are_not_loaded():
    assert entry()(np.arange(4.0)) == 9.0
    for function in (_halved, _total):
        own = library(function)
        assert isinstance(own, _LinkedLibrary)
        names = [one.name for one in own.get_defined_functions()]
        assert names
        engine = own._codegen._engine
        assert not any(engine.is_symbol_defined(name) for name in names)


def test_an_entry_contains_all_that_it_calls():
    total = entry()
    total(np.arange(4.0))
    names = [one.name for one in library(total)._final_module.functions if not one.is_declaration]
    assert not any("halved" in name for name in names)


def test_errors_of_inlined_functions_reach_the_caller():
    with pytest.raises(ValueError, match="negative"):
        entry()(np.array([1.0, -1.0]))
