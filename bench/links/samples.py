"""All runs of a measurement, in one file that is rewritten after each run."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.cases import MODELS
from harness.packing import unpack
from harness.results import Machine, write_atomically

from .contestants import RATES, Contestant, Setting
from .hosts import Link, LinkMeasurement


@dataclass
class Sample:
    """One run: its setting, the machine's state, and its result."""

    contestant: str
    model: str
    batch: int
    rate: str
    latency_ms: float
    steps: int
    cpu: str
    commit: str
    load_before: float
    cpu_use_before: float  # fraction of all cores that was in use just before the run
    examples_per_second: float = 0.0
    ms_per_step: float = 0.0
    seconds_to_first_step: float = 0.0
    peak_memory_mb: float = 0.0
    version: str = ""
    error: str = ""
    world: dict[str, Any] = field(default_factory=dict)  # Lockstep's choice of parallelism and its predictions
    profile_ms_per_step: dict[str, float] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        return Setting(self.model, self.batch, Link(self.rate, self.latency_ms))


@dataclass
class Samples:
    machine: Machine
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    data: str = ""
    links: list[LinkMeasurement] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def of(self, contestant: Contestant, setting: Setting) -> list[Sample]:
        return [s for s in self.samples if s.contestant == contestant.name and s.setting == setting]

    def settings(self) -> list[Setting]:
        """All measured settings, in the order of the tables."""

        def sort_key(setting: Setting) -> tuple[int, int, float, int]:
            rate = RATES.index(setting.link.rate) if setting.link.rate in RATES else len(RATES)
            return setting.batch, MODELS.index(setting.model), setting.link.latency_ms, rate

        return sorted(dict.fromkeys(s.setting for s in self.samples), key=sort_key)

    def has_measured(self, link: Link) -> bool:
        return any((m.rate, m.latency_ms) == (link.rate, link.latency_ms) for m in self.links)

    def save(self, path: Path) -> None:
        write_atomically(path, asdict(self))

    @staticmethod
    def load(path: Path) -> Samples:
        raw = json.loads(path.read_text())
        links = [LinkMeasurement(**each) for each in raw["links"]]
        absent = {"steps": 0, "cpu": "", "load_before": 0.0}  # fields that summaries lack
        samples = [Sample(**{**absent, **each}) for each in unpack(raw["samples"])]
        return Samples(Machine(**raw["machine"]), raw["date"], raw["data"], links, samples)
