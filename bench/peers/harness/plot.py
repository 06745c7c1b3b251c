"""The bar chart of a comparison as SVG: a panel per model, a bar per contestant and arrangement."""

from __future__ import annotations

from .cases import ARRANGEMENTS, CONTESTANTS, LOCKSTEP
from .svg import document, text
from .tables import Row

SHORT = {"lockstep": "Lockstep", "tensorflow": "TensorFlow", "pytorch": "PyTorch", "jax": "JAX"}
COLOURS = {"1x1": "#8fa9c0", "1x2": "#5d86a8", "2x1": "#3f74ad"}
LOCKSTEP_COLOURS = {"1x1": "#f2b98c", "1x2": "#e58a44", "2x1": "#c25a12"}
WIDTH, LEFT, RIGHT = 900, 240, 90
BAR, GAP, PANEL_HEAD, MARGIN = 20, 6, 44, 16


def bar(y: float, row: Row, scale: float) -> list[str]:
    own = row.contestant == LOCKSTEP.name
    colour = (LOCKSTEP_COLOURS if own else COLOURS)[row.case.arrangement]
    length = row.examples_per_second * scale
    label = (
        f"{SHORT.get(row.contestant, CONTESTANTS[row.contestant].label)} · {ARRANGEMENTS[row.case.arrangement].label}"
    )
    baseline = y + BAR - 5.5
    return [
        text(LEFT - 8, baseline, label, anchor="end", weight="bold" if own else "normal"),
        f'<rect x="{LEFT}" y="{y:.1f}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
        text(LEFT + length + 6, baseline, f"{row.examples_per_second:,.0f}"),
    ]


def chart(rows: list[Row], machine: str) -> str:
    """Shows the smallest measured batch, in float32 if measured. The fastest bars come first."""
    good = [r for r in rows if r.runs and r.contestant in SHORT]
    batch = min((r.case.batch for r in good), default=0)
    precision = "float32" if any(r.case.precision == "float32" for r in good) else "bfloat16"
    shown = [r for r in good if r.case.batch == batch and r.case.precision == precision]
    parts: list[str] = []
    y = float(MARGIN)
    for model in dict.fromkeys(r.case.model for r in shown):
        members = sorted((r for r in shown if r.case.model == model), key=lambda r: -r.examples_per_second)
        scale = (WIDTH - LEFT - RIGHT) / members[0].examples_per_second
        parts.append(
            text(MARGIN, y + 20, f"{model}: examples per second, global batch {batch}, {precision}", 16, weight="bold")
        )
        y += PANEL_HEAD
        for row in members:
            parts += bar(y, row, scale)
            y += BAR + GAP
        y += MARGIN
    parts.append(text(MARGIN, y + 10, machine, 12, ink="muted"))
    return document(parts, WIDTH, y + 10 + MARGIN)
