"""The parts of a run, those that matter most first."""

import dataclasses
import functools
import json
import math
import re
import statistics
import typing

import catch_report
import nvidia
import outcomes
import records
import workloads

SHOWN_FAILURES = 50  # lines


@dataclasses.dataclass
class Part:
    name: str
    limit: float  # seconds
    run: typing.Callable  # (context, limit) -> Outcome


def tests(selection, context, limit):
    """Tests of device_test: of a source file, as Catch2's tag [#name], or by name."""
    command = [context.program("device_test"), "-#", "-r", "xml", selection]
    finished = context.run(command, limit)
    report = catch_report.read(finished.out)
    if finished.succeeded and report["cases"] > 0:
        return outcomes.passed(cases=report["cases"])
    where = f" in '{report['unfinished']}'" if report["unfinished"] else ""
    lines = [line for case in report["failed"] for line in (f"[{case['name']}]", *case["failures"])]
    ended = f"{outcomes.how_it_ended(finished, limit)}{where}"
    return outcomes.failed(
        f"{ended}, {len(report['failed'])} of {report['cases']} test cases failed",
        finished.err,
        "\n".join(lines[:SHOWN_FAILURES]),
        cases=report["cases"],
        failed=[case["name"] for case in report["failed"]],
    )


def job(context, limit, ranks, words, device, name, one_device=False):
    """Trains; the path of its metrics and how it ended."""
    metrics = context.folder("metrics") / f"{name}.jsonl"
    command = [
        context.program("ddprun"),
        "--standalone",
        f"--nproc_per_node={ranks}",
        *words,
        f"--train.device={device}",
        f"--metrics.file={metrics}",
    ]
    return metrics, context.run(command, limit, context.environment(one_device))


def training(name, ranks, one_device, context, limit):
    """A job on devices beside the same one on the CPU. ranks: 0: one for each device."""
    ranks = ranks or context.devices
    if not one_device and ranks < 2:
        return outcomes.skipped(f"this takes two devices, there are {ranks}")
    settings = workloads.COMPARED[name](context.folder(name), context.emulated)
    words = [context.config(f"{name}.cfg"), *workloads.options(settings)]
    losses, finished = {}, None
    for device in ("cpu", "cuda"):
        path, finished = job(context, limit, ranks, words, device, f"{name}-{ranks}-{one_device}-{device}", one_device)
        if not finished.succeeded:
            return outcomes.failed(f"on {device}: {outcomes.how_it_ended(finished, limit)}", finished.out, finished.err)
        losses[device] = records.losses_in(path)
    difference = records.largest_difference(losses["cpu"], losses["cuda"])
    facts = {
        "steps": len(losses["cuda"]),
        "largest_difference": difference if math.isfinite(difference) else None,
        "first_loss": losses["cuda"][:1],
        "last_loss": losses["cuda"][-1:],
        "transport": transport_in(finished.out + finished.err),
    }
    if difference <= records.LARGEST_DIFFERENCE:
        return outcomes.passed(**facts)
    return outcomes.failed(
        f"losses differ by {difference:.2g}, {records.LARGEST_DIFFERENCE:.2g} is allowed",
        f"cpu  {losses['cpu']}\ncuda {losses['cuda']}",
        **facts,
    )


def transport_in(text):
    """How gradients travelled, as the log has it."""
    found = re.search(r"back end nccl: .*|device memory is staged .*", text)
    return found[0] if found else ""


def speed(make, context, limit):
    """A job on one device, by its own record of steps."""
    name = make.__name__
    measured = make(context.folder(name), context.emulated)
    config = context.work / f"{name}.cfg"
    config.write_text("")
    path, finished = job(context, limit, 1, [config, *workloads.options(measured.settings)], "cuda", name)
    if not finished.succeeded:
        return outcomes.failed(outcomes.how_it_ended(finished, limit), finished.out, finished.err)
    rate = records.rate_in(path, measured.warm_up)
    if rate is None:
        return outcomes.failed(
            f"there are no steps behind the {measured.warm_up} of the warm-up", finished.out, finished.err
        )
    steps = records.steps_in(path)[measured.warm_up :]
    return outcomes.passed(
        **{measured.unit: round(rate * measured.per_sample, 1)},
        steps=len(steps),
        batch=measured.settings["train.batch_size"],
        share_of_compute=round(statistics.median(step["compute"] for step in steps), 3),
    )


