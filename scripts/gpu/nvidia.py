"""Where NVIDIA's libraries are on this machine: the archive has none of them."""

import glob
import os
import pathlib
import site
import subprocess
import sys

PREFIXES = ("libcuda.", "libcudart.", "libcublas.", "libcublasLt.", "libcudnn", "libnccl.", "libnvrtc", "libnvJitLink.")


def is_nvidias(name):
    return name.startswith(PREFIXES)


def package_folders():
    """Where Python packages are: of this Python, and of PyTorch's where it is another one's."""
    return [
        pathlib.Path(place)
        for place in dict.fromkeys([*sys.path, *site.getsitepackages(), site.getusersitepackages()])
        if place and os.path.isdir(place)
    ]


def candidates(packages, environment=os.environ):
    """The folders that may have them, the most likely ones first: wheels, the toolkit, the system."""
    found = []
    for place in packages:
        found += sorted(place.glob("nvidia/*/lib")) + [place / "torch/lib"]
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDNN_HOME", "NCCL_HOME"):
        if environment.get(variable):
            found += [pathlib.Path(environment[variable]) / name for name in ("lib64", "lib")]
    found += [
        pathlib.Path("/usr/local/cuda/lib64"),
        *(pathlib.Path(path) for path in sorted(glob.glob("/usr/local/cuda-*/lib64"), reverse=True)),
    ]
    found += [pathlib.Path(path) for path in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64")]
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def find(names, folders):
    """{library: the first folder that has it, or None}"""
    return {name: next((folder for folder in folders if (folder / name).exists()), None) for name in names}


def others_like(name, folders):
    """Other versions of a library that is in none of the folders: libcudart.so.12 for libcudart.so.13."""
    stem = name.split(".so")[0]
    return sorted({path.name for folder in folders for path in folder.glob(f"{stem}.so.*")})


def missing_text(found, folders):
    """One line on what was not found; empty where nothing is missing."""
    missing = []
    for name, folder in found.items():
        if folder is None:
            others = others_like(name, folders)
            missing.append(name + (f" (there is {', '.join(others)})" if others else ""))
    if not missing:
        return ""
    return f"not found: {', '.join(missing)}; looked in {', '.join(str(folder) for folder in folders) or 'no folder'}"


def search_path(found, folders):
    """The folders with the libraries, and those of the other wheels, which libraries open by name later."""
    used = [folder for folder in found.values() if folder is not None]
    return list(dict.fromkeys(used + [folder for folder in folders if folder.parent.parent.name == "nvidia"]))


def tool(name, packages):
    """The path of a program of the toolkit, or None."""
    places = [pathlib.Path(place) for place in os.environ.get("PATH", "").split(":") if place]
    places += [pathlib.Path(place) / "bin" for place in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if place]
    for package in packages:
        places += [*sorted(package.glob("nvidia/*/bin")), package / "triton/backends/nvidia/bin"]
    return next((place / name for place in places if os.access(place / name, os.X_OK)), None)


def driver_text():
    """What nvidia-smi says of devices and driver; empty where there is no nvidia-smi."""
    program = tool("nvidia-smi", [])
    if program is None:
        return ""
    fields = "name,driver_version,compute_cap,memory.total,memory.used,clocks.max.sm,power.limit"
    try:
        return subprocess.run(
            [program, f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
