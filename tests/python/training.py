"""What PyTorch builds on collectives, over ddprun: the same losses as over Gloo, to 1e-6.

usage: training.py <folder>
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 32), nn.ReLU(),
                         nn.Linear(32, 10))


def batches(rank, steps=10):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        yield torch.randn(8, 1, 8, 8, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def losses(module, rank):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    found = []
    for images, labels in batches(rank):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


def ddp(rank, group, **options):
    hook = options.pop("hook", None)
    module = DistributedDataParallel(model(), process_group=group, **options)
    if hook:
        module.register_comm_hook(group, hook)
    return losses(module, rank)


def close(mine, gloos, what):
    assert torch.allclose(mine, gloos, atol=0, rtol=1e-6), (what, mine, gloos)


def data_parallel(rank, gloo):
    mine = dist.group.WORLD
    for options in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"static_graph": True},
                    {"find_unused_parameters": True}, {"hook": default_hooks.bf16_compress_hook}):
        close(ddp(rank, mine, **options), ddp(rank, gloo, **options), options)
    uneven = DistributedDataParallel(nn.Linear(4, 4))
    with uneven.join():
        for _ in range(3 + rank):
            uneven(torch.ones(2, 4)).sum().backward()
    with uneven.no_sync():
        uneven(torch.ones(2, 4)).sum().backward()
    compiled = torch.compile(DistributedDataParallel(model()), backend="eager")
    close(losses(compiled, rank), ddp(rank, gloo), "compiled")


def is_shared(tensor):
    """Whether other processes can map its memory."""
    for line in open("/proc/self/maps"):
        addresses, flags, *_ = line.split()
        begin, end = (int(text, 16) for text in addresses.split("-"))
        if begin <= tensor.data_ptr() < end:
            return flags.endswith("s")
    raise AssertionError("memory without a mapping")


def shared_buckets(rank):
    """The compiled back end lends DDP memory for its buckets, also when they are made anew after the first step."""
    found = []

    def hook(group, bucket):
        found.append(is_shared(bucket.buffer()))
        return default_hooks.allreduce_hook(group, bucket)

    ddp(rank, dist.group.WORLD, hook=hook, bucket_cap_mb=0.001)
    expected = os.environ.get("DDPRUN_TORCH_EXTENSION") != "0" and torch.cuda.device_count() == 0
    assert set(found) == {expected}, (found, expected)


def sharded(rank, gloo, folder):
    module = model()
    fully_shard(module[4])
    fully_shard(module[6])
    fully_shard(module)
    found = losses(module, rank)
    reference = model()
    close(found, losses(DistributedDataParallel(reference, process_group=gloo), rank), "fully_shard")
    state = {"model": module.state_dict()}
    dcp.save(state, checkpoint_id=folder)
    fresh = model()
    fully_shard(fresh)
    loaded = {"model": fresh.state_dict()}
    dcp.load(loaded, checkpoint_id=folder)
    for name, value in loaded["model"].items():
        if isinstance(value, DTensor):  # others, such as the averages of batch norm, are each rank's own
            assert torch.equal(value.full_tensor(), state["model"][name].full_tensor()), name


def tensor_parallel(rank, size):
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    torch.manual_seed(3)
    whole = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    divided = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    divided.load_state_dict(whole.state_dict())
    divided = parallelize_module(divided, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    values = torch.randn(4, 16)
    assert torch.allclose(divided(values), whole(values), atol=1e-6)
    matrix = torch.arange(64.0).view(8, 8)
    rows = distribute_tensor(matrix, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), matrix)


def remote_calls(rank, size):
    """PyTorch's RPC has connections of its own; both work beside each other."""
    rpc.init_rpc(f"worker_{rank}", rank=rank, world_size=size)
    values = torch.ones(2)
    dist.all_reduce(values)
    assert rpc.rpc_sync(f"worker_{(rank + 1) % size}", torch.add, args=(values, 1)).tolist() == [size + 1.0] * 2
    rpc.shutdown()


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("TRAINING_BACKEND", "cpu:ddprun"))
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    data_parallel(rank, gloo)
    shared_buckets(rank)
    sharded(rank, gloo, folder)
    tensor_parallel(rank, size)
    remote_calls(rank, size)
    dist.destroy_process_group()
    print(f"rank {rank}: the losses are Gloo's")


if __name__ == "__main__":
    main()
