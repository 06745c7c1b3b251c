"""What scripts/mpirun.sh says: the errors of programs once, and those that only mpirun knows."""

import os
import signal
from pathlib import Path

from support import MPIRUN, TEMPORARY, USAGE, Ended, ProgramTest, Running, eventually, program

RULE = "-" * 40


class MpirunTest(ProgramTest):
    def mpirun(self, *words: object) -> Ended:
        return Running([str(MPIRUN), *map(str, words)], self.cwd, {}).end()

    def test_an_error_of_the_program_comes_alone(self) -> None:
        ended = self.mpirun("-np", 2, program("lockstep"), "trian")
        self.assertEqual(ended.code, USAGE)
        self.assertNotIn(RULE, ended.stderr)
        self.assertIn("did you mean train?", ended.stderr)

    def test_an_error_of_mpirun_is_told(self) -> None:
        ended = self.mpirun("-np", 2, "lockstp", "train")
        self.assertNotIn(ended.code, (0, TEMPORARY))
        self.assertIn("lockstp", ended.stderr)
        self.assertNotEqual(self.mpirun("-np", 2).stderr, "")

    def test_a_killed_rank_is_told(self) -> None:
        command = ["-np", "2", program("keras_mnist"), "--data-dir", str(self.data), "--model-dir", str(self.model),
                   "--epochs", "100000", "--parallelism", "data"]
        job = Running([str(MPIRUN), *command], self.cwd, {})
        self.assertTrue(eventually(lambda: "Epoch 2/" in job.stdout, 60), job.stdout)
        ranks = [int(status.parent.name) for status in Path("/proc").glob("[0-9]*/cmdline")
                 if is_rank(status, str(self.model))]
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[1], signal.SIGKILL)
        ended = job.end()
        self.assertEqual(ended.code, TEMPORARY, ended.stderr)
        self.assertIn("a rank was killed by signal 9; the same command goes on from the last backup", ended.stderr)


def is_rank(command_line: Path, model: str) -> bool:
    try:
        words = command_line.read_bytes().decode().split("\0")
    except OSError:
        return False  # the process has exited
    return words[0] == program("keras_mnist") and model in words
