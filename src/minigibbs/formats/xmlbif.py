"""Bayesian networks in XMLBIF 0.3 (.xmlbif, .bifxml), the format of Weka, JavaBayes and pyAgrum.

`docs/formats.md` describes the supported syntax. A conditional table is a factor; names and labels
are kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from html import escape
from typing import Any
from xml.parsers import expat

import numpy as np

from minigibbs.errors import FormatError
from minigibbs.formats.networks import MOST_ARITY, conditionals, row_error
from minigibbs.formats.pruning import TableFactor
from minigibbs.formats.tables import assemble, check_floor
from minigibbs.formats.text import read_text, write_text
from minigibbs.graph.domains import all_values
from minigibbs.graph.graph import FactorGraph

_PARTS = ("NAME", "OUTCOME", "VALUE", "FOR", "GIVEN", "TABLE")


def read(path: str | os.PathLike[str], floor: float | None = None) -> FactorGraph:
    """Read a Bayesian network; .gz and .xz are decompressed.

    States that a table excludes for all states of the other variables are pruned.

    Parameters
    ----------
    path
        The file.
    floor
        Smaller probabilities, zeros included, are raised to it after the pruning, with a warning:
        this changes the model. By default zeros are kept.
    """
    check_floor(floor)
    blocks = _Blocks(path).found
    labels: dict[str, list[str]] = {}
    for block in blocks:
        if block.kind == "VARIABLE":
            name = block.one("NAME")
            if name in labels:
                raise block.error(f"variable {name!r} is declared twice")
            labels[name] = block.outcomes(name)
    number = {name: k for k, name in enumerate(labels)}
    factors, described = [], set()
    for block in blocks:
        if block.kind == "DEFINITION":
            child = block.one("FOR")
            factors.append(block.table(child, labels, number))
            if child in described:
                raise block.error(f"the probability of {child!r} is given twice")
            described.add(child)
    missing = [name for name in labels if name not in described]
    if missing or not labels:
        what = f"a definition of {missing[0]!r}" if missing else "variables"
        raise FormatError(f"{path}: expected {what}, got the end of the file")
    sizes = np.array([len(row) for row in labels.values()], dtype=np.int32)
    return assemble(path, sizes, factors, floor, list(labels), dict(enumerate(labels.values())))


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph that is a product of conditional probabilities, with pruned states."""
    write_text(path, list(_lines(graph, path)))


