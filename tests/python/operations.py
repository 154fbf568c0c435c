"""Every operation of torch.distributed over ddprun, for every type and reduction, against values computed locally.

Each rank makes the values of all ranks from the seed, so it knows the result.

usage: operations.py [transport | mixed]
       transport: shm, gloo, ...: of the first group; the others choose by themselves
       mixed: odd ranks have the back end in Python, the others the compiled one
"""

import functools
import operator
import os
import sys

import torch
import torch.distributed as dist

import ddprun

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
NARROW = [torch.float8_e4m3fn, torch.float8_e5m2]
Op = dist.ReduceOp
BITWISE = {Op.BAND: operator.and_, Op.BOR: operator.or_, Op.BXOR: operator.xor}


def values(dtype, rank, count=5, seed=0):
    """Small whole numbers: their sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    numbers = torch.randint(1, 4, (count,), generator=generator)
    if dtype is torch.bool:
        return numbers > 2
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.flip(0).double()).to(dtype)
    return numbers.to(dtype)


def wide(tensor):
    """In a type of PyTorch's with all arithmetic."""
    if tensor.dtype is torch.bool or tensor.dtype.is_complex:
        return tensor
    return tensor.double() if tensor.dtype.is_floating_point else tensor.to(torch.int64)


def expected(op, tensors):
    parts = [wide(tensor) for tensor in tensors]
    dtype = tensors[0].dtype
    if dtype is torch.bool:
        any_of, all_of = functools.reduce(operator.or_, parts), functools.reduce(operator.and_, parts)
        return {
            Op.SUM: any_of, Op.MAX: any_of, Op.BOR: any_of, Op.PRODUCT: all_of, Op.MIN: all_of, Op.BAND: all_of,
            Op.BXOR: functools.reduce(operator.xor, parts)
        }[op]
    if op in BITWISE:
        return functools.reduce(BITWISE[op], parts).to(dtype)
    stacked = torch.stack(parts)
    if op == Op.SUM:
        result = stacked.sum(0)
    elif op == Op.AVG:
        total = stacked.sum(0)
        result = total / len(parts) if dtype.is_floating_point or dtype.is_complex else total // len(parts)
    elif op == Op.PRODUCT:
        result = stacked.prod(0)
    else:
        result = stacked.amin(0) if op == Op.MIN else stacked.amax(0)
    return result.to(dtype)


def allowed(dtype):
    if dtype is torch.bool:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
    if dtype.is_complex:
        return [Op.SUM, Op.AVG]
    arithmetic = [Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX]
    if dtype is torch.uint64:
        arithmetic.remove(Op.AVG)
    return arithmetic if dtype.is_floating_point else [*arithmetic, *BITWISE]


def same(actual, wanted, *context):
    if actual.dtype in NARROW or actual.dtype is torch.float16 or actual.dtype is torch.bfloat16:
        assert torch.allclose(actual.float(), wanted.float(), rtol=0.07), (*context, actual, wanted)
    elif actual.is_floating_point() or actual.is_complex():
        assert torch.allclose(actual, wanted, rtol=1e-6), (*context, actual, wanted)
    else:
        assert torch.equal(actual, wanted), (*context, actual, wanted)


def raises(kind, text, action):
    try:
        action()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{text}: no error")


