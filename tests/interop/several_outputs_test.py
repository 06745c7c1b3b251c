"""Models of several outputs beside real Keras: files in both directions, predictions, losses, metrics and training.

    several_outputs_test.py BIN_DIR
"""

import json
from pathlib import Path
from typing import Any

import support
from support import Scratch, keras, layers, np, output_of, program, weights_in_order

MPIRUN = Path(__file__).resolve().parents[2] / "scripts" / "mpirun.sh"
EXAMPLES = 24
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# How the outputs `kind` and `place` are compiled.
COMPILED: dict[str, dict[str, Any]] = {
    "lists": {"loss": [SPARSE, "mse"], "metrics": [["accuracy"], ["mae", "mse"]], "loss_weights": [1.0, 0.25]},
    "dicts": {"loss": {"place": keras.losses.Huber(), "kind": SPARSE}, "metrics": {"place": ["mae"]},
              "loss_weights": {"kind": 0.5, "place": 2.0}},
    "a list without weights": {"loss": [SPARSE, "mse"]},
    "weighted metrics": {"loss": [SPARSE, "mse"], "weighted_metrics": [["accuracy"], ["mae"]],
                         "metrics": [["accuracy"], []]},
}  # fmt: skip


def model_of() -> keras.Model:
    """The place is computed from the kind, which is an output too, and from the hidden layer."""
    inputs = keras.Input((6,), name="given")
    hidden = layers.Dense(8, activation="tanh", name="hidden")(inputs)
    kind = layers.Dense(3, name="kind")(hidden)
    place = layers.Dense(2, name="place")(layers.Concatenate()([hidden, kind]))
    return keras.Model(inputs, [kind, place])


class SeveralOutputsTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        draw = np.random.default_rng(3)
        self.x = draw.normal(size=(EXAMPLES, 6)).astype("float32")
        self.y = [draw.integers(0, 3, EXAMPLES), draw.normal(size=(EXAMPLES, 2)).astype("float32")]
        self.data = self.folder / "data.npz"
        named = {f"y_{split}_{name}": array for split in ("train", "test") for name, array in zip(("kind", "place"), self.y)}
        np.savez(self.data, x_train=self.x, x_test=self.x, **named)

    def made(self, compiled: dict[str, Any]) -> keras.Model:
        keras.utils.set_random_seed(1)
        model = model_of()
        model.compile(keras.optimizers.Adam(0.01), **compiled)
        return model

    def test_training_evaluation_and_files(self) -> None:
        for (name, compiled), ending in zip(COMPILED.items(), ("keras", "h5", "keras", "keras")):
            with self.subTest(name):
                model = self.made(compiled)
                file = self.folder / f"first.{ending}"
                model.save(file)
                directory = self.folder / name.replace(" ", "_")
                output_of(MPIRUN, "-np", 2, program("lockstep"), "train", "--model", file, "--data-dir", self.data,
                          "--epochs", 4, "--global-batch-size", EXAMPLES, "--model-dir", directory, "--verbose", 0)
                # One batch an epoch: its order does not matter.
                history = model.fit(self.x, self.y, batch_size=EXAMPLES, epochs=4, verbose=0, shuffle=False).history
                record = json.loads((directory / "history.json").read_text())
                for key, values in history.items():
                    np.testing.assert_allclose([epoch[key] for epoch in record["epochs"]], values, rtol=1e-4,
                                               err_msg=key)
                evaluation = model.evaluate(self.x, self.y, verbose=0, return_dict=True)
                self.assertEqual(set(record["evaluation"]), set(evaluation))
                for key, value in evaluation.items():
                    np.testing.assert_allclose(record["evaluation"][key], value, rtol=1e-3, err_msg=key)

                trained = keras.models.load_model(directory / f"model.{ending}")
                for ours, theirs in zip(weights_in_order(trained), weights_in_order(model), strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
                again = trained.evaluate(self.x, self.y, verbose=0, return_dict=True)
                self.assertEqual(set(again), set(evaluation))
                for key, value in evaluation.items():
                    np.testing.assert_allclose(again[key], value, rtol=1e-3, err_msg=key)

    def test_predictions_are_an_archive(self) -> None:
        model = self.made(COMPILED["lists"])
        file = self.folder / "model.keras"
        model.save(file)
        output = self.folder / "p.npz"
        output_of(program("lockstep"), "predict", "--model", file, "--data-dir", self.data, "--output", output)
        found = np.load(output)
        self.assertEqual(sorted(found), ["kind", "place"])
        for name, values in zip(("kind", "place"), model.predict(self.x, verbose=0)):
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    support.main(__doc__)
