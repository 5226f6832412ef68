"""Escaping of untrusted text, such as names and labels from files, for printing."""

from __future__ import annotations

import re

# Control characters, line separators, lone surrogates, and marks of text direction.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FORMULA = ("=", "+", "-", "@")  # first characters that make a spreadsheet evaluate a cell


def printable(text: object) -> str:
    r"""Escape text so that it is one line without effect on a terminal.

    >>> print(printable("red \x1b[31m, two\nlines, half a pair \ud800"))
    red \x1b[31m, two\nlines, half a pair \ud800
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def without_colors(text: str) -> str:
    r"""Remove a terminal's color codes from text.

    >>> without_colors("\x1b[1mTyping error\x1b[0m")
    'Typing error'
    """
    return _COLOR.sub("", text)


def cell(value: object) -> str:
    """Format a name or label for a CSV file: printable, and not a spreadsheet formula.

    Text that would be evaluated is prefixed by a single quote; text that is a number is not.

    >>> cell("=1+2"), cell("-1.5"), cell(-2)
    ("'=1+2", '-1.5', '-2')
    """
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
