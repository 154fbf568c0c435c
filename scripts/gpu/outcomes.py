"""What a part of a run has come to."""

import dataclasses

TAIL_LINES = 80


@dataclasses.dataclass
class Outcome:
    status: str  # "passed", "failed" or "skipped"
    reason: str = ""  # of a failure or of what was skipped: one line
    tail: list = dataclasses.field(default_factory=list)  # the last lines of what has failed
    facts: dict = dataclasses.field(default_factory=dict)  # what was measured


def passed(**facts):
    return Outcome("passed", facts=facts)


def last_lines(*texts):
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return [line[:500] for line in lines[-TAIL_LINES:]]


def how_it_ended(finished, limit):
    if finished.timed_out:
        return f"was killed after {limit:.0f} s"
    return f"signal {-finished.code}" if finished.code < 0 else f"exit code {finished.code}"


def skipped(reason, *texts):
    return Outcome("skipped", reason, last_lines(*texts))


def failed(reason, *texts, **facts):
    return Outcome("failed", reason, last_lines(*texts), facts)
