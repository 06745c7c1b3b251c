"""The contestants, models and links of bench/network.py, and the number of steps of each run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from harness.cases import EPOCHS, MODELS, Case

from .hosts import HOST, UNLIMITED, Link

RATES = (HOST, UNLIMITED, "10gbit", "1gbit")
LATENCIES = (0.0, 0.2, 2.0)
BATCHES = (128, 1024)
MBIT = {"10gbit": 10000.0, "1gbit": 1000.0}
WEIGHTS_MB = {"keras_mnist": 11.1, "custom_training_mnist": 0.5}
MIN_STEPS_PER_PART = 2  # steps of one of the EPOCHS parts


@dataclass(frozen=True)
class Setting:
    model: str
    batch: int
    link: Link


@dataclass(frozen=True)
class Contestant:
    name: str
    label: str
    peer: str = ""  # its name in the harness; empty for Lockstep
    parallelism: str = ""  # Lockstep's
    arrangement: str = "2x1"
    expected_ms: tuple[float, float] = (7.0, 5.5)  # step time of each of MODELS, for batch 128 on one host
    sends_weights: bool = False  # whether each step sends as many bytes as the weights, in both directions

    def runs(self, setting: Setting) -> bool:
        """Whether the contestant runs over this link. A single process uses no link and runs only with HOST."""
        return self.arrangement == "2x1" or setting.link.rate == HOST

    def case(self, setting: Setting) -> Case:
        return Case(setting.model, setting.batch, "float32", self.arrangement)


CONTESTANTS = {
    c.name: c
    for c in (
        Contestant("single", "one worker", parallelism="data", arrangement="1x1", expected_ms=(12.0, 9.5)),
        Contestant("data", "data parallel", parallelism="data", sends_weights=True),
        Contestant("tensor", "tensor parallel", parallelism="tensor"),
        Contestant("auto", "auto", parallelism="auto"),
        Contestant("mwms", "TensorFlow MWMS", "tensorflow", expected_ms=(50.0, 20.0), sends_weights=True),
        Contestant("ddp", "PyTorch DDP", "pytorch", expected_ms=(34.0, 17.0), sends_weights=True),
        Contestant(
            "tensorflow-1x2", "TensorFlow, one process", "tensorflow", arrangement="1x2", expected_ms=(12.5, 11.0)
        ),
    )
}


def settings(models: list[str], batches: list[int], rates: list[str], latencies: list[float]) -> Iterator[Setting]:
    for latency, batch, model, rate in itertools.product(latencies, batches, models, rates):
        if rate != HOST or latency == latencies[0]:
            yield Setting(model, batch, Link(rate, 0.0 if rate == HOST else latency))


def expected_ms(contestant: Contestant, setting: Setting) -> float:
    """A rough estimate of the step time, for the first run of a setting."""
    step = contestant.expected_ms[MODELS.index(setting.model)] * setting.batch / 128
    if contestant.sends_weights and setting.link.rate in MBIT:
        step += 8 * WEIGHTS_MB[setting.model] / MBIT[setting.link.rate] * 1000
    return step + 10 * setting.link.latency_ms


def steps_for(step_ms: float, seconds: float) -> int:
    """The number of steps that take about `seconds`, in EPOCHS equal parts."""
    return EPOCHS * max(MIN_STEPS_PER_PART, round(1000 * seconds / step_ms / EPOCHS))
