"""Bayesian networks in the Interchange Format (.bif), used by the Bayesian Network Repository.

`docs/formats.md` describes the supported syntax. A conditional table is a factor; names and labels
are kept.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.networks import MOST_ARITY, conditionals, row_error
from minigibbs.formats.pruning import TableFactor
from minigibbs.formats.tables import assemble, check_floor
from minigibbs.formats.text import read_text, write_text
from minigibbs.graph.domains import MAX_DOMAIN, all_values
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory

_TABLE_BYTES = 40  # bytes per entry of a table while its graph is built
_WORD = re.compile(
    r"""//[^\n]*             # a comment
      | /\*.*?(?:\*/|\Z)     # a comment, closed or not
      | "[^"\n]*"            # a quoted name
      | [{}()\[\]|,;]
      | [^\s{}()\[\]|,;"]+
      | "                    # a quote that is never closed""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[^\W\d][\w.-]*|-?\d[\w.]*")  # a name that needs no quotes


class _Word(NamedTuple):
    text: str
    place: int  # index of its first character in the file


class _Variable(NamedTuple):
    number: int
    labels: dict[str, int]


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
    network = _Network(_Words(path))
    sizes = np.array([len(v.labels) for v in network.variables.values()], dtype=np.int32)
    labels = {v.number: list(v.labels) for v in network.variables.values()}
    return assemble(path, sizes, network.factors, floor, list(network.variables), labels)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph that is a product of conditional probabilities, with pruned states."""
    write_text(path, list(_lines(graph, path)))


def _lines(graph: FactorGraph, path: str | os.PathLike[str]) -> Iterator[str]:
    names = [_written(graph.domains.name(v), path) for v in range(len(graph))]
    found, labels = conditionals(graph, path), list[list[str]]()
    for variable in range(len(graph)):
        labels.append([_written(str(x), path) for x in all_values(graph.domains, variable)])
    yield "network minigibbs {\n}\n"
    for name, row in zip(names, labels, strict=True):
        states = ", ".join(row)
        yield f"variable {name} {{\n  type discrete [ {len(row)} ] {{ {states} }};\n}}\n"
    for child, parents, table in found:
        given = ", ".join(names[parent] for parent in parents)
        yield f"probability ( {names[child]}{' | ' if given else ''}{given} ) {{\n"
        places = product(*(labels[parent] for parent in parents))
        rows = table.reshape(-1, table.shape[-1]).tolist()
        for place, values in zip(places, rows, strict=True):
            begin = f"({', '.join(place)})" if place else "table"
            yield f"  {begin} {', '.join(map(repr, values))};\n"
        yield "}\n"


def _written(name: str, path: str | os.PathLike[str]) -> str:
    """Return a name in the file's syntax, quoted if it is not one word."""
    if _PLAIN.fullmatch(name):
        return name
    if not name.isprintable() or '"' in name:
        raise FormatError(f"{path}: a name must be printable text without quotes, got {name!r}")
    return f'"{name}"'


