"""Random models round-trip between Lockstep and real Keras and predict the same in both.

    random_models_test.py BIN_DIR [--count N] [--seed S] [--keras2-python PATH]

Uses models of seeds S, S+1, ... The full count is --count 50. --keras2-python names a Python with tensorflow and
tf_keras and adds Keras 2, which requirements.txt leaves out because it is large. Predictions may differ by 1e-5 of the
largest; weights and optimizer slots are equal bit for bit.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import support
from random_keras import build, inputs_of, slots_of
from support import Scratch, keras, np, options, output_of, program, read_model, weights_in_order, without

HERE = Path(__file__).resolve().parent
BATCH = 4  # the seven examples make two batches, the second one shorter


def seeds() -> range:
    return range(options.seed, options.seed + options.count)


def arrays_of(variables: list[Any]) -> list[np.ndarray]:
    return [np.array(variable) for variable in variables]


def layers_of(model: keras.Model) -> list[tuple[type, Any]]:
    """The layers' configurations without the seeds that Keras 3 adds to initializers and Dropout."""

    def of_layer(layer: keras.layers.Layer) -> Any:
        if isinstance(layer, keras.Model):
            return layer.name, layers_of(layer)
        config = without(layer.get_config(), "seed", "dtype")
        for key, value in config.items():
            if isinstance(value, dict) and "class_name" in value:
                config[key] = value["class_name"]
        return config

    return [(type(layer), of_layer(layer)) for layer in model.layers]


