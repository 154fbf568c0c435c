"""PyTorch's reductions of PyTorch's types in terms of the library's."""

import collections.abc
import functools
import typing

import torch
from torch.distributed import ReduceOp

from ddprun import capi
from ddprun.capi import Reduction, Span
from ddprun.python_backend.spans import NATIVE_DTYPES, empty, name_of, staged_output

REDUCTIONS = {
    int(ReduceOp.SUM): capi.SUM,
    int(ReduceOp.AVG): capi.AVERAGE,
    int(ReduceOp.PRODUCT): capi.PRODUCT,
    int(ReduceOp.MIN): capi.MIN,
    int(ReduceOp.MAX): capi.MAX,
    int(ReduceOp.BAND): capi.BIT_AND,
    int(ReduceOp.BOR): capi.BIT_OR,
    int(ReduceOp.BXOR): capi.BIT_XOR,
    int(ReduceOp.PREMUL_SUM): capi.PREMULTIPLIED_SUM,
}
PREPARED = {}  # what reduction_and_encoding() has found, by type and reduction: most calls are alike
# True and false are 1 and 0: a sum is "any", a product is "all".
REDUCTIONS_OF_BOOLS = {capi.SUM: capi.MAX, capi.BIT_OR: capi.MAX, capi.PRODUCT: capi.MIN, capi.BIT_AND: capi.MIN}
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
HIGHEST_BIT = torch.iinfo(torch.int64).min


class Encoding(typing.NamedTuple):
    """How elements of one type are reduced: as the library's type `dtype`, by `op`, on values that `encode` made of
    them and of which `decode` makes the result."""

    dtype: torch.dtype
    op: int
    encode: collections.abc.Callable | None = None  # (tensor, dtype) -> tensor; None: the memory, seen as `dtype`
    decode: collections.abc.Callable | None = None  # (encoded, result)
    average_of_integers: bool = False  # the library sums, the quotient follows


def widened(tensor, dtype):
    return tensor.to(dtype)


def narrowed(encoded, result):
    result.copy_(encoded)


def highest_bit_flipped(tensor, dtype):
    """The order of unsigned numbers is that of signed ones with the highest bit flipped."""
    return tensor.view(dtype).bitwise_xor(HIGHEST_BIT)


def highest_bit_flipped_back(encoded, result):
    result.view(torch.int64).copy_(encoded.bitwise_xor(HIGHEST_BIT))


def is_integral(dtype):
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def op_of_bools(op):
    if op in (capi.AVERAGE, capi.PREMULTIPLIED_SUM):
        raise ValueError("ddprun: truth values have no average and no multiple")
    return REDUCTIONS_OF_BOOLS.get(op, op)


def encoding_of_uint64(op, ordered, averages):
    if averages:
        raise ValueError("ddprun: the average of uint64 is not supported")
    if ordered:
        return Encoding(torch.int64, op, highest_bit_flipped, highest_bit_flipped_back)
    return Encoding(torch.int64, op)


def encoding_of_complex(dtype, op, ordered):
    if ordered:
        raise ValueError("ddprun: complex numbers have no minimum and no maximum")
    if op == capi.PRODUCT:
        raise NotImplementedError("ddprun: products of complex numbers are not supported")
    return Encoding(REAL[dtype], op)


def encoding_of(dtype, op):
    """op: one of the library's."""
    ordered = op in (capi.MIN, capi.MAX)
    averages = op == capi.AVERAGE and is_integral(dtype)
    if averages:
        op = capi.SUM
    if dtype is torch.bool:
        return Encoding(torch.uint8, op_of_bools(op))
    if dtype in WIDER:
        return Encoding(WIDER[dtype], op, widened, narrowed, averages)
    if dtype is torch.uint64:
        return encoding_of_uint64(op, ordered, averages)
    if dtype in REAL:
        return encoding_of_complex(dtype, op, ordered)
    if dtype in NATIVE_DTYPES:
        return Encoding(dtype, op, None, None, averages)
    if not dtype.is_floating_point:
        raise NotImplementedError(f"ddprun: a reduction of {name_of(dtype)} is not supported")
    return Encoding(torch.float32, op, widened, narrowed)  # floats of 8 bits


def reduction_and_encoding(dtype, reduce_op):
    """The library's reduction for one of PyTorch's, and how elements of the type are brought to it."""
    op = int(reduce_op.op)
    found = PREPARED.get((dtype, op))
    return found or prepare(dtype, op, reduce_op)


def prepare(dtype, op, reduce_op):
    native = REDUCTIONS.get(op)
    if native is None:
        raise ValueError("ddprun: no such reduction")
    premultiplies = native == capi.PREMULTIPLIED_SUM
    encoding = encoding_of(dtype, native)
    reduction = Reduction(encoding.op, float(reduce_op.factor) if premultiplies else 1.0)
    if not premultiplies:
        PREPARED[dtype, op] = reduction, encoding
    return reduction, encoding


def span_as(tensor, dtype):
    return Span(tensor.data_ptr(), tensor.nbytes // dtype.itemsize, NATIVE_DTYPES[dtype])


def encoded_input(tensor, encoding):
    """What the library gets in a tensor's place: memory, and its span."""
    memory = tensor.detach().contiguous()
    if encoding.encode:
        memory = encoding.encode(memory, encoding.dtype).contiguous()
    return memory, span_as(memory, encoding.dtype)


def encoded_output(tensor, encoding, with_values, size):
    """Memory for a result of the tensor's size, its span, and what brings the result from there to the tensor.

    with_values: it holds the tensor's values, since it is an input as well. size: of the group, for averages.
    """
    memory, finish = staged_output(tensor, with_values)
    if encoding.encode:
        memory = (encoding.encode(memory.detach(), encoding.dtype).contiguous() if with_values else
                  empty(tensor.shape, encoding.dtype))
        finish = functools.partial(encoding.decode, memory, tensor)
    if encoding.average_of_integers:
        finish = functools.partial(divide, memory, size, finish)
    return memory, span_as(memory, encoding.dtype), finish


def divide(memory, size, then):
    memory.div_(size, rounding_mode="trunc")
    if then:
        then()
