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
    "counts": (CATEGORICAL(), [M.TruePositives(thresholds=0.1), M.TrueNegatives(), M.FalsePositives(thresholds=0.2),
                               M.FalseNegatives()]),
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
        # The next test has binary_io_u, which cannot be a weighted metric.
        self.assertEqual(set(known) - seen, {"binary_io_u"}, "metrics without a case")

    def test_pixels_with_a_vector_each(self):
        """Of a vector for each pixel, losses and metrics are means over the pixels, and targets may lack an axis of 1."""
        chance = np.random.default_rng(3)
        images = chance.normal(size=(37, 4, 3, 5)).astype(np.float32)
        classes = chance.integers(0, 6, (37, 4, 3))
        shares = chance.dirichlet(np.ones(6), (37, 4, 3)).astype(np.float32)
        bits = chance.integers(0, 2, (37, 4, 3, 1))
        cases = {
            "classes": (SPARSE(), ["accuracy", M.SparseTopKCategoricalAccuracy(k=3),
                                   M.MeanIoU(6, sparse_y_pred=False), M.IoU(5, [0, 3], sparse_y_pred=False)],
                        classes, 6, "softmax"),
            "classes, an axis of 1": (SPARSE(from_logits=True), ["accuracy"], classes[..., None], 6, None),
            "classes as floats": (SPARSE(), ["accuracy"], classes.astype(np.float32), 6, "sigmoid"),
            "shares": (CATEGORICAL(label_smoothing=0.1), [
                "accuracy", M.TopKCategoricalAccuracy(k=2), M.CosineSimilarity(), M.CategoricalHinge(), M.KLDivergence(),
                M.CategoricalCrossentropy(), M.BinaryAccuracy(threshold=0.2), "mae", M.OneHotMeanIoU(6),
                M.OneHotIoU(6, [1])], shares, 6, "softmax"),
            "divergence": (keras.losses.KLDivergence(), ["accuracy"], shares, 6, "softmax"),
            "focal": (keras.losses.CategoricalFocalCrossentropy(), ["accuracy"], shares, 6, "softmax"),
            "angles": (keras.losses.CosineSimilarity(), [M.RootMeanSquaredError()], shares, 6, None),
            "bits": (keras.losses.BinaryCrossentropy(), ["accuracy", M.AUC(), M.BinaryIoU(threshold=0.4)], bits, 1, "sigmoid"),
            "bits, an axis less": (keras.losses.BinaryCrossentropy(), ["accuracy"], bits[..., 0], 1, "sigmoid"),
        }
        for name, (loss, metrics, targets, outputs, ends_in) in cases.items():
            model = keras.Sequential([layers.Input((4, 3, 5)), layers.Conv2D(8, 3, padding="same", activation="tanh"),
                                      layers.Conv2D(outputs, 1, activation=ends_in)])
            model.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=metrics)
            model.save(self.folder / "m.keras")
            np.savez(self.folder / "data.npz", x_train=images, y_train=targets, x_test=images, y_test=targets)
            expected = model.evaluate(images, targets, verbose=0, return_dict=True)
            with self.subTest(name):
                lines = output_of(program("lockstep"), "evaluate", "--model", self.folder / "m.keras", "--data-dir",
                                  self.folder / "data.npz", "--verbose", 0)
                found = {key: float(value) for key, value in (line.split(": ") for line in lines.splitlines())}
                self.assertEqual(found.keys(), expected.keys())
                for key, value in expected.items():
                    self.assertAlmostEqual(found[key], value, delta=1e-4 * max(1, abs(value)), msg=key)
                for _ in range(3):
                    model.fit(images, targets, batch_size=37, verbose=0)
                trained = self.folder / name
                output_of(program("lockstep"), "train", "--model", self.folder / "m.keras", "--data-dir",
                          self.folder / "data.npz", "--global-batch-size", 37, "--epochs", 3, "--model-dir", trained)
                for ours, theirs in zip(keras.models.load_model(trained / "model.keras").get_weights(),
                                        model.get_weights()):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_targets_that_keras_would_compare_otherwise_are_refused(self):
        """With a last axis of 1 that targets lack, Keras takes the axis before it for the last one."""
        inputs = np.zeros((8, 4, 3), np.float32)
        for loss, metric in (("kl_divergence", "mae"), ("mean_squared_error", M.TopKCategoricalAccuracy(k=1))):
            model = keras.Sequential([layers.Input((4, 3)), layers.Dense(1, activation="sigmoid")])
            model.compile("sgd", loss=loss, metrics=[metric])
            model.save(self.folder / "m.keras")
            np.savez(self.folder / "data.npz", x_test=inputs, y_test=np.zeros((8, 4), np.float32))
            with self.assertRaisesRegex(RuntimeError, "ended with 65: .*give targets of the outputs' shape"):
                output_of(program("lockstep"), "evaluate", "--model", self.folder / "m.keras", "--data-dir",
                          self.folder / "data.npz")

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
