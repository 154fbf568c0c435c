#!/usr/bin/env python3
"""The models of `ddprun-bench train_step` in PyTorch, eager, one thread a rank: one JSON object a row.

    python3 tests/bench/peers/torch_train_step.py --model gpt_nano --ranks 1,2 --precision fp32

Images run in both layouts, of which the faster one is reported. The ranks of a row are processes that use
DistributedDataParallel over Gloo.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn import functional as F

WARM_UP = 5


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time_, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (p.view(batch, time_, self.heads, width // self.heads).transpose(1, 2) for p in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(seen.transpose(1, 2).reshape(batch, time_, width))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        return self.head(self.ln_f(self.h(x))).flatten(0, 1)


class BasicBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if channels_in != channels or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for wide in (64, 128, 256, 512):
        layers += [BasicBlock(channels, wide, 1 if wide == channels else 2), BasicBlock(wide, wide, 1)]
        channels = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


# name: make, batch, sample, optimizer
MODELS = {
    "cnn": (Cnn, 64, (1, 28, 28), "adam"),
    "mlp": (mlp, 64, (1, 28, 28), "adam"),
    "mlp_sgd": (mlp, 64, (1, 28, 28), "sgd"),
    "gpt_nano": (lambda: Gpt(4, 4, 128, 128), 8, (128,), "adam"),
    "gpt_small": (lambda: Gpt(6, 6, 384, 256), 4, (256,), "adam"),
    "resnet18": (resnet18, 32, (3, 32, 32), "sgd"),
}


def measure(name, precision, channels_last, seconds, ranks):
    make, batch, sample, optimizer_name = MODELS[name]
    torch.manual_seed(1)
    model = make()
    if len(sample) == 1:
        inputs, labels = torch.randint(256, (batch, *sample)), torch.randint(256, (batch * sample[0],))
    else:
        inputs, labels = torch.randn(batch, *sample), torch.randint(10, (batch,))
    if channels_last:
        model, inputs = (x.to(memory_format=torch.channels_last) for x in (model, inputs))
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    kind = torch.optim.Adam if optimizer_name == "adam" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=1e-3)
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}

    def step():
        optimizer.zero_grad(set_to_none=True)
        scope = contextlib.nullcontext() if precision == "fp32" else torch.autocast("cpu", types[precision])
        with scope:
            loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    times, started = [], time.perf_counter()
    while True:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
        go_on = torch.tensor([int(time.perf_counter() - started < seconds)])
        if ranks > 1:
            dist.broadcast(go_on, 0)
        if not go_on.item():
            return statistics.median(times) * 1e3


def rank_main(rank, ranks, name, precision, seconds, store):
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    _, batch, sample, _ = MODELS[name]
    layouts = [False, True] if len(sample) == 3 and sample[0] > 1 else [False]
    results = {}
    for channels_last in layouts:
        results[channels_last] = measure(name, precision, channels_last, seconds / len(layouts), ranks)
    best = min(results, key=results.get)
    if rank == 0:
        items = ranks * batch * (sample[0] if len(sample) == 1 else 1)
        row = {
            "model": name,
            "precision": precision,
            "ranks": ranks,
            "step_ms": round(results[best], 3),
            "items_per_s": round(items / results[best] * 1e3),
            "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "layout": "channels_last" if best else "contiguous",
            "torch": torch.__version__,
        }
        print(json.dumps(row), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="cnn,mlp,gpt_nano")
    parser.add_argument("--ranks", default="1")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in options.model.split(","):
        for ranks in map(int, options.ranks.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                arguments = (ranks, name, options.precision, options.seconds, os.path.join(folder, "store"))
                multiprocessing.start_processes(rank_main, arguments, nprocs=ranks, start_method="spawn")


if __name__ == "__main__":
    main()
