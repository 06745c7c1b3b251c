"""Parameter servers whose steps are not those of all workers: asynchronous ones, and those of the first gradients."""

import contextlib
import math
import os
import random
import signal
import time
from typing import Any

import status_port
from launch_test import children, free_ports, is_there
from parameter_servers_test import LEAVING, LONG, SERVERS, SHORT, WithServers
from support import TEMPORARY, USAGE, Running, count, eventually, program, seed

ASYNCHRONOUS = ("--ps-mode", "asynchronous")
MANY_STEPS = ("--epochs", 6, "--steps-per-epoch", 200, *SHORT[4:])


class AsynchronousTest(WithServers):
    def gradients(self, key: str = "applied") -> list[list[Any]]:
        """By epoch and worker."""
        return [[worker[key] for worker in epoch["gradients_of_workers"]] for epoch in self.history()["epochs"]]

    def test_asynchronous_training(self) -> None:
        """All slices of all steps make an update each, whoever computes them, and no task waits for another one."""
        for workers, servers in ((1, 1), (2, 1), (3, 2)):
            with self.subTest(workers=workers, servers=servers):
                self.launch_job(workers, servers, *SHORT, *ASYNCHRONOUS, "--backup-save-freq", 7)
                self.succeeded()
                history = self.history()
                self.assertEqual([sum(epoch) for epoch in self.gradients()], [20 * workers] * 3)
                self.assertEqual(sum(map(sum, self.gradients("dropped"))), 0)
                self.assertEqual(history["iteration"], 3 * 20 * workers)
                self.assertTrue(all(math.isfinite(epoch["loss"]) for epoch in history["epochs"]))
                self.assertLess(history["epochs"][-1]["loss"], history["epochs"][0]["loss"])

    def accuracy_on_digits(self, name: str, workers: int, servers: int, *options: object) -> float:
        """On Lockstep's own test digits, after training on its own digits."""
        self.model = self.scratch / f"{name}{servers}"
        call = [program(name), "--model-dir", str(self.model), *map(str, options)]
        self.workers, self.ports = workers, free_ports(workers + servers)
        for index in range(workers + servers):
            variables = {"TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret"} if servers else {}
            self.started[index] = Running([program("lockstep"), "launch", "--", *call] if servers else call, self.cwd,
                                          variables)
        self.assert_ended_with_restarts()
        history = self.history()
        accuracy = history["evaluation"]["accuracy"] if "evaluation" in history else history["epochs"][-1]["val_accuracy"]
        return float(accuracy)

    def test_accuracy_of_mirrored_training(self) -> None:
        """In the same number of examples.

        The order of updates is another one in each run, so both train until accuracy has stopped rising fast.
        """
        for name, options in (("keras_mnist", ("--epochs", 2, "--learning-rate", 0.01)),
                              ("custom_training_mnist", ("--epochs", 3, "--steps-per-epoch", 70))):
            with self.subTest(name):
                mirrored = self.accuracy_on_digits(name, 1, 0, *options)
                asynchronous = self.accuracy_on_digits(name, 2, 1, *options, *SERVERS, *ASYNCHRONOUS)
                self.assertGreater(asynchronous, mirrored - 0.003)

    def test_one_asynchronous_worker_computes_what_mirrored_training_does(self) -> None:
        """It sees its own updates only. The examples are those of mirrored training."""
        whole = self.mirrored(1, *SHORT)
        self.launch_job(1, 2, *SHORT, *ASYNCHRONOUS)
        self.succeeded()
        self.assert_same_model(whole)

    def test_a_coordinator_computes_nothing(self) -> None:
        """With one worker beside it, the bits are those of mirrored training by one."""
        self.has_chief = True
        whole = self.mirrored(1, *SHORT)
        for bound in ((), ("--max-staleness", 2)):
            with self.subTest(bound):
                self.launch_job(2, 1, *SHORT, *ASYNCHRONOUS, *bound, "--backup-save-freq", 7)
                self.assertIn("a coordinator and 1 worker, 1 parameter server", self.succeeded()[0].stdout)
                self.assert_same_model(whole)
                self.assertEqual(self.gradients(), [[0, 20]] * 3)
        self.launch_job(3, 2, *SHORT, *ASYNCHRONOUS)
        self.succeeded()
        self.assertEqual([[epoch[0], sum(epoch)] for epoch in self.gradients()], [[0, 40]] * 3)
        self.assertEqual(self.history()["iteration"], 3 * 20 * 2)

    def test_a_synchronous_chief_trains(self) -> None:
        self.has_chief = True
        whole = self.mirrored(2, *SHORT)
        for options in ((), (*ASYNCHRONOUS, "--max-staleness", 0)):
            with self.subTest(options):
                self.launch_job(2, 1, *SHORT, *options)
                self.succeeded()
                self.assert_same_model(whole)

    def test_a_lost_coordinator(self) -> None:
        self.has_chief = True
        self.workers, (*self.ports, port) = 3, free_ports(5)
        for index in (3, 2, 1):
            self.launch(index, [*SERVERS, *LONG, *ASYNCHRONOUS, "--backup-save-freq", 40])
        self.launch(0, [*SERVERS, *LONG, *ASYNCHRONOUS, "--backup-save-freq", 40], LOCKSTEP_STATUS_PORT=str(port))
        self.assertTrue(eventually(lambda: status_port.metrics(port).get("lockstep_step", 0) > 0, 30))
        self.wait_for_backup()
        os.kill(children(self.started[0].process.pid)[0], signal.SIGKILL)
        ended = self.assert_ended_with_restarts()
        self.assertIn(f"lost chief 0 (localhost:{self.ports[0]})", ended[1].stderr)
        self.assertEqual([[epoch[0], sum(epoch)] for epoch in self.gradients()], [[0, 40]] * 15)

    def test_a_coordinator_leaves(self) -> None:
        """A worker and a server that leave are told of by the chief, and a loop of one's own is coordinated too."""
        self.has_chief = True
        self.leave(*LEAVING, *ASYNCHRONOUS)
        self.assertEqual(self.gradients(), [[0, 20]] * 60)
        self.default_program = "custom_training_mnist"
        self.launch_job(3, 1, *SHORT, *ASYNCHRONOUS, "--backup-save-freq", 7)
        self.succeeded()
        self.assertEqual([[epoch[0], sum(epoch)] for epoch in self.gradients()], [[0, 40]] * 3)

    def test_no_staleness_is_synchronous(self) -> None:
        whole = self.mirrored(2, *SHORT)
        for options in ((*ASYNCHRONOUS, "--max-staleness", 0), ("--replicas-to-aggregate", 2)):
            with self.subTest(options):
                self.launch_job(2, 1, *SHORT, *options)
                self.succeeded()
                self.assert_same_model(whole)
                self.assertNotIn("gradients_of_workers", self.history()["epochs"][0])

    def test_staleness_is_bounded(self) -> None:
        for bound in (1, 2):
            with self.subTest(bound):
                self.launch_job(3, 2, *SHORT, *ASYNCHRONOUS, "--max-staleness", bound)
                self.succeeded()
                self.assertEqual([sum(epoch) for epoch in self.gradients()], [60] * 3)
                for epoch in self.gradients("staleness"):
                    for worker in epoch:
                        self.assertEqual([of for of, count in worker.items() if count and (of == "more" or int(of) > bound)], [])

    def start_with_a_slow_worker(self, workers: int, servers: int, *options: object) -> None:
        """The last worker's steps take 100 ms longer, which is more than ten steps of the others take."""
        start = self.mirrored(1, *SHORT)
        self.workers, self.ports = workers, free_ports(workers + servers)
        for index in reversed(range(workers + servers)):
            faulty = program("lockstep_with_faults")
            command = [faulty, "launch", "--", faulty, *self.train(start, self.model, *SERVERS, *SHORT, *options)[1:]]
            self.started[index] = Running(command, self.cwd, {
                "TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret",
                "LOCKSTEP_TEST_STEP_MS": "100" if index == workers - 1 else "0"})
        self.assert_ended_with_restarts()

    def test_a_slow_worker_slows_no_asynchronous_one(self) -> None:
        self.start_with_a_slow_worker(3, 1, *ASYNCHRONOUS)
        for epoch in self.gradients():
            self.assertEqual(sum(epoch), 60)
            self.assertGreater(min(epoch[:2]), 2 * epoch[2], "who computes is up to who asks")
        stale = [worker["more"] + worker["32"] + worker["16"] + worker["8"] for worker in self.gradients("staleness")[-1]]
        self.assertGreater(stale[2], 0, "others update while it computes")

    def test_the_first_gradients_make_a_step(self) -> None:
        for workers, servers, aggregated in ((2, 1, 1), (3, 2, 2)):
            with self.subTest(workers=workers, servers=servers):
                self.start_with_a_slow_worker(workers, servers, "--replicas-to-aggregate", aggregated)
                self.assertEqual(self.history()["iteration"], 60 + 60, "with those of the model that it began with")
                applied, dropped = self.gradients(), self.gradients("dropped")
                self.assertEqual([sum(epoch) for epoch in applied], [20 * aggregated] * 3)
                self.assertGreater(sum(epoch[workers - 1] for epoch in dropped), 0)
                self.assertLess(max(epoch[workers - 1] for epoch in applied), 10)
                self.assertLess(self.history()["epochs"][-1]["loss"], self.history()["epochs"][0]["loss"])

    def test_metrics_tell_of_gradients(self) -> None:
        self.workers, (*self.ports, port) = 2, free_ports(4)
        for index in (2, 0):
            self.launch(index, [*SERVERS, *LONG, *ASYNCHRONOUS])
        self.launch(1, [*SERVERS, *LONG, *ASYNCHRONOUS], LOCKSTEP_STATUS_PORT=str(port))
        counts: list[float] = []

        def has_applied() -> bool:
            counts[:] = [value for name, value in status_port.metrics(port).items()
                         if name.startswith("lockstep_rank_gradient_staleness_count{")]
            return any(counts)

        self.assertTrue(eventually(has_applied, 30), str(counts))
        self.succeeded()

    def kill_trainer(self, task: int) -> None:
        """When it has begun."""
        self.assertTrue(eventually(lambda: bool(children(self.started[task].process.pid)), 30))
        os.kill(next(iter(children(self.started[task].process.pid).values())), signal.SIGKILL)

    def wait_for_epoch(self, epoch: int) -> None:
        if not eventually(lambda: f"Epoch {epoch}" in self.started[0].stdout, 60):
            self.end_all()
            self.fail("".join(map(str, self.end())))

    def succeeded_without(self, *lost: int, steps: int, updates: int) -> None:
        """The others have trained on, and each slice has made one update."""
        first_server = self.workers
        ended = self.assert_ended_with_restarts()
        for task, one in enumerate(ended):
            self.assertEqual("generation 1 ended" in one.stderr, task in lost, str(one))
            for worker in lost if task >= first_server else ():
                self.assertIn(f"lost {self.name_of(worker)} (localhost:{self.ports[worker]})", one.stderr)
        for worker in lost:
            self.assertIn(f"{self.name_of(worker)} (localhost:{self.ports[worker]}) is back", ended[first_server].stderr)
        self.assertNotIn("Resuming from", ended[0].stdout)
        self.assertEqual(self.history()["iteration"], steps * updates)
        epochs = len(self.history()["epochs"])
        self.assertEqual([sum(epoch) for epoch in self.gradients()], [steps // epochs * updates] * epochs)

    def name_of(self, worker: int) -> str:
        return f"worker {worker - 1}" if self.has_chief else f"worker {worker}"

    def test_workers_come_and_go(self) -> None:
        """One after the other, and both at once, while the chief trains on. Each runs the program again up to where the
        others are."""
        self.launch_job(3, 2, *MANY_STEPS, *ASYNCHRONOUS, "--backup-save-freq", 50)
        self.wait_for_epoch(2)
        self.kill_trainer(1)
        self.wait_for_epoch(3)
        self.kill_trainer(2)
        self.kill_trainer(1)
        self.succeeded_without(1, 2, steps=1200, updates=3)

    def test_a_worker_returns_after_validations(self) -> None:
        start = self.mirrored(1, *SHORT)
        self.workers, self.ports = 2, free_ports(3)
        for index in reversed(range(3)):
            command = self.train(start, self.model, *SERVERS, *MANY_STEPS, *ASYNCHRONOUS, "--validation-split", 0.25)
            self.started[index] = Running([program("lockstep"), "launch", "--", *command], self.cwd,
                                          {"TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_TOKEN": "a secret"})
        self.wait_for_epoch(3)
        self.kill_trainer(1)
        self.assert_ended_with_restarts()
        history = self.history()
        self.assertTrue(all("val_loss" in epoch for epoch in history["epochs"]))
        self.assertEqual(history["iteration"], 60 + 1200 * 2, "with those of the model that it began with")

    def test_workers_of_a_coordinator_come_and_go(self) -> None:
        """In the first epoch, where it validates after each epoch, and in a loop of one's own."""
        self.has_chief = True
        for name in ("keras_mnist", "custom_training_mnist"):
            with self.subTest(name):
                self.default_program, self.model = name, self.scratch / name
                self.launch_job(3, 1, *MANY_STEPS, *ASYNCHRONOUS, "--max-staleness", 3)
                self.wait_for_epoch(1)
                self.assertTrue(eventually(lambda: "serving variables" in self.started[3].stdout + self.started[3].stderr, 30))
                self.kill_trainer(1)
                self.wait_for_epoch(3)
                self.kill_trainer(2)
                self.succeeded_without(1, 2, steps=1200, updates=2)

    def test_random_kills(self) -> None:
        """Of trainers and launchers of any task, up to three a job: each slice makes one update, whoever was lost."""
        chance = random.Random(seed())
        total = count(30)
        done = jobs = 0
        while done < total:
            self.has_chief, workers, servers = chance.random() < 0.5, chance.choice((2, 3)), chance.choice((1, 2))
            bound, self.on_hosts = chance.choice(((), ("--max-staleness", 2))), chance.random() < 0.5
            options = (*MANY_STEPS, *ASYNCHRONOUS, *bound, "--backup-save-freq", 50)
            self.model = self.scratch / f"broken_{jobs}"
            jobs += 1
            self.launch_job(workers, servers, *options)
            for _ in range(min(3, total - done)):
                done += 1
                time.sleep(chance.uniform(0.0, 4.0))
                task = chance.randrange(workers + servers)
                launcher = self.started[task].process
                trainers = list(children(launcher.pid).values())
                if launcher.poll() is not None or not trainers:
                    continue
                if chance.random() < 0.7:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(trainers[0], signal.SIGKILL)
                else:
                    launcher.kill()
                    launcher.wait()
                    self.assertTrue(eventually(lambda: not any(is_there(pid) for pid in trainers)))
                    self.launch(task, [*SERVERS, *options])
            with self.subTest(seed=seed(), kills=done):
                self.assert_ended_with_restarts()
                updates = workers - 1 if self.has_chief else workers
                self.assertEqual(self.history()["iteration"], 1200 * updates)
                self.assertEqual([sum(epoch) for epoch in self.gradients()], [200 * updates] * 6)
                self.assertTrue(math.isfinite(self.history()["epochs"][-1]["loss"]))
        print(f"{done} kills in {jobs} jobs, seed {seed()}")

    def test_a_worker_that_returns_with_other_options(self) -> None:
        self.launch_job(2, 1, *MANY_STEPS, *ASYNCHRONOUS)
        self.wait_for_epoch(2)
        trainer, = children(self.started[1].process.pid).values()
        self.started[1].process.kill()  # its launcher, with which it ends
        self.assertTrue(eventually(lambda: not is_there(trainer), 30))
        self.started.pop(1).end()
        self.launch(1, [*SERVERS, *MANY_STEPS, *ASYNCHRONOUS, "--learning-rate", 0.5])
        refused = self.started.pop(1).end()
        self.assertEqual(refused.code, USAGE, str(refused))
        self.assertIn("disagree about --learning-rate: worker 0 has none, worker 1 has 0.5", refused.stderr)
        self.launch(1, [*SERVERS, *MANY_STEPS, *ASYNCHRONOUS])
        ended = self.assert_ended_with_restarts()
        self.assertIn("worker 1 has 0.5", ended[2].stderr)
        self.assertNotIn("Resuming from", ended[0].stdout)
        self.assertEqual(self.history()["iteration"], 1200 * 2)

    def test_a_second_launcher_for_a_worker(self) -> None:
        self.launch_job(2, 1, *MANY_STEPS, *ASYNCHRONOUS)
        self.wait_for_epoch(2)
        command = [program("lockstep"), "launch", "--rendezvous-timeout", "2", "--max-restarts", "0", "--",
                   *self.command(*SERVERS, *MANY_STEPS, *ASYNCHRONOUS)]
        second = Running(command, self.cwd, {"TF_CONFIG": self.tf_config(1), "LOCKSTEP_JOB_TOKEN": "a secret"}).end()
        self.assertEqual(second.code, TEMPORARY, str(second))
        self.assertIn("worker 1 is there already", second.stderr)
        for one in self.assert_ended_with_restarts():
            self.assertNotIn("lost worker", one.stderr)

    def test_lost_tasks_of_asynchronous_training(self) -> None:
        for victim in (0, 2, 3):
            with self.subTest(victim):
                self.model = self.scratch / f"without{victim}"
                self.lose(victim, keeps_bits=False, options=(*LONG, *ASYNCHRONOUS))
                self.assertEqual(len(self.history()["epochs"]), 15)
                self.assertEqual(self.history()["iteration"], 15 * 20 * 2)
                self.assertEqual([sum(epoch) for epoch in self.gradients()], [40] * 15)

    def test_a_lost_worker_whose_gradients_may_be_dropped(self) -> None:
        self.lose(1, keeps_bits=False, options=(*LONG, "--replicas-to-aggregate", 1))
        self.assertEqual(self.history()["iteration"], 15 * 20)

    def test_options_that_do_not_fit(self) -> None:
        self.workers, self.ports = 2, free_ports(3)
        config = self.tf_config(0)
        for options, phrase in ((("--max-staleness", 3), "--max-staleness is for --ps-mode asynchronous"),
                                (("--replicas-to-aggregate", 3), "--replicas-to-aggregate is 3, but there are 2 workers"),
                                ((*ASYNCHRONOUS, "--replicas-to-aggregate", 1), "--replicas-to-aggregate is for synchronous"),
                                (("--ps-mode", "async"), "--ps-mode is 'async'"),
                                (("--max-staleness", -2), "--max-staleness"),
                                (("--replicas-to-aggregate", "all"), "--replicas-to-aggregate is 'all'")):
            with self.subTest(options):
                refused = self.run_program(*SERVERS, *SHORT, *options, TF_CONFIG=config)
                self.assertEqual(refused.code, USAGE, str(refused))
                self.assertTrue(refused.errors[0].startswith("error: "), str(refused))
                self.assertIn(phrase, refused.errors[0])
        for options in (ASYNCHRONOUS, ("--max-staleness", 2), ("--replicas-to-aggregate", 1), ("--ps-placement", "greedy")):
            with self.subTest(mirrored=options):
                refused = self.run_program(*SHORT, *options)
                self.assert_fails(refused, USAGE, f"{options[0]}", "add --strategy parameter-server")

    def test_a_loop_of_ones_own(self) -> None:
        self.default_program = "custom_training_mnist"
        for options, updates in ((ASYNCHRONOUS, 40), (("--replicas-to-aggregate", 1), 20)):
            with self.subTest(options):
                self.launch_job(2, 1, *SHORT, *options, "--backup-save-freq", 7)
                self.succeeded()
                self.assertEqual(self.history()["iteration"], 3 * updates)
                self.assertEqual([sum(epoch) for epoch in self.gradients()], [updates] * 3)
                self.assertLess(self.history()["epochs"][-1]["loss"], self.history()["epochs"][0]["loss"])

    def test_leaving_asynchronous_training(self) -> None:
        self.leave(*LEAVING, *ASYNCHRONOUS)
        self.assertEqual([sum(epoch) for epoch in self.gradients()], [40] * 60)
