"""What the parts of a run have in common: programs, environment, where output goes."""

import os
import pathlib

import processes

# The variables that programs of the archive inherit from this process: none changes how they compute.
KEPT = ("PATH", "HOME", "LANG", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG")


class Context:
    def __init__(self, root, programs, libraries, emulated, devices, work, python, packages):
        self.root = pathlib.Path(root)  # of the archive
        self.programs = pathlib.Path(programs)  # their folder
        self.libraries = [str(folder) for folder in libraries]  # where programs look for libraries, in this order
        self.emulated = emulated
        self.devices = devices  # how many
        self.work = pathlib.Path(work)
        self.python = python  # of PyTorch
        self.packages = packages
        self.seconds_left = None  # set before each part
        self._runs = 0

    def clean_environment(self):
        return {name: os.environ[name] for name in KEPT if name in os.environ}

    def environment(self, one_device=False):
        """one_device: all processes have the first device alone."""
        module = "libddprun_cuda_emulated.so" if self.emulated else "libddprun_cuda.so"
        variables = {
            "LD_LIBRARY_PATH": ":".join(self.libraries),
            "DDPRUN_CUDA_MODULE": str(self.root / "bin" / module),
            "DDPRUN_TEST_DEVICES": "1",
            "TMPDIR": str(self.work),  # what they leave there ends with the run
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2)),
        }
        if self.emulated:
            variables["DDPRUN_CUDA_EMULATOR"] = "1" if one_device else str(self.devices)
        elif one_device:
            variables["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        return {**self.clean_environment(), **variables}

    def run(self, command, limit, environment=None):
        """limit: in seconds; the part's own time ends it earlier."""
        self._runs += 1
        limit = min(limit, self.seconds_left())
        return processes.run(
            command, limit, environment or self.environment(), self.work, self.work / f"run-{self._runs}"
        )

    def program(self, name):
        return self.programs / name

    def config(self, name):
        return self.root / "configs" / name

    def folder(self, name):
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path
