"""The output of a run, and runs whose output cannot be written."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from support import USAGE, Ended, ProgramTest, Running, clean_environment

# Of what else the machine does, by any rank.
BUSY_CORES = re.compile(r"(\[rank \d+\] )?warning: this worker's threads waited \d+ % .*\n")
EPOCH_LINE = re.compile(r"^\d+/\d+ - \d+s - .*accuracy: .* - loss: ", re.MULTILINE)


class OutputTest(ProgramTest):
    default_program = "keras_mnist"
    short = ("--epochs", 3, "--steps-per-epoch", 2)

    def shell(self, script: str, *options: object, workers: int = 1) -> Ended:
        """Runs the program by a bash script, as "$@"."""
        command = self.command(*self.short, *options, workers=workers)
        return Running(["bash", "-c", script, "bash", *command], self.cwd, {}).end()

    def test_one_line_per_epoch(self) -> None:
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.model = self.scratch / f"model_{workers}"
                ended = self.succeed(*self.short, workers=workers)
                self.assertEqual(len(EPOCH_LINE.findall(ended.stdout)), 3, str(ended))
                for once in ("Lockstep ", 'Model: "sequential"', "Epoch 3/3", "Test loss: "):
                    self.assertEqual(ended.stdout.count(once), 1, str(ended))
                self.assertNotRegex(ended.stdout, "[\b\r\x1b]")
                self.assertIn(f"{workers} worker" + ("s" if workers > 1 else ""), ended.stdout)
                self.assertEqual(BUSY_CORES.sub("", ended.stderr), "")

    def test_startup_line_names_the_communication(self) -> None:
        self.assertIn("3 workers, shared memory", self.succeed(*self.short, workers=3).stdout)
        self.assertIn("2 workers, MPI", self.succeed(*self.short, "--communication", "mpi", workers=2).stdout)

    def test_verbose_0_prints_nothing(self) -> None:
        for name in ("keras_mnist", "custom_training_mnist"):
            with self.subTest(name):
                self.model = self.scratch / name  # a model that is there already would be warned of
                ended = self.succeed(*self.short, "--verbose", 0, workers=2, name=name)
                self.assertEqual((ended.stdout, BUSY_CORES.sub("", ended.stderr)), ("", ""))
                self.assertTrue((self.model / "model.h5").exists())

    def test_a_custom_loop_prints_on_the_chief(self) -> None:
        ended = self.succeed("--epochs", 2, workers=2, name="custom_training_mnist")
        self.assertEqual(len(re.findall(r"^Epoch \d, Loss: ", ended.stdout, re.MULTILINE)), 2, str(ended))

    def test_the_summary_fits_a_narrow_terminal(self) -> None:
        terminal, output = pty.openpty()
        self.addCleanup(os.close, terminal)
        fcntl.ioctl(output, termios.TIOCSWINSZ, struct.pack("4H", 24, 50, 0, 0))
        command = self.command("--epochs", 1, "--steps-per-epoch", 1, "--global-batch-size", 8)
        process = subprocess.Popen(command, cwd=self.cwd, stdout=output, env=clean_environment({}))
        os.close(output)
        text = b""
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            while part := os.read(terminal, 65536):
                text += part
        self.assertEqual(process.wait(), 0)
        table = [line for line in text.decode().splitlines() if line.startswith(("┏", "┃", "│", "└"))]
        self.assertEqual({len(line) for line in table}, {46})

    def test_a_closed_pipe_gets_the_first_line_only(self) -> None:
        for workers in (1, 2):
            with self.subTest(workers=workers):
                ended = self.shell('"$@" | head -n 1', workers=workers)
                self.assertTrue(ended.stdout.startswith("Lockstep "), ended.stdout)
                self.assertEqual(ended.stdout.count("\n"), 1)

    def test_closed_and_full_outputs_do_not_affect_training(self) -> None:
        self.succeed(*self.short)
        expected = (self.model / "model.h5").read_bytes()
        for script in ('"$@" >&-', '"$@" >&- 2>&-', '"$@" >/dev/full', '"$@" </dev/null >&- <&-'):
            with self.subTest(script):
                (self.model / "model.h5").unlink()
                ended = self.shell(script)
                self.assertEqual((ended.code, ended.stderr), (0, ""))
                self.assertEqual((self.model / "model.h5").read_bytes(), expected)

    def test_a_closed_output_does_not_affect_two_workers(self) -> None:
        self.assertEqual(self.shell('"$@" >&-', workers=2).code, 0)
        self.assertTrue((self.model / "model.h5").exists())

    def test_exit_codes_do_not_need_a_standard_error(self) -> None:
        """mpirun 4.1 hangs without a standard error, so two workers get /dev/full."""
        self.assertEqual(self.shell('"$@" >&- 2>&-', "--data-dir", "/nowhere").code, USAGE)
        self.assertEqual(self.shell('"$@" >/dev/full 2>/dev/full', "--data-dir", "/nowhere", workers=2).code, USAGE)
