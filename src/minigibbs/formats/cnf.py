"""Boolean formulas in conjunctive normal form (.cnf), with or without weights of literals.

`docs/formats.md` describes the supported syntax. Value 1 is true, and variable v has index v - 1.
"""

from __future__ import annotations

import os
import re

import numpy as np

from minigibbs.errors import FormatError
from minigibbs.formats.clauses import (
    clause_groups,
    read_clauses,
    read_count,
    read_hard,
    two_valued,
)
from minigibbs.formats.text import Numbers, read_text, without_comments
from minigibbs.graph.factors import Factors, Unary
from minigibbs.graph.graph import FactorGraph

_END = re.compile(rb"^\s*%\s*$", re.MULTILINE)  # SATLIB's files end with it and a 0
_SHOW = b"show"


def read(path: str | os.PathLike[str], hard: float | None = None) -> FactorGraph:
    """Read a formula: the uniform distribution over its solutions; .gz and .xz are decompressed.

    Weights of literals (`c p weight 1 0.3 0`), in the format of the Model Counting Competition,
    become unary factors. Z is then the weighted count of the solutions.

    Parameters
    ----------
    path
        The file.
    hard
        The weight of a clause: a violated one makes a state e^hard times less probable. By default
        a violated clause is impossible.
    """
    cost = read_hard(hard)
    text = read_text(path)
    found = _END.search(text)
    text, comments = without_comments(text if found is None else text[: found.start()])
    numbers = Numbers(path, ("p cnf",), text)
    variables = read_count(numbers)
    stated = numbers.integer("the number of clauses", 0, 2**53)
    clauses = read_clauses(numbers, variables, weighted=False)
    if len(clauses.weight) != stated:
        raise numbers.error(f"expected {stated:,} clauses, got {len(clauses.weight):,}")
    clauses = clauses._replace(weight=np.full(stated, cost))
    groups = clause_groups(path, clauses, beta=1.0)
    graph = two_valued(variables, [*groups, *_weights(path, comments, variables)])
    if any(line.split()[1:3] == [b"p", _SHOW] for line in comments):
        graph.domains.notes = ("projection (c p show) ignored: Z counts all variables",)
    return graph


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Raise an error: a factor graph is not a formula."""
    raise FormatError(
        f"{path}: a .cnf file holds a formula, and a factor graph need not be one; write a .uai or "
        ".mg file"
    )


def _weights(path: str | os.PathLike[str], comments: list[bytes], variables: int) -> list[Factors]:
    """Read the weights of literals as one unary group."""
    found: dict[int, float] = {}
    for line in comments:
        words = line.split()
        if words[1:3] != [b"p", b"weight"]:
            continue
        rule = "expected 'c p weight LITERAL WEIGHT 0'"
        try:
            literal, weight = int(words[3]), float(words[4])
        except (ValueError, IndexError):
            literal, weight = 0, -1.0
        usable = 0 < abs(literal) <= variables and 0 <= weight < np.inf
        if not usable or words[5:] not in ([b"0"], []):
            shown = line[:40].decode("ascii", "backslashreplace")
            raise FormatError(f"{path}: {rule} with a weight of at least 0, got {shown!r}")
        if literal in found:
            raise FormatError(f"{path}: the weight of literal {literal} is given twice")
        found[literal] = weight
    owners = sorted({abs(literal) for literal in found})
    for owner in owners:
        for literal in (owner, -owner):
            if literal not in found:
                raise FormatError(
                    f"{path}: expected the weights of both {owner} and -{owner}, got none of "
                    f"{literal}"
                )
    if not owners:
        return []
    rows = np.array([[found[-owner], found[owner]] for owner in owners])
    with np.errstate(divide="ignore"):
        return [Unary(np.array(owners) - 1, np.log(rows))]
