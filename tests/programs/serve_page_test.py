"""The page of `lockstep serve` in a browser: a drawn digit, its class, and a newer model. Skipped without chromedriver."""

import json
import shutil
import time
import unittest

from browser import CHROMEDRIVER, Browser
from serve_support import ServerTest, ask
from support import Running, eventually, program


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
        browser.open(f"http://127.0.0.1:{port}/")
        facts = "return document.getElementById('facts').textContent"
        self.assertTrue(eventually(lambda: "model.h5" in browser.run(facts)))
        self.assertIn("test accuracy", browser.run("return document.getElementById('scores').textContent"))
        browser.draw([(140, 40), (140, 120), (140, 240)])
        best = "const row = document.querySelector('tr.best'); return row ? row.cells[0].textContent : ''"
        self.assertTrue(eventually(lambda: browser.run(best) == "1"), browser.run(best))
        self.assertEqual(browser.run("return document.querySelectorAll('#classes tr').length"), 10)
        self.assert_shows(browser, "[0.25]", ["1 25.0 %"])  # a sigmoid
        self.assert_shows(browser, "[0.9, 0.8]", ["0 90.0 %", "1 80.0 %"])  # several of them
        self.assert_shows(browser, "[0, Math.log(3)]", ["0 25.0 %", "1 75.0 %"])  # logits
        self.assert_shows(browser, "[-Math.log(3)]", ["1 25.0 %"])
        picture = browser.screenshot()
        self.assertGreater(len(picture), 5000)
        browser.run("document.getElementById('clear').click()")
        self.assertEqual(browser.run(best), "")
        version = browser.run("return model.version")
        time.sleep(0.01)  # versions are milliseconds
        self.served(self.model / "model.h5")
        self.assertTrue(eventually(lambda: browser.run("return model.version") != version), "the page shows the new model")
        self.assert_has_form(browser, port)

    def assert_has_form(self, browser: Browser, port: int) -> None:
        """The page of a model that takes no picture."""
        browser.run("pictureShape = () => null; refresh()")
        self.assertTrue(eventually(lambda: not browser.run("return document.getElementById('form').hidden")))
        blank = browser.run("return document.getElementById('instance').value")
        self.assertEqual(json.loads(blank), [[0] * 28] * 28)
        code, reply = ask(port, {"instances": [json.loads(blank)]})
        self.assertEqual(code, 200, reply)
        self.assertEqual(json.loads(self.predict_by_form(browser, blank, "[")), reply["predictions"][0])
        self.predict_by_form(browser, "[[1", "This is no JSON")
        self.predict_by_form(browser, "[1, 2]", "on an axis of 28")
        self.assertEqual(browser.run("refresh(); return document.getElementById('instance').value"), "[1, 2]")
        inputs = "[{name: 'age', shape: [1]}, {name: 'map', shape: [2, 2]}]"
        self.assertEqual(browser.run(f"model.inputs = {inputs}; return blankInstance()"),
                         {"age": [0], "map": [[0, 0], [0, 0]]})
        self.assertIsNone(browser.run("model.inputs = [{name: 'x', shape: [64, 64]}]; return blankInstance()"))

    def predict_by_form(self, browser: Browser, text: str, said: str) -> str:
        """What the page answers, which contains `said`."""
        browser.run("document.getElementById('instance').value = arguments[0];"
                    "document.getElementById('predict').click()", text)
        answer = "return document.getElementById('prediction').textContent"
        self.assertTrue(eventually(lambda: said in browser.run(answer)), browser.run(answer))
        return str(browser.run(answer))

    def assert_shows(self, browser: Browser, outputs: str, rows: list[str]) -> None:
        """For outputs of a model, each class and its probability."""
        texts = "row => row.cells[0].textContent + ' ' + row.cells[1].textContent"
        shown = browser.run(f"show({outputs}); return [...document.querySelectorAll('#classes tr')].map({texts})")
        self.assertEqual(shown, rows)

    def run_digits(self, epochs: int) -> None:
        command = [program("keras_mnist"), "--model-dir", str(self.model), "--epochs", str(epochs), "--learning-rate", "0.1"]
        ended = Running(command, self.cwd, {}).end()
        self.assertEqual(ended.code, 0, str(ended))
