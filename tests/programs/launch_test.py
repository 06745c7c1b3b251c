"""Workers of a TF_CONFIG that find each other: in whatever order, after kills, without a peer, with a wrong option.

For many kills: tests/programs/run.py BUILD_DIR launch.LaunchTest.test_random_kills --count 100 [--seed 2]
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from support import TEMPORARY, USAGE, Ended, ProgramTest, Running, count, eventually, program, seed

EXAMPLES = ("--epochs", 10, "--steps-per-epoch", 20, "--global-batch-size", 24, "--seed", 5, "--deterministic")
LONG = ("--epochs", 60, *EXAMPLES[2:])


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def children(pid: int) -> dict[int, int]:
    """Trainers of a launcher: process ids by rank."""
    found: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rsplit(")", 1)[1].split()[1]) != pid:
                continue
            environment = (status.parent / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):  # it has just ended
            continue
        ranks = [entry for entry in environment if entry.startswith(b"PMIX_RANK=")]
        controlled = any(entry.startswith(b"LOCKSTEP_CONTROL_FD=") for entry in environment)
        if ranks and controlled:
            found[int(ranks[0].split(b"=")[1])] = int(status.parent.name)
    return found


def is_there(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Launched(ProgramTest):
    default_program = "keras_mnist"

    def setUp(self) -> None:
        super().setUp()
        self.started: dict[int, Running] = {}
        self.left = self.scratch / "tmp"
        self.left.mkdir()
        self.addCleanup(self.end_all)

    def end_all(self) -> None:
        for running in self.started.values():
            running.process.kill()
            running.process.wait()

    def tf_config(self, index: int) -> str:
        addresses = [f"localhost:{port}" for port in self.ports]
        return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})

    def launch(self, index: int, options: Sequence[object], bare: bool = False, **environment: str) -> None:
        words = [] if bare else [program("lockstep"), "launch", "--"]
        command = words + self.command(*options)
        self.started[index] = Running(command, self.cwd, {
            "TF_CONFIG": self.tf_config(index), "TMPDIR": str(self.left), "LOCKSTEP_REPORT": "0.5",
            "LOCKSTEP_JOB_TOKEN": "a secret", "OMPI_MCA_mpi_yield_when_idle": "1"} | environment)

    def launch_all(self, workers: int, *options: object, bare: bool = False) -> None:
        self.ports = free_ports(workers)
        for index in reversed(range(workers)):
            self.launch(index, options, bare)

    def end(self) -> list[Ended]:
        return [self.started.pop(index).end() for index in sorted(self.started)]

    def assert_ended(self, code: int) -> list[Ended]:
        ended = self.end()
        everything = "".join(str(one) for one in ended)
        self.assertEqual([one.code for one in ended], [code] * len(ended), everything)
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left in TMPDIR")
        return ended

    def whole_run(self, workers: int, *options: object) -> Path:
        """The model of a run under mpirun that nothing disturbs."""
        launched, self.model = self.model, self.scratch / "whole"
        self.succeed(*(options or EXAMPLES), "--backup-save-freq", "never", workers=workers)
        whole, self.model = self.model / "model.h5", launched
        return whole

    def compare(self, whole: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program("lockstep"), "inspect", "--compare", str(whole), str(self.model / "model.h5")],
                              capture_output=True, text=True)

    def assert_same_model(self, whole: Path) -> None:
        compared = self.compare(whole)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    def wait_for_message(self, index: int, text: str) -> None:
        running = self.started[index]
        self.assertTrue(eventually(lambda: text in running.stderr, 30), f"'{text}' never came: {running.stderr}")

    def has_backup(self) -> bool:
        return any(self.model.glob("backup/fit-1-step-*.h5"))

    def wait_for_backup(self) -> None:
        self.assertTrue(eventually(self.has_backup, 30), "no backup came")


class LaunchTest(Launched):
    def test_any_order(self) -> None:
        self.ports = free_ports(3)
        for index in (2, 0, 1):
            self.launch(index, EXAMPLES)
            time.sleep(0.3)
        ended = self.assert_ended(0)
        self.assertIn("3 workers", ended[0].stdout)
        self.assertEqual(ended[1].stdout + ended[1].stderr, "")
        self.assert_same_model(self.whole_run(3))

    def test_bare_programs(self) -> None:
        self.launch_all(2, *EXAMPLES, bare=True)
        ended = self.assert_ended(0)
        self.assertIn("2 workers", ended[0].stdout)
        self.assert_same_model(self.whole_run(2))

    def test_bare_without_launcher(self) -> None:
        """A program that was copied away from `lockstep`."""
        alone = self.scratch / "keras_mnist"
        alone.write_bytes(Path(program("keras_mnist")).read_bytes())
        alone.chmod(0o755)
        self.ports = [23000, 23001]
        ended = Running([str(alone)], self.cwd, {"TF_CONFIG": self.tf_config(1), "PATH": "/nowhere"}).end()
        self.assertEqual(ended.code, USAGE, str(ended))
        self.assertIn("error: TF_CONFIG lists 2 workers", ended.stderr)
        self.assertIn("start all with mpirun", ended.stderr)

    def test_without_peers(self) -> None:
        ended = Running([program("lockstep"), "launch", "--ranks-per-worker", "2", "--", *self.command(*EXAMPLES)],
                        self.cwd, {"TMPDIR": str(self.left)}).end()
        self.assertEqual((ended.code, ended.stderr), (0, ""), str(ended))
        self.assert_same_model(self.whole_run(2))

    def test_process_1(self) -> None:
        """Of a container: it reaps orphans, and ends with the job's code."""
        inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        tried = subprocess.run([*inside, "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"there can be no container here ({tried.stderr.strip()})")
        script = "(setsid sleep 0.1 &); sleep 0.6; cat /proc/1/comm; cat /proc/[0-9]*/stat | grep -c ' Z '; exit 64"
        ended = Running([*inside, program("lockstep"), "launch", "--", "/bin/sh", "-c", script], self.cwd,
                        {"TMPDIR": str(self.left)}).end()
        self.assertEqual((ended.code, ended.stdout), (USAGE, "lockstep\n0\n"), str(ended))

    def test_random_kills(self) -> None:
        """Of trainers, and of launchers, which are started again."""
        chance = random.Random(seed())
        whole = self.whole_run(3)
        total = count(30)
        done = resumed = 0
        while done < total:
            self.model = self.scratch / f"broken_{done}"
            options = (*EXAMPLES, "--backup-save-freq", "1")
            self.launch_all(3, *options)
            for _ in range(min(2, total - done)):
                done += 1
                if chance.random() < 0.8:
                    eventually(lambda: self.has_backup() or self.started[0].process.poll() is not None, 30)
                time.sleep(chance.uniform(0.0, 0.5))
                index = chance.randrange(3)
                launcher = self.started[index].process
                trainers = list(children(launcher.pid).values())
                if chance.random() < 0.5 and trainers:
                    try:
                        os.kill(trainers[0], signal.SIGKILL)
                    except ProcessLookupError:
                        pass  # it has come to its end
                elif launcher.poll() is None and trainers:
                    launcher.kill()
                    launcher.wait()
                    self.assertTrue(eventually(lambda: not any(is_there(pid) for pid in trainers)),
                                    "trainers outlive their launcher")
                    self.launch(index, options)
            ended = self.end()
            everything = "".join(str(one) for one in ended)
            resumed += "Resuming from" in everything
            with self.subTest(seed=seed(), kills=done):
                self.assertEqual([one.code for one in ended], [0, 0, 0], everything)
                self.assert_same_model(whole)
        print(f"{done} kills, seed {seed()}; {resumed} runs went on from a backup")
        self.assertGreater(resumed, 0, "nobody ever went on from a backup: the test tested nothing")

    def test_killed_trainer_is_named(self) -> None:
        self.launch_all(2, *EXAMPLES, "--backup-save-freq", "1")
        self.wait_for_backup()
        trainers = children(self.started[1].process.pid)
        self.assertEqual(list(trainers), [1])
        os.kill(trainers[1], signal.SIGKILL)
        for one in self.assert_ended(0):
            self.assertIn("worker 1 (rank 1): its trainer was killed by signal 9 (Killed)", one.stderr, str(one))
            self.assertIn("generation 2 begins", one.stderr, str(one))

    def test_sent_away(self) -> None:
        """SIGTERM, as Kubernetes sends it: all save, only that worker leaves, and goes on where it was."""
        for worker, self.default_program in ((1, "keras_mnist"), (0, "keras_mnist"), (1, "custom_training_mnist")):
            with self.subTest(worker=worker, program=self.default_program):
                whole = self.whole_run(2, *LONG)
                self.model = self.scratch / f"{self.default_program}_{worker}"
                options = (*LONG, "--backup-save-freq", "100000", "--verbose", "2")
                self.launch_all(2, *options)
                self.started[0].wait_for_output("Epoch 2")
                self.started[worker].process.terminate()
                left = self.started.pop(worker).end(15)
                self.assertEqual(left.code, TEMPORARY, str(left))
                self.assertTrue(self.has_backup(), "nothing was saved")
                self.launch(worker, options)
                ended = self.assert_ended(0)
                chiefs = str(left) + str(ended[0])
                self.assertIn(f"worker {worker} (rank {worker}) leaves: it was sent SIGTERM", chiefs)
                self.assertNotIn("is ended", chiefs)
                where = re.search(r"Leaving, as asked, before step (\d+) of epoch (\d+)", chiefs)
                assert where is not None, chiefs
                resumed = f"step {where[1]} of epoch {where[2]}/60" if where[1] != "1" else f"epoch {where[2]}/60"
                self.assertIn(f": {resumed}\n", chiefs, "no step is lost")
                self.assert_same_model(whole)

    def test_going_on_with_fewer(self) -> None:
        """--min-workers: one is lost, the others go on, and take it in when it is back, without a step done twice."""
        options = (*LONG, "--backup-save-freq", "5")
        limits = {"LOCKSTEP_MIN_WORKERS": "2", "LOCKSTEP_REJOIN_TIMEOUT": "1"}
        self.ports = free_ports(3)
        for index in range(3):
            self.launch(index, options, **limits)
        self.wait_for_backup()
        lost = self.started.pop(2)
        lost.process.kill()
        lost.process.wait()
        self.wait_for_message(0, "2 of 3 workers go on without worker 2 (")
        self.wait_for_message(0, "generation 2 begins, 2 ranks")
        time.sleep(1)
        self.launch(2, options, **limits)
        self.wait_for_message(0, "worker 2 is back; it is taken in at the next backup")
        self.wait_for_message(1, "generation 3 begins, 3 ranks")
        ended = self.assert_ended(0)
        chief = str(ended[0])
        left = re.search(r"Leaving, as asked, before step (\d+) of epoch (\d+)", chief)
        assert left is not None, chief
        self.assertIn(f": step {left[1]} of epoch {left[2]}/60" if left[1] != "1" else f": epoch {left[2]}/60", chief)
        compared = self.compare(self.whole_run(3, *LONG))
        differences = [float(text) for text in re.findall(r"by at most (\S+)", compared.stdout)]
        self.assertLess(max(differences, default=0), 1e-4, compared.stdout)
        self.assertNotIn("steps", compared.stdout)

    def test_wrong_option(self) -> None:
        began = time.monotonic()
        self.launch_all(3, "--epochs", "0")
        for one in self.assert_ended(USAGE):
            self.assertIn("ended with exit code 64, which no restart mends", one.errors[-1], str(one))
        self.assertLess(time.monotonic() - began, 20)

    def test_refused_options(self) -> None:
        for option, value, complaint in (("--mpi-ports", "5-4", "--mpi-ports is '5-4'"),
                                         ("--mpi-ports", "40000", "as 40000-40999"),
                                         ("--mpi-ports", "1-70000", "as 40000-40999"),
                                         ("--min-workers", "2", "TF_CONFIG lists 1 worker"),
                                         ("--leave-timeout", "0", "--leave-timeout must be")):
            with self.subTest(option=option, value=value):
                ended = Running([program("lockstep"), "launch", option, value, "--", "/bin/true"], self.cwd, {}).end()
                self.assertEqual(ended.code, USAGE, str(ended))
                self.assertIn(complaint, ended.stderr, str(ended))

    def test_another_job(self) -> None:
        self.ports = free_ports(2)
        self.launch(0, EXAMPLES, LOCKSTEP_JOB_NAME="mine", LOCKSTEP_RENDEZVOUS_TIMEOUT="3")
        self.launch(1, EXAMPLES, LOCKSTEP_JOB_NAME="another")
        stranger = self.started.pop(1).end()
        self.assertEqual(stranger.code, USAGE, str(stranger))
        self.assertIn("belongs to job 'another', this is job 'mine'", stranger.stderr)
        self.assert_ended(TEMPORARY)

    def test_missing_peer(self) -> None:
        self.ports = free_ports(3)
        for index in (0, 1):
            self.launch(index, EXAMPLES, LOCKSTEP_RENDEZVOUS_TIMEOUT="3")
        for one in self.assert_ended(TEMPORARY):
            self.assertGreaterEqual(one.stderr.count("waiting since"), 3, str(one))
            self.assertEqual(len(one.errors), 1, str(one))
            self.assertIn("not all workers came within 3 s (worker 2 (", one.errors[0], str(one))

    def test_missing_chief(self) -> None:
        self.ports = free_ports(2)
        self.launch(1, EXAMPLES, LOCKSTEP_RENDEZVOUS_TIMEOUT="2")
        self.assertIn("did not come within 2 s", self.assert_ended(TEMPORARY)[0].errors[0])
