"""c10d's monitored_barrier() as Gloo has it, with its messages: ranks tell rank 0 that they have come, and wait for its
answer, which it gives once all have come. So rank 0 knows who is missing when the time is over, and the others learn it
from the end of the group."""

import contextlib
import ctypes
import math
import time

from torch.distributed import DistBackendError

from ddprun import capi
from ddprun.capi import Span
from ddprun.group.errors import checked, exception_of

TAG = 2**31 - 1  # programs take lower ones


class Message:
    """A byte on its way."""

    def __init__(self, function, group, peer, limit_ms):
        self._library = capi.functions()
        self._byte = (ctypes.c_uint8 * 1)()
        self._work = capi.HANDLE()
        span = Span(ctypes.addressof(self._byte), 1, capi.UINT8)
        checked(function, group, span, peer, TAG, limit_ms, ctypes.byref(self._work))

    def wait(self, timeout_ms):
        """Returns the error."""
        error = capi.Error()
        self._library.work_wait(self._work, timeout_ms, ctypes.byref(error))
        return error

    def check(self):
        """Waits; raises the error."""
        error = self.wait(-1)
        if error.code != capi.OK:
            raise exception_of(error)

    def close(self):
        """The library uses the byte until the operation has ended."""
        self.wait(-1)
        self._library.work_free(self._work)


class MonitoredBarrier:
    """limit_ms: of the ranks that wait for rank 0, the group's."""

    def __init__(self, membership, limit_ms):
        self._library = capi.functions()
        self._membership = membership
        self._rank, self._size = membership.rank, membership.size
        self._limit_ms = limit_ms

    def wait(self, timeout_ms, wait_all_ranks):
        with contextlib.ExitStack() as messages:
            if self._rank == 0:
                self._await_others(messages, timeout_ms, wait_all_ranks)
            else:
                self._tell_rank_0(messages)

    def _start(self, messages, function, peer):
        message = Message(function, self._membership.group(), peer, self._limit_ms)
        messages.callback(message.close)
        return message

    def _tell_rank_0(self, messages):
        try:
            for message in [self._start(messages, self._library.send, 0), self._start(messages, self._library.recv, 0)]:
                message.check()
        except DistBackendError as error:
            raise DistBackendError(f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while "
                                   f"waiting for send/recv from rank 0: {error}") from None

    def _await_others(self, messages, timeout_ms, wait_all_ranks):
        deadline = time.monotonic() + timeout_ms / 1000
        if timeout_ms == 0:
            self._fail("Rank 0 timed out in monitoredBarrier after 0 ms")
        others = range(1, self._size)
        arrivals = {other: self._start(messages, self._library.recv, other) for other in others}
        missing, cause = [], ""  # cause: of another error than the end of the time, such as a lost rank
        for other, arrival in arrivals.items():
            error = arrival.wait(max(0, math.ceil((deadline - time.monotonic()) * 1000)))
            if error.code == capi.OK:
                continue
            missing.append(other)
            if error.code != capi.TIMEOUT and not cause:
                cause = f": {error.message.decode(errors='replace')}"
            if not wait_all_ranks:
                break
        if missing:
            self._fail(f"[Rank 0]: Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} failed to pass "
                       f"monitoredBarrier in {timeout_ms} ms{cause}")
        for answer in [self._start(messages, self._library.send, other) for other in others]:
            answer.check()

    def _fail(self, text):
        """Ends the group: what waits for the missing ranks would take what they send later."""
        self._membership.fail(text.encode())
        raise DistBackendError(text)
