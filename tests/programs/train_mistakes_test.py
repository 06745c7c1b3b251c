"""What `lockstep train` refuses: files, options and data, and the sentence that says so."""

import os
import zipfile

import data_files
from model_file_support import COMPILED, SHORT, SMALL, ModelFileTest, description
from support import DATA, IO, USAGE, Running, program


class MistakesTest(ModelFileTest):
    def test_a_report_that_cannot_be_written_is_told_before_training(self) -> None:
        (self.model / "report.html").mkdir(parents=True)
        ended = self.run_program("--model", self.plain, *COMPILED, *SHORT)
        self.assert_fails(ended, IO, "report.html: it is a directory")
        self.assertNotIn("Epoch", ended.stdout)

    def test_a_batch_that_repeats_examples_is_refused(self) -> None:
        """An epoch without a number of steps ends with the data, and its only batch is shorter."""
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--global-batch-size", 2000000, "--steps-per-epoch", 2,
                     says=("each batch of 2000000 would hold each of the 100 examples up to 20000 times",))

    def test_a_log_is_no_pipe(self) -> None:
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--csv-log", pipe, says=("--csv-log", "no regular file"))

    def test_a_model_is_not_saved_under_the_name_of_a_backup(self) -> None:
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--save-as", "fit-1-step-0000000500.h5",
                     says=("--save-as", "name of a backup"))

    def test_a_model_has_a_name_that_its_history_can_tell(self) -> None:
        self.refused(USAGE, "--model", self.plain, *COMPILED, "--save-as", "caf\udce9.h5",
                     says=("--save-as", "in UTF-8, because history.json"))

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
            (self.scratch / "absent.json", USAGE, ("absent.json", "No such file")),
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
            ((*model, "--input-scale", 0), ("--input-scale is '0'", "greater than 0")),
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

    def test_indices_beyond_an_embedding_are_found_before_training(self) -> None:
        self.data = self.scratch / "indices.npz"
        with zipfile.ZipFile(self.data, "w") as archive:
            for part, largest in (("train", 39), ("test", 40)):
                archive.writestr(f"x_{part}.npy", data_files.npy((40, 6), bytes(range(39)) * 6 + bytes(5) + bytes([largest])))
                archive.writestr(f"y_{part}.npy", data_files.npy((40,), bytes([0, 1] * 20)))
        layers = (("Embedding", {"input_dim": 40, "output_dim": 4}), ("Flatten", {}), ("Dense", {"units": 2}))
        self.plain.write_text(description(*layers, shape=(6,)))
        for workers in (1, 2):
            self.refused(DATA, "--model", self.plain, *COMPILED, *SHORT, workers=workers,
                         says=("value 239 of", "x_test", "is 40", "layer 'layer_0'", "from 0 to 39"))
        self.refused(DATA, "--model", self.plain, *COMPILED, *SHORT, "--input-scale", 1, says=("value 239 of", "x_test"))

    # --- evaluate and predict -------------------------------------------------------------------------------------

    def test_data_must_be_named(self) -> None:
        first = self.trained("first.h5")
        for command in ("train", "evaluate", "predict"):
            ended = Running([program("lockstep"), command, "--model", str(first)], self.cwd, {}).end()
            self.assert_fails(ended, USAGE, "--data-dir is missing", f"lockstep {command} --help")
        self.assertEqual(list(self.cwd.iterdir()), [])

    def test_invalid_use_of_a_model_is_rejected(self) -> None:
        first = self.trained("first.h5")
        for command, options, code, says in (
            ("evaluate", (), USAGE, ("--model is missing", "lockstep evaluate --help")),
            ("evaluate", ("--model", first, "--epochs", 3), USAGE, ("no option '--epochs'",)),
            ("predict", ("--model", first, "--output", "/dev/null/p.npy"), IO, ("/dev/null",)),
            ("predict", ("--model", self.scratch / "absent.h5"), USAGE, ("absent.h5",)),
        ):
            with self.subTest(command, options=options):
                self.assert_fails(self.use(command, *options), code, *says)
