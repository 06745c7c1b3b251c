"""Killed and restarted runs end with the same bits as an uninterrupted run, and backups are checked.

For many kills: tests/programs/run.py BUILD_DIR resume.ResumeTest.test_random_kills_resume_bit_identically --count 200
[--seed 2]
"""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from support import DATA, IO, USAGE, ProgramTest, Running, count, eventually, program, seed

PROGRAMS = {  # with sharded layers, ranks also die while shards are gathered for a backup
    "keras_mnist": ("--epochs", 25, "--steps-per-epoch", 6, "--parallelism", "tensor"),
    "custom_training_mnist": ("--epochs", 25, "--parallelism", "data"),
}


def losses(history: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the epochs that do not depend on the clock."""
    return [{k: v for k, v in epoch.items() if k not in ("seconds", "examples_per_second")} for epoch in history["epochs"]]


class ResumeTest(ProgramTest):
    def options(self, name: str, frequency: str) -> tuple[object, ...]:
        return (*PROGRAMS[name], "--global-batch-size", 20, "--seed", 5, "--backup-save-freq", frequency)

    def backups(self) -> list[Path]:
        return sorted((self.model / "backup").glob("fit-1-step-*.h5"))

    def assert_same_model(self, left: Path, right: Path) -> None:
        compared = subprocess.run([program("lockstep"), "inspect", "--compare", str(left), str(right)],
                                  capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    def test_random_kills_resume_bit_identically(self) -> None:
        chance = random.Random(seed())
        total = count(100)
        for place, name in enumerate(PROGRAMS):
            wanted = (total + place) // len(PROGRAMS)
            self.model = self.scratch / f"whole_{name}"
            self.succeed(*self.options(name, "never"), workers=2, name=name)
            training = sum(epoch["seconds"] for epoch in self.history()["epochs"])
            whole, whole_history = self.model / "model.h5", losses(self.history())
            deaths = resumed = 0
            while deaths < wanted:
                self.model = self.scratch / f"broken_{name}_{deaths}"
                frequency = chance.choice(("epoch", "1", "2", "5"))
                in_a_row = min(chance.choice((1, 1, 2, 3)), wanted - deaths)
                for _ in range(in_a_row):
                    deaths += 1
                    running = self.start(*self.options(name, frequency), workers=2, name=name)
                    if chance.random() < 0.8:  # otherwise it may die at any time, even before training
                        eventually(lambda: self.backups() != [] or running.process.poll() is not None)
                    time.sleep(chance.uniform(0.0, 1.0) * training)
                    victims = list(running.ranks().values()) or [running.process.pid]
                    try:
                        os.kill(chance.choice(victims), signal.SIGKILL)
                    except ProcessLookupError:
                        pass  # the process has exited
                    running.end()
                ended = self.succeed(*self.options(name, frequency), workers=2, name=name)
                resumed += "Resuming from" in ended.stdout
                with self.subTest(name=name, seed=seed(), death=deaths, frequency=frequency):
                    self.assert_same_model(whole, self.model / "model.h5")
                    self.assertEqual(losses(self.history()), whole_history)
                    self.assertFalse((self.model / "backup").exists(), "a completed run must remove its backups")
            print(f"{name}: {deaths} kills, seed {seed()}; {resumed} runs resumed from a backup")
            self.assertGreater(resumed, 0, "no run resumed from a backup, so nothing was tested")

    def test_a_backup_resumes_with_another_number_of_workers(self) -> None:
        """The order of examples does not depend on the number of workers, so losses agree within float tolerance."""
        name = "keras_mnist"
        examples = ("--parallelism", "data")
        self.model = self.scratch / "whole"
        self.succeed(*self.options(name, "never"), *examples, workers=2, name=name)
        whole = losses(self.history())
        self.model = self.scratch / "broken"
        running = self.start(*self.options(name, "1"), *examples, "--epochs", 4000, workers=2, name=name)
        self.assertTrue(eventually(lambda: self.backups() != [], 60), "no backup came")
        os.kill(running.ranks()[1], signal.SIGKILL)
        running.end()
        self.assertGreater(len(self.backups()), 0)
        ended = self.succeed(*self.options(name, "1"), *examples, "--epochs", 100, workers=3, name=name)
        self.assertIn("Resuming from", ended.stdout)
        self.assertIn("number of workers", ended.stderr)
        for mine, theirs in zip(losses(self.history()), whole):
            self.assertAlmostEqual(mine["loss"], theirs["loss"], delta=1e-4 * theirs["loss"])

    def test_a_backup_names_the_kernels_that_another_cpu_changes(self) -> None:
        if " avx512f " not in Path("/proc/cpuinfo").read_text():
            self.skipTest("this CPU has one instruction set that kernels tell apart")
        self.killed_with_backups()
        resumes = (*self.options("keras_mnist", "epoch"), "--epochs", 100, "--resume", "require")
        ended = self.succeed(*resumes, name="keras_mnist", ONEDNN_MAX_CPU_ISA="AVX2")
        self.assertIn("with AVX2 (ONEDNN_MAX_CPU_ISA is AVX2), 1 thread", ended.stdout)
        self.assertIn("training resumes with other kernels (were conv2d forward direct_blocked", ended.stderr)
        self.assertIn("; are conv2d forward direct_nhwc", ended.stderr)

    def test_a_backup_names_the_algorithms_of_convolutions(self) -> None:
        if " avx2 " not in Path("/proc/cpuinfo").read_text():
            self.skipTest("this CPU computes convolutions directly")
        name = "custom_training_mnist"
        running = self.start(*self.options(name, "1"), "--epochs", 4000, name=name)
        self.assertTrue(eventually(lambda: self.backups() != [], 60), "no backup came")
        running.process.kill()
        running.end()
        resumes = (*self.options(name, "epoch"), "--epochs", 100, "--resume", "require")
        self.assert_fails(self.run_program(*resumes, "--convolutions", "direct", name=name), USAGE, "another job",
                          "--convolutions was auto in the backup and is direct now")
        ended = self.succeed(*resumes, name=name, ONEDNN_MAX_CPU_ISA="SSE41")
        self.assertRegex(ended.stderr, r"training resumes with other kernels \(were .*conv2d_1 forward winograd")

    def test_workers_use_the_smallest_instruction_set(self) -> None:
        if " avx512f " not in Path("/proc/cpuinfo").read_text():
            self.skipTest("this CPU has one instruction set that kernels tell apart")
        command = self.command("--epochs", 1, "--steps-per-epoch", 2, workers=2, name="custom_training_mnist")
        at = command.index(program("custom_training_mnist"))
        for limited in (0, 1):
            limits = f'if [ "$OMPI_COMM_WORLD_RANK" = {limited} ]; then export ONEDNN_MAX_CPU_ISA=AVX2; fi; exec "$@"'
            ended = Running([*command[:at], "bash", "-c", limits, "bash", *command[at:]], self.cwd, {}).end()
            self.assertEqual(ended.code, 0, str(ended))
            self.assertRegex(ended.stdout + ended.stderr, f"All workers compute with AVX2, the instructions of worker {limited}; "
                             f"worker {1 - limited} has AVX512_CORE")

    def killed_with_backups(self) -> list[Path]:
        running = self.start(*self.options("keras_mnist", "1"), "--epochs", 4000, workers=1, name="keras_mnist")
        self.assertTrue(eventually(lambda: len(self.backups()) >= 2, 60), "two backups were not written within 60 s")
        running.process.kill()
        running.end()
        return self.backups()

    def test_invalid_backups_are_rejected(self) -> None:
        backups = self.killed_with_backups()
        self.assertGreaterEqual(len(backups), 2)
        run = lambda *more: self.run_program(*self.options("keras_mnist", "1"), *more, name="keras_mnist")  # noqa: E731
        self.assert_fails(run("--seed", 6), USAGE, "another job", "--seed was 5 in the backup and is 6 now",
                              "--resume never")
        for backup in backups:
            backup.write_bytes(backup.read_bytes()[:1000])
        ended = run()
        self.assertEqual(ended.code, DATA, str(ended))
        self.assertIn("all backups in", ended.errors[-1])
        self.assertIn("--resume never", ended.errors[-1])
        self.assertEqual(run("--resume", "never").code, 0)
        self.assert_fails(run("--resume", "require"), USAGE, "there is no backup in", str(self.model / "backup"))

    def test_a_backup_that_cannot_be_written_is_reported(self) -> None:
        """A backup that cannot be written ends training, or is reported once and skipped."""
        with self.mounted("20m") as disk:
            self.model = disk / "model"
            # There is space for one backup and time for many.
            options = (*self.options("keras_mnist", "1"), "--epochs", 100)
            ended = self.run_program(*options, workers=2, name="keras_mnist")
            self.assert_fails(ended, IO, str(self.model / "backup"), "No space left", "free some space")
            left = list((self.model / "backup").glob("*.h5"))
            self.assertGreater(len(left), 0, "earlier backups must stay")
            ended = self.run_program(*options, "--on-checkpoint-failure", "continue", workers=2, name="keras_mnist")
            warnings = [line for line in ended.stderr.splitlines() if "training continues without" in line]
            self.assertEqual(len(warnings), 1, str(ended))
            self.assertIn("No space left", warnings[0])
