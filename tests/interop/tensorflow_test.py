"""Crossentropy as Keras on TensorFlow computes it, whose rule Lockstep follows where Keras' backends differ.

    tensorflow_test.py BIN_DIR     with a Python that has TensorFlow

After a softmax or sigmoid its loss is computed from the logits, so that outputs of 0 and 1 still learn. JAX and PyTorch
clip them. Other outputs of classes become probabilities first. Large weights bring outputs close to 0 and 1. The focal
losses read the outputs.
"""

import os
import warnings
from collections.abc import Callable

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import support  # noqa: E402
from support import SPARSE, Scratch, keras, layers, np, output_of, program, weights_in_order  # noqa: E402

CATEGORICAL = keras.losses.CategoricalCrossentropy
BINARY = keras.losses.BinaryCrossentropy
BATCH, STEPS, CLASSES = 16, 4, 5
ENDS = {
    "softmax": lambda: [layers.Dense(CLASSES, activation="softmax")],
    "a softmax layer": lambda: [layers.Dense(CLASSES, activation="tanh"), layers.Activation("softmax")],
    # Layers that return their input itself leave TensorFlow the softmax's logits.
    "softmax and a linear activation": lambda: [layers.Dense(CLASSES, activation="softmax"), layers.Activation("linear")],
    "softmax and an identity": lambda: [layers.Dense(CLASSES, activation="softmax"), layers.Identity()],
    "softmax and a penalty of nothing": lambda: [layers.Dense(CLASSES, activation="softmax"),
                                                 layers.ActivityRegularization()],
    "softmax and a dropout of nothing": lambda: [layers.Dense(CLASSES, activation="softmax"), layers.Dropout(0.0)],
    "softmax and another layer": lambda: [layers.Dense(CLASSES, activation="softmax"), layers.Reshape((CLASSES,))],
    # Directly after a sigmoid TensorFlow takes the sigmoid's logits for those of a softmax, and for BinaryCrossentropy
    # the other way around. Lockstep reads the outputs there.
    "sigmoid and another layer": lambda: [layers.Dense(CLASSES, activation="sigmoid"), layers.Reshape((CLASSES,))],
    "positive numbers": lambda: [layers.Dense(CLASSES, activation="relu", bias_initializer="ones")],
}
LOSSES = {
    "classes": SPARSE(),
    "one-hot": CATEGORICAL(),
    "classes, from logits": SPARSE(from_logits=True),
    "one-hot, from logits": CATEGORICAL(from_logits=True),
    "one-hot, smoothed": CATEGORICAL(label_smoothing=0.2),
}
BINARY_ENDS = {
    "sigmoid": lambda: [layers.Dense(CLASSES, activation="sigmoid")],
    "sigmoid and an identity": lambda: [layers.Dense(CLASSES, activation="sigmoid"), layers.Identity()],
    "sigmoid and another layer": ENDS["sigmoid and another layer"],
    "positive numbers": ENDS["positive numbers"],
}
BINARY_LOSSES = {
    "binary": BINARY(),
    "binary, from logits": BINARY(from_logits=True),
    "binary, smoothed": BINARY(label_smoothing=0.2),
}
FOCAL_LOSSES = {
    "focal": keras.losses.CategoricalFocalCrossentropy(),
    "focal, from logits": keras.losses.CategoricalFocalCrossentropy(from_logits=True),
}
BINARY_FOCAL_LOSSES = {
    "binary focal": keras.losses.BinaryFocalCrossentropy(),
    "binary focal, from logits": keras.losses.BinaryFocalCrossentropy(from_logits=True),
}


class Crossentropy(Scratch):
    def check(self, end: Callable[[], list], loss: keras.losses.Loss, scale: float) -> None:
        keras.utils.set_random_seed(4)
        model = keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="tanh"), *end()])
        model.compile(keras.optimizers.SGD(0.05), loss=loss)
        for weight in model.layers[-1].weights or model.layers[-2].weights:
            weight.assign(weight * scale)
        random = np.random.default_rng(2)
        inputs = random.normal(size=(BATCH * STEPS, 6)).astype(np.float32)
        targets = random.integers(0, CLASSES, BATCH * STEPS).astype(np.int32)
        if not isinstance(loss, SPARSE):
            targets = np.eye(CLASSES, dtype=np.float32)[targets]
        model.save(self.folder / "m.keras")
        np.savez(self.folder / "data.npz", inputs=inputs, targets=targets)
        marks = range(1, STEPS + 1)
        printed = output_of(program("interop_train_steps"), self.folder / "m.keras", self.folder / "data.npz",
                            self.folder, BATCH, 0, *marks)
        before = [np.array(weight) for weight in weights_in_order(model)]
        for step, found in zip(marks, printed.split(), strict=True):
            batch = slice(BATCH * (step - 1), BATCH * step)
            expected = float(model.train_on_batch(inputs[batch], targets[batch]))
            if step == 1:  # train_on_batch returns the mean of all batches so far
                np.testing.assert_allclose(float(found), expected, rtol=2e-5, atol=1e-6)
            ours = keras.models.load_model(self.folder / f"{step}.keras", compile=False)
            for mine, theirs, first in zip(weights_in_order(ours), weights_in_order(model), before, strict=True):
                change = max(float(np.abs(np.array(theirs) - first).max()), 1e-6)
                self.assertLess(float(np.abs(np.array(mine) - np.array(theirs)).max()) / change, 1e-3 * step)

    def test_losses_and_steps_match(self) -> None:
        warnings.simplefilter("ignore")  # Keras warns of from_logits after a softmax
        for ends, losses, scales in ((ENDS, LOSSES, (1, 30)), (BINARY_ENDS, BINARY_LOSSES, (1, 30)),
                                     (ENDS, FOCAL_LOSSES, (1,)), (BINARY_ENDS, BINARY_FOCAL_LOSSES, (1,))):
            for where, end in ends.items():
                for name, loss in losses.items():
                    for scale in scales:
                        with self.subTest(f"{name} after {where}, weights times {scale}"):
                            self.check(end, loss, scale)


if __name__ == "__main__":
    support.main(__doc__)
