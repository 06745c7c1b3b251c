"""Tables of bench/grid.py: whether `auto` meets its bounds for each model and link."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from grid_models import MODELS

LINKS = ("host", "10gbit", "1gbit")
CONTESTANTS = ("single", "data", "tensor", "auto")
MAX_BACKGROUND_CORES = 0.1  # cores that other processes may keep busy in an undisturbed run

# The bounds for `auto`: its speed relative to the better fixed choice and to one worker, and its prediction's error.
MIN_SPEEDUP_OVER_BEST, MIN_SPEEDUP_OVER_SINGLE, MAX_PREDICTION_ERROR = 0.90, 0.95, 0.25


@dataclass
class Sample:
    """One run, or the reason why it failed or was refused."""

    model: str
    link: str
    contestant: str
    steps: int = 0
    examples_per_second: float = 0.0
    epochs: list[float] = field(default_factory=list)  # examples per second; the first is the warm-up
    world: dict[str, Any] = field(default_factory=dict)  # from history.json: chosen, predicted and measured values
    profile_ms: dict[str, float] = field(default_factory=dict)
    background_cores: float = 0.0  # cores that other processes kept busy during the run
    refused: str = ""  # why the model cannot be tensor parallel
    error: str = ""

    @property
    def cell(self) -> tuple[str, str]:
        return self.model, self.link


@dataclass(frozen=True)
class Cell:
    """One model on one link, with all of its runs."""

    model: str
    link: str
    samples: list[Sample]

    def of(self, contestant: str) -> list[Sample]:
        """The contestant's undisturbed runs, or all of its runs if none was undisturbed."""
        found = [each for each in self.samples if each.contestant == contestant and each.examples_per_second > 0]
        return [each for each in found if each.background_cores <= MAX_BACKGROUND_CORES] or found

    def speed(self, contestant: str) -> float:
        found = [each.examples_per_second for each in self.of(contestant)]
        return statistics.median(found) if found else math.nan

    @property
    def speedup_over_best(self) -> float:
        fixed = [speed for speed in map(self.speed, ("data", "tensor")) if not math.isnan(speed)]
        return self.speed("auto") / max(fixed) if fixed else math.nan

    @property
    def speedup_over_single(self) -> float:
        return self.speed("auto") / self.speed("single")

    @property
    def speedup_over_two_independent(self) -> float:
        """Relative to the slower of two independent workers that ran at the same time; NaN if they did not run."""
        return self.speed("auto") / self.speed("two-independent")

    def prediction(self, parallelism: str, contestant: str) -> float:
        """The step that `auto` predicted for a parallelism, divided by the contestant's measured step."""
        predicted: list[float] = [each.world[f"predicted_ms_{parallelism}"] for each in self.of("auto")
                     if each.world.get(f"predicted_ms_{parallelism}") is not None]
        if not predicted:
            return math.nan
        return statistics.median(predicted) * self.speed(contestant) / (1000 * MODELS[self.model].batch)

    @property
    def choices(self) -> list[str]:
        return [str(each.world["parallelism"]) for each in self.of("auto")]

    @property
    def prediction_ratio(self) -> float:
        """Predicted over measured step, for the parallelism that `auto` chose."""
        return self.prediction(statistics.mode(self.choices), "auto") if self.choices else math.nan

    @property
    def violations(self) -> list[str]:
        """The bounds that this cell misses. An unknown ratio misses none; a failed run is ["run"]."""
        if math.isnan(self.speedup_over_best) or any(each.error for each in self.samples if each.contestant == "auto"):
            return ["run"]
        bounds = {"best": self.speedup_over_best < MIN_SPEEDUP_OVER_BEST, "one": self.speedup_over_single < MIN_SPEEDUP_OVER_SINGLE, "step": is_mispredicted(self.prediction_ratio)}
        return [name for name, is_broken in bounds.items() if is_broken]


def is_mispredicted(ratio: float) -> bool:
    return not math.isnan(ratio) and abs(ratio - 1) > MAX_PREDICTION_ERROR


def cells_from_samples(samples: list[Sample]) -> list[Cell]:
    grid = [(model, link) for model in MODELS for link in dict.fromkeys([*LINKS, *(s.link for s in samples)])]
    cells = [Cell(*cell, [sample for sample in samples if sample.cell == cell]) for cell in grid]
    return [cell for cell in cells if {sample.contestant for sample in cell.samples} >= set(CONTESTANTS)]


