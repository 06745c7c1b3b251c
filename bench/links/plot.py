"""Speeds over links as SVG: a panel per model, the links from left to right, a line per contestant."""

from __future__ import annotations

import math

from harness.svg import document, text

from .contestants import CONTESTANTS, Contestant, Setting
from .report import Figures
from .samples import Samples

COLOURS = {"alone": "#999999", "examples": "#e8a06a", "features": "#e0a800", "auto": "#c25a12", "mwms": "#5d86a8",
           "ddp": "#1f4e79"}  # fmt: skip
WIDTH, LEFT, RIGHT, MARGIN = 900, 70, 190, 16
PANEL, PANEL_HEAD, PANEL_FOOT = 240, 44, 52
GRID = "#dddddd"
CLOSEST = 15.0  # labels, one below the other


def nice_step(largest: float) -> float:
    """Between the lines of the grid: four to eight of them."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next(power * factor for factor in (0.2, 0.5, 1.0, 2.0) if largest / (power * factor) <= 8)


def line_of(contestant: Contestant, points: list[tuple[float, float]]) -> list[str]:
    colour = COLOURS[contestant.name]
    dashes = ' stroke-dasharray="5 4"' if contestant.name == "alone" else ""
    width = 3 if contestant.name == "auto" else 1.5
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>', *dots]


def labels(ends: list[tuple[float, Contestant]]) -> list[str]:
    """Beside the lines' ends, moved apart where they would cover each other."""
    parts, last = [], -math.inf
    for y, contestant in sorted(ends, key=lambda end: end[0]):
        last = max(y + 4, last + CLOSEST)
        weight = "bold" if contestant.name == "auto" else "normal"
        who = contestant.label if contestant.peer else f"Lockstep, {contestant.label}"
        parts.append(text(WIDTH - RIGHT + 12, last, who, 12, weight=weight, fill=COLOURS[contestant.name]))
    return parts


def panel(figures: Figures, settings: list[Setting], top: float) -> list[str]:
    shown = [CONTESTANTS[name] for name in COLOURS]
    largest = max(figures.rate(c, s) for c in shown for s in settings)
    if not largest:
        return []
    base, step = top + PANEL_HEAD + PANEL, nice_step(largest)
    scale = PANEL / (step * math.ceil(largest / step))
    pitch = (WIDTH - LEFT - RIGHT) / len(settings)
    model, batch = settings[0].model, settings[0].batch
    parts = [text(MARGIN, top + 20, f"{model}: images per second, global batch {batch}", 16, weight="bold")]
    for number in range(math.ceil(largest / step) + 1):
        y = base - number * step * scale
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{number * step:,.0f}", 11, "end"))
    for place, setting in enumerate(settings):
        rate, _, latency = setting.link.label.partition(", ")
        for row, words in enumerate((rate, latency)):
            parts.append(text(LEFT + (place + 0.5) * pitch, base + 18 + 14 * row, words, 11, "middle"))
    ends = []
    for contestant in shown:
        found = [(LEFT + (place + 0.5) * pitch, figures.rate(contestant, s)) for place, s in enumerate(settings)]
        points = [(x, base - rate * scale) for x, rate in found if rate]
        if points:
            parts += line_of(contestant, points)
            ends.append((points[-1][1], contestant))
    return parts + labels(ends)


def chart(samples: Samples) -> str:
    """The smallest batch that was measured: links by latency, then from fast to slow."""
    figures, settings = Figures(samples), samples.settings()
    smallest = min((s.batch for s in settings), default=0)
    shown = [s for s in settings if s.batch == smallest]
    parts: list[str] = []
    top = float(MARGIN)
    for model in dict.fromkeys(s.model for s in shown):
        drawn = panel(figures, [s for s in shown if s.model == model], top)
        if drawn:
            parts += drawn
            top += PANEL_HEAD + PANEL + PANEL_FOOT
    machine = f"{samples.machine.cpu}, {samples.machine.cores} cores, {samples.date}; two workers of a core each"
    parts.append(text(MARGIN, top + 10, machine, 11, fill="#666"))
    return document(parts, WIDTH, top + 10 + MARGIN)
