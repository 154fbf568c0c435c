"""Works, groups, timeouts and errors over ddprun, where its back end in Python goes other ways than the compiled one.

usage: python_backend.py compiled | python | mixed | fallback | unfinished | blocked
       compiled, python: the back end that DDPRUN_TORCH_EXTENSION asks for. mixed: at odd ranks the one in Python.
       fallback: the one in Python, because nothing compiles. unfinished, blocked: rank 0 ends with works in progress,
       or while a thread of its is in a call.
"""

import gc
import os
import sys
import threading
import time
import weakref
from datetime import timedelta

if sys.argv[1] == "mixed":
    os.environ["DDPRUN_TORCH_EXTENSION"] = str(1 - int(os.environ["RANK"]) % 2)

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType, ReconfigureOptions


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def in_python():
    return type(backend_of()).__module__.startswith("ddprun.python_backend")


def start_last(rank, size, last, name, start):
    """Returns what start() does. One rank calls it when the calls of all others have returned, without a result."""
    store = dist.distributed_c10d._get_default_store()
    others = [other for other in range(size) if other != last]
    if rank == last:
        store.wait([f"{name} of rank {other}" for other in others], timedelta(seconds=60))
    work = start()
    if rank != last:
        store.set(f"{name} of rank {rank}", "")
    return work


def check_polling(rank, size):
    """`while not work.is_completed()` ends, and the result is there."""
    tensor = torch.ones(10)[::2]  # not contiguous: the result has to be copied
    work = start_last(rank, size, 0, "polled call", lambda: dist.all_reduce(tensor, async_op=True))
    while not work.is_completed():
        pass
    assert tensor.tolist() == [size] * 5, tensor
    assert work.is_success() and work.exception() is None
    assert work.result()[0].tolist() == [size] * 5
    work.synchronize()
    gloo = dist.new_group(backend="gloo")
    work = dist.all_reduce(torch.ones(1), group=gloo, async_op=True)
    while not work.is_completed():
        pass
    dist.barrier()


def check_polling_of_dropped_inputs(rank, size):
    """While one thread polls, another ends the operation and frees a tensor, for which it needs Python's lock."""
    def start():
        return dist.all_gather_into_tensor(torch.empty(size << 15), torch.ones(1 << 15), async_op=True)

    for number in range(100):
        work = start_last(rank, size, 1, f"call {number}", start)
        future = work.get_future()
        while not work.is_completed():
            pass
        future.wait()


def check_sources(rank, size):
    if rank == 0:
        message = torch.zeros(1)
        work = backend_of().recv_anysource([message], 3)
        work.wait()
        assert work._source_rank() == message.item() == 1
    elif rank == 1:
        dist.send(torch.ones(1), 0, tag=3)
    dist.barrier()


def check_split(rank, size):
    """Ranks in no group get none."""
    group = dist.split_group(split_ranks=[[0, 1]])
    if rank < 2:
        tensor = torch.full((1,), rank + 1.0)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == 3
        assert dist.get_process_group_ranks(group) == [0, 1]
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER, group
    dist.barrier()


def check_timeout(rank, size):
    group = dist.new_group()
    if rank == 0:
        dist.distributed_c10d._set_pg_timeout(timedelta(milliseconds=300), group)
        try:
            dist.all_reduce(torch.ones(1), group=group, async_op=True).wait()
            raise AssertionError("no error")
        except dist.DistBackendError as error:
            assert "rank 1" in str(error), error
        assert backend_of(group).get_error() == ErrorType.TIMEOUT, backend_of(group).get_error()
    assert backend_of().get_error() == ErrorType.SUCCESS
    dist.barrier()


def check_monitored_barrier(rank, size):
    """Rank 0 names who is missing; the others learn that it has failed. A timeout of zero waits for nobody."""
    dist.monitored_barrier(wait_all_ranks=True)
    for timeout, text in ((timedelta(milliseconds=50), "Rank 1 failed to pass monitoredBarrier in 50 ms"),
                          (timedelta(0), "Rank 0 timed out in monitoredBarrier after 0 ms")):
        group = dist.new_group(timeout=timedelta(hours=1))
        if rank == 0:
            check_refusal(group, text, timeout=timeout)
        dist.barrier()
        if rank == 1:
            check_refusal(group, "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for "
                          "send/recv from rank 0")
        dist.barrier()


def check_refusal(group, text, **options):
    try:
        dist.monitored_barrier(group, **options)
        raise AssertionError("no error")
    except dist.DistBackendError as error:
        assert text in str(error), error


def check_memory(rank, size):
    backend = backend_of()
    tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu"))
    assert tensor.shape == (1000,) and tensor.eq(0).all()
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    assert tensor.eq(size * (size + 1) / 2).all()
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    assert not backend.supports_tensor_alloc(torch.device("cuda", 0))


def check_failed_futures(rank, size):
    """As often as it is asked for."""
    group = dist.new_group()
    if rank == 0:
        future = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future()
        group.abort()
        for _ in range(2):
            try:
                future.wait()
                raise AssertionError("no error")
            except RuntimeError as error:
                assert "abort" in str(error), error
    dist.barrier()


def check_reconfigure(rank, size):
    """A process group keeps its rank and size, or says that it cannot change them."""
    group = dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"handle/{rank}", group.get_reconfigure_handle())
    options = ReconfigureOptions()
    options.handles = [store.get(f"handle/{r}").decode() for r in range(size)]
    options.uuid = 1
    group.reconfigure(options).wait()
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == size
    if in_python():
        options.handles = options.handles[1:] + options.handles[:1]
        try:
            group.reconfigure(options)
            raise AssertionError("no error")
        except NotImplementedError as error:
            assert "form a new group" in str(error), error