class Case(Scratch):
    largest = 0.0

    @classmethod
    def tearDownClass(cls) -> None:
        print(f"{cls.__name__}: seeds {options.seed} to {options.seed + options.count - 1}, largest deviation of "
              f"predictions {cls.largest:.1e}", flush=True)

    def for_each(self, chosen: Iterable[int], check: Callable[[int], None]) -> None:
        for seed in chosen:
            with self.subTest(seed=seed):
                keras.utils.clear_session()
                check(seed)

    def ask_keras_2(self, task: str, chosen: Iterable[int]) -> None:
        output_of(options.keras2_python, HERE / "keras2_peer.py", task, self.folder, *chosen)

    def lockstep_predicts(self, file: Path, inputs: np.ndarray) -> tuple[np.ndarray, Path]:
        """Returns Lockstep's predictions and the file that it saved."""
        target = file.with_name(file.name + "-out")
        target.mkdir()
        np.savez(target / "data.npz", inputs=inputs)
        output_of(program("interop_train_steps"), file, target / "data.npz", target, BATCH, 0, 0)
        return np.fromfile(target / "0.f32", np.float32), target / "0.keras"

    def assert_predictions(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        theirs = np.asarray(theirs).ravel()
        self.assertEqual(ours.shape, theirs.shape)
        self.assertTrue(np.isfinite(theirs).all())
        largest = float(np.abs(theirs).max())
        found = float(np.abs(ours - theirs).max()) / (largest if largest > 0 else 1)
        type(self).largest = max(self.largest, found)
        self.assertLess(found, 1e-5)

    def assert_arrays(self, ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
        self.assertEqual(len(ours), len(theirs))
        for our, their in zip(ours, theirs):
            np.testing.assert_array_equal(our, their)

    def assert_same_model(self, model: keras.Model, other: keras.Model) -> None:
        self.assertEqual(model.name, other.name)
        self.assertEqual(model.input_shape, other.input_shape)
        self.assertEqual(layers_of(model), layers_of(other))
        self.assert_arrays(arrays_of(weights_in_order(model)), arrays_of(weights_in_order(other)))
        self.assertEqual(model.compiled, other.compiled)
        if not model.compiled:
            return
        self.assertIs(type(model.optimizer), type(other.optimizer))
        self.assertEqual(without(model.optimizer.get_config(), "name"), without(other.optimizer.get_config(), "name"))
        self.assertEqual(int(model.optimizer.iterations), int(other.optimizer.iterations))
        for ours, theirs in zip(keras.tree.flatten(model.loss), keras.tree.flatten(other.loss), strict=True):
            self.assertEqual(without(ours.get_config(), "name"), without(theirs.get_config(), "name"))


class FromLockstep(Case):
    def test_keras_3(self) -> None:
        self.for_each(seeds(), self.check_keras_3)

    def check_keras_3(self, seed: int) -> None:
        output_of(program("interop_write_model"), self.folder, seed)
        archive = self.folder / f"{seed}.keras"
        model = keras.models.load_model(archive)
        inputs = inputs_of(model.input_shape, seed)
        outputs = keras.tree.flatten(model.predict(inputs, verbose=0))
        self.assert_predictions(self.lockstep_predicts(archive, inputs)[0],
                                np.concatenate([np.ravel(each) for each in outputs]))
        self.assert_same_model(model, keras.models.load_model(self.folder / f"{seed}.h5"))
        twin = type(model).from_config(model.get_config())
        twin.load_weights(self.folder / f"{seed}.weights.h5")
        self.assert_arrays(arrays_of(weights_in_order(twin)), arrays_of(weights_in_order(model)))

    def test_keras_2(self) -> None:
        if options.keras2_python is None:
            self.skipTest("no --keras2-python")
        output_of(program("interop_write_model"), self.folder, *seeds())
        chosen = [seed for seed in seeds() if self.suits_keras_2(self.folder / f"{seed}.h5")]
        self.ask_keras_2("predict", chosen)
        print(f"Keras 2 has read {len(chosen)} models", flush=True)
        self.for_each(chosen, self.check_keras_2)

    def suits_keras_2(self, file: Path) -> bool:
        """TensorFlow uses layer names as scopes, which may not contain spaces."""
        return not any(" " in layer["config"]["name"] for layer in read_model(file)["model"]["config"]["layers"])

    def check_keras_2(self, seed: int) -> None:
        with np.load(self.folder / f"{seed}.npz") as found:
            ours, _ = self.lockstep_predicts(self.folder / f"{seed}.h5", found["inputs"])
            self.assert_predictions(ours, found["predictions"])


class FromKeras(Case):
    def test_keras_3(self) -> None:
        self.for_each(seeds(), self.check_keras_3)

    def check_keras_3(self, seed: int) -> None:
        model = build(keras, seed)
        inputs = inputs_of(model.input_shape, seed)
        predicted = model.predict(inputs, verbose=0)
        for form, other in ((".keras", ".h5"), (".h5", ".keras")):
            file = self.folder / f"{seed}{form}"
            model.save(file)
            ours, saved = self.lockstep_predicts(file, inputs)
            self.assert_predictions(ours, predicted)
            self.assert_arrays(arrays_of(weights_in_order(keras.models.load_model(saved))),
                               arrays_of(weights_in_order(model)))
            copy = self.folder / f"{seed}{form}-copy{other}"
            output_of(program("interop_read_model"), file, copy)
            again = keras.models.load_model(copy)
            self.assert_same_model(again, model)
            if model.compiled and other == ".keras":  # Keras does not restore the optimizer of .h5 files
                self.assert_arrays(arrays_of(slots_of(again.optimizer)), arrays_of(slots_of(model.optimizer)))

    def test_keras_2(self) -> None:
        if options.keras2_python is None:
            self.skipTest("no --keras2-python")
        self.ask_keras_2("build", seeds())
        self.for_each(seeds(), self.check_keras_2)

    def check_keras_2(self, seed: int) -> None:
        with np.load(self.folder / f"{seed}.npz") as found:
            ours, saved = self.lockstep_predicts(self.folder / f"{seed}.h5", found["inputs"])
            self.assert_predictions(ours, found["predictions"])
            weights = [found[name] for name in found.files if name.startswith("weight_")]
            self.assert_arrays(arrays_of(weights_in_order(keras.models.load_model(saved))), weights)


if __name__ == "__main__":
    support.main(__doc__, count=dict(type=int, default=8, help="number of models in each direction"),
                 seed=dict(type=int, default=1, help="seed of the first model"),
                 keras2_python=dict(metavar="PATH", help="a Python with tensorflow and tf_keras"))
