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
from support import TEMPORARY, USAGE, Ended, ProgramTest, Running, count, eventually, program, seed

ledger: Path | None = None


class TwoJobsTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.description = self.scratch / "model.json"
        self.description.write_text(description(*SMALL))

    def job(self, number: int, *options: str) -> list[str]:
        return [program("lockstep"), "train", "--model", str(self.description), "--data-dir", str(self.data),
                "--model-dir", str(self.model), *COMPILED, "--global-batch-size", "20", "--epochs", "1000", "--seed",
                str(number), "--backup-save-freq", "1", "--deterministic", *options]

    def start_job(self, number: int, own_pids: bool = False) -> Running:
        command = self.job(number)
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
                self.assert_refused(one, TEMPORARY)
        if seen:
            checked = subprocess.run([program("lockstep"), "inspect", "--check", str(kept)], capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr + text)
        if 0 in (one.code for one in ended):
            same = [subprocess.run([program("lockstep"), "inspect", "--compare", str(one), str(self.model / "model.h5")],
                                   capture_output=True).returncode == 0 for one in whole]
            self.assertEqual(sum(same), 1, "the model is neither job's" + text)
        return ", ".join(sorted(str(one.code) for one in ended))

    def test_the_directory_is_the_job_s_while_its_workers_restart(self) -> None:
        """The first generation is killed; the second waits until another job has tried to start there anew."""
        self.assertEqual(self.start_job(1).end().code, 0)
        undisturbed = self.model.rename(self.scratch / "undisturbed") / "model.h5"
        waiting, go_on = self.scratch / "waiting", self.scratch / "go-on"
        script = self.scratch / "run.sh"
        script.write_text(f"""#!/bin/sh
test $LOCKSTEP_GENERATION = 1 || touch {waiting}
while test -e {waiting} && ! test -e {go_on}; do sleep 0.05; done
exec "$@"
""")
        script.chmod(0o755)
        launch = [program("lockstep"), "launch", "--", str(script), *self.job(1)]
        first = Running(launch, self.cwd, {})
        self.assertTrue(eventually(lambda: any(self.model.glob("backup/*.h5"))))
        for trainer in first.processes("train"):
            if trainer != first.process.pid:
                os.kill(trainer, signal.SIGKILL)
        self.assertTrue(eventually(waiting.exists), first.stderr)
        backups = sorted(self.model.glob("backup/*.h5"))
        other = self.job(2, "--resume", "never")
        for command, code in ((other, TEMPORARY), ([program("lockstep"), "launch", "--", *other], USAGE)):
            self.assert_refused(Running(command, self.cwd, {}).end(), code)
        self.assertEqual(sorted(self.model.glob("backup/*.h5")), backups)
        go_on.touch()
        ended = first.end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertIn("Resuming from", ended.stdout)
        self.assertEqual((self.model / "model.h5").read_bytes(), undisturbed.read_bytes())
        self.assertEqual([path.name for path in self.model.iterdir() if path.name.startswith(".")], [".lockstep.lock"])

    def assert_refused(self, ended: Ended, code: int) -> None:
        self.assertEqual(ended.code, code, str(ended))
        self.assertIn("which is still running; wait for it to end, or choose another directory", ended.stderr)

    def test_a_job_leaves_a_directory_that_took_its_path(self) -> None:
        """The path is a link, as to the newest run, and is moved on to a run that has finished."""
        earlier = self.scratch / "earlier"
        earlier.mkdir()
        for name in ("model.h5", "fit-1-step-0000000001.h5"):
            (earlier / name).write_bytes(b"of another job")
        for launched in (True, False):
            with self.subTest(launched=launched):
                own = self.scratch / f"own-{launched}"
                own.mkdir()
                self.model.unlink(missing_ok=True)
                self.model.symlink_to(own)
                command = self.job(1, "--backup-dir", str(self.model))
                running = Running([program("lockstep"), "launch", "--", *command] if launched else command, self.cwd, {})
                self.assertTrue(eventually(lambda: any(own.glob("*.h5"))))
                link = self.scratch / "link"
                link.symlink_to(earlier)
                link.rename(self.model)
                ended = running.end()
                self.assertEqual(ended.code, USAGE if launched else TEMPORARY, str(ended))
                self.assertIn("is not the directory that this job took", ended.stderr)
                self.assertEqual({path.name: path.read_bytes() for path in earlier.iterdir()},
                                 dict.fromkeys(("model.h5", "fit-1-step-0000000001.h5"), b"of another job"))

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