def torch_speed(model, context, limit):
    """The same model in PyTorch, whose failures are none of ours."""
    if context.emulated:
        return outcomes.skipped("PyTorch has no emulated devices")
    if context.python is None:
        return outcomes.skipped("there is no PyTorch here")
    finished = context.run([context.python, context.root / "torch_peer.py", model], limit, context.clean_environment())
    if not finished.succeeded:
        return outcomes.skipped(f"PyTorch: {outcomes.how_it_ended(finished, limit)}", finished.out, finished.err)
    return outcomes.passed(**json.loads(finished.out.splitlines()[-1]))


def bandwidth(context, limit):
    finished = context.run([context.program("device_test"), "the bandwidth of allreduces on devices"], limit)
    rows = [json.loads(line) for line in finished.out.splitlines() if line.startswith("{")]
    if finished.succeeded and rows:
        return outcomes.passed(rows=rows)
    return outcomes.failed(outcomes.how_it_ended(finished, limit), finished.out, finished.err, rows=rows)


def sanitizer(context, limit):
    """compute-sanitizer starts with this machine's libraries, the program below it with the archive's."""
    if context.emulated:
        return outcomes.skipped("compute-sanitizer needs a device")
    program = nvidia.tool("compute-sanitizer", context.packages)
    if program is None:
        return outcomes.skipped("there is no compute-sanitizer here")
    variables = [f"{name}={value}" for name, value in context.environment().items()]
    chosen = "a sum may be written over its operand,add_bias*,attention of nothing,batched products are strided*"
    command = [
        program,
        "--tool",
        "memcheck",
        "--target-processes",
        "all",
        "--error-exitcode",
        "9",
        "env",
        *variables,
        context.program("device_test"),
        chosen,
    ]
    finished = context.run(command, limit, context.clean_environment())
    if finished.succeeded:
        return outcomes.passed(version=str(program), last=outcomes.last_lines(finished.out)[-1:])
    return outcomes.failed(outcomes.how_it_ended(finished, limit), finished.out, finished.err)


def of_file(name, limit, title):
    return Part(title, limit, functools.partial(tests, f"[#{name}]"))


def trained(name, ranks, one_device, how):
    return Part(f"training {name}, {how}", 60, functools.partial(training, name, ranks, one_device))


def training_parts():
    for name in workloads.COMPARED:
        yield trained(name, 1, True, "1 rank over NCCL")
        yield trained(name, 2, True, "2 ranks on one device, staged")
    yield trained("mnist", 0, False, "a rank for each of several devices, over NCCL")


def all_parts():
    return [
        Part("the module opens and computes", 60, functools.partial(tests, "a sum may be written over its operand")),
        of_file("cuda_operations_test", 90, "operations x dtypes against the CPU"),
        of_file("product_test", 60, "products, by cuBLASLt"),
        of_file("convolution_test", 60, "convolutions, by cuDNN"),
        of_file("elementwise_kernels_test", 40, "kernels of elements"),
        of_file("reduction_kernels_test", 40, "kernels of reductions"),
        of_file("attention_kernels_test", 40, "kernels of attention"),
        of_file("group_norm_kernels_test", 40, "kernels of layer, RMS and group norms"),
        of_file("batch_norm_test", 40, "kernels of batch norm"),
        of_file("pooling_test", 40, "kernels of pooling"),
        of_file("indexing_kernels_test", 40, "kernels of indexing"),
        of_file("loss_kernels_test", 40, "kernels of losses"),
        of_file("optimizer_kernels_test", 40, "kernels of optimizers"),
        of_file("cuda_models_test", 90, "models against the CPU"),
        Part("collectives over NCCL, one rank a device", 60, functools.partial(tests, "nccl on devices group: *")),
        Part(
            "collectives of two ranks on one device, staged",
            60,
            functools.partial(tests, "staged on a device group: *"),
        ),
        *training_parts(),
        Part("GPT-2 124M, bf16", 90, functools.partial(speed, workloads.gpt2)),
        Part("ResNet-50, bf16", 90, functools.partial(speed, workloads.resnet50)),
        Part("compute-sanitizer on small tests", 60, sanitizer),
        Part("bandwidth of allreduces", 40, bandwidth),
        Part("GPT-2 124M, bf16, in PyTorch", 140, functools.partial(torch_speed, "gpt2")),
        Part("ResNet-50, bf16, in PyTorch", 140, functools.partial(torch_speed, "resnet50")),
    ]
