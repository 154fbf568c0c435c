"""PyTorch's collectives of float32 over Gloo, measured as by ddprun-bench. One JSON object a line.

usage: torch_collectives.py RANKS OP MIN_BYTES MAX_BYTES SECONDS      sizes grow by factors of four
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

ranks, op = int(sys.argv[1]), sys.argv[2]
if op not in ("allreduce", "reduce", "broadcast", "allgather", "barrier"):
    raise SystemExit(f"torch_collectives: Gloo in PyTorch has no {op}")
first, most, seconds = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])


def work(rank, folder):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=ranks)
    size = first
    while size <= most:
        count = size // 4
        if op == "allgather" and count < ranks:  # there is no part for each rank
            size *= 4
            continue
        values, parts = torch.empty(count), [torch.empty(count // ranks) for _ in range(ranks)]
        calls = {
            "allreduce": lambda: dist.all_reduce(values),
            "reduce": lambda: dist.reduce(values, 0),
            "broadcast": lambda: dist.broadcast(values, 0),
            "allgather": lambda: dist.all_gather(parts, values[:count // ranks]),
            "barrier": lambda: dist.barrier(),
        }

        def timed():
            values.fill_(rank + 1)
            dist.barrier()
            start = time.perf_counter()
            calls[op]()
            return time.perf_counter() - start

        for _ in range(3):
            each = timed()
        number = torch.tensor([max(10, min(2000, int(seconds / (2 * each + 1e-4))))])
        dist.broadcast(number, 0)
        times = torch.tensor([timed() for _ in range(int(number))]) * 1e6
        if op == "allreduce":
            assert values[0] == ranks * (ranks + 1) / 2
        all_times = [torch.empty_like(times) for _ in range(ranks)]
        dist.all_gather(all_times, times)
        if rank == 0:
            every = sorted(torch.cat(all_times).tolist())
            print(json.dumps({"op": op, "backend": "PyTorch " + torch.__version__.split("+")[0].split("a")[0],
                              "ranks": ranks, "dtype": "float32", "bytes": count * 4, "registered": False,
                              "min_us": round(every[0], 3), "p50_us": round(every[len(every) // 2], 3),
                              "p99_us": round(every[int(len(every) * .99)], 3)}, separators=(",", ":")), flush=True)
        size *= 4


with tempfile.TemporaryDirectory() as place:
    children = []
    for r in range(ranks):
        pid = os.fork()
        if pid == 0:
            work(r, place)
            os._exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
sys.exit(max(codes))
