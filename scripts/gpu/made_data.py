"""Data for training jobs, made here."""

import array
import random
import struct
import zlib


def write_text(folder):
    """A text for a language model of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.txt").write_text("".join(f"{i * i} is the square of {i}.\n" for i in range(4000)))
    return folder


def write_tokens(folder, count, vocabulary):
    """Random tokens to learn from, and a few to evaluate with."""
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(1)
    for name, size in (("train.bin", count), ("val.bin", 3000)):
        words = array.array("H", (source.randrange(vocabulary) for _ in range(size)))
        (folder / name).write_bytes(words.tobytes())
    return folder


def png(extent, source):
    """A square of random colours, stored without compression: quick to read."""
    rows = b"".join(b"\0" + source.randbytes(3 * extent) for _ in range(extent))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", extent, extent, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def write_pictures(folder, count, extent, classes=10):
    """PNG files in a folder for each class, and one of each class to evaluate with."""
    source = random.Random(1)
    for split, size in (("train", count), ("val", classes)):
        for i in range(size):
            path = folder / split / f"class{i % classes}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(extent, source))
    return folder
