"""`lockstep evaluate` reports the same names and values as real Keras' evaluate, for the same file and data.

    metrics_test.py BIN_DIR     the folder of lockstep
"""

import re

import support
from support import SPARSE, Scratch, keras, layers, np, output_of, program

M = keras.metrics
CATEGORICAL = keras.losses.CategoricalCrossentropy
SQUARED = keras.losses.MeanSquaredError
CASES = {
    "classes": (SPARSE(from_logits=True), ["accuracy", "sparse_top_k_categorical_accuracy"]),
    "classes, options": (SPARSE(from_logits=True), [
        M.SparseTopKCategoricalAccuracy(k=3), M.SparseCategoricalAccuracy(),
        M.SparseCategoricalCrossentropy(from_logits=True)]),
    "one-hot": (CATEGORICAL(from_logits=True), ["accuracy", "top_k_categorical_accuracy"]),
    "one-hot, options": (CATEGORICAL(from_logits=True), [
        M.TopKCategoricalAccuracy(k=3), M.CategoricalAccuracy(), M.CosineSimilarity(),
        M.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), M.CategoricalHinge()]),
    "errors": (SQUARED(), ["mean_absolute_error", "mean_squared_error", M.RootMeanSquaredError(), M.LogCoshError(),
                           M.MeanSquaredLogarithmicError(), M.MeanAbsolutePercentageError()]),
    "names": (SQUARED(), ["mse", "MAE", "MeanAbsolutePercentageError", M.MeanSquaredError(name="error"),
                          M.TopKCategoricalAccuracy(k=2, name="accuracy"), M.AUC(name="auc_3")]),
    "probabilities": (CATEGORICAL(), [
        M.BinaryAccuracy(threshold=0.1), M.Precision(thresholds=0.1), M.Recall(thresholds=0.1), M.AUC(name="auc"),
        M.KLDivergence(), M.Poisson(), M.BinaryCrossentropy(label_smoothing=0.1), M.Hinge(), M.SquaredHinge(),
        M.F1Score(average="macro")]),
    "areas": (CATEGORICAL(), [M.AUC(name="auc", curve="PR"), M.F1Score(average="weighted", threshold=0.1)]),
    "areas, other sums": (CATEGORICAL(), [
        M.AUC(name="auc", num_thresholds=50, summation_method="minoring"), M.F1Score(average="micro", threshold=0.1)]),
    "areas of precision": (CATEGORICAL(), [M.AUC(name="auc", curve="PR", summation_method="majoring", num_thresholds=20)]),
}


def copy_of(metric):
    """Keras would add weighted and other examples up in one object."""
    return metric if isinstance(metric, str) else type(metric).from_config(metric.get_config())


class Metrics(Scratch):
    def test_evaluate_matches_keras(self):
        chance = np.random.default_rng(1)
        images = chance.integers(0, 256, (203, 6, 5), dtype=np.uint8)
        labels = chance.integers(0, 10, 203, dtype=np.uint8)
        below_zero = {"classes", "one-hot, options", "errors", "probabilities", "areas", "areas of precision"}
        seen = set()
        for name, (loss, metrics) in CASES.items():
            ends_in = "softmax" if isinstance(loss, CATEGORICAL) and not loss.from_logits else None
            model = keras.Sequential([layers.Input((6, 5)), layers.Rescaling(1 / 255), layers.Flatten(),
                                      layers.Dense(10, activation=ends_in)])
            model.compile("sgd", loss=loss, metrics=metrics, weighted_metrics=[copy_of(each) for each in metrics])
            targets = labels if isinstance(loss, SPARSE) else np.eye(10)[labels]
            weights = chance.uniform(*(-2, 1) if name in below_zero else (0, 2), 203).astype(np.float32)
            given = targets if isinstance(loss, SQUARED) else labels
            np.savez(self.folder / "data.npz", x_train=images, y_train=given, x_test=images, y_test=given,
                     sample_weight_test=weights)
            expected = model.evaluate(images, targets, sample_weight=weights, verbose=0, return_dict=True)
            for file in ("m.keras", "m.h5"):
                with self.subTest(f"{name}: {file}"):
                    model.save(self.folder / file)
                    lines = output_of(program("lockstep"), "evaluate", "--model", self.folder / file, "--data-dir",
                                      self.folder / "data.npz", "--verbose", 0)
                    found = {key: float(value) for key, value in (line.split(": ") for line in lines.splitlines())}
                    self.assertEqual(found.keys(), expected.keys())
                    for key, value in expected.items():
                        self.assertAlmostEqual(found[key], value, delta=1e-4 * max(1, abs(value)), msg=key)
                    seen |= found.keys()
        with self.assertRaises(RuntimeError) as refused:
            output_of(program("lockstep"), "train", "--metrics", "unknown", "--model", "m.keras")
        known = re.search("each ([\\w, ]+) or none", str(refused.exception)).group(1).split(", ")
        self.assertEqual(set(known) - seen, set(), "metrics without a case")

    def test_what_a_file_was_compiled_with_is_not_needed(self):
        """A file with an optimizer, loss and metrics that Lockstep lacks predicts, and evaluates with --loss."""
        chance = np.random.default_rng(2)
        inputs = chance.normal(size=(40, 5)).astype(np.float32)
        targets = chance.normal(size=(40, 3)).astype(np.float32)
        np.save(self.folder / "x.npy", inputs)
        np.savez(self.folder / "data.npz", x_train=inputs, y_train=targets, x_test=inputs, y_test=targets)
        model = keras.Sequential([layers.Input((5,), batch_size=8), layers.Dense(3, activation="tanh")])
        model.compile("muon", loss="log_cosh", metrics=[keras.metrics.AUC(multi_label=True)])
        for name in ("m.keras", "m.h5"):
            with self.subTest(name):
                file, output = self.folder / name, self.folder / "out.npy"
                model.save(file)
                output_of(program("lockstep"), "predict", "--model", file, "--data-dir", self.folder / "x.npy",
                          "--output", output)
                np.testing.assert_allclose(np.load(output), model.predict(inputs, batch_size=8, verbose=0), atol=1e-6)
                lines = output_of(program("lockstep"), "evaluate", "--model", file, "--data-dir",
                                  self.folder / "data.npz", "--loss", "mean_squared_error", "--verbose", 0)
                mean = float(np.mean((model.predict(inputs, batch_size=8, verbose=0) - targets) ** 2))
                self.assertAlmostEqual(float(lines.split("loss: ")[1].split()[0]), mean, delta=1e-4)
                for missing, given in (("(?i:muon).*or give --optimizer", ()),
                                       ("AUC.*or give --metrics", ("--optimizer", "sgd"))):
                    with self.assertRaisesRegex(RuntimeError, f"ended with 65: .*{missing}"):
                        output_of(program("lockstep"), "train", "--model", file, "--data-dir",
                                  self.folder / "data.npz", *given)
                lines = output_of(program("lockstep"), "train", "--model", file, "--data-dir", self.folder / "data.npz",
                                  "--optimizer", "sgd", "--metrics", "mae", "--epochs", 1, "--model-dir",
                                  self.folder / f"of_{name}")
                self.assertIn("mae: ", lines)


if __name__ == "__main__":
    support.main(__doc__)
