#!/usr/bin/env python3
"""Draws what a browser shows of a page of Lockstep: the texts, boxes, charts and canvases of headless Chromium as SVG.

    browser_page.py PICTURE ADDRESS SVG [--screenshot PNG]

PICTURE is one of the names below, ADDRESS a URL or a file. The walkthrough's commands make what is shown:

    browser_page.py server http://localhost:8501/ docs/pictures/server.svg
    browser_page.py curves model/report.html docs/pictures/curves.svg
    browser_page.py generations model/report.html docs/pictures/generations.svg

The colours are those of the page in light and in dark. Needs chromedriver.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from contours import contours
from drawing import FONT, MIN_FONT_SIZE, PALETTE

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from browser import CHROMEDRIVER, Browser  # noqa: E402

MARGIN = 20  # below what is shown, in pixels


def arc(x: float, y: float, radius: float, begin: int, end: int) -> list[tuple[float, float]]:
    """Points of a circle, every ten degrees, clockwise."""
    angles = [math.radians(degrees) for degrees in range(begin, end + 1, 10)]
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


SIX = [(170, 45), (110, 130), *arc(140, 180, 52, -180, 170)]


@dataclass(frozen=True)
class Shown:
    title: str
    width: int  # of the browser's window
    first: str = ""  # the section with which the picture begins; "": at the page's top
    last: str = ""  # the section with which it ends; "": at the page's end
    draws: bool = False  # a digit, on the field of the server's page


PICTURES = {
    "server": Shown("The server's page: a drawn 6, and the probability of each class", 760, draws=True),
    "curves": Shown("The report: scores, loss and accuracy of each epoch", 990, last="Training"),
    "generations": Shown("The report: when which workers trained", 990, "Workers over time", "Workers over time"),
}

# Returns the page's height and colour, and its elements as SVG elements: {tag, attributes, colours, text, children}.
CAPTURE = r"""
const [first, last] = arguments;
const headings = [...document.querySelectorAll("h2")];
const indexOf = text => {
  const index = headings.findIndex(each => each.textContent === text);
  if (index < 0) throw new Error(`no section "${text}"`);
  return index;
};
const topOf = element => element.getBoundingClientRect().top + scrollY;
const top = first ? topOf(headings[indexOf(first)]) - 16 : 0;
const next = last ? headings[indexOf(last) + 1] : null;
const bottom = next ? topOf(next) : document.body.getBoundingClientRect().bottom + scrollY;
const probe = document.createElement("canvas").getContext("2d");
const rounded = value => +value.toFixed(1);

function colour(css) {
  probe.fillStyle = "#000";
  probe.fillStyle = css;
  return css === "none" || probe.fillStyle === "rgba(0, 0, 0, 0)" ? "none" : probe.fillStyle;
}

function box(rect) {
  const { left, width, height } = rect;
  return { x: rounded(left), y: rounded(rect.top + scrollY - top), width: rounded(width), height: rounded(height) };
}

function isShown(rect) {
  return rect.width > 0.05 && rect.height > 0.05 && rect.top + scrollY >= top && rect.bottom + scrollY <= bottom;
}

function fontOf(style) {
  const bold = +style.fontWeight >= 600 ? { "font-weight": style.fontWeight } : {};
  return { "font-size": parseFloat(style.fontSize), ...bold };
}

/** Browsers paint boxes from whole pixels to whole pixels. */
function background(element, style) {
  const rect = element.getBoundingClientRect(), line = parseFloat(style.borderTopWidth);
  const fill = colour(style.backgroundColor), stroke = line > 0 ? colour(style.borderTopColor) : "none";
  if (element === document.body || !isShown(rect) || (fill === "none" && stroke === "none")) return [];
  const left = Math.round(rect.left), upper = Math.round(rect.top + scrollY - top);
  const width = Math.max(1, Math.round(rect.right) - left);
  const height = Math.max(1, Math.round(rect.bottom + scrollY - top) - upper);
  const radius = parseFloat(style.borderTopLeftRadius);
  const attributes = { x: left + line / 2, y: upper + line / 2, width: width - line, height: height - line,
                       ...(radius > 0 ? { rx: radius } : {}), ...(line > 0 ? { "stroke-width": line } : {}) };
  return [{ tag: "rect", attributes, colours: { fill, ...(line > 0 ? { stroke } : {}) } }];
}

