"""Bit-sliced arithmetic on 512 bits at once: bit p of 512 small counts is stored in plane p.

A row of words [8 * k] holds one bit per lane. All functions read and write eight words as one
vector. Offsets count words. CPU only.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

WORDS = 8  # words of 64 bits per vector
CHANCE_BITS = 16  # probabilities are multiples of 2^-16
SUM_PLANES = 4  # planes of a sum of up to 15 bits
_BEND = (0.43807325, -0.23669342, 0.0803073)  # (log2(1 + m) - m) / (m (1 - m)), least squares
_VECTOR = ir.VectorType(ir.IntType(64), WORDS)
_ZEROS, _ONES = ir.Constant(_VECTOR, [0] * WORDS), ir.Constant(_VECTOR, [-1] * WORDS)
_INDEX = types.int64


def planes_of(halves: Any) -> int:
    """Return the number of planes of counts up to twice the length of a tuple."""
    return (2 * len(halves)).bit_length()


def _at(context: Any, builder: Any, kind: Any, array: Any, offset: Any, step: int = 0) -> Any:
    """Return a pointer to eight words at an offset, plus a number of bytes."""
    data = context.make_array(kind)(context, builder, array).data
    if isinstance(offset, int):
        offset = context.get_constant(types.intp, offset)
    pointer = builder.gep(data, [offset])
    if step:
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        pointer = builder.gep(pointer, [context.get_constant(types.intp, step)])
    return builder.bitcast(pointer, _VECTOR.as_pointer())


def _load(builder: Any, pointer: Any, align: int = 8) -> Any:
    return builder.load(pointer, align=align)


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, pointer, align=8)


def _majority(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return builder.or_(builder.and_(x, y), builder.and_(z, builder.or_(x, y)))


def _shifted(builder: Any, value: Any, left: int) -> Any:
    """Shift words to the left, or to the right by a negative number."""
    by = ir.Constant(_VECTOR, [abs(left)] * WORDS)
    return builder.shl(value, by) if left > 0 else builder.lshr(value, by)


def _rotated(builder: Any, value: Any, left: int) -> Any:
    return builder.or_(_shifted(builder, value, left), _shifted(builder, value, left - 64))


def _random(builder: Any, s0: Any, s1: Any) -> tuple[Any, Any, Any]:
    """Return eight random words and the next state: xoroshiro128++ of Blackman and Vigna."""
    word = builder.add(_rotated(builder, builder.add(s0, s1), 17), s0)
    s1 = builder.xor(s0, s1)
    mixed = builder.xor(_rotated(builder, s0, 49), s1)
    return word, builder.xor(mixed, _shifted(builder, s1, 21)), _rotated(builder, s1, 28)


@intrinsic
def add_unlike(context, planes, x, i, j, flip, halves):  # type: ignore[no-untyped-def]
    """Add 1 to the counts of lanes where x[i] differs from x[j], or agrees if `flip` is all ones.

    There are as many planes as counts up to twice the length of the tuple `halves` need.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        own, array, *offsets, given, _ = arguments
        one, other = (_load(builder, _at(context, builder, x, array, k)) for k in offsets)
        first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), given, ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), WORDS), [0] * WORDS)
        every = builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), places)
        bit = builder.xor(builder.xor(one, other), every)
        for p in range(planes_of(halves)):
            pointer = _at(context, builder, planes, own, WORDS * p)
            old = _load(builder, pointer)
            _store(builder, builder.xor(old, bit), pointer)
            bit = builder.and_(old, bit)
        return context.get_dummy_value()

    return types.void(planes, x, _INDEX, _INDEX, types.uint64, halves), generate


