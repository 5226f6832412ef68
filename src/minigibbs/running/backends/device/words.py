"""Intrinsics of GPU kernels: vector loads, bit casts and the device's fast functions.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _load(space, count):
    """Return code generation for a load of `count` consecutive words from an address space."""

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
    """Load words 2 * pair and 2 * pair + 1 of an array in global memory by one instruction."""
    return types.UniTuple(types.uint32, 2)(words, types.uint64), _TWO_GLOBAL


@intrinsic
def far_four(context, words, quad):
    """Load words 4 * quad, ..., 4 * quad + 3 of an array in global memory by one instruction."""
    return types.UniTuple(types.uint32, 4)(words, types.uint64), _FOUR_GLOBAL


@intrinsic
def near_four(context, words, quad):
    """Load words 4 * quad, ..., 4 * quad + 3 of an array in shared memory by one instruction."""
    return types.UniTuple(types.uint32, 4)(words, types.uint32), _FOUR_SHARED


def _instruction(name):
    """Return code generation for a device instruction that maps a float to a float."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        return builder.call(ir.InlineAsm(kind, f"{name} $0, $1;", "=f,f"), arguments)

    return generate


@intrinsic
def quick_power_of_2(context, value):
    """Compute 2**value by the device's own instruction, to 2**-22."""
    return types.float32(types.float32), _instruction("ex2.approx.ftz.f32")


@intrinsic
def quick_root(context, value):
    """Compute the square root by the device's own instruction, to 2**-22."""
    return types.float32(types.float32), _instruction("sqrt.approx.ftz.f32")


@intrinsic
def multiprocessor(context):
    """Return the index of the multiprocessor that runs this block of threads."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        return builder.call(ir.InlineAsm(kind, "mov.u32 $0, %smid;", "=r", side_effect=True), [])

    return types.uint32(), generate


@intrinsic
def as_word(context, value):
    """Return the bits of a float as a word."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def as_long_double(context, low, high):
    """Return the double whose bits are two words."""

    def generate(context, builder, signature, arguments):
        long = ir.IntType(64)
        low, high = (builder.zext(word, long) for word in arguments)
        return builder.bitcast(
            builder.or_(low, builder.shl(high, ir.Constant(long, 32))), ir.DoubleType()
        )

    return types.float64(types.uint32, types.uint32), generate
