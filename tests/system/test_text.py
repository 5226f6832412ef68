"""Untrusted text is shown on one line, can be encoded, and is never executed."""

import unicodedata

import pytest

from minigibbs.system.text import cell, printable


def test_no_control_character_gets_through():
    for code in range(0x110000):
        character = chr(code)
        shown = printable(character)
        harmful = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        turns = unicodedata.bidirectional(character) in (
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        )
        assert (shown != character) == (harmful or turns), hex(code)
        if shown != character:
            assert shown.isascii()
            assert shown.isprintable()
            assert shown.encode().decode("unicode_escape") == character


@pytest.mark.parametrize(
    "text", ["", "x12", "Größe", "温度", "a b", "e\u0301", "👩\u200d🔬", r"C:\n"]
)
def test_plain_text_stays_as_it_is(text):
    assert printable(text) == cell(text) == text


@pytest.mark.parametrize("text", ["=1", "+a", "-a", "@a", "=", "-", "--1", "+1-2", "-1+2"])
def test_formulas_are_quoted(text):
    assert cell(text) == "'" + text


@pytest.mark.parametrize("value", [-1, -1.5, "-1", "+2", "-1e-9", "-inf", 0, True, (1, "=a")])
def test_numbers_are_not(value):
    assert cell(value) == str(value)


@pytest.mark.parametrize("text", ["\t=1", "\r=1", "\n=1", "\x00=1"])
def test_nothing_hides_before_a_formula(text):
    assert cell(text).startswith("\\")
