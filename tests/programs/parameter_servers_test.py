"""Jobs with parameter servers: the bits of mirrored training, lost tasks, wrong tasks, and what else reaches their ports."""

import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from launch_test import EXAMPLES, Launched, children, free_ports
from model_file_support import COMPILED, SCALED, description
from support import MPIRUN, TEMPORARY, TIME_LIMIT_S, USAGE, Ended, Running, eventually, program

SHORT = ("--epochs", 3, *EXAMPLES[2:])
LONG = ("--epochs", 15, *EXAMPLES[2:])
LEAVING = ("--epochs", 60, *EXAMPLES[2:])  # long enough for two tasks to leave in its middle
SERVERS = ("--strategy", "parameter-server")


class WithServers(Launched):
    """Tasks are numbered: the workers, then the servers."""

    workers = 2
    has_chief = False  # the first worker is the task `chief`
    on_hosts = False  # each task acts as if on a host of its own

    def launch(self, index: int, options: Sequence[object], bare: bool = False, **environment: str) -> None:
        super().launch(index, options, bare, **environment | self.host_of(index))

    def host_of(self, index: int) -> dict[str, str]:
        return {"LOCKSTEP_SIMULATED_HOSTS": str(index)} if self.on_hosts else {}

    def tf_config(self, index: int) -> str:
        addresses = [f"localhost:{port}" for port in self.ports]
        chiefs = 1 if self.has_chief else 0
        cluster = {"worker": addresses[chiefs:self.workers], "ps": addresses[self.workers:]}
        if chiefs:
            cluster["chief"] = addresses[:1]
        kind, first = ("chief", 0) if index < chiefs else ("worker", chiefs) if index < self.workers else ("ps", self.workers)
        return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index - first}})

    def launch_job(self, workers: int, servers: int, *options: object, bare: bool = False, **environment: str) -> None:
        self.workers = workers
        self.launch_all(workers + servers, *SERVERS, *options, bare=bare, **environment)

    def mirrored(self, workers: int, *options: object, name: str = "") -> Path:
        """The model of mirrored training on one host."""
        launched, self.model = self.model, self.scratch / f"mirrored{workers}{name}"
        self.succeed(*options, "--parallelism", "data", "--backup-save-freq", "never", workers=workers,
                     name=name or self.default_program)
        whole, self.model = self.model / "model.h5", launched
        return whole

    def succeeded(self) -> list[Ended]:
        return self.assert_ended(0)

    def train(self, model: Path, directory: Path, *options: object) -> list[str]:
        return [program("lockstep"), "train", "--data-dir", str(self.data), "--model-dir", str(directory), "--model",
                str(model), *map(str, options)]

    def lose(self, victim: int, servers: int = 2, keeps_bits: bool = True, options: Sequence[object] = LONG) -> None:
        whole = self.mirrored(2, *LONG) if keeps_bits else None
        self.launch_job(2, servers, *options, "--backup-save-freq", 40)
        self.wait_for_backup()
        trainers = children(self.started[victim].process.pid)
        self.assertEqual(len(trainers), 1)
        os.kill(trainers[0], signal.SIGKILL)
        ended = self.assert_ended_with_restarts()
        names = ["worker 0", "worker 1", "ps 0", "ps 1"]
        told = "".join(one.stderr for index, one in enumerate(ended) if index != victim)
        self.assertIn(f"lost {names[victim]} (localhost:{self.ports[victim]})", told)
        self.assertIn("Resuming from", ended[0].stdout)
        if whole is not None:
            self.assert_same_model(whole)

    def assert_ended_with_restarts(self) -> list[Ended]:
        ended = self.end()
        self.assertEqual([one.code for one in ended], [0] * len(ended), "".join(map(str, ended)))
        return ended

    def wait_for_chief(self, text: str, count: int) -> None:
        """Waits until the chief has printed this text more than `count` times."""
        chief = self.started[0]
        eventually(lambda: chief.stdout.count(text) > count or chief.process.poll() is not None, TIME_LIMIT_S)
        printed = "\n".join(f"--- {task.command}\n{task.stdout}{task.stderr}" for task in self.started.values())
        self.assertGreater(chief.stdout.count(text), count, f"of '{text}' by the chief\n{printed}")

    def leave(self, *options: object) -> None:
        self.launch_job(2, 1, *options)
        for task in (2, 1):
            resumed = self.started[0].stdout.count("Resuming from")
            epochs = self.started[0].stdout.count("ms/step")
            self.wait_for_chief("ms/step", epochs)
            self.started[task].process.terminate()
            left = self.started.pop(task).end()
            self.assertEqual(left.code, TEMPORARY, str(left))
            self.launch(task, [*SERVERS, *options])
            self.wait_for_chief("Resuming from", resumed)
        ended = self.assert_ended_with_restarts()
        text = ended[0].stdout + ended[0].stderr
        left = re.findall(r"Leaving at the launcher's request (?:before|(after step \d+) of) epoch (\d+)", text)
        resumed_at = re.findall(r"Resuming from \S+: (?:(after step \d+) of )?epoch (\d+)/", text)
        self.assertEqual(len(left), 2, text)
        self.assertEqual(left, resumed_at, "no step may be lost")


