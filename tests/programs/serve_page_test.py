"""The page of `lockstep serve` in a browser: a drawn digit, its class, and a newer model. Skipped without chromedriver."""

import base64
import json
import shutil
import subprocess
import time
import unittest
import urllib.request
from pathlib import Path
from typing import Any

from serve_support import ServerTest
from support import Running, eventually, program

CHROMEDRIVER = shutil.which("chromedriver")


class Browser:
    """Headless Chromium, driven as https://www.w3.org/TR/webdriver2 says."""

    def __init__(self, profile: Path) -> None:
        assert CHROMEDRIVER is not None
        self.driver = subprocess.Popen([CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self.driver.stdout is not None
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.base = "http://127.0.0.1:" + line.rstrip(".\n").rsplit(" ", 1)[1]
                break
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=900,700", f"--user-data-dir={profile}"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())["value"]

    def post(self, command: str, body: Any) -> Any:
        return self.call("POST", f"/session/{self.session}/{command}", body)

    def run(self, script: str) -> Any:
        return self.post("execute/sync", {"script": script, "args": []})

    def draw(self, points: list[tuple[int, int]]) -> None:
        """Drags the mouse over the field, by points of its 280 x 280."""
        left, top = self.run("const box = field.getBoundingClientRect(); return [box.left, box.top]")
        moves = [{"type": "pointerMove", "duration": 0, "x": round(left + x), "y": round(top + y)} for x, y in points]
        steps = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0}]
        self.post("actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": steps}]})

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("GET", f"/session/{self.session}/screenshot"))

    def close(self) -> None:
        self.call("DELETE", f"/session/{self.session}")
        self.driver.terminate()
        self.driver.wait()
        assert self.driver.stdout is not None
        self.driver.stdout.close()


@unittest.skipUnless(CHROMEDRIVER, "there is no chromedriver")
class ServePageTest(ServerTest):
    def test_a_drawn_digit_gets_its_class_and_a_newer_model_appears(self) -> None:
        """The embedded digits are drawn by strokes, as people draw them."""
        self.model = self.scratch / "digits"
        self.run_digits(3)
        folder = self.served(self.model / "model.h5")
        shutil.copy(self.model / "history.json", folder)
        _, port = self.serve("--model", folder)
        browser = Browser(self.scratch / "profile")
        self.addCleanup(browser.close)
        browser.post("url", {"url": f"http://127.0.0.1:{port}/"})
        facts = "return document.getElementById('facts').textContent"
        self.assertTrue(eventually(lambda: "model.h5" in browser.run(facts)))
        self.assertIn("test accuracy", browser.run("return document.getElementById('scores').textContent"))
        browser.draw([(140, 40), (140, 120), (140, 240)])
        best = "const row = document.querySelector('tr.best'); return row ? row.cells[0].textContent : ''"
        self.assertTrue(eventually(lambda: browser.run(best) == "1"), browser.run(best))
        self.assertEqual(browser.run("return document.querySelectorAll('#classes tr').length"), 10)
        picture = browser.screenshot()
        self.assertGreater(len(picture), 5000)
        browser.run("document.getElementById('clear').click()")
        self.assertEqual(browser.run(best), "")
        version = browser.run("return model.version")
        time.sleep(0.01)  # versions are milliseconds
        self.served(self.model / "model.h5")
        self.assertTrue(eventually(lambda: browser.run("return model.version") != version), "the page shows the new model")

    def run_digits(self, epochs: int) -> None:
        command = [program("keras_mnist"), "--model-dir", str(self.model), "--epochs", str(epochs), "--learning-rate", "0.1"]
        ended = Running(command, self.cwd, {}).end()
        self.assertEqual(ended.code, 0, str(ended))
