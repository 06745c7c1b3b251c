"""Lockstep refuses a case, or it equals real Keras: random models × legal and illegal variations.

    differential_test.py BIN_DIR [--count N] [--seed S] [--ledger FILE]

A case is a random model, compiled in one of many ways, and data in one of many forms, some with sample weights. Keras
trains three steps on all examples at once, then evaluates and predicts; `lockstep train`, with one or two workers,
`evaluate` and `predict` do the same. Lockstep passes
if each command ends with 64 or 65 and a message, or if losses, metrics, weights and predictions are Keras'. Where Keras
raises, Lockstep must refuse. Where a gradient of Keras is NaN (UnitNormalization of zeros), Lockstep's may be finite.
Backends of Keras differ (a saturated softmax or sigmoid, AveragePooling2D with padding "same" on PyTorch): a case that
differs on one must be equal on another. --ledger appends a line for each case and skips the cases that FILE has: a long run goes on
where it was interrupted. The full count is --count 5000.
"""

import json
import math
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import support
from random_keras import Random, any_of, architecture, fill
from support import Scratch, keras, layers, np, options, program, weights_in_order

EXAMPLES = 12
EPOCHS = 3
MPIRUN = Path(__file__).resolve().parents[2] / "scripts" / "mpirun.sh"
TOLERANCE = 2e-3  # of what training changed, after three steps of a deep model in float32


