"""Vectorizable operations for loops over lanes, where library calls cannot be vectorized."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from minigibbs.kernels.jit import inlined

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(0x3FF0000000000000)  # the bits of 1.0
_S12, _S27, _S30, _S31, _S52 = (np.uint64(s) for s in (12, 27, 30, 31, 52))

VECTOR = 16  # lanes of a vector
FULL = (0,) * 4  # 64 lanes: the length of a tuple is part of its type, so loops have constant ends

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_LARGEST = 700.0


@intrinsic
def as_double(context, word):  # type: ignore[no-untyped-def]
    """Return the double with the bits of a word."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@intrinsic
def word_of(context, number):  # type: ignore[no-untyped-def]
    """Return the bits of a double as an integer."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def as_float(context, word):  # type: ignore[no-untyped-def]
    """Return the float with the bits of a 32-bit word."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic(prefer_literal=True)
def lanes_of(context, size, example):  # type: ignore[no-untyped-def]
    """Allocate an array on the stack, of a constant size and the example's type; CPU only.

    The compiler can assume that it does not alias other arrays, and keeps it in registers if
    possible.
    """
    kind = types.Array(example, 1, "C")

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        value = context.get_value_type(example)
        buffer = cgutils.alloca_once(builder, ir.ArrayType(value, size.literal_value))
        buffer.align = 64
        length = context.get_constant(types.intp, size.literal_value)
        width = context.get_constant(types.intp, context.get_abi_sizeof(value))
        array = context.make_array(kind)(context, builder)
        data = builder.bitcast(buffer, value.as_pointer())
        populate_array(array, data, [length], [width], width, None)
        return array._getvalue()

    return kind(size, example), generate


@intrinsic
def fetch(context, array, place, line):  # type: ignore[no-untyped-def]
    """Prefetch a cache line of 64 bytes, `line` lines after array[place].

    The address may be outside the array, or useless: nothing is read. On CUDA this does nothing.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        if isinstance(context, CPUContext):
            view, byte = context.make_array(array)(context, builder, arguments[0]), ir.IntType(8)
            stride = cgutils.unpack_tuple(builder, view.strides)[0]
            ahead = builder.mul(arguments[2], context.get_constant(types.intp, 64))
            far = builder.add(builder.mul(arguments[1], stride), ahead)
            address = builder.gep(builder.bitcast(view.data, byte.as_pointer()), [far])
            word = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), word, word, word])
            name = "llvm.prefetch.p0"
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(function, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def squared_steps(context, rows, i, j, first):  # type: ignore[no-untyped-def]
    """Compute the squared distance of two rows of floats in seven columns from `first`; a double.

    Eight columns are read as one vector.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        view = context.make_array(rows)(context, builder, arguments[0])
        width = cgutils.unpack_tuple(builder, view.shape)[1]
        floats, doubles = (ir.VectorType(kind, 8) for kind in (ir.FloatType(), ir.DoubleType()))
        wide = []
        for row in arguments[1:3]:
            place = builder.add(builder.mul(row, width), arguments[3])
            pointer = builder.bitcast(builder.gep(view.data, [place]), floats.as_pointer())
            wide.append(builder.fpext(builder.load(pointer, align=4), doubles))
        step = builder.fsub(*wide)
        counted = ir.Constant(ir.VectorType(ir.IntType(1), 8), [1] * 7 + [0])
        squares = builder.select(counted, builder.fmul(step, step), ir.Constant(doubles, [0.0] * 8))
        for half in (4, 2, 1):
            index = ir.VectorType(ir.IntType(32), half)
            low = ir.Constant(index, list(range(half)))
            high = ir.Constant(index, list(range(half, 2 * half)))
            squares = builder.fadd(
                builder.shuffle_vector(squares, squares, low),
                builder.shuffle_vector(squares, squares, high),
            )
        return builder.extract_element(squares, ir.IntType(32)(0))

    return types.float64(rows, types.uint64, types.uint64, types.uint64), generate


