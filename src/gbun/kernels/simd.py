"""Vectors of eight lanes as Numba values: kernels name the registers that they use.

    a = load(array, i)              eight neighbours, float32 or uint32; of float64, four
    a = fma(splat(x), b, a)         x b + a in one rounding, on every machine
    a + b, a - b, a * b, h ^ h >> np.uint32(15), ...       lane by lane; a scalar on the right counts for all lanes
    store(array, i, a)

Without them the compiler checks before each inner loop whether its arrays overlap, and keeps sums in memory: for 64
outputs that is two thirds of the time. Where the registers of a machine are narrower, LLVM takes two for one.

`load` and `store` count elements from the first of the array, and check no bounds. On processors without fused
multiply-adds (before 2013) results are the same, but slow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model
from numba.np import arrayobj

intrinsic: Any = extending.intrinsic  # its stub describes the builder's arguments, not the caller's

LANES = 8
I32 = ir.IntType(32)


class Lanes(types.Type):
    """The type of a vector."""

    def __init__(self, element: Any, llvm: Any, count: int) -> None:
        super().__init__(name=f"{element}x{count}")
        self.element, self.llvm, self.count = element, ir.VectorType(llvm, count), count


FLOATS = Lanes(types.float32, ir.FloatType(), LANES)
WORDS = Lanes(types.uint32, I32, LANES)
DOUBLES = Lanes(types.float64, ir.DoubleType(), LANES // 2)  # half as many, so that they fill the same registers
BY_ELEMENT = {kind.element: kind for kind in (FLOATS, WORDS, DOUBLES)}


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, kind.llvm)


def _splat(builder: Any, kind: Lanes, value: Any) -> Any:
    undefined = ir.Constant(kind.llvm, ir.Undefined)
    first = builder.insert_element(undefined, value, I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


def _operator(symbol: Any, of_floats: str | None, of_words: str | None) -> None:
    """Define `symbol` between vectors, and between a vector and a scalar."""

    @infer_global(symbol)
    class Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            kind, other = args
            if isinstance(kind, Lanes) and (other == kind or isinstance(other, types.Number)):
                return signature(kind, kind, other if other == kind else kind.element)
            return None

    def build(builder: Any, kind: Lanes, left: Any, right: Any) -> Any:
        name = of_words if kind is WORDS else of_floats
        assert name is not None, f"{symbol.__name__} has no meaning for {kind}"
        return getattr(builder, name)(left, right)

    @lower_builtin(symbol, Lanes, Lanes)
    def vectors(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return build(builder, sig.return_type, *args)

    @lower_builtin(symbol, Lanes, types.Number)
    def with_scalar(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        return build(builder, kind, args[0], _splat(builder, kind, args[1]))


_operator(operator.add, "fadd", "add")
_operator(operator.sub, "fsub", "sub")
_operator(operator.mul, "fmul", "mul")
_operator(operator.truediv, "fdiv", None)
_operator(operator.xor, None, "xor")
_operator(operator.or_, None, "or_")
_operator(operator.lshift, None, "shl")
_operator(operator.rshift, None, "lshr")


def _check(array: Any) -> None:
    if array.layout != "C":  # elements would be elsewhere
        raise TypingError(f"a contiguous array is needed, got {array}")


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, llvm: Any) -> Any:
    data = arrayobj.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), llvm.as_pointer())


def _load(whole: bool) -> Any:
    @intrinsic
    def load(typing: Any, array: Any, index: Any) -> Any:
        _check(array)
        kind = BY_ELEMENT[array.dtype]
        llvm = kind.llvm if whole else kind.llvm.element

        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(_pointer(context, builder, sig.args[0], args[0], args[1], llvm))
            value.align = array.dtype.bitwidth // 8
            return value if whole else _splat(builder, kind, value)

        return kind(array, types.intp), build

    return load


load = _load(whole=True)  # the vector at an index
load_splat = _load(whole=False)  # the one element at an index, in every lane


def _store(nontemporal: bool) -> Any:
    @intrinsic
    def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
        _check(array)

        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            written = builder.store(args[2], _pointer(context, builder, sig.args[0], args[0], args[1], value.llvm))
            written.align = array.dtype.bitwidth // 8 * (value.count if nontemporal else 1)
            if nontemporal:
                written.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
            return context.get_dummy_value()

        return types.void(array, types.intp, value), build

    return store


store = _store(nontemporal=False)  # write the vector at an index
# Write the vector at an index, whose address must be a multiple of 32, to memory without reading it first. Other
# threads see it after this one has taken or released a lock, as it does when a chunk is done.
store_nontemporal = _store(nontemporal=True)


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line at `index` without waiting for it."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _pointer(context, builder, sig.args[0], args[0], args[1], ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [at.type, I32, I32, I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [at, I32(0), I32(3), I32(1)])  # for reading, into all levels, data
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """A scalar in every lane; the vector has the scalar's type."""
    kind = BY_ELEMENT[value]
    return kind(value), lambda context, builder, sig, args: _splat(builder, kind, args[0])


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c in one rounding; of vectors or of scalars."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = f"v{a.count}f{a.element.bitwidth}" if isinstance(a, Lanes) else f"f{a.bitwidth}"
        kind = ir.FunctionType(args[0].type, [args[0].type] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.{name}"), args)

    return a(a, a, a), build


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger one of each lane; b where they cannot be compared."""
    return a(a, a), lambda context, builder, sig, args: _maximum(builder, *args)


@intrinsic
def zero_unless_below(typing: Any, value: Any, word: Any, limit: Any) -> Any:
    """value where word < limit, 0 elsewhere; words below 2^31."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        below = builder.icmp_signed("<", args[1], _splat(builder, WORDS, args[2]))
        return builder.select(below, args[0], ir.Constant(FLOATS.llvm, [0.0] * LANES))

    return value(value, word, types.uint32), build


def _conversion(source: Lanes, target: Lanes, instruction: str) -> Any:
    @intrinsic
    def convert(typing: Any, value: Any) -> Any:
        return target(source), lambda context, builder, sig, args: getattr(builder, instruction)(args[0], target.llvm)

    return convert


to_floats = _conversion(WORDS, FLOATS, "sitofp")  # words taken as signed
as_floats = _conversion(WORDS, FLOATS, "bitcast")
as_words = _conversion(FLOATS, WORDS, "bitcast")


def _half(first: int) -> Any:
    """The lower or upper four of eight floats, as doubles."""

    @intrinsic
    def half(typing: Any, value: Any) -> Any:
        return DOUBLES(FLOATS), lambda context, builder, sig, args: builder.fpext(
            _part(builder, args[0], first, DOUBLES.count), DOUBLES.llvm
        )

    return half


lower_half, upper_half = _half(0), _half(DOUBLES.count)


def _part(builder: Any, vector: Any, first: int, count: int) -> Any:
    chosen = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
    return builder.shuffle_vector(vector, vector, chosen)


def _maximum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _fold(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Combine all lanes into one number, halves onto halves: always in the same order."""

    @intrinsic
    def fold(typing: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            vector, count = args[0], value.count
            while count > 1:
                count //= 2
                vector = combine(builder, _part(builder, vector, 0, count), _part(builder, vector, count, count))
            return builder.extract_element(vector, I32(0))

        return value.element(value), build

    return fold


reduce_sum = _fold(lambda builder, a, b: builder.fadd(a, b))
reduce_max = _fold(_maximum)


# Eight vectors side by side, 64 floats: as many registers as hold the sums of a tile


@numba.njit(inline="always")
def load8(array: Any, at: Any) -> Any:
    a, b, c, d = load(array, at), load(array, at + 8), load(array, at + 16), load(array, at + 24)
    return a, b, c, d, load(array, at + 32), load(array, at + 40), load(array, at + 48), load(array, at + 56)


@numba.njit(inline="always")
def store8(array: Any, at: Any, s: Any) -> None:
    store(array, at, s[0])
    store(array, at + 8, s[1])
    store(array, at + 16, s[2])
    store(array, at + 24, s[3])
    store(array, at + 32, s[4])
    store(array, at + 40, s[5])
    store(array, at + 48, s[6])
    store(array, at + 56, s[7])


@numba.njit(inline="always")
def fma8(x: Any, w: Any, s: Any) -> Any:
    """x w + s"""
    a, b, c, d = fma(x, w[0], s[0]), fma(x, w[1], s[1]), fma(x, w[2], s[2]), fma(x, w[3], s[3])
    return a, b, c, d, fma(x, w[4], s[4]), fma(x, w[5], s[5]), fma(x, w[6], s[6]), fma(x, w[7], s[7])
