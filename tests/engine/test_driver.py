"""The driver, and the results of tasks that a signal or the deadline ends."""

import signal
from functools import wraps

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.engine.driver import drive
from minigibbs.inference import annealing, population
from minigibbs.inference import maximize as searching
from minigibbs.learning import ascent, climb
from minigibbs.learning.pseudo import PseudoLikelihood
from minigibbs.results import annealed
from minigibbs.running import loop
from minigibbs.system.watch import INTERRUPTED, TIME, StopError, Watch

QUIET = {"progress": False}


class Counting:
    """A task of some segments, which acts in one of them."""

    def __init__(self, segments, at=None, action=None):
        self.left, self.at, self.action = segments, at, action
        self.made = self.kept = self.rested = 0

    def segment(self):
        self.made += 1
        if self.made == self.at:
            self.action()
        self.left -= 1
        return "" if self.left else "done"

    def keep(self):
        self.kept += 1

    def rest(self):
        self.rested += 1


def test_a_task_runs_to_its_end():
    task = Counting(5)
    with Watch() as watch:
        assert drive(task, watch) == "done"
    assert (task.made, task.kept, task.rested) == (5, 4, 1)


def test_a_task_makes_one_segment_whatever_the_time():
    task = Counting(5)
    with Watch(0) as watch:
        assert drive(task, watch) == TIME
    assert (task.made, task.kept, task.rested) == (1, 0, 1)


def stop():
    raise StopError


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("action", "ended"),
    [
        (lambda: signal.raise_signal(signal.SIGINT), "interrupted"),
        (lambda: signal.raise_signal(signal.SIGTERM), "terminated"),
        (interrupt, "interrupted"),
    ],
    ids=["SIGINT", "SIGTERM", "a handler of the program"],
)
def test_a_signal_ends_a_task_between_segments(action, ended):
    task = Counting(5, 2, action)
    with Watch() as watch:
        assert drive(task, watch) == ended
    assert (task.made, task.rested) == (2, 1)


def test_work_that_stops_itself_ends_by_the_clock():
    task = Counting(5, 1, stop)
    with Watch(0) as watch:
        assert drive(task, watch) == TIME


def test_a_signal_that_came_earlier_ends_a_task_before_it_begins():
    task = Counting(5)
    with Watch() as watch, watch.noted():
        signal.raise_signal(signal.SIGINT)
        assert drive(task, watch) == INTERRUPTED
    assert (task.made, task.rested) == (0, 1)


def test_an_error_lets_the_task_rest():
    def fail():
        raise ValueError("no")

    task = Counting(5, 1, fail)
    with pytest.raises(ValueError, match="no"), Watch() as watch:
        drive(task, watch)
    assert task.rested == 1


def signal_in(monkeypatch, owner, at, number=signal.SIGINT):
    """Send a signal to this process in segment `at` of the tasks of a class."""
    segment, made = owner.segment, []

    def spied(self):
        made.append(1)
        if len(made) == at:
            signal.raise_signal(number)
        return segment(self)

    monkeypatch.setattr(owner, "segment", spied)
    return made


@pytest.mark.parametrize("ended", ["interrupted", "terminated"])
def test_a_search_keeps_its_best_state(monkeypatch, ended):
    number = signal.SIGINT if ended == "interrupted" else signal.SIGTERM
    made = signal_in(monkeypatch, searching._Searching, 3, number)
    lattice = mg.models.ising_lattice(side=6, beta=0.5)
    graph = mg.FactorGraph([2] * 36, [*lattice.factors, mg.Unary(range(36), [0.0, 0.3])])
    best = mg.maximize(graph, "60s", chains=2, seed=1, **QUIET)
    assert best.ended == ended
    assert best.energy == pytest.approx(graph.energy(np.ones(36, dtype=int)))
    assert len(made) == 3


def test_a_search_says_how_it_ended():
    graph = mg.models.ising_lattice(side=4, beta=0.5)
    assert mg.maximize(graph, rounds=20, seed=1, **QUIET).ended == "rounds"
    assert mg.maximize(graph, 0.2, chains=2, seed=1, **QUIET).ended == "time"


def weak_lattice():
    grid = mg.models.ising_lattice(side=6, beta=0.05)
    assert grid.influence < 1
    return grid


def test_a_signal_while_log_z_is_estimated_gives_the_answer_of_the_ladder(monkeypatch):
    made = signal_in(monkeypatch, loop.Loop, 40)
    answer = mg.infer(weak_lattice(), "60s", exact=False, standard_error=1e-9, seed=1, **QUIET)
    assert answer.run.info.ended == "interrupted"
    assert answer.method.startswith("Tempering")
    assert abs(answer.marginals[:, 1] - 0.5).max() < 0.5
    assert len(made) == 40


def test_a_signal_before_anything_is_recorded_is_raised(monkeypatch):
    signal_in(monkeypatch, loop.Loop, 1)
    with pytest.raises(KeyboardInterrupt):
        mg.infer(weak_lattice(), "60s", exact=False, standard_error=1e-9, seed=1, **QUIET)


def coins(rows=200):
    graph = mg.FactorGraph(
        [2] * 4,
        [mg.Ising(range(3), range(1, 4), 0.0, name="J"), mg.Unary([0], [0.0, 0.0], name="b")],
    )
    return graph, np.random.default_rng(1).integers(0, 2, (rows, 4))


def test_a_fit_keeps_its_steps(monkeypatch):
    graph, rows = coins()
    signal_in(monkeypatch, ascent.Ascent, 12)
    fit = mg.learn(graph, rows, seed=1, **QUIET)
    assert (fit.ended, fit.steps) == ("interrupted", 12)
    assert fit.deviations is None


@pytest.mark.parametrize("options", [{"method": "pseudo"}, {"start": "pseudo"}])
def test_a_signal_ends_an_evaluation_of_the_pseudo_likelihood(monkeypatch, options):
    graph, rows = coins()
    evaluate, calls = PseudoLikelihood.of, []

    def spied(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self, *args, **kwargs)

    monkeypatch.setattr(PseudoLikelihood, "of", spied)
    fit = mg.learn(graph, rows, seed=1, **options, **QUIET)
    assert fit.ended == "interrupted"
    assert len(calls) == 3
    assert all(np.isfinite(values).all() for values in fit.parameters.values())


@pytest.mark.parametrize("method", ["pcd", "pseudo", "exact"])
def test_a_fit_ends_in_time(method):
    graph, rows = coins()
    fit = mg.learn(graph, rows, method, max_time=0, seed=1, **QUIET)
    assert fit.ended == "time"
    assert fit.steps <= 1


def test_a_signal_in_the_preparations_of_a_later_model_keeps_the_earlier_ones(monkeypatch):
    from minigibbs.running import many

    sample, calls = many.sample, []

    @wraps(sample)
    def spied(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return sample(*args, **kwargs)

    monkeypatch.setattr(many, "sample", spied)
    runs = mg.sample_many([weak_lattice()] * 5, sweeps=20, seed=1, **QUIET)
    assert len(runs) == 2


def test_the_tasks_of_the_library_leave_the_clock_to_the_driver():
    """Each class with segments is advanced by `drive` alone."""
    tasks = (
        loop.Loop,
        ascent.Ascent,
        climb.Climb,
        searching._Searching,
        annealing.Annealing,
        population._Annealing,
        annealed._Annealing,
    )
    for task in tasks:
        assert all(hasattr(task, name) for name in ("segment", "keep", "rest"))
