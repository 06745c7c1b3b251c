"""Helpers that write SVG plots, legible on light and dark pages."""

from __future__ import annotations

from html import escape

FONT = 'font-family="DejaVu Sans, Verdana, sans-serif"'
LIGHT = ".page{fill:#ffffff}.ink{fill:#1f2328}.muted{fill:#59636e}.grid{stroke:#d1d9e0}"
DARK = ".page{fill:#0d1117}.ink{fill:#f0f6fc}.muted{fill:#9198a1}.grid{stroke:#3d444d}"


def text(
    x: float, y: float, words: str, size: int = 13, anchor: str = "start", weight: str = "normal", ink: str = "ink"
) -> str:
    return (
        f'<text class="{ink}" x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" {FONT}>{escape(words)}</text>'
    )


def document(parts: list[str], width: float, height: float) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    style = f"<style>{LIGHT}@media (prefers-color-scheme: dark){{{DARK}}}</style>"
    return "\n".join([head, style, '<rect class="page" width="100%" height="100%"/>', *parts, "</svg>", ""])
