"""The compiled part of the back end.

PyTorch's classes for back ends have no stable ABI, so it is compiled for the version of PyTorch that is there, once,
and kept in a cache: $DDPRUN_CACHE_DIR, else $XDG_CACHE_HOME/ddprun, else ~/.cache/ddprun.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

from ddprun.at_exit import call_at_exit
from ddprun.capi import library_path, open_library

PACKAGE = pathlib.Path(__file__).resolve().parent
OLDEST_TORCH = (2, 14)
COMPILE_TIMEOUT = 600  # seconds; it takes about 30
FAILURE_LASTS = 120  # seconds


@functools.cache
def load():
    """The module, compiled if it was not yet."""
    import torch

    if torch_version() < OLDEST_TORCH:
        raise ImportError(f"ddprun: its back end needs PyTorch {text_of(OLDEST_TORCH)} or newer, "
                          f"this is {torch.__version__}")
    open_library()  # before the module that needs it
    path = compiled(torch)
    spec = importlib.util.spec_from_file_location("ddprun._c10d", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    call_at_exit(module.stop_calling_python)
    return module


def torch_version():
    """Such as (2, 15)."""
    import torch

    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def text_of(version):
    return ".".join(map(str, version))


def header_folder():
    build = os.environ.get("DDPRUN_BUILD_DIR")
    return pathlib.Path(build) / "as_installed" if build else PACKAGE / "include"


def cache_folder():
    named = os.environ.get("DDPRUN_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    home = os.path.expanduser("~")
    if not cache and home == "~":
        raise no_place("this user has no home folder")
    return (pathlib.Path(cache) if cache else pathlib.Path(home) / ".cache") / "ddprun"


def no_place(reason):
    return ImportError(f"ddprun: no place for its compiled back end: {reason}; DDPRUN_CACHE_DIR names one")


def compiler():
    return shlex.split(os.environ.get("CXX", "c++"))


def require_compiler():
    program = compiler()[0]
    if not shutil.which(program):
        raise ImportError(f"ddprun: its back end has to be compiled once, and there is no compiler {program!r}: "
                          "install g++ 12 or newer and Python's headers (Debian: g++ python3-dev)")


def compile_command(torch):
    """The compiler with its options, for the module's sources."""
    headers = pathlib.Path(torch.__file__).parent / "include"
    folders = [headers, headers / "torch" / "csrc" / "api" / "include", sysconfig.get_path("include")]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        *compiler(), "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden",
        "-DTORCH_EXTENSION_NAME=_c10d", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f"-I{header_folder()}",
        *(f"-isystem{folder}" for folder in folders)
    ]


def link_command(torch, objects, output):
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    return [
        *compiler(), "-shared", "-s", "-o", str(output), *map(str, objects),
        f"-Wl,--version-script={PACKAGE / 'csrc' / 'exports.map'}", f"-L{library_path().parent}", "-lddprun_c",
        f"-L{libraries}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"
    ]


def key(torch, command):
    """Changes with everything that the module depends on."""
    text = hashlib.sha256(" ".join(command).encode())
    for file in [*sorted((PACKAGE / "csrc").iterdir()), header_folder() / "ddprun" / "worker" / "capi" / "ddprun.h"]:
        text.update(file.read_bytes())
    return f"torch-{torch.__version__}-{sysconfig.get_config_var('SOABI')}-{text.hexdigest()[:12]}"


def compiled(torch):
    """The path of the module in the cache. One process of a host compiles, the others wait for it."""
    command = compile_command(torch)
    folder = cache_folder() / key(torch, command)
    module = folder / "_c10d.so"
    if module.exists():
        return module
    require_compiler()
    try:
        compile_once(torch, command, folder, module)
    except OSError as error:
        raise no_place(error) from None
    return module


def compile_once(torch, command, folder, module):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not module.exists():
            build_unless_failed(torch, command, folder, module)


def build_unless_failed(torch, command, folder, module):
    """Processes that wait for one that fails do not try again one after the other: they get its error."""
    failed = folder / "failed"
    if failed.exists() and time.time() - failed.stat().st_mtime < FAILURE_LASTS:
        raise ImportError(failed.read_text())
    print(f"ddprun: compiling its back end for PyTorch {torch.__version__}, once: about 30 s", file=sys.stderr,
          flush=True)
    try:
        build(torch, command, folder, module)
    except CompileError as error:
        with contextlib.suppress(OSError):
            failed.write_text(str(error))
        raise


class CompileError(ImportError):
    """The compiler ran, and failed."""


def build(torch, command, folder, module):
    with tempfile.TemporaryDirectory(dir=folder) as work:
        sources = sorted((PACKAGE / "csrc").glob("*.cc"))
        objects = [pathlib.Path(work) / f"{source.stem}.o" for source in sources]
        run_all([[*command, "-c", str(source), "-o", str(object)] for source, object in zip(sources, objects)])
        output = pathlib.Path(work) / "_c10d.so"
        run_all([link_command(torch, objects, output)])
        output.rename(module)  # whole, or not at all


def run_all(commands):
    """Runs them side by side. Raises ImportError with the compiler's words."""
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    failures = []
    for child in children:
        try:
            output, _ = child.communicate(timeout=COMPILE_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
            output = f"{child.communicate()[0]}\nstopped after {COMPILE_TIMEOUT} s"
        if child.returncode != 0:
            failures.append(output)
    if failures:
        raise CompileError("ddprun: its back end does not compile (g++ 12 or newer and Python's headers are needed):\n"
                           + "\n".join(failures[0].splitlines()[-20:]))
