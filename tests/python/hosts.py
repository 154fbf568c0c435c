"""One of two hosts, with two ranks on each: one rank dies, and the others say what they saw.

usage: hosts.py HOST ADDRESS PORT VICTIM     HOST: 0 or 1; ADDRESS: of host 0, where the store is
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

SIZE = 4
RANKS_OF_HOST = 2


def connect(address, port):
    return dist.TCPStore(address, port, is_master=False)


def serve(address, port):
    """In a process of its own: the store outlives all ranks."""
    server = dist.TCPStore(address, port, is_master=True, wait_for_workers=False)
    server.wait(["end"])


def rank_main(rank, address, port, victim):
    store = connect(address, port)
    dist.init_process_group("ddprun", store=dist.PrefixStore("group", store), rank=rank, world_size=SIZE)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == SIZE
    for members in ([1, 2, 3], [2, 3]):  # without rank 0, on both hosts and on the one without PyTorch's store
        group = dist.new_group(members)
        if rank in members:
            part = torch.ones(1)
            dist.all_reduce(part, group=group)
            assert part.item() == len(members)
    store.set(f"ready/{rank}", "")
    if rank == victim:
        store.wait([f"ready/{r}" for r in range(SIZE)])
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        dist.all_reduce(torch.ones(1))
    except dist.DistBackendError as error:
        print(f"rank {rank}: after {time.monotonic() - begin:.3f} s: {error}", flush=True)
    store.set(f"done/{rank}", "")


def main():
    host, port, victim = int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
    address = sys.argv[2]
    spawn = multiprocessing.get_context("spawn")
    server = spawn.Process(target=serve, args=(address, port))
    if host == 0:
        server.start()
    ranks = [spawn.Process(target=rank_main, args=(RANKS_OF_HOST * host + local, address, port, victim))
             for local in range(RANKS_OF_HOST)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    expected = [-signal.SIGKILL if RANKS_OF_HOST * host + local == victim else 0 for local in range(RANKS_OF_HOST)]
    assert [rank.exitcode for rank in ranks] == expected, [rank.exitcode for rank in ranks]
    if host == 0:
        store = connect(address, port)
        store.wait([f"done/{rank}" for rank in range(SIZE) if rank != victim])
        store.set("end", "")
        server.join()


if __name__ == "__main__":
    main()
