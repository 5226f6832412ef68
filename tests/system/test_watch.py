"""The time limit and the signals of a call."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.errors import SampleError
from minigibbs.system import watch as module
from minigibbs.system.watch import INTERRUPTED, TERMINATED, TIME, StopError, Watch, current


def test_without_a_call_there_is_no_limit():
    assert current().left == float("inf")
    assert current().ended == ""
    current().check()


def test_an_inner_watch_cannot_outlast_the_outer_one():
    with Watch(0.0) as outer, Watch(1000.0) as inner:
        assert current() is inner
        assert inner.left <= 0
        assert outer.left <= 0
        assert inner.ended == TIME
        with pytest.raises(StopError):
            inner.check()
        outer.extend(500.0)
        assert inner.ended == ""
    assert current().left == float("inf")


def test_compiling_does_not_count(monkeypatch):
    call = Watch(10.0)
    monkeypatch.setattr(module.Compiling, "seconds", module.Compiling.seconds + 100.0)
    assert 100 < call.left <= 110
    assert call.spent < 0


def test_a_signal_is_raised_where_nothing_would_be_lost():
    with pytest.raises(KeyboardInterrupt), Watch(), Watch():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_is_noted_by_all_watches_of_a_call():
    with Watch() as outer:
        with Watch() as inner, inner.noted():
            signal.raise_signal(signal.SIGINT)
            assert inner.ended == INTERRUPTED
        assert outer.signal == INTERRUPTED
    with Watch() as later:
        assert later.ended == ""


def test_work_within_noted_may_be_dropped():
    with Watch() as call, call.noted():
        with pytest.raises(KeyboardInterrupt), call.raised():
            signal.raise_signal(signal.SIGTERM)
        assert call.signal == TERMINATED
        with pytest.raises(KeyboardInterrupt), call.raised():
            pytest.fail("a signal that came before is raised at once")


def test_a_second_signal_does_what_it_usually_does():
    with Watch() as call, call.noted():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_of_the_program_are_left_alone():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with Watch() as call, call.noted():
            signal.raise_signal(signal.SIGTERM)
            assert call.ended == ""
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_stopped_work_never_leaves_the_call():
    with pytest.raises(SampleError, match=r"time limit of 0 s .* give more time"), Watch(0) as call:
        call.check()


def stop_after_a_signal():
    with Watch() as call, call.noted():
        signal.raise_signal(signal.SIGINT)
        call.check()


def test_work_that_a_signal_stopped_is_interrupted():
    with pytest.raises(KeyboardInterrupt):
        stop_after_a_signal()


def test_another_thread_has_calls_of_its_own():
    lefts = []
    with Watch(5):
        thread = threading.Thread(target=lambda: lefts.append(current().left))
        thread.start()
        thread.join()
    assert lefts == [float("inf")]


def test_a_terminated_call_without_a_result_ends_the_process():
    code = (
        "import signal\n"
        "from minigibbs.system.watch import Watch\n"
        "with Watch():\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "print('not reached')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == ""


CALLBACK = """
def _raw_object_cache_notify():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):
        pass
    reached.append(True)
"""


def test_a_signal_in_a_callback_of_llvm_is_raised_after_it():
    """Python only prints exceptions of a callback, so the signal would be lost."""
    reached = []
    names = {"os": os, "signal": signal, "reached": reached}
    exec(compile(CALLBACK, "/llvmlite/binding/executionengine.py", "exec"), names)

    def work():
        with Watch():
            names["_raw_object_cache_notify"]()
            time.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached


def test_a_removed_working_directory_is_named(tmp_path, monkeypatch):
    """Numba needs the working directory to compile."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    def work():
        with Watch():
            os.path.abspath("x")

    with pytest.raises(SampleError, match="working directory of this process was removed"):
        work()


def test_work_in_pieces_is_dropped_only_where_it_may_be():
    with Watch(0.0) as call:
        call.check_droppable()
        with call.droppable(), pytest.raises(StopError):
            call.check_droppable()
        call.check_droppable()


def test_an_energy_of_points_that_is_timed_ends_with_the_time():
    places = np.random.default_rng(0).uniform(0, 30, (1000, 2))
    graph = mg.FactorGraph([2] * 1000, [mg.Points(places, weight=0.1)])
    state = np.zeros(1000, dtype=np.int64)
    with Watch(0.0) as call:
        whole = graph.log_potential(state)
        with call.droppable(), pytest.raises(StopError):
            graph.log_potential(state)
    assert whole == graph.log_potential(state)


@pytest.mark.parametrize("sampler", [mg.PoissonGibbs(), mg.Gibbs()], ids=str)
def test_preparations_of_a_sampler_are_dropped_only_where_they_may_be(sampler):
    i, j = np.triu_indices(100, 1)

    def glass():
        couplings = np.random.default_rng(1).normal(0, 0.15, len(i))
        return mg.FactorGraph([3] * 100, [mg.Potts(i, j, couplings)])

    with Watch(0.0) as call:
        sampler.prepare(glass())
        with call.droppable(), pytest.raises(StopError):
            sampler.prepare(glass())