class _Block:
    """A variable or a definition: the texts of its parts."""

    def __init__(self, path: str | os.PathLike[str], kind: str, line: int) -> None:
        self._path, self.kind, self._line = path, kind, line
        self.parts: dict[str, list[str]] = {}

    def one(self, part: str) -> str:
        """Return the text of a part that must occur exactly once."""
        given = self.parts.get(part, [])
        if len(given) != 1 or not given[0]:
            raise self.error(f"expected one {part} in a {self.kind}, got {len(given)}")
        return given[0]

    def outcomes(self, name: str) -> list[str]:
        """Return the names of a variable's states."""
        found = self.parts.get("OUTCOME", []) + self.parts.get("VALUE", [])
        if not found or len(set(found)) < len(found) or not all(found):
            raise self.error(f"variable {name!r}: its states must differ, one at least")
        return found

    def table(
        self, child: str, labels: dict[str, list[str]], number: dict[str, int]
    ) -> TableFactor:
        """Return the probabilities of a variable given others; its axis is the file's fastest."""
        parents = self.parts.get("GIVEN", [])
        scope = [child, *parents]
        unknown = [name for name in scope if name not in labels]
        if unknown:
            raise self.error(f"unknown variable {unknown[0][:20]!r}")
        if len(set(scope)) < len(scope) or len(scope) > MOST_ARITY:
            raise self.error(
                f"the variables of a table must differ, {MOST_ARITY} at most; got {len(scope)}"
            )
        words = self.one("TABLE").split()
        shape = [len(labels[name]) for name in [*parents, child]]
        if len(words) != math.prod(shape):
            raise self.error(
                f"expected {math.prod(shape)} probabilities of {child!r}, got {len(words)}"
            )
        values = np.array([self._number(word) for word in words]).reshape(shape)
        table = np.moveaxis(values, -1, 0)
        wrong = row_error(table, child, parents, labels)
        if wrong is not None:
            raise self.error(wrong)
        return TableFactor(tuple(number[name] for name in scope), table)

    def _number(self, word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf or "_" in word:
            raise self.error(
                f"expected probabilities: finite numbers of at least 0, got {word[:20]!r}"
            )
        return value

    def error(self, message: str) -> FormatError:
        """Return an error at the line on which the block begins."""
        return FormatError(f"{self._path}, line {self._line}: {message}")


class _Blocks:
    """The variables and definitions of a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self.found = path, list[_Block]()
        self._open: list[str] = []
        self._text: list[str] | None = None
        parser = self._parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        parser.EntityDeclHandler = self._entity
        parser.buffer_text = True
        try:
            parser.Parse(read_text(path), True)
        except expat.ExpatError as error:
            raise FormatError(
                f"{path}, line {error.lineno}: {expat.errors.messages[error.code]}"
            ) from None
        except (ValueError, LookupError) as error:  # an unknown encoding
            raise FormatError(f"{path}: {error}") from None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "BIF":
            raise self._error(f"expected BIF, got {name[:20]}")
        if name in ("VARIABLE", "DEFINITION"):
            kind = attributes.get("TYPE", "nature")
            if kind != "nature":
                raise self._error(f"expected a variable of type nature, got {kind[:20]!r}")
            if self._open != ["BIF", "NETWORK"]:
                raise self._error(f"expected a {name} inside a NETWORK")
            self.found.append(_Block(self._path, name, self._parser.CurrentLineNumber))
        self._open.append(name)
        inside = len(self._open) == 4 and self._open[2] in ("VARIABLE", "DEFINITION")
        if inside and name in _PARTS:
            self._text = []

    def _end(self, name: str) -> None:
        if self._text is not None and len(self._open) == 4:
            text = "".join(self._text).strip()
            self.found[-1].parts.setdefault(name, []).append(text)
            self._text = None
        self._open.pop()

    def _data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _entity(self, name: str, *given: Any) -> None:
        raise self._error(f"entity {name[:20]!r}: files that declare entities are not read")

    def _error(self, message: str) -> FormatError:
        return FormatError(f"{self._path}, line {self._parser.CurrentLineNumber}: {message}")


def _lines(graph: FactorGraph, path: str | os.PathLike[str]) -> Iterator[str]:
    names = [_written(graph.domains.name(v), path) for v in range(len(graph))]
    found = conditionals(graph, path)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<BIF VERSION="0.3">\n<NETWORK>\n'
    yield "<NAME>minigibbs</NAME>\n"
    for variable, name in enumerate(names):
        yield f'<VARIABLE TYPE="nature">\n  <NAME>{name}</NAME>\n'
        for label in all_values(graph.domains, variable):
            yield f"  <OUTCOME>{_written(str(label), path)}</OUTCOME>\n"
        yield "</VARIABLE>\n"
    for child, parents, table in found:
        yield f"<DEFINITION>\n  <FOR>{names[child]}</FOR>\n"
        yield from (f"  <GIVEN>{names[parent]}</GIVEN>\n" for parent in parents)
        yield f"  <TABLE>{' '.join(map(repr, table.ravel().tolist()))}</TABLE>\n</DEFINITION>\n"
    yield "</NETWORK>\n</BIF>\n"


def _written(name: str, path: str | os.PathLike[str]) -> str:
    if not name or name != name.strip() or not name.isprintable():
        raise FormatError(
            f"{path}: a name must be printable text without spaces at its ends, got {name!r}"
        )
    return escape(name, quote=False)
