"""`lockstep export` beside real Keras: every layer and activation, graphs, options and random models, in ONNX Runtime.

    onnx_test.py BIN_DIR [--count N] [--applications]

--count is that of random models; --applications also exports some of keras.applications. Each exported model passes
onnx.checker, and computes what Keras' predict does within 1e-5 of the largest output.
"""

import re
import subprocess
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import coverage
import onnx
import onnxruntime
import random_keras
import support
from keras.src.applications.convnext import LayerScale
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer
from support import Scratch, keras, layers, np, options, output_of, program

TOLERANCE = 1e-5
IMAGE, SEQUENCE = (9, 8, 4), (9, 4)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"


def supported(title: str) -> list[str]:
    """The names in a table of docs/coverage.md that Lockstep reads and predicts with."""
    section = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| yes \| yes", section, re.M)


def sequential(*made: Any) -> Callable[[], keras.Model]:
    return lambda: keras.Sequential(list(made))


def resnet20() -> keras.Model:
    """Of three small blocks instead of nine."""
    x = before = layers.Input((16, 16, 3), name="picture")
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for filters, strides in ((8, 1), (16, 2), (32, 2)):
        shortcut = x
        x = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        if strides > 1:
            shortcut = layers.Conv2D(filters, 1, strides, use_bias=False)(shortcut)
        x = layers.ReLU()(layers.Add()([x, shortcut]))
    return keras.Model(before, layers.Dense(10, activation="softmax", name="digit")(layers.GlobalAveragePooling2D()(x)))


def several() -> keras.Model:
    """Two inputs, two outputs, a shared layer, and a nested model that is called twice."""
    left, right = layers.Input((8, 8, 2), name="left"), layers.Input((8, 8, 2), name="right")
    index = layers.Input((3,), dtype="int32", name="words")
    nested = keras.Sequential([layers.Input((8, 8, 4)), layers.Conv2D(4, 3, padding="same", activation="relu"),
                               layers.BatchNormalization()], name="nested")
    shared = layers.Conv2D(4, 3, padding="same", name="shared")
    a, b = nested(shared(left)), nested(shared(right))
    picture = layers.Concatenate(name="picture")([a, b])
    words = layers.Flatten()(layers.Embedding(20, 5)(index))
    joined = layers.Concatenate()([layers.GlobalMaxPooling2D()(picture), words])
    outputs = [layers.Dense(3, name="kind")(joined), picture, layers.Softmax(name="p")(words)]
    return keras.Model([left, right, index], outputs)


def residual_in_dense() -> keras.Model:
    x = before = layers.Input((6,))
    y = layers.Dense(6, activation="gelu")(x)
    return keras.Model(before, [y, layers.Add()([x, y]), before])


def squeeze_and_excitation() -> keras.Model:
    x = before = layers.Input(IMAGE)
    x = layers.Conv2D(8, 3)(x)
    weights = layers.Reshape((1, 1, 8))(layers.Dense(8, activation="sigmoid")(layers.GlobalAveragePooling2D()(x)))
    return keras.Model(before, layers.Conv2D(3, 1)(layers.Multiply()([weights, x])))


def scaled_residual() -> keras.Model:
    x = before = layers.Input(IMAGE)
    y = layers.Conv2D(4, 1)(x)
    return keras.Model(before, LayerScale(0.3, 4)(CustomScaleLayer(0.2)([x, y])))


def dot(axes: Any, normalize: bool, *shapes: tuple[int, ...]) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = [layers.Input(shape) for shape in shapes]
        return keras.Model(inputs, layers.Dot(axes, normalize)(inputs))

    return build


def merged_sequences(merge: Any) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        before = layers.Input(SEQUENCE)
        convolved = layers.Conv1D(4, 3, padding="same")(before)
        return keras.Model(before, merge([convolved, before, layers.Dense(4)(before)]))

    return build


