"""A DistributedDataParallel job over Gloo, written for torchrun, without any reference to ddprun.

usage: ddp_script.py CHECKPOINT [STEPS [HOLD_STEP RELEASE_FILE]]

Trains a small regression, writes a checkpoint after each step (rank 0) and continues from it when it is started again.
Ranks other than 0 wait before HOLD_STEP until RELEASE_FILE exists, so that a test can kill a rank at that step. At the
end rank 0 compares its parameters with those of the same training in one process.
DDP_SCRIPT_FILE_STORE, if set, is the prefix of the file of each attempt's FileStore. If it is not set, the ranks use
the launcher's store.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

LEARNING_RATE = 0.05
TRUTH = torch.arange(1.0, 9.0, dtype=torch.float64).reshape(1, 8)


def make_model():
    model = torch.nn.Linear(8, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    return model


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(32, 8, generator=generator, dtype=torch.float64)
    return torch.nn.functional.mse_loss(model(inputs), inputs @ TRUTH.t())


def train_alone(world_size, steps):
    model = make_model()
    for step in range(steps):
        model.zero_grad()
        (sum(loss_of(model, rank, step) for rank in range(world_size)) / world_size).backward()
        with torch.no_grad():
            model.weight -= LEARNING_RATE * model.weight.grad
    return model.weight


def save(path, model, step):
    torch.save({"model": model.state_dict(), "step": step}, path + ".part")
    os.replace(path + ".part", path)


def main():
    torch.set_num_threads(1)
    checkpoint, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    hold_step, release_file = (int(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 4 else (-1, "")

    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    file_store = os.environ.get("DDP_SCRIPT_FILE_STORE")
    if file_store:
        coordinates = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group("gloo", init_method=f"file://{file_store}-{attempt}", **coordinates)
    else:
        dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = make_model()
    begin = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        begin = state["step"]
    print(f"rank {rank} of {world_size}, attempt {attempt}, pid {os.getpid()}, begins at step {begin}", flush=True)

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE)
    for step in range(begin, steps):
        while rank > 0 and step == hold_step and not os.path.exists(release_file):
            time.sleep(0.01)
        optimizer.zero_grad()
        loss_of(ddp, rank, step).backward()
        optimizer.step()
        if rank == 0:
            save(checkpoint, model, step + 1)

    if rank == 0:
        right = torch.allclose(model.weight, train_alone(world_size, steps), rtol=1e-9, atol=1e-9)
        print(f"torch {torch.__version__}: {steps} steps, the result is {'right' if right else 'WRONG'}", flush=True)
        assert right
    dist.barrier()
    dist.destroy_process_group()
    # The interpreter is not finalized: a thread of PyTorch's Gloo that releases a tensor meanwhile asks for Python's lock,
    # and thereby ends the process by SIGABRT.
    os._exit(0)


main()
