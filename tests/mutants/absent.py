"""Replacements of missing packages that the tests import.

Mutants name single tests, and most of these need none of the packages. Tests that need one are
skipped, or fail without any mistake, and their mutants count as not tried.
"""

import importlib.util
import sys
import types

import pytest

_PARTS = {
    "hypothesis": ("strategies", "extra", "extra.numpy"),
    "typer": ("testing",),
}


_DECORATORS = ("given", "settings", "example", "composite")


class _Anything:
    """An object with any attribute; tests that it decorates are skipped."""

    def __init__(self, decorates=False):
        self._decorates = decorates

    def __call__(self, *arguments, **options):
        one = len(arguments) == 1 and isinstance(arguments[0], types.FunctionType) and not options
        if self._decorates and one:

            @pytest.mark.skip(reason="needs a package that is not there")
            def skipped(*unused, **unused_too):
                return _Anything()

            return skipped
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name in _DECORATORS)

    def __or__(self, other):
        return self


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name in _DECORATORS)


for _name, _parts in _PARTS.items():
    if importlib.util.find_spec(_name) is None:
        for _whole in (_name, *(f"{_name}.{_part}" for _part in _parts)):
            sys.modules[_whole] = _Module(_whole)
            sys.modules[_whole].__path__ = []
