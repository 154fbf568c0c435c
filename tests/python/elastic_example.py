"""Training that goes on when a rank dies: the others form the next group in the same processes, without a restart."""

import multiprocessing
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 30


def train_in_group(model, optimizer, step):
    """Trains until the end, or until a rank is lost; returns the next step."""
    parallel = DistributedDataParallel(model)
    try:
        while step < STEPS:
            if step == 10 and dist.get_world_size() == 3 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            samples = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * 100 + dist.get_rank()))
            torch.nn.functional.mse_loss(parallel(samples), samples.sum(1, keepdim=True)).backward()
            optimizer.step()
            step += 1
    except RuntimeError as error:  # a DistBackendError is one; with ddprun's back end in Python it may be a plain one
        print(f"step {step}: {type(error).__name__}: {error}", flush=True)
    return step


def rank_process(number, size, port):
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step, rank, generation = 0, number, 0
    while step < STEPS:
        dist.init_process_group("ddprun", store=dist.PrefixStore(str(generation), store), rank=rank, world_size=size)
        # The new rank 0's parameters and step count: a rank may have finished the step that others lost.
        position = torch.tensor([step])
        dist.broadcast(position, 0)
        step = train_in_group(model, optimizer, int(position))
        dist.destroy_process_group()
        generation, size = generation + 1, size - 1
        rank = store.add(f"ranks of {generation}", 1) - 1
    print(f"finished with {size + 1} ranks: {model.weight.sum().item():.6f}", flush=True)


def main():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [multiprocessing.get_context("spawn").Process(target=rank_process, args=(r, 3, server.port)) for r in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
