#!/usr/bin/python3
"""Prints lr_schedule_figures.h: the learning rates of torch.optim.lr_scheduler at each step.

usage: /usr/bin/python3 tests/unit/trainer/lr_schedule_figures.py > tests/unit/trainer/lr_schedule_figures.h
       (Debian 12: python3-torch), then clang-format -i of it
"""
import math
import warnings

import torch
from torch.optim import lr_scheduler as sched

warnings.filterwarnings("ignore")
LR, WARMUP, START, LENGTH, STEPS = 0.4, 5, 0.1, 25, 30

# name, the options that differ from the defaults, the scheduler for a curve of that length
CURVES = [
    ("constant", "", lambda o, n: sched.LambdaLR(o, lambda t: 1.0)),
    ("step", ".gamma = 0.5, .step_size = 4", lambda o, n: sched.StepLR(o, 4, 0.5)),
    ("multistep", ".gamma = 0.2, .milestones = {3, 8, 9}", lambda o, n: sched.MultiStepLR(o, [3, 8, 9], 0.2)),
    ("cosine", ".end_factor = 0.05", lambda o, n: sched.CosineAnnealingLR(o, n, 0.05 * LR)),
    ("linear", ".end_factor = 0.25", lambda o, n: sched.LinearLR(o, 1.0, 0.25, n)),
    ("onecycle", "", lambda o, n: sched.OneCycleLR(o, LR, n, cycle_momentum=False)),
]


def rates(make, warmup):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    length = LENGTH - warmup
    main = make(optimizer, length)
    scheduler = main
    if warmup:
        first = sched.LinearLR(optimizer, START, 1.0, warmup)
        scheduler = sched.SequentialLR(optimizer, [first, main], [warmup])
    result = []
    # Beyond its length a curve of torch is an error or begins anew.
    for _ in range(LENGTH if main.__class__ in (sched.OneCycleLR, sched.CosineAnnealingLR) else STEPS):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        try:
            scheduler.step()
        except ValueError:
            break
    return result


def row(name, options, warmup, values):
    more = f", {options}" if options else ""
    table = ", ".join(repr(v) for v in values)
    return (f'    {{{{.name = "{name}", .lr = {LR}, .warmup = {warmup}, .warmup_start = {START}, '
            f".length = {LENGTH}{more}}},\n     {{{table}}}}},")


print(f"""#pragma once

#include <vector>

#include "worker/optim/lr_schedule.h"

// Made by lr_schedule_figures.py with torch {torch.__version__}.
namespace ddprun::testing {{

struct LrFigures {{
  optim::LrScheduleOptions options;
  std::vector<double> rates;  // of step 0, 1, ...
}};

inline const std::vector<LrFigures> lr_figures = {{""")
for name, options, make in CURVES:
    for warmup in (0, WARMUP):
        print(row(name, options, warmup, rates(make, warmup)))
inverse = lambda o, n: sched.LambdaLR(o, lambda t: math.sqrt(WARMUP / (t + WARMUP)))
print(row("inverse_sqrt", "", WARMUP, rates(inverse, WARMUP)))
print("};\n\n}  // namespace ddprun::testing")
