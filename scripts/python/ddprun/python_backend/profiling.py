"""Calls as PyTorch's profiler shows them: from their begin to their end."""

import torch
from torch.autograd.profiler import record_function

enabled = torch._C._autograd._profiler_enabled


def begin(title):
    """For end(); None: nothing is recorded."""
    return record_function(title).__enter__() if enabled() else None


def end(record, operation):
    """The record ends when the operation does."""
    ended = torch._C.Future([])
    record._call_end_callbacks_on_future(ended)
    operation.on_end(lambda failure: ended.set_result(None))
