"""`lockstep export --format saved-model` with other programs in Keras' place: interruptions, and imports."""

import os
import signal
from pathlib import Path

from model_file_support import ModelFileTest
from support import TEMPORARY, USAGE, Running, eventually, program

ENDLESS = 'mkdir -p "$4"\necho > "$4/part"\necho $$ > pid\nexec sleep 100\n'


class SavedModelTest(ModelFileTest):
    def setUp(self) -> None:
        super().setUp()
        self.model_file = self.scratch / "any.keras"
        self.model_file.write_text("for a Keras that does not read it")
        self.folder = self.scratch / "exported"
        self.folder.mkdir()

    def python(self, text: str) -> dict[str, str]:
        """The environment in which a shell script is python3."""
        folder = self.scratch / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "python3").write_text("#!/bin/sh\n" + text)
        (folder / "python3").chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def export(self, environment: dict[str, str], output: str = "saved") -> Running:
        command = [program("lockstep"), "export", "--model", str(self.model_file), "--format", "saved-model",
                   "--output", f"{self.folder}/{output}"]
        return Running(command, self.cwd, environment)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def python_process(self) -> Path:
        """Its folder in /proc, when it has begun to write."""
        file = self.cwd / "pid"
        self.assertTrue(eventually(lambda: file.exists() and file.read_text().endswith("\n")))
        process = Path("/proc", file.read_text().strip())
        file.unlink()
        return process

    def is_running(self, process: Path) -> bool:
        try:
            return (process / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def test_an_interrupted_export_leaves_nothing(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, and in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            running = self.export(self.python(ENDLESS))
            python = self.python_process()
            running.process.send_signal(number)
            # UCX, which Open MPI links on Debian 13, handles SIGHUP.
            self.assertIn(running.end().code, (-number, TEMPORARY) if number == signal.SIGHUP else (-number,))
            self.assertFalse(self.is_running(python))
            self.assertEqual(self.left(), [])

    def test_python_ends_with_a_killed_export_and_the_next_one_cleans_up(self) -> None:
        other = self.folder / ".other.0123abcd.tmp"
        other.mkdir()
        running = self.export(self.python(ENDLESS))
        python = self.python_process()
        running.process.kill()
        running.end()
        self.assertTrue(eventually(lambda: not self.is_running(python)))
        self.assertEqual(len(self.left()), 2)
        beside = self.export(self.python(ENDLESS))  # whose directory stays
        self.python_process()
        self.assertEqual(len(self.left()), 2)
        ended = self.export(self.python('mkdir "$4"\necho > "$4/whole"\n')).end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertEqual([name for name in self.left() if "saved." not in name], [other.name, "saved"])
        self.assertEqual(len(self.left()), 3)
        self.assertEqual([path.name for path in (self.folder / "saved").iterdir()], ["whole"])
        beside.process.terminate()
        beside.end()
        self.assertEqual(self.left(), [other.name, "saved"])

    def test_a_slash_may_end_the_output(self) -> None:
        (self.folder / "data").mkdir()
        ended = self.export(self.python('mkdir "$4"\n'), "saved/").end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertEqual(self.left(), ["data", "saved"])

    def test_python_imports_nothing_from_the_working_directory(self) -> None:
        for module in ("tensorflow", "keras", "os", "re"):
            (self.cwd / f"{module}.py").write_text("open('imported', 'w')\nraise ImportError\n")
        ended = self.export({}).end()
        self.assertFalse((self.cwd / "imported").exists())
        if ended.code == USAGE:
            self.assert_fails(ended, USAGE, "lacks Keras or TensorFlow")
