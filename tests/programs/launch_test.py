"""Workers of a TF_CONFIG form a world: in any order, after kills, with missing peers, with invalid options.

One file, because all tests share its launchers. For many kills: tests/programs/run.py BUILD_DIR launch.LaunchTest.test_random_kills --count 100 [--seed 2]
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support import IO, TEMPORARY, USAGE, Ended, ProgramTest, Running, clean_environment, count, eventually, program, seed

EXAMPLES = ("--epochs", 10, "--steps-per-epoch", 20, "--global-batch-size", 24, "--seed", 5, "--deterministic")
LONG = ("--epochs", 60, *EXAMPLES[2:])

# Writes the process id of its tracer, or -1 if it cannot be traced.
HELD_TRAINER = """
import ctypes, os, pathlib, time
SEIZE, PR_SET_PTRACER, ANY = 0x4206, 0x59616d61, -1
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
held = os.getpid()
libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY), 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(os.open("/dev/null", os.O_WRONLY), descriptor)
    traces = libc.ptrace(SEIZE, held, None, None) == 0
    pathlib.Path(__file__).with_name("tracer").write_text(f"{os.getpid() if traces else -1}\\n")
    time.sleep(600 if traces else 0)
    os._exit(0)
time.sleep(600)
"""


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
        except (OSError, IndexError):  # the process has exited
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


def listening_addresses(pid: int) -> list[str]:
    """As in /proc/net/tcp."""
    sockets = {os.readlink(entry).removeprefix("socket:[").rstrip("]") for entry in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [line.split() for table in ("tcp", "tcp6") for line in
             Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return [line[1] for line in lines if line[3] == "0A" and line[9] in sockets]


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
            "TF_CONFIG": self.tf_config(index), "TMPDIR": str(self.left), "LOCKSTEP_REPORT_INTERVAL": "0.5",
            "LOCKSTEP_JOB_TOKEN": "a secret", "OMPI_MCA_mpi_yield_when_idle": "1"} | environment)

    def launch_all(self, workers: int, *options: object, bare: bool = False, **environment: str) -> None:
        self.ports = free_ports(workers)
        for index in reversed(range(workers)):
            self.launch(index, options, bare, **environment)

    def end(self) -> list[Ended]:
        return [self.started.pop(index).end() for index in sorted(self.started)]

    def assert_ended(self, code: int) -> list[Ended]:
        ended = self.end()
        everything = "".join(str(one) for one in ended)
        self.assertEqual([one.code for one in ended], [code] * len(ended), everything)
        self.assertEqual(list(self.left.iterdir()), [], "TMPDIR must be empty")
        return ended

    def whole_run(self, workers: int, *options: object) -> Path:
        """The model of an undisturbed run under mpirun."""
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
        self.assertTrue(eventually(lambda: text in running.stderr, 30), f"'{text}' was not printed: {running.stderr}")

    def assert_no_step_lost(self, text: str) -> None:
        """The job resumes where its ranks left."""
        left = re.search(r"Leaving at the launcher's request (before|after step \d+ of) epoch (\d+)", text)
        assert left is not None, text
        where = "" if left[1] == "before" else left[1] + " "
        self.assertIn(f": {where}epoch {left[2]}/60\n", text, "no step may be lost")

    def has_backup(self) -> bool:
        return any(self.model.glob("backup/fit-1-step-*.h5"))

    def wait_for_backup(self) -> None:
        self.assertTrue(eventually(self.has_backup, 30), "no backup came")


class LaunchTest(Launched):
    def test_workers_may_start_in_any_order(self) -> None:
        self.ports = free_ports(3)
        for index in (2, 0, 1):
            # A machine that is busy takes seconds to start MPI, which launchers report.
            self.launch(index, EXAMPLES, LOCKSTEP_REPORT_INTERVAL="60")
            time.sleep(0.3)
        ended = self.assert_ended(0)
        self.assertIn("3 workers", ended[0].stdout)
        self.assertEqual(ended[1].stdout + ended[1].stderr,
                         "rank 1 of 3 started; rank 0, on localhost, prints the progress\n")
        self.assert_same_model(self.whole_run(3))

    def test_a_program_starts_its_launcher_itself(self) -> None:
        self.launch_all(2, *EXAMPLES, bare=True)
        ended = self.assert_ended(0)
        self.assertIn("2 workers", ended[0].stdout)
        self.assert_same_model(self.whole_run(2))

    def test_options_of_tensorflow_1_describe_the_workers(self) -> None:
        """Given to the program itself, and to the launcher."""
        self.ports = free_ports(2)
        hosts = ",".join(f"localhost:{port}" for port in self.ports)
        tasks = [["--job_name=worker", f"--task_index={index}", "--worker_hosts", hosts, "--ps_hosts="] for index in range(2)]
        variables = {"TF_CONFIG": "", "LOCKSTEP_JOB_TOKEN": "a secret of this job"}
        self.launch(0, [*EXAMPLES, *tasks[0]], bare=True, **variables)
        command = [program("lockstep"), "launch", *tasks[1], "--", *self.command(*EXAMPLES)]
        self.started[1] = Running(command, self.cwd, {"TMPDIR": str(self.left)} | variables)
        ended = self.assert_ended(0)
        self.assertIn("2 workers", ended[0].stdout)
        self.assert_same_model(self.whole_run(2))
        ps = self.run_program(*EXAMPLES, "--job_name=ps", *tasks[0][1:-1], "--ps_hosts=localhost:1")
        self.assert_fails(ps, USAGE, "task is of type 'ps', which is not supported")
        after = Running([program("lockstep"), "launch", "--", *self.command(*EXAMPLES, *tasks[0])], self.cwd, {}).end()
        self.assertEqual(after.code, USAGE, str(after))
        self.assertIn("give them to lockstep launch, before --", after.stderr)

    def test_cluster_config_describes_the_workers(self) -> None:
        self.ports = free_ports(2)
        described = json.dumps({"worker": [f"localhost:{port}" for port in self.ports]})
        for index in range(2):
            variables = {"CLUSTER_CONFIG": described, "JOB_COMPLETION_INDEX": str(index), "TF_CONFIG": ""}
            self.launch(index, EXAMPLES, **variables)
        ended = self.assert_ended(0)
        self.assertIn("2 workers", ended[0].stdout)
        self.assert_same_model(self.whole_run(2))

    def test_trainers_are_told_tf_config(self) -> None:
        """What the launcher made of CLUSTER_CONFIG; a TF_CONFIG of the user's own is left as it is."""
        own = '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}, "rpc_layer": "grpc"}'
        made = '{"cluster":{"worker":["w-0:1"]},"task":{"index":0,"type":"worker"}}'
        described = {"CLUSTER_CONFIG": '{"worker": {"address": "w-{}:1", "count": 1}}', "POD_NAME": "w-0-x7k2p"}
        for variables, expected in (({"TF_CONFIG": own}, own), (described, made)):
            command = [program("lockstep"), "launch", "--", "sh", "-c", 'echo "$TF_CONFIG"']
            ended = Running(command, self.cwd, variables).end()
            self.assertEqual((ended.code, ended.stdout.strip()), (0, expected), str(ended))

    def test_several_hosts_need_a_token(self) -> None:
        port, = free_ports(1)
        hosts = {"cluster": {"worker": [f"localhost:{port}", "127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}
        for options, code, complaint in (((), USAGE, "no job token is set, so anyone who reaches the chief's port"),
                                         (("--insecure",), TEMPORARY, f"anyone who reaches port {port} can join")):
            with self.subTest(options=options):
                command = [program("lockstep"), "launch", "--rendezvous-timeout", "1", *options, "--", "/bin/true"]
                ended = Running(command, self.cwd, {"TF_CONFIG": json.dumps(hosts)}).end()
                self.assertEqual(ended.code, code, str(ended))
                self.assertIn(complaint, ended.stderr, str(ended))

    def test_trainers_do_not_see_the_token(self) -> None:
        """A short one is warned of."""
        for token in ("short", "long enough to be a secret"):
            with self.subTest(token=token):
                command = [program("lockstep"), "launch", "--", "env"]
                ended = Running(command, self.cwd, {"LOCKSTEP_JOB_TOKEN": token}).end()
                self.assertEqual(ended.code, 0, str(ended))
                self.assertIn("LOCKSTEP_LAUNCH_ID=", ended.stdout)
                self.assertNotIn("LOCKSTEP_JOB_TOKEN", ended.stdout)
                self.assertNotIn(token + "\n", ended.stdout)
                self.assertEqual("the job token has fewer than 16 characters" in ended.stderr, token == "short")

    def test_variables_that_another_launcher_left_over_are_refused(self) -> None:
        """Otherwise each worker would train alone, and all would end with 0."""
        self.ports = [23000, 23001]
        left_over = {"PMIX_RANK": "0", "PMI_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "LOCKSTEP_CONTROL_FD": ""}
        for variable, value in left_over.items():
            with self.subTest(variable=variable):
                command = self.command(*EXAMPLES)
                ended = Running(command, self.cwd, {"TF_CONFIG": self.tf_config(0), variable: value}).end()
                self.assertEqual(ended.code, USAGE, str(ended))
                self.assertIn(f"because {variable}='{value}' says that a launcher started it", ended.stderr)

    def test_more_threads_than_a_machine_can_have_are_refused(self) -> None:
        ended = Running(self.command(*EXAMPLES), self.cwd, {"OMP_NUM_THREADS": "100000"}).end()
        self.assertEqual(ended.code, USAGE, str(ended))
        self.assertIn("OMP_NUM_THREADS is 100000, more than the", ended.stderr)

    def test_a_program_without_launcher_names_the_remedy(self) -> None:
        """A program that is not beside `lockstep` cannot start a launcher."""
        alone = self.scratch / "keras_mnist"
        alone.write_bytes(Path(program("keras_mnist")).read_bytes())
        alone.chmod(0o755)
        self.ports = [23000, 23001]
        ended = Running([str(alone)], self.cwd, {"TF_CONFIG": self.tf_config(1), "PATH": "/nowhere"}).end()
        self.assertEqual(ended.code, USAGE, str(ended))
        self.assertIn("error: TF_CONFIG lists 2 workers", ended.stderr)
        self.assertIn("start all workers with mpirun", ended.stderr)

    def test_one_launcher_without_tf_config_starts_all_ranks(self) -> None:
        ended = Running([program("lockstep"), "launch", "--ranks-per-worker", "2", "--", *self.command(*EXAMPLES)],
                        self.cwd, {"TMPDIR": str(self.left)}).end()
        self.assertEqual((ended.code, ended.stderr), (0, ""), str(ended))
        self.assert_same_model(self.whole_run(2))

    def test_variables_of_the_job_around_a_launcher_change_nothing(self) -> None:
        left_over = {"LOCKSTEP_MEMBER_ADDRESSES": "10.0.0.1", "TMPDIR": str(self.left)}
        ended = Running([program("lockstep"), "launch", "--ranks-per-worker", "2", "--start-timeout", "60", "--",
                         *self.command(*EXAMPLES)], self.cwd, left_over).end()
        self.assertEqual(ended.code, 0, str(ended))
        report = self.scratch / "report.html"
        ended = Running(self.command(*EXAMPLES), self.cwd, {"LOCKSTEP_LIVE_REPORT": str(report)}).end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertFalse(report.exists())

    def test_runs_as_pid_1(self) -> None:
        """As process 1 of a container the launcher reaps orphans and exits with the program's exit code."""
        inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        tried = subprocess.run([*inside, "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"cannot create a pid namespace ({tried.stderr.strip()})")
        script = "(setsid sleep 0.1 &); sleep 0.6; cat /proc/1/comm; cat /proc/[0-9]*/stat | grep -c ' Z '; exit 64"
        ended = Running([*inside, program("lockstep"), "launch", "--", "/bin/sh", "-c", script], self.cwd,
                        {"TMPDIR": str(self.left)}).end()
        self.assertEqual((ended.code, ended.stdout), (USAGE, "lockstep\n0\n"), str(ended))

    def test_random_kills(self) -> None:
        """Kills trainers and launchers at random and restarts the launchers."""
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
                        pass  # the process has exited
                elif launcher.poll() is None and trainers:
                    launcher.kill()
                    launcher.wait()
                    self.assertTrue(eventually(lambda: not any(is_there(pid) for pid in trainers)),
                                    "trainers must not outlive their launcher")
                    self.launch(index, options)
            ended = self.end()
            everything = "".join(str(one) for one in ended)
            resumed += "Resuming from" in everything
            with self.subTest(seed=seed(), kills=done):
                self.assertEqual([one.code for one in ended], [0, 0, 0], everything)
                self.assert_same_model(whole)
        print(f"{done} kills, seed {seed()}; {resumed} runs resumed from a backup")
        self.assertGreater(resumed, 0, "no run resumed from a backup, so nothing was tested")

    def test_killed_trainer_is_named(self) -> None:
        self.launch_all(2, *EXAMPLES, "--backup-save-freq", "1")
        self.wait_for_backup()
        trainers = children(self.started[1].process.pid)
        self.assertEqual(list(trainers), [1])
        os.kill(trainers[1], signal.SIGKILL)
        ended = self.assert_ended(0)
        for one in ended:
            self.assertIn("worker 1 (rank 1): its trainer was killed by signal 9 (Killed)", one.stderr, str(one))
            self.assertIn("generation 2 begins", one.stderr, str(one))
        measured, restarted = re.findall(r"Parallelism: (.*)", ended[0].stdout)
        self.assertIn("(predicted step: ", measured)
        self.assertEqual(restarted, measured.partition(" (")[0] + " (as before the restart):")

    def test_a_closed_pipe_is_named(self) -> None:
        command = [program("lockstep"), "launch", "--workers", "2", "--", *self.command(*EXAMPLES)]
        log = self.scratch / "log"
        with log.open("wb") as errors:
            launch = subprocess.Popen(command, cwd=self.cwd, env=clean_environment({}), stdout=subprocess.PIPE, stderr=errors)
            assert launch.stdout is not None
            launch.stdout.close()
            self.assertEqual(launch.wait(60), IO, log.read_text())
        self.assertNotIn("generation 2", log.read_text())
        self.assertIn("a write to a pipe that nothing reads any more; keep the pipe's reader running", log.read_text())

    def test_a_launcher_does_not_wait_for_a_trainer_that_sigkill_does_not_end(self) -> None:
        """As in uninterruptible sleep: the launcher cannot reap a trainer that another process traces."""
        script = self.scratch / "held.py"
        script.write_text(HELD_TRAINER)
        running = Running([program("lockstep"), "launch", "--", sys.executable, str(script)], self.cwd,
                          {"TMPDIR": str(self.left), "LOCKSTEP_REPORT_INTERVAL": "4"})
        self.started[0] = running
        tracer = self.scratch / "tracer"
        self.assertTrue(eventually(lambda: tracer.exists() and tracer.read_text().endswith("\n")), "no tracer came")
        pid = int(tracer.read_text())
        if pid < 0:
            self.skipTest("processes may not trace each other here")
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        running.process.send_signal(signal.SIGTERM)
        ended = self.started.pop(0).end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        self.assertRegex(ended.stderr, r"warning: the trainer of rank 0 was killed but has not ended: its process is in state ")
        self.assertRegex(ended.stderr, r"warning: the trainer of rank 0 \(process \d+\) was killed but has not ended: it is "
                                       r"in state .*; leaving it behind; check the host's disks and network file systems")

    def test_resume_never_starts_over_once(self) -> None:
        """A restart by the launcher resumes from the job's own backups."""
        whole = self.whole_run(2)
        self.launch_all(2, *EXAMPLES, "--backup-save-freq", "1", "--resume", "never")
        self.wait_for_backup()
        os.kill(children(self.started[1].process.pid)[1], signal.SIGKILL)
        ended = self.assert_ended(0)
        self.assertIn("generation 2 begins", ended[0].stderr, str(ended[0]))
        self.assertIn("Resuming from", ended[0].stdout, str(ended[0]))
        self.assert_same_model(whole)

    def test_a_second_job_in_the_same_directory_is_refused(self) -> None:
        whole = self.whole_run(2, *LONG)
        self.launch_all(2, *LONG, "--backup-save-freq", "5")
        self.wait_for_backup()
        second = Running(self.command(*EXAMPLES), self.cwd, {"TMPDIR": str(self.left)}).end()
        self.assertEqual(second.code, TEMPORARY, str(second))
        for words in (str(self.model), "belongs to job", "keras_mnist on", "generation 1", "choose another directory"):
            self.assertIn(words, second.stderr)
        third = Running([program("lockstep"), "launch", "--workers", "2", "--", *self.command(*EXAMPLES)], self.cwd,
                        {"TMPDIR": str(self.left)}).end()
        self.assertEqual(third.code, USAGE, str(third))
        self.assertIn("belongs to job", third.stderr)
        self.assert_ended(0)
        self.assert_same_model(whole)
        self.assertTrue(json.loads((self.model / ".lockstep.lock").read_text())["has_finished"])

    def test_ranks_of_one_host_listen_nowhere(self) -> None:
        self.ports = free_ports(1)
        self.launch(0, [*LONG, "--backup-save-freq", "5"], LOCKSTEP_RANKS_PER_WORKER="2")
        self.wait_for_backup()
        launcher = self.started[0].process.pid
        trainers = children(launcher)
        self.assertEqual(len(trainers), 2)
        for pid in trainers.values():
            self.assertEqual(listening_addresses(pid), [])
        self.assertEqual(listening_addresses(launcher), [f"0100007F:{self.ports[0]:04X}"])  # 127.0.0.1, no other host
        self.assert_ended(0)

    def test_a_restarted_chief_knows_that_its_job_has_finished(self) -> None:
        job = {"LOCKSTEP_JOB_ID": "7c1e", "MODEL_DIR": str(self.model), "LOCKSTEP_RENDEZVOUS_TIMEOUT": "20"}
        self.launch_all(2, *EXAMPLES, **job)
        self.assert_ended(0)
        before = (self.model / "model.h5").stat()
        self.launch(0, EXAMPLES, **job)  # its pod died before its exit code was known; worker 1 has completed
        self.wait_for_message(0, "job 7c1e has finished already")
        # As did this one, which does not see the chief's directory.
        self.launch(1, EXAMPLES, **job | {"MODEL_DIR": str(self.scratch / "elsewhere")})
        self.assert_ended(0)
        self.assertEqual((self.model / "model.h5").stat(), before)
        self.launch_all(2, *EXAMPLES, **job | {"LOCKSTEP_JOB_ID": "8a22"})
        self.assert_ended(0)
        self.assertNotEqual((self.model / "model.h5").stat().st_ino, before.st_ino)

    def test_a_restarted_worker_knows_that_its_job_has_finished(self) -> None:
        job = {"LOCKSTEP_JOB_ID": "7c1e", "MODEL_DIR": str(self.model), "LOCKSTEP_RENDEZVOUS_TIMEOUT": "20"}
        self.launch_all(2, *EXAMPLES, **job)
        self.assert_ended(0)
        self.launch(1, EXAMPLES, **job)  # its pod died before its exit code was known; the chief has completed
        self.assertIn("job 7c1e has finished already", self.assert_ended(0)[0].stderr)

    def test_after_sigterm_all_save_and_only_that_worker_leaves(self) -> None:
        """After SIGTERM, as from Kubernetes, all ranks save, only that worker leaves, and training resumes at that
        step."""
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
                self.assertIn(f"worker {worker} (rank {worker}) leaves: it received SIGTERM", chiefs)
                self.assertNotIn("is ended", chiefs)
                self.assert_no_step_lost(chiefs)
                self.assert_same_model(whole)

    def test_continuing_with_fewer_workers(self) -> None:
        """With --min-workers the others continue without a lost worker and readmit it; no step is repeated."""
        options = (*LONG, "--backup-save-freq", "5")
        limits = {"LOCKSTEP_MIN_WORKERS": "2", "LOCKSTEP_REJOIN_TIMEOUT": "1"}
        self.ports = free_ports(3)
        for index in range(3):
            self.launch(index, options, **limits)
        self.wait_for_backup()
        lost = self.started.pop(2)
        lost.process.kill()
        lost.process.wait()
        self.wait_for_message(0, "2 of 3 workers continue without worker 2 (")
        self.wait_for_message(0, "generation 2 begins, 2 ranks")
        time.sleep(1)
        self.launch(2, options, **limits)
        self.wait_for_message(0, "worker 2 is back and joins after the next backup")
        self.wait_for_message(1, "generation 3 begins, 3 ranks")
        ended = self.assert_ended(0)
        chief = str(ended[0])
        self.assert_no_step_lost(chief)
        compared = self.compare(self.whole_run(3, *LONG))
        differences = [float(text) for text in re.findall(r"by at most (\S+)", compared.stdout)]
        self.assertLess(max(differences, default=0), 1e-4, compared.stdout)
        self.assertNotIn("steps", compared.stdout)

    def test_an_invalid_program_option_ends_all_workers(self) -> None:
        began = time.monotonic()
        self.launch_all(3, "--epochs", "0")
        for one in self.assert_ended(USAGE):
            self.assertIn("ended with exit code 64, which a restart cannot fix", one.errors[-1], str(one))
        self.assertLess(time.monotonic() - began, 20)

    def test_the_error_of_one_worker_is_printed_by_all(self) -> None:
        self.ports = free_ports(2)
        self.launch(1, (*EXAMPLES, "--data-dir", self.scratch / "absent"))
        self.launch(0, EXAMPLES)
        for one in self.assert_ended(USAGE):
            self.assertRegex(one.errors[-1], r"worker 1.*ended with exit code 64 \(.*absent.*\), which a restart cannot fix")

    def test_invalid_launcher_options_are_rejected(self) -> None:
        for option, value, complaint in (("--mpi-ports", "5-4", "--mpi-ports is '5-4'"),
                                         ("--mpi-ports", "40000", "as 40000-40999"),
                                         ("--mpi-ports", "1-70000", "as 40000-40999"),
                                         ("--min-workers", "2", "TF_CONFIG lists 1 worker"),
                                         ("--leave-timeout", "0", "--leave-timeout is '0' but must be")):
            with self.subTest(option=option, value=value):
                ended = Running([program("lockstep"), "launch", option, value, "--", "/bin/true"], self.cwd, {}).end()
                self.assertEqual(ended.code, USAGE, str(ended))
                self.assertIn(complaint, ended.stderr, str(ended))

    def test_a_worker_of_another_job_is_rejected(self) -> None:
        self.ports = free_ports(2)
        self.launch(0, EXAMPLES, LOCKSTEP_JOB_NAME="mine", LOCKSTEP_RENDEZVOUS_TIMEOUT="3")
        # It has a token, so it cannot know that the refusal comes from its own chief.
        self.launch(1, EXAMPLES, LOCKSTEP_JOB_NAME="another", LOCKSTEP_RENDEZVOUS_TIMEOUT="2")
        rejected = self.started.pop(1).end()
        self.assertEqual(rejected.code, TEMPORARY, str(rejected))
        self.assertIn("belongs to job 'another', this is job 'mine'", rejected.stderr)
        self.assert_ended(TEMPORARY)

    def test_a_missing_worker_is_named(self) -> None:
        self.ports = free_ports(3)
        for index in (0, 1):
            self.launch(index, EXAMPLES, LOCKSTEP_RENDEZVOUS_TIMEOUT="3")
        for one in self.assert_ended(TEMPORARY):
            self.assertGreaterEqual(one.stderr.count("still waiting after"), 3, str(one))
            self.assertEqual(len(one.errors), 1, str(one))
            self.assertIn("not all workers connected within 3 s (worker 2 (", one.errors[0], str(one))

    def test_a_missing_chief_is_reported(self) -> None:
        self.ports = free_ports(2)
        self.launch(1, EXAMPLES, LOCKSTEP_RENDEZVOUS_TIMEOUT="2")
        self.assertIn("did not accept a connection within 2 s", self.assert_ended(TEMPORARY)[0].errors[0])
