"""A faster scheduler for Numba's CUDA simulator, with a fixed order of threads.

Numba starts one Python thread per CUDA thread and polls them. This costs milliseconds per block
and makes the order of threads random. Here threads are reused, and only one runs at a time, until
it ends or waits for others. The order is reversed after every barrier, so that a missing barrier
becomes visible in one of the two orders.
"""

import copy
import sys
import threading

import numpy as np


class Lane(threading.Thread):
    """One CUDA thread; it runs when `go` is released, and releases `back` when it stops."""

    def __init__(self, back):
        super().__init__(daemon=True)
        self.back, self.go = back, threading.Lock()
        self.go.acquire()
        self.start()

    def prepare(self, call, block, place, number):
        self.call, self.block, self.error = call, block, None
        self.blockIdx, self.threadIdx, self.thread_id = block.place, place, number
        self.waits = None  # for the block, for a warp by its number, or None
        self.alive = True

    def run(self):
        np.seterr(all="ignore")  # the words of generators wrap
        while True:
            self.go.acquire()
            try:
                self.call()
            except BaseException as error:
                self.error = error
            self.alive = False
            self.back.release()

    def wait(self, group):
        """Wait until all living threads of a group wait."""
        self.waits = group
        self.back.release()
        self.go.acquire()

    def syncthreads(self):
        self.wait("block")

    def _vote(self, value, decide):
        self.block.votes[self.thread_id] = value
        self.syncthreads()
        decided = decide(self.block.votes)
        self.syncthreads()
        return int(decided)

    def syncthreads_or(self, value):
        return self._vote(value, np.any)

    def syncthreads_and(self, value):
        return self._vote(value, np.all)

    def syncthreads_count(self, value):
        return self._vote(value, np.count_nonzero)


BACK = threading.Lock()
BACK.acquire()
LANES: list[Lane] = []


class Block:
    """Replacement of Numba's `BlockManager`."""

    def __init__(self, function, grid, block, debug):
        self.function, self.shape = function, tuple(block) + (1,) * (3 - len(block))

    def run(self, grid_point, *arguments):
        from numba.cuda.simulator.kernelapi import Dim3

        places = [Dim3(*place) for place in np.ndindex(*self.shape)]
        self.place, self.votes = Dim3(*grid_point), np.zeros(len(places), np.bool_)
        while len(LANES) < len(places):
            LANES.append(Lane(BACK))
        width, depth = self.shape[0], self.shape[1]
        for lane, place in zip(LANES, places, strict=False):
            number = place.x + width * (place.y + depth * place.z)
            lane.prepare(lambda: self.function(*arguments), self, place, number)
        live = LANES[: len(places)]
        while live:
            for lane in live:
                if lane.waits is None:
                    lane.go.release()
                    BACK.acquire()
                    if lane.error is not None:
                        raise lane.error
            live = [lane for lane in reversed(live) if lane.alive]
            self.release(live)

    def release(self, live):
        """Release the threads of complete groups; warps before the block."""
        groups = {lane.waits for lane in live} - {"block"}
        for group in groups:
            members = [lane for lane in live if lane.thread_id // group[1] == group[0]]
            if all(lane.waits == group for lane in members):
                for lane in members:
                    lane.waits = None
        if live and all(lane.waits is not None for lane in live):
            assert not groups, "threads wait for each other at different barriers"
            for lane in live:
                lane.waits = None


def sync_warp(width):
    """Return a barrier of the calling thread's warp."""

    def wait():
        lane = threading.current_thread()
        lane.wait((lane.thread_id // width, width))

    return wait


def shared_array(self, shape, dtype, alignment=None):
    """Allocate like Numba's version, identified by the calling line, without reading that line."""
    from numba.cuda import types
    from numba.cuda.np import numpy_support

    if isinstance(dtype, types.Type):
        dtype = numpy_support.as_dtype(dtype)
    dtype = np.dtype(dtype)
    if shape == 0:
        count = self._dynshared_size // dtype.itemsize
        return np.frombuffer(self._dynshared.data, dtype=dtype, count=count)
    frame = sys._getframe(1)
    key = frame.f_code, frame.f_lineno
    if key not in self._allocations:
        self._allocations[key] = np.empty(shape, dtype)
    return self._allocations[key]


def install():
    """Make the simulator use this scheduler; must be called before any kernel runs."""
    from numba.cuda.simulator import kernel, kernelapi

    kernel.BlockManager = Block
    configure = kernel.FakeCUDAKernel.__getitem__
    # Numba returns the kernel itself, so that one launch shape would replace another.
    kernel.FakeCUDAKernel.__getitem__ = lambda self, shape: copy.copy(configure(self, shape))
    kernelapi.FakeCUDAShared.array = shared_array
