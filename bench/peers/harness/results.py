"""The result file: machine, versions and samples. It is rewritten after each sample, so that a run can be resumed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .cases import Case
from .children import Sample
from .packing import unpack

NOTED_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Machine:
    cpu: str
    flags: list[str]
    cores: int

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.cpu.lower()).strip("-")


def this_machine() -> Machine:
    """The CPU with family and model, because virtual machines often hide its name."""
    info: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        info[key.strip()] = value.strip()
    name = re.sub(r"\((R|TM)\)|CPU|@.*", "", info.get("model name", "unknown"))
    cpu = f"{' '.join(name.split())} family {info.get('cpu family', '?')} model {info.get('model', '?')}"
    flags = [flag for flag in NOTED_FLAGS if flag in info.get("flags", "").split()]
    return Machine(cpu, flags, len(os.sched_getaffinity(0)))


def lockstep_version(root: Path) -> str:
    run = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return run.stdout.strip() or "unknown"


@dataclass
class Results:
    machine: Machine
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    data: str = ""
    steps: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    installed_mb: dict[str, float] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, contestant: str, case: Case, sample: Sample) -> None:
        if sample.version:
            self.versions[contestant] = sample.version
        self.samples.append({"contestant": contestant, **asdict(case), **sample.as_dict()})

    def of(self, contestant: str, case: Case) -> list[Sample]:
        wanted = {"contestant": contestant, **asdict(case)}
        found = [s for s in self.samples if all(s[key] == value for key, value in wanted.items())]
        return [Sample(**{key: value for key, value in s.items() if key not in wanted}) for s in found]

    def cases(self) -> list[Case]:
        seen = {Case(s["model"], s["batch"], s["precision"], s["arrangement"]): None for s in self.samples}
        return list(seen)

    def save(self, path: Path) -> None:
        write_atomically(path, asdict(self))

    @staticmethod
    def load(path: Path) -> Results:
        raw = json.loads(path.read_text())
        return Results(**{**raw, "machine": Machine(**raw["machine"]), "samples": unpack(raw["samples"])})


def write_atomically(path: Path, value: dict[str, Any]) -> None:
    """Replaces the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n")
    partial.replace(path)


def new_path(folder: Path, machine: Machine, date: str, name: str = "compare") -> Path:
    """NAME-CPU-DATE.json, or with -2, -3, … if that exists."""
    path, number = folder / f"{name}-{machine.slug}-{date}.json", 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{machine.slug}-{date}-{number}.json"
    return path
