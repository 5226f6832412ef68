"""Lines that say what a call does, shown only where somebody can see them."""

from __future__ import annotations

import io
import sys
import threading
import time
from contextlib import suppress

import minigibbs as mg
from minigibbs.system import progress
from minigibbs.system.progress import Delayed, Stage


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self):
        """Return that it is a terminal."""
        return True


def terminal(monkeypatch):
    """Replace stderr by a terminal, and shorten the delay.

    pytest replaces stderr after fixtures, so a test calls this itself.
    """
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "_PATIENCE", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    return sys.stderr


def wait_for(text, stream, seconds=10.0):
    """Wait until a stream contains a text; return whether it does."""
    until = time.monotonic() + seconds
    while text not in stream.getvalue() and time.monotonic() < until:
        time.sleep(0.01)
    return text in stream.getvalue()


def test_a_long_call_says_what_it_does(monkeypatch):
    seen = terminal(monkeypatch)
    with Delayed("reading a file"):
        assert wait_for("reading a file", seen)
    assert progress.Shown.active == 0


def test_a_short_call_shows_nothing(monkeypatch):
    seen = terminal(monkeypatch)
    with Delayed("reading a file"):
        pass
    time.sleep(0.1)
    assert seen.getvalue() == ""


def test_nothing_is_shown_beside_a_bar(monkeypatch):
    seen = terminal(monkeypatch)
    with Stage("sampling", True):
        assert wait_for("sampling", seen)
        with Delayed("reading a file"):
            time.sleep(0.1)
    assert "reading" not in seen.getvalue()


def test_no_thread_is_started_where_nobody_can_see_a_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    before = threading.active_count()
    with Delayed("reading a file"):
        assert threading.active_count() == before


def test_a_failure_ends_the_line(monkeypatch):
    seen = terminal(monkeypatch)
    with suppress(KeyError), Delayed("reading a file"):
        assert wait_for("reading a file", seen)
        raise KeyError
    assert progress.Shown.active == 0


def test_readers_and_queries_of_answers_would_show_a_line(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(Delayed, "__enter__", lambda line: shown.append(line._text))
    graph = mg.models.ising_lattice(side=3, beta=0.2)
    mg.write(graph, tmp_path / "a.uai")
    answer = mg.infer(mg.read(tmp_path / "a.uai"), progress=False)
    answer.joint(0, 1)
    answer.probability({0: 1})
    answer.likelihood({0: [0.5, 0.5]})
    answer.most_probable(0)
    answer.draws(2)
    mg.theory.log_z_bounds(graph)
    mg.theory.propagate(graph)
    mg.theory.transition(graph, mg.Gibbs())
    assert shown == [
        "writing a.uai",
        "reading a.uai",
        "computing a joint distribution",
        "computing the probability of evidence",
        "computing the likelihood of soft evidence",
        "finding the most probable values",
        "drawing 2 states",
        "bounding log Z",
        "propagating messages",
        "computing the transition matrix",
    ]
