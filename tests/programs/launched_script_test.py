"""A script around the program that `lockstep launch` runs."""

import os
import signal
from pathlib import Path

import launch_test
from launch_test import EXAMPLES, children
from support import USAGE, Running, eventually, program


class LaunchedScriptTest(launch_test.Launched):
    def test_a_script_around_the_program_survives_the_request_for_a_stack(self) -> None:
        """SIGQUIT, at which a trainer prints its stack, would end a shell that waits for the trainer."""
        script = self.scratch / "run.sh"
        script.write_text('#!/bin/sh\n"$@"\nexit $?\n')
        script.chmod(0o755)
        command = ["launch", "--workers", "2", "--start-timeout", "8", "--", str(script), *self.command(*EXAMPLES)]
        running = Running([program("lockstep"), *command], self.cwd, {"TMPDIR": str(self.left)})
        trainers: dict[int, int] = {}

        def one_trainer_runs() -> bool:
            for shell in children(running.process.pid).values():
                trainers.update({rank: pid for rank, pid in children(shell).items()
                                 if Path(f"/proc/{pid}/comm").read_text() == "keras_mnist\n"})
            return 1 in trainers

        self.assertTrue(eventually(one_trainer_runs, interval=0.001))
        os.kill(trainers[1], signal.SIGSTOP)  # rank 0 waits for it in MPI_Init
        self.assertTrue(eventually(lambda: "[rank 0] stack of the main thread" in running.stderr, 20), running.stderr)
        os.kill(trainers[1], signal.SIGCONT)
        ended = running.end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertNotIn("signal", ended.stderr)

    def test_a_launch_is_of_one_program(self) -> None:
        script = self.scratch / "two.sh"
        script.write_text('#!/bin/sh\n"$@" && "$@"\n')
        script.chmod(0o755)
        for workers in ("1", "2"):
            command = ["launch", "--workers", workers, "--", str(script), *self.command(*EXAMPLES)]
            ended = Running([program("lockstep"), *command], self.cwd, {"TMPDIR": str(self.left)}).end()
            self.assertEqual(ended.code, USAGE, str(ended))
            self.assertIn("ran a second Lockstep program", ended.stderr)
            self.assertIn("a launch of its own", ended.stderr)

    def test_a_script_that_is_killed_after_training_has_failed(self) -> None:
        """The other rank has ended with 0 by then; what the script had left to do runs in the next generation."""
        script = self.scratch / "then.sh"
        mark = self.scratch / "mark"
        script.write_text(f"""#!/bin/sh
"$@" || exit
if mkdir {mark} 2>/dev/null; then sleep 2; kill -9 $$; fi
echo after >> {self.scratch}/after
""")
        script.chmod(0o755)
        command = ["launch", "--workers", "2", "--", str(script), *self.command(*EXAMPLES)]
        ended = Running([program("lockstep"), *command], self.cwd, {"TMPDIR": str(self.left)}).end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertIn("killed by signal 9", ended.stderr)
        self.assertGreaterEqual((self.scratch / "after").read_text().count("after"), 2)