@keras.saving.register_keras_serializable()
class SGD(keras.optimizers.SGD):
    """A user's optimizer, called as Keras' own."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(-gradient, variable, learning_rate)


class Refused(Exception):
    """Ended with 64 or 65 and a message."""


class Case:
    """One model with its data. `flaw`: where it may have what Lockstep or Keras refuses, or None."""

    def __init__(self, seed: int) -> None:
        self.random: Random = np.random.default_rng(seed)
        self.flaw = any_of(self.random, (None,) * 5 + ("loss", "metrics", "optimizer", "data", "weights"))
        self.ending = any_of(self.random, (None, "softmax", "sigmoid"))
        keras.utils.clear_session()
        self.model = self.any_model()
        self.classes = int(self.model.output_shape[-1])
        self.compile()
        self.workers = any_of(self.random, (1, 1, 1, 2))
        self.inputs = self.random.normal(size=(EXAMPLES, *self.model.input_shape[1:])).astype(np.float32)
        self.targets = self.any_targets()
        self.vary_data()
        self.weights = self.any_weights()
        self.form = any_of(self.random, (".keras", ".h5"))

    def any_model(self) -> Any:
        """Without dropout and noise, which differ, and without what has a kink at 0 where NonNeg makes zeros: there a
        leaky ReLU's derivative is 1 on JAX and the slope elsewhere, and that of L1 is 1 on JAX and 0 elsewhere."""
        while True:
            model = architecture(keras, self.random)
            written = model.to_json()
            if not any(hasattr(layer, "seed_generator") for layer in model.layers) and not (
                    "NonNeg" in written and ("leaky" in written.lower() or '"l1"' in written)):
                break
        if len(model.output_shape) != 2 and self.random.random() < 0.7:
            model.add(layers.Flatten())
        model.add(layers.Dense(int(self.random.integers(1, 6)), activation=self.ending))
        self.is_functional = bool(self.random.random() < 0.3)
        if self.is_functional:
            model = keras.Model(model.inputs, model.outputs)
        fill(model, self.random)
        return model

    def pick(self, kind: str, legal: tuple, illegal: tuple) -> Any:
        return any_of(self.random, illegal if self.flaw == kind else legal)

    def compile(self) -> None:
        losses, metrics, optimizers = keras.losses, keras.metrics, keras.optimizers
        from_logits = self.ending is None  # where Keras' backends agree
        self.loss = self.pick(
            "loss",
            (losses.SparseCategoricalCrossentropy(from_logits=from_logits),
             losses.CategoricalCrossentropy(from_logits=from_logits), "mse", ["mse"], losses.MeanSquaredError(),
             losses.CategoricalCrossentropy(from_logits=from_logits, label_smoothing=0.1), "mae", losses.Huber(),
             losses.MeanSquaredError(reduction="sum")),
            (losses.Dice(), losses.Tversky(), losses.SparseCategoricalCrossentropy(from_logits, ignore_class=0),
             losses.MeanSquaredError(reduction=None)))
        chosen = self.pick(
            "metrics",
            (None, ["accuracy"], ["accuracy"], [metrics.CategoricalAccuracy(name="accuracy")],
             [metrics.SparseCategoricalAccuracy(name="accuracy")], [metrics.TopKCategoricalAccuracy(min(2, self.classes))],
             [metrics.MeanAbsoluteError()], ["mean_squared_error"], [metrics.RootMeanSquaredError(), "accuracy"]),
            (["acc"], [metrics.AUC(name="accuracy")], [metrics.BinaryAccuracy(name="accuracy")],
             [metrics.MeanSquaredError(name="accuracy")], [metrics.Accuracy(name="accuracy")]))
        # Large epsilons: Adam would make whole steps of gradients that are nothing but rounding.
        optimizer = self.pick(
            "optimizer",
            (optimizers.SGD(0.05), optimizers.SGD(0.05, momentum=0.9, nesterov=True), optimizers.SGD(0.05, clipnorm=0.5),
             optimizers.SGD(0.05, weight_decay=0.0), optimizers.Adam(0.01, epsilon=0.1),
             optimizers.AdamW(0.01, epsilon=0.1, weight_decay=0.1), optimizers.RMSprop(0.01, epsilon=0.1),
             optimizers.SGD(0.05, weight_decay=0.1), optimizers.Adam(0.01, epsilon=0.1, amsgrad=True),
             optimizers.Nadam(0.01, epsilon=0.1)),
            (optimizers.Lamb(0.01), optimizers.LossScaleOptimizer(optimizers.SGD(0.05)), SGD(0.05), SGD(0.05)))
        given = self.loss
        if self.is_functional and not isinstance(given, list):
            name = self.model.output_names[0]
            given = self.pick("loss", (given, {name: given}), ({name + "x": given},))
        self.model.compile(optimizer, loss=given, metrics=chosen)

    def any_targets(self) -> np.ndarray:
        indices = self.random.integers(0, self.classes, (EXAMPLES, *self.model.output_shape[1:-1]))
        if isinstance(self.loss, keras.losses.SparseCategoricalCrossentropy):
            return indices.astype(any_of(self.random, (np.int32, np.int64, np.uint8, np.float32)))
        if isinstance(self.loss, keras.losses.CategoricalCrossentropy) and self.classes > 1:
            return np.eye(self.classes, dtype=np.float32)[indices]
        return self.random.random(size=(*indices.shape, self.classes)).astype(np.float32)

    def any_weights(self) -> np.ndarray | None:
        shape = self.pick("weights", (None, None, None, (EXAMPLES,), (EXAMPLES, 1)),
                          ((EXAMPLES - 1,), (EXAMPLES, 2), (EXAMPLES,)))
        return None if shape is None else self.random.random(size=shape).astype(np.float32)

    def vary_data(self) -> None:
        kind = self.pick("data", ("as it is", "as it is", "float64", "float16", "big-endian", "Fortran"),
                         ("transposed", "flat", "a further axis", "NaN", "infinite", "one example less"))
        x = self.inputs
        if kind in ("float64", "float16"):
            x = x.astype(kind)
        elif kind == "big-endian":
            x = x.astype(">f4")
        elif kind == "Fortran":
            x = np.asfortranarray(x)
        elif kind == "transposed":
            x = np.moveaxis(x, -1, 1)
        elif kind == "flat":
            x = x.reshape(EXAMPLES, -1)
        elif kind == "a further axis":
            x = x[..., None]
        elif kind in ("NaN", "infinite"):
            x = x.copy()
            x.flat[int(self.random.integers(x.size))] = np.nan if kind == "NaN" else np.inf
        elif kind == "one example less":
            self.targets = self.targets[1:]
        self.inputs = x
        self.is_finite = bool(np.isfinite(x).all())

    def train_keras(self) -> dict[str, Any]:
        """What Keras finds, or the exception that it raises."""
        inputs = np.ascontiguousarray(self.inputs).astype(np.float32)
        common: dict[str, Any] = {"batch_size": EXAMPLES, "sample_weight": self.weights, "verbose": 0}
        self.model.fit(inputs, self.targets, epochs=EPOCHS, shuffle=False, **common)
        return {"logs": self.model.evaluate(inputs, self.targets, return_dict=True, **common),
                "predictions": np.asarray(self.model.predict(inputs, verbose=0)),
                "weights": [np.array(weight) for weight in weights_in_order(self.model)]}


def run(*command: object) -> str:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    if ended.returncode in (64, 65) and ended.stderr.strip():
        raise Refused(ended.stderr.strip().splitlines()[-1])
    if ended.returncode != 0:
        raise AssertionError(f"ended with {ended.returncode}: {ended.stderr}")
    return ended.stdout


