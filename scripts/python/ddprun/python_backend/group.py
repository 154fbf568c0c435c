"""This process's membership in one group of the library's."""

import ctypes
import os
import threading

from ddprun import capi
from ddprun.python_backend.errors import checked
from ddprun.python_backend.process_end import serve_on


class Membership:
    """The group that a back end has joined, if it has."""

    def __init__(self):
        self._library = capi.functions()
        self._lock = threading.Lock()  # guards the handle when it is made and ended
        self._handle = None
        self._server = None
        self._process = os.getpid()
        self.calls = []  # an entry for each thread that is in a blocking call

    def handle(self):
        if self._handle is None:
            raise RuntimeError("ddprun: this process group has been shut down, or waits for reconfigure()")
        return self._handle

    def join(self, options, server=None):
        """server: of this process, for this group."""
        try:
            handle = checked(self._library.group_join, ctypes.byref(options))
        except BaseException:
            if server:
                serve_on(server, failed=True)
            raise
        with self._lock:
            self._handle, self._server = handle, server

    def leave(self):
        # A child that was forked has no group, and no server.
        of_process = os.getpid() == self._process
        failed = of_process and self.failure() != capi.OK
        with self._lock:
            handle, self._handle = self._handle, None
            server, self._server = self._server, None
        if handle is not None and of_process:
            self._library.group_free(handle)
        if server and of_process:
            serve_on(server, failed)

    def abort(self, reason):
        with self._lock:
            if self._handle is not None:
                self._library.group_abort(self._handle, reason)

    def failure(self):
        """The code of the error that has broken the group."""
        with self._lock:
            if self._handle is None:
                return capi.OK
            return self._library.group_failure(self._handle, ctypes.byref(capi.Error()))


def close(membership, completers, process):
    """Ends what belongs to a back end that goes: no thread of its is left."""
    if os.getpid() != process:
        return
    membership.leave()
    completers.close()


def close_with_process(membership, completers, process):
    # A thread whose call ended now would wait for an interpreter that is gone, which crashes: all stays as it is.
    if not membership.calls:
        close(membership, completers, process)
