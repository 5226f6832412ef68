"""Sums over variables on a GPU: what most observables are functions of, counted by many threads.

A block of threads counts one piece of one sum, in the chains of one tile, and adds it to
sums[record, sum, chain]. These are whole numbers, so that the order does not matter.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from minigibbs.kernels.jit import literal
from minigibbs.running.backends.device.toolchain import cuda, entry

THREADS = 128  # in a block; a power of 2
WORD = 32  # chains in a word
EIGHT = 8  # words that a thread reads before it adds them up
_LOW, _HIGH = 3, 4  # bits of a thread's counters: below eight, and from there on
MOST_EIGHTS = (1 << _HIGH) - 1  # that a thread counts
PLANES = _LOW + _HIGH + 7  # bits of the counters of a block of 2 ** 7 threads
_CELLS = PLANES * THREADS

_NONE, _ONE, _TWO, _FIVE = (np.uint32(number) for number in (0, 1, 2, 5))
_LAST_OF_WORD = np.uint32(WORD - 1)


@literal
def _three(a, b, c):
    """The sums of three bits in 32 places: their low bits, and what is carried."""
    odd = np.uint32(a ^ b)
    return np.uint32(odd ^ c), np.uint32(np.uint32(a & b) | np.uint32(odd & c))


@literal
def _plus_eight(ones, twos, fours, words):
    """Counters of three bits in 32 places, with eight words added, and what is carried."""
    ones, a = _three(ones, words[0], words[1])
    ones, b = _three(ones, words[2], words[3])
    twos, c = _three(twos, a, b)
    ones, a = _three(ones, words[4], words[5])
    ones, b = _three(ones, words[6], words[7])
    twos, d = _three(twos, a, b)
    fours, carry = _three(fours, c, d)
    return ones, twos, fours, carry


@entry
def count_words(
    snapshots, first_row, step, terms, pieces, words, tiles, shift, chains, record, sums
):
    """Count the ones of snapshots[row, place and word], one bit per chain, for several records.

    A term is the number of its place, or its complement where a 0 is wanted; without terms, all
    places are counted. Row `first_row` is record number `record`, the next one is `step` rows
    on; blocks go along all pieces and tiles of a row, then along those of the next. Of the threads
    of a block, each `2 ** shift` have neighboring words. All counters are bits
    of words, from a thread's own to those of the block.
    """
    planes = cuda.shared.array(_CELLS, np.uint32)
    thread, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    across, by = np.uint32(1 << shift), np.uint32(shift)
    piece = np.uint32(np.uint32(cuda.blockIdx.x) // np.uint32(tiles))
    tile = np.uint32(np.uint32(cuda.blockIdx.x) - piece * np.uint32(tiles))
    row = np.uint32(piece // np.uint32(len(pieces)))
    piece = np.uint32(piece - row * np.uint32(len(pieces)))
    snapshot = snapshots[first_row + step * np.int64(row)]
    w = np.int64(tile * across + (thread & np.uint32(across - _ONE)))
    k, end = np.int64(pieces[piece, 0]) + np.int64(thread >> by), np.int64(pieces[piece, 1])
    rows = np.int64(threads >> by)
    ones, twos, fours = _NONE, _NONE, _NONE
    high, near = cuda.local.array(_HIGH, np.uint32), cuda.local.array(EIGHT, np.uint32)
    spots, flips = cuda.local.array(EIGHT, np.int64), cuda.local.array(EIGHT, np.uint32)
    for plane in range(_HIGH):
        high[plane] = _NONE
    while w < words and k < end:
        for j in range(EIGHT):
            spots[j], flips[j] = min(k + j * rows, end - 1), _NONE
        if len(terms):
            for j in range(EIGHT):
                place = np.int64(terms[np.uint64(spots[j])])
                sign = place >> 63
                spots[j], flips[j] = place ^ sign, np.uint32(sign)
        for j in range(EIGHT):  # distant values are loaded together
            near[j] = snapshot[np.uint64(spots[j] * words + w)]
        for j in range(EIGHT):
            near[j] = np.uint32(near[j] ^ flips[j]) if k + j * rows < end else _NONE
        k += EIGHT * rows
        ones, twos, fours, carry = _plus_eight(ones, twos, fours, near)
        for plane in range(_HIGH):
            old = high[plane]
            high[plane] = np.uint32(old ^ carry)
            carry = np.uint32(old & carry)
    planes[thread] = ones
    planes[threads + thread] = twos
    planes[_TWO * threads + thread] = fours
    for plane in range(_HIGH):
        planes[np.uint32(_LOW + plane) * threads + thread] = high[plane]
    for plane in range(_LOW + _HIGH, PLANES):
        planes[np.uint32(plane) * threads + thread] = _NONE
    half = np.uint32(threads >> _ONE)
    while half >= across:
        cuda.syncthreads()
        if thread < half:
            carry = _NONE
            for plane in range(PLANES):
                cell = np.uint32(np.uint32(plane) * threads + thread)
                total, carry = _three(planes[cell], planes[cell + half], carry)
                planes[cell] = total
        half = np.uint32(half >> _ONE)
    cuda.syncthreads()
    lane = thread
    while lane < across * np.uint32(WORD):
        chain, total = np.int64(tile * across) * WORD + np.int64(lane), _NONE
        if chain < chains:
            for plane in range(PLANES):
                cell = np.uint32(np.uint32(plane) * threads + np.uint32(lane >> _FIVE))
                bit = np.uint32(np.uint32(planes[cell] >> np.uint32(lane & _LAST_OF_WORD)) & _ONE)
                total = np.uint32(total | np.uint32(bit << np.uint32(plane)))
            place = (record + np.int64(row), pieces[piece, 2], chain)
            cuda.atomic.add(sums, place, np.int32(total))
        lane = np.uint32(lane + threads)


@entry
def count_values(x, variables, wanted, pieces, tiles, shift, record, sums):
    """Count the variables of x[variable, chain] that have the values wanted of them.

    Of the threads of a block, each `2 ** shift` have neighboring chains.
    """
    counts = cuda.shared.array(THREADS, np.int32)
    thread, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    across, by = np.uint32(1 << shift), np.uint32(shift)
    piece = np.uint32(np.uint32(cuda.blockIdx.x) // np.uint32(tiles))
    tile = np.uint32(np.uint32(cuda.blockIdx.x) - piece * np.uint32(tiles))
    chain = np.int64(tile * across + (thread & np.uint32(across - _ONE)))
    k, end = np.int64(pieces[piece, 0]) + np.int64(thread >> by), np.int64(pieces[piece, 1])
    total = np.int32(0)
    while chain < x.shape[1] and k < end:
        here = np.int64(x[np.uint64(variables[np.uint64(k)]), np.uint64(chain)])
        total = np.int32(total + np.int32(here == wanted[np.uint64(k)]))
        k += np.int64(threads >> by)
    counts[thread] = total
    half = np.uint32(threads >> _ONE)
    while half >= across:
        cuda.syncthreads()
        if thread < half:
            counts[thread] += counts[thread + half]
        half = np.uint32(half >> _ONE)
    if thread < across and chain < x.shape[1]:
        cuda.atomic.add(sums, (record, pieces[piece, 2], chain), counts[thread])


@entry
def begin_sums(constants, sums):
    """Let sums begin with what never changes: [record, sum, chain]."""
    chain, row = cuda.grid(2)
    if chain < sums.shape[2]:
        for k in range(row, sums.shape[0] * sums.shape[1], cuda.gridsize(2)[1]):
            which = k % sums.shape[1]
            sums[k // sums.shape[1], which, chain] = constants[which]


@lru_cache(maxsize=64)
def sums_kernel(function):
    """A kernel that evaluates a function of sums for some records and all chains.

    Of sums[record, sum, chain] it takes those from number `first` up to `end`, to
    values[record, number, chain].
    """

    @entry
    def observe_sums(parameters, sums, first, end, records, values):
        chain, row = cuda.grid(2)
        if chain < sums.shape[2]:
            for record in range(row, records, cuda.gridsize(2)[1]):
                function(sums[record, first:end, chain], parameters, values[record, :, chain])

    return observe_sums
