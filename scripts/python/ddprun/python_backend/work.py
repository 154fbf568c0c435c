"""PyTorch's handles of calls."""

import threading
from datetime import timedelta

import torch
from torch._C._distributed_c10d import Work

from ddprun.group.store_access import MILLISECOND

NO_TIMEOUT = timedelta(0)


class Request(threading.local):
    """Of this thread: the work that get_future() was asked to name in place of giving a future."""

    active = False
    found = None


request = Request()


def completed_future(value):
    future = torch._C.Future([])
    future.set_result(value)
    return future


NO_FUTURE = completed_future(None)


class PythonWork(Work):
    """A work of this back end. PyTorch keeps it in a holder that forwards wait() and get_future() alone."""

    def __init__(self, outputs):
        Work.__init__(self)
        self._outputs = outputs

    def get_future(self):
        if request.active:
            request.found = self
            return NO_FUTURE
        return self.future()

    def result(self):
        return self._outputs


def behind(work):
    """The work of this back end that PyTorch's holder hides; None: it is another's."""
    if isinstance(work, PythonWork):
        return work
    request.active, request.found = True, None
    try:
        work.get_future()
    except (RuntimeError, NotImplementedError):  # of a back end without futures
        return None
    finally:
        request.active = False
    found, request.found = request.found, None
    return found


class EndedWork(PythonWork):
    """The handle of a blocking call."""

    def wait(self, timeout=NO_TIMEOUT):
        return True

    def future(self):
        return completed_future(self._outputs)

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def exception(self):
        return None

    def source_rank(self):
        return -1

    def synchronize(self):
        pass


class GroupWork(PythonWork):
    """The handle of an Operation."""

    def __init__(self, operation, completer, outputs):
        super().__init__(outputs)
        self.operation = operation
        self._completer = completer

    def __del__(self):
        """Nobody waits any more: the operation's memory still has to live until its end."""
        # Never on this thread: the collector may call this while the thread ends this very operation.
        if not self.operation.ended:
            self._completer.push(self.operation)

    def wait(self, timeout=NO_TIMEOUT):
        self.operation.check(timeout // MILLISECOND if timeout else -1)
        return True

    def future(self):
        # A future that Python gives an error reads as a value in C++; one that a callback makes does not.
        ended = torch._C.Future([])
        operation, outputs = self.operation, self._outputs

        def outcome(_):
            operation.check()
            return outputs

        future = ended.then(outcome)
        operation.on_end(lambda failure: ended.set_result(None))
        if operation.done():
            operation.wait(-1)
        else:
            self._completer.push(operation)
        return future

    def is_completed(self):
        if not self.operation.done():
            return False
        self.operation.wait(-1)
        return True

    def is_success(self):
        return self.operation.done() and not self.operation.wait(-1)

    def exception(self):
        return self.operation.wait(-1) if self.operation.done() else None

    def source_rank(self):
        return self.operation.source()

    def synchronize(self):
        self.operation.check()