def format_ratio(value: float, form: str, violations: bool = False) -> str:
    return "–" if math.isnan(value) else format(value, form) + (" !" if violations else "")


def table(cells: list[Cell]) -> str:
    head = ["model", "batch", "link", *CONTESTANTS, "auto chose", "/ best", "/ single", "/ two-independent",
            "predicted", "data", "tensor", "replicated"]
    lines = [head]
    for cell in cells:
        chosen = ", ".join(f"{name} {cell.choices.count(name)}x" if len(set(cell.choices)) > 1 else name
                           for name in dict.fromkeys(cell.choices))
        beside = [cell.prediction(*pair) for pair in (("data",) * 2, ("tensor",) * 2, ("replicated", "single"))]
        lines.append([cell.model, str(MODELS[cell.model].batch), cell.link,
                      *(format_ratio(cell.speed(name), ",.0f") for name in CONTESTANTS), chosen,
                      *(format_ratio(ratio, ".2f", bound in cell.violations) for ratio, bound in
                        ((cell.speedup_over_best, "best"), (cell.speedup_over_single, "one"), (cell.speedup_over_two_independent, ""), (cell.prediction_ratio, "step"))),
                      *(format_ratio(ratio, ".2f", is_mispredicted(ratio)) for ratio in beside)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [["-" * width for width in widths], *lines[1:]]
    rows = ["| " + " | ".join(word.ljust(width) for word, width in zip(line, widths)) + " |" for line in [head, *text]]
    return "\n".join(rows)


def summary(samples: list[Sample], cells: list[Cell]) -> str:
    holds = {bound: sum(bound not in cell.violations and "run" not in cell.violations for cell in cells)
             for bound in ("best", "one", "step")}
    predicted = [cell for cell in cells if not math.isnan(cell.prediction_ratio)]
    well_predicted = sum(not is_mispredicted(cell.prediction_ratio) for cell in predicted)
    whole = sum(not cell.violations for cell in cells)
    lines = [f"{whole} of {len(cells)} cells meet all bounds. auto reaches {MIN_SPEEDUP_OVER_BEST:.2f} of the better fixed "
             f"choice in {holds['best']} and {MIN_SPEEDUP_OVER_SINGLE:.2f} of one worker in {holds['one']}. Its prediction is "
             f"within {MAX_PREDICTION_ERROR:.0%} in {well_predicted} of the {len(predicted)} cells that have one."]
    beside = [cell.speedup_over_two_independent for cell in cells if not math.isnan(cell.speedup_over_two_independent)]
    if beside:
        lines.append(f"Where the model is replicated, auto reaches {min(beside):.2f} to {max(beside):.2f} of the slower of two "
                     f"independent workers (median {statistics.median(beside):.2f} of {len(beside)} cells).")
    disturbed = sum(sample.background_cores > MAX_BACKGROUND_CORES for sample in samples)
    if disturbed:
        noisy = sum(any(each.background_cores > MAX_BACKGROUND_CORES for who in CONTESTANTS for each in cell.of(who)) for cell in cells)
        lines.append(f"Other processes used more than {MAX_BACKGROUND_CORES} of a core in {disturbed} of {len(samples)} runs; {noisy} "
                     "cells have a figure from such runs only.")
    refusals = {sample.model: sample.refused for sample in samples if sample.refused}
    lines += [f"{model} cannot be tensor parallel: {why}." for model, why in refusals.items()]
    failures = [sample for sample in samples if sample.error]
    lines += [f"Failed: {each.model} {each.link} {each.contestant}: {each.error.strip().splitlines()[-1]}"
              for each in failures]
    return "\n".join(lines)


LEGEND = """
Speeds are examples per second. "/ best" is auto divided by the better of data and tensor parallel, "/ single" by one
worker, "/ two-independent" by the slower of two independent workers at the same time. The last four columns are predicted
over measured step times: of auto's choice in its own run, of each fixed choice in the run that was told to take it (whose
sharding may differ), and of the replicated model against one worker. "!": a bound is missed. Disturbed runs count only if
a cell has no others.
"""