def reductions(rank, size):
    for dtype in [*FLOATS, *SIGNED, *UNSIGNED, *COMPLEX, *NARROW, torch.bool]:
        all_values = [values(dtype, r) for r in range(size)]
        for op in allowed(dtype):
            wanted = expected(op, all_values)
            for async_op in (False, True):
                tensor = all_values[rank].clone()
                work = dist.all_reduce(tensor, op, async_op=async_op)
                if work:
                    work.wait()
                    assert work.is_completed()
                same(tensor, wanted, "all_reduce", dtype, op)
            tensor = all_values[rank].clone()
            dist.reduce(tensor, 1, op)
            same(tensor, wanted if rank == 1 else all_values[rank], "reduce", dtype, op)
            # Part r of every rank's input, reduced, is rank r's.
            inputs = [[values(dtype, r, 3, seed=part + 1) for part in range(size)] for r in range(size)]
            wanted = expected(op, [inputs[r][rank] for r in range(size)])
            output = torch.empty(3, dtype=dtype)
            dist.reduce_scatter(output, inputs[rank], op)
            same(output, wanted, "reduce_scatter", dtype, op)
            output = torch.empty(3, dtype=dtype)
            dist.reduce_scatter_tensor(output, torch.cat(inputs[rank]), op)
            same(output, wanted, "reduce_scatter_tensor", dtype, op)
    # The highest bit of unsigned numbers counts as a number, not as a sign.
    big = torch.tensor([2**63 + rank, rank], dtype=torch.uint64)
    dist.all_reduce(big, Op.MAX)
    assert big.tolist() == [2**63 + size - 1, size - 1], big
    scaled = torch.full((4,), 1.0)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(rank + 1.0))
    assert scaled.tolist() == [size * (size + 1) / 2] * 4, scaled
    raises(ValueError, "truth values", lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), Op.AVG))


def movements(rank, size):
    for dtype in [*FLOATS, *SIGNED, *UNSIGNED, *COMPLEX, *NARROW, torch.bool]:
        all_values = [values(dtype, r) for r in range(size)]
        own = all_values[rank]
        bits = functools.partial(torch.Tensor.view, dtype=torch.uint8)
        equal = lambda a, b: torch.equal(bits(a.contiguous()), bits(b.contiguous()))
        tensor = own.clone()
        dist.broadcast(tensor, 1)
        assert equal(tensor, all_values[1]), ("broadcast", dtype)
        gathered = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(gathered, own)
        assert all(map(equal, gathered, all_values)), ("all_gather", dtype)
        flat = torch.empty(5 * size, dtype=dtype)
        dist.all_gather_into_tensor(flat, own)
        assert equal(flat, torch.cat(all_values)), ("all_gather_into_tensor", dtype)
        at_root = [torch.empty_like(own) for _ in range(size)] if rank == 1 else None
        dist.gather(own, at_root, 1)
        assert rank != 1 or all(map(equal, at_root, all_values)), ("gather", dtype)
        received = torch.empty_like(own)
        dist.scatter(received, all_values if rank == 1 else None, 1)
        assert equal(received, own), ("scatter", dtype)
        sent = [values(dtype, rank, 2, seed=to) for to in range(size)]
        output = torch.empty(2 * size, dtype=dtype)
        dist.all_to_all_single(output, torch.cat(sent))
        wanted = [values(dtype, source, 2, seed=rank) for source in range(size)]
        assert equal(output, torch.cat(wanted)), ("all_to_all_single", dtype)
        outputs = [torch.empty(2, dtype=dtype) for _ in range(size)]
        dist.all_to_all(outputs, sent)
        assert all(map(equal, outputs, wanted)), ("all_to_all", dtype)
        message = own.clone()
        work = dist.isend(own, (rank + 1) % size, tag=7)
        dist.recv(message, (rank - 1) % size, tag=7)
        work.wait()
        assert equal(message, all_values[(rank - 1) % size]), ("send, recv", dtype)


def uneven(rank, size):
    """Rank r has r + 1 rows, and sends r + s rows to rank s."""
    own = torch.full((rank + 1, 2), float(rank))
    gathered = [torch.empty(r + 1, 2) for r in range(size)]
    dist.all_gather(gathered, own)
    assert all((gathered[r] == r).all() for r in range(size)), gathered
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [torch.full((r + 1,), float(rank)) for r in range(size)])
    assert (output == sum(range(size))).all(), output
    rows = [rank + s for s in range(size)]
    output = torch.empty(sum(rows), 2)
    dist.all_to_all_single(output, torch.full((sum(rows), 2), float(rank)), rows, rows)
    assert torch.equal(output[:, 0], torch.cat([torch.full((rank + s,), float(s)) for s in range(size)])), output


