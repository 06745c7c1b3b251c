#!/usr/bin/env python3
"""Checks the history of a job, which its trainers recorded (LOCKSTEP_TEST_HISTORY, tests/faults/fault_points.cpp):

- a file is published by one process at a time: once another process has published, the earlier ones publish nothing
- a step that is repeated after a restart has the same bits
- of each rank, one process at a time takes steps: generations do not overlap

    check_history.py HISTORY [--elastic]     --elastic: other numbers of workers may give other bits
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read(path: Path) -> list[Event]:
    """All whole lines; the last one may be cut by a kill."""
    events: list[Event] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return sorted(events, key=lambda event: event["t"])


def writers(events: Iterable[Event]) -> list[str]:
    found: list[str] = []
    former: set[int] = set()
    writer: int | None = None
    for event in events:
        if event["what"] != "publish" or event["pid"] == writer:
            continue
        if event["pid"] in former:
            found.append(f"process {event['pid']} published {event['file']} after process {writer} had published")
        if writer is not None:
            former.add(writer)
        writer = event["pid"]
    return found


def repeated_steps(events: Iterable[Event]) -> list[str]:
    digests: dict[int, str] = {}
    return [f"step {event['step']} had the loss {digests[event['step']]} and, repeated, {event['digest']}"
            for event in events if event["what"] == "step" and event["rank"] == 0
            and digests.setdefault(event["step"], event["digest"]) != event["digest"]]


def overlaps(events: Iterable[Event]) -> list[str]:
    spans: dict[int, dict[int, list[float]]] = {}
    for event in events:
        if event["what"] == "step":
            spans.setdefault(event["rank"], {}).setdefault(event["pid"], []).append(event["t"])
    found: list[str] = []
    for rank, processes in spans.items():
        ordered = sorted((times[0], times[-1], pid) for pid, times in processes.items())
        for (_, end, one), (begin, _, other) in zip(ordered, ordered[1:]):
            if begin < end:
                found.append(f"processes {one} and {other} were both rank {rank} between {begin:.3f} and {end:.3f}")
    return found


def check(path: Path, elastic: bool = False) -> list[str]:
    """What is wrong; empty if nothing is."""
    events = read(path)
    return writers(events) + overlaps(events) + ([] if elastic else repeated_steps(events))


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("history", type=Path)
    parser.add_argument("--elastic", action="store_true")
    given = parser.parse_args()
    found = check(given.history, given.elastic)
    print("\n".join(found) or f"{len(read(given.history))} events, nothing wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
