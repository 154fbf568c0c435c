"""Calls as PyTorch's profiler shows them: from their begin to their end."""

import threading

import torch

enabled = torch._C._autograd._profiler_enabled


class Event:
    """Begins where it is made."""

    def __init__(self, title, inputs):
        """inputs: tensors, whose shapes the profile shows."""
        self._handle = torch.autograd._record_function_with_args_enter(title, *inputs)

    def end(self):
        # PyTorch takes an event for an asynchronous one, as collectives are, if another thread ends it.
        thread = threading.Thread(target=torch.autograd._record_function_with_args_exit, args=(self._handle,))
        thread.start()
        thread.join()

    def end_with(self, operation):
        operation.on_end(lambda failure: self.end())
