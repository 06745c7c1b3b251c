"""From samples to medians, tables in Markdown, and the ratios that Lockstep promises."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from harness.tables import QUIET

from .contestants import CONTESTANTS, Contestant, Setting
from .hosts import HOST, UNSHAPED, Link
from .samples import Sample, Samples

BEGIN, END = "<!-- network:begin -->", "<!-- network:end -->"
ALONE, AUTO = CONTESTANTS["alone"], CONTESTANTS["auto"]
PEERS = [c for c in CONTESTANTS.values() if c.peer]
BEST_PEER = "the best of any peer's arrangements on one host"
FLOORS_BATCH = 128


@dataclass(frozen=True)
class Floor:
    """What `auto` promises on this link: so many times the speed of somebody, or of its own over another link."""

    model: str
    rate: str
    over: str  # a contestant, UNSHAPED, or BEST_PEER
    least: float

    @property
    def setting(self) -> Setting:
        return Setting(self.model, FLOORS_BATCH, Link(self.rate))


FLOORS = (
    Floor("keras_mnist", "1gbit", "mwms", 15.0),
    Floor("keras_mnist", "1gbit", "ddp", 12.0),
    Floor("keras_mnist", "1gbit", "alone", 1.7),
    Floor("keras_mnist", "1gbit", UNSHAPED, 0.9),
    Floor("keras_mnist", HOST, "mwms", 8.0),
    Floor("keras_mnist", HOST, "ddp", 4.5),
    Floor("keras_mnist", HOST, BEST_PEER, 2.0),
    Floor("custom_training_mnist", "1gbit", "alone", 1.0),
    Floor("custom_training_mnist", "10gbit", "alone", 1.6),
)


class Figures:
    """Medians of the runs that worked."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def good(self, contestant: Contestant, setting: Setting) -> list[Sample]:
        if not contestant.runs(setting):  # it needs no link: what it does on one host it does anywhere
            setting = Setting(setting.model, setting.batch, Link(HOST))
        return [s for s in self._samples.of(contestant, setting) if not s.error]

    def rate(self, contestant: Contestant, setting: Setting) -> float:
        """Images a second; 0 where nobody knows."""
        good = self.good(contestant, setting)
        return statistics.median(s.images_per_second for s in good) if good else 0.0

    def step_ms(self, contestant: Contestant, setting: Setting) -> float:
        rate = self.rate(contestant, setting)
        return 1000 * setting.batch / rate if rate else 0.0

    def ratio(self, contestant: Contestant, other: Contestant, setting: Setting) -> float:
        rate, against = self.rate(contestant, setting), self.rate(other, setting)
        return rate / against if against else 0.0

    def kept(self, floor: Floor) -> float:
        """The ratio that this floor is about; 0 where it was not measured."""
        own = self.rate(AUTO, floor.setting)
        if floor.over == BEST_PEER:
            rates = [self.rate(peer, Setting(floor.model, FLOORS_BATCH, Link(HOST))) for peer in PEERS]
            against = max(rates) if all(rates) else 0.0
        elif floor.over == UNSHAPED:
            against = self.rate(AUTO, Setting(floor.model, FLOORS_BATCH, Link(UNSHAPED)))
        else:
            against = self.rate(CONTESTANTS[floor.over], floor.setting)
        return own / against if against else 0.0

    def predicted_ms(self, setting: Setting) -> dict[str, float]:
        """What runs of `auto` expected of a step, by division."""
        prefix = "predicted_ms_by_"
        found: dict[str, list[float]] = {}
        for sample in self.good(AUTO, setting):
            for name, value in sample.world.items():
                if name.startswith(prefix):
                    found.setdefault(name.removeprefix(prefix), []).append(value)
        return {name: statistics.median(values) for name, values in found.items()}

    def chosen(self, setting: Setting) -> str:
        """By `auto`; all that it chose, where its runs differ."""
        return ", ".join(sorted({str(s.world.get("division", "?")) for s in self.good(AUTO, setting)}))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def whole(value: float) -> str:
    return f"{value:,.0f}" if value else "–"


def times(value: float) -> str:
    return f"{value:.1f} ×" if value else "–"


