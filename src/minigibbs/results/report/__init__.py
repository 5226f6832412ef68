"""Report of a run as one standalone HTML page: diagnostics, traces and marginals."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any

from minigibbs._version import __version__
from minigibbs.errors import SampleError
from minigibbs.results.report import marginals, sections
from minigibbs.results.report.beliefs import Beliefs, beliefs
from minigibbs.results.report.markup import Html, cut, element, join
from minigibbs.system import files

if TYPE_CHECKING:
    from minigibbs.results.answer import Answer
    from minigibbs.results.run import Run

__all__ = ["read_shape", "render", "write", "write_answer"]


def write(
    run: Run,
    path: str | os.PathLike[str],
    title: str = "A minigibbs run",
    shape: Sequence[int] | None = None,
) -> None:
    """Write the report of a run to an HTML file atomically.

    Parameters
    ----------
    run
        The result of `mg.sample`, or of `mg.load`.
    path
        The file; an existing one is replaced.
    title
        The heading of the page.
    shape
        Rows and columns of a lattice whose sites are the variables in order. Their marginals are
        then drawn as a map. By default it is the lattice of a model with a `Kernel` over two axes.
    """
    files.check_target(path)
    page = render(run, title, shape).encode("utf-8", "xmlcharrefreplace")
    files.write_whole(path, lambda stream: stream.write(page))


def render(run: Run, title: str = "A minigibbs run", shape: Sequence[int] | None = None) -> str:
    """Return the report of a run as HTML; see `write`."""
    lattice = _lattice(run.model, len(run.domains), shape)
    known, found = beliefs(run)  # the variables with records
    about = f"{len(run.domains):,} variables, {run.info.chains} chains, by {run.info.sampler}"
    return page(
        title,
        about,
        run.info.version,
        sections.top(run),
        sections.facts(run),
        sections.model(run),
        sections.observables(run),
        sections.traces(run),
        sections.ladder(run),
        sections.least_converged(known, found),
        marginals.of_run(known, found, lattice if known is run else None),
        sections.missing(run),
        sections.again(run),
    )


def write_answer(
    answer: Answer,
    path: str | os.PathLike[str],
    title: str = "An answer",
    shape: Sequence[int] | None = None,
) -> None:
    """Write the report of an answer to an HTML file; see `write`."""
    files.check_target(path)
    page = render_answer(answer, title, shape).encode("utf-8", "xmlcharrefreplace")
    files.write_whole(path, lambda stream: stream.write(page))


def render_answer(
    answer: Answer, title: str = "An answer", shape: Sequence[int] | None = None
) -> str:
    """Return the report of an answer as HTML, with the sections of its run if it was sampled."""
    lattice = _lattice(answer.model, len(answer.domains), shape)
    run, found = answer.run, Beliefs(answer.domains, answer.shares, len(answer.domains), [], [])
    if run is not None:
        found = beliefs(run)[1] or found
    sampled = [] if run is None else [sections.facts(run)]
    tail: list[Html] = []
    if run is not None:
        parts = sections.traces(run), sections.ladder(run), sections.least_converged(run, found)
        tail.extend(parts)
    source = "computed exactly" if answer.exact else "from every update of all chains"
    return page(
        title,
        f"{len(answer.domains):,} variables, by {answer.method}",
        __version__,
        sections.verdict(answer),
        sections.answer_facts(answer),
        *sampled,
        sections.model(answer),
        *tail,
        marginals.section(found, lattice, source),
    )


def page(title: str, about: str, version: str, *parts: Html) -> str:
    """Return a complete page with some parts."""
    head = element("header", element("h1", cut(title)), element("p", about, class_="soft"))
    foot = element("footer", f"Written by minigibbs {version}. Nothing here is fetched.")
    body = element("body", head, element("main", *parts), foot, _script())
    return "<!doctype html>\n" + element("html", _head(title), body, lang="en")


def read_shape(text: str) -> tuple[int, ...]:
    """Parse a lattice given on the command line.

    >>> read_shape("20x30")
    (20, 30)
    """
    try:
        return tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        raise SampleError(f"--shape takes ROWSxCOLUMNS such as 20x30, got {text!r}") from None


def _lattice(
    model: dict[str, Any] | None, variables: int, shape: Sequence[int] | None
) -> tuple[int, ...] | None:
    """Return the lattice to draw on: the given one, or that of the model."""
    known: Any = None if model is None else model.get("shape")
    given = known if shape is None else shape
    lattice = () if given is None else tuple(int(side) for side in given)
    fits = len(lattice) == 2 and min(lattice) > 0 and math.prod(lattice) == variables
    if shape is not None and not fits:
        raise SampleError(
            f"shape must be rows and columns of {variables:,} variables, got {lattice}"
        )
    return lattice if fits else None


def _head(title: str) -> Html:
    """Return the page's head; its policy blocks all requests and all scripts except one."""
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
