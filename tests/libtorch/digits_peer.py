"""What digits.cc does, by PyTorch's DistributedDataParallel over Gloo.

usage: digits_peer.py FOLDER STEPS
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

BATCH_SIZE = 32


def idx_file(path, header):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def make_net():
    net = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.BatchNorm2d(16),
                        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10), nn.LogSoftmax(1))
    with torch.no_grad():
        for parameter in net.parameters():
            numbers = torch.arange(parameter.numel(), dtype=torch.double)
            parameter.copy_(numbers.mul(0.7).sin().mul(0.1).view_as(parameter))
    return net


def main():
    folder, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    images = idx_file(f"{folder}/train-images-idx3-ubyte", 16).float().div(255).view(-1, 1, 28, 28)
    labels = idx_file(f"{folder}/train-labels-idx1-ubyte", 8).long()
    net = make_net()
    ddp = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        first = (step * size + rank) * BATCH_SIZE
        samples = slice(first, first + BATCH_SIZE)
        loss = nn.functional.nll_loss(ddp(images[samples]), labels[samples])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step + 1} loss {loss.item():.9f}", flush=True)


if __name__ == "__main__":
    main()
