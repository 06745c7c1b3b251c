"""Computes medians and ratios from samples, and formats them as Markdown."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from harness.tables import QUIET

from .contestants import CONTESTANTS, Contestant, Setting
from .hosts import HOST, UNLIMITED, Link
from .samples import Sample, Samples

BEGIN, END = "<!-- network:begin -->", "<!-- network:end -->"
SINGLE, AUTO = CONTESTANTS["single"], CONTESTANTS["auto"]
PEERS = [c for c in CONTESTANTS.values() if c.peer]
BEST_PEER = "the best of any peer's arrangements on one host"
TARGET_BATCH = 128


@dataclass(frozen=True)
class Target:
    """A target for `auto` on one link: the minimum ratio of its speed to another contestant's, or to its own
    elsewhere."""

    model: str
    rate: str
    over: str  # a contestant, UNLIMITED, or BEST_PEER
    minimum: float

    @property
    def setting(self) -> Setting:
        return Setting(self.model, TARGET_BATCH, Link(self.rate))


TARGETS = (
    Target("keras_mnist", "1gbit", "mwms", 15.0),
    Target("keras_mnist", "1gbit", "ddp", 12.0),
    Target("keras_mnist", "1gbit", "single", 1.7),
    Target("keras_mnist", "1gbit", UNLIMITED, 0.9),
    Target("keras_mnist", HOST, "mwms", 8.0),
    Target("keras_mnist", HOST, "ddp", 4.5),
    Target("keras_mnist", HOST, BEST_PEER, 2.0),
    Target("custom_training_mnist", "1gbit", "single", 1.0),
    Target("custom_training_mnist", "10gbit", "single", 1.6),
)


class Figures:
    """Medians over the successful runs."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def good(self, contestant: Contestant, setting: Setting) -> list[Sample]:
        if not contestant.runs(setting):  # a single process uses no link: its runs with HOST count for every link
            setting = Setting(setting.model, setting.batch, Link(HOST))
        return [s for s in self._samples.of(contestant, setting) if not s.error]

    def rate(self, contestant: Contestant, setting: Setting) -> float:
        """Examples per second; 0 if unknown."""
        good = self.good(contestant, setting)
        return statistics.median(s.examples_per_second for s in good) if good else 0.0

    def step_ms(self, contestant: Contestant, setting: Setting) -> float:
        rate = self.rate(contestant, setting)
        return 1000 * setting.batch / rate if rate else 0.0

    def ratio(self, contestant: Contestant, other: Contestant, setting: Setting) -> float:
        rate, against = self.rate(contestant, setting), self.rate(other, setting)
        return rate / against if against else 0.0

    def measured_ratio(self, target: Target) -> float:
        """The ratio that the target bounds; 0 if it was not measured."""
        own = self.rate(AUTO, target.setting)
        if target.over == BEST_PEER:
            rates = [self.rate(peer, Setting(target.model, TARGET_BATCH, Link(HOST))) for peer in PEERS]
            against = max(rates) if all(rates) else 0.0
        elif target.over == UNLIMITED:
            against = self.rate(AUTO, Setting(target.model, TARGET_BATCH, Link(UNLIMITED)))
        else:
            against = self.rate(CONTESTANTS[target.over], target.setting)
        return own / against if against else 0.0

    def predicted_ms(self, setting: Setting) -> dict[str, float]:
        """The step time that runs of `auto` predicted, by parallelism."""
        prefix = "predicted_ms_"
        found: dict[str, list[float]] = {}
        for sample in self.good(AUTO, setting):
            for name, value in sample.world.items():
                if name.startswith(prefix):
                    found.setdefault(name.removeprefix(prefix), []).append(value)
        return {name: statistics.median(values) for name, values in found.items()}

    def chosen(self, setting: Setting) -> str:
        """The parallelism that `auto` chose; all of them if its runs differ."""
        return ", ".join(sorted({str(s.world.get("parallelism", "?")) for s in self.good(AUTO, setting)}))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def format_rate(value: float) -> str:
    return f"{value:,.0f}" if value else "–"


def format_ratio(value: float) -> str:
    return f"{value:.1f} ×" if value else "–"


def speed_table(figures: Figures, settings: list[Setting]) -> list[str]:
    shown = [c for c in CONTESTANTS.values() if c.arrangement != "1x2"]
    two = [c for c in PEERS if c in shown]
    head = ["link", *(c.label for c in shown), *(f"auto over {c.label.split()[-1]}" for c in two), "auto over one worker"]
    rows = []
    for setting in settings:
        rates = [format_rate(figures.rate(c, setting)) for c in shown]
        ratios = [format_ratio(figures.ratio(AUTO, c, setting)) for c in (*two, SINGLE)]
        rows.append([setting.link.label, *rates, *ratios])
    return table(head, rows)


