"""keras_mnist on a GPU: reproducible bits, bfloat16, batches smaller than the world, a stopped rank, and no GPU."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from support import MPIRUN, TEMPORARY, USAGE, Ended, ProgramTest, Running, program

OPTIONS = ("--steps-per-epoch", 3, "--global-batch-size", 20, "--seed", 5, "--deterministic")
EPOCHS = 5
END_LIMIT_S = 15.0
NO_DEVICE = {"CUDA_VISIBLE_DEVICES": "", "LOCKSTEP_FAKE_GPUS": "0"}  # hides real GPUs and removes fake ones
# With different NCCL_HOSTIDs, NCCL treats the ranks as being on different hosts, so that they can share one GPU. The
# shell outlives its rank, so that mpirun does not kill the others, and prints the exit code.
RANK = """NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo "$@"
echo "rank $OMPI_COMM_WORLD_RANK ended with $?"; sleep 3"""


def losses(history: dict[str, Any]) -> list[float]:
    return [epoch["loss"] for epoch in history["epochs"]]


class ProgramsTest(ProgramTest):
    tried: Ended | None = None  # the run that checks whether there is a GPU

    def setUp(self) -> None:
        super().setUp()
        if self.tried is None:
            call = ("--device", "cuda", "--epochs", 1, "--steps-per-epoch", 1, "--resume", "never")
            type(self).tried = self.run_program(*call)
        if self.tried.code == USAGE:
            self.skipTest(f"no GPU: {self.tried.errors}")
        self.assertEqual(self.tried.code, 0, str(self.tried))

    def whole(self, device: str) -> tuple[Path, list[float]]:
        self.model = self.scratch / f"whole_{device}"
        self.succeed("--device", device, "--epochs", EPOCHS, *OPTIONS)
        return self.model / "model.h5", losses(self.history())

    def assert_same_model(self, left: Path, right: Path) -> None:
        compared = subprocess.run([program("lockstep"), "inspect", "--compare", str(left), str(right)],
                                  capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    def assert_near(self, mine: list[float], theirs: list[float]) -> None:
        self.assertEqual(len(mine), len(theirs))
        for left, right in zip(mine, theirs):
            self.assertAlmostEqual(left, right, delta=1e-4 * right)

    def test_results_are_reproducible(self) -> None:
        model, trained = self.whole("cuda")
        kept = model.rename(self.scratch / "first.h5")
        again, trained_again = self.whole("cuda")
        self.assert_same_model(kept, again)
        self.assertEqual(trained, trained_again)
        self.assert_near(trained, self.whole("cpu")[1])

    def test_bfloat16_trains_almost_like_float32(self) -> None:
        options = ("--epochs", 6, "--steps-per-epoch", 5, "--learning-rate", "0.05", "--seed", 5, "--resume", "never")
        self.succeed("--device", "cuda", "--precision", "mixed_bfloat16", *options)
        low = losses(self.history())
        self.assertLess(low[-1], 0.9 * low[0])
        self.succeed("--device", "cuda", *options)
        for mine, theirs in zip(low, losses(self.history())):
            self.assertAlmostEqual(mine, theirs, delta=0.03 * theirs)

    def test_a_missing_device_is_reported(self) -> None:
        options = ("--epochs", 1, "--steps-per-epoch", 1, "--resume", "never")
        ended = self.succeed("--device", "auto", *options, **NO_DEVICE)
        self.assertIn("Computing on the CPU: no NVIDIA GPU was found", ended.stdout + ended.stderr)
        self.assert_fails(self.run_program("--device", "cuda", *options, **NO_DEVICE), USAGE, "--device cuda",
                          "no NVIDIA GPU", "--device cpu or auto")

    def test_a_rank_without_examples(self) -> None:
        """With batches of one example, the second rank takes part only in reductions."""
        options = ("--epochs", 2, "--steps-per-epoch", 4, "--global-batch-size", 1, "--seed", 5, "--resume", "never")
        self.succeed("--device", "cpu", *options)
        expected = losses(self.history())
        for communication in ("nccl", "mpi"):
            call = self.command("--device", "cuda", "--communication", communication, *options)
            ended = Running([str(MPIRUN), "-np", "2", "bash", "-c", RANK, "rank", *call], self.cwd, {}).end()
            self.assertEqual(ended.stdout.count("ended with 0"), 2, str(ended))
            self.assert_near(losses(self.history()), expected)

    def on_two_ranks(self, *options: object, **environment: str) -> Ended:
        call = self.command("--device", "cuda", "--epochs", EPOCHS, *OPTIONS, "--resume", "never", *options)
        ended = Running([str(MPIRUN), "-np", "2", "bash", "-c", RANK, "rank", *call], self.cwd, environment).end()
        self.assertEqual(ended.stdout.count("ended with 0"), 2, str(ended))
        return ended

    def require_fake_gpu(self) -> None:
        if "LOCKSTEP_FAKE_GPUS" not in os.environ:
            self.skipTest("only a fake GPU fails on request")

    def test_a_capture_that_fails(self) -> None:
        self.require_fake_gpu()
        self.on_two_ranks()
        kept = (self.model / "model.h5").rename(self.scratch / "captured.h5")
        ended = self.on_two_ranks(LOCKSTEP_FAKE_GPU_CAPTURE="broken")
        self.assertEqual(ended.stderr.count("cannot capture a step as a CUDA graph"), 1, str(ended))
        self.assert_same_model(kept, self.model / "model.h5")

    def test_evaluation_is_captured(self) -> None:
        """Training makes one step, which is never captured, so a capture is the evaluation's."""
        self.require_fake_gpu()
        options = ("--device", "cuda", "--epochs", 1, "--steps-per-epoch", 1, "--global-batch-size", 20, "--seed", 5,
                   "--deterministic", "--resume", "never")
        self.succeed(*options)
        expected = self.history()["evaluation"]
        for environment in ({"LOCKSTEP_CUDA_GRAPHS": "0"}, {"LOCKSTEP_FAKE_GPU_CAPTURE": "broken"}):
            ended = self.succeed(*options, **environment)
            tried = ended.stderr.count("cannot capture a step as a CUDA graph")
            self.assertEqual(tried, int("LOCKSTEP_FAKE_GPU_CAPTURE" in environment), str(ended))
            self.assertEqual(self.history()["evaluation"], expected)

    def test_without_nccl_gradients_go_through_host_memory(self) -> None:
        self.require_fake_gpu()
        self.on_two_ranks()
        expected = losses(self.history())
        ended = self.on_two_ranks(LOCKSTEP_FAKE_GPU_NCCL="broken")
        self.assertEqual(ended.stderr.count("NCCL does not start on rank 0"), 1, str(ended))
        self.assert_near(losses(self.history()), expected)

    def test_a_data_set_larger_than_the_device_memory(self) -> None:
        self.require_fake_gpu()
        model, trained = self.whole("cuda")
        kept = model.rename(self.scratch / "resident.h5")
        ended = self.succeed("--device", "cuda", "--epochs", EPOCHS, *OPTIONS, "--resume", "never",
                             LOCKSTEP_FAKE_GPU_MEMORY="10000")
        self.assertIn("it is copied batch by batch", ended.stderr)
        self.assert_same_model(kept, self.model / "model.h5")

    def test_operations_are_measured_on_the_device(self) -> None:
        self.succeed("--device", "cuda", "--epochs", 1, *OPTIONS, LOCKSTEP_CUDA_PROFILE="1")
        timing = self.history()["timing"]["profile_ms_per_step"]
        for kind in ("forward", "backward", "optimizer"):
            self.assertGreater(timing[kind], 0)

    def train_endlessly(self, **environment: str) -> tuple[Running, dict[int, int]]:
        call = self.command("--device", "cuda", "--communication", "nccl", "--epochs", 1000000, "--steps-per-epoch", 2,
                            "--global-batch-size", 16, "--resume", "never")
        running = Running([str(MPIRUN), "-np", "2", "bash", "-c", RANK, "rank", *call], self.cwd, environment)
        running.wait_for_output("Epoch 3/")  # by then steps are captured
        shells = running.ranks()
        ranks = {}
        for rank, shell in shells.items():
            children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
            ranks[rank] = int(children[0])
        self.assertEqual(sorted(ranks), [0, 1])
        return running, ranks

    def test_ranks_end_if_one_is_stopped(self) -> None:
        running, ranks = self.train_endlessly(LOCKSTEP_COLLECTIVE_TIMEOUT="3")
        began = time.monotonic()
        os.kill(ranks[1], signal.SIGSTOP)
        try:
            running.wait_for_output("rank 0 ended with")
        finally:
            with contextlib.suppress(ProcessLookupError):  # some versions of mpirun kill it when rank 0 exits
                os.kill(ranks[1], signal.SIGKILL)
        self.assertLess(time.monotonic() - began, 3 + END_LIMIT_S)
        ended = running.end()
        self.assertIn(f"rank 0 ended with {TEMPORARY}", ended.stdout, str(ended))
        self.assertIn("LOCKSTEP_COLLECTIVE_TIMEOUT", ended.stderr)
