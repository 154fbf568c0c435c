"""The JSON of a run, and its table."""

import json
import os
import pathlib

FORMAT = 1
UNITS = {"tokens_per_s": "tokens/s", "images_per_s": "images/s"}


class Results:
    """Written after each part, so that a run that is cut short leaves what it knows."""

    def __init__(self, path, facts):
        self.path = pathlib.Path(path)
        self.data = {"format": FORMAT, **facts, "complete": False, "parts": []}
        self._write()

    def add(self, part, outcome, seconds):
        self.data["parts"].append(
            {
                "name": part.name,
                "status": outcome.status,
                "seconds": round(seconds, 2),
                "limit": part.limit,
                "reason": outcome.reason,
                "facts": outcome.facts,
                "tail": outcome.tail,
            }
        )
        self._write()

    def finish(self, seconds):
        self.data.update(complete=True, seconds=round(seconds, 1))
        self._write()

    def _write(self):
        unfinished = self.path.with_name(self.path.name + ".new")
        unfinished.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(unfinished, self.path)


def counts(data):
    statuses = [part["status"] for part in data["parts"]]
    return {status: statuses.count(status) for status in ("passed", "failed", "skipped")}


def exit_code(data):
    return 0 if data["complete"] and counts(data)["failed"] == 0 and counts(data)["passed"] > 0 else 1


def note_of(part):
    """What the table says of a part: why, or its figures."""
    if part["status"] != "passed":
        return part["reason"]
    facts = part["facts"]
    notes = [f"{facts[key]:,.0f} {unit}" for key, unit in UNITS.items() if key in facts]
    if "cases" in facts:
        notes.append(f"{facts['cases']} test cases")
    if "largest_difference" in facts:
        notes.append(f"losses differ by {facts['largest_difference']:.1e} in {facts['steps']} steps")
    rows = [row for row in facts.get("rows", []) if row["ranks"] > 1]
    if rows:
        best = max(rows, key=lambda row: row["gb_per_s"])
        notes.append(f"{best['gb_per_s']:.1f} GB/s ({best['path']}, {best['ranks']} ranks)")
    return ", ".join(notes)


def ratios(data):
    """Lines that compare a part with the one of the same name in PyTorch."""
    by_name = {part["name"]: part["facts"] for part in data["parts"] if part["status"] == "passed"}
    for name, facts in by_name.items():
        peer = by_name.get(f"{name}, in PyTorch", {})
        for key in UNITS:
            if key in facts and peer.get(key):
                yield f"{name}: {facts[key] / peer[key]:.2f} x PyTorch"


def table(data):
    device = data.get("device", {}).get("devices") or [{}]
    where = "emulated devices" if data["emulated"] else device[0].get("name", "no device")
    lines = [f"ddprun {data['commit']} on {where}"]
    width = max([len(part["name"]) for part in data["parts"]], default=0)
    for part in data["parts"]:
        lines.append(f"{part['status']:<8}{part['seconds']:7.1f} s  {part['name']:<{width}}  {note_of(part)}".rstrip())
    lines += ratios(data)
    found = counts(data)
    lines.append(
        f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"
        + ("" if data["complete"] else "; the run was cut short")
    )
    return "\n".join(lines)
