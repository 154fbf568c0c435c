"""PyTorch's tensors as the library gets them."""

import torch

from ddprun import capi
from ddprun.capi import Tensor

# The numbers of c10::ScalarType.
NUMBERS = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.float8_e5m2: 23, torch.float8_e4m3fn: 24, torch.float8_e5m2fnuz: 25, torch.float8_e4m3fnuz: 26,
    torch.uint16: 27, torch.uint32: 28, torch.uint64: 29, torch.float8_e8m0fnu: 44
}
NO_NUMBER = -1  # of a type that the library can only move


def reduced_as():
    """The types to which the elements of others are converted before a reduction."""
    by_number = {number: dtype for dtype, number in NUMBERS.items()}
    found = {dtype: by_number[capi.functions().reduced_as(number)] for dtype, number in NUMBERS.items()}
    return {dtype: other for dtype, other in found.items() if other is not dtype}


def layout_name(layout):
    """Such as SparseCsr for torch.sparse_csr."""
    words = str(layout).removeprefix("torch.").removesuffix("_coo").removeprefix("_").split("_")
    return "".join(word.capitalize() for word in words)


def require_dense(tensor, operation):
    if tensor is None:
        raise ValueError(f"ddprun: {operation} got an undefined tensor")
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"ddprun: {operation} of a {layout_name(tensor.layout)} tensor is not supported: "
                                  "make it dense, with to_dense()")
    if not tensor.is_cpu:
        raise ValueError(f"ddprun: {operation} needs tensors on the CPU, not on {tensor.device}")


def described(tensor, memory, rows=-1):
    """memory: contiguous, in the tensor's place. rows: where the operation splits its first dimension."""
    return Tensor(memory.data_ptr(), tensor.numel(), rows, NUMBERS.get(tensor.dtype, NO_NUMBER), tensor.itemsize)


def array_of(described_tensors):
    return (Tensor * len(described_tensors))(*described_tensors)
