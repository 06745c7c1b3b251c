"""`lockstep train`, `evaluate` and `predict` with models from files, and the errors of invalid ones.

One file, because all tests train and use one small model.
"""

import io
import json
import math
import os
import re
import signal
import struct
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data_files
from support import DATA, IO, TEMPORARY, USAGE, Ended, ProgramTest, Running, eventually, program


def description(*layers: tuple[str, dict[str, Any]], shape: tuple[int, ...] = (28, 28)) -> str:
    """A minimal model.to_json() of Keras."""
    named = [{"class_name": kind, "config": {"name": f"layer_{i}", **config}} for i, (kind, config) in enumerate(layers)]
    given = {"class_name": "InputLayer", "config": {"batch_shape": [None, *shape], "dtype": "float32", "name": "given"}}
    return json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": [given, *named]}})


SMALL = (("Flatten", {}), ("Dense", {"units": 12, "activation": "relu"}), ("Dense", {"units": 10}))
COMPILED = ("--optimizer", "adam", "--loss", "sparse_categorical_crossentropy")
SHORT = ("--global-batch-size", 20, "--epochs", 2)


class TrainTest(ProgramTest):
    default_program = "lockstep"

    def setUp(self) -> None:
        super().setUp()
        self.plain = self.scratch / "plain.json"
        self.plain.write_text(description(*SMALL))

    def command(self, *options: object, workers: int = 1, name: str = "") -> list[str]:
        lockstep = program("lockstep")
        words = super().command(*options, workers=workers, name=name)
        return [more for word in words for more in
                ([lockstep, "train"] if word == lockstep else [word.replace(lockstep + " ", lockstep + " train ")])]

    def use(self, command: str, *options: object, **environment: str) -> Ended:
        """Runs `lockstep evaluate` or `predict`."""
        call = [program("lockstep"), command, "--data-dir", str(self.data), *map(str, options)]
        return Running(call, self.cwd, environment).end()

    def trained(self, name: str, *options: object, workers: int = 1) -> Path:
        """Trains the plain model in a first run and returns the saved file."""
        self.model = self.scratch / f"made_{name}"
        self.succeed("--model", self.plain, *COMPILED, *SHORT, "--save-as", name, *options, workers=workers)
        made, self.model = self.model / name, self.scratch / "model"
        return made

    def inspect(self, *options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program("lockstep"), "inspect", *map(str, options)], capture_output=True, text=True)

    def describe(self, file: Path) -> dict[str, Any]:
        shown = self.inspect("--json", "--check", file)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        read: dict[str, Any] = json.loads(shown.stdout)
        return read

    def same_weights(self, left: Path, right: Path) -> bool:
        return self.inspect("--compare", left, right).returncode == 0

    def losses(self) -> list[float]:
        return [epoch["loss"] for epoch in self.history()["epochs"]]

    def refused(self, code: int, *options: object, says: tuple[str, ...], workers: int = 1) -> None:
        with self.earlier_model_kept():
            ended = self.run_program(*options, workers=workers)
        self.assert_fails(ended, code, *says)
        self.assertNotIn("Epoch", ended.stdout)

    # --- valid use ------------------------------------------------------------------------------------------------

    def test_every_file_format_can_be_trained(self) -> None:
        for name in ("first.h5", "first.keras"):
            first = self.trained(name)
            for workers in (1, 2):
                with self.subTest(name, workers=workers):
                    self.model = self.scratch / f"{name}_{workers}"
                    ended = self.succeed("--model", first, *SHORT, workers=workers)
                    saved = self.model / ("model.keras" if name.endswith(".keras") else "model.h5")
                    self.assertIn(f"Saved {saved}", ended.stdout)
                    training = self.describe(saved)["training"]
                    self.assertEqual((training["optimizer"], training["iteration"]), ("Adam", 20))
                    self.assertFalse((self.model / "backup").exists())

    def test_training_continues_from_a_saved_file(self) -> None:
        """Weights, optimizer state and step come from the file. Each batch is the whole data, so its order is
        irrelevant."""
        whole = ("--global-batch-size", 100)
        self.succeed("--model", self.plain, *COMPILED, *whole, "--epochs", 8)
        losses = self.losses()
        first = self.trained("first.keras", *whole, "--epochs", 4)
        self.succeed("--model", first, *whole, "--epochs", 4)
        for mine, theirs in zip(self.losses(), losses[4:], strict=True):
            self.assertAlmostEqual(mine, theirs, delta=1e-5)
        self.assertEqual(self.describe(self.model / "model.keras")["training"]["iteration"], 8)

    def test_a_json_model_starts_with_random_or_given_weights(self) -> None:
        first = self.trained("first.weights.h5")
        second = self.trained("second.weights.h5", "--seed", 2)
        self.assertFalse(self.same_weights(first, second))
        frozen = ("--learning-rate", 1e-30, "--save-as", "kept.weights.h5")
        self.succeed("--model", self.plain, *COMPILED, *SHORT, *frozen, "--initial-weights", first)
        self.assertTrue(self.same_weights(first, self.model / "kept.weights.h5"))

    def test_given_weights_replace_those_of_the_file(self) -> None:
        first, second = self.trained("first.keras"), self.trained("second.weights.h5", "--seed", 2)
        self.succeed("--model", first, *SHORT, "--learning-rate", 1e-30, "--initial-weights", second)
        self.assertTrue(self.same_weights(second, self.model / "model.keras"))
        self.assertEqual(self.describe(self.model / "model.keras")["training"]["iteration"], 10)

    def test_options_override_the_file(self) -> None:
        first = self.trained("first.h5")
        for options, optimizer, loss, logs in (
            (("--optimizer", "rmsprop"), "RMSprop", "sparse_categorical_crossentropy", {"loss", "accuracy"}),
            (("--loss", "categorical_hinge"), "Adam", "categorical_hinge", {"loss", "accuracy"}),
            (("--metrics", "none"), "Adam", "sparse_categorical_crossentropy", {"loss"}),
            (("--loss", "categorical_crossentropy"), "Adam", "categorical_crossentropy", {"loss", "accuracy"}),
        ):
            with self.subTest(options):
                self.succeed("--model", first, *SHORT, *options)
                training = self.describe(self.model / "model.h5")["training"]
                self.assertEqual((training["optimizer"], training["loss"]), (optimizer, loss))
                self.assertEqual(training["iteration"], 20 if optimizer == "Adam" else 10)
                self.assertEqual(set(self.history()["epochs"][0]) & {"loss", "accuracy"}, logs)

    def test_one_hot_targets_match_class_indices(self) -> None:
        found = []
        for loss in ("sparse_categorical_crossentropy", "categorical_crossentropy"):
            self.succeed("--model", self.plain, "--optimizer", "sgd", "--loss", loss, *SHORT)
            found.append(self.losses())
        for sparse, dense in zip(*found):
            self.assertAlmostEqual(sparse, dense, delta=1e-5)

    def test_softmax_means_probabilities(self) -> None:
        """A model with logits and the same model with a softmax layer begin with the same loss."""
        self.succeed("--model", self.plain, *COMPILED, *SHORT)
        logits = self.losses()
        self.plain.write_text(description(*SMALL, ("Activation", {"activation": "softmax"})))
        self.succeed("--model", self.plain, *COMPILED, *SHORT)
        self.assertAlmostEqual(self.losses()[0], logits[0], delta=1e-3)

    def test_workers_match_one_process(self) -> None:
        alone = self.trained("alone.h5", "--epochs", 5)
        whole = json.loads((alone.parent / "history.json").read_text())["epochs"]
        for workers in (2, 3):
            with self.subTest(workers=workers):
                self.succeed("--model", self.plain, *COMPILED, *SHORT, "--epochs", 5, workers=workers)
                for mine, theirs in zip(self.losses(), whole, strict=True):
                    self.assertAlmostEqual(mine, theirs["loss"], delta=1e-4 * theirs["loss"])

    def test_validation_early_stopping_and_logs(self) -> None:
        csv, curves = self.scratch / "log.csv", self.scratch / "curves"
        ended = self.succeed("--model", self.plain, *COMPILED, "--epochs", 50, "--learning-rate", 1e-30, "--csv-log",
                             csv, "--tensorboard-dir", curves, "--validation-split", 0.2, "--early-stopping", 2,
                             workers=2)
        self.assertIn("val_accuracy", ended.stdout)
        self.assertEqual(len(self.history()["epochs"]), 3)  # no epoch improves on the first
        self.assertEqual(csv.read_text().splitlines()[0], "epoch,accuracy,loss,val_accuracy,val_loss")
        self.assertEqual(len(csv.read_text().splitlines()), 4)
        self.assertEqual({path.name for path in curves.iterdir()}, {"train", "validation"})
        self.assertEqual(self.history()["config"]["early_stopping"], "2")

    def test_losses_and_metrics_have_short_names(self) -> None:
        self.data = self.scratch / "one_hot.npz"
        self.data.write_bytes(data_files.npz(one_hot=True))
        ended = self.succeed("--model", self.plain, "--optimizer", "sgd", "--loss", "bce", "--metrics", "mae,mse", *SHORT)
        self.assertIn("mae: ", ended.stdout)
        self.assertEqual(self.history()["epochs"][0].keys() & {"mae", "mse"}, {"mae", "mse"})

    def test_a_validation_set_of_its_own(self) -> None:
        """Its labels are wrong, so that its loss rises while that of the training and test sets falls."""
        self.data = self.scratch / "with_validation.npz"
        self.data.write_bytes(data_files.npz())
        with zipfile.ZipFile(self.data, "a") as archive:
            images, labels = data_files.digits(40, 1001)  # the test set
            archive.writestr("x_val.npy", data_files.npy((40, 28, 28), images))
            archive.writestr("y_val.npy", data_files.npy((40,), bytes((label + 1) % 10 for label in labels)))
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.succeed("--model", self.plain, *COMPILED, *SHORT, "--epochs", 40, "--early-stopping", 1,
                             workers=workers)
                epochs, test = self.history()["epochs"], self.history()["evaluation"]
                self.assertLess(len(epochs), 40)
                self.assertLess(epochs[-1]["loss"], epochs[0]["loss"])
                self.assertGreater(epochs[-1]["val_loss"], test["loss"])
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--validation-split", 0.5,
                     says=("--validation-split is 0.5", "x_val"))

    def test_input_scale_equals_a_rescaling_layer(self) -> None:
        losses = {}
        for scale in (None, 1 / 255, 1):
            self.succeed("--model", self.plain, *COMPILED, *SHORT, *(() if scale is None else ("--input-scale", scale)))
            losses[scale] = self.losses()[0]
        self.assertAlmostEqual(losses[None], losses[1 / 255], delta=1e-5)
        self.assertGreater(losses[1], 2 * losses[None])
        rescaled = description(("Rescaling", {"scale": 1 / 255, "offset": 0.0}), *SMALL)
        self.plain.write_text(rescaled)
        self.succeed("--model", self.plain, *COMPILED, *SHORT)
        self.assertAlmostEqual(losses[None], self.losses()[0], delta=1e-5)

    def test_images_with_several_channels(self) -> None:
        self.data = self.scratch / "colour.npz"
        with zipfile.ZipFile(self.data, "w") as archive:
            for part, count in (("train", 60), ("test", 20)):
                images, (_, labels) = bytes(range(192)) * count, data_files.digits(count, count)
                archive.writestr(f"x_{part}.npy", data_files.npy((count, 8, 8, 3), images))
                archive.writestr(f"y_{part}.npy", data_files.npy((count, 1), labels))
        self.plain.write_text(description(*SMALL, shape=(8, 8, 3)))
        self.succeed("--model", self.plain, *COMPILED, *SHORT, workers=2)
        self.assertEqual(len(self.losses()), 2)

    # --- killed runs ----------------------------------------------------------------------------------------------

    def test_a_killed_run_resumes(self) -> None:
        first = self.trained("first.keras")
        options = ("--model", first, "--global-batch-size", 20, "--epochs", 1000, "--deterministic", "--backup-save-freq", 3)
        self.succeed(*options, workers=2)
        whole = self.model / "model.keras"
        self.model = self.scratch / "broken"
        running = self.start(*options, workers=2)
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
        os.kill(running.ranks()[1], signal.SIGKILL)
        self.assertNotEqual(running.end().code, 0)
        self.assertFalse((self.model / "model.keras").exists(), "the run had ended before it was killed")
        ended = self.succeed(*options, workers=2)
        self.assertIn("Resuming from", ended.stdout)
        self.assertTrue(self.same_weights(whole, self.model / "model.keras"))
        self.assertFalse((self.model / "backup").exists())

    def test_an_interrupted_run_goes_on(self) -> None:
        first = self.trained("first.keras")
        options = ("--model", first, "--global-batch-size", 20, "--epochs", 1000, "--deterministic")
        self.succeed(*options)
        whole = self.model / "model.keras"
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.model = self.scratch / f"interrupted_{workers}"
                running = self.start(*options, workers=workers)
                running.wait_for_output("Epoch 3/")
                running.process.send_signal(signal.SIGINT)
                ended = running.end()
                self.assertEqual(ended.code, TEMPORARY, str(ended))
                self.assertIn("interrupted: stopping after this step", ended.stderr)
                self.assertRegex(ended.stderr, r"Interrupted (before|after step \d+ of) epoch \d+; the next start")
                self.assertIn("Resuming from", self.succeed(*options, workers=workers).stdout)
                if workers == 1:
                    self.assertTrue(self.same_weights(whole, self.model / "model.keras"))

    def test_a_step_may_take_its_time_after_an_interrupt(self) -> None:
        """mpirun alone would kill the ranks one second after an interrupt."""
        options = ("--model", self.plain, *COMPILED, "--epochs", 4000)
        running = self.start(*options, workers=2)
        running.wait_for_output("Epoch 2/")
        straggler = running.ranks()[1]
        os.kill(straggler, signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        self.assertTrue(eventually(lambda: "interrupted: stopping" in running.stderr, 60), "nothing was said")
        time.sleep(3)
        os.kill(straggler, signal.SIGCONT)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        again = self.start(*options, workers=2)
        again.wait_for_output("Resuming from")
        again.process.send_signal(signal.SIGINT)
        again.end()

    def test_an_interrupted_loop_of_ones_own_goes_on(self) -> None:
        options = ("--global-batch-size", 20, "--epochs", 4000)
        running = self.start(*options, name="custom_training_mnist")
        running.wait_for_output("Epoch 2, ")
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        self.assertIn("interrupted: stopping after this step", ended.stderr)
        again = self.start(*options, name="custom_training_mnist")
        again.wait_for_output("Resuming from")
        again.process.kill()
        again.end()

    def test_a_second_interrupt_ends_a_rank_that_waits(self) -> None:
        running = self.start("--model", self.plain, *COMPILED, "--epochs", 4000, workers=2)
        running.wait_for_output("Epoch 2/")
        ranks = running.ranks()
        os.kill(ranks[1], signal.SIGSTOP)
        os.kill(ranks[0], signal.SIGINT)
        self.assertTrue(eventually(lambda: "interrupted: stopping" in running.stderr, 60), "nothing was said")
        os.kill(ranks[0], signal.SIGINT)  # it would wait for rank 1 for ten minutes
        self.assertNotEqual(running.end().code, 0)

    def test_a_backup_with_another_input_scale_is_rejected(self) -> None:
        options = ("--model", self.plain, *COMPILED, "--epochs", 4000, "--backup-save-freq", 1)
        running = self.start(*options)
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
        running.process.kill()
        running.end()
        self.assert_fails(self.run_program(*options, "--input-scale", 0.5), USAGE,
                          "--input-scale was none in the backup", "0.5 now", "--resume never")

    def test_a_job_that_is_started_again_goes_on_whatever_resume_never_says(self) -> None:
        """Its id tells a job: the second launcher counts generations from 1 again."""
        lockstep, launch = program("lockstep"), ("launch", "--job-id", "mine", "--model-dir", str(self.model), "--")
        train = ("train", "--model", str(self.plain), "--data-dir", str(self.data), "--model-dir", str(self.model))
        command = [lockstep, *launch, lockstep, *train, *COMPILED, "--epochs", "4000", "--resume", "never"]
        running = Running(command, self.cwd, {})
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.end()
        again = Running(command, self.cwd, {})
        again.wait_for_output("Resuming from")
        os.killpg(again.process.pid, signal.SIGKILL)
        again.end()

    def test_a_model_of_indices_lists_its_kernels(self) -> None:
        self.data = self.scratch / "indices.npz"
        with zipfile.ZipFile(self.data, "w") as archive:
            for part in ("train", "test"):
                archive.writestr(f"x_{part}.npy", data_files.npy((40, 6), bytes(range(40)) * 6))
                archive.writestr(f"y_{part}.npy", data_files.npy((40,), bytes([0, 1] * 20)))
        layers = (("Embedding", {"input_dim": 40, "output_dim": 4}), ("Flatten", {}), ("Dense", {"units": 2}))
        self.plain.write_text(description(*layers, shape=(6,)))
        for workers in (1, 2):
            self.assertIn("embedding", self.succeed("--model", self.plain, *COMPILED, *SHORT, "--verbose", 2,
                                                    workers=workers).stdout)

    # --- errors ---------------------------------------------------------------------------------------------------

    def test_a_result_that_cannot_be_printed_is_an_error(self) -> None:
        made = self.trained("made.keras")
        for command, options in (("evaluate", ("--data-dir", self.data)), ("plan", ())):
            call = [program("lockstep"), command, "--model", str(made), *map(str, options)]
            ended = Running(["sh", "-c", 'exec "$@" >/dev/full', "sh", *call], self.cwd, {}).end()
            self.assertEqual(ended.code, IO, str(ended))
            self.assertIn("standard output", ended.stderr)

    def test_predict_refuses_what_is_not_finite(self) -> None:
        made = self.trained("made.keras")
        values = struct.pack("<784f", *[0.5] * 783, math.nan)
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 28, 28), }".encode().ljust(118 - 1) + b"\n"
        file = self.scratch / "nan.npy"
        file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values)
        self.data = file
        ended = self.use("predict", "--model", made)
        self.assert_fails(ended, DATA, "nan.npy", "is NaN")

    def test_a_log_is_no_pipe(self) -> None:
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--csv-log", pipe, says=("--csv-log", "no regular file"))

    def test_openmp_limits_change_no_result(self) -> None:
        made = self.trained("made.keras")
        results = {self.use("evaluate", "--model", made, OMP_NUM_THREADS="2", **more).stdout.splitlines()[-1]
                   for more in ({}, {"OMP_THREAD_LIMIT": "1"}, {"OMP_DYNAMIC": "true"})}
        self.assertEqual(len(results), 1, results)

    def test_a_model_is_not_saved_under_the_name_of_a_backup(self) -> None:
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--save-as", "fit-1-step-0000000500.h5",
                     says=("--save-as", "name of a backup"))

    @contextmanager
    def config_changed(self, archive: Path) -> Iterator[dict[str, Any]]:
        """Yields the config.json of a .keras file for changes, and writes it back. The weights get the attributes of
        another program, so that they hold no digest."""
        with zipfile.ZipFile(archive) as old:
            members = {name: old.read(name) for name in old.namelist()}
        config = json.loads(members["config.json"])
        yield config
        members["config.json"] = json.dumps(config).encode()
        members["model.weights.h5"] = members["model.weights.h5"].replace(b"lockstep_", b"elsewhere")
        new = io.BytesIO()
        with zipfile.ZipFile(new, "w") as written:
            for name, content in members.items():
                written.writestr(name, content)
        archive.write_bytes(new.getvalue())

    def test_uncompiled_files_need_options(self) -> None:
        archive = self.trained("plain.keras")
        with self.config_changed(archive) as config:
            config["compile_config"] = None
        for file in (self.plain, archive):
            for options, missing in (((), "give --loss and --optimizer,"), (COMPILED[:2], "give --loss,"),
                                     (COMPILED[2:], "give --optimizer,")):
                for workers in (1, 2):
                    with self.subTest(file.suffix, missing=missing, workers=workers):
                        self.refused(USAGE, "--model", file, *options, workers=workers,
                                     says=(f"{file} is not compiled", missing, "model.compile()"))
        self.succeed("--model", archive, *COMPILED, *SHORT)
        self.assertEqual(self.describe(self.model / "model.keras")["training"]["iteration"], 10)

    def test_unsupported_features_are_named(self) -> None:
        self.plain.write_text(description(("LSTM", {"units": 3}), *SMALL))
        self.refused(DATA, "--model", self.plain, *COMPILED, says=("plain.json", "LSTM"))
        self.refused(DATA, "--model", self.plain, *COMPILED, workers=2, says=("plain.json", "LSTM"))
        archive = self.trained_after(description(*SMALL))
        with self.config_changed(archive) as config:
            config["config"]["layers"][2]["class_name"] = "EinsumDense"
        self.refused(DATA, "--model", archive, says=("EinsumDense",))

    def trained_after(self, text: str) -> Path:
        self.plain.write_text(text)
        return self.trained("other.keras")

    def test_invalid_files_are_rejected(self) -> None:
        absent, empty, garbled = self.scratch / "absent.keras", self.scratch / "empty.h5", self.scratch / "garbled.json"
        empty.touch()
        (self.scratch / "directory.json").mkdir()
        for pipe in ("pipe.keras", "pipe.h5", "pipe.json"):  # nobody writes: opening one must not wait
            os.mkfifo(self.scratch / pipe)
        garbled.write_text("{]")
        weights = self.trained("only.weights.h5")
        for file, code, says in (
            (absent, USAGE, ("absent.keras", "No such file")),
            (self.scratch / "absent.json", IO, ("absent.json", "No such file")),
            (self.scratch / "directory.json", IO, ("directory.json is a directory",)),
            (self.scratch / "pipe.keras", IO, ("pipe.keras is not a regular file", "path of a .keras file")),
            (self.scratch / "pipe.h5", IO, ("pipe.h5 is not a regular file",)),
            (self.scratch / "pipe.json", IO, ("pipe.json is not a regular file",)),
            (empty, DATA, ("empty.h5",)),
            (garbled, DATA, ("garbled.json",)),
            (weights, DATA, ("only.weights.h5", "weights without the model")),
            (self.scratch, USAGE, ("ends in .keras, .h5, .hdf5 or .json",)),
            (self.plain.with_suffix(".txt"), USAGE, ("plain.txt", "ends in .keras")),
        ):
            for workers in (1, 2):
                with self.subTest(file, workers=workers):
                    self.refused(code, "--model", file, *COMPILED, workers=workers, says=says)

    def test_invalid_options_are_rejected(self) -> None:
        model = ("--model", self.plain)
        for options, says in (
            ((), ("--model is missing", "lockstep train --help")),
            (("--model",), ("--model needs a value",)),
            ((*model, "--optimizer", "muon"), ("--optimizer is 'muon'", "sgd, adam, adamw")),
            ((*model, "--loss", "dice"), ("--loss is 'dice'", "mean_squared_error")),
            ((*model, "--metrics", "mean_iou"), ("--metrics is 'mean_iou'", "accuracy", "or none")),
            ((*model, "--validation-split", 1), ("--validation-split is '1'", "less than 1")),
            ((*model, "--early-stopping", -1), ("--early-stopping is '-1'", "at least 0")),
            ((*model, "--input-scale", 0), ("--input-scale is '0'", "greater than 0")),
            ((*model, "--save-as", "a/b.keras"), ("--save-as is 'a/b.keras'", "--model-dir")),
            ((*model, "--save-as", "model.zip"), ("--save-as is 'model.zip'", ".keras")),
            ((*model, "--units", 3), ("no option '--units'",)),
        ):
            with self.subTest(options):
                self.refused(USAGE, *options, says=says)

    def test_workers_with_different_options(self) -> None:
        ended = self.run_program("--model", self.plain, *COMPILED, "--early-stopping", 1, None, "--model", self.plain,
                                 *COMPILED, "--early-stopping", 2)
        self.assert_fails(ended, USAGE, "disagree about the program's own options", "--early-stopping 1",
                          "--early-stopping 2")

    def test_mismatched_data_is_rejected(self) -> None:
        self.plain.write_text(description(*SMALL, shape=(8, 8)))
        self.refused(DATA, "--model", self.plain, *COMPILED, workers=2, says=("shape (8, 8)", "(28, 28)"))
        self.plain.write_text(description(("Flatten", {}), ("Dense", {"units": 3})))
        for loss in ("sparse_categorical_crossentropy", "categorical_crossentropy"):
            self.refused(DATA, "--model", self.plain, "--optimizer", "sgd", "--loss", loss,
                         says=("classes 0 to 2", "more units"))
        self.plain.write_text(description(*SMALL))
        for loss in ("mse", "kld", "binary_crossentropy"):  # Keras broadcasts, or fails
            self.refused(USAGE, "--model", self.plain, "--optimizer", "sgd", "--loss", loss,
                         says=("takes targets of the outputs' shape (10,)", "class indices"))
        self.plain.write_text(description(("Reshape", {"target_shape": [28, 28, 1]})))
        self.refused(USAGE, "--model", self.plain, "--optimizer", "sgd", "--loss", "mean_squared_error",
                     says=("class indices", "(28, 28, 1)"))

    # --- evaluate and predict -------------------------------------------------------------------------------------

    def test_evaluate_matches_training(self) -> None:
        first = self.trained("first.keras")
        evaluation = json.loads((first.parent / "history.json").read_text())["evaluation"]
        ended = self.use("evaluate", "--model", first, "--verbose", 0)
        self.assertEqual(ended.code, 0, str(ended))
        self.assertEqual(ended.stdout, f"loss: {evaluation['loss']:.4f}\naccuracy: {evaluation['accuracy']:.4f}\n")
        self.assertEqual(list(self.cwd.iterdir()), [], "evaluating leaves nothing")
        self.assert_fails(self.use("evaluate", "--model", self.plain), USAGE, "give --loss,")
        with_loss = self.use("evaluate", "--model", self.plain, "--loss", "sparse_categorical_crossentropy",
                             "--initial-weights", first, "--verbose", 0)
        self.assertEqual(with_loss.stdout, ended.stdout)

    def test_predictions_are_a_numpy_array(self) -> None:
        first = self.trained("first.h5")
        for name, more in (("one", ()), ("two", ("--global-batch-size", 7))):
            ended = self.use("predict", "--model", first, "--output", f"sub/{name}.npy", *more)
            self.assertEqual(ended.code, 0, str(ended))
            self.assertIn(f"Saved sub/{name}.npy, an array (40, 10)", ended.stdout)
            self.assertIn(f"Not used, so not checked: what {first} was compiled with", ended.stdout)
        content = (self.cwd / "sub" / "one.npy").read_bytes()
        head = re.match(rb"\x93NUMPY\x01\x00(..)({.*?}) *\n", content, re.S)
        assert head is not None
        self.assertEqual(eval(head[2]), {"descr": "<f4", "fortran_order": False, "shape": (40, 10)})
        self.assertEqual((struct.unpack("<H", head[1])[0] + 10, head.end() % 64), (head.end(), 0))
        values = struct.unpack("<400f", content[head.end():])
        _, labels = data_files.digits(40, 1001)
        right = sum(max(range(10), key=lambda c, row=row: values[10 * row + c]) == labels[row] for row in range(40))
        evaluation = json.loads((first.parent / "history.json").read_text())["evaluation"]
        self.assertAlmostEqual(right / 40, evaluation["accuracy"])
        again = struct.unpack("<400f", (self.cwd / "sub" / "two.npy").read_bytes()[head.end():])
        for one, two in zip(values, again):
            self.assertAlmostEqual(one, two, places=4)

    def test_new_inputs_need_no_targets(self) -> None:
        first = self.trained("first.h5")
        images, _ = data_files.digits(7, 3)
        (self.scratch / "new.npy").write_bytes(data_files.npy((7, 28, 28), images))
        call = [program("lockstep"), "predict", "--model", str(first), "--data-dir", str(self.scratch / "new.npy")]
        ended = Running(call, self.cwd, {}).end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertIn("Saved predictions.npy, an array (7, 10)", ended.stdout)

    def test_data_must_be_named(self) -> None:
        first = self.trained("first.h5")
        for command in ("train", "evaluate", "predict"):
            ended = Running([program("lockstep"), command, "--model", str(first)], self.cwd, {}).end()
            self.assert_fails(ended, USAGE, "--data-dir is missing", f"lockstep {command} --help")
        self.assertEqual(list(self.cwd.iterdir()), [])

    def test_several_metrics(self) -> None:
        first = self.trained("first.h5")
        ended = self.use("evaluate", "--model", first, "--metrics", "sparse_top_k_categorical_accuracy,accuracy")
        self.assertEqual(ended.code, 0, str(ended))
        self.assertIn("\naccuracy: ", ended.stdout)
        self.assertIn("\nsparse_top_k_categorical_accuracy: ", ended.stdout)
        for wrong in ("accuracy,mean_iou", "accuracy,", ""):
            self.assert_fails(self.use("evaluate", "--model", first, "--metrics", wrong), USAGE, "--metrics")

    def test_the_data_is_told(self) -> None:
        """With the factor for bytes, unless the model has a layer that scales."""
        scales = ("Rescaling", {"scale": 1 / 255, "offset": 0.0})
        by_option = "multiplied by 1/255 (--input-scale)"
        unscaled = "unscaled because the model has a layer that reads them so"
        for layers, how in ((SMALL, by_option), ((*SMALL, scales), unscaled), ((scales, *SMALL), unscaled)):
            with self.subTest(layers=layers):
                self.plain.write_text(description(*layers))
                ended = self.succeed("--model", self.plain, *COMPILED, *SHORT)
                self.assertIn(f"Data: 100 training and 40 test examples of shape (28, 28), bytes {how}, "
                              f"from {self.data}", ended.stdout)

    def test_invalid_use_of_a_model_is_rejected(self) -> None:
        first = self.trained("first.h5")
        for command, options, code, says in (
            ("evaluate", (), USAGE, ("--model is missing", "lockstep evaluate --help")),
            ("evaluate", ("--model", first, "--epochs", 3), USAGE, ("no option '--epochs'",)),
            ("predict", ("--model", first, "--output", ""), USAGE, ("--output is empty",)),
            ("predict", ("--model", first, "--output", "/dev/null/p.npy"), IO, ("/dev/null",)),
            ("predict", ("--model", self.scratch / "absent.h5"), USAGE, ("absent.h5",)),
        ):
            with self.subTest(command, options=options):
                self.assert_fails(self.use(command, *options), code, *says)

    def test_help(self) -> None:
        for command, has, lacks in (("train", "--save-as", "--output"), ("evaluate", "--loss", "--epochs"),
                                    ("predict", "--output", "--model-dir")):
            with self.subTest(command):
                shown = Running([program("lockstep"), command, "--help"], self.cwd, {}).end()
                self.assertEqual(shown.code, 0, str(shown))
                self.assertIn(f"Usage: lockstep {command}", shown.stdout)
                self.assertIn(has + " ", shown.stdout)
                self.assertNotIn(lacks + " ", shown.stdout)
                self.assertIn(f"\n  {command} ", Running([program("lockstep"), "--help"], self.cwd, {}).end().stdout)
