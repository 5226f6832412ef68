"""Pieces of loops over lanes: what the compiler can vectorise, where library calls cannot be."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigibbs.kernels.jit import inlined

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(0x3FF0000000000000)  # the bits of 1.0
_S12, _S27, _S30, _S31, _S52 = (np.uint64(s) for s in (12, 27, 30, 31, 52))

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_LARGEST = 700.0


@intrinsic
def _as_double(context, word):  # type: ignore[no-untyped-def]
    """The double whose bits are those of a word."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@intrinsic
def as_float(context, word):  # type: ignore[no-untyped-def]
    """The float whose bits are those of a 32-bit word."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def fused(context, a, b, c):  # type: ignore[no-untyped-def]
    """a * b + c of floats, rounded once, on every device."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def any_bits(context, word, mask):  # type: ignore[no-untyped-def]
    """Whether 32-bit words have ones in common; Numba's own `&` would be one of 64 bits."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        both = builder.and_(*arguments)
        return builder.icmp_unsigned("!=", both, ir.Constant(both.type, 0))

    return types.boolean(types.uint32, types.uint32), generate


@intrinsic
def right(context, word, by):  # type: ignore[no-untyped-def]
    """A 32-bit word, shifted right; as one of 32 bits, see `any_bits`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.lshr(*arguments)

    return types.uint32(types.uint32, types.uint32), generate


@intrinsic
def floored(context, value):  # type: ignore[no-untyped-def]
    """The largest whole number below a float, or that float; NumPy's is not there on GPUs."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.FloatType()
        floor = builder.module.declare_intrinsic("llvm.floor", [kind])
        return builder.call(floor, arguments)

    return types.float32(types.float32), generate


@inlined
def counted(key, count):
    """A double uniform on [0, 1): output number `count` of splitmix64 with this key.

    A multiple of 2**-52.
    """
    z = key + np.uint64(count) * _STEP
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return _as_double(((z ^ (z >> _S31)) >> _S12) | _ONE) - 1.0


@inlined
def exponential(z):
    """exp(z) to 13 digits; beyond 700 either way, that of 700."""
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
    return p * _as_double(np.uint64(np.int64(whole) + 1023) << _S52)
