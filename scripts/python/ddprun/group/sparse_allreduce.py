"""The sum of one sparse tensor (COO) of each rank, as Gloo computes it: ranks tell how many elements each has, exchange
indices and values, and all add them up in the order of ranks."""

import torch

from ddprun.python_backend.spans import counts_array, empty, span_to_move, units_of


def sparse_sum(given, size, allgather):
    """allgather(own, all, counts) blocks: the sizes of an exchange are results of the one before it."""
    input = given.detach().coalesce()
    counts = counts_of_ranks(input, size, allgather)
    # A row for each element: what one rank has lies together then.
    indices = gathered(input.indices().t().contiguous(), counts, allgather)
    values = gathered(input.values().contiguous(), counts, allgather)
    return torch.sparse_coo_tensor(indices.t(), values, input.shape).coalesce()


def counts_of_ranks(input, size, allgather):
    """How many elements each rank has. Raises where the tensors are not alike."""
    dtype = span_to_move(input.values().contiguous()).dtype
    own = torch.tensor([
        input._nnz(), input.sparse_dim(), input.dense_dim(), input.numel(), input.dtype.itemsize, dtype
    ])
    all = empty((size, len(own)), torch.int64)
    allgather(span_to_move(own), span_to_move(all), None)
    for rank, of_rank in enumerate(all.tolist()):
        if of_rank[1:] != own.tolist()[1:]:
            raise ValueError(f"ddprun: all_reduce of a sparse tensor: rank {rank} has one of another shape or type")
    return all[:, 0].tolist()


def gathered(own, counts, allgather):
    """The rows of all ranks, of which each has counts[rank]."""
    all = empty((sum(counts), *own.shape[1:]), own.dtype)
    if all.numel() > 0:
        units_of_row = all.numel() // len(all) * units_of(all)
        allgather(span_to_move(own), span_to_move(all), counts_array([count * units_of_row for count in counts]))
    return all
