"""What users of a GPU do beside training straight on: they are cut short and resume, move between CPU and GPU, lose a
rank, want the same bits twice, or have no GPU at all."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from support import MPIRUN, TEMPORARY, USAGE, ProgramTest, Running, eventually, program

OPTIONS = ("--steps-per-epoch", 3, "--global-batch-size", 20, "--seed", 5, "--backup-save-freq", "2", "--deterministic")
EPOCHS = 10
END_LIMIT_S = 15.0
NO_DEVICE = {"CUDA_VISIBLE_DEVICES": "", "LOCKSTEP_PLAYED_GPUS": "0"}  # a real one hidden, a played one taken away
# A host of its own for every rank, in NCCL's eyes: so a ring stands on one GPU. The shell outlives its rank, so that
# mpirun does not end the others, and tells how it ended.
RANK = """NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo "$@"
echo "rank $OMPI_COMM_WORLD_RANK ended with $?"; sleep 4"""


def losses(history: dict[str, Any]) -> list[float]:
    return [epoch["loss"] for epoch in history["epochs"]]


class ProgramsTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        tried = self.run_program("--device", "cuda", "--epochs", 1, "--steps-per-epoch", 1, "--resume", "never")
        if tried.code == USAGE:
            self.skipTest(f"no GPU: {tried.errors}")
        self.assertEqual(tried.code, 0, str(tried))

    def whole(self, device: str) -> tuple[Path, list[float]]:
        self.model = self.scratch / f"whole_{device}"
        self.succeed("--device", device, "--epochs", EPOCHS, *OPTIONS)
        return self.model / "model.h5", losses(self.history())

    def broken(self, first: str, then: str) -> tuple[Path, list[float]]:
        """The same, killed on one device after its first backup, and ended on another."""
        self.model = self.scratch / f"{first}_{then}"
        running = self.start("--device", first, "--epochs", 4000, *OPTIONS)
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("*.h5")), 60), "no backup came")
        running.process.kill()
        running.end()
        ended = self.succeed("--device", then, "--epochs", EPOCHS, *OPTIONS)
        self.assertIn("Resuming from", ended.stdout)
        return self.model / "model.h5", losses(self.history())

    def same_model(self, left: Path, right: Path) -> None:
        compared = subprocess.run([program("lockstep"), "inspect", "--compare", str(left), str(right)],
                                  capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    def assert_near(self, mine: list[float], theirs: list[float]) -> None:
        self.assertEqual(len(mine), len(theirs))
        for left, right in zip(mine, theirs):
            self.assertAlmostEqual(left, right, delta=1e-4 * right)

    def test_the_same_bits(self) -> None:
        """Of two runs, and of one that was killed and went on."""
        model, trained = self.whole("cuda")
        kept = model.rename(self.scratch / "first.h5")
        self.same_model(kept, self.whole("cuda")[0])
        resumed, trained_too = self.broken("cuda", "cuda")
        self.same_model(kept, resumed)
        self.assertEqual(trained, trained_too)

    def test_from_device_to_device(self) -> None:
        expected = self.whole("cpu")[1]
        self.assert_near(self.broken("cpu", "cuda")[1], expected)
        self.assert_near(self.broken("cuda", "cpu")[1], expected)

    def test_bfloat16(self) -> None:
        options = ("--epochs", 6, "--steps-per-epoch", 5, "--learning-rate", "0.05", "--seed", 5, "--resume", "never")
        self.succeed("--device", "cuda", "--precision", "mixed_bfloat16", *options)
        low = losses(self.history())
        self.assertLess(low[-1], 0.9 * low[0])
        self.succeed("--device", "cuda", *options)
        for mine, theirs in zip(low, losses(self.history())):
            self.assertAlmostEqual(mine, theirs, delta=0.03 * theirs)

    def test_without_a_device(self) -> None:
        options = ("--epochs", 1, "--steps-per-epoch", 1, "--resume", "never")
        ended = self.succeed("--device", "auto", *options, **NO_DEVICE)
        self.assertIn("Computing on the CPU: no NVIDIA GPU was found", ended.stdout + ended.stderr)
        self.assert_fails(self.run_program("--device", "cuda", *options, **NO_DEVICE), USAGE, "--device cuda",
                          "no NVIDIA GPU", "--device cpu or auto")

    def train_for_ever(self, **environment: str) -> tuple[Running, dict[int, int]]:
        call = self.command("--device", "cuda", "--communication", "nccl", "--epochs", 1000000, "--steps-per-epoch", 2,
                            "--global-batch-size", 16, "--resume", "never")
        running = Running([str(MPIRUN), "-np", "2", "bash", "-c", RANK, "rank", *call], self.cwd, environment)
        running.wait_for_output("Epoch 3/")  # steps are recorded by now
        shells = running.ranks()
        ranks = {}
        for rank, shell in shells.items():
            children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
            ranks[rank] = int(children[0])
        self.assertEqual(sorted(ranks), [0, 1])
        return running, ranks

    def test_a_killed_rank(self) -> None:
        running, ranks = self.train_for_ever()
        began = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        running.wait_for_output("rank 0 ended with")
        self.assertLess(time.monotonic() - began, END_LIMIT_S)
        ended = running.end()
        self.assertIn(f"rank 0 ended with {TEMPORARY}", ended.stdout, str(ended))

    def test_a_stopped_rank(self) -> None:
        running, ranks = self.train_for_ever(LOCKSTEP_COLLECTIVE_TIMEOUT="3")
        began = time.monotonic()
        os.kill(ranks[1], signal.SIGSTOP)
        try:
            running.wait_for_output("rank 0 ended with")
        finally:
            os.kill(ranks[1], signal.SIGKILL)
        self.assertLess(time.monotonic() - began, 3 + END_LIMIT_S)
        ended = running.end()
        self.assertIn(f"rank 0 ended with {TEMPORARY}", ended.stdout, str(ended))
        self.assertIn("LOCKSTEP_COLLECTIVE_TIMEOUT", ended.stderr)
