"""What PyTorch's classes do not pass on to a back end in Python, added to them once."""

import functools
import types

import torch
from torch._C._distributed_c10d import ProcessGroup, Work
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

from ddprun.python_backend import operation, work as works
from ddprun.python_backend.backend import Backend
from ddprun.python_backend.work import behind

# Their methods are called from C++, also while torch.compile watches the caller.
ENTERED_FROM_CPP = (Backend, works.PythonWork, works.EndedWork, works.GroupWork, operation.Operation)


@functools.cache
def complete():
    for name in ("is_completed", "is_success", "exception", "result", "synchronize"):
        setattr(Work, name, forwarded(name, name))
    for name in ("source_rank", "_source_rank"):
        setattr(Work, name, forwarded(name, "source_rank"))
    ProcessGroup.split_group = split_group(ProcessGroup.split_group)
    ProcessGroup.reconfigure = reconfigure(ProcessGroup.reconfigure)
    for class_ in ENTERED_FROM_CPP:
        for member in vars(class_).values():
            function = member.fget if isinstance(member, property) else member
            if isinstance(function, types.FunctionType):
                keep_from_compiler(function.__code__)


def keep_from_compiler(code):
    """As torch.compiler.disable does, which would import the compiler."""
    set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            keep_from_compiler(constant)


def forwarded(name, own):
    """PyTorch's method for the works of others; for those of this back end, which PyTorch's holder hides, theirs."""
    original = getattr(Work, name)

    @functools.wraps(original)
    def method(work):
        mine = behind(work)
        return original(work) if mine is None else getattr(mine, own)()

    return method


def split_group(original):
    """PyTorch 2.15 crashes where a back end in Python returns None, which a rank outside of the new group has to."""

    @functools.wraps(original)
    def method(group, new_ranks, *arguments, device_types=None, **keywords):
        if group.rank() not in new_ranks:
            devices = group._device_types if device_types is None else device_types
            device_types = [torch.device(d) for d in devices if not of_this_back_end(group, d)]
            if not device_types:
                return None
        return original(group, new_ranks, *arguments, device_types=device_types, **keywords)

    return method


def reconfigure(original):
    """A process group learns its rank and its size from the part of a back end that is in C++, where they cannot
    change: DistributedDataParallel would divide by a wrong size."""

    @functools.wraps(original)
    def method(group, options):
        for device in group._device_types:
            backend = group._get_backend(device)
            if isinstance(backend, Backend) and backend.membership.place_among(options.handles) != (group.rank(), group.size()):
                raise NotImplementedError("ddprun: reconfigure() gives a process group another rank or size with the "
                                          "compiled back end alone: form a new group by init_process_group()")
        return original(group, options)

    return method


def of_this_back_end(group, device):
    return isinstance(group._get_backend(torch.device(device)), Backend)