def _vector(context, builder, kind, array, value, width=64):  # type: ignore[no-untyped-def]
    """Return a pointer to an array's first numbers as one vector, aligned like its numbers."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(data, ir.VectorType(value, width).as_pointer())


def _mask(builder, word, width=64):  # type: ignore[no-untyped-def]
    mask = builder.bitcast(word, ir.VectorType(ir.IntType(1), 64))
    if width == 64:
        return mask
    places = ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(width)))
    return builder.shuffle_vector(mask, ir.Constant(mask.type, ir.Undefined), places)


def _word(builder, mask, width):  # type: ignore[no-untyped-def]
    """Return a mask of 64 bits as a word, with zeros after the first `width` bits."""
    word = builder.bitcast(mask, ir.IntType(64))
    return word if width == 64 else builder.and_(word, ir.Constant(word.type, (1 << width) - 1))


def _load(builder, pointer, size):  # type: ignore[no-untyped-def]
    return builder.load(pointer, align=size)


@intrinsic
def add_where(context, word, field, weight, vectors):  # type: ignore[no-untyped-def]
    """Add a weight to each of the first numbers whose bit in a 64-bit word is 1.

    Numbers and weight have one type: floats or integers. There are 16 numbers per entry of the
    tuple `vectors`, such as `FULL`.
    """
    size, width = weight.bitwidth // 8, VECTOR * len(vectors)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        value = context.get_value_type(weight)
        pointer = _vector(context, builder, field, arguments[1], value, width)
        whole = ir.VectorType(value, width)
        first = builder.insert_element(
            ir.Constant(whole, ir.Undefined), arguments[2], ir.IntType(32)(0)
        )
        places = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
        weights = builder.shuffle_vector(first, ir.Constant(whole, ir.Undefined), places)
        old = _load(builder, pointer, size)
        add = builder.add if isinstance(weight, types.Integer) else builder.fadd
        new = builder.select(_mask(builder, arguments[0], width), add(old, weights), old)
        builder.store(new, pointer, align=size)
        return context.get_dummy_value()

    return types.void(types.uint64, field, weight, vectors), generate


@intrinsic
def add_looked_up(context, places, field, table, start, vectors):  # type: ignore[no-untyped-def]
    """Add table[start + places[lane]] to 16 floats per entry of `vectors`.

    `places` are bytes below 16. Sixteen numbers are always read from `start`.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        sixteen = ir.VectorType(ir.FloatType(), 16)
        wide = ir.VectorType(ir.IntType(32), 16)
        data = context.make_array(table)(context, builder, arguments[2]).data
        row = builder.bitcast(builder.gep(data, [arguments[3]]), sixteen.as_pointer())
        values = builder.load(row, align=4)
        bytes_ = context.make_array(places)(context, builder, arguments[0]).data
        floats = context.make_array(field)(context, builder, arguments[1]).data
        for first in range(0, VECTOR * len(vectors), VECTOR):
            where = [context.get_constant(types.intp, first)]
            index = builder.bitcast(
                builder.gep(bytes_, where), ir.VectorType(ir.IntType(8), 16).as_pointer()
            )
            index = builder.zext(builder.load(index, align=1), wide)
            pointer = builder.bitcast(builder.gep(floats, where), sixteen.as_pointer())
            found = _look_up(context, builder, values, index)
            builder.store(builder.fadd(builder.load(pointer, align=4), found), pointer, align=4)
        return context.get_dummy_value()

    return types.void(places, field, table, types.uint64, vectors), generate


def _look_up(context, builder, values, index):  # type: ignore[no-untyped-def]
    """Select sixteen of sixteen numbers by index: one instruction if the processor has AVX-512."""
    sixteen, wide = values.type, index.type
    if "+avx512f" in context.codegen()._tm_features:
        kind = ir.FunctionType(sixteen, [sixteen, wide])
        name = "llvm.x86.avx512.permvar.sf.512"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [values, index])
    found = ir.Constant(sixteen, [0.0] * 16)
    for place in range(16):
        same = builder.icmp_unsigned("==", index, ir.Constant(wide, [place] * 16))
        every = builder.shuffle_vector(values, values, ir.Constant(wide, [place] * 16))
        found = builder.select(same, every, found)
    return found


