"""The kernels in what nvcc and cuobjdump print."""

import collections
import re
import subprocess

# Registers of a thread; bytes of its stack; bytes of a block's static shared memory.
Use = collections.namedtuple("Use", "registers stack shared")


def ptxas_uses(text):
    """{symbol: Use} of what ptxas -v prints."""
    uses = {}
    for symbol, part in entries(text):
        uses[symbol] = Use(
            number(r"Used (\d+) registers", part),
            number(r"(\d+) bytes stack frame", part),
            number(r"(\d+) bytes smem", part),
        )
    return uses


def ptxas_spills(text):
    """{symbol: bytes of registers that are stored and loaded} of the kernels that spill."""
    spills = {
        symbol: number(r"(\d+) bytes spill stores", part) + number(r"(\d+) bytes spill loads", part)
        for symbol, part in entries(text)
    }
    return {symbol: size for symbol, size in spills.items() if size > 0}


def entries(text):
    for part in text.split("Compiling entry function ")[1:]:
        yield re.match(r"'([^']+)'", part)[1], part


def number(pattern, text):
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def tensor_core_products(ptx):
    """{symbol: instructions that ask tensor cores for a product} of the kernels in a source's PTX."""
    parts = re.split(r"\.entry (\w+)\(", ptx)[1:]
    return {
        symbol: len(re.findall(r"^\s*w?mma\.(?:mma\.)?sync\.", body, re.MULTILINE))
        for symbol, body in zip(parts[::2], parts[1::2])
    }


# Bytes that cuobjdump, from sm_90 on, adds to the shared memory of a kernel that has any: the system's own.
RESERVED = 1024


def own_shared(architecture, shared):
    return shared - RESERVED if int(architecture) >= 90 and shared >= RESERVED else shared


def cuobjdump_uses(text):
    """{architecture: [(symbol, Use), ...]} of what cuobjdump --dump-resource-usage prints of an object or a library."""
    uses = collections.defaultdict(list)
    for part in re.split(r"^arch = sm_", text, flags=re.MULTILINE)[1:]:
        architecture = re.match(r"\d+", part)[0]
        for symbol, registers, stack, shared in re.findall(
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", part
        ):
            use = Use(int(registers), int(stack), own_shared(architecture, int(shared)))
            uses[architecture].append((symbol, use))
    return uses


def demangled(symbols):
    """{symbol: the kernel in C++}"""
    symbols = list(symbols)
    text = subprocess.run(
        ["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True
    ).stdout.replace("(anonymous namespace)::", "")
    return dict(zip(symbols, (line.removeprefix("void ") for line in text.splitlines())))


def short_name(kernel):
    """The kernel's name without namespaces, template arguments and parameters."""
    return re.split(r"[<(]", kernel, maxsplit=1)[0].strip().rsplit("::", 1)[-1]


def first_argument(kernel):
    """The first template argument without namespaces: the type of the elements."""
    found = re.match(r"[^<(]*<([^<>,]+)", kernel)
    return found[1].strip().rsplit("::", 1)[-1] if found else ""