/** The pixels of a canvas, which Python traces. */
function canvas(element, style) {
  const rect = element.getBoundingClientRect(), inset = parseFloat(style.borderTopWidth) || 0;
  const { x, y } = box(new DOMRect(rect.x + inset, rect.y + inset, 0, 0)), { width, height } = element;
  const data = element.getContext("2d").getImageData(0, 0, width, height).data;
  const rows = [...Array(height).keys()].map(
      row => [...Array(width).keys()].map(column => data[4 * (row * width + column)]));
  return isShown(rect) ? [{ tag: "canvas", attributes: { x, y }, colours: {}, rows }] : [];
}

/** A text in its lines. Words are measured one by one, since only the browser knows where a line ends. */
function lines(node, style) {
  const found = [], range = document.createRange();
  for (const word of node.data.matchAll(/\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const rect = range.getBoundingClientRect(), line = found.at(-1);
    if (line && Math.abs(line.top - rect.top) < 2) {
      line.text += " " + word[0];
      line.right = rect.right;
    } else {
      found.push({ text: word[0], left: rect.left, right: rect.right, top: rect.top, height: rect.height });
    }
  }
  probe.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = probe.measureText("x");
  const anchor = { right: "end", end: "end", center: "middle" }[style.textAlign] || "start";
  const seen = found.filter(each => isShown(new DOMRect(each.left, each.top, each.right - each.left, each.height)));
  return seen.map(line => {
    const x = { start: line.left, middle: (line.left + line.right) / 2, end: line.right }[anchor];
    const ascent = line.height * above / (above + below);
    const attributes = { x: rounded(x), y: rounded(line.top + scrollY - top + ascent), ...fontOf(style),
                         ...(anchor === "start" ? {} : { "text-anchor": anchor }) };
    return { tag: "text", attributes, colours: { fill: colour(style.color) }, text: line.text };
  });
}

const KEPT = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "points", "d", "width", "height", "text-anchor"];
function drawn(element) {
  const style = getComputedStyle(element), kind = element.tagName, attributes = {}, colours = {};
  for (const name of KEPT) if (element.hasAttribute(name)) attributes[name] = element.getAttribute(name);
  if (kind === "text") Object.assign(attributes, fontOf(style));
  if (kind !== "line" && kind !== "g") colours.fill = colour(style.fill);
  if (kind !== "text" && colour(style.stroke) !== "none") {
    colours.stroke = colour(style.stroke);
    if (style.strokeWidth !== "1px") attributes["stroke-width"] = parseFloat(style.strokeWidth);
  }
  const text = kind === "text" ? element.textContent : "";
  const children = [...element.children].filter(each => each.tagName !== "title").map(drawn);
  return { tag: kind, attributes, colours, text, children };
}

function chart(element) {
  const rect = element.getBoundingClientRect();
  const attributes = { ...box(rect), viewBox: element.getAttribute("viewBox") };
  return isShown(rect) ? [{ tag: "svg", attributes, colours: {}, children: [...element.children].map(drawn) }] : [];
}

function shapes(element) {
  const style = getComputedStyle(element), rect = element.getBoundingClientRect();
  if (!element.checkVisibility() || rect.bottom + scrollY <= top || rect.top + scrollY >= bottom) return [];
  if (element.tagName === "svg") return chart(element);
  const behind = background(element, style);
  if (element.tagName === "IMG") throw new Error("pictures in a page are not drawn: leave out their section");
  if (element.tagName === "CANVAS") return [...behind, ...canvas(element, style)];
  return [...behind, ...[...element.childNodes].flatMap(each => {
    if (each.nodeType === Node.TEXT_NODE) return lines(each, style);
    return each.nodeType === Node.ELEMENT_NODE ? shapes(each) : [];
  })];
}

return { height: Math.ceil(bottom - top), page: colour(getComputedStyle(document.body).backgroundColor),
         shapes: shapes(document.body) };
"""


class Colours:
    """Classes of pairs: a property's colour in light and in dark."""

    def __init__(self) -> None:
        self.classes: dict[tuple[str, str, str], str] = {}

    def class_of(self, light: dict[str, str], dark: dict[str, str]) -> str:
        pairs = [(name, light[name], dark[name]) for name in light]
        return " ".join(self.classes.setdefault(pair, f"c{len(self.classes)}") for pair in pairs)

    def style(self) -> str:
        light = "".join(f".{name}{{{what}:{colour}}}" for (what, colour, _), name in self.classes.items())
        dark = "".join(f".{name}{{{what}:{colour}}}" for (what, _, colour), name in self.classes.items())
        return f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}text{{font-family:{FONT}}}</style>"


