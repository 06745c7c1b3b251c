"""`lockstep evaluate` reports the same names and values as real Keras' evaluate, for the same file and data.

    metrics_test.py BIN_DIR     the folder of lockstep
"""

import support
from support import SPARSE, Scratch, keras, layers, np, output_of, program

SPARSE_TOP_3 = keras.metrics.SparseTopKCategoricalAccuracy(k=3)
TOP_3 = keras.metrics.TopKCategoricalAccuracy(k=3)
CASES = {
    "classes": (SPARSE(from_logits=True), ["accuracy", "sparse_top_k_categorical_accuracy"]),
    "classes, k = 3": (SPARSE(from_logits=True), [SPARSE_TOP_3]),
    "one-hot": (keras.losses.CategoricalCrossentropy(from_logits=True), ["accuracy", "top_k_categorical_accuracy"]),
    "one-hot, k = 3": (keras.losses.CategoricalCrossentropy(from_logits=True), [TOP_3]),
    "errors": (keras.losses.MeanSquaredError(),
               ["mean_absolute_error", "mean_squared_error", keras.metrics.RootMeanSquaredError()]),
}


class Metrics(Scratch):
    def test_evaluate_matches_keras(self):
        chance = np.random.default_rng(1)
        images = chance.integers(0, 256, (203, 6, 5), dtype=np.uint8)
        labels = chance.integers(0, 10, 203, dtype=np.uint8)
        np.savez(self.folder / "data.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
        for name, (loss, metrics) in CASES.items():
            model = keras.Sequential([layers.Input((6, 5)), layers.Rescaling(1 / 255), layers.Flatten(),
                                      layers.Dense(10)])
            model.compile("sgd", loss=loss, metrics=metrics)
            targets = labels if isinstance(loss, SPARSE) else np.eye(10)[labels]
            expected = model.evaluate(images, targets, verbose=0, return_dict=True)
            for file in ("m.keras", "m.h5"):
                with self.subTest(f"{name}: {file}"):
                    model.save(self.folder / file)
                    lines = output_of(program("lockstep"), "evaluate", "--model", self.folder / file, "--data-dir",
                                      self.folder / "data.npz", "--verbose", 0)
                    found = {key: float(value) for key, value in (line.split(": ") for line in lines.splitlines())}
                    self.assertEqual(found.keys(), expected.keys())
                    for key, value in expected.items():
                        self.assertAlmostEqual(found[key], value, delta=1e-4, msg=key)


if __name__ == "__main__":
    support.main(__doc__)
