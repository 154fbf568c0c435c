"""The sum of one sparse tensor (COO) of each rank, as Gloo computes it: ranks exchange their numbers of elements, then
indices and values, and all add them up in the order of ranks."""

import torch

from ddprun.group.tensors import NO_NUMBER, NUMBERS


def sparse_sum(given, size, all_gather):
    """all_gather(tensors, tensor) blocks: the sizes of an exchange are results of the one before it."""
    input = given.detach().coalesce()
    counts = counts_of_ranks(input, size, all_gather)
    # Each element has a row, so that the elements of one rank are contiguous.
    indices = gathered(input.indices().t().contiguous(), counts, all_gather)
    values = gathered(input.values().contiguous(), counts, all_gather)
    return torch.sparse_coo_tensor(indices.t(), values, input.shape).coalesce()


def counts_of_ranks(input, size, all_gather):
    """How many elements each rank has. Raises where the tensors are not alike."""
    own = torch.tensor([
        input._nnz(), input.sparse_dim(), input.dense_dim(), input.numel(), input.dtype.itemsize,
        NUMBERS.get(input.dtype, NO_NUMBER)
    ])
    all = torch.empty((size, len(own)), dtype=torch.int64)
    all_gather(list(all), own)
    for rank, of_rank in enumerate(all.tolist()):
        if of_rank[1:] != own.tolist()[1:]:
            raise ValueError(f"ddprun: all_reduce of a sparse tensor: rank {rank} has one of another shape or type")
    return all[:, 0].tolist()


def gathered(own, counts, all_gather):
    """The rows of all ranks, of which each has counts[rank]."""
    all = torch.empty((sum(counts), *own.shape[1:]), dtype=own.dtype)
    if all.numel() > 0:
        all_gather(list(all.split(counts)), own)
    return all
