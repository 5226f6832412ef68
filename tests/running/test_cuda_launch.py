"""Repeated launches: twice by Numba, then directly with the recorded arguments."""

import threading
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from cuda import core
from numba.core import types
from numba.cuda.dispatcher import _Kernel

from minigibbs.running.backends.cuda_group import CudaGroup
from minigibbs.running.backends.device.launch import Again, blocks_at_once

KINDS = (types.int64, types.UniTuple(types.int32, 2), types.int64, types.float64)


def fake_kernel(**changed):
    kernel = SimpleNamespace(
        debug=False,
        cooperative=False,
        extensions=[],
        argument_types=KINDS,
        _codelibrary=SimpleNamespace(get_cufunc=lambda: SimpleNamespace(kernel="compiled")),
    )
    kernel._prepare_args = lambda *given: _Kernel._prepare_args(kernel, *given)
    for name, value in changed.items():
        setattr(kernel, name, value)
    return kernel


class Launch:
    """A configured kernel like Numba's, which records its arguments."""

    stream, griddim, blockdim, sharedmem = "stream", (3, 1, 1), (64, 1, 1), 0

    def __init__(self, kernel):
        self.kernel, self.pre_launch_callbacks, self.calls = kernel, [], []

    def __call__(self, *arguments):
        self.calls.append(arguments)
        for callback in self.pre_launch_callbacks:
            callback(self.kernel, self)


@pytest.fixture
def started(monkeypatch):
    """Return a list of the arguments of launches without Numba."""
    seen = []

    def start(stream, shape, function, *words):
        assert (stream, tuple(shape.grid), tuple(shape.block)) == ("stream", (3, 1, 1), (64, 1, 1))
        seen.append((function, [getattr(word, "value", word) for word in words]))

    monkeypatch.setattr(core, "launch", start)
    return seen


def test_two_launches_are_numbas_and_the_others_have_its_words(started):
    launch = Launch(fake_kernel())
    again = Again(launch, (7, (1, 2)), (0.5,))
    for number in (3, 5, 4, 2**40):
        again(number)
    assert launch.calls == [(7, (1, 2), 3, 0.5), (7, (1, 2), 5, 0.5)]
    assert launch.pre_launch_callbacks == []
    assert started == [("compiled", [7, 1, 2, 4, 0.5]), ("compiled", [7, 1, 2, 2**40, 0.5])]


def test_launches_without_a_number(started):
    kinds = KINDS[:2] + KINDS[3:]
    launch = Launch(fake_kernel(argument_types=kinds))
    again = Again(launch, (7, (1, 2), 0.5), None)
    for _ in range(3):
        again()
    assert launch.calls == [(7, (1, 2), 0.5)] * 2
    assert started == [("compiled", [7, 1, 2, 0.5])]


@pytest.mark.parametrize(
    "kernel",
    [
        fake_kernel(debug=True),
        fake_kernel(extensions=[object()]),
        fake_kernel(argument_types=KINDS[:2]),
        SimpleNamespace(),
    ],
)
def test_where_numba_is_another_every_launch_is_its_own(kernel, started):
    launch = Launch(kernel)
    again = Again(launch, (7, (1, 2)), (0.5,))
    for number in range(4):
        again(number)
    assert [call[2] for call in launch.calls] == [0, 1, 2, 3]
    assert started == []


def test_without_callbacks_every_launch_is_numbas(started):
    calls = []
    again = Again(lambda *arguments: calls.append(arguments), (1,), (2,))
    again(5)
    again(6)
    assert calls == [(1, 5, 2), (1, 6, 2)]
    assert started == []


def test_another_thread_launches_by_numba(started):
    """Only the first thread is known to have the current context."""
    launch = Launch(fake_kernel())
    again = Again(launch, (7, (1, 2)), (0.5,))
    again(0)
    again(0)
    other = threading.Thread(target=again, args=(1,))
    other.start()
    other.join()
    again(2)
    assert [call[2] for call in launch.calls] == [0, 0, 1]
    assert [words[3] for _, words in started] == [2]


def test_a_kernel_whose_grid_waits_is_launched_as_a_whole(monkeypatch):
    shapes = []
    monkeypatch.setattr(core, "LaunchConfig", lambda **given: SimpleNamespace(**given))
    monkeypatch.setattr(core, "launch", lambda stream, shape, *rest: shapes.append(shape))
    again = Again(Launch(fake_kernel(cooperative=True)), (7, (1, 2)), (0.5,))
    for number in range(4):
        again(number)
    assert [shape.is_cooperative for shape in shapes] == [True, True]


@pytest.mark.parametrize(
    ("marginals", "within", "expected"),
    [
        (False, False, [50, 50, 20]),
        (True, True, [50, 50, 20]),
        (True, False, [20, 20, 10, 10, 20, 20, 20]),  # a count every 20 updates
    ],
)
def test_launches_end_only_where_something_is_recorded(marginals, within, expected):
    made, counts = [], []
    group = SimpleNamespace(
        _clock=0,
        every=20,
        within=within,
        marginals=marginals,
        plan=SimpleNamespace(thin=50, observe={}),
        counts=None,
        _counted=np.zeros(2, np.int64),
        _launch=made.append,
        _count=counts.append,
        _keep=lambda: None,
    )
    CudaGroup._record_until(group, 120)
    assert made == expected
    assert len(counts) == (6 if marginals and not within else 0)


class Waiting:
    """A kernel whose grid waits, which Numba compiles at its first launch."""

    overloads: ClassVar[dict] = {}

    def __init__(self, compiled):
        self.compiled = compiled

    def __getitem__(self, shape):
        if isinstance(self.compiled, Exception):
            raise self.compiled
        return Launch(self.compiled)


@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        (fake_kernel(max_cooperative_grid_blocks=lambda threads: 10 * threads[0]), 640),
        (fake_kernel(), 0),
        (RuntimeError("no library of barriers"), 0),
    ],
)
def test_numba_tells_how_many_blocks_fit_at_once(compiled, expected):
    assert blocks_at_once(Waiting(compiled), (64, 1), (7, (1, 2), 0.5)) == expected
