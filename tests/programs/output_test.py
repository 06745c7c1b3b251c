"""What a run prints, and what becomes of it when nobody reads."""

import re

from support import IO, Ended, ProgramTest, Running

EPOCH_LINE = re.compile(r"^\d+/\d+ - \d+s - .*accuracy: .* - loss: ", re.MULTILINE)


class OutputTest(ProgramTest):
    default_program = "keras_mnist"
    short = ("--epochs", 3, "--steps-per-epoch", 2)

    def shell(self, script: str, *options: object, workers: int = 1) -> Ended:
        """A run by bash, "$@" in `script`."""
        command = self.command(*self.short, *options, workers=workers)
        return Running(["bash", "-c", script, "bash", *command], self.cwd, {}).end()

    def test_one_line_an_epoch(self) -> None:
        for workers in (1, 2):
            with self.subTest(workers=workers):
                ended = self.succeed(*self.short, workers=workers)
                self.assertEqual(len(EPOCH_LINE.findall(ended.stdout)), 3, str(ended))
                for once in ("Lockstep ", 'Model: "sequential"', "Epoch 3/3", "Test loss: "):
                    self.assertEqual(ended.stdout.count(once), 1, str(ended))
                self.assertNotRegex(ended.stdout, "[\b\r\x1b]")
                self.assertIn(f"{workers} worker" + ("s" if workers > 1 else ""), ended.stdout)
                self.assertEqual(ended.stderr, "")

    def test_greeting_tells_how_workers_communicate(self) -> None:
        self.assertIn("3 workers, shared memory", self.succeed(*self.short, workers=3).stdout)
        self.assertIn("2 workers, MPI", self.succeed(*self.short, "--communication", "mpi", workers=2).stdout)

    def test_silent(self) -> None:
        for name in ("keras_mnist", "custom_training_mnist"):
            with self.subTest(name):
                ended = self.succeed(*self.short, "--verbose", 0, workers=2, name=name)
                self.assertEqual((ended.stdout, ended.stderr), ("", ""))
                self.assertTrue((self.model / "model.h5").exists())

    def test_a_loop_of_ones_own_prints_on_the_chief(self) -> None:
        ended = self.succeed("--epochs", 2, workers=2, name="custom_training_mnist")
        self.assertEqual(len(re.findall(r"^Epoch \d, Loss: ", ended.stdout, re.MULTILINE)), 2, str(ended))

    def test_a_reader_that_leaves(self) -> None:
        for workers in (1, 2):
            with self.subTest(workers=workers):
                ended = self.shell('"$@" | head -n 1', workers=workers)
                self.assertTrue(ended.stdout.startswith("Lockstep "), ended.stdout)
                self.assertEqual(ended.stdout.count("\n"), 1)

    def test_closed_and_full_outputs(self) -> None:
        self.succeed(*self.short)
        expected = (self.model / "model.h5").read_bytes()
        for script in ('"$@" >&-', '"$@" >&- 2>&-', '"$@" >/dev/full', '"$@" </dev/null >&- <&-'):
            with self.subTest(script):
                (self.model / "model.h5").unlink()
                ended = self.shell(script)
                self.assertEqual((ended.code, ended.stderr), (0, ""))
                self.assertEqual((self.model / "model.h5").read_bytes(), expected)

    def test_closed_output_of_two_workers(self) -> None:
        self.assertEqual(self.shell('"$@" >&-', workers=2).code, 0)
        self.assertTrue((self.model / "model.h5").exists())

    def test_an_error_without_anybody_to_tell(self) -> None:
        """mpirun itself (4.1) hangs without a standard error, so two workers get one that takes nothing."""
        self.assertEqual(self.shell('"$@" >&- 2>&-', "--data-dir", "/nowhere").code, IO)
        self.assertEqual(self.shell('"$@" >/dev/full 2>/dev/full', "--data-dir", "/nowhere", workers=2).code, IO)
