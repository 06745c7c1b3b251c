"""Headless Chromium, driven by chromedriver as https://www.w3.org/TR/webdriver2 says."""

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHROMEDRIVER = shutil.which("chromedriver")


class Browser:
    def __init__(self, profile: Path) -> None:
        assert CHROMEDRIVER is not None
        self.driver = subprocess.Popen([CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self.driver.stdout is not None
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.base = "http://127.0.0.1:" + line.rstrip(".\n").rsplit(" ", 1)[1]
                break
        arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=900,700",
            f"--user-data-dir={profile}",
        ]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())["value"]

    def post(self, command: str, body: Any) -> Any:
        return self.call("POST", f"/session/{self.session}/{command}", body)

    def open(self, url: str) -> None:
        self.post("url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.post("execute/sync", {"script": script, "args": arguments})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the Chrome DevTools Protocol."""
        return self.post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def draw(self, points: Sequence[tuple[float, float]]) -> None:
        """Drags the mouse over the field of the server's page, by points of its 280 x 280."""
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
