"""Calls in progress: what keeps their memory until they have ended, and the threads that end them."""

import copy
import ctypes
import queue
import threading

import torch

from ddprun import capi
from ddprun.group.errors import exception_of


class Operation:
    """One call of the user's, of one or several operations of the library: keeps their memory until all have ended,
    then finishes the call once, on the first thread that notices."""

    def __init__(self, works=(), parts=(), memory=(), finishes=()):
        """works: handles, of which it becomes the owner. memory: what the library uses."""
        self._library = capi.functions()
        self._works = works
        self._parts = parts
        # Guards what follows. Nothing is freed and nothing called with it: that may call the operation in turn.
        self._lock = threading.Lock()
        self._claimed = False  # by the thread that finishes the call
        self._others = None  # the event that other threads wait for meanwhile
        self.ended = False
        self._failure = None
        self._memory = memory
        self._finishes = finishes
        self._listeners = []

    def __del__(self):
        for work in self._works:
            if work:
                self._library.work_free(work)

    def done(self):
        if self.ended:
            return True
        work_done = self._library.work_done
        return all(work_done(work) for work in self._works) and all(part.done() for part in self._parts)

    def wait(self, timeout_ms):
        """Returns the error of the call, or None; raises when timeout_ms (negative: none) passes first."""
        if self.ended:
            return self._failure
        failure = None
        # All of them, also after a failure: their memory is in use until they have ended.
        for work in self._works:
            error = capi.Error()
            if self._library.work_wait(work, timeout_ms, ctypes.byref(error)) == capi.OK:
                continue
            if not self._library.work_done(work):
                raise exception_of(error)
            failure = failure or exception_of(error)
        for part in self._parts:
            failure_of_part = part.wait(timeout_ms)
            failure = failure or failure_of_part
        return self._end(failure)

    def check(self, timeout_ms=-1):
        """Waits; raises the error of the call."""
        failure = self.wait(timeout_ms)
        if failure:
            raise copy.copy(failure)  # every time anew: an exception keeps where it was raised

    def source(self):
        return self._library.work_source(self._works[0]) if self._works else -1

    def on_end(self, listener):
        """Calls listener(failure) once the call has ended: now if it has."""
        with self._lock:
            if not self.ended:
                self._listeners.append(listener)
                return
        listener(self._failure)

    def _end(self, failure):
        with self._lock:
            claimed, self._claimed = self._claimed, True
            if claimed and not self.ended:
                self._others = self._others or threading.Event()
            others = self._others
        if claimed:
            if others:
                others.wait()
            return self._failure
        try:
            self._failure = failure or self._run_finishes()
        finally:
            self._announce_end()
        return self._failure

    def _announce_end(self):
        freed = self._memory, self._finishes
        with self._lock:
            self.ended = True
            self._finishes = self._memory = ()
            listeners, self._listeners = self._listeners, ()
            others = self._others
        del freed
        if others:
            others.set()
        for listener in listeners:
            listener(self._failure)

    def _run_finishes(self):
        """Returns the error of one, or None."""
        try:
            run_all(self._finishes)
        except BaseException as error:  # noqa: BLE001: who waits gets it, be it a KeyboardInterrupt
            return copy.copy(error)
        return None


def run_all(finishes):
    if not any(finishes):  # as in most calls; the rest would cost more than this
        return
    with torch.no_grad():
        for finish in finishes:
            if finish:
                finish()


class Completer:
    """Waits for operations on a thread of its own, in their order: for those whose end somebody listens to, and for
    those whose handle the user has dropped. The thread starts with the first of them."""

    def __init__(self, name):
        self._name = name
        self._lock = threading.RLock()  # a work that is dropped while push() runs calls push() as well
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._closed = False

    def push(self, operation):
        with self._lock:
            closed = self._closed
            if not closed:
                self._queue.put(operation)
                if not self._thread:
                    self._thread = threading.Thread(target=complete, args=(self._queue,), name=self._name, daemon=True)
                    self._thread.start()
        if closed:
            operation.wait(-1)

    def close(self):
        """The operations have to end, since their group has been left or has failed."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._queue.put(None)
        # The last reference may be dropped by a listener, on this very thread.
        if thread and thread is not threading.current_thread():
            thread.join()


def complete(operations):
    """Until None comes."""
    while operation := operations.get():
        operation.wait(-1)
        del operation  # not until the next one comes


class Completers:
    """The threads that end operations without a caller: collectives end in order, messages independently of them."""

    def __init__(self):
        self.collectives = Completer("ddprun: collectives")
        self.messages = Completer("ddprun: messages")

    def close(self):
        self.collectives.close()
        self.messages.close()
