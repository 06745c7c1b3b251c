"""The commands of docs/walkthrough.md for one host, in their order, what the page shows of their output, and its
pictures. tests/kubernetes/session_test.py runs its commands for a cluster."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import data_files
from browser import CHROMEDRIVER
from launch_test import free_ports
from support import TEMPORARY, Ended, Running, clean_environment, eventually, program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"
PICTURES = PAGE.parent / "pictures"
DRAW = f"{sys.executable} -B {PICTURES / 'browser_page.py'}"
MONTH = r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"


def masked(line: str) -> str:
    """Without the numbers, which depend on the data and the machine."""
    return re.sub(r"\d+(\.\d+)?(e-\d+)?", "#", line).strip()


def blocks(kind: str) -> list[tuple[str, str]]:
    """What follows a comment on the page: the comment's last word, and the code."""
    found = re.findall(rf"<!-- {kind} ?(\S*) ?-->\n```(?:sh)?\n(.*?)```", PAGE.read_text(), re.S)
    return list(found)


def words(svg: str) -> str:
    """The texts of a picture in their order, without numbers and times. A chart's ticks, however many, are one #."""
    texts = " ".join(each.text or "" for each in xml.fromstring(svg).iter() if each.tag.endswith("}text"))
    texts = re.sub(r"\d+ (second|minute|hour)s? ago", "# ago", re.sub(MONTH, "Month", texts))
    return re.sub(r"#( #)+", "#", masked(texts))


def elements(svg: str) -> set[str]:
    return {each.tag for each in xml.fromstring(svg).iter()}


class WalkthroughTest(unittest.TestCase):
    cwd: Path
    done: subprocess.CompletedProcess[str]
    logs: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.cwd = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lockstep_walkthrough_")))
        real = os.environ.get("LOCKSTEP_MNIST_DIR")
        if real:
            (cls.cwd / "data").symlink_to(real)
        else:
            data_files.write_idx(cls.cwd / "data", train=40_000, test=200)
        commands = [code for _, code in blocks("walkthrough")]
        if CHROMEDRIVER:
            asks = next(i for i, code in enumerate(commands) if "curl" in code)
            commands.insert(asks, f"{DRAW} server http://localhost:8501/ server.svg\n"
                            f"{DRAW} curves model/report.html curves.svg\n"
                            f"{DRAW} generations model/report.html generations.svg\n")
        script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "".join(commands)
        ports = {"8501": 0, "5000": 0, "5001": 0, "5002": 0}
        for fixed, free in zip(ports, free_ports(len(ports)), strict=True):
            assert f":{fixed}" in script, fixed
            script = re.sub(rf"\b{fixed}\b", str(free), script)
        path = f"{Path(program('lockstep')).parent}:{PAGE.parents[1] / 'scripts'}:{os.environ['PATH']}"
        cls.done = subprocess.run(["bash", "-c", script], cwd=cls.cwd, env=clean_environment({"PATH": path}),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        cls.logs = {each.name: each.read_text() for each in cls.cwd.glob("*.log")}

    def setUp(self) -> None:
        self.assertEqual(self.done.returncode, 0, (self.done.stdout, self.logs))

    def test_does_what_the_page_says(self) -> None:
        shown = blocks("shown")
        self.assertEqual({name for name, _ in shown},
                         {"train.log", "evaluate.log", "inspect.log", "worker-0.log", "compare.log"})
        for name, lines in shown:
            self.assert_shown(lines, self.logs[name])
        (prediction,) = json.loads((self.cwd / "answer.json").read_text())["predictions"]
        self.assertEqual(len(prediction), 10)
        self.assertGreater((self.cwd / "digits.onnx").stat().st_size, 10_000_000)
        self.assertIn("serving model/export/best/", self.logs["serve.log"])
        served = re.findall(r"of version (\d+)", self.logs["serve.log"])
        self.assertGreater(len(served), 0)

    def assert_shown(self, lines: str, log: str) -> None:
        written = {masked(line) for line in log.splitlines()}
        for line in lines.splitlines():
            self.assertIn(masked(line), written, log)

    @unittest.skipUnless(CHROMEDRIVER, "there is no chromedriver")
    def test_the_pictures_show_what_a_browser_shows(self) -> None:
        """The kept ones are of MNIST, and of a run that ended at another moment."""
        shown = re.findall(r"\]\(pictures/(\w+)\.svg\)", PAGE.read_text())
        self.assertEqual(set(shown), {"server", "curves", "generations"})
        for name in shown:
            with self.subTest(name):
                kept, drawn = (PICTURES / f"{name}.svg").read_text(), (self.cwd / f"{name}.svg").read_text()
                self.assertEqual(words(drawn), words(kept))
                self.assertEqual(elements(drawn), elements(kept))
                self.assertLess(len(kept), 40_000)
                self.assertIsNone(re.search(r"<script|<foreignObject|<image|href|url\(", kept))

    def test_the_chief_tells_of_a_deleted_pod(self) -> None:
        """A deleted pod's launcher receives SIGTERM, and its successor has the same address."""
        (_, lines), = blocks("chief")
        model = self.cwd / "pvcmnt"
        self.cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
        chief, worker = self.start_pod(0, model), self.start_pod(1, model)
        self.assertTrue(eventually(lambda: any(model.glob("backup/*.h5")), 30))
        os.kill(worker.process.pid, signal.SIGTERM)
        self.assertEqual(worker.end().code, TEMPORARY)
        ended: list[Ended] = [self.start_pod(1, model).end(), chief.end()]
        self.assertEqual([each.code for each in ended], [0, 0], ended)
        log = ended[1].stdout + ended[1].stderr
        self.assert_shown(lines, log.replace(str(model), "/pvcmnt"))

    def start_pod(self, index: int, model: Path) -> Running:
        config = {"cluster": self.cluster, "task": {"type": "worker", "index": index}}
        command = [program("lockstep"), "launch", "--", program("keras_mnist"), "--data-dir", str(self.cwd / "data"),
                   "--model-dir", str(model), "--epochs", "2", "--steps-per-epoch", "100", "--backup-save-freq", "20"]
        return Running(command, self.cwd, {"TF_CONFIG": json.dumps(config)})


if __name__ == "__main__":
    unittest.main()
