"""A script around the program that `lockstep launch` runs."""

import os
import signal
from pathlib import Path

import launch_test
from launch_test import EXAMPLES, children
from support import TEMPORARY, USAGE, Running, eventually, program


def trainers_of_scripts(running: Running) -> dict[int, int]:
    """The process ids of keras_mnist, by rank."""
    found: dict[int, int] = {}
    for rank, script in children(running.process.pid).items():
        for pid in Path(f"/proc/{script}/task/{script}/children").read_text().split():
            if Path(f"/proc/{pid}/comm").read_text() == "keras_mnist\n":
                found[rank] = int(pid)
    return found


class LaunchedScriptTest(launch_test.Launched):
    def test_a_script_around_the_program_survives_the_request_for_a_stack(self) -> None:
        """SIGQUIT, at which a trainer prints its stack, would end a shell that waits for the trainer."""
        script = self.scratch / "run.sh"
        script.write_text('#!/bin/sh\n"$@"\nexit $?\n')
        script.chmod(0o755)
        command = ["launch", "--workers", "2", "--start-timeout", "8", "--", str(script), *self.command(*EXAMPLES)]
        running = Running([program("lockstep"), *command], self.cwd, {"TMPDIR": str(self.left)})
        self.assertTrue(eventually(lambda: 1 in trainers_of_scripts(running), interval=0.001))
        trainers = trainers_of_scripts(running)
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

    def test_a_pipe_after_the_program_does_not_hide_that_it_was_killed(self) -> None:
        options = (*EXAMPLES, "--epochs", 40)
        whole = self.whole_run(2, *options)
        command = ["launch", "--workers", "2", "--", "sh", "-c", '"$@" | cat', "sh",
                   *self.command(*options, "--backup-save-freq", 20)]
        running = Running([program("lockstep"), *command], self.cwd, {"TMPDIR": str(self.left)})
        self.started[0] = running
        self.wait_for_backup()
        os.kill(trainers_of_scripts(running)[1], signal.SIGKILL)
        (ended,) = self.assert_ended(0)
        self.assertIn("the Lockstep program that it ran did not", ended.stderr, str(ended))
        self.assertIn("Resuming from", ended.stdout, str(ended))
        self.assert_same_model(whole)

    def test_a_program_that_answers_sigterm_with_0_has_not_finished(self) -> None:
        waits = "trap 'exit 0' TERM; echo waits; while :; do sleep 0.05; done"
        running = Running([program("lockstep"), "launch", "--", "sh", "-c", waits], self.cwd, {"TMPDIR": str(self.left)})
        self.assertTrue(eventually(lambda: "waits" in running.stdout, 20))
        running.process.send_signal(signal.SIGTERM)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
