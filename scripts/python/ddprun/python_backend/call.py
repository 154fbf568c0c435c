"""The arguments of an operation as the library gets them."""

import torch

from ddprun import capi
from ddprun.capi import Reduction, TensorArguments
from ddprun.group.tensors import array_of, described, reduced_as, require_dense

NAMES = [capi.functions().operation_name(operation).decode() for operation in range(capi.BARRIER + 1)]
WIDER = reduced_as()
NOTHING = TensorArguments()
REDUCTIONS = {}  # what reducing() has made, by the reduction: most calls are alike


def reducing(reduce_op):
    """The arguments of a reduction. PyTorch's numbers are the library's."""
    op = int(reduce_op.op)
    arguments = REDUCTIONS.get(op)
    if arguments is None:
        arguments = reducing_to(reduce_op, 0)
        if op != capi.PREMULTIPLIED_SUM:
            REDUCTIONS[op] = arguments
    return arguments


def reducing_to(reduce_op, root):
    op = int(reduce_op.op)
    factor = float(reduce_op.factor) if op == capi.PREMULTIPLIED_SUM else 1.0
    return TensorArguments(peer=root, reduction=Reduction(op, factor))


def first(lists):
    """What the library gets of a list of lists of tensors: it counts them, and refuses others."""
    return lists[0] if lists else ()


class Staged:
    """Tensors, or contiguous memory of the type that the library takes in their place."""

    __slots__ = "finishes", "memory", "count", "array"

    def __init__(self, operation, tensors, reads, receives, reduces):
        """reads: the operation uses this rank's values. receives: it gives this rank a result."""
        self.finishes = []  # what brings the results to the tensors
        self.memory = []
        described_tensors = []
        for tensor in tensors:
            require_dense(tensor, NAMES[operation])
            dtype = tensor.dtype
            wider = WIDER.get(dtype, dtype) if reduces else dtype
            memory = tensor
            if wider is not dtype or not tensor.is_contiguous():
                memory = self._in_place_of(tensor, wider, reads, receives)
            self.memory.append(memory)
            rows = tensor.shape[0] if operation == capi.ALL_TO_ALL_SINGLE and tensor.dim() else -1
            described_tensors.append(described(tensor, memory, rows))
        self.count = len(described_tensors)
        # One structure is passed as an array of one.
        self.array = described_tensors[0] if self.count == 1 else array_of(described_tensors)

    def _in_place_of(self, tensor, dtype, reads, receives):
        memory = (tensor.detach().to(dtype).contiguous() if reads else
                  torch.empty(tensor.shape, dtype=dtype, device="cpu"))
        if receives:
            self.finishes.append(lambda: tensor.copy_(memory))
        return memory


NONE = Staged(capi.BARRIER, (), False, False, False)
