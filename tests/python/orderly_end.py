"""Rank 0, whose process serves the store, leaves while the others still need the group: they go on. When it dies, they
name it.

usage: orderly_end.py <folder>     by itself, without a launcher
"""

import os
import pathlib
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C._distributed_c10d import ErrorType

SIZE = 3
ROUNDS = 200  # of messages, long enough for a lost store to show
STORES = ("file", "tcp", "env")
TIMEOUT = 60


class Scene:
    """What all ranks know. how: rank 0 ends. left: it has left its groups; ended: its process has."""

    def __init__(self, context, store, how, place):
        self.store = store
        self.how = how
        self.place = place
        self.left = context.Event()
        self.ended = context.Event()
        self.inside = context.Semaphore(0)  # released by each rank that is in the group

    def join(self, rank):
        torch.set_num_threads(1)
        size, timeout = SIZE, timedelta(seconds=TIMEOUT)
        if self.store == "env":
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=self.place, RANK=str(rank), WORLD_SIZE=str(size))
            dist.init_process_group("ddprun", timeout=timeout)
        else:
            method = f"file://{self.place}" if self.store == "file" else f"tcp://127.0.0.1:{self.place}"
            dist.init_process_group("ddprun", init_method=method, rank=rank, world_size=size, timeout=timeout)


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def announce_departure(scene, member):
    """As the interpreter ends, when no code of the script's runs any longer."""
    while True:
        try:
            member.transport
        except RuntimeError:  # it has been shut down
            return scene.left.set()
        time.sleep(0.001)


def rank_main(rank, scene):
    scene.join(rank)
    group = dist.new_group(list(range(SIZE)))
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    tensor = torch.full((4,), float(rank == 0))
    if rank == 0:
        dist.broadcast(tensor, 0)
        scene.inside.acquire()
        scene.inside.acquire()
        return leave(scene)
    scene.inside.release()
    assert (scene.ended if scene.how in ("_exit", "kill") else scene.left).wait(TIMEOUT)
    if scene.how == "kill":
        return name_rank_0(rank)
    dist.broadcast(tensor, 0)
    assert tensor.eq(1).all()
    for _ in range(ROUNDS):
        (dist.send if rank == 1 else dist.recv)(tensor, 3 - rank, group=group)
    assert backend().get_error() == ErrorType.SUCCESS
    dist.destroy_process_group()
    print(f"{scene.store}, {scene.how}: rank {rank} goes on", flush=True)


def leave(scene):
    if scene.how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if scene.how == "return":
        threading.Thread(target=announce_departure, args=(scene, backend()), daemon=True).start()
        return
    dist.destroy_process_group()
    scene.left.set()
    if scene.how == "_exit":
        os._exit(0)


def name_rank_0(rank):
    try:
        for _ in range(ROUNDS):
            dist.all_reduce(torch.ones(1))
        raise AssertionError("no error")
    except dist.DistBackendError as error:
        assert "rank 0 (pid " in str(error) and "lost" in str(error), error
        print(f"kill: rank {rank} names rank 0", flush=True)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run(method, store, how, folder):
    context = multiprocessing.get_context(method)
    place = str(folder / f"meeting of {method} {how}") if store == "file" else free_port()
    scene = Scene(context, store, how, place)
    ranks = [context.Process(target=rank_main, args=(rank, scene)) for rank in range(SIZE)]
    for rank in ranks:
        rank.start()
    if how in ("_exit", "kill"):
        ranks[0].join()
        scene.ended.set()
    for rank in ranks:
        rank.join()
    codes = [rank.exitcode for rank in ranks]
    assert codes == [-signal.SIGKILL if how == "kill" else 0, 0, 0], (method, store, how, codes)


def main():
    folder = pathlib.Path(sys.argv[1])
    for store in STORES:
        for how in ("destroy", "return", "_exit", "kill"):
            run("fork", store, how, folder)
    run("spawn", "file", "return", folder)
    print("every rank 0 could leave")


if __name__ == "__main__":
    main()
