"""All runs of a measurement, in one file that is written after each of them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.cases import MODELS
from harness.results import Machine, write_whole

from .contestants import RATES, Contestant, Setting
from .hosts import Link, Measured


@dataclass
class Sample:
    """One run: what it was, what the machine was like, what came of it."""

    contestant: str
    model: str
    batch: int
    rate: str
    latency_ms: float
    steps: int
    cpu: str
    commit: str
    load_before: float
    busy_before: float  # share of the cores that others used just before
    images_per_second: float = 0.0
    ms_per_step: float = 0.0
    seconds_to_first_step: float = 0.0
    peak_memory_mb: float = 0.0
    version: str = ""
    error: str = ""
    world: dict[str, Any] = field(default_factory=dict)  # Lockstep's choice of division, and what it expected
    profile_ms_per_step: dict[str, float] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        return Setting(self.model, self.batch, Link(self.rate, self.latency_ms))


@dataclass
class Samples:
    machine: Machine
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    data: str = ""
    links: list[Measured] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def of(self, contestant: Contestant, setting: Setting) -> list[Sample]:
        return [s for s in self.samples if s.contestant == contestant.name and s.setting == setting]

    def settings(self) -> list[Setting]:
        """In the order of tables, whatever was measured first."""

        def place(setting: Setting) -> tuple[int, int, float, int]:
            rate = RATES.index(setting.link.rate) if setting.link.rate in RATES else len(RATES)
            return setting.batch, MODELS.index(setting.model), setting.link.latency_ms, rate

        return sorted(dict.fromkeys(s.setting for s in self.samples), key=place)

    def knows(self, link: Link) -> bool:
        return any((m.rate, m.latency_ms) == (link.rate, link.latency_ms) for m in self.links)

    def save(self, path: Path) -> None:
        write_whole(path, asdict(self))

    @staticmethod
    def load(path: Path) -> Samples:
        raw = json.loads(path.read_text())
        links = [Measured(**each) for each in raw["links"]]
        samples = [Sample(**each) for each in raw["samples"]]
        return Samples(Machine(**raw["machine"]), raw["date"], raw["data"], links, samples)
