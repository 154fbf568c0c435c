#!/usr/bin/env python3
"""What PyTorch's GPT reaches with the settings of configs/gpt_nano.cfg and two ranks: the loss of the last tenth of a text.

    python3 tests/bench/peers/torch_gpt_loss.py data/tinyshakespeare/input.txt --seeds 0,1,2
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch_train_step import Gpt

CONTEXT, LAYERS, HEADS, WIDTH = 128, 4, 4, 128
STEPS, BATCH, WARM_UP, RATE, CLIP = 300, 16, 60, 0.003, 1.0


def samples(tokens):
    count = (len(tokens) - 1) // CONTEXT
    return tokens[: count * CONTEXT].view(count, CONTEXT), tokens[1 : count * CONTEXT + 1].view(count, CONTEXT)


def initialize(model):
    """As GPT-2: the projections that add to the residual stream begin smaller."""
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            is_residual = name.endswith((".c_proj.weight", ".proj.weight"))
            nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * LAYERS) if is_residual else 1))


def train(inputs, targets, seed):
    torch.manual_seed(seed)
    model = Gpt(LAYERS, HEADS, WIDTH, CONTEXT)
    initialize(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=WARM_UP)
    order = torch.randperm(len(inputs))
    for step in range(STEPS):
        chosen = order[step * BATCH : (step + 1) * BATCH]
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[chosen]), targets[chosen].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def loss_of(model, inputs, targets):
    parts = zip(inputs.split(32), targets.split(32))
    total = sum(F.cross_entropy(model(x), y.flatten(), reduction="sum").item() for x, y in parts)
    return total / targets.numel()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("--seeds", default="0")
    options = parser.parse_args()
    tokens = torch.frombuffer(bytearray(open(options.text, "rb").read()), dtype=torch.uint8).long()
    boundary = len(tokens) * 9 // 10
    training, test = samples(tokens[:boundary]), samples(tokens[boundary:])
    for seed in options.seeds.split(","):
        model = train(*training, int(seed))
        print(f"seed {seed}: test loss {loss_of(model, *test):.4f}", flush=True)


if __name__ == "__main__":
    main()