@intrinsic
def add_counts(context, planes, total, first, width, length):  # type: ignore[no-untyped-def]
    """Add counts below 16 to the sums `total` [plane, width] at column `first`; clear the counts.

    The sums have as many planes as the tuple `length` has entries.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        own, sums, column, across, _ = arguments
        carry = _ZEROS
        for p in range(len(length)):
            row = builder.mul(across, context.get_constant(types.intp, p))
            pointer = _at(context, builder, total, sums, builder.add(column, row))
            old, more = _load(builder, pointer), _ZEROS
            if p < SUM_PLANES:
                few = _at(context, builder, planes, own, WORDS * p)
                more = _load(builder, few)
                _store(builder, _ZEROS, few)
            _store(builder, builder.xor(builder.xor(old, more), carry), pointer)
            carry = _majority(builder, old, more, carry)
        return context.get_dummy_value()

    return types.void(planes, total, _INDEX, _INDEX, length), generate


def _where(builder: Any, planes: list[Any], count: int) -> Any:
    """Return the lanes with a count."""
    found = _ONES
    for p, plane in enumerate(planes):
        found = builder.and_(found, plane if count >> p & 1 else builder.not_(plane))
    return found


@intrinsic
def flip_by_chance(context, x, i, planes, chances, row, step, streams, column, width, halves):  # type: ignore[no-untyped-def]
    """Flip the bits of x[i] where a random number is below the chance of the lane's count.

    With `halves` of length H, count h < H is compared with the chance in the 16 rows of `chances`
    from `row - h * step`, least significant bits first. Higher counts always flip. `streams` has
    two words of a generator per column, `width` apart.
    """
    half = len(halves)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        states, place, own, table, line, stride, words, first, across, _ = arguments
        counts = [
            _load(builder, _at(context, builder, planes, own, WORDS * p))
            for p in range(planes_of(halves))
        ]
        pointers = [
            _at(context, builder, streams, words, offset)
            for offset in (first, builder.add(first, across))
        ]
        s0, s1 = (_load(builder, pointer) for pointer in pointers)
        below = [_ZEROS] * half
        for k in range(CHANCE_BITS):
            word, s0, s1 = _random(builder, s0, s1)
            bits = builder.add(line, builder.mul(across, context.get_constant(types.intp, k)))
            for h in range(half):
                bit = _load(builder, _at(context, builder, chances, table, bits))
                below[h] = _majority(builder, word, below[h], bit)
                bits = builder.sub(bits, stride)
        for value, pointer in zip((s0, s1), pointers, strict=True):
            _store(builder, value, pointer)
        change = _ONES
        for h in range(half):
            mine = _where(builder, counts, h)
            change = builder.and_(change, builder.or_(builder.not_(mine), below[h]))
        here = _at(context, builder, x, states, place)
        _store(builder, builder.xor(_load(builder, here), change), here)
        return context.get_dummy_value()

    sizes = (_INDEX, planes, chances, _INDEX, _INDEX, streams, _INDEX, _INDEX, halves)
    return types.void(x, *sizes), generate


def _log_2(builder: Any, word: Any) -> Any:
    """Return log2(u) to 1.5e-4 for 16 numbers u on [0, 1), of 31 bits each.

    The exponent is exact, and a polynomial approximates log2(1 + m) - m for the mantissa m.
    """
    whole, single = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.FloatType(), 16)

    def every(value: float) -> Any:
        return ir.Constant(single, [value] * 16)

    bits = builder.lshr(builder.bitcast(word, whole), ir.Constant(whole, [1] * 16))
    bits = builder.bitcast(builder.sitofp(bits, single), whole)
    line = builder.fmul(builder.sitofp(bits, single), every(2.0**-23))
    part = builder.and_(bits, ir.Constant(whole, [(1 << 23) - 1] * 16))
    m = builder.fmul(builder.sitofp(part, single), every(2.0**-23))
    bend = every(_BEND[-1])
    for coefficient in _BEND[-2::-1]:
        bend = builder.fadd(builder.fmul(bend, m), every(coefficient))
    bend = builder.fmul(bend, builder.fmul(m, builder.fsub(every(1.0), m)))
    return builder.fadd(builder.fsub(line, every(127.0 + 31.0)), bend)


@intrinsic
def random_logs(context, streams, column, width, logs):  # type: ignore[no-untyped-def]
    """Store log2(u) for a uniform u of each of 64 lanes, from the generator of a column."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        words, first, across, out = arguments
        pointers = [
            _at(context, builder, streams, words, offset)
            for offset in (first, builder.add(first, across))
        ]
        s0, s1 = (_load(builder, pointer) for pointer in pointers)
        for k in range(4):
            word, s0, s1 = _random(builder, s0, s1)
            value = builder.bitcast(_log_2(builder, word), _VECTOR)
            _store(builder, value, _at(context, builder, logs, out, 2 * WORDS * k))
        for value, pointer in zip((s0, s1), pointers, strict=True):
            _store(builder, value, pointer)
        return context.get_dummy_value()

    return types.void(streams, _INDEX, _INDEX, logs), generate