class Differential(Scratch):
    def lockstep(self, case: Case, file: Path) -> dict[str, Any]:
        data = self.folder / "data.npz"
        weights = {} if case.weights is None else {"sample_weight": case.weights, "sample_weight_test": case.weights}
        np.savez(data, x_train=case.inputs, y_train=case.targets, x_test=case.inputs, y_test=case.targets, **weights)
        common = ("--data-dir", data, "--verbose", 0)
        on_workers = () if case.workers == 1 else (MPIRUN, "-np", case.workers)
        run(*on_workers, program("lockstep"), "train", "--model", file, *common, "--model-dir", self.folder / "out", "--epochs",
            EPOCHS, "--global-batch-size", EXAMPLES, "--batch-norm-replicas", 1, "--save-as", "m.keras", "--backup-save-freq", "never")
        trained = self.folder / "out" / "m.keras"
        lines = run(program("lockstep"), "evaluate", "--model", trained, *common).splitlines()
        run(program("lockstep"), "predict", "--model", trained, *common, "--output", self.folder / "out.npy")
        again = keras.models.load_model(trained, compile=False)
        return {"logs": {key: float(value) for key, value in (line.split(": ") for line in lines)},
                "predictions": np.load(self.folder / "out.npy"),
                "weights": [np.array(weight) for weight in weights_in_order(again)]}

    def assert_close(self, found: np.ndarray, expected: np.ndarray, scale: float, what: str) -> None:
        self.assertEqual(found.shape, expected.shape, what)
        largest = float(np.abs(found - expected).max(initial=0))
        self.assertLessEqual(largest, TOLERANCE * max(scale, 3e-3), what)

    def check(self, seed: int) -> str:
        case = Case(seed)
        file = self.folder / f"m{case.form}"
        case.model.save(file)
        before = [np.array(weight) for weight in weights_in_order(case.model)]
        try:
            found = self.lockstep(case, file)
        except Refused as refusal:
            return f"refused: {refusal}"
        finally:
            for path in sorted((self.folder / "out").rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
        expected = case.train_keras()  # where Keras raises, the case fails
        self.assertTrue(case.is_finite, "trained on inputs that are not finite")
        self.assertEqual(found["logs"].keys(), expected["logs"].keys())
        if not math.isfinite(expected["logs"]["loss"]):  # nothing more to compare
            return "equal" if not math.isfinite(found["logs"]["loss"]) else "finite, but not in Keras"
        for name, value in expected["logs"].items():
            self.assertLessEqual(abs(found["logs"][name] - value), 1e-3 * max(1, abs(value)), name)
        for ours, theirs, first in zip(found["weights"], expected["weights"], before, strict=True):
            self.assert_close(ours, theirs, float(np.abs(theirs - first).max(initial=0)), "weights")
        self.assert_close(found["predictions"], expected["predictions"],
                          float(np.abs(expected["predictions"]).max()), "predictions")
        return "equal"

    def test_layers_of_a_frozen_base_that_are_trainable_train(self) -> None:
        random = np.random.default_rng(5)
        data = SimpleNamespace(inputs=random.normal(size=(EXAMPLES, 6)).astype(np.float32), weights=None, workers=1,
                               targets=random.normal(size=(EXAMPLES, 2)).astype(np.float32))
        for kind in ("Functional", "Sequential", "flat Functional"):  # of "flat Sequential" Keras forgets the flag
            given = keras.Input((6,))
            chain = [layers.Dense(5, activation="tanh", name="d1"), layers.Dense(4, name="d2", kernel_regularizer="l2"),
                     layers.BatchNormalization(name="bn")]
            base = keras.Sequential([given, *chain])
            if kind.endswith("Functional"):
                base = keras.Model(given, chain[2](chain[1](chain[0](given))))
            base.trainable = False
            chain[1].trainable = True
            model = base
            if not kind.startswith("flat"):
                chain[2].trainable = True
                model = keras.Model(given, layers.Dense(2, name="top")(base(given)))
            else:
                data.targets = random.normal(size=(EXAMPLES, 4)).astype(np.float32)
            model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError())
            for form in (".keras", ".h5"):
                with self.subTest(kind, form=form):
                    file = self.folder / f"frozen{form}"
                    model.save(file)
                    found = self.lockstep(data, file)
                    before = model.get_weights()
                    model.fit(data.inputs, data.targets, batch_size=EXAMPLES, epochs=EPOCHS, shuffle=False, verbose=0)
                    for ours, theirs in zip(found["weights"], weights_in_order(model), strict=True):
                        np.testing.assert_allclose(ours, theirs, atol=1e-5)
                    model.set_weights(before)

    def test_lockstep_refuses_or_equals_keras(self) -> None:
        done = set()
        if options.ledger and options.ledger.exists():
            done = {json.loads(line)["seed"] for line in options.ledger.read_text().splitlines()}
        counts: Counter[str] = Counter()
        for seed in range(options.seed, options.seed + options.count):
            if seed in done:
                continue
            with self.subTest(seed=seed):
                outcome = "different"
                try:
                    outcome = self.check(seed)
                finally:
                    counts[outcome.split(":")[0]] += 1
                    if options.ledger:
                        with options.ledger.open("a") as ledger:
                            ledger.write(json.dumps({"seed": seed, "outcome": outcome}) + "\n")
        print(f"{sum(counts.values())} cases: {dict(counts)}", flush=True)
        if options.count >= 50:
            self.assertGreater(counts["equal"] + len(done), options.count / 10, "hardly anything was compared")


if __name__ == "__main__":
    support.main(__doc__, count=dict(type=int, default=10, help="number of cases"),
                 seed=dict(type=int, default=1, help="seed of the first case"),
                 ledger=dict(type=Path, help="file of the cases that were run"))
