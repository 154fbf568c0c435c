#!/usr/bin/env python3
"""One replica of a training with TorchFT: the CNN of ddprun's `model.name = cnn`, over Gloo, on MNIST's files.

    TORCHFT_LIGHTHOUSE=http://localhost:29510 python3 tests/bench/peers/torchft_train.py --replica 0 --data FOLDER --file FILE

Adds a line of JSON to the file for each step that it has tried: which one, when it was done by the wall clock, whether it
was committed, in which quorum and with how many replicas. It ends when it is killed.
"""
import argparse
import gzip
import json
import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from torch_train_step import Cnn


def read_idx(path):
    """Returns the array of a file in MNIST's format, compressed or not."""
    for name, opened in ((path.with_name(path.name + ".gz"), gzip.open), (path, open)):
        if name.exists():
            with opened(name, "rb") as file:
                content = file.read()
            sizes = numpy.frombuffer(content, ">i4", content[3], 4)
            return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * content[3]).reshape(sizes).copy()
    raise FileNotFoundError(path)


def batches(folder, size, seed):
    images = torch.from_numpy(read_idx(folder / "train-images-idx3-ubyte")).unsqueeze(1)
    labels = torch.from_numpy(read_idx(folder / "train-labels-idx1-ubyte")).long()
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(labels), generator=generator)
        for chosen in order[: len(order) // size * size].split(size):
            yield (images[chosen].float() / 255 - 0.1307) / 0.3081, labels[chosen]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--replica", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=60, help="seconds; TorchFT's own default")
    parser.add_argument("--heartbeat-interval", type=float, default=0.1, help="seconds; TorchFT's own default")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(1)

    model = Cnn()
    optimizer = torch.optim.Adam(model.parameters())
    timeout = timedelta(seconds=options.timeout)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"replica_{options.replica}_", rank=0, world_size=1, store_addr="localhost", store_port=store.port,
        hostname="localhost", timeout=timeout, heartbeat_interval=timedelta(seconds=options.heartbeat_interval))
    module = DistributedDataParallel(manager, model)
    managed = Optimizer(manager, optimizer)
    records = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for images, labels in batches(options.data, options.batch, options.replica):
        before = manager.current_step()
        managed.zero_grad()
        F.cross_entropy(module(images), labels).backward()
        managed.step()
        record = {"replica": options.replica, "pid": os.getpid(), "at": time.time(), "step": manager.current_step(),
                  "committed": manager.current_step() > before, "quorum": manager._quorum_id,
                  "replicas": manager.num_participants()}
        os.write(records, (json.dumps(record) + "\n").encode())


if __name__ == "__main__":
    main()
