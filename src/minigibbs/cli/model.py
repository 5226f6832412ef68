"""Models on the command line: a file or a generator, with evidence."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Container
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from minigibbs.cli.calls import call
from minigibbs.cli.output import warnings_in_lines
from minigibbs.errors import SampleError
from minigibbs.formats import read
from minigibbs.formats.uai import read_evidence
from minigibbs.graph.graph import FactorGraph
from minigibbs.models import GENERATORS
from minigibbs.system.files import check_source

_STDIN = "stdin:"  # followed by the ending of a model file


def read_model(
    text: str,
    floor: float | None,
    ignore_evidence: bool,
    evidence: Path | None,
    given: list[str] | None,
) -> FactorGraph:
    """Read a model from `name:key=value,...` or from a file, with its evidence."""
    options = {} if floor is None else {"floor": floor}
    options |= {"evidence": False} if ignore_evidence else {}
    if text.partition(":")[0] in GENERATORS:
        if options:
            raise SampleError(f"{text}: {', '.join(options)} is for model files")
        graph = call(text, GENERATORS, "generator")
    elif text.startswith(_STDIN):
        with warnings_in_lines():
            graph = _from_stdin(text.removeprefix(_STDIN), options)
    else:
        check_source(text, f"a model file, or one of {', '.join(GENERATORS)}")
        with warnings_in_lines():
            graph = read(text, **options)
    if evidence is not None:
        graph = graph.condition(read_evidence(evidence))
    return _condition(graph, given or [])


def _from_stdin(ending: str, options: dict[str, Any]) -> FactorGraph:
    """Read a model from standard input, as a file with this ending."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"stdin.{ending}")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return read(path, **options)


def _condition(graph: FactorGraph, given: list[str]) -> FactorGraph:
    for text in given:
        variable, equals, value = text.partition("=")
        if not equals:
            raise SampleError(f"--given takes VARIABLE=VALUE, got {text!r}")
        number = graph.domains.index(typed(variable, graph.names or ()))
        labels = graph.domains.labels.get(number, ())
        graph = graph.condition({number: typed(value, labels)})
    return graph


def typed(text: str, known: Container[Any]) -> Any:
    """Convert text to a known name, or to the number that it represents."""
    for read_number in (int, float) if text not in known else ():
        try:
            return read_number(text)
        except ValueError:
            continue
    return text
