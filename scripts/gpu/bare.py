"""Runs the archive on emulated devices, in a bare Debian that has Python and nothing else."""

import os
import pathlib
import shutil
import subprocess

import bundle

# In namespaces of its own, as its only processes.
ENTER = """
system=$1
shift
mount --rbind /dev "$system/dev"
mount -t tmpfs tmpfs "$system/tmp"
exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$system" "$@"
"""


def make_system(suite, folder):
    log = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", suite, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if log.returncode != 0:
        raise bundle.Problem("mmdebstrap failed:\n" + "\n".join(log.stdout.splitlines()[-20:]))


def run_inside(system, command):
    return subprocess.run(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            f"--mount-proc={system}/proc",
            "sh",
            "-ec",
            ENTER,
            "sh",
            str(system),
            *command,
        ]
    ).returncode


def check(archive, suite, options, folder, result):
    """Unpacks the archive in the bare system, runs it there, and copies its JSON to result. Returns its exit code."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise bundle.Problem("this takes root, and mmdebstrap (apt-get install mmdebstrap)")
    system = pathlib.Path(folder) / "system"
    make_system(suite, system)
    shutil.copy(archive, system / "root/ddprun-gpu.tar.gz")
    if run_inside(system, ["tar", "-C", "/root", "-xf", "/root/ddprun-gpu.tar.gz"]) != 0:
        raise bundle.Problem("the bare system cannot unpack the archive")
    code = run_inside(
        system, ["python3", "/root/ddprun-gpu/run.py", "--emulated", "--out", "/root/result.json", *options]
    )
    shutil.copy(system / "root/result.json", result)
    return code
