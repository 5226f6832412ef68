"""Kernels with one thread per chain, which call the same update functions as the CPU.

The last axis of every array is the chain. The threads of a warp visit the same variable at the
same time. They read neighboring bytes of the state and the same bytes of the model. The order of
the visits is generated in advance, once for all chains.

Importing this module needs numba-cuda; `backends.cuda` raises a clear error if it is missing.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from minigibbs.engine.dispatch import begin, begin_sweeps, sweep, update
from minigibbs.kernels.energy import part_energy
from minigibbs.kernels.jit import DISPATCHED, kernel
from minigibbs.kernels.layout import CHANGES, Chain
from minigibbs.kernels.scan import next_variable
from minigibbs.kernels.touched import DENSE_DOMAIN
from minigibbs.running.backends.device.toolchain import cuda, dispatch_by_type, entry

dispatch_by_type(DISPATCHED)

THREADS = 128  # per block
NARROW = 2 * DENSE_DOMAIN  # largest number of weights of a thread in shared memory
_TALLIES = CHANGES + 1


class ChainArrays(NamedTuple):
    """`c` chains, stored together. See `Chain`."""

    x: Any  # [n, c]
    streams: Any  # [4, c]
    carried: Any  # [carried, c]
    weights: Any  # [2D, c]; [0, c] if domains are small enough for shared memory
    scratch: Any  # [scratch, c]
    tally: Any  # [5, c]


class Counting(NamedTuple):
    """Marginal counts of the kernels that advance, and when they are updated."""

    first: Any  # [n + 1] index of each variable's first value
    counts: Any  # [row of chains, value]
    every: int  # updates between two counts; 0 to count nothing
    left: int  # updates until the next count


@cuda.jit(device=True)
def _count(counting, x, c):
    """Add the values of chain `c` to the counts of its row of chains."""
    row = ((c + 1) * len(counting.counts) - 1) // x.shape[1]
    for i in range(x.shape[0]):
        cuda.atomic.add(counting.counts, (row, counting.first[i] + x[i, c]), 1)


@kernel
def load_chain(chains, c, stream, tally, weights):
    """Return a view of one chain, with its generator and counters in registers."""
    for k in range(4):
        stream[k] = chains.streams[k, c]
    for k in range(_TALLIES):
        tally[k] = 0
    return Chain(chains.x[:, c], stream, chains.carried[:, c], weights, chains.scratch[:, c], tally)


@kernel
def store_chain(chains, c, chain):
    """Store a chain's generator, and add its counters."""
    for k in range(4):
        chains.streams[k, c] = chain.stream[k]
    for k in range(_TALLIES):
        chains.tally[k, c] += chain.tally[k]


@kernel
def _step(data, model, chain, i):
    old = chain.x[i]  # loaded early to hide the latency
    value = update(data, model, chain, i)
    chain.x[i] = value
    chain.tally[CHANGES] += value != old


@cache
def advance(rows):
    """Return a kernel that updates the variables on a path, in order, in all chains.

    Each thread has `rows` weights in its block's shared memory.
    """

    @entry
    def advance_along(data, model, chains, path, counting):
        c = cuda.grid(1)
        if c < chains.x.shape[1]:
            stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
            shared = cuda.shared.array((rows, THREADS), np.float64)
            chain = load_chain(chains, c, stream, tally, shared[:, cuda.threadIdx.x])
            step, left = 0, counting.left
            while step < len(path):
                _step(data, model, chain, np.uint32(path[np.uint64(step)]))
                step += 1
                left -= 1
                if left == 0:
                    _count(counting, chains.x, c)
                    left = counting.every
            store_chain(chains, c, chain)

    return advance_along


@entry
def advance_wide(data, model, chains, path, counting):
    """Advance like `advance`, for domains of any size: the weights are in global memory."""
    c = cuda.grid(1)
    if c < chains.x.shape[1]:
        stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
        chain = load_chain(chains, c, stream, tally, chains.weights[:, c])
        step, left = 0, counting.left
        while step < len(path):
            _step(data, model, chain, np.uint32(path[np.uint64(step)]))
            step += 1
            left -= 1
            if left == 0:
                _count(counting, chains.x, c)
                left = counting.every
        store_chain(chains, c, chain)


@entry
def advance_apart(data, model, chains, scan, updates, counting):
    """Advance like `advance_wide`, with a random path per chain."""
    c = cuda.grid(1)
    if c < chains.x.shape[1]:
        stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
        chain = load_chain(chains, c, stream, tally, chains.weights[:, c])
        left = counting.left
        for _ in range(updates):
            _step(data, model, chain, np.uint32(next_variable(scan, chain.stream)))
            left -= 1
            if left == 0:
                _count(counting, chains.x, c)
                left = counting.every
        store_chain(chains, c, chain)


@entry
def start_chains(data, model, chains):
    """Let the sampler initialize its auxiliary state for every chain's initial state."""
    c = cuda.grid(1)
    if c < chains.x.shape[1]:
        stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
        chain = load_chain(chains, c, stream, tally, chains.weights[:, c])
        begin(data, model, chain)
        store_chain(chains, c, chain)


