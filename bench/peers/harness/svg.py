"""The few pieces of SVG that plots are made of, written by hand."""

from __future__ import annotations

from html import escape

FONT = 'font-family="DejaVu Sans, Verdana, sans-serif"'


def text(
    x: float, y: float, words: str, size: int = 13, anchor: str = "start", weight: str = "normal", fill: str = "#222"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{fill}" {FONT}>{escape(words)}</text>'
    )


def document(parts: list[str], width: float, height: float) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])
