"""Words on a GPU: several loaded at a time, taken as other numbers, and the device's own functions.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _load(space, count):
    """An intrinsic that loads a fixed number of words at a time from one of the address spaces."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        several = ir.VectorType(ir.IntType(32), count)
        start = array.data
        if start.type.addrspace != space:
            start = builder.addrspacecast(start, ir.PointerType(ir.IntType(32), space))
        pointer = builder.bitcast(start, ir.PointerType(several, space))
        words = builder.load(builder.gep(pointer, [arguments[1]]), align=4 * count)
        parts = [builder.extract_element(words, ir.IntType(32)(k)) for k in range(count)]
        return context.make_tuple(builder, signature.return_type, parts)

    return generate


_TWO_GLOBAL, _FOUR_GLOBAL, _FOUR_SHARED = _load(1, 2), _load(1, 4), _load(3, 4)


@intrinsic
def far_two(context, words, pair):
    """Words 2 * pair and 2 * pair + 1 of an array in global memory, in one load."""
    return types.UniTuple(types.uint32, 2)(words, types.uint64), _TWO_GLOBAL


@intrinsic
def far_four(context, words, quad):
    """Words 4 * quad, ..., 4 * quad + 3 of an array in global memory, in one load."""
    return types.UniTuple(types.uint32, 4)(words, types.uint64), _FOUR_GLOBAL


@intrinsic
def near_four(context, words, quad):
    """The same of an array in shared memory."""
    return types.UniTuple(types.uint32, 4)(words, types.uint32), _FOUR_SHARED


def _instruction(name):
    """What one of the device's instructions makes of a float."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        return builder.call(ir.InlineAsm(kind, f"{name} $0, $1;", "=f,f"), arguments)

    return generate


@intrinsic
def quick_power_of_2(context, value):
    """2**value by the device's own instruction, to 2**-22."""
    return types.float32(types.float32), _instruction("ex2.approx.ftz.f32")


@intrinsic
def quick_root(context, value):
    """The square root by the device's own instruction, to 2**-22."""
    return types.float32(types.float32), _instruction("sqrt.approx.ftz.f32")


@intrinsic
def multiprocessor(context):
    """The number of the one that a block of threads runs on."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        return builder.call(ir.InlineAsm(kind, "mov.u32 $0, %smid;", "=r", side_effect=True), [])

    return types.uint32(), generate


@intrinsic
def as_word(context, value):
    """The bits of a float."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def as_long_double(context, low, high):
    """The double of two words."""

    def generate(context, builder, signature, arguments):
        long = ir.IntType(64)
        low, high = (builder.zext(word, long) for word in arguments)
        return builder.bitcast(
            builder.or_(low, builder.shl(high, ir.Constant(long, 32))), ir.DoubleType()
        )

    return types.float64(types.uint32, types.uint32), generate
