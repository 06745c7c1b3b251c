#!/usr/bin/env python3
"""Draws the documentation's pictures: docs/pictures/NAME.py generates docs/pictures/NAME.svg.

scripts/draw_pictures.py            draws all pictures
scripts/draw_pictures.py --check    lists the pictures that are out of date; exits with 1 if there are any
"""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
OTHERS = ("browser_page", "contours", "drawing")  # browser_page.py draws what a browser shows of a trained model


def main() -> int:
    check = "--check" in sys.argv[1:]
    sys.path.insert(0, str(FOLDER))
    sys.dont_write_bytecode = True
    stale = []
    for source in sorted(FOLDER.glob("*.py")):
        if source.stem in OTHERS:
            continue
        svg = importlib.import_module(source.stem).picture().svg()
        target = source.with_suffix(".svg")
        if check and (not target.exists() or target.read_text(encoding="utf-8") != svg):
            stale.append(target.name)
        elif not check:
            target.write_text(svg, encoding="utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; run scripts/draw_pictures.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
