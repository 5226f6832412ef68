"""Docstrings of public names are complete: parameters with defaults, results, errors, examples."""

import contextlib
import dataclasses
import doctest
import functools
import importlib
import inspect
import itertools
import operator
import re

import pytest

import minigibbs as mg
from tests.docs.test_docs import build

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
# Aliases of types, and limits: a comment documents them, since they cannot have a docstring.
VALUES = {"Distribution", "MOST_MATRIX", "MOST_STATES", "OBSERVABLES", "GENERATORS", "__version__"}
# Errors and base classes are not constructed by users.
NOT_CONSTRUCTED = {"Estimator", "Observable", "Observations", "Sampler"}


def public():
    """Return every public name with a docstring: {name: object}."""
    found = {}
    for name in mg.__all__:
        found[name] = getattr(mg, name)
        found |= {one: operator.attrgetter(one)(mg) for one in build.inside_module(name)}
    for path in itertools.chain(*build.INSIDE.values()):
        home, _, name = path.rpartition(".")
        with contextlib.suppress(ImportError):  # the library is not installed
            found[name] = getattr(importlib.import_module(f"minigibbs.{home}"), name)
    return {
        name: thing
        for name, thing in found.items()
        if name.split(".")[-1] not in VALUES and not inspect.ismodule(thing)
    }


PUBLIC = public()
FUNCTIONS = {name: one for name, one in PUBLIC.items() if inspect.isfunction(one)}
CLASSES = {name: one for name, one in PUBLIC.items() if inspect.isclass(one)}
MEMBERS = {
    f"{name}.{member}": inspect.getattr_static(one, member)
    for name, one in CLASSES.items()
    for member in build.MEMBERS.get(name.split(".")[-1], ())
}


def sections(doc):
    """Return the sections of a docstring by title; "" is the summary and the text after it."""
    parts = SECTION.split(inspect.cleandoc(doc or ""))
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(text):
    """Return the entries of a section: the text after the name, by name."""
    heads = [line for line in text.split("\n") if line and not line.startswith(" ")]
    pairs = [head.partition(" : ")[::2] for head in heads]
    assert len(pairs) == len(dict(pairs)), f"an entry stands twice in {heads}"
    return dict(pairs)


def shown(default):
    """Return a default as docstrings state it."""
    return f'"{default}"' if isinstance(default, str) else repr(default).replace("'", '"')


def check_parameters(function, doc, skip=()):
    """Check that each parameter has its own entry, in order, with its type and its default."""
    parameters = [
        one for one in inspect.signature(function).parameters.values() if one.name not in skip
    ]
    if not parameters:
        return
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = entries(sections(doc).get("Parameters", ""))
    assert list(found) == [stars.get(one.kind, "") + one.name for one in parameters]
    for one, said in zip(parameters, found.values(), strict=True):
        assert said, f"{one.name} has no type"
        stated = re.search(r"(optional|default (.*))$", said)
        if one.default is one.empty:
            assert stated is None, f"{one.name} has no default, but its entry states one"
        elif one.default is None:
            assert (stated or [""])[0] in ("optional", "default None"), f"{one.name}: {said}"
        elif isinstance(one.default, str | int | float | tuple):
            assert (stated or [""] * 3)[2] == shown(one.default), f"{one.name}: {said}"
        else:
            assert stated, f"{one.name}: {said}"


def check_results(function, doc):
    """Check that the returned value is described, unless it is None."""
    returned = function.__annotations__.get("return")
    if returned in (None, "None"):
        assert "Returns" not in sections(doc)
    else:
        assert sections(doc).get("Returns", "").strip(), "no Returns"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented(name):
    function, doc = FUNCTIONS[name], FUNCTIONS[name].__doc__
    check_parameters(function, doc)
    check_results(function, doc)
    if not name.startswith("theory."):  # these raise the errors of `Enumeration`
        assert sections(doc).get("Raises", "").strip(), "no Raises"
    assert doctest.DocTestParser().get_examples(sections(doc).get("Examples", "")), "no example"


def fields_of(one):
    """Return the fields of a dataclass or a named tuple."""
    if dataclasses.is_dataclass(one):
        return [field.name for field in dataclasses.fields(one)]
    return list(getattr(one, "_fields", ()))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_documented(name):
    one, doc = CLASSES[name], CLASSES[name].__doc__
    said = sections(doc)
    assert doctest.DocTestParser().get_examples(said.get("Examples", "")), "no example"
    if issubclass(one, Exception) or name.split(".")[-1] in NOT_CONSTRUCTED:
        return
    made_by_users = "__init__" in vars(one) or dataclasses.is_dataclass(one)
    if "Parameters" in said or (name not in build.RESULTS and made_by_users):
        check_parameters(one, doc)
    if name in build.RESULTS:
        found = entries(said.get("Attributes", ""))
        assert set(fields_of(one)) - set(build.RESULTS[name]) <= set(found), "no entry"
        assert all(found.values()), "an attribute has no type"


@pytest.mark.parametrize("name", MEMBERS)
def test_members_are_documented(name):
    member = MEMBERS[name]
    if isinstance(member, property | functools.cached_property):
        function = member.fget if isinstance(member, property) else member.func
        assert sections(function.__doc__)[""].strip()
        return
    if not callable(member) and hasattr(member, "fn"):  # decorated by `available_if`
        member = member.fn
    function = getattr(member, "__func__", member)
    check_parameters(function, function.__doc__, skip=("self", "cls"))
    check_results(function, function.__doc__)


@pytest.mark.parametrize("name", sorted(set(build.RESULTS) & set(CLASSES)))
def test_members_of_results_are_shown_or_hooks(name):
    """Every public member of a result is on the site, or is listed as a hook for contributors."""
    one = CLASSES[name]
    known = {*build.MEMBERS.get(name.split(".")[-1], ()), *build.RESULTS[name], *fields_of(one)}
    for base in one.__mro__:
        if base.__module__.startswith("minigibbs"):
            assert {member for member in vars(base) if not member.startswith("_")} <= known


def test_a_docstring_with_mistakes_is_refused():
    def scaled(x: float, by: float = 2.0, *, start: int = 0) -> float:
        """Scale a number.

        Parameters
        ----------
        x : float
            The number.
        by : float, default 3.0
            The factor.
        """
        return start + by * x

    with pytest.raises(AssertionError):
        check_parameters(scaled, scaled.__doc__)  # start is missing
    with pytest.raises(AssertionError):
        check_parameters(scaled, scaled.__doc__, skip=("start",))  # the default is 2.0
    right = scaled.__doc__.replace("3.0", "2.0")
    check_parameters(scaled, right, skip=("start",))
    with pytest.raises(AssertionError):
        check_results(scaled, right)
