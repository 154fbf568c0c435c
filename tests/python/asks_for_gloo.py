"""A script without any reference to ddprun: says which back end its group has."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
dist.all_reduce(tensor)
assert tensor.item() == dist.get_world_size()
dist.monitored_barrier()
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
print(f"rank {dist.get_rank()}: gloo is {backend.name()}")
dist.destroy_process_group()
