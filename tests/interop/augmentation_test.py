"""Augmented images are those that Keras' layers make of the same draws, on any number of workers.

    augmentation_test.py BIN_DIR

A Dense layer of zeros learns an image in one step: with one target that is not 0, its gradient is that example's image.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import support
from support import Scratch, keras, layers, np, output_of, program

MPIRUN = Path(__file__).resolve().parents[2] / "scripts" / "mpirun.sh"
EXAMPLES, HEIGHT, WIDTH = 4, 7, 6
AUGMENTATION = 9  # RandomPurpose of src/core/random.hpp
SEED, STEP, LAYER = 42, 0, 1
WORD = 2 ** 32 - 1


def philox(counter: list[int], key: int) -> list[int]:
    """src/core/random.hpp in Python."""
    low, high = key & WORD, key >> 32
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ low, second & WORD, first >> 32 ^ counter[3] ^ high, first & WORD]
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return counter


def draws(example: int) -> tuple[float, float]:
    """The two numbers of AugmentationDraw."""
    whole = 2 ** 64 - 1
    key = SEED + 0x9E3779B97F4A7C15 * (AUGMENTATION << 32) & whole
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & whole
    key = (key ^ key >> 27) * 0x94D049BB133111EB & whole
    words = philox([0, example, LAYER, STEP], key ^ key >> 31)
    return (words[0] >> 8) / 2 ** 24, (words[1] >> 8) / 2 ** 24


def between(bounds: tuple[float, float], unit: float) -> float:
    return bounds[0] + unit * (bounds[1] - bounds[0])


def array(value: float, rank: int) -> Any:
    return keras.ops.full((1,) * rank, value, "float32")


def translation(layer: Any, first: float, second: float) -> dict[str, Any]:
    shift = [between((layer.width_lower, layer.width_upper), second) * WIDTH,
             between((layer.height_lower, layer.height_upper), first) * HEIGHT]
    return {"translations": keras.ops.convert_to_tensor([shift], "float32"), "input_shape": (1, HEIGHT, WIDTH, 2)}


def rotation(layer: Any, first: float, _second: float) -> dict[str, Any]:
    none, one = array(0, 1), array(1, 1)
    angle = array(between(layer.factor, first) * 360, 1)
    return {"rotation_matrix": layer._compute_affine_matrix(
        center_x=0.5, center_y=0.5, angle=angle, translate_x=none, translate_y=none, scale=one, shear_x=none,
        shear_y=none, height=HEIGHT, width=WIDTH)}


def zoom(layer: Any, first: float, second: float) -> dict[str, Any]:
    height = 1 + between((layer.height_lower, layer.height_upper), first)
    width = height if layer.width_factor is None else 1 + between((layer.width_lower, layer.width_upper), second)
    return {"height_zoom": array(height, 2), "width_zoom": array(width, 2), "input_shape": (1, HEIGHT, WIDTH, 2)}


def flip(_layer: Any, first: float, _second: float) -> dict[str, Any]:
    return {"flips": keras.ops.convert_to_tensor([[[[first <= 0.5]]]]), "input_shape": (1, HEIGHT, WIDTH, 2)}


def contrast(layer: Any, first: float, _second: float) -> dict[str, Any]:
    return {"contrast_factor": array(between((1 - layer.factor[0], 1 + layer.factor[1]), first), 4)}


def brightness(layer: Any, first: float, _second: float) -> dict[str, Any]:
    length = layer.value_range[1] - layer.value_range[0]
    return {"rgb_delta": array(between(layer.factor, first) * length, 4)}


Transformation = Callable[[Any, float, float], dict[str, Any]]


def cases() -> list[tuple[Any, Transformation]]:
    found: list[tuple[Any, Transformation]] = [
        (layers.RandomFlip(), flip), (layers.RandomFlip("horizontal"), flip), (layers.RandomFlip("vertical"), flip),
        (layers.RandomZoom(0.3, (0.1, 0.6)), zoom), (layers.RandomContrast(0.8, (0.1, 0.9)), contrast),
        (layers.RandomContrast((0.25, 0.5), (0, 1)), contrast), (layers.RandomBrightness((-0.1, 0.4), (0, 1)), brightness)]
    for fill in ("reflect", "constant", "nearest"):
        for interpolation in ("bilinear", "nearest"):
            options = dict(fill_mode=fill, interpolation=interpolation, fill_value=0.5)
            found += [(layers.RandomTranslation(0.4, (-0.2, 0.9), **options), translation),
                      (layers.RandomRotation(0.5, **options), rotation),
                      (layers.RandomZoom((-0.5, 0.9), **options), zoom)]
    return found


class Augmentation(Scratch):
    def learned(self, layer: Any, images: np.ndarray, example: int, workers: int) -> np.ndarray:
        model = keras.Sequential([layers.Input(images.shape[1:]), layer, layers.Flatten(),
                                  layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(0.5), "mse")
        model.save(self.folder / "m.keras")
        targets = np.zeros((EXAMPLES, 1), np.float32)
        targets[example] = EXAMPLES
        np.savez(self.folder / "d.npz", inputs=images, targets=targets)
        launcher = (MPIRUN, "-np", workers) if workers > 1 else ()
        output_of(*launcher, program("interop_train_steps"), self.folder / "m.keras", self.folder / "d.npz", self.folder,
                  EXAMPLES, workers, 1)
        return np.array(keras.models.load_model(self.folder / "1.keras").layers[-1].kernel).reshape(images.shape[1:])

    def test_keras_makes_the_same_images_of_these_draws(self) -> None:
        images = np.random.default_rng(1).uniform(size=(EXAMPLES, HEIGHT, WIDTH, 2)).astype(np.float32)
        for number, (layer, transformation) in enumerate(cases()):
            example = number % EXAMPLES
            with self.subTest(layer=type(layer).__name__, config=layer.get_config(), example=example):
                chosen = keras.ops.convert_to_tensor(images[example:example + 1])
                expected = layer.transform_images(chosen, transformation(layer, *draws(example)), training=True)
                for workers in (1, 2) if number % 5 == 0 else (1,):
                    found = self.learned(layer, images, example, workers)
                    np.testing.assert_allclose(found, np.asarray(expected)[0], atol=2e-5)

    def test_draws_differ(self) -> None:
        firsts = [draws(example)[0] for example in range(1000)]
        self.assertAlmostEqual(float(np.mean(firsts)), 0.5, delta=0.05)
        self.assertAlmostEqual(float(np.std(firsts)), 12 ** -0.5, delta=0.02)


if __name__ == "__main__":
    support.main(__doc__)
