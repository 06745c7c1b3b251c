"""What the runs of bench/grid.py come to: for each model and link whether `auto` keeps what it promises."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from grid_models import MODELS

LINKS = ("host", "10gbit", "1gbit")
CONTESTANTS = ("alone", "examples", "features", "auto")
QUIET = 0.1  # of a core, for others

# What `auto` promises: against the better fixed choice, against one worker, and of its prediction.
OF_BEST, OF_ONE, OF_STEP = 0.90, 0.95, 0.25


@dataclass
class Sample:
    """A run, or why there was none."""

    model: str
    link: str
    contestant: str
    steps: int = 0
    images_per_second: float = 0.0
    epochs: list[float] = field(default_factory=list)  # images a second, that of the warm-up first
    world: dict[str, Any] = field(default_factory=dict)  # of history.json: what was chosen, predicted and measured
    profile_ms: dict[str, float] = field(default_factory=dict)
    others: float = 0.0  # cores that other processes kept busy meanwhile
    refused: str = ""  # the model cannot be divided so
    error: str = ""

    @property
    def cell(self) -> tuple[str, str]:
        return self.model, self.link


@dataclass(frozen=True)
class Cell:
    """A model on a link: medians of its runs."""

    model: str
    link: str
    samples: list[Sample]

    def of(self, contestant: str) -> list[Sample]:
        """Its runs; the undisturbed ones, where there are any."""
        found = [each for each in self.samples if each.contestant == contestant and each.images_per_second > 0]
        return [each for each in found if each.others <= QUIET] or found

    def speed(self, contestant: str) -> float:
        found = [each.images_per_second for each in self.of(contestant)]
        return statistics.median(found) if found else math.nan

    @property
    def of_best(self) -> float:
        fixed = [speed for speed in map(self.speed, ("examples", "features")) if not math.isnan(speed)]
        return self.speed("auto") / max(fixed) if fixed else math.nan

    @property
    def of_one(self) -> float:
        return self.speed("auto") / self.speed("alone")

    @property
    def of_beside(self) -> float:
        """By the slower of two lone workers that run at once; not a number where they were not asked."""
        return self.speed("auto") / self.speed("beside")

    def prediction(self, division: str, contestant: str) -> float:
        """What `auto` predicted for a division, by the step that a contestant then measured."""
        predicted: list[float] = [each.world[f"predicted_ms_by_{division}"] for each in self.of("auto")
                     if each.world.get(f"predicted_ms_by_{division}") is not None]
        if not predicted:
            return math.nan
        return statistics.median(predicted) * self.speed(contestant) / (1000 * MODELS[self.model].batch)

    @property
    def choices(self) -> list[str]:
        return [str(each.world["division"]) for each in self.of("auto")]

    @property
    def of_step(self) -> float:
        """Of the division that `auto` took, as it measured it itself."""
        return self.prediction(statistics.mode(self.choices), "auto") if self.choices else math.nan

    @property
    def broken(self) -> list[str]:
        """Bounds. What cannot be told breaks none; what failed breaks all."""
        if math.isnan(self.of_best) or any(each.error for each in self.samples if each.contestant == "auto"):
            return ["run"]
        bounds = {"best": self.of_best < OF_BEST, "one": self.of_one < OF_ONE, "step": is_off(self.of_step)}
        return [name for name, is_broken in bounds.items() if is_broken]


def is_off(ratio: float) -> bool:
    return not math.isnan(ratio) and abs(ratio - 1) > OF_STEP


def cells_of(samples: list[Sample]) -> list[Cell]:
    grid = [(model, link) for model in MODELS for link in dict.fromkeys([*LINKS, *(s.link for s in samples)])]
    cells = [Cell(*cell, [sample for sample in samples if sample.cell == cell]) for cell in grid]
    return [cell for cell in cells if {sample.contestant for sample in cell.samples} >= set(CONTESTANTS)]


def number(value: float, form: str, broken: bool = False) -> str:
    return "–" if math.isnan(value) else format(value, form) + (" !" if broken else "")


def table(cells: list[Cell]) -> str:
    head = ["model", "batch", "link", *CONTESTANTS, "auto took", "/ better", "/ alone", "/ beside",
            "predicted", "examples", "features", "none"]
    lines = [head]
    for cell in cells:
        chosen = ", ".join(f"{name} {cell.choices.count(name)}x" if len(set(cell.choices)) > 1 else name
                           for name in dict.fromkeys(cell.choices))
        beside = [cell.prediction(*pair) for pair in (("examples",) * 2, ("features",) * 2, ("none", "alone"))]
        lines.append([cell.model, str(MODELS[cell.model].batch), cell.link,
                      *(number(cell.speed(name), ",.0f") for name in CONTESTANTS), chosen,
                      *(number(ratio, ".2f", bound in cell.broken) for ratio, bound in
                        ((cell.of_best, "best"), (cell.of_one, "one"), (cell.of_beside, ""), (cell.of_step, "step"))),
                      *(number(ratio, ".2f", is_off(ratio)) for ratio in beside)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [["-" * width for width in widths], *lines[1:]]
    rows = ["| " + " | ".join(word.ljust(width) for word, width in zip(line, widths)) + " |" for line in [head, *text]]
    return "\n".join(rows)


def summary(samples: list[Sample], cells: list[Cell]) -> str:
    holds = {bound: sum(bound not in cell.broken and "run" not in cell.broken for cell in cells)
             for bound in ("best", "one", "step")}
    predicted = [cell for cell in cells if not math.isnan(cell.of_step)]
    foreseen = sum(not is_off(cell.of_step) for cell in predicted)
    whole = sum(not cell.broken for cell in cells)
    lines = [f"{whole} of {len(cells)} cells hold: auto has at least {OF_BEST:.2f} of the better fixed choice in "
             f"{holds['best']}, at least {OF_ONE:.2f} of one worker in {holds['one']}; it predicted the step within "
             f"{OF_STEP:.0%} in {foreseen} of the {len(predicted)} where it predicted one."]
    beside = [cell.of_beside for cell in cells if not math.isnan(cell.of_beside)]
    if beside:
        lines.append(f"Where every worker computes all, auto has {min(beside):.2f} to {max(beside):.2f} of the slower of two "
                     f"lone workers at once, {statistics.median(beside):.2f} in the middle of {len(beside)} cells.")
    disturbed = sum(sample.others > QUIET for sample in samples)
    if disturbed:
        noisy = sum(any(each.others > QUIET for who in CONTESTANTS for each in cell.of(who)) for cell in cells)
        lines.append(f"In {disturbed} of {len(samples)} runs other processes took more than {QUIET} of a core; {noisy} "
                     "cells have a figure of such runs only.")
    refusals = {sample.model: sample.refused for sample in samples if sample.refused}
    lines += [f"{model} cannot be divided by features: {why}." for model, why in refusals.items()]
    failures = [sample for sample in samples if sample.error]
    lines += [f"Failed: {each.model} {each.link} {each.contestant}: {each.error.strip().splitlines()[-1]}"
              for each in failures]
    return "\n".join(lines)


LEGEND = """
Images a second; "/ better" is auto by the better of examples and features, "/ alone" by one worker, "/ beside" by the
slower of two lone workers at once. Predicted step by measured step: of auto's own division and run, then of each choice
beside the run that was told to take it (features may be divided otherwise there), and of no division ("none": every
worker computes all) beside one worker. "!": a bound is broken. Runs that others disturbed count only where there is no
other.
"""
