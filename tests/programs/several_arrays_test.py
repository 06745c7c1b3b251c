"""`lockstep train`, `evaluate` and `predict` of a model of two inputs and two outputs, which are arrays by name."""

import json
import zipfile
from pathlib import Path
from typing import Any

import data_files
from model_file_support import COMPILED, SCALED, SHORT, ModelFileTest
from support import DATA, USAGE


def tensor(name: str) -> dict[str, Any]:
    return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}}


def layer(kind: str, name: str, *read: str, **config: Any) -> dict[str, Any]:
    args: list[Any] = [tensor(each) for each in read]
    nodes = [{"args": [args] if len(args) > 1 else args, "kwargs": {}}] if read else []
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": nodes}


MODEL = json.dumps({"class_name": "Functional", "config": {
    "name": "functional",
    "layers": [
        layer("InputLayer", "image", batch_shape=[None, 28, 28], dtype="float32"),
        layer("InputLayer", "level", batch_shape=[None, 2], dtype="float32"),
        layer("Flatten", "flat", "image"),
        layer("Concatenate", "both", "flat", "level"),
        layer("Dense", "hidden", "both", units=12, activation="relu"),
        layer("Dense", "digit", "hidden", units=10),
        layer("Dense", "half", "hidden", units=2),
    ],
    "input_layers": [["image", 0, 0], ["level", 0, 0]],
    "output_layers": [["digit", 0, 0], ["half", 0, 0]],
}})  # fmt: skip


class SeveralArraysTest(ModelFileTest):
    def setUp(self) -> None:
        super().setUp()
        self.plain.write_text(MODEL)
        self.arrays: dict[str, bytes] = {}
        for split, count, seed in (("train", 100, 1), ("test", 40, 1001)):
            images, labels = data_files.digits(count, seed)
            self.arrays |= {
                f"x_{split}_image": data_files.npy((count, 28, 28), images),
                f"x_{split}_level": data_files.npy((count, 2), bytes(2 * count)),
                f"y_{split}_digit": data_files.npy((count,), labels),
                f"y_{split}_half": data_files.npy((count,), bytes(label // 5 for label in labels)),
            }  # fmt: skip
        self.data = self.scratch / "several.npz"
        self.write()

    def write(self) -> None:
        with zipfile.ZipFile(self.data, "w") as archive:
            for name, content in self.arrays.items():
                archive.writestr(f"{name}.npy", content)

    def test_two_workers_train_like_one(self) -> None:
        logs = []
        for workers in (1, 2):
            made = self.trained(f"made{workers}.keras", *SCALED, workers=workers)
            record = json.loads((made.parent / "history.json").read_text())
            logs.append(record["epochs"][-1])
        names = {"loss", "digit_loss", "half_loss", "digit_accuracy", "half_accuracy"}
        self.assertLessEqual(names, set(logs[0]))
        for name in names:
            self.assertAlmostEqual(logs[0][name], logs[1][name], places=3)
        self.assertAlmostEqual(logs[0]["loss"], logs[0]["digit_loss"] + logs[0]["half_loss"], places=4)

        evaluation = record["evaluation"]
        ended = self.use("evaluate", "--model", made, *SCALED, "--verbose", 0)
        self.assertEqual(ended.code, 0, str(ended))
        for name in names:
            self.assertIn(f"{name}: {evaluation[name]:.4f}", ended.stdout)
        ended = self.use("predict", "--model", made, *SCALED)
        self.assertIn("Saved predictions.npz, the arrays digit (40, 10) and half (40, 2)", ended.stdout)
        with zipfile.ZipFile(self.cwd / "predictions.npz") as archive:
            self.assertEqual(archive.namelist(), ["digit.npy", "half.npy"])
        ended = self.use("predict", "--model", made, *SCALED, "--output", "p.npy")
        self.assert_fails(ended, USAGE, "--output is 'p.npy'", "2 outputs", ".npz")

    def test_two_outputs_of_one_layer_are_predicted_but_not_trained(self) -> None:
        made = self.trained("made.keras", *SCALED)
        with self.config_changed(made) as config:
            config["config"]["output_layers"].insert(1, ["digit", 0, 0])
        self.refused(USAGE, "--model", made, *COMPILED, *SHORT, *SCALED,
                     says=("two outputs are of the layer 'digit'", "Identity"))  # fmt: skip
        ended = self.use("predict", "--model", made, *SCALED)
        self.assertIn("the arrays digit (40, 10), digit_1 (40, 10) and half (40, 2)", ended.stdout, str(ended))

    def test_missing_and_surplus_arrays_are_named(self) -> None:
        options = ("--model", self.plain, *COMPILED, *SHORT, *SCALED)
        whole = dict(self.arrays)
        for name in ("x_train_level", "y_test_half"):
            self.arrays = {key: array for key, array in whole.items() if key != name}
            self.write()
            self.refused(DATA, *options, says=(f"has no array {name}", "x_train_image"))
        self.arrays = whole | {"x_train_price": whole["x_train_level"]}
        self.write()
        self.refused(DATA, *options, says=("x_train_price would not be used", "x_train_image, x_train_level"))
        self.data = Path(data_files.write_idx(self.scratch / "idx"))
        self.refused(USAGE, *options, says=("several inputs or outputs", "x_train_image", "y_train_half"))
