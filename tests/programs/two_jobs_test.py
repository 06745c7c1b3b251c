"""Two jobs start in one model directory, at about the same time, and one of them may be killed: every file that ever has
its final name is one job's whole file, and the job that comes second is refused. As root, the jobs of every other turn
have process namespaces of their own, as in pods, and so equal process ids.

    tests/programs/run.py BUILD_DIR two_jobs --count 200 [--seed 2] [--ledger FILE]    5 times without --count

Appends a line of JSON per turn to the ledger; turns already in it are skipped.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from model_file_support import COMPILED, SMALL, description
from support import TEMPORARY, USAGE, ProgramTest, Running, count, program, seed

ledger: Path | None = None


class TwoJobsTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.description = self.scratch / "model.json"
        self.description.write_text(description(*SMALL))

    def start_job(self, number: int, own_pids: bool = False) -> Running:
        command = [program("lockstep"), "train", "--model", str(self.description), "--data-dir", str(self.data),
                   "--model-dir", str(self.model), *COMPILED, "--global-batch-size", "20", "--epochs", "1000", "--seed",
                   str(number), "--backup-save-freq", "1", "--deterministic"]
        namespace = ["unshare", "--pid", "--fork", "--kill-child"] if own_pids else []
        return Running([*namespace, *command], self.cwd, {})

    def keep_published(self, kept: Path, seen: set[int]) -> None:
        """Links all files with final names, so that they can be checked later."""
        for path in [*self.model.glob("*.h5"), *self.model.glob("backup/*.h5")]:
            try:
                inode = path.stat().st_ino
                if inode not in seen:
                    os.link(path, kept / f"{len(seen)}-{path.name}")
                    seen.add(inode)
            except OSError:
                continue  # replaced or removed meanwhile

    def take_turn(self, number: int, whole: list[Path]) -> str:
        chance = random.Random(f"{seed()}/{number}")
        self.model = self.scratch / f"turn-{number}"
        kept = self.scratch / f"kept-{number}"
        kept.mkdir()
        seen: set[int] = set()
        own_pids = os.geteuid() == 0 and number % 2 == 1
        jobs = [self.start_job(1, own_pids)]
        time.sleep(chance.choice((0.0, 0.0, 0.05, 0.2)))
        jobs.append(self.start_job(2, own_pids))
        victim = chance.choice((None, 0, 1))
        kill_at = time.monotonic() + chance.uniform(0.05, 0.8)
        while any(job.process.poll() is None for job in jobs):
            self.keep_published(kept, seen)
            if victim is not None and time.monotonic() > kill_at:
                jobs[victim].process.send_signal(signal.SIGKILL)
                victim = None
            time.sleep(0.002)
        self.keep_published(kept, seen)
        ended = [job.end() for job in jobs]
        text = "".join(map(str, ended))
        for one in ended:
            self.assertIn(one.code, (0, USAGE, TEMPORARY, -signal.SIGKILL), text)
            if one.code == USAGE:  # the other one was killed, and its backups are still there
                self.assertIn("is a backup of another job: --seed was", one.stderr)
                self.assertIn(-signal.SIGKILL, [each.code for each in ended], text)
            if one.code == TEMPORARY:
                self.assertIn("which is still running; wait for it to end, or choose another directory", one.stderr)
        if seen:
            checked = subprocess.run([program("lockstep"), "inspect", "--check", str(kept)], capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr + text)
        if 0 in (one.code for one in ended):
            same = [subprocess.run([program("lockstep"), "inspect", "--compare", str(one), str(self.model / "model.h5")],
                                   capture_output=True).returncode == 0 for one in whole]
            self.assertEqual(sum(same), 1, "the model is neither job's" + text)
        return ", ".join(sorted(str(one.code) for one in ended))

    def test_two_jobs_in_one_directory(self) -> None:
        done: list[dict[str, Any]] = []
        if ledger and ledger.exists():
            done = [json.loads(line) for line in ledger.read_text().splitlines()]
        done = [turn for turn in done if turn["seed"] == seed()]
        whole: list[Path] = []
        for number in (1, 2):
            self.model = self.scratch / f"whole-{number}"
            self.assertEqual(self.start_job(number).end().code, 0)
            whole.append(self.model / "model.h5")
        for number in range(len(done), count(50)):
            turn = {"seed": seed(), "turn": number, "codes": self.take_turn(number, whole)}
            done.append(turn)
            if ledger:
                with ledger.open("a") as file:
                    file.write(json.dumps(turn) + "\n")
        print(f"{len(done)} turns, seed {seed()}; exit codes: {dict(Counter(turn['codes'] for turn in done))}")