def speeds(figures: Figures, settings: list[Setting]) -> list[str]:
    shown = [c for c in CONTESTANTS.values() if c.arrangement != "1x2"]
    two = [c for c in PEERS if c in shown]
    head = ["link", *(c.label for c in shown), *(f"auto over {c.label.split()[-1]}" for c in two), "auto over one worker"]
    rows = []
    for setting in settings:
        rates = [whole(figures.rate(c, setting)) for c in shown]
        ratios = [times(figures.ratio(AUTO, c, setting)) for c in (*two, ALONE)]
        rows.append([setting.link.label, *rates, *ratios])
    return table(head, rows)


def beside(expected: float, measured: float) -> str:
    if not expected or not measured:
        return "–"
    return f"{expected:.2f} → {measured:.2f} ({expected / measured - 1:+.0%})"


def predictions(figures: Figures, settings: list[Setting]) -> list[str]:
    """What the cost model expected of a step, and what it took."""
    rows = []
    for setting in settings:
        expected = figures.predicted_ms(setting)
        if not expected:
            continue
        fixed = [
            beside(expected.get(name, 0), figures.step_ms(CONTESTANTS[name], setting)) for name in ("examples", "features")
        ]
        took = figures.chosen(setting)
        rows.append([setting.link.label, took, beside(expected.get(took, 0), figures.step_ms(AUTO, setting)), *fixed])
    return table(["link", "auto took", "auto", "by examples", "by features"], rows) if rows else []


def floors(figures: Figures) -> list[str]:
    lines = []
    for floor in FLOORS:
        ratio = figures.kept(floor)
        if not ratio:
            continue
        over = CONTESTANTS[floor.over].label if floor.over in CONTESTANTS else floor.over
        over = "its own speed over the unshaped link" if over == UNSHAPED else over
        missed = " **!**" if ratio < floor.least else ""
        lines.append(
            f"- {floor.model}, {floor.setting.link.label}: {ratio:.2f} × {over} (promised: {floor.least:g}){missed}"
        )
    return lines


def notes(samples: Samples, figures: Figures) -> list[str]:
    lines = []
    for setting in samples.settings():
        rate = figures.rate(CONTESTANTS["tensorflow-1x2"], setting)
        if setting.link.rate == HOST and rate:
            lines.append(
                f"- TensorFlow as one process on two cores: {setting.model}, batch {setting.batch}: {rate:,.0f} images/s."
            )
    failed = [s for s in samples.samples if s.error]
    for each in failed:
        words = each.error.replace("|", "\\|").replace("<", "&lt;")
        label = CONTESTANTS[each.contestant].label
        lines.append(f"- failed: {label}, {each.model}, batch {each.batch}, {each.setting.link.label}: {words}")
    disturbed = sum(1 for s in samples.samples if s.busy_before > QUIET)
    if disturbed:
        lines.append(
            f"- {disturbed} of {len(samples.samples)} runs began while others used over {QUIET:.0%} of the cores: "
            "these figures waver."
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
        f"{', '.join(commits)}; {'; '.join(versions)}. Behind each figure: {each} run{'' if each == '1' else 's'}, their median."
    )


def markdown(samples: Samples, plot: str = "") -> str:
    figures = Figures(samples)
    groups: dict[tuple[str, int], list[Setting]] = {}
    for setting in samples.settings():
        groups.setdefault((setting.model, setting.batch), []).append(setting)
    out = [heading(samples)]
    if plot:
        out += ["", f"![images per second over links of each rate and latency]({plot})"]
    for (model, batch), settings in groups.items():
        out += ["", f"**{model}, global batch {batch}: images a second**", "", *speeds(figures, settings)]
        expected = predictions(figures, settings)
        if expected:
            out += ["", f"{model}, global batch {batch}, milliseconds a step: predicted → measured", "", *expected]
    promised = floors(figures)
    if promised:
        out += ["", f"What `auto` promises, batch {FLOORS_BATCH}, no latency added:", "", *promised]
    more = notes(samples, figures)
    if more:
        out += ["", *more]
    if samples.links:
        out += ["", "The links as measured from within the hosts:", "", *(f"- {link}" for link in samples.links)]
    return "\n".join(out)
