"""HTML whose text is escaped unless it was built here."""

from __future__ import annotations

import html
from typing import Any

from minigibbs.system.text import printable

_LONGEST_NAME = 60  # characters shown; one endless name must not make an endless page
_NO_END = frozenset({"meta", "input", "img", "br"})


class Html(str):
    """Text that is HTML already: only `element` and `join` make it from what users named."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: Any) -> Html:
    """An element; children and attributes that are not `Html` are escaped.

    Attributes that are None are left out, `True` stands alone; `_` is written as `-`, and a last
    one lets `class_` be said in Python.

    >>> element("p", "1 < 2", class_="small")
    '<p class="small">1 &lt; 2</p>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _NO_END:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    """Children one after the other."""
    return Html("".join(escape(child) for child in children))


def escape(value: object) -> str:
    """Text as HTML; `Html` as it is."""
    return value if isinstance(value, Html) else html.escape(str(value))


def cut(text: object) -> str:
    """What a user named, printable and at a fair length."""
    whole = printable(text)
    return whole if len(whole) <= _LONGEST_NAME else whole[: _LONGEST_NAME - 1] + "…"


def name(text: object) -> Html:
    """What a user named, kept from changing the direction of its line."""
    return element("bdi", cut(text))


def table(head: list[str], rows: list[list[object]], **attributes: Any) -> Html:
    """A table whose first column names its row."""
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
