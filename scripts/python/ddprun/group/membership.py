"""A back end's membership in one group of the library's: how it begins, changes and ends."""

import ctypes
import functools
import os
import threading
import typing
import weakref

import torch
from torch._C import _distributed_c10d as c10d

from ddprun import capi
from ddprun.at_exit import call_at_exit, call_until_true_at_exit
from ddprun.capi import TensorArguments
from ddprun.group.errors import checked
from ddprun.group.monitored_barrier import MonitoredBarrier
from ddprun.group.process_end import drain_stores, serve_on
from ddprun.group.sparse_allreduce import sparse_sum
from ddprun.group.store_access import MILLISECOND, key_of_next_group, meet, random_token
from ddprun.group.tensors import array_of, described

ERRORS = {
    capi.OK: c10d.ErrorType.SUCCESS,
    capi.TIMEOUT: c10d.ErrorType.TIMEOUT,
    capi.PEER_LOST: c10d.ErrorType.REMOTE_ERROR,
}

live = weakref.WeakSet()  # the memberships that the end of the process has to close


class Settings(typing.NamedTuple):
    """The choices of init_process_group(pg_options=...)."""

    name: str  # by which the script asked for the back end: of events in profiles
    backend: str
    network_interface: str
    freeze_bound_ms: int  # 0: the library's


def options_of(timeout, global_ranks=(), enable_reconfigure=False):
    options = c10d.Backend.Options("ddprun", timeout)
    options.global_ranks_in_group = list(global_ranks)
    if enable_reconfigure:  # PyTorch's options may not have it
        options.enable_reconfigure = True
    return options


def make_backend(form, store, rank, size, options, settings, formed=None):
    """Joins the group, unless it waits for reconfigure(), or is formed already: then the group is another's, and formed
    is its handle. form: the module with the classes Slot and Backend."""
    close_at_exit()
    membership = Membership(form, store, rank, size, options, settings)
    if formed is not None:
        membership.borrow(formed)
    elif not getattr(options, "enable_reconfigure", False):
        membership.join(key_of_next_group(store, rank), options._timeout)
    return form.Backend(membership)


@functools.cache
def close_at_exit():
    call_at_exit(close_live)
    call_until_true_at_exit(drain_stores)


def close_live():
    for membership in list(live):
        # A thread whose call ended now would wait for an interpreter that is gone, which crashes: all stays as it is.
        if not membership.slot.busy():
            membership.close()


class Membership:
    """Owns the group, and rank 0's store server, where it needs one, until the group is left. Thread-safe."""

    def __init__(self, form, store, rank, size, options, settings):
        self._form = form
        self._store = store
        self.rank, self.size = rank, size
        self.options = options
        self.settings = settings
        self.handle_for_reconfigure = f"{random_token()}/{os.getpid()}"
        self.slot = form.Slot()
        self.end_threads = lambda: None  # of the back end, once it has left the group
        self._library = capi.functions()
        self._lock = threading.Lock()  # guards the group and its server when they are made and ended
        self._server = None
        self._owns_group = True
        self._process = os.getpid()
        live.add(self)

    def group(self):
        handle = self.slot.group
        if handle is None:
            raise RuntimeError("ddprun: this process group has been shut down, or waits for reconfigure()")
        return handle

    def join(self, key, timeout):
        """key: under which the ranks meet."""
        point = meet(self._store, self.rank, key, timeout)
        options = capi.GroupOptions(
            rank=self.rank, size=self.size, backend=self.settings.backend.encode(), store_host=point.host.encode(),
            store_port=point.port, prefix=point.prefix.encode(), store_rank=point.server_rank,
            timeout_ms=timeout // MILLISECOND, freeze_bound_ms=self.settings.freeze_bound_ms,
            network_interface=self.settings.network_interface.encode())
        try:
            group = checked(self._library.group_join, ctypes.byref(options))
        except BaseException:
            if point.server:
                serve_on(point.server, failed=True)
            raise
        with self._lock:
            self.slot.group, self._server = group, point.server

    def borrow(self, group):
        """The group stays its owner's when this membership ends."""
        self.slot.group, self._owns_group = group, False

    def leave(self):
        # A child that was forked has no group, and no server.
        of_process = os.getpid() == self._process
        failed = of_process and self.failure() != capi.OK
        with self._lock:
            group, self.slot.group = self.slot.group, None
            server, self._server = self._server, None
            owned, self._owns_group = self._owns_group, True
        if group is not None and of_process and owned:
            self._library.group_free(group)
        if server and of_process:
            serve_on(server, failed)

    def close(self):
        """When the back end goes: no thread of its is left."""
        if os.getpid() == self._process:
            self.leave()
            self.end_threads()

    def abort(self):
        self.fail(b"the program called abort()")

    def fail(self, reason):
        with self._lock:
            if self.slot.group is not None:
                self._library.group_abort(self.slot.group, reason)

    def failure(self):
        """The code of the error that has broken the group."""
        with self._lock:
            if self.slot.group is None:
                return capi.OK
            return self._library.group_failure(self.slot.group, ctypes.byref(capi.Error()))

    def error(self):
        return ERRORS.get(self.failure(), c10d.ErrorType.COMM_ERROR)

    def monitored_barrier(self, timeout, wait_all_ranks):
        """Rank 0's error names the first rank that does not arrive, or all of them. It ends the group."""
        limit_ms = self.options._timeout // MILLISECOND
        timeout_ms = limit_ms if timeout.days < 0 else timeout // MILLISECOND
        MonitoredBarrier(self, limit_ms).wait(timeout_ms, wait_all_ranks)

    def allreduce_sparse(self, tensor, is_sum, limit_ms):
        if not is_sum:
            raise NotImplementedError("ddprun: all_reduce of a sparse tensor has the reduction SUM alone")

        with torch.no_grad():
            tensor.copy_(sparse_sum(tensor, self.size, functools.partial(self._all_gather, limit_ms)))

    def _all_gather(self, limit_ms, outputs, input):
        """Of contiguous tensors; blocks."""
        checked(self._library.tensor_operation, self.group(), capi.ALL_GATHER, described(input, input), 1,
                array_of([described(output, output) for output in outputs]), len(outputs), TensorArguments(lists=1),
                limit_ms, None)

    def split(self, store, ranks, options):
        """The back end of a group of some of the ranks; None: this one is not among them."""
        if self.rank not in ranks:
            return None
        return self._relative(store, ranks.index(self.rank), len(ranks), options, ranks)

    def merge(self, store, options, rank, size):
        return self._relative(store, rank, size, options)

    def _relative(self, store, rank, size, options, ranks=()):
        timeout = (options or self.options)._timeout
        return make_backend(self._form, store, rank, size, options_of(timeout, ranks), self.settings)

    def place_among(self, handles):
        """The rank and the size that reconfigure() gives: handles in a list are in the order of ranks, those in a set
        get the order of their text."""
        if not isinstance(handles, list):
            handles = sorted(handles)
        if self.handle_for_reconfigure not in handles:
            raise ValueError("ddprun: reconfigure(): this process's handle is not in the list")
        return handles.index(self.handle_for_reconfigure), len(handles)

    def reconfigure(self, options):
        """Returns the rank and the size."""
        place = self.place_among(options.handles)
        self.leave()
        self.rank, self.size = place
        # Successive members have nothing in common but the uuid.
        self.join(f"ddprun/reconfigured_{options.uuid}", options.timeout or self.options._timeout)
        return place
