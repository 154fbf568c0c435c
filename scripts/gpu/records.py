"""What training jobs have written, and how two of them compare."""

import json
import pathlib
import statistics

LARGEST_DIFFERENCE = 2e-3  # of a loss, relative: sums of float32 in another order, over some steps


def steps_in(path):
    """The records of steps in a metrics.file; its last line may be cut off."""
    if not pathlib.Path(path).exists():
        return []
    records = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.endswith("}")]
    return [record for record in records if "step" in record]


def losses_in(path):
    return [record["loss"] for record in steps_in(path)]


def rate_in(path, warm_up):
    """Samples a second over all steps behind the warm-up: a median would hide slow ones."""
    rates = [record["samples_per_s"] for record in steps_in(path)][warm_up:]
    return statistics.harmonic_mean(rates) if rates else None


def largest_difference(expected, found):
    """The largest relative difference of two runs' losses; infinite where there are not as many, or none."""
    if not expected or len(expected) != len(found):
        return float("inf")
    differences = [abs(a - b) / max(abs(a), 1e-9) for a, b in zip(expected, found)]
    return max(difference if difference == difference else float("inf") for difference in differences)
