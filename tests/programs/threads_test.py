"""Jobs under ThreadSanitizer (tests/threads), which ends a process with 66 at the first race. Skipped unless
`lockstep_with_tsan` is built."""

import os
import signal
from pathlib import Path

import launch_test
from launch_test import free_ports
from model_file_support import COMPILED, description
from support import TEMPORARY, Running, eventually, program

LAYERS = (("Reshape", {"target_shape": [28, 28, 1]}), ("Conv2D", {"filters": 4, "kernel_size": [3, 3]}),
          ("BatchNormalization", {}), ("Flatten", {}), ("Dense", {"units": 32, "activation": "relu"}),
          ("Dense", {"units": 10}))
TRAINING = (*COMPILED, "--epochs", 3, "--steps-per-epoch", 20, "--global-batch-size", 24, "--seed", 5, "--verbose", 2,
            "--backup-save-freq", 3)
SUPPRESSIONS = Path(__file__).resolve().parents[1] / "threads" / "suppressions.txt"


class ThreadsTest(launch_test.Launched):
    def setUp(self) -> None:
        super().setUp()
        if not Path(program("lockstep_with_tsan")).exists():
            self.skipTest("lockstep_with_tsan is not built")
        self.description = self.scratch / "model.json"
        self.description.write_text(description(*LAYERS))

    def start_job(self, workers: int, *options: object, **environment: str) -> None:
        lockstep = program("lockstep_with_tsan")
        self.ports = free_ports(workers)
        for index in range(workers):
            command = [lockstep, "launch", "--", lockstep, "train", "--model", str(self.description), "--data-dir",
                       str(self.data), "--model-dir", str(self.model), *map(str, (*TRAINING, *options))]
            self.started[index] = Running(command, self.cwd, {
                "TF_CONFIG": self.tf_config(index), "TMPDIR": str(self.left), "LOCKSTEP_JOB_TOKEN": "a secret",
                "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1",
                "TSAN_OPTIONS": f"halt_on_error=1 suppressions={SUPPRESSIONS}"} | environment)

    def assert_backups_and_no_race(self) -> None:
        for ended in self.assert_ended(0):
            self.assertNotIn("ThreadSanitizer", ended.stderr)
        self.assertGreater(self.history()["timing"]["backups"], 0)

    def test_backups_of_two_hosts(self) -> None:
        """The writer's thread digests the chief's copy, and writes it, while training goes on."""
        self.start_job(2, "--parallelism", "data", LOCKSTEP_SIMULATED_HOSTS="0,1")
        self.assert_backups_and_no_race()

    def test_backups_of_a_tensor_parallel_model(self) -> None:
        """Shards arrive during training, and the writer's thread unpacks them."""
        self.start_job(2, "--parallelism", "tensor")
        self.assert_backups_and_no_race()

    def test_a_request_to_stop(self) -> None:
        """The thread that listens to the launcher tells the training thread."""
        self.start_job(1, "--epochs", 1000)
        self.assertTrue(eventually(lambda: any(self.model.glob("backup/*.h5")), 60), "no backup")
        os.kill(self.started[0].process.pid, signal.SIGTERM)
        for ended in self.assert_ended(TEMPORARY):
            self.assertNotIn("ThreadSanitizer", ended.stderr)
