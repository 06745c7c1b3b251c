"""A running `lockstep evaluate --follow`, and the record of the job that it follows."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_file_support import ModelFileTest
from support import Ended, Running, eventually, program

BRIEFLY = ("--follow-timeout", 1)  # of a job that had finished before: there may come another one


class FollowTest(ModelFileTest):
    def follow(self, *options: object, **environment: str) -> Running:
        command = [program("lockstep"), "evaluate", "--data-dir", str(self.data), "--follow", str(self.model),
                   *map(str, options)]
        return Running(command, self.cwd, environment)

    def follow_to_end(self, *options: object, **environment: str) -> Ended:
        """Of a job that has finished."""
        ended = self.follow(*options, *BRIEFLY, **environment).end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
        return ended

    def record(self, **fields: object) -> None:
        """Writes what a job records in its model directory, as of a process elsewhere."""
        record = {"job": "job-1", "process": "elsewhere-1-1-1", "has_begun": True, "has_finished": False} | fields
        (self.model / ".lockstep.lock").write_text(json.dumps(record))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock of the model directory."""
        with (self.model / ".lockstep.lock").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def put_model(self, made: Path) -> None:
        """Replaces the job's model as a whole."""
        new = self.model / ".new"
        new.write_bytes(made.read_bytes())
        new.rename(self.model / "model.keras")

    def assert_says(self, running: Running, text: str) -> None:
        self.assertTrue(eventually(lambda: text in running.stderr, 30), running.stderr)

    def evaluations(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.model / "eval" / "evaluation.json").read_text())
        return read

    def make_best(self) -> None:
        """Lets the best model have a loss that no other one reaches."""
        found = self.evaluations()
        found["best"]["loss"] = found["evaluations"][-1]["loss"] = 1e-9
        (self.model / "eval" / "evaluation.json").write_text(json.dumps(found))
