"""Text that others wrote, made safe to print: names and labels come from files."""

from __future__ import annotations

import re

# Control characters, line separators, lone surrogates, and what turns the direction of a line.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FORMULA = ("=", "+", "-", "@")  # what makes a spreadsheet run a cell


def printable(text: object) -> str:
    r"""Text on one line that a terminal shows and does not obey: the rest is escaped visibly.

    >>> print(printable("red \x1b[31m, two\nlines, half a pair \ud800"))
    red \x1b[31m, two\nlines, half a pair \ud800
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def without_colors(text: str) -> str:
    r"""Text without a terminal's color codes.

    >>> without_colors("\x1b[1mTyping error\x1b[0m")
    'Typing error'
    """
    return _COLOR.sub("", text)


def cell(value: object) -> str:
    """A name or label for a CSV file: printable, and no formula to a spreadsheet.

    Text that would be run gets a single quote in front; what spells a number stays a number.

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
