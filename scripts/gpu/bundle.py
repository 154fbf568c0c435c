"""Makes the folder and the archive that run on a bare machine with a driver: see docs/gpu.md."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import loader
import nvidia
import workloads

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = TREE / "build"
LARGEST_ARCHIVE = 50 << 20  # bytes
TARGETS = ("ddprun", "ddprun-worker", "ddprun_cuda_module", "ddprun_cuda_emulated", "device_test")
PROGRAMS = ("bin/ddprun", "bin/ddprun-worker", "tests/device_test")
MODULES = ("bin/libddprun_cuda.so", "bin/libddprun_cuda_emulated.so")
# The files of glibc, which is used with its own linker alone, never with another machine's.
GLIBC = (
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libresolv.so.2",
    "libutil.so.1",
)
NOT_IN_THE_ARCHIVE = ("bundle.py", "bare.py")


class Problem(Exception):
    """One line for the user."""


def cached(name):
    """A value of the build folder's configuration, or None."""
    cache = BUILD / "CMakeCache.txt"
    found = re.search(rf"^{name}:[A-Z]+=(.*)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    return found[1] if found else None


def build(architectures):
    """Compiles what the archive holds. architectures: None: those of the build folder, of a new one 90."""
    wanted = {"DDPRUN_CUDA": "ON", "DDPRUN_BUILD_TESTS": "ON"}
    if architectures or not cached("DDPRUN_CUDA_ARCHITECTURES"):
        wanted["DDPRUN_CUDA_ARCHITECTURES"] = (architectures or "90").replace(",", ";")
    accepted = {"DDPRUN_CUDA": ("ON", "AUTO")}
    if any(cached(name) not in accepted.get(name, (value,)) for name, value in wanted.items()):
        preset = [] if (BUILD / "CMakeCache.txt").exists() else ["--preset", "release"]
        command(
            ["cmake", *(preset or ["-B", BUILD]), "-S", TREE, *(f"-D{name}={value}" for name, value in wanted.items())]
        )
    command(["cmake", "--build", BUILD, "--target", *TARGETS])


def command(words):
    done = subprocess.run(
        [str(word) for word in words], cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise Problem(f"{words[0]} failed:\n" + "\n".join(done.stdout.splitlines()[-30:]))
    return done.stdout


def libraries_of(path):
    """{name: path, or None where it is missing} of all libraries that a program or a library needs."""
    text = subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout
    found = {}
    for name, where in re.findall(r"^\s*(\S+) => (not found|\S+)", text, re.MULTILINE):
        found[name] = None if where == "not found" else pathlib.Path(where)
    return found


def needed_glibc(paths):
    """The newest version of glibc that one of these files asks for."""
    versions = set()
    for path in paths:
        versions |= set(re.findall(r"GLIBC_([0-9.]+)", command(["readelf", "-V", path])))
    return max(versions, key=loader.version)


def own_libraries(files):
    """{name: path} of the libraries to carry: all that the files need but NVIDIA's and glibc's."""
    own = {}
    for path in files:
        for name, where in libraries_of(path).items():
            if nvidia.is_nvidias(name) or name in GLIBC:
                continue
            if where is None:
                raise Problem(f"{path} needs {name}, which is not here")
            own[name] = where
    return own


def direct_needs(path):
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", command(["readelf", "-d", path]))


def strip_into(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    command(["strip", "-o", target, source])


def copy_glibc(program, folder):
    """The C library of a program, and its dynamic linker."""
    folder.mkdir(parents=True)
    home = libraries_of(program)["libc.so.6"].parent
    for name in GLIBC:
        source = pathlib.Path(loader.interpreter(program.read_bytes())[2]) if name.startswith("ld-") else home / name
        shutil.copy(source.resolve(), folder / name)


def copy_binaries(folder):
    """Programs and modules to bin, the libraries that they need to lib."""
    files = [BUILD / path for path in PROGRAMS + MODULES]
    for path in files:
        strip_into(path, folder / "bin" / path.name)
    for name, path in own_libraries(files).items():
        strip_into(path.resolve(), folder / "lib" / name)
    copy_glibc(files[0], folder / "lib/glibc")


def copy_runner(folder):
    (folder / "configs").mkdir()
    for name in workloads.COMPARED:
        shutil.copy(TREE / f"configs/{name}.cfg", folder / "configs")
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        if path.name not in NOT_IN_THE_ARCHIVE:
            shutil.copy(path, folder)


def carried(folder):
    """The programs and libraries of the folder, but glibc."""
    return sorted([*(folder / "bin").iterdir(), *(folder / "lib").glob("*.so*")])


def write_manifest(folder):
    """What run.py has to know of the files beside it."""
    manifest = {
        "commit": command(["git", "describe", "--always", "--dirty", "--abbrev=12"]).strip(),
        "architectures": cached("DDPRUN_CUDA_ARCHITECTURES"),
        "glibc": needed_glibc(carried(folder)),
        "needs": [name for name in direct_needs(folder / "bin/libddprun_cuda.so") if nvidia.is_nvidias(name)],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def outside(folder):
    """Libraries that a file of the folder would take from elsewhere, with the folder's own linker and C library."""
    search = f"{folder / 'lib'}:{folder / 'lib/glibc'}"
    for path in carried(folder):
        text = subprocess.run(
            [folder / "lib/glibc/ld-linux-x86-64.so.2", "--inhibit-cache", "--library-path", search, "--list", path],
            capture_output=True,
            text=True,
        ).stdout
        for name, where in re.findall(r"^\s*(\S+) => (not found|\S+)", text, re.MULTILINE):
            if not nvidia.is_nvidias(name) and not where.startswith(f"{folder}/"):
                yield f"{path.name}: {name} => {where}"


def check_self_contained(folder):
    found = list(outside(folder))
    if found:
        raise Problem("the archive would take libraries from outside:\n" + "\n".join(found))


def stage(folder, architectures=None):
    """Builds, and makes a folder from which run.py works."""
    build(architectures)
    folder.mkdir(parents=True)
    copy_binaries(folder)
    copy_runner(folder)
    check_self_contained(folder)
    return write_manifest(folder)


def pack(folder, file):
    """gzip, since tar unpacks it everywhere; the same bytes for the same files."""

    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry

    with open(file, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in sorted(folder.rglob("*")):
                archive.add(path, arcname=f"ddprun-gpu/{path.relative_to(folder)}", recursive=False, filter=plain)


def size_table(folder):
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    return "\n".join(f"{path.stat().st_size / 1e6:8.2f} MB  {path.relative_to(folder)}" for path in files)


def make_archive(file, folder, architectures):
    manifest = stage(folder, architectures)
    pack(folder, file)
    size = os.path.getsize(file)
    print(size_table(folder))
    print(
        f"{file}: {size / (1 << 20):.1f} MiB, ddprun {manifest['commit']} for sm_{manifest['architectures']}; "
        f"glibc {manifest['glibc']} or its own, and {', '.join(manifest['needs'])} of the machine"
    )
    if size > LARGEST_ARCHIVE:
        raise Problem(f"{file} is larger than {LARGEST_ARCHIVE >> 20} MiB")
    sys.stdout.flush()
