"""A run as one page: whether to trust it, traces, and what it says; opens anywhere, offline."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from importlib.resources import files as resources
from typing import Any

from minigibbs.errors import SampleError
from minigibbs.results.report import marginals, sections
from minigibbs.results.report.beliefs import beliefs
from minigibbs.results.report.markup import Html, cut, element, join
from minigibbs.results.run import Run
from minigibbs.system import files

__all__ = ["read_shape", "render", "write"]


def write(
    run: Run,
    path: str | os.PathLike[str],
    title: str = "A minigibbs run",
    shape: Sequence[int] | None = None,
) -> None:
    """Write the report of a run to an HTML file, whole or not at all.

    Parameters
    ----------
    run
        The result of `mg.sample`, or of `mg.load`.
    path
        The file; one that is there is replaced.
    title
        The heading of the page.
    shape
        Rows and columns, if the variables lie on a lattice, in order: their marginals are then
        drawn as a map. A model with a `Kernel` over two axes knows its own.
    """
    files.check_target(path)
    page = render(run, title, shape).encode("utf-8", "xmlcharrefreplace")
    files.write_whole(path, lambda stream: stream.write(page))


def render(run: Run, title: str = "A minigibbs run", shape: Sequence[int] | None = None) -> str:
    """The report of a run as HTML; see `write`."""
    found, lattice = beliefs(run), _lattice(run, shape)
    known = run if found is None else found.run  # the variables of which anything is known
    variables = f"{len(run.domains):,} variables"
    head = element(
        "header",
        element("h1", cut(title)),
        element(
            "p", f"{variables}, {run.info.chains} chains, by {run.info.sampler}", class_="soft"
        ),
    )
    body = element(
        "main",
        sections.top(run),
        sections.facts(run),
        sections.model(run),
        sections.traces(run),
        sections.least_converged(known, found),
        marginals.section(known, found, lattice if known is run else None),
        sections.missing(run),
        sections.again(run),
    )
    foot = element("footer", f"Written by minigibbs {run.info.version}. Nothing here is fetched.")
    return "<!doctype html>\n" + element(
        "html", _head(title), element("body", head, body, foot, _script()), lang="en"
    )


def read_shape(text: str) -> tuple[int, ...]:
    """A lattice from the command line.

    >>> read_shape("20x30")
    (20, 30)
    """
    try:
        return tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        raise SampleError(f"--shape takes ROWSxCOLUMNS such as 20x30, got {text!r}") from None


def _lattice(run: Run, shape: Sequence[int] | None) -> tuple[int, ...] | None:
    """The lattice to draw on: as told, or as the model knows it."""
    known: Any = None if run.model is None else run.model.get("shape")
    lattice = tuple(int(side) for side in shape or known or ())
    fits = len(lattice) == 2 and min(lattice) > 0 and math.prod(lattice) == len(run.domains)
    if shape is not None and not fits:
        raise SampleError(
            f"shape must be rows and columns of {len(run.domains):,} variables, got {lattice}"
        )
    return lattice if fits else None


def _head(title: str) -> Html:
    """The page's head; its policy lets nothing be fetched and only the one script run."""
    code = _text("filter.js").encode()
    digest = base64.b64encode(hashlib.sha256(code).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", cut(title)),
        element("style", Html(_text("style.css"))),
    )


def _script() -> Html:
    return join(element("script", Html(_text("filter.js"))))


def _text(name: str) -> str:
    return resources("minigibbs.results.report").joinpath(name).read_text(encoding="utf-8")
