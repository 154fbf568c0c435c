"""Builds the wheel from the programs of a build folder, installs it into a bare virtual environment beside torch, and
trains there as a user would, without any variable of the build.

usage: wheel.py TREE FOLDER     FOLDER: an empty one, for all of this
"""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

import torch
from ddprun.python_backend import OLDEST_TORCH

SCRIPT = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group("ddprun")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()
import ddprun
assert sys.prefix in ddprun.__file__, ddprun.__file__
assert model.module.weight.grad.tolist() == [[3.0] * 4], model.module.weight.grad
print(f"rank {dist.get_rank()}: the wheel works", flush=True)
dist.destroy_process_group()
"""


def build_wheel(tree, folder):
    """The sources are copied: a wheel is built beside them."""
    copy = folder / "tree"
    shutil.copytree(tree / "scripts" / "python", copy / "scripts" / "python", ignore=shutil.ignore_patterns("build"))
    (copy / "worker" / "capi").mkdir(parents=True)
    shutil.copy2(tree / "worker" / "capi" / "ddprun.h", copy / "worker" / "capi")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation",
                    "-w", folder / "dist", copy / "scripts" / "python"], check=True)
    wheels = list((folder / "dist").glob("*.whl"))
    assert len(wheels) == 1, wheels
    return wheels[0]


def bare_environment(folder):
    """Has torch of the running interpreter, and nothing else."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                              capture_output=True, text=True).stdout.strip()
    (pathlib.Path(packages) / "torch.pth").write_text(str(pathlib.Path(torch.__file__).parent.parent) + "\n")
    return python


def extensions():
    """The compiled back end, and the one in Python where this torch can have it."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return ("1", "0") if version >= OLDEST_TORCH else ("1",)


def main():
    tree, folder = map(pathlib.Path, sys.argv[1:])
    wheel = build_wheel(tree, folder)
    python = bare_environment(folder / "environment")
    own = {name: value for name, value in os.environ.items()
           if not name.startswith("DDPRUN_") and name not in ("PYTHONPATH", "PYTHON_EXEC")}
    own["DDPRUN_CACHE_DIR"] = str(folder / "cache")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--ignore-installed", wheel],
                   check=True, env=own)
    script = folder / "train.py"
    script.write_text(SCRIPT)
    for extension in extensions():
        subprocess.run([python.parent / "ddprun", "--standalone", "--nproc_per_node=2", script], check=True,
                       env={**own, "DDPRUN_TORCH_EXTENSION": extension}, cwd=folder)


if __name__ == "__main__":
    main()
