"""A script without any reference to ddprun: says which back end its group has."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
dist.all_reduce(tensor)
assert tensor.item() == dist.get_world_size()
dist.monitored_barrier()
# A variable would keep PyTorch's group, whose threads end the process by an abort if they free a tensor while the
# interpreter ends.
print(f"rank {dist.get_rank()}: gloo is {dist.group.WORLD._get_backend(torch.device('cpu')).name()}")
dist.destroy_process_group()