@entry
def advance_sweeps(data, model, chains, replicas, sweeps, counting):
    """Run sweeps of samplers that update all variables at once; replicas are [.., c]."""
    c = cuda.grid(1)
    if c < chains.x.shape[1]:
        stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
        chain = load_chain(chains, c, stream, tally, chains.weights[:, c])
        for _ in range(sweeps):
            sweep(data, model, chain, replicas[:, c])
            if counting.every:
                _count(counting, chains.x, c)
        store_chain(chains, c, chain)


@entry
def start_sweeps(data, model, chains, replicas):
    """Let a sampler of whole sweeps initialize its auxiliary state for every chain."""
    c = cuda.grid(1)
    if c < chains.x.shape[1]:
        stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
        chain = load_chain(chains, c, stream, tally, chains.weights[:, c])
        begin_sweeps(data, model, chain, replicas[:, c])
        store_chain(chains, c, chain)


@entry
def turn(array, first, rows, out):
    """Copy array[item, first + k] to rows[k, item], or back."""
    k, begin = cuda.grid(2)
    if k < rows.shape[0]:
        for item in range(begin, rows.shape[1], cuda.gridsize(2)[1]):
            if out:
                rows[k, item] = array[item, first + k]
            else:
                array[item, first + k] = rows[k, item]


@entry
def count_values(x, first, counts):
    """Add each variable's values, over groups of chains, to counts[group, first + value].

    Of C chains in K groups, group k holds those from k * C // K up to (k + 1) * C // K. A block
    counts one variable, group after group, in shared memory with one counter per value.
    """
    i, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    bins = cuda.shared.array(0, np.int32)
    for group in range(cuda.blockIdx.y, len(counts), cuda.gridDim.y):
        for value in range(thread, len(bins), threads):
            bins[value] = 0
        cuda.syncthreads()
        begin, end = group * x.shape[1] // len(counts), (group + 1) * x.shape[1] // len(counts)
        for c in range(begin + thread, end, threads):
            cuda.atomic.add(bins, x[i, c], 1)
        cuda.syncthreads()
        for value in range(thread, first[i + 1] - first[i], threads):
            counts[group, first[i] + value] += bins[value]
        cuda.syncthreads()


@entry
def count_wide(x, first, counts):
    """Count like `count_values`, for domains too large for shared memory or for small groups."""
    c, variable = cuda.grid(2)
    if c < x.shape[1]:
        group = ((c + 1) * len(counts) - 1) // x.shape[1]
        for i in range(variable, x.shape[0], cuda.gridsize(2)[1]):
            cuda.atomic.add(counts, (group, first[i] + x[i, c]), 1)


@entry
def keep_states(x, kept, variables, place, states):
    """Copy some variables of the kept chains to states[place]: [record, variable, kept chain]."""
    k, first = cuda.grid(2)
    if k < len(kept):
        for i in range(first, len(variables), cuda.gridsize(2)[1]):
            states[place, i, k] = x[variables[i], kept[k]]


@lru_cache(maxsize=64)
def observe_kernel(function):
    """Return a kernel that measures an observable of every chain: values[0, number, chain]."""

    @entry
    def observe(parameters, x, values):
        c = cuda.grid(1)
        if c < x.shape[1]:
            function(x[:, c], parameters, values[0, :, c])

    return observe


@entry
def average_rows(values, place, first, averages):
    """Average over rows of chains, to averages[place + record, row, first + number].

    `values` are [record, number, chain]. Of C chains in K rows, row k holds those from k * C // K
    up to (k + 1) * C // K. One block computes the mean of a row, number and record. The order of
    summation depends only on the block size.
    """
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    chains, rows = values.shape[2], averages.shape[1]
    partial = cuda.shared.array(THREADS, np.float64)
    begin, end = row * chains // rows, (row + 1) * chains // rows
    for record in range(cuda.blockIdx.z, values.shape[0], cuda.gridDim.z):
        for number in range(cuda.blockIdx.y, values.shape[1], cuda.gridDim.y):
            total = 0.0
            for c in range(begin + thread, end, cuda.blockDim.x):
                total += values[record, number, c]
            partial[thread] = total
            cuda.syncthreads()
            if thread == 0:
                total = 0.0
                for k in range(cuda.blockDim.x):
                    total += partial[k]
                averages[place + record, row, first + number] = total / (end - begin)
            cuda.syncthreads()


@entry
def part_energies(model, states, parts):
    """Compute energies of kept states [record, variable, kept chain], by part of the factors.

    The result is parts[record, part, chain]. The factors of a part depend only on its index and the
    number of parts, so sums are reproducible.
    """
    k, first = cuda.grid(2)
    count, step = parts.shape[1], cuda.gridsize(2)[1]
    if k < parts.shape[2]:
        for record in range(cuda.blockIdx.z, parts.shape[0], cuda.gridDim.z):
            for part in range(first, count, step):
                parts[record, part, k] = part_energy(model, states[record, :, k], part, count)


@entry
def sum_parts(parts, energy):
    """Sum over all parts, with one block of threads per record and chain."""
    sums = cuda.shared.array(THREADS, np.float64)
    k, thread = cuda.blockIdx.x, cuda.threadIdx.x
    for record in range(cuda.blockIdx.y, parts.shape[0], cuda.gridDim.y):
        total = 0.0
        for part in range(thread, parts.shape[1], THREADS):
            total += parts[record, part, k]
        sums[thread] = total
        cuda.syncthreads()
        if thread == 0:
            total = 0.0
            for other in range(THREADS):
                total += sums[other]
            energy[record, k] = total
        cuda.syncthreads()
