"""ddprun.h for ctypes: its structures and functions. The calls let other threads of Python run meanwhile."""

import ctypes
import functools
import os
import pathlib

PACKAGE = pathlib.Path(__file__).resolve().parent
ABI_VERSION = 1

OK, USAGE, IO, TIMEOUT, UNREACHABLE, CONNECTION_LOST, PROTOCOL, PEER_LOST, MISMATCH, ABORTED, UNSUPPORTED, INTERNAL = \
    range(12)
WRONG_TYPE = 12
FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT8, UINT8, INT32, INT64 = range(8)
SUM, AVERAGE, PRODUCT, MIN, MAX, BIT_AND, BIT_OR, BIT_XOR, PREMULTIPLIED_SUM = range(9)
(ALL_REDUCE, ALL_REDUCE_COALESCED, REDUCE, BROADCAST, ALL_GATHER, ALL_GATHER_INTO_TENSOR,
 ALL_GATHER_INTO_TENSOR_COALESCED, GATHER, GATHER_SINGLE, SCATTER, REDUCE_SCATTER, REDUCE_SCATTER_TENSOR,
 REDUCE_SCATTER_TENSOR_COALESCED, ALL_TO_ALL, ALL_TO_ALL_SINGLE, SEND, RECV, BARRIER) = range(18)


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("message", ctypes.c_char * 1020)]


class Reduction(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int32), ("factor", ctypes.c_double)]


class Span(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_int64), ("rows", ctypes.c_int64),
                ("type", ctypes.c_int32), ("element_bytes", ctypes.c_int32)]


class TensorArguments(ctypes.Structure):
    _fields_ = [("lists", ctypes.c_int32), ("peer", ctypes.c_int32), ("tag", ctypes.c_int32),
                ("reduction", Reduction), ("input_splits", ctypes.POINTER(ctypes.c_int64)),
                ("input_split_count", ctypes.c_size_t), ("output_splits", ctypes.POINTER(ctypes.c_int64)),
                ("output_split_count", ctypes.c_size_t)]


class GroupOptions(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int32), ("size", ctypes.c_int32), ("backend", ctypes.c_char_p),
                ("store_host", ctypes.c_char_p), ("store_port", ctypes.c_uint16), ("prefix", ctypes.c_char_p),
                ("store_rank", ctypes.c_int32), ("timeout_ms", ctypes.c_int64), ("freeze_bound_ms", ctypes.c_int64),
                ("network_interface", ctypes.c_char_p), ("label", ctypes.c_char_p)]


HANDLE = ctypes.c_void_p  # of a group, a work, memory, a recovery or a store server
INT = ctypes.c_int32
COUNTS = ctypes.POINTER(ctypes.c_size_t)
SPANS = ctypes.POINTER(Span)
TENSORS = ctypes.POINTER(Tensor)
ERROR = ctypes.POINTER(Error)
COPY_STATE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32,
                              ctypes.c_int32)
CALL = (ctypes.c_int64, ctypes.POINTER(HANDLE), ERROR)

