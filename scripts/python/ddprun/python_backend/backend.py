"""The back end: a subclass in Python of c10d's Backend, over a ddprun process group, for dense tensors on the CPU;
all_reduce takes sparse ones. Here are the calls; what is off their path is in ddprun.group."""

import ctypes
import typing
import weakref
from datetime import timedelta

import torch
from torch._C import _distributed_c10d as c10d

from ddprun import capi
from ddprun.capi import TensorArguments
from ddprun.group.errors import checked, exception_of
from ddprun.group.store_access import MILLISECOND
from ddprun.python_backend import profiling
from ddprun.python_backend.call import NAMES, NONE, NOTHING, Staged, first, reducing, reducing_to
from ddprun.python_backend.operation import Completers, Operation, run_all
from ddprun.python_backend.work import EndedWork, GroupWork

# PyTorch's wrapper for TORCH_DISTRIBUTED_DEBUG=DETAIL keeps the part of a back end that is in C++ alone: the objects of
# Python, until shutdown().
wrapped = set()


class Message(typing.NamedTuple):
    """Options of send() and recv(), for which c10d has none."""

    asyncOp: bool = True
    timeout: timedelta = -MILLISECOND


MESSAGE = Message()


class Slot:
    """Holds the handle of the group that a back end uses."""

    def __init__(self):
        self.group = None
        self.calls = []  # an entry for each thread that is in a blocking call

    def busy(self):
        return bool(self.calls)


def title_of(operation, arguments):
    return "recvAnySource" if operation == capi.RECV and arguments.peer < 0 else NAMES[operation]


def splits_array(splits):
    return (ctypes.c_int64 * len(splits))(*splits)


