"""Missing, damaged or wrong data: one sentence, the right exit code, and an unchanged earlier model."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import data_files
from data_files import TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS
from support import DATA, IO, USAGE, ProgramTest

Damage = Callable[[Path], object]


def cut(name: str, size: int) -> Damage:
    return lambda data: (data / name).write_bytes((data / name).read_bytes()[:size])


def put(name: str, at: int, values: bytes) -> Damage:
    def damage(data: Path) -> None:
        old = (data / name).read_bytes()
        (data / name).write_bytes(old[:at] + values + old[at + len(values) :])

    return damage


def append(name: str, values: bytes) -> Damage:
    return lambda data: (data / name).write_bytes((data / name).read_bytes() + values)


def replace_by_directory(name: str) -> Damage:
    def damage(data: Path) -> None:
        (data / name).unlink()
        (data / name).mkdir()

    return damage


def damage_gzip(data: Path) -> None:
    packed = bytearray(gzip.compress((data / TRAIN_IMAGES).read_bytes()))
    packed[len(packed) // 2] ^= 0xFF
    (data / TRAIN_IMAGES).unlink()
    (data / f"{TRAIN_IMAGES}.gz").write_bytes(packed)


def only_npz(content: bytes) -> Damage:
    def damage(data: Path) -> None:
        for file in data.iterdir():
            file.unlink()
        (data / "mnist.npz").write_bytes(content)

    return damage


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def remove_all(data: Path) -> None:
    for file in data.iterdir():
        file.unlink()


DAMAGES: dict[str, tuple[Damage, int, tuple[str, ...]]] = {
    "no files": (remove_all, USAGE, (TRAIN_IMAGES, "fetch_data.sh")),
    "one missing": (lambda data: (data / TEST_LABELS).unlink(), IO, (TEST_LABELS, "fetch_data.sh")),
    "a directory": (replace_by_directory(TRAIN_LABELS), IO, (TRAIN_LABELS, "not a regular file")),
    "truncated": (cut(TRAIN_IMAGES, 5000), DATA, (TRAIN_IMAGES, "byte 16", "4984", "fetch the file again")),
    "cut in header": (cut(TRAIN_IMAGES, 10), DATA, (TRAIN_IMAGES, "ends at byte 10", "fetch the file again")),
    "empty file": (cut(TRAIN_LABELS, 0), DATA, (TRAIN_LABELS, "ends at byte 0", "fetch the file again")),
    "too long": (append(TEST_LABELS, b"x"), DATA, (TEST_LABELS, "41", "fetch the file again")),
    "garbled": (put(TRAIN_IMAGES, 0, b"GARBLED!"), DATA, (TRAIN_IMAGES, "begins with", "47 41 52 42", "original file")),
    "huge dimension": (put(TRAIN_IMAGES, 4, b"\xff\xff\xff\xff"), DATA, (TRAIN_IMAGES, "at byte 4", "right file")),
    "gzip damaged": (damage_gzip, DATA, (f"{TRAIN_IMAGES}.gz",)),
    "label 12": (put(TRAIN_LABELS, 8 + 17, b"\x0c"), DATA, (TRAIN_LABELS, "target 17", "class 12", "0 to 9")),
    "labels lost": (
        lambda data: (data / TRAIN_LABELS).write_bytes(data_files.idx((99,), bytes(99))),
        DATA, (TRAIN_LABELS, "99 labels", "fetch both")),
    "small images": (
        lambda data: data_files.write_idx(data, side=10), DATA, (TRAIN_IMAGES, "(10, 10)", "(28, 28, 1)")),
    "npz garbage": (only_npz(b"garbage " * 100), DATA, ("not a zip archive", "numpy.savez")),
    "npz half": (only_npz(data_files.npz()[:50000]), DATA, ("mnist.npz", "cut short")),
    "npz without y_test": (only_npz(data_files.npz(leave_out="y_test")), DATA, ("y_test.npy", "savez")),
    "npz damaged": (only_npz(flip(data_files.npz(), 30000)), DATA, ("mnist.npz:x_train.npy", "damaged", "fetch")),
}
ON_TWO_WORKERS = ("one missing", "truncated", "label 12", "npz garbage")


class BadDataTest(ProgramTest):
    def check(self, what: str, workers: int) -> None:
        damage, code, phrases = DAMAGES[what]
        damage(self.data)
        with self.earlier_model_kept():
            self.assert_fails(self.run_program("--epochs", 2, workers=workers), code, *phrases)

    def test_one_worker_reports_each_kind_of_bad_data(self) -> None:
        for what in DAMAGES:
            with self.subTest(what):
                self.setUp()
                self.check(what, workers=1)

    def test_two_workers_print_one_error(self) -> None:
        for what in ON_TWO_WORKERS:
            with self.subTest(what):
                self.setUp()
                self.check(what, workers=2)

    def test_three_workers_print_one_error(self) -> None:
        self.check("garbled", workers=3)

    def test_invalid_data_paths_are_rejected(self) -> None:
        (self.scratch / "file").write_text("no data")
        (self.scratch / "file.npz").write_text("no data")
        os.mkfifo(self.scratch / "fifo.npz")  # nobody writes: opening it must not wait
        for path, code, phrases in (
            ("nowhere", USAGE, ("nowhere", "does not exist", "fetch_data.sh")),
            ("nowhere.npz", USAGE, ("nowhere.npz", "No such file", "check the path")),
            ("fifo.npz", IO, ("fifo.npz is not a regular file",)),
            ("file", IO, ("neither a directory nor a .npz file",)),
            ("file.npz", DATA, ("file.npz", "not a zip archive")),
        ):
            with self.subTest(path), self.earlier_model_kept():
                self.assert_fails(self.run_program("--data-dir", self.scratch / path), code, *phrases)

    def test_keras_mnist_reports_bad_data(self) -> None:
        cut(TRAIN_IMAGES, 5000)(self.data)
        with self.earlier_model_kept():
            self.assert_fails(self.run_program(workers=2, name="keras_mnist"), DATA, TRAIN_IMAGES)

    def test_missing_on_one_worker_only(self) -> None:
        with self.earlier_model_kept():
            ended = self.run_program(None, "--data-dir", self.scratch / "nowhere")
        self.assert_fails(ended, USAGE, "nowhere does not exist", rank=1)

    def test_different_data_on_one_worker(self) -> None:
        other = data_files.write_idx(self.scratch / "other", seed=2)
        with self.earlier_model_kept():
            ended = self.run_program(None, "--data-dir", other)
        self.assert_fails(ended, USAGE, "disagree about the data", "worker 0 has 100 examples",
                          "worker 1 has 100 examples", "use the same on all workers")

    def test_equal_data_at_another_path_is_accepted(self) -> None:
        self.succeed("--epochs", 1, None, "--epochs", 1, "--data-dir", data_files.write_idx(self.scratch / "copy"))

    def test_npz_of_good_data_trains(self) -> None:
        (self.scratch / "good.npz").write_bytes(data_files.npz())
        self.succeed("--epochs", 1)
        from_idx = self.history()["epochs"][0]["loss"]
        self.succeed("--epochs", 1, "--data-dir", self.scratch / "good.npz")
        self.assertEqual(self.history()["epochs"][0]["loss"], from_idx)