class ParameterServersTest(WithServers):
    def test_bits_of_mirrored_training(self) -> None:
        for workers in (2, 3):
            whole = self.mirrored(workers, *SHORT)
            for servers in (1, 2):
                with self.subTest(workers=workers, servers=servers):
                    self.launch_job(workers, servers, *SHORT)
                    ended = self.succeeded()
                    self.assertIn(f"{workers} workers, {servers} parameter server", ended[0].stdout)
                    self.assert_same_model(whole)
                    self.assertEqual(list(self.model.glob("backup/*.h5")), [])

    def test_tasks_of_one_host_share_arenas(self) -> None:
        """And tasks of several hosts send them, with the same bits."""
        whole = self.mirrored(2, *LONG)
        for self.on_hosts in (False, True):
            with self.subTest(on_hosts=self.on_hosts):
                self.launch_job(2, 1, *LONG, "--backup-save-freq", 40)
                self.wait_for_backup()
                trainers = children(self.started[2].process.pid)
                maps = Path(f"/proc/{trainers[0]}/maps").read_text()
                arenas = set(re.findall(r"/memfd:lockstep \w+", maps))
                self.assertEqual(len(arenas), 1 if self.on_hosts else 3, maps)
                self.succeeded()
                self.assert_same_model(whole)
                communication = self.history()["world"]["communication"]
                self.assertEqual("one copy of the weights in shared memory" in communication, not self.on_hosts)

    def test_tasks_of_several_hosts(self) -> None:
        """Arenas that are sent: with two servers, Adam's slots, and a lost server."""
        self.on_hosts = True
        self.test_optimizer_state_lies_on_the_servers()
        self.lose(2)

    def test_placement_changes_no_bits(self) -> None:
        whole = self.mirrored(2, *SHORT)
        for placement in ("greedy", "partitioned", "fixed-shards:3", "max-size:4096"):
            with self.subTest(placement):
                self.launch_job(2, 2, *SHORT, "--ps-placement", placement)
                self.succeeded()
                self.assert_same_model(whole)

    def test_a_program_starts_its_launcher_itself(self) -> None:
        """With one worker, whose servers are the only other tasks."""
        whole = self.mirrored(1, *SHORT)
        self.launch_job(1, 1, *SHORT, bare=True)
        self.succeeded()
        self.assert_same_model(whole)

    def test_optimizer_state_lies_on_the_servers(self) -> None:
        """Adam's slots, which backups and models fetch."""
        start = self.mirrored(1, *SHORT)
        options = (*SHORT, "--optimizer", "adam", "--learning-rate", 0.01)
        for more in ((), ("--backup-save-freq", 30)):
            with self.subTest(more):
                whole = self.scratch / "adam"
                ended = Running([str(MPIRUN), "-np", "2", *self.train(start, whole, *options, "--parallelism", "data")],
                                self.cwd, {}).end()
                self.assertEqual(ended.code, 0, str(ended))
                self.workers, self.ports = 2, free_ports(4)
                for index in reversed(range(4)):
                    self.started[index] = Running(
                        [program("lockstep"), "launch", "--", *self.train(start, self.model, *SERVERS, *options, *more)],
                        self.cwd, {"TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret"} |
                        self.host_of(index))
                self.assert_ended_with_restarts()
                names = [path.name for path in whole.glob("model.*")]
                self.assertTrue(names)
                for name in names:
                    self.assertEqual((self.model / name).read_bytes(), (whole / name).read_bytes(), name)

    def test_a_lost_worker(self) -> None:
        self.lose(1)

    def test_a_lost_chief(self) -> None:
        self.lose(0)

    def test_a_lost_server(self) -> None:
        self.lose(2)

    def test_the_other_lost_server(self) -> None:
        self.lose(3)

    def test_leaving(self) -> None:
        """A server and a worker that are told to leave lose no step; the others wait until they come back."""
        whole = self.mirrored(2, *LEAVING)
        self.leave(*LEAVING)
        self.assert_same_model(whole)

    def test_batch_normalization_on_fewer_workers(self) -> None:
        """Servers cannot serve a model of other replicas than it was compiled with: the job says so and goes on."""
        self.launch_normalized(2)
        self.wait_for_backup()
        for task in self.started.values():
            task.process.terminate()
        self.assertEqual({task.code for task in self.end()}, {TEMPORARY})
        self.launch_normalized(1)
        chief = self.assert_ended_with_restarts()[0]
        self.assertIn("Resuming from", chief.stdout)
        self.assertIn("BatchNormalization were 2 when the backup was written and are 1 now", chief.stderr)

    def test_synchronized_batch_normalization(self) -> None:
        self.launch_normalized(2, synchronized=True)
        for task in self.end():
            self.assertEqual(task.code, USAGE)
            self.assertIn("'layer_2' (BatchNormalization) has synchronized=True", task.stderr)

    def launch_normalized(self, workers: int, **options: object) -> None:
        model = self.scratch / "normalized.json"
        model.write_text(description(("Flatten", {}), ("Dense", {"units": 12}), ("BatchNormalization", options),
                                     ("Dense", {"units": 10})))
        self.workers, self.ports = workers, free_ports(workers + 1)
        command = self.train(model, self.model, *COMPILED, *SCALED, *SERVERS, *LEAVING, "--backup-save-freq", 20)
        for index in range(workers + 1):
            self.started[index] = Running([program("lockstep"), "launch", "--", *command], self.cwd,
                                          {"TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret"})

    def test_a_task_that_is_killed_when_the_job_is_over(self) -> None:
        """Nobody could meet its successor."""
        start = self.mirrored(1, *SHORT)
        faulty = program("lockstep_with_faults")
        for victim in range(3):
            self.workers, self.ports = 2, free_ports(3)
            self.model = self.scratch / f"model{victim}"
            for index in range(3):
                fault = {"LOCKSTEP_TEST_FAULT_POINT": f"finished 1 kill {self.scratch / f'marker{victim}'}",
                         "LOCKSTEP_TEST_RANK": "0"}
                command = [faulty, "launch", "--", faulty, *self.train(start, self.model, *SERVERS, *SHORT)[1:]]
                self.started[index] = Running(command, self.cwd, {
                    "TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret"} | (fault if index == victim else {}))
            ended = self.succeeded()
            self.assertTrue((self.scratch / f"marker{victim}").exists(), ended[victim])
            self.assertNotIn("restart", "".join(one.stderr for one in ended))

    def test_a_stopped_pmix_server_is_detected_from_its_start(self) -> None:
        """Before there is a trainer, too."""
        self.workers, self.ports = 1, free_ports(2)
        options = ["--stall-timeout", "1", "--max-restarts", "3", "--", *self.command(*SERVERS, *SHORT)]
        for index in (0, 1):
            self.started[index] = Running([program("lockstep"), "launch", *options], self.cwd, {
                "TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret"})
        launcher = self.started[1].process.pid
        listed = Path(f"/proc/{launcher}/task/{launcher}/children")

        def server() -> int:
            """Once it runs its own program: posix_spawn() waits for that."""
            for child in listed.read_text().split():
                if b"pmix-server" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
            return 0

        self.assertTrue(eventually(lambda: server() > 0, 10, 0))
        os.kill(server(), signal.SIGSTOP)
        ended = self.assert_ended_with_restarts()
        self.assertIn("ps 0: the PMIx server was stopped (SIGSTOP)", ended[1].stderr)

    def test_a_launcher_that_knows_of_servers_runs_no_other_program(self) -> None:
        """Each task would train alone."""
        self.workers, self.ports = 2, free_ports(3)
        start = self.mirrored(1, *SHORT)
        train = self.train(start, self.model, *SHORT)
        evaluate = [program("lockstep"), "evaluate", "--data-dir", str(self.data), "--model", str(start)]
        for command in (["sh", "-c", 'exec "$@" --strategy=mirrored', "sh", *train], evaluate):
            ended = Running([program("lockstep"), "launch", "--", *command], self.cwd, {
                "TF_CONFIG": self.tf_config(0), "LOCKSTEP_STRATEGY": "parameter-server",
                "LOCKSTEP_JOB_TOKEN": "a secret"}).end()
            self.assertEqual(ended.code, USAGE, str(ended))
            self.assertIn("told of parameter servers (LOCKSTEP_STRATEGY), but this program does not use them", ended.stderr)

    def test_tasks_that_disagree(self) -> None:
        self.workers, self.ports = 2, free_ports(3)
        for index in range(3):
            placement = "greedy" if index == 2 else "round-robin"
            self.launch(index, [*SERVERS, *SHORT, "--ps-placement", placement])
        for one in self.end():
            self.assertEqual(one.code, USAGE, str(one))
            self.assertIn("the tasks disagree about --ps-placement: worker 0 has round-robin, ps 0 has greedy", one.stderr)

    def test_a_missing_server(self) -> None:
        self.workers, self.ports = 1, free_ports(3)
        command = [program("lockstep"), "launch", "--rendezvous-timeout", "1", "--", *self.command(*SERVERS, *SHORT)]
        for index in (0, 1):
            self.started[index] = Running(command, self.cwd, {"TF_CONFIG": self.tf_config(index)})
        worker, server = self.end()
        for one in (worker, server):
            self.assertEqual(one.code, TEMPORARY, str(one))
            self.assertNotIn("restart 1", one.stderr, "the time is for all of them")
            self.assertIn("timed out after 1 s (--rendezvous-timeout) waiting for", one.stderr)
        self.assertIn(f"ps 1 (localhost:{self.ports[2]}): connection refused: no server runs there yet", worker.stderr)
        self.assertIn(f"ps 1 (localhost:{self.ports[2]})", server.stderr)

    def test_another_token(self) -> None:
        self.workers, self.ports = 1, free_ports(2)
        command = [program("lockstep"), "launch", "--rendezvous-timeout", "2", "--max-restarts", "0", "--",
                   *self.command(*SERVERS, *SHORT)]
        for index in (0, 1):
            self.started[index] = Running(command, self.cwd, {
                "TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": f"the secret of task {index}"})
        worker, server = self.end()
        self.assertIn("worker 0 on host", worker.stderr)
        self.assertIn("has a different job token than ps 0", worker.stderr)
        self.assertIn("has a different job token than ps 0", server.stderr)
        self.assertEqual([worker.code, server.code], [TEMPORARY, TEMPORARY])

    def test_junk_ends_no_server(self) -> None:
        """Before the workers come, and while they train."""
        whole = self.mirrored(2, *LONG)
        self.workers, self.ports = 2, free_ports(3)
        self.launch(2, [*SERVERS, *LONG])
        junk: Sequence[bytes] = (b"", b"GET / HTTP/1.1\r\n\r\n", b"LSTP\x01\x00\x3c\x00\xff\xff\xff\xff", os.urandom(5000),
                                 b"LSTP\x01\x00\x3c\x00\x18\x00\x00\x00" + bytes(24), b"LSTP\x09\x00\x01\x00\x00\x00\x00\x00")
        kept = []

        def send_junk() -> bool:
            try:
                for each in junk:
                    connection = socket.create_connection(("localhost", self.ports[2]), 5)
                    connection.sendall(each)
                    kept.append(connection)
            except OSError:
                return False
            return True

        self.assertTrue(eventually(send_junk, 30))
        for index in (0, 1):
            self.launch(index, [*SERVERS, *LONG])
        self.wait_for_backup()
        sent = sum(send_junk() for _ in range(20))
        self.assertGreater(sent, 0)
        self.assert_ended_with_restarts()
        for connection in kept:
            connection.close()
        self.assert_same_model(whole)

    def test_strategy_without_servers(self) -> None:
        alone = self.run_program(*SERVERS, *SHORT)
        self.assert_fails(alone, USAGE, "--strategy parameter-server needs a cluster with ps and worker tasks")
        self.workers, self.ports = 2, free_ports(2)
        config = json.loads(self.tf_config(0))
        del config["cluster"]["ps"]
        without = self.run_program(*SERVERS, *SHORT, TF_CONFIG=json.dumps(config))
        self.assert_fails(without, USAGE, "TF_CONFIG's cluster lists no ps")
        for option in (("--parallelism", "tensor"), ("--gradient-compression", "bfloat16"), ("--device", "cuda"),
                       ("--ps-placement", "anywhere")):
            with self.subTest(option):
                refused = self.run_program(*SERVERS, *SHORT, *option)
                self.assert_fails(refused, USAGE, option[1] if option[0] == "--ps-placement" else option[0])

    def test_plan_shows_the_servers(self) -> None:
        model = self.mirrored(1, *SHORT)
        shown = {}
        for placement in ("round-robin", "greedy"):
            ended = Running([program("lockstep"), "plan", "--model", str(model), "--servers", "2", "--ps-placement",
                             placement], self.cwd, {}).end()
            self.assertEqual(ended.code, 0, str(ended))
            shown[placement] = ended.stdout
            self.assertEqual([line.split(":")[0] for line in ended.stdout.splitlines() if line.startswith("ps ")],
                             ["ps 0", "ps 1"])
            self.assertIn("dense/kernel", ended.stdout)
        self.assertNotEqual(shown["round-robin"], shown["greedy"])
        for options, words in ((["--ps-placement", "greedy"], "--ps-placement is of parameter servers; add --servers"),
                               (["--servers", "2", "--kernels"], "--servers and --kernels"),
                               (["--servers", "2", "--ps-placement", "max-size"], "max-size:BYTES")):
            with self.subTest(options):
                ended = Running([program("lockstep"), "plan", "--model", str(model), *options], self.cwd, {}).end()
                self.assert_fails(ended, USAGE, words)