def layouts(rank, size):
    """Views that are not contiguous, and tensors without elements."""
    transposed = torch.arange(6.0).view(2, 3).t()
    dist.all_reduce(transposed)
    assert torch.equal(transposed, size * torch.arange(6.0).view(2, 3).t())
    column = torch.full((4, 2), float(rank))
    work = dist.broadcast(column[:, 0], 1, async_op=True)
    work.wait()
    assert column[:, 0].tolist() == [1.0] * 4 and column[:, 1].tolist() == [float(rank)] * 4
    into = torch.zeros(2 * size, 2).t()
    dist.all_gather_into_tensor(into, torch.full((2, 2), float(rank)))
    assert torch.equal(into.reshape(-1), torch.arange(float(size)).repeat_interleave(4)), into
    parameter = torch.nn.Parameter(torch.full((3, 2), float(rank)))
    with torch.no_grad():
        dist.broadcast(parameter.t(), 0)
    assert (parameter == 0).all()
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.all_gather([torch.empty(0) for _ in range(size)], empty)


def works(rank, size):
    """Handles: futures, their callbacks, order, dropped handles."""
    tensors = [torch.full((1000,), float(rank + i)) for i in range(20)]
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    doubled = [future.then(lambda done: done.value()[0] * 2) for future in futures]
    base = sum(range(size))
    for i, future in enumerate(doubled):
        assert future.wait()[0].item() == 2 * (base + size * i)
    for _ in range(50):
        dist.all_reduce(torch.ones(100_000), async_op=True)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == size
    if rank == 0:
        message, sources = torch.zeros(1), set()
        for _ in range(size - 1):
            source = dist.recv(message)
            assert message.item() == source
            sources.add(source)
        assert sources == set(range(1, size))
    else:
        dist.send(torch.full((1,), float(rank)), 0)
    dist.barrier()  # what is sent next would also be received from any rank
    sent, received = torch.full((2,), float(rank)), torch.empty(2)
    pending = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, sent, (rank + 1) % size),
        dist.P2POp(dist.irecv, received, (rank - 1) % size)
    ])
    for work in pending:
        work.wait()
    assert (received == (rank - 1) % size).all()
    with dist._coalescing_manager(async_ops=True) as manager:
        coalesced = [torch.full((k + 1,), float(rank)) for k in range(3)]
        for tensor in coalesced:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((tensor == base).all() for tensor in coalesced)
    outputs = [torch.empty(size * (k + 1)) for k in range(3)]
    with dist._coalescing_manager():
        for k, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((k + 1,), float(rank)))
    assert all(torch.equal(o, torch.arange(float(size)).repeat_interleave(k + 1)) for k, o in enumerate(outputs))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert [o["rank"] for o in objects] == list(range(size))
    dist.monitored_barrier()
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(torch.ones(1))
        dist.broadcast(torch.ones(1), 0, async_op=True).wait()
    titles = {event.key for event in profile.key_averages()}
    assert {"ddprun:all_reduce", "ddprun:broadcast"} <= titles, titles


def profiles(rank, size):
    """A profile has one event for a call, with the shapes of its inputs; it is asynchronous, as with PyTorch's own back
    ends."""
    parts = [torch.empty(2, 3) for _ in range(size)]
    several = [torch.ones(2), torch.ones(5, 1)]
    lists = [[torch.empty(2), torch.empty(5, 1)] for _ in range(size)]
    calls = {
        "all_reduce": (lambda **how: dist.all_reduce(torch.ones(2, 3), **how), [[2, 3]]),
        "reduce": (lambda **how: dist.reduce(torch.ones(4), 0, **how), [[4]]),
        "broadcast": (lambda **how: dist.broadcast(torch.ones(4), 0, **how), [[4]]),
        "all_gather": (lambda **how: dist.all_gather(parts, torch.ones(2, 3), **how), [[2, 3]]),
        "all_gather_coalesced": (lambda **how: dist.all_gather_coalesced(lists, several, **how), [[2], [5, 1]]),
        "all_reduce_coalesced": (lambda **how: dist.all_reduce_coalesced(several, **how), [[2], [5, 1]]),
        "all_to_all": (lambda **how: dist.all_to_all(parts, [torch.ones(2, 3)] * size, **how), [[2, 3]] * size),
    }
    for title, (call, shapes) in calls.items():
        for async_op in (False, True):
            with torch.autograd.profiler.profile(record_shapes=True) as profile:
                work = call(async_op=async_op)
                if async_op:
                    work.wait()
            events = [event for event in profile.function_events if event.name.startswith("ddprun:")]
            assert [event.name for event in events] == [f"ddprun:{title}"], (title, async_op, events)
            assert events[0].input_shapes == shapes, (title, events[0].input_shapes)
            assert events[0].is_async, (title, async_op)


