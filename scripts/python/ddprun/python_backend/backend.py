"""The back end: a subclass in Python of c10d's Backend, over a ddprun process group, for dense tensors on the CPU;
all_reduce takes sparse ones."""

import ctypes
import typing
import weakref
from datetime import timedelta

import torch
from torch._C import _distributed_c10d as c10d

from ddprun import capi
from ddprun.capi import Span
from ddprun.group.errors import checked, exception_of
from ddprun.group.store_access import MILLISECOND
from ddprun.python_backend import profiling
from ddprun.python_backend.operation import Completers, Operation, run_all
from ddprun.python_backend.reductions import encoded_input, encoded_output, reduction_and_encoding
from ddprun.python_backend.spans import (array_of, counts_array, counts_of, equal_sizes, flat_input,
                                         flat_output, name_of, only, require_dense, require_list, require_parts,
                                         require_same_type, span_to_move, staged_output, total, units_of)
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
    """Holds the handle of the group that a back end has joined, if it has."""

    def __init__(self):
        self.group = None
        self.calls = []  # an entry for each thread that is in a blocking call

    def busy(self):
        return bool(self.calls)


def counts_of_splits(tensor, splits, size, which):
    """Splits are rows of the first dimension; none: equal parts."""
    rows = tensor.shape[0] if tensor.dim() > 0 else None
    if not splits:
        if rows is None or rows % size:
            raise ValueError(f"ddprun: all_to_all_single: the first dimension of the {which} does not divide into "
                             f"{size} equal parts")
        return [tensor.numel() // size * units_of(tensor)] * size
    if len(splits) != size:
        raise ValueError(f"ddprun: all_to_all_single: {len(splits)} {which} splits for {size} ranks")
    if sum(splits) != rows:
        raise ValueError(f"ddprun: all_to_all_single: the {which} splits add up to {sum(splits)} rows, not to those of "
                         "the tensor")
    of_row = tensor.numel() // rows * units_of(tensor) if rows else 0
    return [split * of_row for split in splits]


class Backend(c10d.Backend):
    """Ownership and errors are those of the class in csrc."""

    def __init__(self, membership):
        super().__init__(membership.rank, membership.size)
        self.membership = membership
        self._size = membership.size
        self._rank = membership.rank
        self._calls = membership.slot.calls
        self._title = membership.settings.name + ":"
        self._library = capi.functions()
        self._completers = Completers()
        self._sequence = 0
        self._coalesced = None
        self._timeout_ms = membership.options._timeout // MILLISECOND
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

    def _run(self, title, inputs, options, outputs, memory, finishes, function, *arguments):
        """Calls a function of the library. title: of the event in a profile, which shows the shapes of the inputs; or
        None: it is part of another. finishes: what brings the results to the tensors; memory: what it uses."""
        self._sequence += 1
        if options.asyncOp or self._coalesced is not None:
            return self._start(self._completers.collectives, title, inputs, options, outputs, memory, finishes,
                               function, arguments)
        event = self._begin_event(title, inputs)
        try:
            self._block(options, finishes, function, arguments)
        finally:
            if event:
                event.end()
        return EndedWork(outputs)

    def _begin_event(self, title, inputs):
        """None: nothing is recorded."""
        if title is None or not profiling.enabled():
            return None
        return profiling.Event(self._title + title, inputs)

    def _block(self, options, finishes, function, arguments):
        error = capi.Error()
        self._calls.append(None)
        try:
            failed = function(self.membership.group(), *arguments, self._limit(options.timeout), None, error)
        finally:
            self._calls.pop()
        if failed:
            raise exception_of(error)
        run_all(finishes)

    def _message(self, title, tensors, memory, finishes, function, *arguments):
        return self._start(self._completers.messages, title, tensors, MESSAGE, tensors, memory, finishes, function,
                           arguments)

    def _start(self, completer, title, inputs, options, outputs, memory, finishes, function, arguments):
        event = self._begin_event(title, inputs)
        work = capi.HANDLE()
        operation = Operation(works=(work,), memory=(memory, outputs), finishes=finishes)
        try:
            checked(function, self.membership.group(), *arguments, self._limit(options.timeout), ctypes.byref(work))
        except BaseException:
            if work:  # it has begun: what interrupts the caller came during the call, as of a signal
                completer.push(operation)
            if event:
                event.end()
            raise
        if event:
            event.end_with(operation)
        return self._wrap(completer, operation, outputs)

    def _wrap(self, completer, operation, outputs):
        if self._coalesced is not None:
            self._coalesced.append(operation)
        return GroupWork(operation, completer, outputs)

    def broadcast(self, tensors, options=c10d.BroadcastOptions()):
        tensor = only(tensors, "broadcast")
        root = self._rank == options.rootRank
        memory, finish = staged_output(tensor, root)
        return self._run("broadcast", tensors, options, tensors, memory, (None if root else finish,),
                         self._library.broadcast, span_to_move(memory), options.rootRank)

    def _allreduce_sparse(self, tensor, options):
        self._sequence += 1
        event = self._begin_event("all_reduce", [tensor])
        self._calls.append(None)
        try:
            self.membership.allreduce_sparse(tensor, options.reduceOp == c10d.ReduceOp.SUM,
                                             self._limit(options.timeout))
        finally:
            self._calls.pop()
            if event:
                event.end()
        return EndedWork([tensor])

    def allreduce(self, tensors, options=c10d.AllreduceOptions()):
        if len(tensors) == 1 and tensors[0].is_sparse:
            return self._allreduce_sparse(tensors[0], options)
        tensor = only(tensors, "all_reduce")
        reduction, encoding = reduction_and_encoding(tensor.dtype, options.reduceOp)
        memory, span, finish = encoded_output(tensor, encoding, True, self._size)
        return self._run("all_reduce", tensors, options, tensors, memory, (finish,), self._library.allreduce, span,
                         span, reduction)

    def allreduce_coalesced(self, tensors, options=c10d.AllreduceCoalescedOptions()):
        if not tensors:
            raise ValueError("ddprun: all_reduce_coalesced of no tensor")
        dtype = tensors[0].dtype
        require_same_type(tensors, dtype, "all_reduce_coalesced")
        reduction, encoding = reduction_and_encoding(dtype, options.reduceOp)
        memory, spans, finishes = zip(*(encoded_output(tensor, encoding, True, self._size) for tensor in tensors))
        return self._run("all_reduce_coalesced", tensors, options, tensors, memory, finishes,
                         self._library.allreduce_coalesced, array_of(spans), len(spans), reduction)

    def reduce(self, tensors, options=c10d.ReduceOptions()):
        tensor = only(tensors, "reduce")
        root = self._rank == options.rootRank
        reduction, encoding = reduction_and_encoding(tensor.dtype, options.reduceOp)
        memory, span, finish = encoded_output(tensor, encoding, True, self._size)
        return self._run("reduce", tensors, options, tensors, memory, (finish if root else None,), self._library.reduce,
                         span, span, options.rootRank, reduction)

    def allgather(self, outputs, inputs, options=c10d.AllgatherOptions()):
        return self._allgather_as("all_gather", outputs, inputs, options)

    def _allgather_as(self, title, outputs, inputs, options):
        input = only(inputs, "all_gather")
        if len(outputs) != 1:
            raise ValueError("ddprun: all_gather takes one list of outputs")
        tensors = outputs[0]
        require_list(tensors, self._size, "all_gather")
        if tensors[0].dtype is not input.dtype:
            raise TypeError(f"ddprun: all_gather of {name_of(input.dtype)} into {name_of(tensors[0].dtype)}")
        if tensors[self._rank].numel() != input.numel():
            raise ValueError(f"ddprun: all_gather: this rank's input has {input.numel()} elements, its place in the "
                             f"output {tensors[self._rank].numel()}")
        own = input.detach().contiguous()
        memory, finish = flat_output(tensors)
        counts = None if equal_sizes(tensors) else counts_of(tensors)
        return self._run(title, inputs, options, tensors, (own, memory), (finish,), self._library.allgather,
                         span_to_move(own), span_to_move(memory), counts_array(counts))

    def all_gather_single(self, output, input, options=c10d.AllgatherOptions()):
        require_parts(output, input, self._size, "all_gather_into_tensor")
        own = input.detach().contiguous()
        memory, finish = staged_output(output, False)
        return self._run("all_gather_into_tensor", [input], options, [output], (own, memory), (finish,),
                         self._library.allgather, span_to_move(own), span_to_move(memory), None)

    def allgather_coalesced(self, outputs, inputs, options=c10d.AllgatherOptions()):
        """outputs[r][i]: rank r's inputs[i]."""
        if len(outputs) != self._size:
            raise ValueError(f"ddprun: all_gather_coalesced needs a list for each of {self._size} ranks, not "
                             f"{len(outputs)}")
        each = c10d.AllgatherOptions()
        each.timeout = options.timeout
        works = [
            self._allgather_as(None, [[of_rank[i] for of_rank in outputs]], [input], each)
            for i, input in enumerate(inputs)
        ]
        work = self._all_of("all_gather_coalesced", inputs, [work.operation for work in works])
        if not options.asyncOp:
            work.wait()
        return work

    def _all_of(self, title, inputs, operations):
        operation = Operation(parts=operations)
        if event := self._begin_event(title, inputs):
            event.end_with(operation)
        return self._wrap(self._completers.collectives, operation, [])

    def all_gather_single_coalesced(self, outputs, inputs, options=c10d.AllgatherOptions()):
        if len(outputs) != len(inputs):
            raise ValueError(f"ddprun: {len(outputs)} outputs for {len(inputs)} inputs")
        for output, input in zip(outputs, inputs):
            require_parts(output, input, self._size, "all_gather_into_tensor_coalesced")
        own = [input.detach().contiguous() for input in inputs]
        staged = [staged_output(output, False) for output in outputs]
        from_ = [span_to_move(tensor) for tensor in own]
        to = [span_to_move(memory) for memory, _ in staged]
        return self._run("all_gather_into_tensor_coalesced", inputs, options, outputs, (own, staged),
                         [finish for _, finish in staged], self._library.allgather_coalesced, array_of(from_),
                         array_of(to), len(own))

    def gather(self, outputs, inputs, options=c10d.GatherOptions()):
        input = only(inputs, "gather")
        root = self._rank == options.rootRank
        if len(outputs) != (1 if root else 0):
            raise ValueError("ddprun: gather takes a list of outputs at its root, and none elsewhere")
        own = input.detach().contiguous()
        from_ = span_to_move(own)
        tensors, memory, finish, to = [], None, None, Span(None, 0, from_.dtype)
        if root:
            tensors = outputs[0]
            self._require_equal_parts(tensors, input, "gather")
            memory, finish = flat_output(tensors)
            to = span_to_move(memory)
        return self._run("gather", inputs, options, tensors, (own, memory), (finish,), self._library.gather, from_, to,
                         None, options.rootRank)

    def _require_equal_parts(self, tensors, whole, operation):
        require_list(tensors, self._size, operation)
        require_same_type(tensors, whole.dtype, operation)
        if not equal_sizes(tensors) or tensors[0].numel() != whole.numel():
            raise ValueError(f"ddprun: {operation} needs tensors of the same size")

    def gather_single(self, output, input, options=c10d.GatherOptions()):
        root = self._rank == options.rootRank
        require_dense(input, "gather_single")
        if root:
            require_parts(output, input, self._size, "gather_single")
        own = input.detach().contiguous()
        from_ = span_to_move(own)
        memory, finish = staged_output(output, False) if root else (None, None)
        to = span_to_move(memory) if root else Span(None, 0, from_.dtype)
        return self._run("gather_single", [input], options, [output] if root else [], (own, memory), (finish,),
                         self._library.gather, from_, to, None, options.rootRank)

    def scatter(self, outputs, inputs, options=c10d.ScatterOptions()):
        output = only(outputs, "scatter")
        root = self._rank == options.rootRank
        if len(inputs) != (1 if root else 0):
            raise ValueError("ddprun: scatter takes a list of inputs at its root, and none elsewhere")
        memory, finish = staged_output(output, False)
        to = span_to_move(memory)
        flat, from_ = None, Span(None, 0, to.dtype)
        if root:
            self._require_equal_parts(inputs[0], output, "scatter")
            flat = flat_input(inputs[0])
            from_ = span_to_move(flat)
        return self._run("scatter", inputs[0] if root else [], options, outputs, (flat, memory), (finish,),
                         self._library.scatter, from_, None, to, options.rootRank)

    def reduce_scatter(self, outputs, inputs, options=c10d.ReduceScatterOptions()):
        output = only(outputs, "reduce_scatter")
        if len(inputs) != 1:
            raise ValueError("ddprun: reduce_scatter takes one list of inputs")
        tensors = inputs[0]
        require_list(tensors, self._size, "reduce_scatter")
        require_same_type(tensors, output.dtype, "reduce_scatter")
        if tensors[self._rank].numel() != output.numel():
            raise ValueError(f"ddprun: reduce_scatter: this rank's input has {tensors[self._rank].numel()} elements, "
                             f"its output {output.numel()}")
        reduction, encoding = reduction_and_encoding(output.dtype, options.reduceOp)
        own, from_ = encoded_input(flat_input(tensors), encoding)
        memory, to, finish = encoded_output(output, encoding, False, self._size)
        counts = None
        if not equal_sizes(tensors):
            # In elements of the library's: a complex number is two of them.
            counts = [count * from_.count // max(1, total(tensors)) for count in map(torch.Tensor.numel, tensors)]
        return self._run("reduce_scatter", tensors, options, outputs, (own, memory), (finish,),
                         self._library.reduce_scatter, from_, to, counts_array(counts), reduction)

    def reduce_scatter_single(self, output, input, options=c10d.ReduceScatterOptions()):
        require_parts(input, output, self._size, "reduce_scatter_tensor")
        reduction, encoding = reduction_and_encoding(output.dtype, options.reduceOp)
        own, from_ = encoded_input(input, encoding)
        memory, to, finish = encoded_output(output, encoding, False, self._size)
        return self._run("reduce_scatter_tensor", [input], options, [output], (own, memory), (finish,),
                         self._library.reduce_scatter, from_, to, None, reduction)

    def reduce_scatter_single_coalesced(self, outputs, inputs, options=c10d.ReduceScatterOptions()):
        if len(outputs) != len(inputs) or not inputs:
            raise ValueError(f"ddprun: {len(outputs)} outputs for {len(inputs)} inputs")
        dtype = outputs[0].dtype
        require_same_type(inputs, dtype, "reduce_scatter_tensor_coalesced")
        reduction, encoding = reduction_and_encoding(dtype, options.reduceOp)
        for input, output in zip(inputs, outputs):
            require_parts(input, output, self._size, "reduce_scatter_tensor_coalesced")
        own, from_ = zip(*(encoded_input(input, encoding) for input in inputs))
        memory, to, finishes = zip(*(encoded_output(output, encoding, False, self._size) for output in outputs))
        return self._run("reduce_scatter_tensor_coalesced", inputs, options, outputs, (own, memory), finishes,
                         self._library.reduce_scatter_coalesced, array_of(from_), array_of(to), len(own), reduction)

    def all_to_all_single(self, output, input, output_splits, input_splits, options=c10d.AllToAllOptions()):
        require_dense(output, "all_to_all_single")
        require_dense(input, "all_to_all_single")
        if output.dtype is not input.dtype:
            raise TypeError("ddprun: all_to_all_single of tensors of different types")
        input_counts = counts_of_splits(input, input_splits, self._size, "input")
        output_counts = counts_of_splits(output, output_splits, self._size, "output")
        if not output_splits and not input_splits:
            input_counts = output_counts = None
        own = input.detach().contiguous()
        memory, finish = staged_output(output, False)
        return self._run("all_to_all_single", [input], options, [output], (own, memory), (finish,),
                         self._library.all_to_all, span_to_move(own), counts_array(input_counts), span_to_move(memory),
                         counts_array(output_counts))

    def alltoall(self, outputs, inputs, options=c10d.AllToAllOptions()):
        require_list(outputs, self._size, "all_to_all")
        require_list(inputs, self._size, "all_to_all")
        require_same_type(inputs, outputs[0].dtype, "all_to_all")
        flat = flat_input(inputs)
        memory, finish = flat_output(outputs)
        return self._run("all_to_all", inputs, options, outputs, (flat, memory), (finish,), self._library.all_to_all,
                         span_to_move(flat), counts_array(counts_of(inputs)), span_to_move(memory),
                         counts_array(counts_of(outputs)))

    def send(self, tensors, destination, tag):
        own = only(tensors, "send").detach().contiguous()
        return self._message("send", tensors, own, (), self._library.send, span_to_move(own), destination, tag)

    def recv(self, tensors, source, tag):
        memory, finish = staged_output(only(tensors, "recv"), False)
        title = "recvAnySource" if source < 0 else "recv"
        return self._message(title, tensors, memory, (finish,), self._library.recv, span_to_move(memory), source, tag)

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, -1, tag)

    def barrier(self, options=c10d.BarrierOptions()):
        return self._run("barrier", [], options, [], None, (), self._library.barrier)

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
        return self._all_of("coalesced", [], operations)

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
