"""report.html in a browser: what its DOM shows, and a picture of it in light and in dark. Without Chromium it is skipped."""

import shutil
import struct
import subprocess
import unittest
import zlib
from collections import Counter
from pathlib import Path

from support import ProgramTest

CHROMIUM = shutil.which("chromium")
TRAIN = {"light": (0x1F, 0x6F, 0xEB), "dark": (0x6E, 0xA8, 0xFE)}  # the colour of the training's curve
GROUND = {"light": (0xFF, 0xFF, 0xFF), "dark": (0x14, 0x17, 0x1A)}


def colours(png: Path) -> Counter[tuple[int, ...]]:
    """The colours of a picture without interlacing, eight bits a channel. PNG (Third Edition), chapter 9: filters."""
    data = png.read_bytes()
    position, header, packed = 8, b"", b""
    while position < len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        chunk = data[position + 8:position + 8 + length]
        header = chunk if kind == b"IHDR" else header
        packed += chunk if kind == b"IDAT" else b""
        position += 12 + length
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", header)
    channels = {2: 3, 6: 4}[colour_type]
    assert (depth, interlace) == (8, 0)
    raw, stride = zlib.decompress(packed), width * channels
    above = bytearray(stride)
    found: Counter[tuple[int, ...]] = Counter()
    for row in range(height):
        start = row * (stride + 1)
        kind, line = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for i in range(stride):
            left = line[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            if kind == 1:
                line[i] = (line[i] + left) & 255
            elif kind == 2:
                line[i] = (line[i] + above[i]) & 255
            elif kind == 3:
                line[i] = (line[i] + (left + above[i]) // 2) & 255
            elif kind == 4:
                guess = left + above[i] - corner
                nearest = min((left, above[i], corner), key=lambda each: abs(guess - each))
                line[i] = (line[i] + nearest) & 255
        found.update(tuple(line[i:i + 3]) for i in range(0, stride, channels))
        above = line
    return found


@unittest.skipUnless(CHROMIUM, "there is no chromium")
class ReportPageTest(ProgramTest):
    def show(self, scheme: str) -> tuple[str, Path]:
        """The DOM after the page was drawn, and its picture."""
        picture = self.scratch / f"{scheme}.png"
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=900,700",
                   f"--user-data-dir={self.scratch / 'profile'}", f"--screenshot={picture}", "--dump-dom",
                   f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
                   (self.model / "report.html").resolve().as_uri()]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, picture

    def test_the_page_shows_the_run_in_light_and_dark(self) -> None:
        self.succeed("--epochs", 3, "--parallelism", "data", workers=2, name="keras_mnist")
        for scheme in ("light", "dark"):
            with self.subTest(scheme):
                dom, picture = self.show(scheme)
                self.assertIn("3 epochs, 2 workers</h1>", dom)
                self.assertEqual(dom.count("<polyline"), dom.count('class="line '))
                self.assertGreaterEqual(dom.count("<svg"), 2)
                self.assertIn("Misclassified examples</h2>", dom)
                self.assertGreater(dom.count("<figure><img"), 0)
                for title in ("Training", "Where a step's time goes", "Epochs", "Workers and machine", "Options", "Versions"):
                    self.assertIn(f"<h2>{title}</h2>", dom)
                seen = colours(picture)
                self.assertEqual(seen.most_common(1)[0][0], GROUND[scheme])
                self.assertGreater(seen[TRAIN[scheme]], 100, "no curve is drawn")
                self.assertLess(seen[TRAIN["dark" if scheme == "light" else "light"]], 10)