class _Words:
    """The words of a file in order; errors name the line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self.next = path, 0
        data = read_text(path)
        try:
            self._text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FormatError(f"{path}, byte {error.start}: expected UTF-8 text") from None
        self._words: list[_Word] = []
        for found in _WORD.finditer(self._text):
            if not found[0].startswith(("//", "/*")):
                self._words.append(_Word(found[0], found.start()))
            elif found[0].startswith("/*") and not (len(found[0]) > 3 and found[0].endswith("*/")):
                raise self.error("a comment that is never closed", place=found.start())

    def __len__(self) -> int:
        return len(self._words)

    def peek(self) -> str:
        """Return the next word without advancing; empty at the end."""
        return self._words[self.next].text if self.next < len(self._words) else ""

    def take(self, what: str) -> str:
        """Return the next word; `what` describes it in errors."""
        if self.next == len(self._words):
            raise self.error(f"expected {what}, got the end of the file")
        self.next += 1
        return self._words[self.next - 1].text

    def name(self, what: str) -> str:
        """Return the next word as a name, without its quotes."""
        word = self.take(what)
        if word in "{}()[]|,;" or word == '"':
            raise self.error(f"expected {what}, got {word!r}", back=1)
        return word[1:-1] if word.startswith('"') else word

    def expect(self, *wanted: str) -> None:
        """Skip words that must come next."""
        for word in wanted:
            got = self.take(repr(word))
            if got != word:
                raise self.error(f"expected {word!r}, got {_shown(got)}", back=1)

    def skip_past(self, ending: str) -> None:
        """Skip all words up to and including a word."""
        while self.take(repr(ending)) != ending:
            pass

    def names_until(self, ending: str, what: str) -> list[str]:
        """Read names up to a word, with or without commas."""
        found = []
        while self.peek() != ending:
            if self.peek() == ",":
                self.next += 1
            else:
                found.append(self.name(what))
        self.next += 1
        return found

    def numbers(self, what: str) -> list[float]:
        """Read probabilities up to a semicolon."""
        found = []
        while (word := self.take(f"{what}, and ';'")) != ";":
            if word != ",":
                found.append(self._number(word, what))
        return found

    def _number(self, word: str, what: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf or "_" in word:
            raise self.error(
                f"expected {what}: finite numbers of at least 0, got {_shown(word)}", back=1
            )
        return value

    def error(self, message: str, back: int = 0, place: int | None = None) -> FormatError:
        """Return an error at the next word, or at a word before it."""
        if place is None:
            word = self.next - back
            place = self._words[word].place if word < len(self._words) else len(self._text)
        line = self._text.count("\n", 0, place) + 1
        return FormatError(f"{self._path}, line {line}: {message}")


class _Network:
    """The contents of a file: variables first, then the tables over them."""

    def __init__(self, words: _Words) -> None:
        self.variables: dict[str, _Variable] = {}
        self.factors: list[TableFactor] = []
        self._words, self._entries = words, 0
        tables = self._read_blocks()
        described: set[str] = set()
        for start in tables:
            words.next = start
            self._read_table(described)
        missing = [name for name in self.variables if name not in described]
        if missing or not self.variables:
            words.next = len(words)
            what = f"a probability of {missing[0]!r}" if missing else "variables"
            raise words.error(f"expected {what}, got the end of the file")

    def _read_blocks(self) -> list[int]:
        """Read the variables; return the positions of the tables."""
        words, tables = self._words, []
        while words.peek():
            keyword = words.take("a block")
            if keyword == "variable":
                self._read_variable()
            elif keyword == "probability":
                tables.append(words.next)
                words.skip_past("}")
            elif keyword == "network":
                words.skip_past("{")
                words.skip_past("}")
            else:
                raise words.error(
                    f"expected network, variable or probability, got {_shown(keyword)}", back=1
                )
        return tables

    def _read_variable(self) -> None:
        words = self._words
        name = words.name("the name of a variable")
        if name in self.variables:
            raise words.error(f"variable {name!r} is declared twice", back=1)
        labels: list[str] = []
        words.expect("{")
        while (keyword := words.take("'}'")) != "}":
            if keyword == "type":
                if labels:
                    raise words.error(f"variable {name!r} has two types", back=1)
                labels = self._read_labels(name)
            elif keyword == "property":
                words.skip_past(";")
            else:
                raise words.error(f"expected type or property, got {_shown(keyword)}", back=1)
        if not labels:
            raise words.error(f"variable {name!r} has no type", back=1)
        numbered = {label: number for number, label in enumerate(labels)}
        self.variables[name] = _Variable(len(self.variables), numbered)

    def _read_labels(self, name: str) -> list[str]:
        words = self._words
        words.expect("discrete", "[")
        size = words.take("the number of states")
        words.expect("]", "{")
        labels = words.names_until("}", "a state")
        if not (size.isascii() and size.isdigit() and len(size) < 11 and int(size) == len(labels)):
            raise words.error(
                f"variable {name!r}: {_shown(size)} states are announced, {len(labels)} listed",
                back=1,
            )
        if len(set(labels)) < len(labels) or not 0 < len(labels) <= MAX_DOMAIN:
            raise words.error(f"variable {name!r}: its states must differ, one at least", back=1)
        words.expect(";")
        return labels

    def _read_table(self, described: set[str]) -> None:
        """Read one `probability` block: the first variable given the others."""
        words = self._words
        child, *parents = scope = self._read_scope()
        if child in described:
            raise words.error(f"the probability of {child!r} is given twice", back=1)
        described.add(child)
        variables = [self.variables[name] for name in scope]
        shape = [len(variable.labels) for variable in variables]
        rows, default = self._read_rows(child, variables, shape)
        whole = rows if isinstance(rows, np.ndarray) else self._fill(child, rows, default, shape)
        labels = {name: list(self.variables[name].labels) for name in parents}
        wrong = row_error(whole, child, parents, labels)
        if wrong is not None:
            raise words.error(wrong, back=1)
        self.factors.append(TableFactor(tuple(v.number for v in variables), whole))

    def _read_scope(self) -> list[str]:
        words = self._words
        words.expect("(")
        scope = [words.name("a variable")]
        if words.peek() == "|":
            words.next += 1
        scope += words.names_until(")", "a variable")
        unknown = [name for name in scope if name not in self.variables]
        if unknown:
            raise words.error(f"unknown variable {_shown(unknown[0])}", back=1)
        if len(set(scope)) < len(scope) or len(scope) > MOST_ARITY:
            raise words.error(
                f"the variables of a table must differ, {MOST_ARITY} at most; got {len(scope)}",
                back=1,
            )
        words.expect("{")
        return scope

    def _read_rows(
        self, child: str, variables: list[_Variable], shape: list[int]
    ) -> tuple[NDArray[np.float64] | dict[tuple[int, ...], list[float]], list[float] | None]:
        """Read a whole table, or its rows by the parents' states, and the default row."""
        words, what = self._words, f"probabilities of {child!r}"
        rows: dict[tuple[int, ...], list[float]] = {}
        whole: NDArray[np.float64] | None = None
        default = None
        while (keyword := words.take("'}'")) != "}":
            if keyword == "property":
                words.skip_past(";")
            elif keyword == "table":
                values = self._counted(words.numbers(what), math.prod(shape), what)
                whole = np.array(values).reshape(shape)
            elif keyword == "default":
                default = self._counted(words.numbers(what), shape[0], what)
            elif keyword == "(":
                place = self._place(variables[1:])
                if place in rows:
                    raise words.error(f"the {what} are given twice for these states", back=1)
                rows[place] = self._counted(words.numbers(what), shape[0], what)
            else:
                raise words.error(
                    f"expected a row, table, default or property, got {_shown(keyword)}", back=1
                )
        if whole is not None and (rows or default):
            raise words.error(f"expected one table of {child!r} or its rows, got both", back=1)
        return (rows if whole is None else whole), default

    def _place(self, parents: list[_Variable]) -> tuple[int, ...]:
        words = self._words
        labels = words.names_until(")", "a state")
        if len(labels) != len(parents):
            raise words.error(f"expected {len(parents)} states, got {len(labels)}", back=1)
        for label, parent in zip(labels, parents, strict=True):
            if label not in parent.labels:
                raise words.error(
                    f"expected one of {', '.join(list(parent.labels)[:8])}, got {_shown(label)}",
                    back=1,
                )
        return tuple(p.labels[label] for label, p in zip(labels, parents, strict=True))

    def _counted(self, values: list[float], count: int, what: str) -> list[float]:
        if len(values) != count:
            raise self._words.error(f"expected {count} {what}, got {len(values)}", back=1)
        return values

    def _fill(
        self,
        child: str,
        rows: dict[tuple[int, ...], list[float]],
        default: list[float] | None,
        shape: list[int],
    ) -> NDArray[np.float64]:
        """Build the table from some rows; a default may make it far larger than the file."""
        if default is None and len(rows) < math.prod(shape[1:]):
            missing = next(place for place in product(*map(range, shape[1:])) if place not in rows)
            raise self._words.error(
                f"the probabilities of {child!r} are missing for states {list(missing)} of its "
                "parents, and there is no default",
                back=1,
            )
        self._entries += math.prod(shape)
        memory.require(
            self._entries * _TABLE_BYTES, f"the tables up to that of {child!r}", "use smaller ones"
        )
        table = np.empty([*shape[1:], shape[0]])
        table[...] = 0.0 if default is None else default
        for place, row in rows.items():
            table[place] = row
        return np.moveaxis(table, -1, 0)


def _shown(word: str) -> str:
    return repr(word[:20] + ("..." if len(word) > 20 else ""))
