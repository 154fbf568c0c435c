"""What has to happen before the interpreter ends.

Imported with torch, so that its turn comes after that of the program's own handlers, which may still communicate.
"""

import atexit
import multiprocessing
import multiprocessing.util
import os
import threading
from datetime import timedelta

_functions = []
_processes = set()  # that cover_child() has covered
AFTER_OTHERS = -100  # such as the end of a queue's thread, which has priority -5


def call_at_exit(function):
    _functions.append(function)


def call_until_true_at_exit(function):
    """function(timedelta) waits at most that long. Between the calls the handlers of signals run."""

    def call():
        while not function(timedelta(milliseconds=100)):
            pass

    call_at_exit(call)


def cover_child():
    """A child that multiprocessing has forked ends without the handlers of atexit."""
    if multiprocessing.parent_process() is None or os.getpid() in _processes:
        return
    _processes.add(os.getpid())
    multiprocessing.util.Finalize(None, _end_child, exitpriority=AFTER_OTHERS)


def _end_child():
    # Its other threads may still communicate. multiprocessing makes this call next.
    threading._shutdown()
    _call_all()


@atexit.register
def _call_all():
    for function in _functions:
        function()
