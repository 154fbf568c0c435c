"""Commands with a time limit, which end with everything that they have started."""

import ctypes
import dataclasses
import os
import pathlib
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass
class Finished:
    code: int  # negative: the signal that ended it
    timed_out: bool
    seconds: float
    out: str
    err: str

    @property
    def succeeded(self):
        return self.code == 0 and not self.timed_out


def adopt_orphans():
    """Processes below this one, whose parents end, become its children, where end_all() finds them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents():
    """{process: its parent} for all processes of this machine."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(folder.name)] = int(fields[1])
    return found


def below(root, parent_of):
    """The processes below root, by a table of parents()."""
    found, last = set(), {root}
    while last:
        last = {process for process, parent in parent_of.items() if parent in last} - found
        found |= last
    return found


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_all(within=10):
    """Kills all processes below this one, those of other process groups too, until there are none. A process that waits
    for a device that does not answer may not end: it is left alone after so many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        left = below(os.getpid(), parents())
        for process in left:
            kill(process)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        if left:
            time.sleep(0.01)


def code_of(process, within):
    """How it has ended; as killed where it does not."""
    try:
        return process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


def run(command, limit, environment, folder, log):
    """Runs a command for at most limit seconds, in a process group of its own. log: where its output goes, to .out and
    .err."""
    start = time.monotonic()
    timed_out = False
    with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            code_of(process, within=10)
        finally:
            end_all()
    seconds = time.monotonic() - start
    return Finished(
        code_of(process, within=0),
        timed_out,
        seconds,
        *(pathlib.Path(f"{log}.{end}").read_text(errors="replace") for end in ("out", "err")),
    )
