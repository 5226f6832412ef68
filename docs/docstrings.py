"""Conversion of docstrings for the site: Markdown, links to names, comments of fields."""

from __future__ import annotations

import importlib
import re
from typing import Any

import griffe

import minigibbs

NAME = re.compile(r"(?<!\[)`(mg\.(\w+)[^`\n]*)`(?!\])")
TYPED = re.compile(r"\s*\w+ : ")  # `array-like` would be read as a difference
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
FIELD = re.compile(r"^    [a-z]\w*: .*?  # (.*)$")


class Docstrings(griffe.Extension):
    """Escape Markdown characters in formulas, and use the comment of a field as its docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Escape the docstring of a module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = escaped(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Called for every function: a default that is a named constant is shown by its value."""
        for parameter in func.parameters:
            name = str(parameter.default)
            if CONSTANT.fullmatch(name):
                value = getattr(importlib.import_module(func.module.path), name, None)
                if isinstance(value, str | int | float | tuple):
                    parameter.default = repr(value)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Set the docstring of a field from its comment."""
        if attr.docstring is None and attr.lineno is not None:
            comment = FIELD.match(attr.lines_collection[attr.filepath][attr.lineno - 1])
            if comment:
                attr.docstring = griffe.Docstring(escaped(comment[1]), parent=attr)


def escaped(doc: str) -> str:
    r"""Return a docstring as Markdown: formulas are not emphasis or tags, examples are code.

    >>> escaped("a*b and `a*b`")
    'a\\*b and `a*b`'
    """
    out, example, section = [], False, False
    for line in [*doc.split("\n"), ""]:
        section = section or line.strip() == "Examples"  # its code needs no fences
        begins = line.lstrip().startswith(">>>") and not example
        ends = example and not line.strip()
        if (begins or ends) and not section:
            out.append("```pycon" if begins else "```")
        example = (example or begins) and not ends
        if TYPED.match(line):
            line = line.replace("array-like", "array_like")
        out.append(line if example else _escaped_line(line))
    return "\n".join(out[:-1])


def _escaped_line(text: str) -> str:
    parts = text.split("`")
    parts[::2] = [part.replace("*", r"\*").replace("<", "&lt;") for part in parts[::2]]
    return linked("`".join(parts))


def linked(text: str) -> str:
    """Turn public names in backticks into links to the reference.

    >>> linked("`mg.sample(graph)` and `mg.no_such_name`")
    '[`mg.sample(graph)`][minigibbs.sample] and `mg.no_such_name`'
    """

    def link(found: re.Match[str]) -> str:
        public = found[2] in minigibbs.__all__
        return f"[`{found[1]}`][minigibbs.{found[2]}]" if public else found[0]

    return NAME.sub(link, text)
