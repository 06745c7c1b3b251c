#!/usr/bin/env python3
"""Shortens result files to what tables, plots and docs read, one line per case. Run it before you commit a result.

    bench/summarize.py bench/results/FILE.json ...

compare.py, network.py and grid.py can still read their files with --from. Files of step_floor.py keep the medians,
those of overlap.py everything except single steps, and those of random faults the counts.
"""

import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from harness.packing import pack, rounded, unpack  # noqa: E402

CASE = ("contestant", "model", "batch", "precision", "arrangement", "rate", "latency_ms", "link")  # if the file has them


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: rounded(value) for key, value in record.items() if key not in names}


def count_faults(run: dict[str, Any]) -> dict[str, Any]:
    """Replaces a run's list of faults by counts and times. Times are seconds: from the fault until all workers had
    reported it, and from the pod's return until the next step."""
    if not isinstance(run.get("faults"), list):
        return run
    faults = run["faults"]
    counts = {"faults": len(faults), "kinds": dict(Counter(fault["kind"] for fault in faults))}
    noticed = [fault["noticed"] for fault in faults if fault.get("noticed") is not None]
    next_step = [fault["next_step"] - fault["mended"] for fault in faults if fault.get("next_step") is not None]
    for name, seconds in (("noticed_s", noticed), ("next_step_after_pod_was_back_s", next_step)):
        if seconds:
            counts[name] = {
                "median": round(statistics.median(seconds), 3),
                "nine_of_ten": round(sorted(seconds)[int(0.9 * (len(seconds) - 1))], 3),
                "max": round(max(seconds), 3),
            }
    return {**without(run, "faults"), **counts}


def summarize(results: dict[str, Any]) -> dict[str, Any]:
    short = dict(results)
    if "samples" in short:
        samples = unpack(short["samples"])
        short["samples"] = pack(samples, tuple(name for name in CASE if name in samples[0]))
    for name, left_out in (("rows", "samples"), ("overlap_bench", "last_step")):
        if name in short:
            short[name] = [without(record, left_out) for record in short[name]]
    if "runs" in short:
        short["runs"] = [count_faults(run) for run in short["runs"]]
    return count_faults(short)


def to_text(results: dict[str, Any]) -> str:
    """JSON with a line for each field, and for each record of a list."""
    lines = []
    for name, value in results.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            records = ",\n  ".join(json.dumps(record) for record in value)
            lines.append(f"{json.dumps(name)}: [\n  {records}\n ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(to_text(summarize(json.loads(path.read_text()))))


if __name__ == "__main__":
    main()
