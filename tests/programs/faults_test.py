"""Faults at named points of a trainer (tests/faults/fault_points.cpp): mirrors that differ, NaN, kills."""

import fcntl
import json
import os
import re
import resource
import signal
import time
import unittest
from collections.abc import Sequence
from pathlib import Path

import launch_test
import status_port
from launch_test import free_ports
from model_file_support import COMPILED, description
from support import DATA, IO, TEMPORARY, USAGE, Ended, Running, eventually, has_bfloat16, library, program

LAYERS = (("Reshape", {"target_shape": [28, 28, 1]}), ("Conv2D", {"filters": 4, "kernel_size": [3, 3]}),
          ("BatchNormalization", {}), ("Flatten", {}), ("Dense", {"units": 12, "activation": "relu"}),
          ("Dense", {"units": 10}))
TRAINING = (*COMPILED, "--epochs", 3, "--steps-per-epoch", 20, "--global-batch-size", 24, "--seed", 5,
            "--deterministic", "--verbose", 2)
# Time for each backup to be written before the next one is due, which would be skipped otherwise.
UNHURRIED = {"LOCKSTEP_TEST_STEP_MS": "50"}


class FaultsTest(launch_test.Launched):
    def setUp(self) -> None:
        super().setUp()
        self.description = self.scratch / "model.json"
        self.description.write_text(description(*LAYERS))

    def start_job(self, workers: int, *options: object, of: Sequence[dict[str, str]] = (), **environment: str) -> None:
        """Starts a job that resumes from backups of every ten steps. `of`: variables of single workers."""
        lockstep = program("lockstep_with_faults")
        self.ports = free_ports(workers)
        for index in range(workers):
            command = [lockstep, "launch", "--", lockstep, "train", "--model", str(self.description), "--data-dir",
                       str(self.data), "--model-dir", str(self.model), *map(str, (*TRAINING, *options))]
            self.started[index] = Running(command, self.cwd, {
                "TF_CONFIG": self.tf_config(index), "TMPDIR": str(self.left), "LOCKSTEP_JOB_TOKEN": "a secret",
                "LOCKSTEP_BACKUP_SAVE_FREQ": "10", "OMPI_MCA_mpi_yield_when_idle": "1"} | environment |
                (of[index] if of else {}))

    def fault(self, point: str, count: int, action: str, rank: int) -> dict[str, str]:
        return {"LOCKSTEP_TEST_FAULT_POINT": f"{point} {count} {action} {self.scratch / 'marker'}",
                "LOCKSTEP_TEST_RANK": str(rank)}

    def undisturbed(self, workers: int, *options: object, **environment: str) -> Path:
        self.model = self.scratch / "undisturbed"
        self.start_job(workers, *options, **environment)
        self.assert_ended(0)
        whole, self.model = self.model / "model.h5", self.scratch / "model"
        return whole

    def messages(self, ended: list[Ended]) -> str:
        return "".join(one.stderr + one.stdout for one in ended)

    def check_flipped_bit(self, hosts: str, expected: str, point: str = "step", count: int = 25, *more: object) -> None:
        """Flips a bit of rank 1 before or as the ranks compare at step 30."""
        workers = len(hosts.split(","))
        options = ("--parallelism", "data", *more)
        whole = self.undisturbed(workers, *options, LOCKSTEP_SIMULATED_HOSTS=hosts)
        self.start_job(workers, *options, LOCKSTEP_SIMULATED_HOSTS=hosts, **UNHURRIED,
                       **self.fault(point, count, "flip", 1))
        text = self.messages(self.assert_ended(0))
        self.assertTrue((self.scratch / "marker").exists(), "nothing was flipped")
        self.assertIn(expected, text)
        self.assertIn("step-0000000020.h5: after step 20 of epoch 1/3", text)
        self.assert_same_model(whole)

    def test_a_flipped_bit_is_noticed_at_the_next_backup(self) -> None:
        """The host is named, nothing is saved, and the job goes on from the backup before."""
        self.check_flipped_bit("0,1,2", "after optimizer step 30, worker 1 of 3 holds other weights")

    def check_flipped_before_comparison(self, point: str, *options: object) -> None:
        """The ranks compare at step 30 for the third time. No later update carries the error to trainable weights."""
        self.check_flipped_bit("0,1,2", "after optimizer step 30, worker 1 of 3 holds other weights", point, 3, *options)

    def test_a_flipped_bit_of_the_optimizer_s_slots_is_noticed(self) -> None:
        self.check_flipped_before_comparison("slots")

    def test_a_flipped_bit_of_a_moving_average_is_noticed(self) -> None:
        self.check_flipped_before_comparison("statistics")

    def test_a_flipped_bit_of_the_iteration_is_noticed(self) -> None:
        self.check_flipped_before_comparison("iteration")

    @unittest.skipUnless(has_bfloat16(), "this CPU computes no bfloat16")
    def test_a_flipped_bit_of_a_frozen_weight_s_copy_is_noticed(self) -> None:
        """Training reads the copy in bfloat16; the weight itself is intact."""
        frozen = {"units": 12, "activation": "relu", "trainable": False}
        self.description.write_text(description(("Flatten", {}), ("Dense", frozen), ("Dense", {"units": 10})))
        self.check_flipped_before_comparison("copies", "--precision", "mixed_bfloat16")

    def test_of_two_hosts_both_are_named(self) -> None:
        self.check_flipped_bit("0,1,0", "after optimizer step 30, workers 0, 1 and 2 of 3 hold other weights")

    def test_a_flipped_bit_after_the_last_backup_is_noticed_at_the_end(self) -> None:
        whole = self.undisturbed(2, LOCKSTEP_SIMULATED_HOSTS="0,1", LOCKSTEP_BACKUP_SAVE_FREQ="25")
        self.start_job(2, LOCKSTEP_SIMULATED_HOSTS="0,1", LOCKSTEP_BACKUP_SAVE_FREQ="25",
                       **self.fault("step", 55, "flip", 1))
        text = self.messages(self.assert_ended(0))
        self.assertIn("after optimizer step 60, workers 0 and 1 of 2 hold other weights", text)
        self.assert_same_model(whole)

    def test_a_chief_that_is_killed_as_it_records_the_end_leaves_no_backups(self) -> None:
        """After the record of the backups' directory, before that of the models'."""
        self.start_job(1, LOCKSTEP_JOB_ID="mine", **self.fault("record", 2, "kill", 0))
        text = self.messages(self.assert_ended(0))
        self.assertTrue((self.scratch / "marker").exists(), text)
        self.assertFalse(list(self.model.glob("backup/*.h5")), text)

    def test_without_its_pmix_server_the_chief_still_removes_the_backups(self) -> None:
        """The server is killed after the job has been recorded as finished."""
        self.start_job(2, "--parallelism", "data", **self.fault("clean", 1, "hold", 0))
        self.assertTrue(eventually(lambda: (self.scratch / "marker").exists(), 60), "the chief did not come to its end")
        servers = [pid for running in self.started.values() for pid in running.processes("pmix-server")]
        self.assertTrue(servers)
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)  # the launchers notice
        (self.scratch / "marker.released").touch()
        self.assert_ended(0)
        self.assertFalse((self.model / "backup").exists(), "backups are left")

    def test_a_worker_that_comes_back_to_a_finished_job_tells_the_chief(self) -> None:
        """Its launcher is killed after the job has been recorded as finished."""
        files = {"LOCKSTEP_JOB_ID": "7c1e", "LOCKSTEP_MODEL_DIR": str(self.model)}
        self.start_job(2, "--parallelism", "data", **files, **self.fault("finished", 1, "hold", 1))
        self.assertTrue(eventually(lambda: (self.scratch / "marker").exists(), 60), "worker 1 did not come to its end")
        record = self.model / ".lockstep.lock"
        self.assertTrue(eventually(lambda: '"has_finished": true' in record.read_text(), 30), "the chief did not record it")
        killed = self.started[1]
        killed.process.kill()
        killed.process.wait()
        command, environment = list(map(str, killed.process.args)), {"TF_CONFIG": self.tf_config(1), **files}
        self.started[1] = Running(command, self.cwd, environment | {
            "TMPDIR": str(self.left), "LOCKSTEP_JOB_TOKEN": "a secret", "LOCKSTEP_BACKUP_SAVE_FREQ": "10"})
        ended = self.end()  # the launcher that was killed leaves files in TMPDIR
        text = self.messages(ended)
        self.assertEqual([one.code for one in ended], [0, 0], text)
        self.assertIn("job 7c1e has finished already", text)

    def test_the_first_nan_restarts_the_job_once(self) -> None:
        """A machine's error passes: the job ends with the bits of an undisturbed one."""
        whole = self.undisturbed(2, "--parallelism", "data")
        self.start_job(2, "--parallelism", "data", **UNHURRIED, **self.fault("step", 26, "nan", 1))
        text = self.messages(self.assert_ended(0))
        # ReLU hides some NaN from the loss; no backup holds one.
        self.assertRegex(text, r"error: (the loss became NaN in epoch 2|the model is not saved, because .* after optimizer "
                               r"step 30).*; training restarts once from the last backup, in case a machine made an error")
        self.assertIn("step-0000000020.h5: after step 20 of epoch 1/3", text)
        self.assert_same_model(whole)

    def test_the_same_nan_again_ends_the_job(self) -> None:
        self.start_job(2, "--learning-rate", "1e20")
        text = self.messages(self.assert_ended(DATA))
        self.assertRegex(text, r"error: .*, again at the same step after a restart, so no machine made an error; a "
                               r"smaller --learning-rate may help")
        self.assertEqual(text.count("in case a machine made an error"), 1, text)
        self.assertNotIn("generation 3 begins", text)

    def test_the_others_wait_for_a_slow_rank(self) -> None:
        """The rank whose waiting time grows least is the slow one, and it does not count as stuck."""
        ports = free_ports(2)

        def waited() -> list[float]:
            return [status_port.metrics(port)[f'lockstep_rank_wait_seconds_total{{rank="{rank}",worker="worker {rank}"}}']
                    for rank, port in enumerate(ports)]

        self.start_job(2, "--parallelism", "data", LOCKSTEP_TEST_STEP_MS="100", LOCKSTEP_REPORT_INTERVAL="0.5",
                       of=[{"LOCKSTEP_STATUS_PORT": str(port)} for port in ports], **self.fault("step", 10, "hold", 1))
        self.assertTrue(eventually(lambda: (self.scratch / "marker").exists(), 60), "rank 1 was not held")
        time.sleep(0.5)  # the waiting time until now is reported
        before = waited()
        time.sleep(1.5)
        (self.scratch / "marker.released").touch()

        def first_waited_longer() -> bool:
            first, second = (now - then for now, then in zip(waited(), before))
            return first > second + 1

        self.assertTrue(eventually(first_waited_longer, 4), f"{before}, then {waited()}")
        self.assertEqual(status_port.metrics(ports[0])["lockstep_generation"], 1)
        self.assert_ended(0)

    def test_without_a_thread_the_training_thread_writes(self) -> None:
        """Where no thread can be started, backups still come."""
        self.model = self.scratch / "without"
        command = [program("lockstep"), "train", "--model", str(self.description), "--data-dir", str(self.data),
                   "--model-dir", str(self.model), "--backup-save-freq", "10", *map(str, TRAINING)]
        ended = Running(command, self.cwd, {"LD_PRELOAD": library("failing_calls"), "LOCKSTEP_TEST_NO_THREADS": "1"}).end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertGreater(self.history()["timing"]["backups"], 0)

    def check_limit_of_processes(self, workers: int, expected: str) -> None:
        limit = self.scratch / "no-processes"
        limit.touch()
        self.start_job(workers, LD_PRELOAD=library("failing_calls"), LOCKSTEP_TEST_NO_PROCESSES=str(limit))
        self.wait_for_message(workers - 1, expected)
        limit.unlink()
        self.assert_ended(0)

    def test_a_launcher_tries_again_to_start_processes(self) -> None:
        """After pauses, until the limit of processes is gone."""
        self.check_limit_of_processes(1, "pmix-server: Resource temporarily unavailable; restart 1 of at most 10")

    def test_a_launcher_tries_again_to_look_up_the_chief(self) -> None:
        self.check_limit_of_processes(2, "its name cannot be looked up: fork failed: Resource temporarily unavailable")

    def test_a_launcher_outlives_a_limit_of_descriptors(self) -> None:
        """Below those that it has open."""
        self.start_job(1, **UNHURRIED)
        self.assertTrue(eventually(lambda: any(self.model.glob("backup/*.h5")), 60), "no backup")
        launcher = self.started[0].process.pid
        _, hard = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (3, hard))
        time.sleep(1)
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (hard, hard))
        for ended in self.assert_ended(0):
            self.assertNotIn("generation 1 ended", ended.stderr)

    def test_the_chief_is_blamed_for_its_disk(self) -> None:
        """All ranks fail with the chief's error."""
        (self.scratch / "file").touch()
        self.model = self.scratch / "file" / "model"
        self.start_job(2, LOCKSTEP_MAX_RESTARTS="0")
        for ended in self.assert_ended(IO):
            self.assertIn("generation 1 ended: worker 0 (rank 0): its trainer ended with exit code 74", ended.stderr)

    def test_a_file_system_without_locks_is_warned_of(self) -> None:
        """The job still knows its own backups."""
        self.start_job(1, "--resume", "never", LD_PRELOAD=library("failing_calls"),
                       LOCKSTEP_TEST_NO_LOCKS=str(self.model), **UNHURRIED, **self.fault("step", 25, "kill", 0))
        text = self.messages(self.assert_ended(0))
        self.assertIn(f"{self.model} is on a file system without locks (No locks available), so a second job", text)
        self.assertIn("step-0000000020.h5: after step 20 of epoch 1/3", text)
        self.assertTrue(json.loads((self.model / ".lockstep.lock").read_text())["has_finished"])

    def test_a_directory_on_nfs_that_another_job_takes_is_left_to_it(self) -> None:
        self.model.mkdir()
        abandoned = self.model / ".model.h5.0123abcd.tmp"
        abandoned.touch()
        self.start_job(1, LD_PRELOAD=library("failing_calls"), LOCKSTEP_TEST_NFS_LOCKS=str(self.model),
                       LOCKSTEP_MAX_RESTARTS="0", **UNHURRIED)
        self.assertTrue(eventually(lambda: any(self.model.glob("backup/*.h5")), 60), "no backup")
        self.assertFalse(abandoned.exists())
        others = []
        for directory in (self.model, self.model / "backup"):
            (directory / ".lockstep.lock").unlink(missing_ok=True)
            others.append((directory / ".lockstep.lock").open("w"))
            fcntl.flock(others[-1], fcntl.LOCK_EX)
        before = sorted(self.model.glob("backup/*.h5"))
        text = self.messages(self.assert_ended(USAGE))
        self.assertIn("belongs to another job now, so this process writes nothing more there", text)
        self.assertLessEqual(set(self.model.glob("backup/*.h5")), set(before))

    def test_backups_of_a_tensor_parallel_model_are_at_most_two_intervals_apart(self) -> None:
        history = self.scratch / "history"
        self.start_job(2, "--parallelism", "tensor", LOCKSTEP_BACKUP_SAVE_FREQ="5", LOCKSTEP_TEST_STEP_MS="100",
                       LOCKSTEP_TEST_HISTORY=str(history))
        self.assert_ended(0)
        files = [json.loads(line).get("file", "") for line in history.read_text().splitlines()]
        steps = [int(found[1]) for found in (re.search(r"fit-1-step-(\d+)\.h5$", file) for file in files) if found]
        self.assertTrue(steps)
        for earlier, later in zip([0, *steps], steps):
            self.assertLessEqual(later - earlier, 10, str(steps))
        self.assertGreaterEqual(steps[-1], 50, str(steps))
