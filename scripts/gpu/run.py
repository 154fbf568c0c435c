#!/usr/bin/env python3
"""Runs ddprun's checks on a machine with CUDA devices, and writes one JSON file.

usage: python3 run.py [--out FILE] [--budget SECONDS] [--only TEXT] [--list] [--python PYTHON] [--loader auto|host|own]
                      [--emulated]

Needs Python 3.9 or newer, an NVIDIA driver, and NVIDIA's libraries in wheels or a toolkit; PyTorch for the comparison.
--only runs the parts whose name contains a text, --emulated runs everything without a device, in small. Exit code 0: no
part has failed.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

import context
import driver
import loader
import nvidia
import parts
import plan
import processes
import results

ROOT = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("ddprun", "ddprun-worker", "device_test")
EMULATED_DEVICES = 2


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="ddprun-gpu.json", help="where the JSON goes")
    parser.add_argument("--budget", type=float, default=480, help="seconds in which all of it ends")
    parser.add_argument("--only", default="", help="the parts whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the names of the parts")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument(
        "--loader",
        choices=("auto", "host", "own"),
        default="auto",
        help="whose C library the programs use: this machine's, or the archive's",
    )
    parser.add_argument("--emulated", action="store_true", help="emulated devices, small sizes")
    return parser.parse_args(words)


def say(text):
    print(f"run.py: {text}", file=sys.stderr, flush=True)


def packages_of(python):
    """The folders of packages of that Python, which may be another one than this."""
    if os.path.realpath(python) == os.path.realpath(sys.executable):
        return nvidia.package_folders()
    text = subprocess.run(
        [python, "-c", "import json, sys, site; print(json.dumps(sys.path + site.getsitepackages()))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    return [pathlib.Path(place) for place in json.loads(text) if os.path.isdir(place)]


def has_torch(packages):
    return any((place / "torch/__init__.py").exists() for place in packages)


def find_libraries(manifest, packages, emulated):
    """({library: folder}, the folders to search): nothing of NVIDIA's is needed without a device."""
    if emulated:
        return {}, []
    folders = nvidia.candidates(packages)
    found = nvidia.find(manifest["needs"], folders)
    missing = nvidia.missing_text(found, folders)
    if missing:
        say(missing)
    return found, nvidia.search_path(found, folders)


def machine_facts(options, manifest, own_loader, found):
    return {
        "commit": manifest["commit"],
        "architectures": manifest["architectures"],
        "emulated": options.emulated,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "budget": options.budget,
        "loader": "own" if own_loader else "host",
        "host": {
            "system": platform.platform(),
            "glibc": loader.hosts_glibc(),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
        },
        "device": {"count": EMULATED_DEVICES, "devices": []} if options.emulated else driver.facts(),
        "nvidia_smi": "" if options.emulated else nvidia.driver_text(),
        "libraries": {name: str(folder / name) if folder else None for name, folder in found.items()},
    }


def wants_own_loader(choice, manifest):
    return choice == "own" or (choice == "auto" and loader.needs_own(manifest["glibc"], loader.hosts_glibc()))


def run_all(options, manifest, own_loader, work):
    start = time.monotonic()
    packages = packages_of(options.python)
    found, nvidia_folders = find_libraries(manifest, packages, options.emulated)
    facts = machine_facts(options, manifest, own_loader, found)
    own = [ROOT / "lib"] + ([ROOT / "lib/glibc"] if own_loader else [])
    common = context.Context(
        root=ROOT,
        programs=own_loader.folder if own_loader else ROOT / "bin",
        libraries=own + nvidia_folders,
        emulated=options.emulated,
        devices=facts["device"]["count"],
        work=work,
        python=options.python if has_torch(packages) else None,
        packages=packages,
    )
    written = results.Results(options.out, facts)

    def record(part, outcome, seconds):
        written.add(part, outcome, seconds)
        say(f"{outcome.status:<8}{seconds:6.1f} s  {part.name}" + (f": {outcome.reason}" if outcome.reason else ""))

    chosen = [part for part in parts.all_parts() if options.only in part.name]
    if common.devices > 0:
        plan.run_parts(chosen, common, options.budget - (time.monotonic() - start), record)
    else:
        plan.skip_parts(chosen, facts["device"].get("reason", "CUDA finds no device"), record)
    written.finish(time.monotonic() - start)
    return written.data


def main(words):
    options = parse(words)
    if options.list:
        print("\n".join(part.name for part in parts.all_parts()))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    processes.adopt_orphans()
    manifest = json.loads((ROOT / "manifest.json").read_text())
    own_loader = None
    try:
        if wants_own_loader(options.loader, manifest):
            own_loader = loader.OwnLoader(
                ROOT / "lib/glibc/ld-linux-x86-64.so.2", [ROOT / "bin" / name for name in PROGRAMS]
            )
        with tempfile.TemporaryDirectory(prefix="ddprun-gpu-") as work:
            data = run_all(options, manifest, own_loader, work)
    finally:
        if own_loader:
            own_loader.remove()
    print(results.table(data))
    return results.exit_code(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
