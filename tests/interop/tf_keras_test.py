"""Files of Keras 2 (tf_keras): training goes on, metrics keep their names, other rules are refused.

    tf_keras_test.py BIN_DIR     with a Python that has TensorFlow
"""

import logging
import os
import subprocess
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import support  # noqa: E402
import tf_keras  # noqa: E402
from support import Scratch, np, output_of, program  # noqa: E402

tf_keras.utils.disable_interactive_logging()
logging.getLogger("tensorflow").setLevel(logging.ERROR)
O, M = tf_keras.optimizers, tf_keras.metrics
FORMATS = ("h5", "keras")
OPTIMIZERS = {
    "adam": lambda: O.Adam(0.01), "a name": lambda: "adam", "amsgrad": lambda: O.Adam(0.01, amsgrad=True),
    "adamw": lambda: O.AdamW(0.01, weight_decay=0.1), "sgd": lambda: O.SGD(0.1, clipnorm=0.1),
    "nesterov": lambda: O.SGD(0.1, momentum=0.9, nesterov=True), "rmsprop": lambda: O.RMSprop(0.01, momentum=0.9),
    "adamax": lambda: O.Adamax(0.01), "adagrad": lambda: O.Adagrad(0.01), "ftrl": lambda: O.Ftrl(0.01),
    "adadelta": lambda: O.Adadelta(0.5), "a schedule": lambda: O.Adam(O.schedules.CosineDecay(0.01, 20)),
}
OTHER_RULES = {"Nadam": lambda: O.Nadam(0.01), "use_ema": lambda: O.Adam(0.01, use_ema=True)}
METRICS = {
    "sparse_categorical_crossentropy": (["accuracy"], ["acc"], [M.SparseCategoricalAccuracy()],
                                        [M.SparseTopKCategoricalAccuracy(k=2, name="top2")]),
    "categorical_crossentropy": (["accuracy", "mse"], [M.AUC(name="area"), M.Precision(), M.Recall(name="r")],
                                 [M.CategoricalAccuracy(name="a"), M.TopKCategoricalAccuracy(k=2)],
                                 [M.RootMeanSquaredError(), M.LogCoshError(), M.MeanSquaredError(name="e")],
                                 [M.F1Score(average="macro")]),
    "mse": (["accuracy", "mae"],),
    "binary_crossentropy": (["accuracy"], [M.BinaryAccuracy(threshold=0.3)], ["AUC"]),
}


def small(outputs: int = 3, activation: str | None = None) -> Any:
    tf_keras.utils.set_random_seed(1)
    return tf_keras.Sequential([tf_keras.layers.Input((5,)), tf_keras.layers.Dense(4, activation="tanh"),
                                tf_keras.layers.Dense(outputs, activation=activation)])