class Backend(c10d.Backend):
    """Ownership and errors are those of the class in csrc."""

    def __init__(self, membership):
        super().__init__(membership.rank, membership.size)
        self.membership = membership
        self._rank, self._size = membership.rank, membership.size
        self._slot = membership.slot
        self._prefix = membership.settings.name + ":"
        self._timeout_ms = membership.options._timeout // MILLISECOND
        self._library = capi.functions()
        self._completers = Completers()
        self._sequence = 0
        self._coalesced = None
        membership.end_threads = self._completers.close
        weakref.finalize(self, membership.close).atexit = False
        if c10d.get_debug_level() == c10d.DebugLevel.DETAIL:
            wrapped.add(self)

    def getBackendName(self):
        return "ddprun"

    @property
    def options(self):
        return self.membership.options

    @property
    def transport(self):
        """The way ranks communicate: shm, gloo, hierarchical."""
        return self._library.group_backend(self.membership.group()).decode()

    @property
    def bytes_sent(self):
        """Bytes that this rank has handed to the network; 0 where ranks share memory."""
        return self._library.group_bytes_sent(self.membership.group())

    # reconfigure() changes them, and C++ has no way to be told.
    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def _limit(self, timeout):
        # The sign is in the days: cheaper than a comparison, and most calls have no timeout of their own.
        return timeout.days >= 0 and timeout // MILLISECOND or self._timeout_ms

    def _change(self, operation, tensors, options, arguments, reads=True, receives=True, reduces=False):
        """An operation whose tensors are its input and its output."""
        outputs = Staged(operation, tensors, reads, receives, reduces)
        return self._run(operation, tensors, options, tensors, NONE, outputs, arguments)

    def _move(self, operation, inputs, outputs, options, arguments=NOTHING, reduces=False, is_part=False):
        """is_part: of another call, so that a profile does not show it."""
        read = Staged(operation, inputs, True, False, reduces)
        written = Staged(operation, outputs, False, True, reduces)
        return self._run(operation, inputs, options, outputs, read, written, arguments, is_part)

    def _run(self, operation, shown, options, results, inputs, outputs, arguments, is_part=False):
        """shown: the tensors whose shapes are in a profile."""
        is_message = options is MESSAGE
        if not is_message:
            self._sequence += 1
        event = None
        if profiling.enabled() and not is_part:
            event = self._begin_event(title_of(operation, arguments), shown)
        call = (operation, inputs.array, inputs.count, outputs.array, outputs.count, arguments,
                self._limit(options.timeout))
        if options.asyncOp or self._coalesced is not None:
            completer = self._completers.messages if is_message else self._completers.collectives
            return self._start(completer, call, event, results, (inputs, outputs, results), outputs.finishes)
        try:
            self._block(call, outputs.finishes)
        finally:
            if event:
                event.end()
        return EndedWork(results)

    def _begin_event(self, title, inputs):
        """None: nothing is recorded."""
        return profiling.Event(self._prefix + title, inputs) if profiling.enabled() else None

    def _block(self, call, finishes):
        error = capi.Error()
        calls = self._slot.calls
        calls.append(None)
        try:
            failed = self._library.tensor_operation(self.membership.group(), *call, None, error)
        finally:
            calls.pop()
        if failed:
            raise exception_of(error)
        run_all(finishes)

    def _start(self, completer, call, event, results, memory, finishes):
        work = capi.HANDLE()
        operation = Operation(works=(work,), memory=memory, finishes=finishes)
        try:
            checked(self._library.tensor_operation, self.membership.group(), *call, ctypes.byref(work))
        except BaseException:
            if work:  # it has begun: what interrupts the caller came during the call, as of a signal
                completer.push(operation)
            if event:
                event.end()
            raise
        if event:
            event.end_with(operation)
        return self._wrap(completer, operation, results)

    def _wrap(self, completer, operation, results):
        if self._coalesced is not None:
            self._coalesced.append(operation)
        return GroupWork(operation, completer, results)

    def broadcast(self, tensors, options=c10d.BroadcastOptions()):
        root = self._rank == options.rootRank
        return self._change(capi.BROADCAST, tensors, options, TensorArguments(peer=options.rootRank), reads=root,
                            receives=not root)

    def _allreduce_sparse(self, tensor, options):
        self._sequence += 1
        event = self._begin_event(NAMES[capi.ALL_REDUCE], [tensor])
        self._slot.calls.append(None)
        try:
            self.membership.allreduce_sparse(tensor, options.reduceOp == c10d.ReduceOp.SUM,
                                             self._limit(options.timeout))
        finally:
            self._slot.calls.pop()
            if event:
                event.end()
        return EndedWork([tensor])

    def allreduce(self, tensors, options=c10d.AllreduceOptions()):
        if len(tensors) == 1 and tensors[0].is_sparse:
            return self._allreduce_sparse(tensors[0], options)
        return self._change(capi.ALL_REDUCE, tensors, options, reducing(options.reduceOp), reduces=True)

    def allreduce_coalesced(self, tensors, options=c10d.AllreduceCoalescedOptions()):
        return self._change(capi.ALL_REDUCE_COALESCED, tensors, options, reducing(options.reduceOp), reduces=True)

    def reduce(self, tensors, options=c10d.ReduceOptions()):
        return self._change(capi.REDUCE, tensors, options, reducing_to(options.reduceOp, options.rootRank),
                            receives=self._rank == options.rootRank, reduces=True)

    def allgather(self, outputs, inputs, options=c10d.AllgatherOptions()):
        return self._move(capi.ALL_GATHER, inputs, first(outputs), options, TensorArguments(lists=len(outputs)))

    def all_gather_single(self, output, input, options=c10d.AllgatherOptions()):
        return self._move(capi.ALL_GATHER_INTO_TENSOR, [input], [output], options)

    def allgather_coalesced(self, outputs, inputs, options=c10d.AllgatherOptions()):
        """outputs[r][i]: rank r's inputs[i]."""
        if len(outputs) != self._size:
            raise ValueError(f"ddprun: all_gather_coalesced needs a list for each of {self._size} ranks, not "
                             f"{len(outputs)}")
        each = c10d.AllgatherOptions()
        each.timeout = options.timeout
        works = [
            self._move(capi.ALL_GATHER, [input], [of_rank[i] for of_rank in outputs], each, TensorArguments(lists=1),
                       is_part=True) for i, input in enumerate(inputs)
        ]
        work = self._whole_of("all_gather_coalesced", inputs, [work.operation for work in works])
        if not options.asyncOp:
            work.wait()
        return work

    def _whole_of(self, title, inputs, operations):
        """The work of a call that consists of others."""
        operation = Operation(parts=operations)
        if event := self._begin_event(title, inputs):
            event.end_with(operation)
        return self._wrap(self._completers.collectives, operation, [])

    def all_gather_single_coalesced(self, outputs, inputs, options=c10d.AllgatherOptions()):
        return self._move(capi.ALL_GATHER_INTO_TENSOR_COALESCED, inputs, outputs, options)

    def gather(self, outputs, inputs, options=c10d.GatherOptions()):
        return self._move(capi.GATHER, inputs, first(outputs), options,
                          TensorArguments(lists=len(outputs), peer=options.rootRank))

    def gather_single(self, output, input, options=c10d.GatherOptions()):
        outputs = [output] if self._rank == options.rootRank else []
        return self._move(capi.GATHER_SINGLE, [input], outputs, options, TensorArguments(peer=options.rootRank))

    def scatter(self, outputs, inputs, options=c10d.ScatterOptions()):
        return self._move(capi.SCATTER, first(inputs), outputs, options,
                          TensorArguments(lists=len(inputs), peer=options.rootRank))

    def reduce_scatter(self, outputs, inputs, options=c10d.ReduceScatterOptions()):
        arguments = reducing_to(options.reduceOp, 0)
        arguments.lists = len(inputs)
        return self._move(capi.REDUCE_SCATTER, first(inputs), outputs, options, arguments, reduces=True)

    def reduce_scatter_single(self, output, input, options=c10d.ReduceScatterOptions()):
        return self._move(capi.REDUCE_SCATTER_TENSOR, [input], [output], options, reducing(options.reduceOp),
                          reduces=True)

    def reduce_scatter_single_coalesced(self, outputs, inputs, options=c10d.ReduceScatterOptions()):
        return self._move(capi.REDUCE_SCATTER_TENSOR_COALESCED, inputs, outputs, options, reducing(options.reduceOp),
                          reduces=True)

    def all_to_all_single(self, output, input, output_splits, input_splits, options=c10d.AllToAllOptions()):
        arguments = TensorArguments(
            input_splits=splits_array(input_splits), input_split_count=len(input_splits),
            output_splits=splits_array(output_splits), output_split_count=len(output_splits))
        return self._move(capi.ALL_TO_ALL_SINGLE, [input], [output], options, arguments)

    def alltoall(self, outputs, inputs, options=c10d.AllToAllOptions()):
        return self._move(capi.ALL_TO_ALL, inputs, outputs, options)

    def send(self, tensors, destination, tag):
        inputs = Staged(capi.SEND, tensors, True, False, False)
        return self._run(capi.SEND, tensors, MESSAGE, tensors, inputs, NONE, TensorArguments(peer=destination, tag=tag))

    def recv(self, tensors, source, tag):
        outputs = Staged(capi.RECV, tensors, False, True, False)
        return self._run(capi.RECV, tensors, MESSAGE, tensors, NONE, outputs, TensorArguments(peer=source, tag=tag))

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, -1, tag)

    def barrier(self, options=c10d.BarrierOptions()):
        return self._run(capi.BARRIER, [], options, [], NONE, NONE, NOTHING)

    def monitored_barrier(self, options=-MILLISECOND, wait_all_ranks=False):
        """options: from C++; from Python it is the timeout."""
        self.membership.monitored_barrier(getattr(options, "timeout", options), wait_all_ranks)

    @property
    def supports_coalescing(self):
        return True

    def start_coalescing(self):
        if self._coalesced is not None:
            raise RuntimeError("ddprun: coalescing has begun already")
        self._coalesced = []

    def end_coalescing(self):
        if self._coalesced is None:
            raise RuntimeError("ddprun: coalescing has not begun")
        operations, self._coalesced = self._coalesced, None
        return self._whole_of("coalesced", [], operations)

    @property
    def supports_splitting(self):
        return True

    def split(self, store, ranks, options):
        if self._rank not in ranks:
            raise ValueError(f"ddprun: split(): rank {self._rank} is not among the ranks {ranks}")
        return self.membership.split(store, ranks, options)

    def merge(self, store, options, rank, size):
        return self.membership.merge(store, options, rank, size)

    @property
    def supports_reconfigure(self):
        return True

    def get_reconfigure_handle(self):
        return self.membership.handle_for_reconfigure

    def reconfigure(self, options):
        self._rank, self._size = self.membership.reconfigure(options)
        return EndedWork([])

    def supports_tensor_alloc(self, device):
        # DDP, in C++, asks with the index of a device; PyTorch does not pass its call of allocate_tensor() on.
        return isinstance(device, torch.device) and device.type == "cpu"

    def allocate_tensor(self, size, *, dtype, device):
        """Memory that collectives access without a copy."""
        count = max(size, 1)
        memory = checked(self._library.memory_allocate, self.membership.group(), count * dtype.itemsize)
        block = (ctypes.c_char * (count * dtype.itemsize)).from_address(self._library.memory_data(memory))
        # The tensor keeps the block.
        weakref.finalize(block, self._library.memory_free, memory).atexit = False
        return torch.frombuffer(block, dtype=dtype, count=count)[:size]

    def set_timeout(self, timeout):
        self.membership.options._timeout = timeout
        self._timeout_ms = timeout // MILLISECOND

    def _get_sequence_number_for_group(self):
        return self._sequence

    def _set_sequence_number_for_group(self):
        pass

    def get_error(self):
        return self.membership.error()

    def abort(self):
        self.membership.abort()

    def shutdown(self):
        self.membership.leave()
        wrapped.discard(self)