def traced(canvas: dict[str, Any]) -> str:
    """What is white on a canvas."""
    x, y = canvas["attributes"]["x"], canvas["attributes"]["y"]
    polygons = ["L".join(f"{x + px:.1f} {y + py:.1f}" for px, py in each) for each in contours(canvas["rows"])]
    path = "".join(f"M{each}Z" for each in polygons)
    return f'<path fill="#fff" fill-rule="evenodd" d="{path}"/>'


def element(light: dict[str, Any], dark: dict[str, Any], colours: Colours) -> str:
    if light["tag"] != dark["tag"] or light["colours"].keys() != dark["colours"].keys():
        raise ValueError(f"the page changed while it was drawn: {light} is {dark}")
    if light["tag"] == "canvas":
        return traced(light)
    attributes = {"class": colours.class_of(light["colours"], dark["colours"]), **light["attributes"]}
    words = "".join(f' {name}="{escape(str(value).strip())}"' for name, value in attributes.items() if value != "")
    pairs = zip(light.get("children", []), dark.get("children", []), strict=True)
    inside = escape(light.get("text") or "", quote=False) + "".join(element(*pair, colours) for pair in pairs)
    return f"<{light['tag']}{words}>{inside}</{light['tag']}>" if inside else f"<{light['tag']}{words}/>"


def sizes(shapes: list[dict[str, Any]]) -> list[float]:
    """Of all letters."""
    own = [shape["attributes"]["font-size"] for shape in shapes if shape["tag"] == "text"]
    return own + [size for shape in shapes for size in sizes(shape.get("children", []))]


def svg(shown: Shown, light: dict[str, Any], dark: dict[str, Any]) -> str:
    width, height = shown.width, light["height"] + (0 if shown.last else MARGIN)
    scale = max(1.0, MIN_FONT_SIZE / min(sizes(light["shapes"])))
    colours = Colours()
    frame = colours.class_of(
        {"fill": light["page"], "stroke": PALETTE["plain"][0][1]},
        {"fill": dark["page"], "stroke": PALETTE["plain"][1][1]},
    )
    parts = [element(*pair, colours) for pair in zip(light["shapes"], dark["shapes"], strict=True)]
    size = f'width="{math.ceil(width * scale)}" height="{math.ceil(height * scale)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img">'
    page = f'<rect class="{frame}" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>'
    return "\n".join([head, f"<title>{escape(shown.title)}</title>", colours.style(), page, *parts, "</svg>", ""])


def wait_for(browser: Browser, condition: str, what: str) -> None:
    deadline = time.monotonic() + 20
    while not browser.run(f"return {condition}"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited 20 s for {what}")
        time.sleep(0.1)


def capture(browser: Browser, shown: Shown, address: str) -> tuple[str, bytes]:
    """The SVG, and a screenshot in light."""
    window = {"width": shown.width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.devtools("Emulation.setDeviceMetricsOverride", **window)
    browser.open(address if "://" in address else Path(address).resolve().as_uri())
    if shown.draws:
        wait_for(browser, "pictureShape() !== null", "a model of pictures")
        browser.draw(SIX)
        wait_for(browser, "document.querySelector('tr.best') !== null && !isAsking", "the class of the drawn digit")
    themes = {}
    for theme in ("dark", "light"):
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        themes[theme] = browser.run(CAPTURE, shown.first, shown.last)
    return svg(shown, themes["light"], themes["dark"]), browser.screenshot()


def main() -> int:
    parser = argparse.ArgumentParser(description="Draws what a browser shows of a page as SVG.")
    parser.add_argument("picture", choices=PICTURES)
    parser.add_argument("address", help="a URL or a file")
    parser.add_argument("svg", type=Path)
    parser.add_argument("--screenshot", type=Path, metavar="PNG", help="what the window shows, to compare with")
    given = parser.parse_args()
    if CHROMEDRIVER is None:
        print("browser_page.py: there is no chromedriver; install the package chromium-driver", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            text, screenshot = capture(browser, PICTURES[given.picture], given.address)
        finally:
            browser.close()
    given.svg.write_text(text, encoding="utf-8")
    if given.screenshot:
        given.screenshot.write_bytes(screenshot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
