"""Builds the launcher and libddprun_c by CMake and puts them into the wheel.

DDPRUN_BUILD_DIR names a build folder that has them already; otherwise they are built in a folder of the wheel's own.
"""

import os
import pathlib
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
# The libraries that every machine with a C and a C++ library has, or that must not be replaced.
OF_THE_SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libstdc++.so",
                 "libgcc_s.so")


def built():
    """The build folder, with the launcher and the library in it."""
    named = os.environ.get("DDPRUN_BUILD_DIR")
    if named:
        return pathlib.Path(named)
    folder = TREE / "build-wheel"
    subprocess.run(
        ["cmake", "-S", TREE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DDDPRUN_TENSORS=OFF",
         "-DDDPRUN_BUILD_TESTS=OFF", "-DDDPRUN_BUILD_BENCH=OFF", "-DDDPRUN_CUDA=OFF", "-DDDPRUN_MPI=OFF"],
        check=True)
    subprocess.run(["cmake", "--build", folder, "--target", "ddprun", "ddprun_c"], check=True)
    return folder


def libraries_of(library):
    """The shared libraries that it needs and a machine may lack: name and path."""
    lines = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout.splitlines()
    found = (line.split() for line in lines if "=>" in line)
    return {words[0]: words[2] for words in found if not words[0].startswith(OF_THE_SYSTEM)}


class Build(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "ddprun"
        folder = built()
        (package / "lib").mkdir(parents=True, exist_ok=True)
        library = folder / "lib" / "libddprun_c.so"
        shutil.copy2(library, package / "lib")
        for name, path in libraries_of(library).items():
            shutil.copy2(path, package / "lib" / name)
        header = package / "include" / "ddprun" / "worker" / "capi"
        header.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / "worker" / "capi" / "ddprun.h", header)
        programs = HERE / "build" / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / "bin" / "ddprun", programs)


class Platform(Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    """The same for every version of Python, since nothing is compiled for one."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=Platform, cmdclass={"build_py": Build, "bdist_wheel": Wheel},
      data_files=[("bin", ["build/programs/ddprun"])])