# name: (result, parameters)
FUNCTIONS = {
    "abi_version": (INT, ()),
    "store_serve": (HANDLE, (ctypes.c_char_p, ctypes.c_uint16, ERROR)),
    "store_port": (ctypes.c_uint16, (HANDLE,)),
    "address_towards": (INT, (ctypes.c_char_p, ctypes.c_uint16, ctypes.c_char_p, ctypes.c_size_t, ERROR)),
    "store_announce_end": (INT, (HANDLE, ctypes.c_int64)),
    "store_drain": (INT, (HANDLE, ctypes.c_int64)),
    "store_free": (None, (HANDLE,)),
    "group_join": (HANDLE, (ctypes.POINTER(GroupOptions), ERROR)),
    "group_free": (None, (HANDLE,)),
    "group_rank": (INT, (HANDLE,)),
    "group_size": (INT, (HANDLE,)),
    "group_backend": (ctypes.c_char_p, (HANDLE,)),
    "group_bytes_sent": (ctypes.c_uint64, (HANDLE,)),
    "group_abort": (None, (HANDLE, ctypes.c_char_p)),
    "group_failure": (INT, (HANDLE, ERROR)),
    "recovery_begin": (HANDLE, (ctypes.POINTER(GroupOptions), ctypes.c_int64, ERROR)),
    "recovery_free": (None, (HANDLE,)),
    "recovery_is_replacement": (INT, (HANDLE,)),
    "recovery_form_first": (HANDLE, (HANDLE, ERROR)),
    "recovery_generation": (ctypes.c_uint64, (HANDLE,)),
    "recovery_announce": (INT, (HANDLE, ERROR)),
    "recovery_on_applied": (None, (HANDLE, ctypes.c_int64)),
    "recovery_recover": (HANDLE, (HANDLE, ctypes.c_char_p, COPY_STATE, ctypes.c_void_p,
                                  ctypes.POINTER(ctypes.c_int64), ERROR)),
    "recovery_finish": (None, (HANDLE,)),
    "is_consequence": (INT, (INT,)),
    "memory_allocate": (HANDLE, (HANDLE, ctypes.c_size_t, ERROR)),
    "memory_data": (ctypes.c_void_p, (HANDLE,)),
    "memory_free": (None, (HANDLE,)),
    "allreduce": (INT, (HANDLE, Span, Span, Reduction, *CALL)),
    "reduce": (INT, (HANDLE, Span, Span, INT, Reduction, *CALL)),
    "broadcast": (INT, (HANDLE, Span, INT, *CALL)),
    "allgather": (INT, (HANDLE, Span, Span, COUNTS, *CALL)),
    "reduce_scatter": (INT, (HANDLE, Span, Span, COUNTS, Reduction, *CALL)),
    "gather": (INT, (HANDLE, Span, Span, COUNTS, INT, *CALL)),
    "scatter": (INT, (HANDLE, Span, COUNTS, Span, INT, *CALL)),
    "all_to_all": (INT, (HANDLE, Span, COUNTS, Span, COUNTS, *CALL)),
    "barrier": (INT, (HANDLE, *CALL)),
    "allreduce_coalesced": (INT, (HANDLE, SPANS, ctypes.c_size_t, Reduction, *CALL)),
    "allgather_coalesced": (INT, (HANDLE, SPANS, SPANS, ctypes.c_size_t, *CALL)),
    "reduce_scatter_coalesced": (INT, (HANDLE, SPANS, SPANS, ctypes.c_size_t, Reduction, *CALL)),
    "send": (INT, (HANDLE, Span, INT, INT, *CALL)),
    "recv": (INT, (HANDLE, Span, INT, INT, *CALL)),
    "operation_name": (ctypes.c_char_p, (INT,)),
    "reduced_as": (INT, (INT,)),
    "tensor_operation": (INT, (HANDLE, INT, TENSORS, ctypes.c_size_t, TENSORS, ctypes.c_size_t,
                               ctypes.POINTER(TensorArguments), *CALL)),
    "work_wait": (INT, (HANDLE, ctypes.c_int64, ERROR)),
    "work_done": (INT, (HANDLE,)),
    "work_source": (INT, (HANDLE,)),
    "work_free": (None, (HANDLE,)),
}


def library_path():
    """libddprun_c: the package's own, or the one of the build folder that DDPRUN_BUILD_DIR names."""
    build = os.environ.get("DDPRUN_BUILD_DIR")
    return pathlib.Path(build) / "lib" / "libddprun_c.so" if build else PACKAGE / "lib" / "libddprun_c.so"


@functools.cache
def open_library():
    # With the deep binding, what it needs is found in its own libraries, not in those that PyTorch brings.
    return ctypes.CDLL(str(library_path()), mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)


class Functions:
    """Those of ddprun.h, without their prefix."""

    def __init__(self):
        loaded = open_library()
        for name, (result, parameters) in FUNCTIONS.items():
            function = getattr(loaded, f"ddprun_{name}")
            function.restype = result
            function.argtypes = parameters
            setattr(self, name, function)
        if self.abi_version() != ABI_VERSION:
            raise ImportError(f"ddprun: {library_path()} has version {self.abi_version()} of its interface, "
                              f"and {ABI_VERSION} is needed")


functions = functools.cache(Functions)