def check_errors(rank, size):
    """The words of errors, the same in both back ends."""
    ones = torch.ones(2)
    wrong = [
        (NotImplementedError, "ddprun: all_reduce of a sparse tensor has the reduction SUM alone",
         lambda: dist.all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.MAX)),
        (TypeError, "ddprun: all_gather_into_tensor of tensors of different types: Double and Float",
         lambda: dist.all_gather_into_tensor(torch.ones(2 * size, dtype=torch.double), ones)),
        (ValueError, f"ddprun: all_gather_into_tensor with {size} ranks: 1 elements are not {size} times 2",
         lambda: dist.all_gather_into_tensor(torch.ones(1), ones)),
        (ValueError, "ddprun: all_to_all_single: the input splits add up to 7 rows, not to those of the tensor",
         lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [1] * size, [7] + [0] * (size - 1))),
        (NotImplementedError, "ddprun: products of complex numbers are not supported",
         lambda: all_reduce_of_complex(dist.ReduceOp.PRODUCT)),
        (ValueError, "ddprun: complex numbers have no minimum and no maximum",
         lambda: all_reduce_of_complex(dist.ReduceOp.MAX)),
        (ValueError, "ddprun: the average of uint64 is not supported",
         lambda: dist.all_reduce(torch.ones(1, dtype=torch.uint64), dist.ReduceOp.AVG)),
    ]
    for kind, text, action in wrong:
        try:
            action()
            raise AssertionError(f"{text}: no error")
        except kind as error:
            assert text in str(error), (text, str(error))


def all_reduce_of_complex(op):
    """Past the checks of torch.distributed."""
    options = dist.AllreduceOptions()
    options.reduceOp = op
    backend_of().allreduce([torch.ones(1, dtype=torch.complex64)], options)


def check_fork(rank, size):
    """A child that was forked ends as any process does, and its parent's group lives on."""
    if rank == 0:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size


def check_ends_of_operations(rank, size):
    """Of the back end in Python: what may happen on the thread that ends an operation."""
    if not in_python():
        return
    from ddprun.python_backend.operation import Completer, Operation
    from ddprun.python_backend.work import GroupWork

    # The collector frees a work of the operation meanwhile.
    collected = Operation(finishes=(gc.collect,))
    cycle = [GroupWork(collected, Completer("of the test"), [])]
    cycle.append(cycle)
    del cycle
    ending = threading.Thread(target=collected.wait, args=(-1,), daemon=True)
    ending.start()
    ending.join(60)
    assert not ending.is_alive(), "the thread waits for itself"

    def interrupt():
        raise KeyboardInterrupt

    interrupted = Operation(finishes=(interrupt,))
    for _ in range(2):
        assert isinstance(interrupted.wait(-1), KeyboardInterrupt)


def check_polled_works_are_freed(rank, size):
    tensor = torch.ones(1)
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        pass
    kept = weakref.ref(tensor)
    del tensor, work
    gc.collect()
    deadline = time.monotonic() + 60
    while kept():  # until the thread that ended it has gone on
        assert time.monotonic() < deadline
        time.sleep(0.001)
    dist.barrier()


def unfinished():
    """The interpreter ends while operations and messages wait, and threads wait for them."""
    dist.all_reduce(torch.ones(4), async_op=True)
    kept = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    kept.then(lambda _: None)
    globals()["work"] = dist.irecv(torch.ones(1), 1)
    globals()["future"] = kept


def blocked():
    """It ends while a thread is in a call."""
    backend = backend_of()
    before = backend._get_sequence_number_for_group()
    threading.Thread(target=lambda: dist.all_reduce(torch.ones(4)), daemon=True).start()
    while backend._get_sequence_number_for_group() == before:
        time.sleep(0.001)


def end_first(rank, action):
    """Rank 0 ends after the action, the others after it."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"rank {rank} has joined", "")
    if rank == 0:
        store.wait([f"rank {other} has joined" for other in range(dist.get_world_size())], timedelta(seconds=60))
        store.set("process of rank 0", str(os.getpid()))
        action()
        return
    process = int(store.get("process of rank 0"))
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{process}"):
        assert time.monotonic() < deadline, "rank 0 does not end"
        time.sleep(0.01)


CHECKS = (check_polling, check_polling_of_dropped_inputs, check_sources, check_split, check_timeout, check_monitored_barrier,
          check_memory, check_failed_futures, check_reconfigure, check_errors, check_fork, check_ends_of_operations,
          check_polled_works_are_freed)


def main():
    what = sys.argv[1]
    dist.init_process_group("ddprun")
    rank, size = dist.get_rank(), dist.get_world_size()
    if what in ("unfinished", "blocked"):
        end_first(rank, unfinished if what == "unfinished" else blocked)
        print(f"rank {rank}: ends", flush=True)
        return
    dist.new_group([size - 1])  # its only process says nothing of its own
    wanted = what != "compiled" and (what != "mixed" or rank % 2 == 1)
    assert in_python() == wanted, type(backend_of())
    for check in CHECKS:
        check(rank, size)
    dist.destroy_process_group()
    print(f"rank {rank}: works in {'Python' if wanted else 'C++'}")


if __name__ == "__main__":
    main()