image, sequence = layers.Input(IMAGE), layers.Input(SEQUENCE)
CASES: dict[str, Callable[[], keras.Model]] = {
    "resnet": resnet20, "several": several, "residual in dense": residual_in_dense,
    "squeeze and excitation": squeeze_and_excitation, "scaled residual": scaled_residual,
    "mnist": support.keras_mnist, "everything": support.everything,
    "same, strided": sequential(image, layers.Conv2D(6, (3, 2), strides=(2, 3), padding="same", activation="silu")),
    "dilated": sequential(image, layers.Conv2D(6, 3, dilation_rate=2, padding="same")),
    "groups": sequential(image, layers.Conv2D(8, 3, groups=2), layers.Conv2D(8, 3, groups=8)),
    "depthwise": sequential(image, layers.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=3)),
    "depthwise of one channel": sequential(layers.Input((9, 8, 1)), layers.DepthwiseConv2D(3, depth_multiplier=3)),
    "separable": sequential(image, layers.SeparableConv2D(5, 3, depth_multiplier=2, use_bias=False)),
    "causal": sequential(sequence, layers.Conv1D(5, 3, dilation_rate=2, padding="causal"), layers.BatchNormalization()),
    "depthwise sequence": sequential(sequence, layers.DepthwiseConv1D(3, depth_multiplier=2, padding="same")),
    **{f"transposed {padding} {kernel} {strides}": sequential(
        image, layers.Conv2DTranspose(5, kernel, strides, padding=padding))
       for padding in ("valid", "same") for kernel in (1, 2, 3, (4, 5)) for strides in (1, 2, (3, 2))},
    "transposed, dilated": sequential(image, layers.Conv2DTranspose(5, 3, dilation_rate=2)),
    "transposed sequence": sequential(sequence, layers.Conv1DTranspose(5, 3, strides=2, padding="same")),
    "poolings": sequential(image, layers.MaxPooling2D(3, 2, "same"), layers.AveragePooling2D((2, 3), (2, 1), "same")),
    "small window": sequential(image, layers.MaxPooling2D(1, 3, "same")),
    "poolings of sequences": sequential(sequence, layers.MaxPooling1D(3, 2, "same"),
                                        layers.AveragePooling1D(2, 1, "same")),
    "keepdims": sequential(image, layers.GlobalAveragePooling2D(keepdims=True), layers.Conv2D(3, 1)),
    "keepdims of a sequence": sequential(sequence, layers.GlobalMaxPooling1D(keepdims=True), layers.Flatten()),
    "up, bilinear": sequential(image, layers.UpSampling2D((2, 3), interpolation="bilinear"), layers.Conv2D(2, 1)),
    "up, nearest": sequential(image, layers.UpSampling2D((3, 1)), layers.UpSampling2D(2)),
    **{f"resizing {kind} {size}": sequential(image, layers.Resizing(*size, interpolation=kind))
       for kind in ("nearest", "bilinear") for size in ((5, 7), (13, 17), (9, 3), (18, 4))},
    "margins": sequential(image, layers.Conv2D(4, 1), layers.ZeroPadding2D(((1, 0), (2, 3))),
                          layers.Cropping2D(((0, 2), (1, 0))), layers.CenterCrop(5, 4)),
    "margins of sequences": sequential(sequence, layers.ZeroPadding1D((1, 2)), layers.Cropping1D((0, 1))),
    "normalizations": sequential(image, layers.Conv2D(6, 1), layers.LayerNormalization(center=False),
                                 layers.GroupNormalization(3, scale=False), layers.LayerNormalization(scale=False),
                                 layers.BatchNormalization(scale=False), layers.BatchNormalization(center=False)),
    "normalizations of vectors": sequential(layers.Input((6,)), layers.GroupNormalization(2),
                                            layers.UnitNormalization(), layers.BatchNormalization(),
                                            layers.RMSNormalization(), layers.LayerNormalization()),
    "group of all": sequential(image, layers.GroupNormalization(-1)),
    "adapted": sequential(image, layers.Normalization()),
    "inverted": sequential(image, layers.Conv2D(4, 1),
                           layers.Normalization(mean=[0.5] * 4, variance=[2.0] * 4, invert=True)),
    "shared slopes": sequential(image, layers.Conv2D(4, 1), layers.PReLU("random_normal", shared_axes=[1, 2])),
    "own slopes": sequential(image, layers.Conv2D(4, 1), layers.PReLU("random_normal"), layers.Dense(2)),
    "clipped": sequential(image, layers.ReLU(max_value=0.8, negative_slope=0.1, threshold=0.2), layers.ReLU(6.0),
                          layers.LeakyReLU(0.3), layers.ELU(0.7), layers.ReLU(threshold=0.1)),
    "softmax of an image": sequential(image, layers.Conv2D(4, 1), layers.Softmax(), layers.Activation("log_softmax")),
    "dense on images": sequential(image, layers.Dense(3, activation="relu"), layers.Conv2D(2, 3)),
    "reshape and permute": sequential(image, layers.Permute((3, 1, 2)), layers.Reshape((8, -1)),
                                      layers.Permute((2, 1))),
    "four axes": sequential(image, layers.Reshape((3, 3, 8, 4)), layers.BatchNormalization(), layers.Dense(2)),
    "repeated": sequential(layers.Input((6,)), layers.RepeatVector(4), layers.Conv1D(3, 2)),
    "ones": sequential(layers.Input((6,), dtype="int64"), layers.CategoryEncoding(20, "multi_hot")),
    "counts": sequential(layers.Input((6,), dtype="int32"), layers.CategoryEncoding(20, "count"), layers.Dense(2)),
    "one of all": sequential(layers.Input((6, 1), dtype="uint8"), layers.CategoryEncoding(20, "one_hot")),
    "bins": sequential(layers.Input((6,)), layers.Discretization([-0.5, 0.0, 1.5], output_mode="int"),
                       layers.Embedding(4, 3), layers.Flatten()),
    "counted bins": sequential(layers.Input((6,)), layers.Discretization([-0.5, 0.0, 1.5], output_mode="count")),
    "bytes": sequential(layers.Input((8, 8, 3), dtype="uint8"), layers.Rescaling(1 / 127.5, offset=-1),
                        layers.Conv2D(2, 3)),
    "flags": sequential(layers.Input((6,), dtype="bool"), layers.Dense(3)),
    "dot": dot(1, False, (5, 3), (5, 4)), "dot of vectors": dot(-1, True, (5,), (5,)),
    "dot of others": dot((1, 2), True, (5, 3), (4, 5)),
    **{f"{merge.__name__} of sequences": merged_sequences(merge())
       for merge in (layers.Add, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum, layers.Concatenate)},
    "steps": merged_sequences(layers.Concatenate(axis=1)),
}


