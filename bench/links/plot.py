"""Speeds over links as SVG: a panel per model, a group of bars per link, a bar per contestant."""

from __future__ import annotations

import math

from harness.svg import document, text

from .contestants import CONTESTANTS, Contestant, Setting
from .report import Figures
from .samples import Samples

COLOURS = {"single": "#8b949e", "data": "#eab676", "tensor": "#d9a400", "auto": "#c25a12", "mwms": "#6fa8dc",
           "ddp": "#3f74ad"}  # fmt: skip
WIDTH, LEFT, RIGHT, MARGIN = 960, 70, 16, 16
PANEL, PANEL_HEAD, PANEL_FOOT = 240, 66, 52
SPREAD = 0.84  # fraction of a link's width that its bars cover


def nice_step(largest: float) -> float:
    """The distance between grid lines, for four to eight lines."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next(power * factor for factor in (0.2, 0.5, 1.0, 2.0) if largest / (power * factor) <= 8)


def legend(shown: list[Contestant], y: float) -> list[str]:
    parts, x = [], float(MARGIN)
    for contestant in shown:
        who = contestant.label if contestant.peer else f"Lockstep, {contestant.label}"
        parts.append(f'<rect x="{x:.1f}" y="{y - 11:.1f}" width="12" height="12" fill="{COLOURS[contestant.name]}"/>')
        parts.append(text(x + 18, y, who, 12))
        x += 32 + 5.9 * len(who) + 4 * sum(map(str.isupper, who))
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
    parts = [text(MARGIN, top + 20, f"{model}: examples per second, global batch {batch}", 16, weight="bold"),
             *legend(shown, top + 46)]
    for number in range(math.ceil(largest / step) + 1):
        y = base - number * step * scale
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(text(LEFT - 8, y + 4, f"{number * step:,.0f}", 12, "end"))
    for group, setting in enumerate(settings):
        rate, _, latency = setting.link.label.partition(", ")
        for row, words in enumerate((rate, latency)):
            parts.append(text(LEFT + (group + 0.5) * pitch, base + 18 + 14 * row, words, 12, "middle"))
    bar = pitch * SPREAD / len(shown)
    for group, setting in enumerate(settings):
        left = LEFT + (group + (1 - SPREAD) / 2) * pitch
        for number, contestant in enumerate(shown):
            height = figures.rate(contestant, setting) * scale
            if height:
                parts.append(f'<rect x="{left + number * bar:.1f}" y="{base - height:.1f}" width="{bar - 1:.1f}" '
                             f'height="{height:.1f}" fill="{COLOURS[contestant.name]}"/>')
    return parts


def chart(samples: Samples) -> str:
    """Shows the smallest measured batch; links are sorted by latency, then from fast to slow."""
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
    machine = f"{samples.machine.cpu}, {samples.machine.cores} cores, {samples.date}; two workers with one core each"
    parts.append(text(MARGIN, top + 10, machine, 12, ink="muted"))
    return document(parts, WIDTH, top + 10 + MARGIN)
