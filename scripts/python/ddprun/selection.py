"""Which back end a process uses: the compiled one, or where it cannot be compiled, the one in Python.

DDPRUN_TORCH_EXTENSION=1 asks for the compiled one, 0 for the one in Python.
"""

import functools
import os
import sys

from ddprun import extension, python_backend

VARIABLE = "DDPRUN_TORCH_EXTENSION"
COST = "about 9 us more per call"  # measured by scripts/bench-torch


def load(speaks):
    """The module with the back end's classes. speaks: this process says it for all, if the compiled one is missing."""
    choice = os.environ.get(VARIABLE, "")
    if choice not in ("", "0", "1"):
        raise ValueError(f"ddprun: {VARIABLE} is 0, 1 or unset, not {choice!r}")
    if choice == "0":
        require_torch_for_python()
        return python_backend.load()
    module, error = compiled()
    if module:
        return module
    if choice == "1" or not torch_is_new_enough():
        raise ImportError(str(error)) from None
    if speaks:
        say_why(error)
    return python_backend.load()


@functools.cache
def compiled():
    """The compiled module, or why there is none. Tried once."""
    try:
        return extension.load(), None
    except ImportError as error:
        return None, error


def torch_is_new_enough():
    return extension.torch_version() >= python_backend.OLDEST_TORCH


def require_torch_for_python():
    if not torch_is_new_enough():
        oldest, this = map(extension.text_of, (python_backend.OLDEST_TORCH, extension.torch_version()))
        raise ImportError(f"ddprun: its back end in Python needs PyTorch {oldest} or newer, this is {this}")


@functools.cache
def say_why(error):
    """Once per process."""
    print(f"ddprun: uses its back end in Python, {COST}, because the compiled one is missing: {cause(error)}",
          file=sys.stderr, flush=True)


def cause(error):
    """In one line: the compiler's first error, or what is said first."""
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if "error:" in line), lines[0].removeprefix("ddprun: "))