def predicted_to_measured(expected: float, measured: float) -> str:
    if not expected or not measured:
        return "–"
    return f"{expected:.2f} → {measured:.2f} ({expected / measured - 1:+.0%})"


def prediction_table(figures: Figures, settings: list[Setting]) -> list[str]:
    """Predicted and measured step times."""
    rows = []
    for setting in settings:
        expected = figures.predicted_ms(setting)
        if not expected:
            continue
        fixed = [
            predicted_to_measured(expected.get(name, 0), figures.step_ms(CONTESTANTS[name], setting)) for name in ("data", "tensor")
        ]
        took = figures.chosen(setting)
        rows.append([setting.link.label, took, predicted_to_measured(expected.get(took, 0), figures.step_ms(AUTO, setting)), *fixed])
    return table(["link", "auto chose", "auto", "data parallel", "tensor parallel"], rows) if rows else []


def target_lines(figures: Figures) -> list[str]:
    lines = []
    for target in TARGETS:
        ratio = figures.measured_ratio(target)
        if not ratio:
            continue
        over = CONTESTANTS[target.over].label if target.over in CONTESTANTS else target.over
        over = "its own speed over the unlimited link" if over == UNLIMITED else over
        missed = " **!**" if ratio < target.minimum else ""
        lines.append(
            f"- {target.model}, {target.setting.link.label}: {ratio:.2f} × {over} (target: {target.minimum:g}){missed}"
        )
    return lines


def notes(samples: Samples, figures: Figures) -> list[str]:
    lines = []
    for setting in samples.settings():
        rate = figures.rate(CONTESTANTS["tensorflow-1x2"], setting)
        if setting.link.rate == HOST and rate:
            lines.append(
                f"- TensorFlow as one process on two cores: {setting.model}, batch {setting.batch}: {rate:,.0f} examples/s."
            )
    failed = [s for s in samples.samples if s.error]
    for each in failed:
        words = each.error.replace("|", "\\|").replace("<", "&lt;")
        label = CONTESTANTS[each.contestant].label
        lines.append(f"- failed: {label}, {each.model}, batch {each.batch}, {each.setting.link.label}: {words}")
    disturbed = sum(1 for s in samples.samples if s.cpu_use_before > QUIET)
    if disturbed:
        lines.append(
            f"- {disturbed} of {len(samples.samples)} runs began while other processes used over {QUIET:.0%} of the "
            "cores; their figures are less certain."
        )
    return lines


def heading(samples: Samples) -> str:
    commits = list(dict.fromkeys(s.commit for s in samples.samples if not CONTESTANTS[s.contestant].peer))
    versions = dict.fromkeys(
        f"{CONTESTANTS[s.contestant].peer} {s.version}" for s in samples.samples if s.version and not s.error
    )
    runs: dict[tuple[Any, ...], int] = {}
    for s in samples.samples:
        runs[s.contestant, s.setting] = runs.get((s.contestant, s.setting), 0) + 1
    fewest, most = (min(runs.values()), max(runs.values())) if runs else (0, 0)
    each = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"{samples.machine.cpu}, {samples.machine.cores} cores; {samples.date}; {samples.data}; lockstep "
        f"{', '.join(commits)}; {'; '.join(versions)}. Each figure is the median of {each} run{'' if each == '1' else 's'}."
    )


def markdown(samples: Samples, plot: str = "") -> str:
    figures = Figures(samples)
    groups: dict[tuple[str, int], list[Setting]] = {}
    for setting in samples.settings():
        groups.setdefault((setting.model, setting.batch), []).append(setting)
    out = [heading(samples)]
    if plot:
        out += ["", f"![examples per second over links of each rate and latency]({plot})"]
    for (model, batch), settings in groups.items():
        out += ["", f"**{model}, global batch {batch}: examples per second**", "", *speed_table(figures, settings)]
        expected = prediction_table(figures, settings)
        if expected:
            out += ["", f"{model}, global batch {batch}, milliseconds per step: predicted → measured", "", *expected]
    targets = target_lines(figures)
    if targets:
        out += ["", f"Targets for `auto`, batch {TARGET_BATCH}, no latency added:", "", *targets]
    more = notes(samples, figures)
    if more:
        out += ["", *more]
    if samples.links:
        out += ["", "The links as measured from within the hosts:", "", *(f"- {link}" for link in samples.links)]
    return "\n".join(out)
