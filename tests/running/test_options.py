"""`sample`, `sample_until` and the command line have the same options, defined in one place."""

import inspect
from dataclasses import fields

import pytest

import minigibbs as mg
from minigibbs.cli.commands.sample import sample as command
from minigibbs.running.request import Options

FIELDS = {field.name: field.default for field in fields(Options)}
OWN_WORDS = {  # options that the command line names differently, or does not have
    "progress": "quiet",  # --quiet turns it off
    "executor": "dask",  # --dask gives an address
    "start": None,  # a state or a run of this process
}
OF_RECORD = {
    "thin": "thin",
    "variables": "variables",
    "chains": "record_chains",
    "temperatures": "temperatures",
}


def parameters(function):
    return inspect.signature(function).parameters


@pytest.mark.parametrize("function", [mg.sample, mg.sample_until], ids=lambda f: f.__name__)
def test_signatures_name_every_option_with_its_default(function):
    found = parameters(function)
    assert {name: found[name].default for name in FIELDS} == FIELDS
    own = {"graph", "updates", "sweeps", "reference", "rhat", "ess", "standard_error", "max_time"}
    assert set(found) - set(FIELDS) <= own


def test_the_two_signatures_have_them_in_one_order():
    orders = [
        [name for name in parameters(function) if name in FIELDS]
        for function in (mg.sample, mg.sample_until)
    ]
    assert orders[0] == orders[1] == list(FIELDS)


def test_every_option_is_passed_on(monkeypatch):
    """No option is lost between the signature and the run."""
    seen = []

    def note(options, *_, **__):
        seen.append(options)
        raise mg.SampleError("seen")

    monkeypatch.setattr(Options, "plan", note)
    given = {name: object() for name in FIELDS}
    graph = mg.FactorGraph([2], [])
    for function in (mg.sample, mg.sample_until):
        with pytest.raises(mg.SampleError, match="seen"):
            inspect.unwrap(function)(graph, **given)
        assert vars(seen.pop()) == given


@pytest.mark.parametrize("name", FIELDS)
def test_the_command_line_has_every_option(name):
    found = parameters(command)
    said = OWN_WORDS.get(name, name)
    if said is None:
        return
    assert said in found
    if said == name:
        default = found[name].default
        expected = ",".join(FIELDS[name]) if name == "record" else FIELDS[name]
        assert default == expected


def test_the_command_line_has_every_part_of_a_record():
    found = parameters(command)
    parts = [name for name in parameters(mg.Record) if name != "what"]
    assert set(parts) == set(OF_RECORD)
    assert all(found[said].default is None for said in OF_RECORD.values())