@intrinsic
def count_where(context, word, counts):  # type: ignore[no-untyped-def]
    """Add 1 to each of 64 bytes whose bit in a 64-bit word is 1."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        byte = ir.IntType(8)
        pointer = _vector(context, builder, counts, arguments[1], byte)
        ones = builder.zext(_mask(builder, arguments[0]), ir.VectorType(byte, 64))
        builder.store(builder.add(_load(builder, pointer, 1), ones), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, counts), generate


@intrinsic
def equal_bits(context, values, value, vectors):  # type: ignore[no-untyped-def]
    """Return the 64-bit word with a 1 for each byte that equals a byte, or that of another array.

    There are 16 bytes per entry of `vectors`; other bits are 0. All 64 bytes are read.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        byte = ir.IntType(8)
        if isinstance(value, types.Array):
            same = _load(builder, _vector(context, builder, value, arguments[1], byte), 1)
        else:
            undefined = ir.Constant(ir.VectorType(byte, 64), ir.Undefined)
            first = builder.insert_element(undefined, arguments[1], ir.IntType(32)(0))
            places = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
            same = builder.shuffle_vector(first, undefined, places)
        pointer = _vector(context, builder, values, arguments[0], byte)
        equal = builder.icmp_unsigned("==", _load(builder, pointer, 1), same)
        return _word(builder, equal, VECTOR * len(vectors))

    return types.uint64(values, value, vectors), generate


@intrinsic
def bits_of(context, values, vectors):  # type: ignore[no-untyped-def]
    """Return the 64-bit word with a 1 for each byte that is not 0, as `equal_bits` does."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        byte = ir.IntType(8)
        pointer = _vector(context, builder, values, arguments[0], byte)
        zeros = ir.Constant(ir.VectorType(byte, 64), [0] * 64)
        ones = builder.icmp_unsigned("!=", _load(builder, pointer, 1), zeros)
        return _word(builder, ones, VECTOR * len(vectors))

    return types.uint64(values, vectors), generate


@intrinsic
def fused(context, a, b, c):  # type: ignore[no-untyped-def]
    """Compute the float a * b + c, rounded once, on every device."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def any_bits(context, word, mask):  # type: ignore[no-untyped-def]
    """Return whether 32-bit words have common ones; Numba's own `&` would use 64 bits."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        both = builder.and_(*arguments)
        return builder.icmp_unsigned("!=", both, ir.Constant(both.type, 0))

    return types.boolean(types.uint32, types.uint32), generate


@intrinsic
def right(context, word, by):  # type: ignore[no-untyped-def]
    """Shift a 32-bit word right in 32 bits; see `any_bits`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.lshr(*arguments)

    return types.uint32(types.uint32, types.uint32), generate


@intrinsic
def floored(context, value):  # type: ignore[no-untyped-def]
    """Round a float down to an integer; NumPy's function is not available on GPUs."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.FloatType()
        floor = builder.module.declare_intrinsic("llvm.floor", [kind])
        return builder.call(floor, arguments)

    return types.float32(types.float32), generate


@inlined
def counted(key, count):
    """Return a double uniform on [0, 1): output number `count` of splitmix64 with this key.

    It is a multiple of 2**-52.
    """
    z = key + np.uint64(count) * _STEP
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return as_double(((z ^ (z >> _S31)) >> _S12) | _ONE) - 1.0


@inlined
def exponential(z):
    """Compute exp(z) to 13 digits; z is clipped to [-700, 700]."""
    z = min(max(z, -_LARGEST), _LARGEST)
    whole = np.floor(z * _LOG2_E + 0.5)
    r = (z - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * as_double(np.uint64(np.int64(whole) + 1023) << _S52)
