"""Models of several inputs beside real Keras: files in both directions, predictions, and training step by step.

    several_inputs_test.py BIN_DIR
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import support
from support import Scratch, keras, layers, np, output_of, program, weights_in_order

MPIRUN = Path(__file__).resolve().parents[2] / "scripts" / "mpirun.sh"
EXAMPLES = 24


def branches() -> keras.Model:
    """Two kinds of inputs, listed in another order than they are used, and a shared layer."""
    number = keras.Input((3,), name="number")
    image = keras.Input((6, 6, 1), name="image")
    other = keras.Input((6, 6, 1), name="other")
    shared = layers.Conv2D(4, 3, activation="tanh")
    difference = layers.Flatten()(layers.Subtract()([shared(image), shared(other)]))
    known = layers.Dense(4, activation="tanh")(number)
    together = layers.Concatenate()([difference, known, number])
    return keras.Model([other, number, image], layers.Dense(3)(together))


def indices() -> keras.Model:
    """Indices beside numbers."""
    words = keras.Input((5,), name="words", dtype="int32")
    number = keras.Input((2,), name="number")
    text = layers.GlobalAveragePooling1D()(layers.Embedding(7, 4)(words))
    joined = layers.Concatenate()([layers.Rescaling(2.0)(number), text])
    return keras.Model({"words": words, "number": number}, layers.Dense(3)(joined))


def arrays_of(model: keras.Model) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    return {
        each.name: draw.integers(0, 7, (EXAMPLES, *each.shape[1:])).astype("int32")
        if each.dtype == "int32" else draw.normal(size=(EXAMPLES, *each.shape[1:])).astype("float32")
        for each in model.inputs
    }  # fmt: skip


class SeveralInputsTest(Scratch):
    def write(self, arrays: dict[str, np.ndarray], targets: np.ndarray) -> Path:
        data = {f"x_{split}_{name}": array for split in ("train", "test") for name, array in arrays.items()}
        file = self.folder / "data.npz"
        np.savez(file, y_train=targets, y_test=targets, **data)
        return file

    def made(self, build: Any, seed: int) -> keras.Model:
        keras.utils.set_random_seed(seed)
        model = build()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
        return model

    def test_files_predictions_and_training(self) -> None:
        targets = np.random.default_rng(5).integers(0, 3, EXAMPLES)
        for seed, build in enumerate((branches, indices)):
            arrays = arrays_of(build())
            data = self.write(arrays, targets)
            for ending in ("keras", "h5"):
                with self.subTest(model=build.__name__, ending=ending):
                    model = self.made(build, seed)
                    file = self.folder / f"first.{ending}"
                    model.save(file)
                    output_of(program("lockstep"), "predict", "--model", file, "--data-dir", data,
                              "--output", self.folder / "p.npy")
                    expected = model.predict(arrays, verbose=0)
                    np.testing.assert_allclose(np.load(self.folder / "p.npy"), expected, rtol=1e-4, atol=1e-5)

                    # One batch an epoch: its order does not matter.
                    history = model.fit(arrays, targets, batch_size=EXAMPLES, epochs=4, verbose=0, shuffle=False)
                    directory = self.folder / f"{build.__name__}_{ending}"
                    output_of(MPIRUN, "-np", 2, program("lockstep"), "train", "--model", file, "--data-dir", data,
                              "--epochs", 4, "--global-batch-size", EXAMPLES, "--model-dir", directory, "--verbose", 0)
                    trained = keras.models.load_model(directory / f"model.{ending}")
                    self.assertEqual([each.name for each in trained.inputs], [each.name for each in model.inputs])
                    for ours, theirs in zip(weights_in_order(trained), weights_in_order(model), strict=True):
                        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
                    losses = [epoch["loss"] for epoch in json.loads((directory / "history.json").read_text())["epochs"]]
                    np.testing.assert_allclose(losses, history.history["loss"], rtol=1e-4)

    def test_missing_and_surplus_arrays_are_named(self) -> None:
        model = self.made(branches, 1)
        file = self.folder / "model.keras"
        model.save(file)
        arrays = arrays_of(model)
        targets = np.zeros(EXAMPLES, "int64")
        for change, words in (
            (lambda: arrays.pop("number"), "has no array x_test_number"),
            (lambda: arrays.update(number=arrays["image"][:, 0, 0], price=arrays["image"]), "price would not be used"),
        ):
            change()
            ended = subprocess.run(
                [str(program("lockstep")), "evaluate", "--model", str(file), "--data-dir",
                 str(self.write(arrays, targets))], capture_output=True, text=True, check=False)  # fmt: skip
            self.assertEqual(ended.returncode, 65, ended.stderr)
            self.assertIn(words, ended.stderr)


if __name__ == "__main__":
    support.main(__doc__)
