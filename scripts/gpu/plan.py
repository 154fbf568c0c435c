"""Runs parts one after the other within a budget of time."""

import time

import outcomes

LEAST = 5  # seconds, with which a part is begun


def run_parts(parts, context, budget, record, clock=time.monotonic):
    """record(part, outcome, seconds) is called after each part. A part has its limit, or what is left of the budget."""
    end = clock() + budget
    for part in parts:
        start = clock()
        limit = min(part.limit, end - start)
        if limit < LEAST:
            outcome = outcomes.skipped(f"{max(0, end - start):.0f} s are left of the budget of {budget:.0f} s")
        else:
            outcome = run_part(part, context, start + limit, limit, clock)
        record(part, outcome, clock() - start)


def skip_parts(parts, reason, record):
    for part in parts:
        record(part, outcomes.skipped(reason), 0)


def run_part(part, context, end, limit, clock):
    context.seconds_left = lambda: max(0.1, end - clock())
    try:
        return part.run(context, limit)
    except Exception as error:  # whatever it is must not cost the other parts
        return outcomes.failed(f"{type(error).__name__}: {error}")
