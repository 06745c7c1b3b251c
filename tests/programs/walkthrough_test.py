"""The commands of docs/walkthrough.md, in their order, and what the page shows of their output."""

import json
import os
import re
import socket
import subprocess
import unittest
from pathlib import Path

import data_files
from support import ProgramTest, clean_environment, program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"


def masked(line: str) -> str:
    """Without the numbers, which depend on the data and the machine."""
    return re.sub(r"\d+(\.\d+)?(e-\d+)?", "#", line).strip()


def blocks(kind: str) -> list[tuple[str, str]]:
    """What follows a comment on the page: the comment's last word, and the code."""
    found = re.findall(rf"<!-- {kind} ?(\S*) ?-->\n```(?:sh)?\n(.*?)```", PAGE.read_text(), re.S)
    return list(found)


class WalkthroughTest(ProgramTest):
    def test_does_what_the_page_says(self) -> None:
        real = os.environ.get("LOCKSTEP_MNIST_DIR")
        if real:
            (self.cwd / "data").symlink_to(real)
        else:
            data_files.write_idx(self.cwd / "data", train=40_000, test=200)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        commands = "".join(code for _, code in blocks("walkthrough"))
        self.assertEqual(commands.count("8501"), 2)
        script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + commands.replace("8501", str(port))
        path = f"{Path(program('lockstep')).parent}:{PAGE.parents[1] / 'scripts'}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", script], cwd=self.cwd, env=clean_environment({"PATH": path}),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        logs = {each.name: each.read_text() for each in self.cwd.glob("*.log")}
        self.assertEqual(done.returncode, 0, (done.stdout, logs))
        shown = blocks("shown")
        self.assertEqual({name for name, _ in shown}, {"train.log", "evaluate.log", "inspect.log"})
        for name, lines in shown:
            written = {masked(line) for line in logs[name].splitlines()}
            for line in lines.splitlines():
                self.assertIn(masked(line), written, (name, logs[name]))
        (prediction,) = json.loads((self.cwd / "answer.json").read_text())["predictions"]
        self.assertEqual(len(prediction), 10)
        self.assertGreater((self.cwd / "digits.onnx").stat().st_size, 10_000_000)
        self.assertIn("serving model/export/best/", logs["serve.log"])
        served = re.findall(r"of version (\d+)", logs["serve.log"])
        self.assertGreater(len(served), 0)


if __name__ == "__main__":
    unittest.main()
