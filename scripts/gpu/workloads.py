"""The training jobs of a run: large enough for a device, or small for the emulator, where a thread is a fibre."""

import dataclasses

import made_data

COMPARED_STEPS = 20


def options(settings):
    return [f"--{key}={value}" for key, value in settings.items()]


def mnist(_, emulated):
    settings = {
        "data.name": "digits",
        "data.samples": 4000,
        "data.test_samples": 200,
        "train.max_steps": COMPARED_STEPS,
    }
    if emulated:
        settings.update(
            {
                "data.samples": 320,
                "data.test_samples": 16,
                "train.batch_size": 4,
                "eval.batch_size": 8,
                "train.max_steps": 5,
            }
        )
    return settings


def gpt_nano(folder, emulated):
    settings = {"data.dir": made_data.write_text(folder), "train.max_steps": COMPARED_STEPS, "optim.warmup": 2}
    if emulated:
        settings.update(
            {
                "data.context": 16,
                "model.layers": 2,
                "model.heads": 2,
                "model.width": 16,
                "model.context": 16,
                "train.batch_size": 2,
                "eval.batch_size": 64,
                "train.max_steps": 5,
            }
        )
    return settings


def resnet18(_, emulated):
    settings = {"data.samples": 1280, "data.test_samples": 64, "train.max_steps": COMPARED_STEPS, "optim.lr": 0.01}
    if emulated:
        settings.update(
            {
                "model.channels": 1,
                "data.samples": 16,
                "data.test_samples": 2,
                "train.batch_size": 2,
                "eval.batch_size": 2,
                "train.max_steps": 2,
            }
        )
    return settings


# By the name of the train.cfg: what is set beside it. (folder for data, emulated) -> settings
COMPARED = {"mnist": mnist, "gpt_nano": gpt_nano, "resnet18": resnet18}


@dataclasses.dataclass
class Measured:
    """A job whose steps are timed."""

    settings: dict
    warm_up: int  # steps
    unit: str
    per_sample: int  # how many of the unit


MEASURED = {"train.precision": "bf16", "train.epochs": 1000, "train.check_replicas": 0, "eval.every_epochs": 0}


def gpt2(folder, emulated):
    layers, context, batch, steps, vocabulary, warm_up = (
        (1, 16, 2, 4, 60, 1) if emulated else (12, 1024, 32, 40, 50257, 10)
    )
    tokens = made_data.write_tokens(folder, context * batch * steps + 1, vocabulary)
    settings = {
        "model.name": "gpt",
        "model.preset": "gpt2",
        "model.layers": layers,
        "model.context": context,
        "model.vocabulary": vocabulary + 47,
        "data.name": "tokens",
        "data.dir": tokens,
        "data.context": context,
        "data.vocabulary": vocabulary,
        "train.batch_size": batch,
        "train.max_steps": steps,
        "eval.batch_size": 2,
        "optim.name": "adamw",
        "optim.lr": 1e-4,
        **MEASURED,
    }
    if emulated:
        settings.update({"model.heads": 1, "model.width": 16, "eval.batch_size": 200})
    return Measured(settings, warm_up, "tokens_per_s", context)


def resnet50(folder, emulated):
    extent, pictures, batch, steps, warm_up = (32, 10, 2, 3, 1) if emulated else (224, 512, 128, 40, 10)
    settings = {
        "model.name": "resnet50",
        "model.stem": "imagenet",
        "data.name": "image_folder",
        "data.dir": made_data.write_pictures(folder, pictures, extent),
        "data.image_size": extent,
        "data.workers": 12,
        "data.prefetch": 8,
        "train.batch_size": batch,
        "train.max_steps": steps,
        "eval.batch_size": 10,
        "optim.name": "sgd",
        "optim.lr": 0.01,
        "optim.momentum": 0.9,
        **MEASURED,
    }
    if emulated:
        settings.update({"model.channels": 1, "data.workers": 1})
    return Measured(settings, warm_up, "images_per_s", 1)
