"""Tensors as the library's spans of memory."""

import ctypes

import torch

from ddprun import capi
from ddprun.capi import Span

# The types by which the library reduces elements.
NATIVE_DTYPES = {
    torch.float32: capi.FLOAT32,
    torch.float64: capi.FLOAT64,
    torch.float16: capi.FLOAT16,
    torch.bfloat16: capi.BFLOAT16,
    torch.int8: capi.INT8,
    torch.uint8: capi.UINT8,
    torch.int32: capi.INT32,
    torch.int64: capi.INT64,
}
DTYPES_OF_SIZE = {1: capi.UINT8, 2: capi.FLOAT16, 4: capi.INT32, 8: capi.INT64, 16: capi.INT64}
# Where PyTorch's C++ part, whose words messages use, names a type otherwise than Python.
NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int8": "Char",
    "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long", "uint16": "UInt16", "uint32": "UInt32",
    "uint64": "UInt64", "complex32": "ComplexHalf", "complex64": "ComplexFloat", "complex128": "ComplexDouble"
}


def name_of(dtype):
    name = str(dtype).removeprefix("torch.")
    return NAMES.get(name, name.capitalize())


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


def require_same_type(tensors, dtype, operation):
    for tensor in tensors:
        require_dense(tensor, operation)
        if tensor.dtype is not dtype:
            raise TypeError(f"ddprun: {operation} of tensors of different types: {name_of(dtype)} and "
                            f"{name_of(tensor.dtype)}")


def only(tensors, operation):
    if len(tensors) != 1:
        raise ValueError(f"ddprun: {operation} takes one tensor, not {len(tensors)}")
    require_dense(tensors[0], operation)
    return tensors[0]


def require_parts(whole, part, size, operation):
    require_dense(whole, operation)
    require_dense(part, operation)
    if whole.dtype is not part.dtype:
        raise TypeError(f"ddprun: {operation} of tensors of different types: {name_of(whole.dtype)} and "
                        f"{name_of(part.dtype)}")
    if whole.numel() != part.numel() * size:
        raise ValueError(f"ddprun: {operation} with {size} ranks: {whole.numel()} elements are not {size} times "
                         f"{part.numel()}")


def require_list(tensors, size, operation):
    if len(tensors) != size:
        raise ValueError(f"ddprun: {operation} needs a tensor for each of the {size} ranks, not {len(tensors)}")
    require_same_type(tensors, tensors[0].dtype if tensors[0] is not None else None, operation)


def units_of(tensor):
    """How many of the span's elements stand for one of the tensor's."""
    return 2 if tensor.element_size() > 8 else 1


def span_to_move(tensor):
    """The memory of a contiguous tensor, for operations that move elements and do not look at them: a type of the
    library of the same size stands for one that it lacks."""
    dtype = NATIVE_DTYPES.get(tensor.dtype)
    if dtype is None:
        dtype = DTYPES_OF_SIZE[tensor.element_size()]
    return Span(tensor.data_ptr(), tensor.numel() * units_of(tensor), dtype)


def array_of(spans):
    return (Span * len(spans))(*spans)


def counts_array(counts):
    """Of C; None, which means equal parts, stays."""
    return counts and (ctypes.c_size_t * len(counts))(*counts)


def staged_output(tensor, with_values):
    """Contiguous memory, with the tensor's values if they matter, and what brings a result from there to the tensor."""
    if tensor.is_contiguous():
        return tensor, None
    memory = tensor.detach().contiguous() if with_values else empty(tensor.shape, tensor.dtype)
    return memory, lambda: tensor.copy_(memory)


def empty(shape, dtype):
    return torch.empty(shape, dtype=dtype, device="cpu")


def adjacent(tensors):
    """Whether the tensors' memory is one piece, in their order: so it needs no copy to become one."""
    storage = tensors[0].untyped_storage().data_ptr()
    next_ = tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != next_ or tensor.untyped_storage().data_ptr() != storage:
            return False
        next_ += tensor.nbytes
    return True


def total(tensors):
    return sum(tensor.numel() for tensor in tensors)


def flat_view(tensors):
    return tensors[0].detach().as_strided((total(tensors),), (1,))


def flat_input(tensors):
    """A list of tensors as one flat tensor: theirs where it is one piece, else a copy."""
    if adjacent(tensors):
        return flat_view(tensors)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def flat_output(tensors):
    """As flat_input, without the values, and what brings a result from there to the tensors."""
    if adjacent(tensors):
        return flat_view(tensors), None
    flat = empty((total(tensors),), tensors[0].dtype)

    def finish():
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts):
            tensor.copy_(part.view_as(tensor))

    return flat, finish


def counts_of(tensors):
    return [tensor.numel() * units_of(tensor) for tensor in tensors]


def equal_sizes(tensors):
    return all(tensor.numel() == tensors[0].numel() for tensor in tensors)
