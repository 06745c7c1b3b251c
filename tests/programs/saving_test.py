"""Models that cannot be written: reported before training where possible, and the earlier model is always kept."""

import os
from pathlib import Path

from support import IO, ProgramTest, Running


class SavingTest(ProgramTest):
    def test_path_below_a_file(self) -> None:
        (self.scratch / "file").write_text("in the way")
        for workers in (1, 2):
            with self.subTest(workers=workers):
                model = self.scratch / "file" / "model"
                ended = self.run_program("--model-dir", model, workers=workers)
                self.assert_fails(ended, IO, str(model), "is a file, not a directory", "choose another")
                self.assertEqual(ended.stdout, "")  # fails before training

    def test_a_missing_permission_is_reported_before_training(self) -> None:
        if os.geteuid() == 0:
            self.skipTest("root can write everywhere")
        self.model.mkdir(mode=0o555)
        ended = self.run_program()
        self.assert_fails(ended, IO, str(self.model), "Permission denied", "choose another directory")
        self.assertEqual(ended.stdout, "")

    def test_full_disk_is_reported_before_training(self) -> None:
        with self.mounted("256k") as disk:
            self.model = disk / "model"
            with self.earlier_model_kept():
                fill(disk / "filler")
                ended = self.run_program("--epochs", 1, workers=2)
                self.assert_fails(ended, IO, str(self.model / "history.json"), "No space left", "free some space")
                self.assertEqual(ended.stdout, "")

    def test_disk_too_small(self) -> None:
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.setUp()
                with self.mounted("256k") as disk:
                    self.model = disk / "model"
                    with self.earlier_model_kept():
                        ended = self.run_program("--epochs", 1, workers=workers)
                    self.assert_fails(ended, IO, str(self.model / "model.h5"), "No space left", "bytes needed",
                                      "free some space")

    def test_older_backups_make_room(self) -> None:
        options = ("--epochs", 4, "--steps-per-epoch", 5, "--seed", 5, "--deterministic")
        self.default_program = "keras_mnist"
        self.succeed(*options)
        whole = (self.model / "model.h5").read_bytes()
        with self.mounted(str(len(whole) * 5 // 2)) as disk:
            self.model = disk / "model"
            ended = self.succeed(*options)
            self.assertRegex(ended.stderr, r"no space is left for .*fit-1-step-.*\.h5; removed 1 older backup of this job")
            self.assertRegex(ended.stderr, r"no space is left for .*model\.h5; removed 1 older backup of this job")
            self.assertEqual((self.model / "model.h5").read_bytes(), whole)

    def test_file_size_limit(self) -> None:
        with self.earlier_model_kept():
            limited = ["bash", "-c", 'ulimit -f 256; exec "$@"', "bash", *self.command("--epochs", 1)]
            ended = Running(limited, self.cwd, {}).end()
        self.assert_fails(ended, IO, str(self.model / "model.h5"), "File too large", "ulimit -f")

    def test_a_save_replaces_what_was_there(self) -> None:
        self.model.mkdir()
        (self.model / "model.h5").write_text("an earlier model")
        (self.model / ".model.h5.0123abcd.tmp").write_text("left by a killed process")
        self.succeed("--epochs", 1)
        self.assertEqual(sorted(path.name for path in self.model.iterdir()),
                         [".lockstep.lock", "history.json", "model.h5", "report.html"])
        self.assertTrue((self.model / "model.h5").read_bytes().startswith(b"\x89HDF\r\n\x1a\n"))


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        for size in (65536, 4096, 1):  # down to the last byte
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