class Keras2(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.random = np.random.default_rng(1)
        self.inputs = self.random.normal(size=(64, 5)).astype(np.float32)

    def write_data(self, targets: Any) -> None:
        np.savez(self.folder / "data.npz", x_train=self.inputs, y_train=targets, x_test=self.inputs, y_test=targets)

    def run_lockstep(self, command: str, model: str, *options: object) -> str:
        return output_of(program("lockstep"), command, "--model", self.folder / model, "--data-dir",
                         self.folder / "data.npz", "--verbose", 0, *options)

    def test_training_goes_on(self) -> None:
        targets = self.random.normal(size=(64, 3)).astype(np.float32)
        self.write_data(targets)
        for name, optimizer in OPTIMIZERS.items():
            for ending in FORMATS:
                for steps_before in (0, 2):
                    with self.subTest(name, ending=ending, steps_before=steps_before):
                        model = small()
                        model.compile(optimizer(), "mse")
                        step = dict(batch_size=64, verbose=0, shuffle=False)
                        if steps_before:
                            model.fit(self.inputs, targets, epochs=steps_before, **step)
                        model.save(self.folder / f"m.{ending}")
                        before = model.predict(self.inputs, verbose=0)
                        model.fit(self.inputs, targets, epochs=4, **step)
                        expected = model.predict(self.inputs, verbose=0)
                        self.run_lockstep("train", f"m.{ending}", "--epochs", 4, "--global-batch-size", 64,
                                          "--model-dir", self.folder / "out")
                        self.run_lockstep("predict", f"out/model.{ending}", "--output", self.folder / "y.npy")
                        change = np.abs(expected - before).max()
                        np.testing.assert_allclose(np.load(self.folder / "y.npy"), expected, rtol=0,
                                                   atol=1e-4 * change + 1e-6)

    def test_other_rules_are_refused(self) -> None:
        for name, optimizer in OTHER_RULES.items():
            for ending in FORMATS:
                model = small()
                model.compile(optimizer(), "mse")
                model.fit(self.inputs, np.ones((64, 3)), verbose=0)
                model.save(self.folder / f"m.{ending}")
                for purpose, code in (("predict", 0), ("train", 65)):
                    with self.subTest(name, ending=ending, purpose=purpose):
                        self.assert_check(f"m.{ending}", purpose, code, f"with {name}, which computes otherwise")

    def test_its_hard_sigmoid_is_refused(self) -> None:
        model = small(activation="hard_sigmoid")
        for ending in FORMATS:
            with self.subTest(ending=ending):
                model.save(self.folder / f"m.{ending}")
                self.assert_check(f"m.{ending}", "predict", 65, "Keras 2's hard_sigmoid")

    def assert_check(self, model: str, purpose: str, code: int, words: str) -> None:
        ended = subprocess.run([program("lockstep"), "inspect", "--check", "--for", purpose, self.folder / model],
                               capture_output=True, text=True)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertEqual(words.lower() in ended.stderr.lower(), code != 0, ended.stderr)

    def evaluated(self, model: str) -> dict[str, float]:
        lines = self.run_lockstep("evaluate", model).splitlines()
        return {name: float(value) for name, value in (line.split(": ") for line in lines)}

    def assert_logs(self, found: dict[str, float], expected: dict[str, float]) -> None:
        """Keras 2 logs "AUC", a class that was passed by name, as "auc"; Lockstep as Keras 3 does."""
        lower = {name.lower(): value for name, value in expected.items()}
        self.assertEqual({name.lower() for name in found}, lower.keys())
        for name, value in found.items():
            self.assertAlmostEqual(value, lower[name.lower()], delta=1e-4)

    def test_metrics_go_there_and_back(self) -> None:
        classes = self.random.integers(0, 3, 64)
        for loss, lists in METRICS.items():
            outputs = 1 if loss.startswith("binary") else 3
            one_hot = np.eye(3, dtype=np.float32)[classes]
            targets = classes if loss.startswith("sparse") else (one_hot if outputs == 3 else one_hot[:, :1])
            self.write_data(targets)
            for metrics in lists:
                for ending in FORMATS:
                    with self.subTest(loss, metrics=metrics, ending=ending):
                        model = small(outputs, "sigmoid" if outputs == 1 else "softmax")
                        model.compile(tf_keras.optimizers.SGD(), loss, metrics=metrics)
                        expected = model.evaluate(self.inputs, targets, verbose=0, return_dict=True)
                        model.save(self.folder / f"m.{ending}")
                        self.assert_logs(self.evaluated(f"m.{ending}"), expected)
                        self.run_lockstep("train", f"m.{ending}", "--epochs", 1, "--save-as", "back.h5",
                                          "--model-dir", self.folder / "out")
                        back = tf_keras.models.load_model(self.folder / "out" / "back.h5")
                        self.assert_logs(self.evaluated("out/back.h5"),
                                         back.evaluate(self.inputs, targets, verbose=0, return_dict=True))

    def test_the_state_of_legacy_optimizers_is_not_taken_for_another(self) -> None:
        """Keras before TensorFlow 2.11 lists all m and then all v, later ones m and v of each weight."""
        legacy = tf_keras.optimizers.legacy
        for optimizer, purposes in ((legacy.Adam(0.01, amsgrad=True), {"predict": 0, "train": 65}),
                                    (legacy.RMSprop(0.01), {"predict": 0, "train": 65}),
                                    (legacy.SGD(0.1, momentum=0.9), {"predict": 0, "train": 0}),
                                    (tf_keras.optimizers.Adam(0.01), {"predict": 0, "train": 0})):
            dense = tf_keras.layers.Dense
            model = tf_keras.Sequential([tf_keras.Input((4,)), dense(4, use_bias=False), dense(4, use_bias=False)])
            model.compile(optimizer, "mse")
            model.fit(np.ones((4, 4)), np.ones((4, 4)), verbose=0)
            model.save(self.folder / "m.h5")
            for purpose, code in purposes.items():
                with self.subTest(type(optimizer).__module__, purpose=purpose):
                    self.assert_check("m.h5", purpose, code, "legacy")


if __name__ == "__main__":
    support.main(__doc__)
