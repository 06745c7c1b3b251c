"""What the pictures are drawn with: boxes, arrows and words as SVG, legible on light and dark pages.

A picture is a value: words and boxes are added to it, and `svg()` checks it before it returns the text. It refuses text
below 12 px, text that leaves the picture or its box, and texts that overlap.
"""

from __future__ import annotations

from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MIN_FONT_SIZE = 12

# The colours of each kind of thing: (fill, stroke), in light and in dark.
PALETTE = {
    "plain": (("#f6f8fa", "#8c959f"), ("#161b22", "#6e7681")),
    "compute": (("#ddf4ff", "#0969da"), ("#0c2a4d", "#4493f8")),
    "communicate": (("#fff1e5", "#bc4c00"), ("#3d1d0a", "#f0883e")),
    "update": (("#dafbe1", "#1a7f37"), ("#0f2d1a", "#3fb950")),
    "failure": (("#ffebe9", "#cf222e"), ("#3c1418", "#f85149")),
    "file": (("#fbefff", "#8250df"), ("#271052", "#ab7df8")),
}
INK = {"ink": ("#1f2328", "#f0f6fc"), "muted": ("#59636e", "#9198a1")}
PAGE = ("#ffffff", "#0d1117")


def style() -> str:
    def rules(theme: int) -> str:
        lines = [f".page{{fill:{PAGE[theme]}}}"]
        for kind, colours in PALETTE.items():
            fill, stroke = colours[theme]
            lines.append(f".{kind}{{fill:{fill};stroke:{stroke}}}")
            lines.append(f".{kind}-line{{fill:none;stroke:{stroke}}}.{kind}-head{{fill:{stroke}}}")
        for ink, colours in INK.items():
            lines.append(f".{ink}{{fill:{colours[theme]}}}")
            lines.append(f".{ink}-line{{fill:none;stroke:{colours[theme]}}}.{ink}-head{{fill:{colours[theme]}}}")
        return "".join(lines)

    return f"<style>{rules(0)}@media (prefers-color-scheme: dark){{{rules(1)}}}text{{font-family:{FONT}}}</style>"


def text_width(words: str, size: float, bold: bool) -> float:
    """An upper estimate: narrow letters count less, and fonts differ."""
    units = sum(0.34 if c in "iljtf.,:;|'()[] " else 0.9 if c in "mwMW—→" else 0.62 for c in words)
    return units * size * (1.06 if bold else 1.0)


class Picture:
    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self.width, self.height = width, height
        self.title, self.description = title, description
        self.parts: list[str] = []
        self.words: list[tuple[str, float, float, float, float]] = []  # text, left, top, right, bottom

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 13,
        anchor: str = "start",
        bold: bool = False,
        ink: str = "ink",
    ) -> None:
        """`y` is the baseline."""
        if size < MIN_FONT_SIZE:
            raise ValueError(f"'{words}' is {size} px high; the least is {MIN_FONT_SIZE}")
        width = text_width(words, size, bold)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        self.words.append((words, left, y - 0.8 * size, left + width, y + 0.25 * size))
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text class="{ink}" x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{weight}>'
            f"{escape(words)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str = "plain",
        lines: tuple[str, ...] = (),
        size: float = 13,
        bold_first: bool = False,
        dashed: bool = False,
        radius: float = 4,
    ) -> None:
        """A rounded rectangle with centred lines of text."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{radius:g}" stroke-width="1.2"{dashes}/>'
        )
        line_height = 1.32 * size
        top = y + height / 2 - line_height * (len(lines) - 1) / 2 + 0.35 * size
        for i, line in enumerate(lines):
            bold = bold_first and i == 0
            if text_width(line, size, bold) > width:
                raise ValueError(f"'{line}' is wider than its box ({text_width(line, size, bold):.0f} of {width:.0f})")
            self.text(x + width / 2, top + i * line_height, line, size, "middle", bold)
        if lines and line_height * len(lines) > height + 2:
            raise ValueError(f"{lines} are higher than their box")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "muted", dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self.parts.append(f'<path class="{kind}-line" d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke-width="1.4"{dashes}/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, kind: str = "muted", dashed: bool = False) -> None:
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        base_x, base_y = x2 - 8 * ux, y2 - 8 * uy
        self.line(x1, y1, base_x, base_y, kind, dashed)
        self.parts.append(
            f'<path class="{kind}-head" d="M{x2:.1f} {y2:.1f}L{base_x - 4 * uy:.1f} {base_y + 4 * ux:.1f}'
            f'L{base_x + 4 * uy:.1f} {base_y - 4 * ux:.1f}Z"/>'
        )

    def check(self) -> None:
        for words, left, top, right, bottom in self.words:
            if left < 0 or top < 0 or right > self.width or bottom > self.height:
                raise ValueError(f"'{words}' leaves the picture: {left:.0f} to {right:.0f} of {self.width}")
        for i, (words, left, top, right, bottom) in enumerate(self.words):
            for other, left2, top2, right2, bottom2 in self.words[:i]:
                if left < right2 and left2 < right and top < bottom2 and top2 < bottom:
                    raise ValueError(f"'{words}' overlaps '{other}'")

    def svg(self) -> str:
        self.check()
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img">'
        )
        about = f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
        page = f'<rect class="page" width="{self.width}" height="{self.height}" rx="6"/>'
        return "\n".join([head, about, style(), page, *self.parts, "</svg>", ""])
