"""Ranks that are lost, and replaced by ddprun --max_restarts: the others keep their processes, and no step is lost.

usage: ddprun --standalone --nproc_per_node=3 --max_restarts=20 recovery_example.py [STEPS]
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddprun.recovery import Recovery


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    recovery = Recovery([model, optimizer])  # what a rank that joins gets from another one

    def train(step):  # called again in the next process group when a rank is lost
        parallel = DistributedDataParallel(model)
        rank, size = dist.get_rank(), dist.get_world_size()
        while step < steps:
            samples = torch.Generator().manual_seed(step * size + rank)
            inputs = torch.randn(32, 8, generator=samples)
            loss = torch.nn.functional.mse_loss(parallel(inputs), inputs[:, :2].sin())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            recovery.on_applied(step)
            if rank == 0:
                print(f"step {step}  loss {loss.item():.9f}", flush=True)

    recovery.run(train)


if __name__ == "__main__":
    main()
