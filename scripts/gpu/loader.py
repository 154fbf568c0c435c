"""The dynamic linker that the archive's programs start with.

A program names its linker by an absolute path, and needs a C library that is at least as new as the one it was linked
with. Where this machine's is older, or is not glibc, the programs are copied with another path in them, that of a link
to the archive's own linker, and use the archive's C library. NVIDIA's libraries ask for old versions alone, so they
work with either.
"""

import os
import pathlib
import shutil
import struct
import tempfile

PT_INTERP = 3


def version(text):
    """(2, 36) of "glibc 2.36" or "2.36"."""
    return tuple(int(part) for part in text.split()[-1].split(".")[:2])


def hosts_glibc():
    """The version of this machine's glibc, or "" where it has another C library."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""
    return text.split()[-1] if text.startswith("glibc ") else ""


def needs_own(needed, hosts):
    return not hosts or version(hosts) < version(needed)


def interpreter(image):
    """(offset, size, path) of an ELF program's linker."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("this is no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", image, 32)
    entry_size, entries = struct.unpack_from("<HH", image, 54)
    for i in range(entries):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", image, table + i * entry_size)
        if kind == PT_INTERP:
            return offset, size, image[offset : offset + size].rstrip(b"\0").decode()
    raise ValueError("it names no dynamic linker")


def with_interpreter(image, path):
    """The program with another path in the place of its linker's, which is as long or longer."""
    offset, size, _ = interpreter(image)
    word = os.fsencode(path)
    if len(word) >= size:
        raise ValueError(f"{path} is longer than the {size - 1} bytes that the program has for it")
    return image[:offset] + word.ljust(size, b"\0") + image[offset + size :]


class OwnLoader:
    """Copies of the programs that start with the archive's linker, for as long as this exists."""

    def __init__(self, linker, programs):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))  # a short path: it must fit into programs
        try:
            (self.folder / "ld.so").symlink_to(pathlib.Path(linker).resolve())
            for program in programs:
                self._copy(pathlib.Path(program))
        except BaseException:
            self.remove()
            raise

    def _copy(self, program):
        target = self.folder / program.name
        target.write_bytes(with_interpreter(program.read_bytes(), self.folder / "ld.so"))
        target.chmod(0o755)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
