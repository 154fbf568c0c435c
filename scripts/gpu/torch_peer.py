#!/usr/bin/env python3
"""Steps of GPT-2 124M or ResNet-50 in PyTorch, compiled where that works, in bfloat16: one JSON object.

usage: torch_peer.py gpt2|resnet50 [--device cuda] [--steps 30] [--tiny]
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(width, dim=2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        return self.head(self.ln_f(self.h(x))).flatten(0, 1)


def convolution(inputs, outputs, size, stride=1):
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.main = nn.Sequential(
            *convolution(inputs, width, 1),
            nn.ReLU(),
            *convolution(width, width, 3, stride),
            nn.ReLU(),
            *convolution(width, 4 * width, 1),
        )
        same = inputs == 4 * width and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, 4 * width, 1, stride))

    def forward(self, x):
        return F.relu(self.main(x) + self.shortcut(x))


def resnet50(channels, classes):
    layers, inputs = [*convolution(3, channels, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], channels
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = channels * 2**stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def gpt2_task(device, tiny):
    layers, heads, width, context, vocabulary, batch = (1, 1, 16, 16, 64, 2) if tiny else (12, 12, 768, 1024, 50304, 32)
    model = Gpt(layers, heads, width, context, vocabulary).to(device)
    tokens = torch.randint(0, vocabulary, (batch, context + 1), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    return (
        model,
        optimizer,
        tokens[:, :-1].contiguous(),
        tokens[:, 1:].flatten(),
        "tokens_per_s",
        batch * context,
        batch,
    )


def resnet50_task(device, tiny):
    channels, size, batch = (4, 32, 2) if tiny else (64, 224, 128)
    model = resnet50(channels, 10).to(device, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    targets = torch.randint(0, 10, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer, images, targets, "images_per_s", batch, batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=("gpt2", "resnet50"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    task = {"gpt2": gpt2_task, "resnet50": resnet50_task}[options.model]
    model, optimizer, inputs, targets, unit, per_step, batch = task(options.device, options.tiny)
    runs = [torch.compile(model)]  # in a list: step() takes what is there

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, dtype=torch.bfloat16):
            loss = F.cross_entropy(runs[0](inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    def seconds_of(steps):
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        loss.item()  # waits for the device
        return time.perf_counter() - start

    reason = ""
    try:
        compilation = seconds_of(1)
    except Exception as error:  # of many kinds: it takes a C compiler, for one
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        runs[0] = model
        compilation = seconds_of(1)
    seconds_of(5)
    seconds = seconds_of(options.steps)
    print(
        json.dumps(
            {
                unit: round(per_step * options.steps / seconds, 1),
                "batch": batch,
                "steps": options.steps,
                "compiled": not reason,
                "why_not": reason,
                "first_step_s": round(compilation, 1),
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
            }
        )
    )


if __name__ == "__main__":
    main()
