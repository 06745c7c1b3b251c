"""`lockstep train` with models from files: formats, options, workers, callbacks."""

import json
import os
import subprocess
import zipfile

import data_files
from model_file_support import COMPILED, SCALED, SHORT, SMALL, ModelFileTest, description
from support import DATA, USAGE, Running, program


class TrainTest(ModelFileTest):
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

    def test_weights_with_constraints_train_on_any_number_of_workers(self) -> None:
        """By the parallelism that `auto` chooses, which times updates of the weights."""
        constraint = {"kernel_constraint": {"class_name": "MaxNorm", "config": {"max_value": 0.5, "axis": 0}}}
        self.plain.write_text(description(("Flatten", {}), ("Dense", {"units": 64, **constraint}),
                                          ("Dense", {"units": 10, **constraint})))
        self.succeed("--model", self.plain, *COMPILED, *SHORT)
        alone = self.losses()
        self.succeed("--model", self.plain, *COMPILED, *SHORT, workers=2)
        for mine, theirs in zip(self.losses(), alone, strict=True):
            self.assertAlmostEqual(mine, theirs, delta=1e-4)

    def test_given_weights_replace_those_of_the_file(self) -> None:
        first, second = self.trained("first.keras"), self.trained("second.weights.h5", "--seed", 2)
        self.succeed("--model", first, *SHORT, "--learning-rate", 1e-30, "--initial-weights", second)
        self.assertTrue(self.same_weights(second, self.model / "model.keras"))
        self.assertEqual(self.describe(self.model / "model.keras")["training"]["iteration"], 10)

    def test_a_batch_beyond_the_data_takes_no_memory_or_time_for_what_is_not_there(self) -> None:
        """Two million examples of this model would take 19 GB."""
        for batch in (2_000_000, 2_147_483_647):
            command = self.command("--model", self.plain, *COMPILED, "--global-batch-size", batch, "--epochs", 1)
            process = subprocess.Popen(command, cwd=self.cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(usage.ru_maxrss, 1 << 20)  # KiB
            self.assertLess(usage.ru_utime + usage.ru_stime, 10)  # seconds of processor time
            made = self.model / "model.h5"
            for command in (("evaluate",), ("predict", "--output", self.scratch / "predicted.npy")):
                ended = self.use(*command, "--model", made, "--global-batch-size", batch)
                self.assertEqual(ended.code, 0, str(ended))

    def test_saving_copies_a_model_twice(self) -> None:
        """Weights and Adam's state are 150 MB, and gradients 50. A save takes 300 MB more: the values in Keras' layout, and
        the file in memory."""
        self.plain.write_text(description(("Flatten", {}), ("Dense", {"units": 16_000}), ("Dense", {"units": 10})))
        for name in ("large.keras", "large.h5"):
            command = self.command("--model", self.plain, *COMPILED, "--epochs", 1, "--backup-save-freq", "never", "--save-as",
                                   name)
            process = subprocess.Popen(command, cwd=self.cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(usage.ru_maxrss, 650 << 10, name)  # KiB

    def test_a_test_set_is_not_needed(self) -> None:
        self.data = self.scratch / "without_test.npz"
        whole = self.scratch / "whole.npz"
        whole.write_bytes(data_files.npz())
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(self.data, "w") as archive:
            for part in ("x", "y"):
                archive.writestr(f"{part}_train.npy", source.read(f"{part}_train.npy"))
        ended = self.succeed("--model", self.plain, *COMPILED, *SHORT, *SCALED, workers=2)
        self.assertRegex(ended.stdout, r"Data: \d+ training examples of shape")
        self.assertIn(f"\nSaved {self.model / 'model.h5'}", ended.stdout)
        self.assertNotIn("evaluation", self.history())
        self.succeed("--model", self.plain, *COMPILED, *SHORT, *SCALED, "--validation-split", 0.2)
        self.assertIn("val_loss", self.history()["epochs"][0])
        self.assertNotIn("evaluation", self.history(), "a validation is no evaluation on a test set")
        self.assertEqual(self.history()["config"]["validation_split"], 0.2)
        self.assert_fails(self.use("evaluate", "--model", self.model / "model.h5"), DATA, "no member x_test.npy")

    def test_more_threads_than_cpus_are_warned_of(self) -> None:
        threads = 4 * len(os.sched_getaffinity(0))
        ended = self.succeed("--model", self.plain, *COMPILED, *SHORT, OMP_NUM_THREADS=str(threads))
        self.assertIn(f"OMP_NUM_THREADS is {threads}, but a worker may use", ended.stderr)
        self.assertNotIn("OMP_NUM_THREADS", self.succeed("--model", self.plain, *COMPILED, *SHORT).stderr)

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

    def test_workers_match_one_process(self) -> None:
        alone = self.trained("alone.h5", "--epochs", 5)
        whole = json.loads((alone.parent / "history.json").read_text())["epochs"]
        for workers in (2, 3):
            with self.subTest(workers=workers):
                self.succeed("--model", self.plain, *COMPILED, *SHORT, "--epochs", 5, workers=workers)
                for mine, theirs in zip(self.losses(), whole, strict=True):
                    self.assertAlmostEqual(mine, theirs["loss"], delta=1e-4 * theirs["loss"])

    def test_steps_instead_of_epochs(self) -> None:
        fixed = ("--model", self.plain, *COMPILED)
        self.succeed(*fixed, "--epochs", 3, "--steps-per-epoch", 4)
        expected = (self.model / "model.h5").read_bytes()
        self.succeed(*fixed, "--train-steps", 12, "--steps-per-epoch", 4)
        self.assertEqual((self.model / "model.h5").read_bytes(), expected)
        self.succeed(*fixed, "--train-steps", 12)
        self.assertEqual((len(self.history()["epochs"]), self.history()["iteration"]), (1, 12))
        refused = self.run_program(*fixed, "--train-steps", 10, "--steps-per-epoch", 4)
        self.assert_fails(refused, USAGE, "--train-steps is 10, which is no multiple of --steps-per-epoch, 4")
        refused = self.run_program(*fixed, "--train-steps", 10, "--epochs", 2)
        self.assert_fails(refused, USAGE, "--train-steps and --epochs both")

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
        self.assertEqual(self.history()["config"]["early_stopping"], 2)

    def test_validation_after_some_epochs(self) -> None:
        csv = self.scratch / "log.csv"
        self.succeed("--model", self.plain, *COMPILED, *SHORT, "--epochs", 3, "--validation-split", 0.2,
                     "--validation-freq", 2, "--csv-log", csv)
        self.assertEqual(["val_loss" in epoch for epoch in self.history()["epochs"]], [False, True, False])
        self.assertEqual([line.endswith("NA") for line in csv.read_text().splitlines()], [False, True, False, True])
        self.refused(USAGE, "--model", self.plain, *COMPILED, *SHORT, "--validation-freq", 2,
                     says=("--validation-freq is 2", "no x_val"))

    def test_a_model_that_is_replaced_is_named(self) -> None:
        self.assertNotIn("is replaced", self.succeed("--model", self.plain, *COMPILED, *SHORT).stderr)
        ended = self.succeed("--model", self.plain, *COMPILED, *SHORT)
        self.assertIn(f"warning: {self.model}/model.h5 is replaced when this run ends; to keep it, give", ended.stderr)

    def test_programs_name_the_model_that_they_replace(self) -> None:
        for name in ("keras_mnist", "custom_training_mnist"):
            for is_replaced in (False, True):
                ended = Running([program(name), "--data-dir", str(self.data), "--model-dir", str(self.model / name),
                                 "--epochs", "1", "--steps-per-epoch", "1"], self.cwd, {}).end()
                self.assertEqual(ended.code, 0, str(ended))
                self.assertEqual("model.h5 is replaced when this run ends" in ended.stderr, is_replaced, ended.stderr)

    def test_losses_and_metrics_have_short_names(self) -> None:
        self.data = self.scratch / "one_hot.npz"
        self.data.write_bytes(data_files.npz(one_hot=True))
        ended = self.succeed("--model", self.plain, "--optimizer", "sgd", "--loss", "bce", "--metrics", "mae,mse", *SHORT,
                             *SCALED)
        self.assertRegex(ended.stdout, r"\nTest loss: \S+, test mae: \S+, test mse: \S+\. Saved ")
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
                self.succeed("--model", self.plain, *COMPILED, *SHORT, *SCALED, "--epochs", 40, "--early-stopping", 1,
                             workers=workers)
                epochs, test = self.history()["epochs"], self.history()["evaluation"]
                self.assertLess(len(epochs), 40)
                self.assertLess(epochs[-1]["loss"], epochs[0]["loss"])
                self.assertGreater(epochs[-1]["val_loss"], test["loss"])
        self.refused(USAGE, "--model", self.plain, *COMPILED, *SCALED, "--validation-split", 0.5,
                     says=("--validation-split is 0.5", "x_val"))

    def test_input_scale_equals_a_rescaling_layer(self) -> None:
        losses = {}
        for scale in (None, "1/255", 1):
            self.succeed("--model", self.plain, *COMPILED, *SHORT, *(() if scale is None else ("--input-scale", scale)))
            losses[scale] = self.losses()[0]
        self.assertAlmostEqual(losses[None], losses["1/255"], delta=1e-5)
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
        self.refused(USAGE, "--model", self.plain, *COMPILED, *SHORT,
                     says=("colour.npz:x_train holds bytes", "--input-scale 1/255 (fit(x / 255))", "Rescaling"))
        self.succeed("--model", self.plain, *COMPILED, *SHORT, *SCALED, workers=2)
        self.assertEqual(len(self.losses()), 2)
        self.plain.write_text(description(("Rescaling", {"scale": 1 / 255, "offset": 0.0}), *SMALL, shape=(8, 8, 3)))
        self.assertNotIn("again by layer", self.succeed("--model", self.plain, *COMPILED, *SHORT).stderr)
        twice = self.succeed("--model", self.plain, *COMPILED, *SHORT, *SCALED)
        self.assertIn("and again by layer 'layer_0' (Rescaling)", twice.stderr)

    # --- killed runs ----------------------------------------------------------------------------------------------

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

    def test_openmp_limits_change_no_result(self) -> None:
        made = self.trained("made.keras")
        results = {self.use("evaluate", "--model", made, OMP_NUM_THREADS="2", **more).stdout.splitlines()[-1]
                   for more in ({}, {"OMP_THREAD_LIMIT": "1"}, {"OMP_DYNAMIC": "true"})}
        self.assertEqual(len(results), 1, results)

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
