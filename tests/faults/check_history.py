#!/usr/bin/env python3
"""Checks the history of a job, which its launchers and trainers recorded (LOCKSTEP_TEST_HISTORY,
tests/faults/fault_points.cpp):

- a file is published by one process at a time: once another process has published, the earlier ones publish nothing
- a published file still has the bytes with which it was published
- a step that is repeated after a restart has the same bits
- generations do not overlap: no trainer starts before those of the generation before have ended, and of each rank one
  process at a time takes steps
- every wait ends: a trainer that waits for another rank goes on or ends, and no launcher exits before its trainers

    check_history.py HISTORY [--elastic]     --elastic: a job that goes on without lost workers; other numbers of workers
                                             may give other bits, and a lost worker's trainers may end late
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


def changed_files(events: Iterable[Event]) -> list[str]:
    published = {event["file"]: int(event["digest"], 16) for event in events if event["what"] == "publish"}
    found: list[str] = []
    for file, digest in published.items():
        try:
            content = Path(file).read_bytes()
        except OSError:  # removed since
            continue
        if digest not in (0, zlib.crc32(content)):  # 0: it was gone at once
            found.append(f"{file} has other bytes than when it was published")
    return found


@dataclass
class Life:
    """A trainer's, as its launcher tells it."""

    generation: str
    trainer: int
    begin: float
    end: float | None  # None if the launcher exited without it


def lives(events: Sequence[Event]) -> list[Life]:
    exited = {event["pid"] for event in events if event["what"] == "exit"}
    ended = {(event["pid"], event["trainer"]): event["t"] for event in events if event["what"] == "end"}
    last = {event["pid"]: event["t"] for event in events}
    found: list[Life] = []
    for event in events:
        if event["what"] != "start":
            continue
        end = ended.get((event["pid"], event["trainer"]))
        if end is None and event["pid"] not in exited:  # the launcher was killed, and the trainer with it
            end = max(event["t"], last.get(event["trainer"], 0))
        found.append(Life(event["generation"], event["trainer"], event["t"], end))
    return found


def overlapping_generations(events: Sequence[Event]) -> list[str]:
    by_generation: dict[str, list[Life]] = {}
    for life in lives(events):
        by_generation.setdefault(life.generation, []).append(life)
    found: list[str] = []
    earlier: list[Life] = []
    for generation, its in by_generation.items():  # in the order of their first trainers
        begin = min(life.begin for life in its)
        found += [f"{generation} began at {begin:.3f}, but process {life.trainer} of {life.generation} ended at {life.end:.3f}"
                  for life in earlier if life.end is not None and life.end > begin]
        earlier += its
    return found


def endless_waits(events: Sequence[Event]) -> list[str]:
    found = [f"the launcher of process {life.trainer} exited without its end" for life in lives(events) if life.end is None]
    ended = {life.trainer for life in lives(events) if life.end is not None}
    last = {event["pid"]: event for event in events}
    return found + [f"process {pid} has waited for another rank since {event['t']:.3f}"
                    for pid, event in last.items() if event["what"] == "wait" and pid not in ended]


def check(path: Path, elastic: bool = False) -> list[str]:
    """What is wrong; empty if nothing is."""
    events = read(path)
    found = writers(events) + changed_files(events) + overlaps(events) + endless_waits(events)
    return found if elastic else found + repeated_steps(events) + overlapping_generations(events)


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