def some(shape: Sequence[int | None], dtype: str, count: int) -> np.ndarray:
    random, shape = np.random.default_rng(count), (count, *shape[1:])
    if dtype == "float32":
        return random.normal(size=shape).astype(np.float32)
    return random.integers(0, 2 if dtype == "bool" else 20, shape).astype(dtype)


def shuffle_weights(model: keras.Model) -> None:
    """Values unlike the initial ones: statistics and scales are not 0 and 1."""
    random = np.random.default_rng(7)
    for weight in model.weights:
        if "kernel" in weight.path or "embeddings" in weight.path or weight.dtype != "float32":
            continue
        values = random.normal(size=weight.shape)
        weight.assign(np.abs(values) + 0.5 if weight.path.endswith(("variance", "gamma")) else values / 4)
    for layer in model.layers:
        if isinstance(layer, layers.Normalization):
            layer.finalize_state()


def refusal_of(*arguments: object) -> tuple[int, str]:
    command = [program("lockstep"), "export", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stderr


class Exports(Scratch):
    @classmethod
    def setUpClass(cls) -> None:
        if "built without ONNX" in refusal_of("--model", __file__, "--output", "x.onnx")[1]:
            raise unittest.SkipTest("this build is without ONNX")

    def check(self, model: keras.Model, *, inputs: list[np.ndarray] | None = None, ending: str = ".keras",
              opset: int = 17) -> onnx.ModelProto:
        """Exports the model, and compares what both compute for one example and for several."""
        file, output = self.folder / f"model{ending}", self.folder / "model.onnx"
        model.save(file)
        output_of(program("lockstep"), "export", "--model", file, "--output", output, "--opset", opset)
        exported = onnx.load(output)
        onnx.checker.check_model(exported, full_check=True)
        self.assertEqual(exported.opset_import[0].version, opset)
        session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
        names = [one._keras_history.operation.name for one in model.inputs]
        self.assertEqual([one.name for one in session.get_inputs()], names)
        batches = [[some(one.shape, one.dtype, count) for one in model.inputs] for count in (5, 1)]
        for arrays in [inputs] if inputs else batches:
            theirs = model.predict(arrays, verbose=0)
            ours = session.run(None, dict(zip(names, arrays, strict=True)))
            for found, expected in zip(ours, theirs if isinstance(theirs, list) else [theirs], strict=True):
                self.assertEqual(found.shape, expected.shape)
                largest = np.abs(expected).max(initial=1e-3, where=np.isfinite(expected))
                np.testing.assert_allclose(found / largest, expected / largest, rtol=0, atol=TOLERANCE)
        return exported

    def test_layers(self) -> None:
        names = supported("Layers")
        self.assertGreater(len(names), 60)
        for name in names:
            with self.subTest(name):
                case = coverage.case_of_layer(name, np.random.default_rng(1))
                shuffle_weights(case.model)
                self.check(case.model, inputs=[case.inputs])

    def test_activations(self) -> None:
        names = supported("Activation functions")
        self.assertGreater(len(names), 20)
        for name in names:
            with self.subTest(name):
                model = keras.Sequential([image, layers.Conv2D(4, 1, activation=getattr(keras.activations, name))])
                model.layers[0].kernel.assign(3 * np.eye(4)[None, None])
                self.check(model)

    def test_options_and_graphs(self) -> None:
        for name, build in CASES.items():
            with self.subTest(name):
                keras.utils.set_random_seed(3)
                model = build()
                shuffle_weights(model)
                self.check(model)

    def test_opsets_and_files(self) -> None:
        model = coverage.case_of_layer("RMSNormalization", np.random.default_rng(1)).model
        encoder = CASES["ones"]()
        for opset in range(17, 22):
            for ending in (".keras", ".h5"):
                with self.subTest(opset=opset, ending=ending):
                    self.check(several(), ending=ending, opset=opset)
                    self.check(model, ending=ending, opset=opset)
                    self.check(encoder, ending=ending, opset=opset)

    def test_names(self) -> None:
        exported = self.check(several())
        self.assertEqual([one.name for one in exported.graph.output], ["kind", "picture", "p"])
        shape = exported.graph.input[0].type.tensor_type.shape.dim
        self.assertEqual([dim.dim_param or dim.dim_value for dim in shape], ["batch", 8, 8, 2])

    def test_images_are_transposed_once(self) -> None:
        exported = self.check(resnet20())
        self.assertEqual([node.op_type for node in exported.graph.node].count("Transpose"), 1)
        names = [constant.name for constant in self.check(several()).graph.initializer]
        self.assertEqual(len([name for name in names if name.endswith("kernel")]), 3, names)

    def test_random_models(self) -> None:
        for seed in range(options.count):
            with self.subTest(seed=seed):
                self.check(random_keras.build(keras, seed))

    def test_applications(self) -> None:
        if not options.applications:
            self.skipTest("no --applications")
        for name in ("MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "DenseNet121", "ResNet50V2", "NASNetMobile",
                     "ConvNeXtTiny", "InceptionResNetV2", "Xception"):
            with self.subTest(name):
                case = coverage.case_of_application(name, np.random.default_rng(1))
                self.check(case.model, inputs=[case.inputs[:4]])

    def test_refuses_other_layers_by_name(self) -> None:
        file, output = self.folder / "model.keras", self.folder / "model.onnx"
        keras.Sequential([sequence, layers.LSTM(3)]).save(file)
        code, message = refusal_of("--model", file, "--output", output)
        self.assertEqual(code, 65)
        self.assertIn("LSTM", message)
        self.assertFalse(output.exists())


if __name__ == "__main__":
    support.main(__doc__, count={"type": int, "default": 5}, applications={"action": "store_true"})
