"""The stores that a process serves on, before it ends, for ranks of groups that it has left."""

import os
import time
from datetime import timedelta

# How long a process serves the store of a group that it has left, for ranks that have not left, and for those that only
# read why the group failed. Those that remain then go on without a store.
BOUND = timedelta(seconds=30)
BOUND_AFTER_FAILURE = timedelta(seconds=2)
KNOWN_BOUND = timedelta(seconds=5)  # a rank may be frozen

_servers = []  # (process, server, until): a child that was forked has inherited its parent's


def serve_on(server, failed):
    """Returns once the other ranks know that the server may close. failed: the group has, so that the others need the
    store for the cause alone."""
    server.announce_end(KNOWN_BOUND)
    _servers[:] = [each for each in _servers if each[0] != os.getpid() or not each[1].unused()]
    bound = BOUND_AFTER_FAILURE if failed else BOUND
    _servers.append((os.getpid(), server, time.monotonic() + bound.total_seconds()))


def drain_stores(at_most):
    """True once no rank needs the servers any longer, or their time is over. Waits for it at most that long."""
    servers = _needed_servers()
    if servers:
        servers[0].unused(at_most)
    return not _needed_servers()


def _needed_servers():
    return [
        server for process, server, until in list(_servers)
        if process == os.getpid() and time.monotonic() < until and not server.unused()
    ]