@intrinsic
def join(context, near, x, i):  # type: ignore[no-untyped-def]
    """Add the bits of x[i] to those of the eight words `near`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        own, array, offset = arguments
        pointer = _at(context, builder, near, own, 0)
        more = _load(builder, _at(context, builder, x, array, offset))
        _store(builder, builder.or_(_load(builder, pointer), more), pointer)
        return context.get_dummy_value()

    return types.void(near, x, _INDEX), generate


@intrinsic
def grow(context, near, inside, cluster, i, grown):  # type: ignore[no-untyped-def]
    """Add the bits that are in `near` and in inside[i] to cluster[i]; clear `near`.

    New bits are noted in the eight words `grown`.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        own, within, array, offset, noted = arguments
        pointer = _at(context, builder, near, own, 0)
        here = _at(context, builder, cluster, array, offset)
        changes = _at(context, builder, grown, noted, 0)
        old = _load(builder, here)
        allowed = _load(builder, _at(context, builder, inside, within, offset))
        new = builder.and_(builder.and_(_load(builder, pointer), allowed), builder.not_(old))
        _store(builder, builder.or_(old, new), here)
        _store(builder, builder.or_(_load(builder, changes), new), changes)
        _store(builder, _ZEROS, pointer)
        return context.get_dummy_value()

    return types.void(near, inside, cluster, _INDEX, grown), generate


@intrinsic
def unlike_next(context, out, k, x, i, mask, column, example):  # type: ignore[no-untyped-def]
    """Store at out[k] where the elements of x[i] differ from the next ones, within a mask.

    Elements are numbers of the type of `example`.
    """
    step = example.bitwidth // 8

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        result, where, array, offset, chosen, first, _ = arguments
        here = _load(builder, _at(context, builder, x, array, offset))
        after = _load(builder, _at(context, builder, x, array, offset, step), align=1)
        allowed = _load(builder, _at(context, builder, mask, chosen, first))
        found = builder.and_(builder.xor(here, after), allowed)
        _store(builder, found, _at(context, builder, out, result, where))
        return context.get_dummy_value()

    return types.void(out, _INDEX, x, _INDEX, mask, _INDEX, example), generate


@intrinsic
def flip_both(context, x, i, change, k, example):  # type: ignore[no-untyped-def]
    """Flip the bits change[k] of x[i], and the same bits of the elements after them.

    The element before change[k] is read as well.
    """
    step = example.bitwidth // 8

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, offset, changes, where, _ = arguments
        pointer = _at(context, builder, x, array, offset)
        low = _load(builder, _at(context, builder, change, changes, where))
        high = _load(builder, _at(context, builder, change, changes, where, -step), align=1)
        flips = builder.xor(low, high)
        _store(builder, builder.xor(_load(builder, pointer), flips), pointer)
        return context.get_dummy_value()

    return types.void(x, _INDEX, change, _INDEX, example), generate