def sparse(rank, size):
    """Sums of sparse tensors: elements that several ranks have, that one has, and none at a rank."""
    indices = [[0, 0, rank + 1], [1, 1, 0]] if rank > 0 else [[], []]
    values = torch.arange(6.0).reshape(3, 2) + rank if rank > 0 else torch.empty(0, 2)
    own = torch.sparse_coo_tensor(indices, values, (size + 2, 2, 2))
    dense = own.to_dense()
    dist.all_reduce(dense)
    for async_op in (False, True):
        tensor = own.clone()
        work = dist.all_reduce(tensor, async_op=async_op)
        if async_op:
            work.wait()
        assert tensor.is_sparse and torch.equal(tensor.to_dense(), dense), tensor
    raises(NotImplementedError, "SUM", lambda: dist.all_reduce(own.clone(), Op.MAX))
    table = torch.nn.Embedding(10, 4, sparse=True)
    torch.nn.init.ones_(table.weight)
    model = torch.nn.parallel.DistributedDataParallel(table)
    model(torch.tensor([rank, 9])).sum().backward()
    gradient = table.weight.grad.to_dense()
    assert table.weight.grad.is_sparse and gradient[9].eq(1).all() and gradient[rank].eq(1 / size).all(), gradient


def groups(rank, size):
    """Groups of some ranks, made by each of PyTorch's ways; they work beside each other."""
    pair = dist.new_group([0, 1])
    last = dist.new_group([size - 1])
    if rank < 2:
        tensor = torch.full((2,), float(rank + 1))
        dist.all_reduce(tensor, group=pair)
        assert tensor.tolist() == [3.0, 3.0]
    if rank == size - 1:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=last)
        assert tensor.item() == 1
    everyone = dist.new_group()
    first, second = torch.ones(10_000), torch.ones(10_000)
    a = dist.all_reduce(first, async_op=True)
    b = dist.all_reduce(second, group=everyone, async_op=True)
    b.wait()
    a.wait()
    assert (first == size).all() and (second == size).all()
    mesh = dist.device_mesh.init_device_mesh("cpu", (1, size), mesh_dim_names=("a", "b"))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=mesh.get_group("b"))
    assert tensor.item() == size
    for again in range(3):
        group = dist.new_group()
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == size
        dist.destroy_process_group(group)


def main():
    choice = sys.argv[1] if len(sys.argv) > 1 else ""
    if choice == "mixed":
        os.environ["DDPRUN_TORCH_EXTENSION"] = str(1 - int(os.environ["RANK"]) % 2)
    options = ddprun.Options(transport=choice) if choice not in ("", "mixed") else None
    dist.init_process_group("ddprun", pg_options=options)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "ddprun"
    if options:
        assert dist.group.WORLD._get_backend(torch.device("cpu")).transport == options.transport
    for check in (reductions, movements, uneven, layouts, works, profiles, sparse, groups):
        check(rank, size)
        dist.barrier()
    dist.destroy_process_group()
    # Once more in the same process, over the same store.
    dist.init_process_group("ddprun")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size
    dist.destroy_process_group()
    print(f"rank {rank}: every operation is right")


if __name__ == "__main__":
    main()
