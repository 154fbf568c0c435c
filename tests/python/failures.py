"""What a rank sees when another dies, when it aborts, and in the group that it forms afterwards in the same process.

usage: failures.py abort | reconfigure              under a launcher
       failures.py death <times>                   by itself
       failures.py fork | spawn <file>             by itself
       failures.py early_end                       by itself
"""

import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C._distributed_c10d import ReconfigureOptions


def error_of(action):
    begin = time.monotonic()
    try:
        action()
    except dist.DistBackendError as error:
        return str(error), time.monotonic() - begin
    raise AssertionError("no error")


def sum_of_ones():
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return int(tensor[0])


def mortal(rank, size, port, time_):
    """The last rank dies while the others wait for it."""
    store = dist.PrefixStore(str(time_), dist.TCPStore("127.0.0.1", port, is_master=False))
    dist.init_process_group("ddprun", store=store, rank=rank, world_size=size)
    assert sum_of_ones() == size
    store.set(f"ready/{rank}", "")
    if rank == size - 1:
        store.wait([f"ready/{r}" for r in range(size)])
        os.kill(os.getpid(), signal.SIGKILL)
    text, seconds = error_of(sum_of_ones)
    assert f"rank {size - 1} (pid " in text and f"on host {socket.gethostname()}) was lost: its process died" in text, text
    later, _ = error_of(lambda: dist.all_reduce(torch.ones(1), async_op=True).wait())
    assert later == text, later
    print(f"rank {rank}: after {seconds:.3f} s: {text}", flush=True)


def serve_store(pipe):
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(server.port)
    pipe.recv()


def death(times):
    """Without a launcher, which would end the survivors before they say what they saw. The store outlives all ranks.

    It has a process of its own: a child that is forked beside its threads may find the resolver locked.
    """
    fork = multiprocessing.get_context("fork")
    pipe, of_server = fork.Pipe()
    server = fork.Process(target=serve_store, args=(of_server,))
    server.start()
    port = pipe.recv()
    for time_ in range(times):
        ranks = [fork.Process(target=mortal, args=(rank, 3, port, time_)) for rank in range(3)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        assert [rank.exitcode for rank in ranks] == [0, 0, -signal.SIGKILL], [rank.exitcode for rank in ranks]
    pipe.send("end")
    server.join()
    print(f"{times} deaths were noticed")


def abort(rank, size):
    """A thread ends an operation that would wait; the next group works in the same process."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        waiting = dist.all_reduce(torch.ones(4), async_op=True)
        aborting = threading.Thread(target=dist.group.WORLD.abort)
        aborting.start()
        text, _ = error_of(waiting.wait)
        aborting.join()
        assert "abort" in text, text
        store.set("aborted", "")
    else:
        store.wait(["aborted"])
        text, _ = error_of(sum_of_ones)
        assert "rank 0" in text, text
    dist.destroy_process_group()
    dist.init_process_group("ddprun")
    assert sum_of_ones() == size
    dist.destroy_process_group()
    print(f"rank {rank}: the next group works")


def reconfigure(rank, size):
    """Another group of the same processes, in another order, by the handles that PyTorch has for it."""
    store = dist.distributed_c10d._get_default_store()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_reconfigure
    store.set(f"handle/{rank}", backend.get_reconfigure_handle())
    options = ReconfigureOptions()
    options.uuid = 1
    options.handles = [store.get(f"handle/{r}").decode() for r in reversed(range(size))]
    backend.reconfigure(options).wait()
    assert backend.rank() == size - 1 - rank and backend.size() == size
    tensor = torch.full((1,), float(rank))
    backend.broadcast([tensor]).wait()
    assert tensor.item() == size - 1
    print(f"rank {rank}: reconfigured")


def child(rank, size, file):
    dist.init_process_group("ddprun", init_method=f"file://{file}", rank=rank, world_size=size)
    assert sum_of_ones() == size
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:  # its process serves the back end's store
        store.wait([f"end of {other}" for other in range(1, size)], timedelta(seconds=60))
    dist.destroy_process_group()
    store.set(f"end of {rank}", "")


def started_by(method, file):
    torch.set_num_threads(1)
    multiprocessing.start_processes(child, (2, file), nprocs=2, start_method=method)
    print(f"{method}: the group of the children works")


def without_rank_0(rank, port, ended):
    """Rank 0, in whose process PyTorch's store is, ends before the group of the others does."""
    dist.init_process_group("ddprun", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    others = dist.new_group([1, 2])
    assert sum_of_ones() == 3
    if rank == 0:
        return
    assert ended.wait(60)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=others)
    assert tensor.item() == 2
    print(f"rank {rank}: goes on", flush=True)


def early_end():
    torch.set_num_threads(1)
    spawn = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ended = spawn.Event()
    ranks = [spawn.Process(target=without_rank_0, args=(rank, port, ended)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    ranks[0].join()
    ended.set()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0, 0], [rank.exitcode for rank in ranks]


def main():
    what = sys.argv[1]
    if what == "death":
        return death(int(sys.argv[2]))
    if what in ("fork", "spawn"):
        return started_by(what, sys.argv[2])
    if what == "early_end":
        return early_end()
    dist.init_process_group("ddprun", timeout=timedelta(seconds=60))
    {"abort": abort, "reconfigure": reconfigure}[what](dist.get_rank(), dist.get_world_size())


if __name__ == "__main__":
    main()
