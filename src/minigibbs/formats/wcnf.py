"""Weighted clauses (.wcnf) for MaxSAT solvers, in the old dialect and that of 2022.

`docs/formats.md` describes the supported syntax. Value 1 is true, and variable v has index v - 1.
"""

from __future__ import annotations

import os
import re

import numpy as np

from minigibbs.errors import FormatError
from minigibbs.formats.clauses import (
    MOST_VARIABLES,
    Clauses,
    clause_groups,
    read_beta,
    read_clauses,
    read_count,
    read_hard,
    require_room,
    two_valued,
)
from minigibbs.formats.text import Numbers, read_text, without_comments
from minigibbs.graph.factors.base import LARGEST
from minigibbs.graph.graph import FactorGraph

_OLD = re.compile(rb"\s*p[ \t]+wcnf\b([^\n]*)")
_HARD = re.compile(rb"^([ \t]*)h(?=\s)", re.MULTILINE)


def read(path: str | os.PathLike[str], beta: float = 1.0, hard: float | None = None) -> FactorGraph:
    """Read weighted clauses as exp(-beta * cost), where cost is the weight of violated clauses.

    .gz and .xz are decompressed.

    Parameters
    ----------
    path
        The file.
    beta
        The inverse temperature. `mg.maximize` finds states of small cost for any value.
    hard
        The weight of a hard clause, instead of the file's. By default a violated hard clause is
        impossible.
    """
    cost = read_hard(hard)
    beta = read_beta(beta)
    text, _ = without_comments(read_text(path))
    header = _OLD.match(text)
    clauses, variables = _new(path, text) if header is None else _old(path, text, header[1])
    weight = np.where(np.isinf(clauses.weight), cost, clauses.weight)
    groups = clause_groups(path, clauses._replace(weight=weight), beta)
    return two_valued(variables, groups)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Raise an error: a factor graph is not a list of clauses."""
    raise FormatError(
        f"{path}: a .wcnf file holds clauses, and a factor graph need not be made of them; write a "
        ".uai or .mg file"
    )


def _old(path: str | os.PathLike[str], text: bytes, header: bytes) -> tuple[Clauses, int]:
    """Read `p wcnf VARIABLES CLAUSES TOP`: clauses of weight TOP or more are hard."""
    numbers = Numbers(path, ("p wcnf",), text)
    variables = read_count(numbers)
    stated = numbers.integer("the number of clauses", 0, 2**53)
    top = (
        float(numbers.take(1, "the weight of hard clauses")[0])
        if len(header.split()) > 2
        else np.inf
    )
    clauses = read_clauses(numbers, variables, weighted=True)
    if len(clauses.weight) != stated:
        raise numbers.error(f"expected {stated:,} clauses, got {len(clauses.weight):,}")
    _check_weights(path, clauses)
    weight = np.where(clauses.weight >= top, np.inf, clauses.weight)
    return clauses._replace(weight=weight), variables


def _new(path: str | os.PathLike[str], text: bytes) -> tuple[Clauses, int]:
    """Read one line per clause: `h` or a weight, then literals."""
    text, lines = _HARD.subn(rb"\1-1", text)
    clauses = read_clauses(Numbers(path, (), text), MOST_VARIABLES, weighted=True)
    hard = clauses.weight == -1
    if np.count_nonzero(hard) != lines:
        raise FormatError(f"{path}: expected h or a weight above 0 before each clause, got -1")
    clauses = clauses._replace(weight=np.where(hard, np.inf, clauses.weight))
    _check_weights(path, clauses)
    variables = int(np.abs(clauses.literals).max(initial=0))
    if not variables:
        raise FormatError(f"{path}: expected clauses with literals, got none")
    return clauses, require_room(variables)


def _check_weights(path: str | os.PathLike[str], clauses: Clauses) -> None:
    wrong = np.flatnonzero(~(clauses.weight > 0))
    if len(wrong):
        raise FormatError(
            f"{path}, clause {wrong[0] + 1}: expected a weight above 0, got "
            f"{clauses.weight[wrong[0]]:g}"
        )
    too_large = np.flatnonzero(np.isfinite(clauses.weight) & (clauses.weight > LARGEST))
    if len(too_large):
        raise FormatError(
            f"{path}, clause {too_large[0] + 1}: expected a weight of at most {LARGEST:g}, got "
            f"{clauses.weight[too_large[0]]:g}"
        )
