"""HTML with all text escaped except HTML that was built here."""

from __future__ import annotations

import html
from typing import Any

from minigibbs.system.text import printable

_LONGEST_NAME = 60  # characters shown, because very long names must not fill the page
_NO_END = frozenset({"meta", "input", "img", "br"})


class Html(str):
    """Text that is already HTML; only `element` and `join` create it from user text."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: Any) -> Html:
    """Return an element; children and attributes that are not `Html` are escaped.

    Attributes that are None are omitted, and `True` writes only the name. `_` is written as `-`. A
    trailing `_` is removed, so that `class_` is valid in Python.

    >>> element("p", "1 < 2", class_="small")
    '<p class="small">1 &lt; 2</p>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _NO_END:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    """Concatenate children."""
    return Html("".join(escape(child) for child in children))


def escape(value: object) -> str:
    """Escape text; return `Html` unchanged."""
    return value if isinstance(value, Html) else html.escape(str(value))


def cut(text: object) -> str:
    """Return user text, printable and of limited length."""
    whole = printable(text)
    return whole if len(whole) <= _LONGEST_NAME else whole[: _LONGEST_NAME - 1] + "…"


def name(text: object) -> Html:
    """What a user named, kept from changing the direction of its line."""
    return element("bdi", cut(text))


def table(head: list[str], rows: list[list[object]], **attributes: Any) -> Html:
    """Return a table whose first column has the row headers."""
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell) for cell in row[1:]),
        )
        for row in rows
    ]
    return element("table", element("thead", top), element("tbody", *body), **attributes)


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
